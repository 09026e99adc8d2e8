//! Checks reasoning items: their required members, and whether they come back as issued.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use throughline_core::{Body, Direction, Item, Wire};
use throughline_json::{self as json, Json, Node};

use crate::responses::contract::pairing::{
    has_same_content, id_removal_edits, move_before, text_of,
};
use crate::responses::contract::replay_history::{PriorOutput, ResponsesReplayHistory};
use crate::responses::contract::rules::{
    CACHE_PREFIX_BROKEN, ENCRYPTED_CONTENT_INVALID, ITEM_NOT_FOUND, PHASE_DROPPED,
    REASONING_DROPPED, REASONING_MOVED, REASONING_NEEDS_SUMMARY, THOUGHT_AS_TEXT,
};
use crate::responses::contract::view::{ResponsesElement, ResponsesRequest};
use crate::responses::wire::{self, IdPolicy, ResponsesElementKind};
use crate::{AuditContext, Change, ChangeKind, Edit, Finding, Findings, Fix, IssuedItem, Severity};

/// Checks every reasoning and compaction item using only the request.
pub(super) fn check(
    case: &AuditContext<'_>,
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    findings: &mut Findings<'_>,
) {
    let format = wire::reasoning_format(&case.target().origin.provider);
    for element in &view.elements {
        let is_reasoning = element.kind == ResponsesElementKind::Reasoning;
        if is_reasoning || element.kind == ResponsesElementKind::Compaction {
            let is_signed = element.seal.is_some_and(|seal| seal.raw().len() > 2);
            findings.count(element.node, &format, is_signed);
            check_not_empty(view, past, element, findings);
        }
        if is_reasoning && element.node.present("summary").is_none() {
            let message = "this reasoning item has no `summary`; an empty list is enough";
            let edit = Edit::Set(element.node.range(), "summary".into(), json::array(|_| {}));
            let fix = Fix::new("gives the reasoning item an empty summary", [edit]);
            findings.add(
                Finding::at(&REASONING_NEEDS_SUMMARY, element.node, message)
                    .with_path(element.path())
                    .with_provider_error(format!(
                        "Missing required parameter: '{}.summary'.",
                        element.path()
                    ))
                    .with_auto_fix(fix),
            );
        }
        if case.target().provider.dialect.stores {
            check_stored(view, past, element, findings);
        }
    }
}

/// Checks that a Seal is not empty.
fn check_not_empty(
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    element: &ResponsesElement<'_>,
    findings: &mut Findings<'_>,
) {
    let Some(seal) = element.seal.filter(|seal| seal.is_string()) else { return };
    // Vendors use different alphabets, so only an empty value is certainly wrong.
    if !is_empty(seal) {
        return;
    }
    let message = format!("the encrypted content of this `{}` item is empty", element.name());
    findings.add(
        invalid_content_finding(element, seal, message)
            .with_auto_fix(remove_seal(view, past, element, seal)),
    );
}

fn is_empty(seal: Node<'_>) -> bool {
    seal.raw() == b"\"\""
}

fn invalid_content_finding(
    element: &ResponsesElement<'_>,
    seal: Node<'_>,
    message: String,
) -> Finding {
    let answer = match element.id {
        Some(_) => format!(
            "The encrypted content for item {} could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
            element.id_text()
        ),
        // The provider's error shows the first and last characters of the Seal; this one shows
        // none.
        None => "The encrypted content … could not be verified.".to_owned(),
    };
    Finding::at(&ENCRYPTED_CONTENT_INVALID, seal, message)
        .with_path(format!("{}.encrypted_content", element.path()))
        .with_provider_error(answer)
}

/// Builds a fix for a Seal that cannot be decrypted: removes the value of a stored item, or the
/// whole item if it is not stored.
fn remove_seal(
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    element: &ResponsesElement<'_>,
    seal: Node<'_>,
) -> Fix {
    let said = past.and_then(|past| past.for_element(element));
    if view.is_kept && element.id.is_some() && said.is_none_or(|said| said.is_own) {
        let what = "removes the encrypted content; the stored item has its own";
        return Fix::new(what, [Edit::Remove(seal.range())]);
    }
    remove_item(view, element)
}

