//! `throughline audit`: what a provider would say to a request, before it is sent.

use std::process::ExitCode;

use throughline_codec::{Audit as Audited, Finding, Severity, Verdict, audit};
use throughline_core::{Json, Target, Tree, json};

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
            let mut out = json_of(&audited, &subject.target).as_str().to_owned();
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

fn json_of(audited: &Audited, target: &Target) -> Json {
    let formats = |a: &mut json::Array<'_>| {
        audited.summary.formats.iter().for_each(|format| {
            a.string(format.as_str());
        });
    };
    json::object(|o| {
        o.string("wire", audited.wire.as_str()).string("model", &audited.model);
        o.string("verdict", audited.verdict().as_str());
        o.object("summary", |o| {
            o.number("item_count", audited.summary.items as u64);
            o.number("signed_count", audited.summary.signed as u64);
            o.array("formats", formats);
            let refused =
                audited.findings.iter().find(|finding| finding.severity == Severity::Refuse);
            match refused {
                Some(finding) => {
                    o.object("violation", |o| {
                        o.string("kind", finding.rule.id);
                        o.string("contract", target.profile.contract.as_str());
                        o.array("formats", formats).string("message", &finding.message);
                    });
                }
                None => {
                    o.null("violation");
                }
            }
        });
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
    o.string("provider_error", &without_long_words(&finding.provider_error))
        .string("fix", &finding.fix);
    o.array("evidence", |a| {
        for source in finding.rule.evidence {
            a.object(|o| {
                o.string("kind", source.kind.as_str()).string("url", source.at);
            });
        }
    });
}
