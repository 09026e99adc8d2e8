//! The report on a call: the Fates of its Items, findings and repairs.

use throughline_codec::AuditOutcome;
use throughline_core::{Disposition, EncodedRequest};
use throughline_json::{self as json, Json, Node};

use crate::finding::Finding;

/// Maximum length of each list of findings or repairs in a call record. Further entries are only
/// counted.
const MAX_LISTED: usize = 256;

/// Returns the report on a call as JSON. Each distinct outcome is written once and referenced by
/// number. The delta to the next call's report therefore stays small, even if the outcome of all
/// Items changes.
pub fn report_json(encoded: &EncodedRequest, restored: &[Finding], looked: &AuditOutcome) -> Json {
    let mut dispositions: Vec<&Disposition> = Vec::new();
    let mut number = |disposition| {
        let known = dispositions.iter().position(|known| *known == disposition);
        known.unwrap_or_else(|| {
            dispositions.push(disposition);
            dispositions.len() - 1
        }) as u64
    };
    let fates = json::array(|a| {
        for fate in &encoded.fates {
            let outcomes = std::iter::once(&fate.visible).chain(&fate.seals);
            a.array(|a| a.string(&fate.item.0).extend(outcomes.map(&mut number)));
        }
    });
    json::object(|o| {
        let dispositions: Vec<_> = dispositions.iter().map(ToString::to_string).collect();
        o.raw("fates", &fates).list("dids", dispositions.iter().map(String::as_str));
        let more = [
            ("more_restore_findings", restored.len()),
            ("more_repaired", looked.fixes.len()),
            ("more_findings", looked.findings.len()),
        ];
        for (name, count) in more.into_iter().filter(|(_, count)| *count > MAX_LISTED) {
            o.number(name, (count - MAX_LISTED) as u64);
        }
        o.objects("restore_findings", restored.iter().take(MAX_LISTED), |o, finding| {
            o.string("item", &finding.item.0).string("message", &finding.problem.to_string());
        });
        o.objects("repaired", looked.fixes.iter().take(MAX_LISTED), |o, fix| {
            o.string("rule", fix.rule.id).string("path", &fix.path);
            o.string("message", &fix.message).string("fix", &fix.what);
        });
        o.objects("findings", looked.findings.iter().take(MAX_LISTED), |o, finding| {
            o.string("rule", finding.rule.id).string("path", &finding.path);
            o.string("severity", finding.severity.as_str());
            o.string("message", &finding.message).string("fix", &finding.fix);
        });
        o.objects("warnings", &encoded.warnings, |o, warning| {
            o.string("setting", &warning.setting).string("message", &warning.message);
        });
    })
}

/// Writes the Fates of a stored report, with each outcome spelled out.
pub(super) fn put_fates(o: &mut json::Object<'_>, account: Node<'_>) {
    let dispositions: Vec<_> = account.get("dids").into_iter().flat_map(Node::elements).collect();
    let disposition =
        |number: Node<'_>| dispositions.get(usize::try_from(number.u64()?).ok()?).copied();
    o.array("fates", |a| {
        for fate in account.get("fates").into_iter().flat_map(Node::elements) {
            let mut parts = fate.elements();
            let (Some(item), Some(visible)) = (parts.next(), parts.next().and_then(disposition))
            else {
                continue;
            };
            a.object(|o| {
                o.node("item", item).node("visible", visible);
                o.list("seals", parts.filter_map(disposition));
            });
        }
    });
}
