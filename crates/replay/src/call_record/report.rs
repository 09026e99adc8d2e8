//! The report on a call: the Fates of its Items, findings and repairs.

use bytes::Bytes;
use throughline_codec::{AppendedMessage, AuditOutcome};
use throughline_core::{Disposition, ElisionReason, EncodedRequest, ItemPosition};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::call_record::transformations::InputTransformation;
use crate::finding::Finding;

/// Maximum length of each list of findings or repairs in a call record. Further entries are only
/// counted.
const MAX_LISTED: usize = 256;

/// The member that lists the messages that the gateway appended.
const APPENDED: &str = "appended";

/// Returns the report on a call as JSON. Each distinct outcome is written once and referenced by
/// number. The delta to the next call's report therefore stays small, even if the outcome of all
/// Items changes.
///
/// `appended` contains the system messages that express changes of the prompt, with their indexes
/// in the request. The next call reads the indexes with [`appended_messages`].
pub fn report_json(
    encoded: &EncodedRequest,
    restored: &[Finding],
    looked: &AuditOutcome,
    appended: &[(usize, &AppendedMessage)],
) -> Json {
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
        if !appended.is_empty() {
            o.objects(APPENDED, appended, |o, (index, message)| {
                o.number("message", *index as u64).bool("system", message.system);
                o.list("tools_added", message.added.iter().map(|name| &**name));
                o.list("tools_removed", message.removed.iter().map(|name| &**name));
            });
        }
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

/// A report to which the provider's own report was added.
pub(super) struct AmendedReport {
    pub(super) json: Json,
    /// The number of outcomes that changed from kept to elided, and from restored to elided.
    pub(super) kept: u64,
    pub(super) restored: u64,
}

/// Adds the provider's own report to the report on a call. `seals` contains the position of each
/// Seal in the sent request. Sent Seals have the same order in the Fates, so the Fate of a dropped
/// Seal is known if the numbers of Seals are equal.
pub(super) fn amend_report(
    account: Node<'_>,
    seals: &[ItemPosition],
    transformations: &[InputTransformation],
) -> AmendedReport {
    let dids: Vec<Name> =
        account.get("dids").into_iter().flat_map(Node::elements).filter_map(Node::name).collect();
    let mut now = dids.clone();
    let mut fates: Vec<(Name, Vec<usize>)> = Vec::new();
    for fate in account.get("fates").into_iter().flat_map(Node::elements) {
        let mut parts = fate.elements();
        let item = parts.next().and_then(Node::name).unwrap_or_default();
        let numbers = parts.filter_map(|number| usize::try_from(number.u64()?).ok());
        fates.push((item, numbers.collect()));
    }
    let is_sent = |number: usize| {
        dids.get(number).is_some_and(|did| did.starts_with("kept") || did.starts_with("restored"))
    };
    let sent = fates.iter().enumerate().flat_map(|(at, (_, numbers))| {
        let seals = numbers.iter().enumerate().skip(1);
        seals.filter(|(_, number)| is_sent(**number)).map(move |(seal, _)| (at, seal))
    });
    let sent: Vec<(usize, usize)> = sent.collect();
    let is_aligned = sent.len() == seals.len();
    let (mut kept, mut restored) = (0, 0);
    for drop in transformations.iter().filter(|entry| is_aligned && entry.is_drop()) {
        let Some(position) = drop.position() else { continue };
        let elided = Disposition::Elided(ElisionReason::ByProvider);
        let did = Name::from(format!("{elided}: {}", drop.reason));
        let known = now.iter().position(|known| *known == did);
        let number = known.unwrap_or_else(|| {
            now.push(did);
            now.len() - 1
        });
        let dropped = sent.iter().zip(seals).filter(|(_, place)| **place == position);
        for ((at, seal), _) in dropped {
            // The provider drops the whole block: its text and its Seal.
            for part in [0, *seal] {
                let Some(outcome) = fates.get_mut(*at).and_then(|(_, n)| n.get_mut(part)) else {
                    continue;
                };
                let was = dids.get(*outcome).map_or("", |was| was);
                kept += u64::from(was.starts_with("kept"));
                restored += u64::from(was.starts_with("restored"));
                *outcome = number;
            }
        }
    }
    let json = json::object(|o| {
        o.array("fates", |a| {
            for (item, numbers) in &fates {
                let numbers = numbers.iter().map(|number| *number as u64);
                a.array(|a| a.string(item).extend(numbers));
            }
        });
        o.list("dids", now.iter().map(|did| &**did));
        for (key, value) in account.members() {
            if !key.is("fates") && !key.is("dids") {
                o.node(&key.text().unwrap_or_default(), value);
            }
        }
        o.objects("input_transformations", transformations.iter().take(MAX_LISTED), |o, entry| {
            o.string("type", &entry.kind).string("path", &entry.path);
            o.string("reason", &entry.reason);
        });
    });
    AmendedReport { json, kept, restored }
}

/// Returns the indexes of the messages that the gateway appended to a sent request, according to
/// its report.
pub fn appended_messages(account: &Bytes) -> Vec<usize> {
    if memchr::memmem::find(account, APPENDED.as_bytes()).is_none() {
        return Vec::new();
    }
    let Ok(tree) = Tree::parse(account.clone()) else { return Vec::new() };
    let messages = tree.root().get(APPENDED).into_iter().flat_map(Node::elements);
    let index = |message: Node<'_>| usize::try_from(message.get("message")?.u64()?).ok();
    messages.filter_map(index).collect()
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
