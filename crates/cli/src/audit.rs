//! `throughline audit`: what a provider would say to a request, before it is sent.

use std::process::ExitCode;

use throughline_codec::{Audit as Audited, Finding, Rule, Verdict, audit};
use throughline_core::{Json, Tree, json};

use crate::failure::Failure;
use crate::mask::without_long_words;
use crate::options::{Audit, Format};
use crate::subject::Subject;
use crate::{report, text};

pub(crate) fn run(options: &Audit) -> Result<ExitCode, Failure> {
    let subject = Subject::read(&options.about, &options.file)?;
    let audited =
        audit(&subject.transcript(), &subject.target).map_err(|error| subject.bad(error))?;
    match options.format {
        Format::Json => {
            let mut out = json_of(&audited).as_str().to_owned();
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

fn json_of(audited: &Audited) -> Json {
    json::object(|o| {
        o.string("wire", audited.wire.as_str()).string("model", &audited.model);
        o.string("verdict", audited.verdict().as_str());
        o.object("summary", |o| audited.summary.write(o));
        o.array("findings", |a| {
            for finding in &audited.findings {
                a.object(|o| put_finding(o, finding));
            }
        });
    })
}

fn put_finding(o: &mut json::Object<'_>, finding: &Finding) {
    o.string("rule", finding.rule.id).string("severity", finding.severity.as_str());
    o.string("path", &finding.path).string("message", &without_long_words(&finding.message));
    match &finding.provider_error {
        Some(error) => o.string("provider_error", &without_long_words(error)),
        None => o.null("provider_error"),
    };
    o.string("fix", &finding.fix);
    o.array("evidence", |a| put_evidence(a, finding.rule));
}

/// How a rule is known: by a `url`, or by a `source` that has none.
pub(crate) fn put_evidence(a: &mut json::Array<'_>, rule: &Rule) {
    for source in rule.evidence {
        a.object(|o| {
            o.string("kind", source.kind.as_str());
            match source.url() {
                Some(url) => o.string("url", url),
                None => o.string("source", source.at),
            };
        });
    }
}
