//! `throughline repair`: makes the smallest change to a request that makes the provider accept it.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use owo_colors::{OwoColorize as _, Style};
use throughline_codec::{
    AppliedFix, Finding, Repair as Repaired, RepairLevel, Severity, applied_fixes_json, repair,
    shorten_opaque_words,
};
use throughline_json::Tree;

use crate::args::Repair;
use crate::cmd::report;
use crate::input::session;
use crate::input::subject::Subject;
use crate::print::failure::{Failure, Result};
use crate::print::listing::{Cell, Column, table_in};
use crate::print::text::{self, Report};

pub(crate) fn run(options: &Repair) -> Result<ExitCode> {
    let (subject, lines) = match (&options.session, &options.file) {
        (Some(file), _) => Subject::session(&options.request, file)
            .map(|(subject, lines)| (subject, Some(lines)))?,
        (None, Some(file)) => (Subject::read(&options.request, file)?, None),
        (None, None) => {
            let message = "no request was given; name the file to repair, or use --session";
            return Err(Failure::Usage(message.to_owned()));
        }
    };
    let (level, least) = if options.degraded {
        (RepairLevel::Degraded, Severity::Degrade)
    } else {
        (RepairLevel::Refused, Severity::Refuse)
    };
    let repaired = repair(&subject.transcript(), &subject.target, level);
    let repaired = repaired.map_err(|error| subject.bad_data(error))?;
    let read = options.file.iter().chain(&options.session).chain(&options.request.prior);
    let fixes = applied_fixes_json(&repaired.fixes);
    let report = Report { option: "--report", file: options.report.as_deref(), json: &fixes };
    report.write_file(read)?;
    let body = &repaired.request.body;
    let written = match &lines {
        Some(lines) => text::write_out(&session::unwrap(lines, subject.codec, body)?),
        None => text::write_document(body),
    };
    written.or_else(Failure::ignore_closed_pipe)?;
    let remaining = repaired.audit.findings.iter().filter(|finding| finding.severity >= least);
    let remaining: Vec<&Finding> = remaining.collect();
    let refused: Vec<_> =
        remaining.iter().filter(|finding| finding.severity == Severity::Refuse).collect();
    if report.print() {
        for finding in &refused {
            let (rule, path, message) = (finding.rule.id, &finding.path, &finding.message);
            let message = format!("{rule} at {path}: {message}");
            text::notice("not fixed:", report::style_of(finding.severity), &message);
        }
    } else {
        print_changes(&subject, &repaired, &remaining)?;
    }
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Prints the changes, and the problems that remain because no automatic change fixes them.
fn print_changes(subject: &Subject, repaired: &Repaired, remaining: &[&Finding]) -> Result<()> {
    let width = text::width(std::io::stderr());
    let changes = &repaired.fixes;
    if std::io::stdout().is_terminal() {
        anstream::eprintln!();
    }
    if !changes.is_empty() {
        let description = |change: &AppliedFix| text::plain(&shorten_opaque_words(&change.what));
        let columns = vec![
            Column::new("", changes.iter().map(|_| Cell::styled("~", Style::new().green()))),
            Column::new("", changes.iter().map(|change| change.rule.id)).unwrapped(),
            Column::new("", changes.iter().map(|change| text::plain(&change.path))).dimmed(),
            Column::new("", changes.iter().map(description)),
        ];
        anstream::eprint!("{}", table_in(columns, width));
    }
    if !remaining.is_empty() {
        let tree = Tree::parse(repaired.request.body.clone());
        let tree = tree.map_err(|error| subject.bad_data(error.into()))?;
        let name = format!("{}, repaired", subject.name);
        let name = if changes.is_empty() { &subject.name } else { &name };
        anstream::eprintln!("{}", report::findings(name, &tree, remaining, width));
    }
    let refused = remaining.iter().filter(|finding| finding.severity == Severity::Refuse).count();
    let provider = text::plain(&subject.target.origin.provider);
    let change_count = text::count(changes.len(), "change");
    let verdict = match (changes.len(), refused) {
        (0, 0) => format!("unchanged: no rule of {provider} is violated"),
        (_, 0) => {
            let repaired = "repaired".green().bold().to_string();
            format!("{repaired}: {change_count}; no rule of {provider} is violated now")
        }
        (_, refused) => {
            let (not_fixed, refused) = ("not fixed".red(), text::count(refused, "refusal"));
            format!("{}: {change_count}; {refused} could not be repaired", not_fixed.bold())
        }
    };
    anstream::eprintln!("{} {verdict}", text::mark(refused == 0));
    Ok(())
}
