//! What became of each Item of a call, and what was found in it.

use throughline_codec::{Finding, Mended, Verdict};
use throughline_core::{Did, Encoded, Json, Node, json};

use crate::replay;

/// The most findings and repairs of each kind that a call's record lists; of the others it holds the number.
const MOST_LISTED: usize = 256;

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

/// What became of each Item, and what was found. What happened is written once and pointed at: from call to call the
/// grounds change for all Items at once.
pub(crate) fn account(encoded: &Encoded, restored: &[replay::Finding], looked: &Looked) -> Json {
    let mut dids: Vec<&Did> = Vec::new();
    let mut number = |did| {
        let known = dids.iter().position(|known| *known == did);
        known.unwrap_or_else(|| {
            dids.push(did);
            dids.len() - 1
        }) as u64
    };
    let fates = json::array(|a| {
        for fate in &encoded.fates {
            a.array(|a| {
                a.string(&fate.item.0).number(number(&fate.visible));
                for seal in &fate.seals {
                    a.number(number(seal));
                }
            });
        }
    });
    json::object(|o| {
        o.raw("fates", &fates).array("dids", |a| {
            for did in dids {
                a.string(&did.to_string());
            }
        });
        let more = [
            ("more_restore_findings", restored.len()),
            ("more_mended", looked.mended.len()),
            ("more_findings", looked.findings.len()),
        ];
        for (name, count) in more.into_iter().filter(|(_, count)| *count > MOST_LISTED) {
            o.number(name, (count - MOST_LISTED) as u64);
        }
        o.array("restore_findings", |a| {
            for finding in restored.iter().take(MOST_LISTED) {
                a.object(|o| {
                    o.string("item", &finding.item.0);
                    o.string("message", &finding.problem.to_string());
                });
            }
        });
        o.array("mended", |a| {
            for mended in looked.mended.iter().take(MOST_LISTED) {
                a.object(|o| {
                    o.string("rule", mended.rule.id).string("path", &mended.path);
                    o.string("message", &mended.message).string("mend", &mended.what);
                });
            }
        });
        o.array("findings", |a| {
            for finding in looked.findings.iter().take(MOST_LISTED) {
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

/// Tells what became of each Item, as [`account`] wrote it.
pub(super) fn put_fates(o: &mut json::Object<'_>, account: Node<'_>) {
    let dids: Vec<_> = account.get("dids").into_iter().flat_map(Node::elements).collect();
    let did = |number: Node<'_>| dids.get(usize::try_from(number.u64()?).ok()?).copied();
    o.array("fates", |a| {
        for fate in account.get("fates").into_iter().flat_map(Node::elements) {
            let mut parts = fate.elements();
            let (Some(item), Some(visible)) = (parts.next(), parts.next().and_then(did)) else {
                continue;
            };
            a.object(|o| {
                o.node("item", item).node("visible", visible).array("seals", |a| {
                    for seal in parts.filter_map(did) {
                        a.node(seal);
                    }
                });
            });
        }
    });
}