/// Builds a fix that removes a reasoning item and the ids it pairs.
fn remove_item(view: &ResponsesRequest<'_>, element: &ResponsesElement<'_>) -> Fix {
    let mut edits = vec![Edit::Remove(element.node.range())];
    if view.is_paired && element.kind == ResponsesElementKind::Reasoning && element.id.is_some() {
        edits.extend(view.led_by(element).flat_map(id_removal_edits));
    }
    let and_ids = if edits.len() > 1 { ", and the paired ids" } else { "" };
    let name =
        if element.kind == ResponsesElementKind::Compaction { "compaction" } else { "reasoning" };
    Fix::new(format!("removes the {name} item that the target cannot read{and_ids}"), edits)
}

/// Checks that an item sent only by id was stored.
fn check_stored(
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    element: &ResponsesElement<'_>,
    findings: &mut Findings<'_>,
) {
    let is_reference = element.node.get("type").is_some_and(|kind| kind.is("item_reference"));
    let is_named = element.kind == ResponsesElementKind::Reasoning
        && element.seal.is_none()
        && element.node.get("content").is_none_or(|content| content.elements().next().is_none());
    if element.id.is_none() || !(is_reference || is_named) {
        return;
    }
    let id = element.id_text();
    let said = past.and_then(|past| past.for_element(element));
    let answer = format!(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
    );
    let finding = match said {
        Some(said) if said.is_kept => return,
        Some(said) if !said.is_own => {
            let message = format!("`{id}` belongs to another account or endpoint");
            let fix = remove_item(view, element);
            Finding::at(&ITEM_NOT_FOUND, element.node, message).with_auto_fix(fix)
        }
        Some(said) => {
            let message =
                format!("`{id}` was created with `store` set to false, so its id does not resolve");
            let whole = said.said(IdPolicy::Dropped);
            let has_seal = whole.tree().root().present("encrypted_content").is_some();
            let fix = if said.kind != ResponsesElementKind::Reasoning || has_seal {
                let edit = Edit::Replace(element.node.range(), whole);
                Fix::new("sends the item itself instead of its id", [edit])
            } else {
                remove_item(view, element)
            };
            Finding::at(&ITEM_NOT_FOUND, element.node, message).with_auto_fix(fix)
        }
        None if !view.is_kept && !is_reference => {
            let message = format!(
                "`{id}` has no encrypted content, and with `store` set to false its id does not resolve"
            );
            Finding::at(&ITEM_NOT_FOUND, element.node, message)
                .with_severity(Severity::Degrade)
                .with_auto_fix(remove_item(view, element))
        }
        None => return,
    };
    findings.add(finding.with_path(element.path()).with_provider_error(answer));
}

/// Reports the differences from the issued items.
pub(super) fn report_changes(
    case: &AuditContext<'_>,
    view: &ResponsesRequest<'_>,
    past: &ResponsesReplayHistory<'_>,
    findings: &mut Findings<'_>,
) {
    let Some(comparison) = case.comparison() else { return };
    let mut lost = HashSet::new();
    for change in &comparison.changes {
        let element = change.part.as_ref().and_then(|part| view.at(part.start));
        match element {
            Some(element) => report_change(case, view, past, change, element, findings),
            None if change.kind == ChangeKind::PartDropped => {
                let key = change.issued.map(|issued| (issued.exchange, issued.item.place.message));
                if lost.insert(key) {
                    report_dropped(case, view, past, change, findings);
                }
            }
            None => {}
        }
    }
    if let Some(finding) = comparison.cache_finding(&CACHE_PREFIX_BROKEN) {
        findings.add(finding);
    }
    check_phases(view, past, findings);
}

