//! `throughline audit`: what a provider would say to a request, before it is sent.

use std::process::ExitCode;

use throughline_codec::{Finding, Verdict, audit, audit_json};
use throughline_core::Tree;

use crate::failure::Failure;
use crate::options::{Audit, Format};
use crate::subject::Subject;
use crate::{report, text};

pub(crate) fn run(options: &Audit) -> Result<ExitCode, Failure> {
    let subject = Subject::read(&options.about, &options.file)?;
    let audited =
        audit(&subject.transcript(), &subject.target).map_err(|error| subject.bad(error))?;
    match options.format {
        Format::Json => {
            let mut out = audit_json(&audited).as_str().to_owned();
            out.push('\n');
            text::write_out(out.as_bytes()).or_else(Failure::unless_reader_gone)?;
        }
        Format::Text => {
            let width = text::width(std::io::stdout());
            let tree = Tree::parse(subject.request.body.clone());
            let tree = tree.map_err(|error| subject.bad(error.into()))?;
            let findings: Vec<&Finding> = audited.findings.iter().collect();
            let mut out = report::findings(&subject.name, &tree, &findings, width);
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&report::verdict(&audited, &subject));
            text::write_styled(&out).or_else(Failure::unless_reader_gone)?;
        }
    }
    Ok(match audited.verdict() {
        Verdict::Accept | Verdict::Degrade => ExitCode::SUCCESS,
        Verdict::Refuse => ExitCode::from(1),
    })
}
