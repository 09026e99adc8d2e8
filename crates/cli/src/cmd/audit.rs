//! `throughline audit`: checks a request against its provider's rules before the request is sent.

use std::process::ExitCode;

use throughline_codec::{Finding, Verdict, audit, audit_json};
use throughline_json::Tree;

use crate::args::{Audit, Format};
use crate::cmd::report;
use crate::input::subject::Subject;
use crate::print::failure::{Failure, Result};
use crate::print::text;

pub(crate) fn run(options: &Audit) -> Result<ExitCode> {
    let subject = Subject::read(&options.request, &options.file)?;
    let audited =
        audit(&subject.transcript(), &subject.target).map_err(|error| subject.bad_data(error))?;
    match options.format {
        Format::Json => {
            text::write_json(&audit_json(&audited)).or_else(Failure::ignore_closed_pipe)?;
        }
        Format::Text => {
            let width = text::width(std::io::stdout());
            let tree = Tree::parse(subject.request.body.clone());
            let tree = tree.map_err(|error| subject.bad_data(error.into()))?;
            let findings: Vec<&Finding> = audited.findings.iter().collect();
            let mut out = report::findings(&subject.name, &tree, &findings, width);
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&report::verdict(&audited, &subject));
            text::write_styled(&out).or_else(Failure::ignore_closed_pipe)?;
        }
    }
    Ok(match audited.verdict() {
        Verdict::Accept | Verdict::Degrade => ExitCode::SUCCESS,
        Verdict::Refuse => ExitCode::from(1),
    })
}