/// Reports an issued item that came back changed.
fn report_change(
    case: &AuditContext<'_>,
    view: &ResponsesRequest<'_>,
    past: &ResponsesReplayHistory<'_>,
    change: &Change<'_>,
    element: &ResponsesElement<'_>,
    findings: &mut Findings<'_>,
) {
    let said = change.issued.and_then(|issued| past.at(issued.exchange, issued.item.place.message));
    let seal = change.seal.as_ref().map(|place| case.node_at(place)).or(element.seal);
    match change.kind {
        ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded => {
            let Some(seal) = seal.filter(|seal| !is_empty(*seal)) else { return };
            let message = format!("the encrypted content {}", change.kind.describe());
            let fix = change.issued.and_then(|issued| restore_content(seal.range(), issued));
            findings.add(invalid_content_finding(element, seal, message).with_auto_fix(fix));
        }
        ChangeKind::Foreign(_) => {
            let Some(seal) = seal else { return };
            let message = format!("the encrypted content {}", change.kind.describe());
            findings.add(
                invalid_content_finding(element, seal, message)
                    .with_auto_fix(remove_foreign(view, element)),
            );
        }
        ChangeKind::Unissued => {
            let Some(seal) = seal.filter(|seal| !is_empty(*seal)) else { return };
            let message = format!("the encrypted content {}", change.kind.describe());
            let severity = if change.is_placed { Severity::Refuse } else { Severity::Note };
            findings.add(
                invalid_content_finding(element, seal, message)
                    .with_severity(severity)
                    .with_auto_fix(remove_seal(view, Some(past), element, seal)),
            );
        }
        ChangeKind::SealDropped => {
            // A stored id resolves the rest. Ids that were not stored and empty Seals have their
            // own findings.
            if element.id.is_some() || element.seal.is_some() {
                return;
            }
            let Some(said) = said
                .filter(|_| change.is_current && element.kind == ResponsesElementKind::Reasoning)
            else {
                return;
            };
            let message =
                format!("the encrypted content of this reasoning item {}", change.kind.describe());
            let edit = Edit::Replace(element.node.range(), said.said(restorable_ids(view, said)));
            findings.add(
                Finding::at(&REASONING_DROPPED, element.node, message)
                    .with_path(element.path())
                    .with_auto_fix(Fix::new("restores the encrypted content", [edit])),
            );
        }
        ChangeKind::Reordered | ChangeKind::PartMoved => {
            // A broken pair of stored ids has its own finding, with severity `Refuse`. Items that
            // were not stored have no pair.
            let is_kept = said.is_none_or(|said| said.is_kept);
            let is_paired = view.is_paired && element.id.is_some() && is_kept;
            let Some(said) =
                said.filter(|_| !is_paired && element.kind == ResponsesElementKind::Reasoning)
            else {
                return;
            };
            report_misplaced(view, past, said, element, findings);
        }
        ChangeKind::SealMoved | ChangeKind::Merged | ChangeKind::Duplicated => {
            if element.kind != ResponsesElementKind::Reasoning
                || (change.kind == ChangeKind::Duplicated && view.is_paired && element.id.is_some())
            {
                return;
            }
            let message = format!("this reasoning {}", change.kind.describe());
            let place = element.node.range();
            let fix = if change.kind == ChangeKind::Duplicated {
                let what = "removes the second copy of the reasoning item";
                Some(Fix::new(what, [Edit::Remove(place)]))
            } else {
                said.map(|said| {
                    let edit = Edit::Replace(place, said.said(restorable_ids(view, said)));
                    Fix::new("restores the issued reasoning item", [edit])
                })
            };
            findings.add(
                Finding::at(&REASONING_MOVED, element.node, message)
                    .with_path(element.path())
                    .with_auto_fix(fix),
            );
        }
        ChangeKind::SaidAloud => {
            let message = format!("this text {}", change.kind.describe());
            let place = change.part.clone().unwrap_or_default();
            findings.add(Finding::in_range(&THOUGHT_AS_TEXT, place, message));
        }
        // A summary is for display; the encrypted content is complete.
        ChangeKind::TextEdited { .. } | ChangeKind::PartDropped => {}
    }
}

/// Returns which ids a restored output can have.
fn restorable_ids(view: &ResponsesRequest<'_>, said: &PriorOutput<'_>) -> IdPolicy {
    if view.is_kept && said.is_kept { IdPolicy::Kept } else { IdPolicy::Dropped }
}

/// Builds a fix that restores the issued bytes.
fn restore_content(place: Range<usize>, issued: IssuedItem<'_>) -> Option<Fix> {
    let seal = issued.item.seals.get(issued.seal.unwrap_or_default())?;
    let value = response_json(issued.item).and_then(|json| {
        let tree = json.tree();
        tree.root().at(&seal.attached.at).map(Node::json)
    })?;
    Some(Fix::new("restores the issued encrypted content", [Edit::Replace(place, value)]))
}

fn response_json(item: &Item) -> Option<&Json> {
    let native = item.native_on(&Wire::OPENAI_RESPONSES)?;
    (native.side == Direction::Response).then_some(&native.json)
}

/// Builds a fix that removes an item of another endpoint or account, and the ids valid only there.
fn remove_foreign(view: &ResponsesRequest<'_>, element: &ResponsesElement<'_>) -> Fix {
    let mut edits = vec![Edit::Remove(element.node.range())];
    if element.kind == ResponsesElementKind::Reasoning {
        edits.extend(view.led_by(element).flat_map(id_removal_edits));
    }
    let what = match edits.len() {
        1 => "removes the item of another endpoint or account",
        _ => "removes the foreign reasoning item and the ids of the items it led to",
    };
    Fix::new(what, edits)
}

