//! What became of each Item of a call, and what was found in it.

use throughline_codec::{Finding, Mended, Verdict};
use throughline_core::{Did, Encoded, Json, json};

use crate::replay;

/// What the audit of a request found, and what was mended of it.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) verdict: Verdict,
    pub(crate) findings: Vec<Finding>,
    pub(crate) mended: Vec<Mended>,
}

impl Looked {
    /// Nobody looked.
    pub(crate) fn at_nothing() -> Self {
        Self { verdict: Verdict::Accept, findings: Vec::new(), mended: Vec::new() }
    }
}

/// What became of each Item, and what was found.
pub(crate) fn account(encoded: &Encoded, restored: &[replay::Finding], looked: &Looked) -> Json {
    json::object(|o| {
        o.array("fates", |a| {
            for fate in &encoded.fates {
                a.object(|o| {
                    o.string("item", &fate.item.0).string("visible", &did(&fate.visible));
                    o.array("seals", |a| {
                        for seal in &fate.seals {
                            a.string(&did(seal));
                        }
                    });
                });
            }
        });
        o.array("restore_findings", |a| {
            for finding in restored {
                a.object(|o| {
                    o.string("item", &finding.item.0);
                    o.string("message", &finding.problem.to_string());
                });
            }
        });
        o.array("mended", |a| {
            for mended in &looked.mended {
                a.object(|o| {
                    o.string("rule", mended.rule.id).string("path", &mended.path);
                    o.string("message", &mended.message).string("mend", &mended.what);
                });
            }
        });
        o.array("findings", |a| {
            for finding in &looked.findings {
                a.object(|o| {
                    o.string("rule", finding.rule.id).string("path", &finding.path);
                    o.string("severity", finding.severity.as_str());
                    o.string("message", &finding.message).string("fix", &finding.fix);
                });
            }
        });
        o.array("warnings", |a| {
            for warning in &encoded.warnings {
                a.object(|o| {
                    o.string("setting", &warning.setting).string("message", &warning.message);
                });
            }
        });
    })
}

/// What happened, as a word with its grounds.
fn did(did: &Did) -> String {
    did.to_string()
}
