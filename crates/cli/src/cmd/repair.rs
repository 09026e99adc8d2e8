//! `throughline repair`: makes the smallest change after which a provider accepts a request.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use comfy_table::{Attribute, Cell, Color};
use owo_colors::OwoColorize as _;
use throughline_codec::{
    Finding, Repair as Repaired, RepairLevel, Severity, applied_fixes_json, repair,
    shorten_opaque_words,
};
use throughline_json::Tree;

use crate::args::Repair;
use crate::cmd::report;
use crate::input::session;
use crate::input::subject::Subject;
use crate::print::failure::Failure;
use crate::print::listing::{borderless_table, keep_whole};
use crate::print::text;

pub(crate) fn run(options: &Repair) -> Result<ExitCode, Failure> {
    let (subject, lines) = match (&options.session, &options.file) {
        (Some(file), _) => {
            let (subject, lines) = Subject::session(&options.about, file)?;
            (subject, Some(lines))
        }
        (None, Some(file)) => (Subject::read(&options.about, file)?, None),
        (None, None) => return Err(Failure::Usage("name the request to repair".to_owned())),
    };
    let reach = if options.degraded { RepairLevel::Degraded } else { RepairLevel::Refused };
    let repaired = repair(&subject.transcript(), &subject.target, reach)
        .map_err(|error| subject.bad_data(error))?;
    if let Some(file) = options.report.as_deref().filter(|file| file.as_os_str() != "-") {
        let read = options.file.iter().chain(&options.session).chain(&options.about.prior);
        let mut report = applied_fixes_json(&repaired.fixes).bytes().to_vec();
        report.push(b'\n');
        text::write_report("--report", file, read, &report)?;
    }
    match &lines {
        Some(lines) => {
            let lines = session::unwrap(lines, subject.codec, &repaired.request.body)?;
            text::write_out(&lines).or_else(Failure::ignore_closed_pipe)?;
        }
        None => {
            text::write_out(&repaired.request.body).or_else(Failure::ignore_closed_pipe)?;
        }
    }
    if lines.is_none() && std::io::stdout().is_terminal() {
        text::write_out(b"\n")?;
    }
    let least = if options.degraded { Severity::Degrade } else { Severity::Refuse };
    let left = repaired.audit.findings.iter().filter(|finding| finding.severity >= least);
    let left: Vec<&Finding> = left.collect();
    match &options.report {
        Some(file) if file.as_os_str() == "-" => {
            anstream::eprintln!("{}", applied_fixes_json(&repaired.fixes).as_str());
        }
        Some(_) => {}
        None => tell(&subject, &repaired, &left)?,
    }
    if options.report.is_some() {
        for finding in left.iter().filter(|finding| finding.severity == Severity::Refuse) {
            let (rule, path, message) = (finding.rule.id, &finding.path, &finding.message);
            text::notice(
                "not fixed:",
                report::style_of(finding.severity),
                &format!("{rule} at {path}: {message}"),
            );
        }
    }
    let is_refused = left.iter().any(|finding| finding.severity == Severity::Refuse);
    Ok(if is_refused { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Prints the changes and the remaining problems.
fn tell(subject: &Subject, repaired: &Repaired, left: &[&Finding]) -> Result<(), Failure> {
    let width = text::width(std::io::stderr());
    let changes = &repaired.fixes;
    if std::io::stdout().is_terminal() {
        anstream::eprintln!();
    }
    if !changes.is_empty() {
        let mut table = borderless_table(width);
        for change in changes {
            table.add_row([
                Cell::new("~").fg(Color::Green),
                Cell::new(change.rule.id),
                Cell::new(text::plain(&change.path)).add_attribute(Attribute::Dim),
                Cell::new(text::plain(&shorten_opaque_words(&change.what))),
            ]);
        }
        keep_whole(&mut table, 1);
        anstream::eprintln!("{}", table.trim_fmt());
    }
    if !left.is_empty() {
        let tree = Tree::parse(repaired.request.body.clone());
        let tree = tree.map_err(|error| subject.bad_data(error.into()))?;
        let name = format!("{}, repaired", subject.name);
        let name = if changes.is_empty() { &subject.name } else { &name };
        anstream::eprintln!("{}", report::findings(name, &tree, left, width));
    }
    let refused = left.iter().filter(|finding| finding.severity == Severity::Refuse).count();
    let provider = text::plain(&subject.target.origin.provider);
    let made = text::count(changes.len(), "change");
    match (changes.len(), refused) {
        (0, 0) => {
            anstream::eprintln!(
                "{} unchanged: no rule of {provider} is violated",
                text::mark(true)
            );
        }
        (_, 0) => anstream::eprintln!(
            "{} {}: {made}; no rule of {provider} is violated now",
            text::mark(true),
            "repaired".green().bold()
        ),
        (_, refused) => anstream::eprintln!(
            "{} {}: {made}; {} could not be repaired",
            text::mark(false),
            "not fixed".red().bold(),
            text::count(refused, "refusal")
        ),
    }
    Ok(())
}