/// Reports reasoning that is no longer directly before the item it led to.
fn report_misplaced(
    view: &ResponsesRequest<'_>,
    past: &ResponsesReplayHistory<'_>,
    said: &PriorOutput<'_>,
    element: &ResponsesElement<'_>,
    findings: &mut Findings<'_>,
) {
    let led = past.following(said).and_then(|led| element_of(view, led));
    let Some(led) = led.filter(|led| element.next != Some(led.index)) else { return };
    let message = "this reasoning item is no longer directly before the item it led to";
    findings.add(
        Finding::at(&REASONING_MOVED, element.node, message)
            .with_path(element.path())
            .with_auto_fix(move_before(element, led)),
    );
}

/// Returns the request element that repeats an earlier output.
fn element_of<'v, 'c>(
    view: &'v ResponsesRequest<'c>,
    said: &PriorOutput<'_>,
) -> Option<&'v ResponsesElement<'c>> {
    let mut elements = view.elements.iter();
    let same = || view.elements.iter().find(|element| has_same_content(element.node, said));
    elements.find(|element| said.is_named_by(element)).or_else(same)
}

/// Reports missing reasoning of the current turn whose following item is present.
fn report_dropped(
    case: &AuditContext<'_>,
    view: &ResponsesRequest<'_>,
    past: &ResponsesReplayHistory<'_>,
    change: &Change<'_>,
    findings: &mut Findings<'_>,
) {
    let Some(issued) = change.issued.filter(|_| change.is_current && !view.is_resumed) else {
        return;
    };
    let is_thought = matches!(issued.item.body, Body::Thought(_));
    let said = past.at(issued.exchange, issued.item.place.message);
    // Reasoning that the target cannot read is not lost.
    let (was, is) = (&issued.reply.origin, &case.target().origin);
    let is_read = was.provider == is.provider
        && was.endpoint == is.endpoint
        && issued.item.seals.iter().all(|seal| seal.open_for(case.target(), None).is_ok());
    let said = said.filter(|_| is_thought && is_read);
    let Some((said, led)) = said.and_then(|said| Some((said, past.following(said)?))) else {
        return;
    };
    let Some(element) = element_of(view, led) else { return };
    if view.elements.iter().any(|other| said.is_named_by(other)) {
        // The request references the item by id.
        return;
    }
    if view.is_paired && said.is_kept && element.id.is_some() {
        // `ITEM_WITHOUT_ITS_REASONING` reports this case.
        return;
    }
    let message = format!(
        "the reasoning that led to this `{}` was issued but is not in the request",
        element.name()
    );
    let back = said.said(if element.id.is_some() {
        restorable_ids(view, said)
    } else {
        IdPolicy::Dropped
    });
    let says_anything = ["encrypted_content", "content"]
        .iter()
        .any(|member| back.tree().root().present(member).is_some());
    let fix = says_anything.then(|| {
        let edit = Edit::InsertBefore(element.node.range(), vec![back]);
        Fix::new("restores the reasoning item before it", [edit])
    });
    findings.add(
        Finding::at(&REASONING_DROPPED, element.node, message)
            .with_path(element.path())
            .with_auto_fix(fix),
    );
}

/// Reports messages that are sent without their phase.
fn check_phases(
    view: &ResponsesRequest<'_>,
    past: &ResponsesReplayHistory<'_>,
    findings: &mut Findings<'_>,
) {
    let mut by_text: HashMap<String, Json> = HashMap::new();
    for output in
        past.outputs().iter().filter(|output| output.kind == ResponsesElementKind::Message)
    {
        let tree = output.json.tree();
        if let Some(phase) = tree.root().present("phase") {
            by_text.insert(text_of(tree.root()), phase.json());
        }
    }
    if by_text.is_empty() {
        return;
    }
    for element in
        view.elements_of_kind(ResponsesElementKind::Message).filter(|element| element.is_models)
    {
        if element.node.present("phase").is_some() {
            continue;
        }
        let Some(phase) = by_text.get(&text_of(element.node)) else { continue };
        let message = format!(
            "this message was issued with the phase {} and is sent without it",
            phase.as_str()
        );
        let edit = Edit::Set(element.node.range(), "phase".into(), phase.clone());
        findings.add(
            Finding::at(&PHASE_DROPPED, element.node, message)
                .with_path(element.path())
                .with_auto_fix(Fix::new("restores the phase of the message", [edit])),
        );
    }
}
