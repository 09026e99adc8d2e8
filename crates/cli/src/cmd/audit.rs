//! `throughline audit`: checks a request against its provider's rules before the request is sent.

use std::process::ExitCode;

use throughline_codec::{Finding, Verdict, audit, audit_json};
use throughline_json::{self as json, Json, Node, Tree};
use throughline_spec::ReplayAudit;

use crate::args::{Audit, Format};
use crate::cmd::report;
use crate::input::subject::Subject;
use crate::print::failure::{Failure, Result};
use crate::print::text;

pub(crate) fn run(options: &Audit) -> Result<ExitCode> {
    let (subject, turns) = match options.from {
        Some(format) => Subject::history(&options.request, &options.file, format)?,
        None => (Subject::read(&options.request, &options.file)?, Vec::new()),
    };
    let audited =
        audit(&subject.transcript(), &subject.target).map_err(|error| subject.bad_data(error))?;
    let replayable = turns.iter().all(|(_, audit)| audit.is_clean());
    let verdict = if replayable { audited.verdict() } else { Verdict::Refuse };
    match options.format {
        Format::Json => {
            let mut report = audit_json(&audited);
            if options.from.is_some() {
                report = with_turns(&report, verdict, &turns);
            }
            text::write_json(&report).or_else(Failure::ignore_closed_pipe)?;
        }
        Format::Text => {
            let width = text::width(std::io::stdout());
            let tree = Tree::parse(subject.request.body.clone());
            let tree = tree.map_err(|error| subject.bad_data(error.into()))?;
            let findings: Vec<&Finding> = audited.findings.iter().collect();
            let mut out = report::turns(&subject.name, &turns, width);
            // The findings are in the request that the conversation was translated to.
            let name = options.from.map_or(&*subject.name, |_| "translated request");
            out.push_str(&report::findings(name, &tree, &findings, width));
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&report::verdict(verdict, &audited, &turns, &subject));
            text::write_styled(&out).or_else(Failure::ignore_closed_pipe)?;
        }
    }
    Ok(match verdict {
        Verdict::Accept | Verdict::Degrade => ExitCode::SUCCESS,
        Verdict::Refuse => ExitCode::from(1),
    })
}

/// Adds the audits of the assistant turns to the report, and sets the verdict on the request and
/// its turns.
fn with_turns(report: &Json, verdict: Verdict, turns: &[(u32, ReplayAudit)]) -> Json {
    let mut report = report.clone();
    if let Some(range) = report.tree().root().get("verdict").map(Node::range) {
        report = report.with_value_at(range, &json::string(verdict.as_str()));
    }
    let tree = report.tree();
    json::object(|out| {
        out.nodes(tree.root().members());
        out.objects("turns", turns, |out, (message, audit)| {
            out.number("message", u64::from(*message));
            audit.write(out);
        });
    })
}
