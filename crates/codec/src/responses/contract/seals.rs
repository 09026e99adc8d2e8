//! Reasoning items by themselves: what they must have, and whether what comes back is what was issued.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use throughline_core::{Body, Item, Json, Node, Side, Wire, json};

use crate::responses::contract::pairing::{ids_removed, moved, text_of};
use crate::responses::contract::past::{Output, Past};
use crate::responses::contract::rules::{
    CACHE_PREFIX_BROKEN, ENCRYPTED_CONTENT_INVALID, ITEM_NOT_FOUND, PHASE_DROPPED,
    REASONING_DROPPED, REASONING_MOVED, REASONING_NEEDS_SUMMARY, THOUGHT_AS_TEXT,
};
use crate::responses::contract::view::{Element, View};
use crate::responses::wire::{self, Ids, Kind};
use crate::{Case, Change, ChangeKind, Edit, Finding, Findings, Issued, Mend, Severity};

/// Looks at every reasoning and compaction item, with nothing but the request known.
pub(super) fn look(
    case: &Case<'_>,
    view: &View<'_>,
    past: Option<&Past<'_>>,
    findings: &mut Findings<'_>,
) {
    let format = wire::reasoning_format(&case.target().origin.provider);
    for element in &view.elements {
        let is_reasoning = element.kind == Kind::Reasoning;
        if is_reasoning || element.kind == Kind::Compaction {
            let is_signed = element.seal.is_some_and(|seal| seal.raw().len() > 2);
            findings.count(element.node, &format, is_signed);
            look_at_form(view, past, element, findings);
        }
        if is_reasoning && element.node.present("summary").is_none() {
            let message = "this reasoning item has no `summary`; an empty list would do";
            let edit = Edit::Set(element.node.range(), "summary".into(), json::array(|_| {}));
            let mend = Mend::new("gives the reasoning item an empty summary", [edit]);
            findings.add(
                Finding::at(&REASONING_NEEDS_SUMMARY, element.node, message)
                    .under(element.path())
                    .answered(format!("Missing required parameter: '{}.summary'.", element.path()))
                    .mended(Some(mend)),
            );
        }
        if case.target().provider.dialect.stores {
            look_for_kept(view, past, element, findings);
        }
    }
}

/// Whether a seal is there at all.
fn look_at_form(
    view: &View<'_>,
    past: Option<&Past<'_>>,
    element: &Element<'_>,
    findings: &mut Findings<'_>,
) {
    let Some(seal) = element.seal.filter(|seal| seal.is_string()) else { return };
    // Vendors write the value in alphabets of their own, so only an empty one is known to be wrong.
    if !is_empty(seal) {
        return;
    }
    let message = format!("the encrypted content of this `{}` item is empty", element.name());
    findings.add(invalid(element, seal, message).mended(Some(unsealed(view, past, element, seal))));
}

fn is_empty(seal: Node<'_>) -> bool {
    seal.raw() == b"\"\""
}

fn invalid(element: &Element<'_>, seal: Node<'_>, message: String) -> Finding {
    let answer = match element.id {
        Some(_) => format!(
            "The encrypted content for item {} could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
            element.id_text()
        ),
        // The provider shows the seal's first and last letters; we show none of it.
        None => "The encrypted content … could not be verified.".to_owned(),
    };
    Finding::at(&ENCRYPTED_CONTENT_INVALID, seal, message)
        .under(format!("{}.encrypted_content", element.path()))
        .answered(answer)
}

/// Takes a seal away that will not open: the stored item has its own, and what is not stored goes whole.
fn unsealed(
    view: &View<'_>,
    past: Option<&Past<'_>>,
    element: &Element<'_>,
    seal: Node<'_>,
) -> Mend {
    let said = past.and_then(|past| past.of_element(element));
    if view.is_kept && element.id.is_some() && said.is_none_or(|said| said.is_own) {
        let what = "removes the encrypted content; the stored item has its own";
        return Mend::new(what, [Edit::Remove(seal.range())]);
    }
    without(view, element)
}

/// Takes a reasoning item away, with the ids that it pairs.
fn without(view: &View<'_>, element: &Element<'_>) -> Mend {
    let mut edits = vec![Edit::Remove(element.node.range())];
    if view.is_paired && element.kind == Kind::Reasoning && element.id.is_some() {
        edits.extend(view.led_by(element).flat_map(ids_removed));
    }
    let and_ids = if edits.len() > 1 { ", and the ids that it paired" } else { "" };
    let name = if element.kind == Kind::Compaction { "compaction" } else { "reasoning" };
    Mend::new(format!("removes the {name} item that nobody here can read{and_ids}"), edits)
}

/// Whether what is only named was kept.
fn look_for_kept(
    view: &View<'_>,
    past: Option<&Past<'_>>,
    element: &Element<'_>,
    findings: &mut Findings<'_>,
) {
    let is_reference = element.node.get("type").is_some_and(|kind| kind.is("item_reference"));
    let is_named = element.kind == Kind::Reasoning
        && element.seal.is_none()
        && element.node.get("content").is_none_or(|content| content.elements().next().is_none());
    if element.id.is_none() || !(is_reference || is_named) {
        return;
    }
    let id = element.id_text();
    let said = past.and_then(|past| past.of_element(element));
    let answer = format!(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
    );
    let finding = match said {
        Some(said) if said.is_kept => return,
        Some(said) if !said.is_own => {
            let message = format!("`{id}` was kept for another account or endpoint, if at all");
            let mend = without(view, element);
            Finding::at(&ITEM_NOT_FOUND, element.node, message).mended(Some(mend))
        }
        Some(said) => {
            let message =
                format!("`{id}` was made with `store` set to false, so its id names nothing");
            let whole = said.said(Ids::Dropped);
            let has_seal = whole.tree().root().present("encrypted_content").is_some();
            let mend = if said.kind != Kind::Reasoning || has_seal {
                let edit = Edit::Replace(element.node.range(), whole);
                Mend::new("sends the item itself instead of its id", [edit])
            } else {
                without(view, element)
            };
            Finding::at(&ITEM_NOT_FOUND, element.node, message).mended(Some(mend))
        }
        None if !view.is_kept && !is_reference => {
            let message = format!(
                "`{id}` has no encrypted content, and a request that keeps nothing finds no more in its id"
            );
            Finding::at(&ITEM_NOT_FOUND, element.node, message)
                .as_grave_as(Severity::Degrade)
                .mended(Some(without(view, element)))
        }
        None => return,
    };
    findings.add(finding.under(element.path()).answered(answer));
}

/// Reports what differs from what was issued.
pub(super) fn compare(
    case: &Case<'_>,
    view: &View<'_>,
    past: &Past<'_>,
    findings: &mut Findings<'_>,
) {
    let Some(comparison) = case.comparison() else { return };
    let mut lost = HashSet::new();
    for change in &comparison.changes {
        let element = change.part.as_ref().and_then(|part| view.at(part.start));
        match element {
            Some(element) => changed(case, view, past, change, element, findings),
            None if change.kind == ChangeKind::PartDropped => {
                let key = change.issued.map(|issued| (issued.exchange, issued.item.place.message));
                if lost.insert(key) {
                    dropped(case, view, past, change, findings);
                }
            }
            None => {}
        }
    }
    if let Some(finding) = comparison.broken_cache(&CACHE_PREFIX_BROKEN) {
        findings.add(finding);
    }
    phases(view, past, findings);
}

/// Something that was issued came back different.
fn changed(
    case: &Case<'_>,
    view: &View<'_>,
    past: &Past<'_>,
    change: &Change<'_>,
    element: &Element<'_>,
    findings: &mut Findings<'_>,
) {
    let said = change.issued.and_then(|issued| past.at(issued.exchange, issued.item.place.message));
    let seal = change.seal.as_ref().map(|place| case.node_at(place)).or(element.seal);
    match change.kind {
        ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded => {
            let Some(seal) = seal.filter(|seal| !is_empty(*seal)) else { return };
            let message = format!("the encrypted content {}", change.kind.phrase());
            let mend = change.issued.and_then(|issued| restored(seal.range(), issued));
            findings.add(invalid(element, seal, message).mended(mend));
        }
        ChangeKind::Foreign(_) => {
            let Some(seal) = seal else { return };
            let message = format!("the encrypted content {}", change.kind.phrase());
            findings.add(invalid(element, seal, message).mended(Some(foreign(view, element))));
        }
        ChangeKind::Unissued => {
            let Some(seal) = seal.filter(|seal| !is_empty(*seal)) else { return };
            let message = format!("the encrypted content {}", change.kind.phrase());
            let severity = if change.is_placed { Severity::Refuse } else { Severity::Note };
            findings.add(
                invalid(element, seal, message).as_grave_as(severity).mended(Some(unsealed(
                    view,
                    Some(past),
                    element,
                    seal,
                ))),
            );
        }
        ChangeKind::SealDropped => {
            // An id that was kept finds the rest; one that was not is reported as not found, and an empty seal as invalid.
            if element.id.is_some() || element.seal.is_some() {
                return;
            }
            let Some(said) = said.filter(|_| change.is_current && element.kind == Kind::Reasoning)
            else {
                return;
            };
            let message =
                format!("the encrypted content of this reasoning item {}", change.kind.phrase());
            let edit = Edit::Replace(element.node.range(), said.said(ids(view, said)));
            findings.add(
                Finding::at(&REASONING_DROPPED, element.node, message)
                    .under(element.path())
                    .mended(Some(Mend::new("puts the encrypted content back", [edit]))),
            );
        }
        ChangeKind::Reordered | ChangeKind::PartMoved => {
            // Where it is paired, that is refused and reported as such. What was never kept has no pair.
            let is_kept = said.is_none_or(|said| said.is_kept);
            let is_paired = view.is_paired && element.id.is_some() && is_kept;
            let Some(said) = said.filter(|_| !is_paired && element.kind == Kind::Reasoning) else {
                return;
            };
            out_of_place(view, past, said, element, findings);
        }
        ChangeKind::SealMoved | ChangeKind::Merged | ChangeKind::Duplicated => {
            if element.kind != Kind::Reasoning
                || (change.kind == ChangeKind::Duplicated && view.is_paired && element.id.is_some())
            {
                return;
            }
            let message = format!("this reasoning {}", change.kind.phrase());
            let place = element.node.range();
            let mend = if change.kind == ChangeKind::Duplicated {
                let what = "removes the second copy of the reasoning item";
                Some(Mend::new(what, [Edit::Remove(place)]))
            } else {
                said.map(|said| {
                    let edit = Edit::Replace(place, said.said(ids(view, said)));
                    Mend::new("puts the reasoning item back as it was issued", [edit])
                })
            };
            findings.add(
                Finding::at(&REASONING_MOVED, element.node, message)
                    .under(element.path())
                    .mended(mend),
            );
        }
        ChangeKind::SaidAloud => {
            let message = format!("this text {}", change.kind.phrase());
            let place = change.part.clone().unwrap_or_default();
            findings.add(Finding::in_range(&THOUGHT_AS_TEXT, place, message));
        }
        // A summary is for the reader: the encrypted content says the rest.
        ChangeKind::TextEdited { .. } | ChangeKind::PartDropped => {}
    }
}

/// The ids under which something that was said can go back.
fn ids(view: &View<'_>, said: &Output<'_>) -> Ids {
    if view.is_kept && said.is_kept { Ids::Kept } else { Ids::Dropped }
}

/// Puts the very bytes back that were issued.
fn restored(place: Range<usize>, issued: Issued<'_>) -> Option<Mend> {
    let seal = issued.item.seals.get(issued.seal.unwrap_or_default())?;
    let value = native(issued.item).and_then(|json| {
        let tree = json.tree();
        tree.root().at(&seal.attached.at).map(Node::json)
    })?;
    Some(Mend::new(
        "puts the encrypted content back as it was issued",
        [Edit::Replace(place, value)],
    ))
}

fn native(item: &Item) -> Option<&Json> {
    let native = item.native_on(&Wire::OPENAI_RESPONSES)?;
    (native.side == Side::Response).then_some(&native.json)
}

/// Takes away what another endpoint or account issued, and the ids that only it knows.
fn foreign(view: &View<'_>, element: &Element<'_>) -> Mend {
    let mut edits = vec![Edit::Remove(element.node.range())];
    if element.kind == Kind::Reasoning {
        edits.extend(view.led_by(element).flat_map(ids_removed));
    }
    let what = match edits.len() {
        1 => "removes the item that somebody else issued",
        _ => "removes the reasoning item that somebody else issued, and the ids of what it led to",
    };
    Mend::new(what, edits)
}

/// Reasoning that no longer stands right before what it led to.
fn out_of_place(
    view: &View<'_>,
    past: &Past<'_>,
    said: &Output<'_>,
    element: &Element<'_>,
    findings: &mut Findings<'_>,
) {
    let led = past.following(said).and_then(|led| element_of(view, led));
    let Some(led) = led.filter(|led| element.next != Some(led.index)) else { return };
    let message = "this reasoning item no longer stands right before the item it led to";
    findings.add(
        Finding::at(&REASONING_MOVED, element.node, message)
            .under(element.path())
            .mended(Some(moved(element, led))),
    );
}

/// The element of the request that something said came back as.
fn element_of<'v, 'c>(view: &'v View<'c>, said: &Output<'_>) -> Option<&'v Element<'c>> {
    let by_id =
        |element: &&Element<'_>| element.id.zip(said.id).is_some_and(|(id, said)| id.is(said));
    let same = |element: &&Element<'_>| super::pairing::says_the_same(element.node, said);
    view.elements.iter().find(by_id).or_else(|| view.elements.iter().find(same))
}

/// Reasoning of the current turn that is gone, while what it led to is there.
fn dropped(
    case: &Case<'_>,
    view: &View<'_>,
    past: &Past<'_>,
    change: &Change<'_>,
    findings: &mut Findings<'_>,
) {
    let Some(issued) = change.issued.filter(|_| change.is_current && !view.is_resumed) else {
        return;
    };
    let is_thought = matches!(issued.item.body, Body::Thought(_));
    let said = past.at(issued.exchange, issued.item.place.message);
    // What could not have been read is not lost.
    let (was, is) = (&issued.reply.origin, &case.target().origin);
    let is_read = was.provider == is.provider
        && was.endpoint == is.endpoint
        && issued.item.seals.iter().all(|seal| seal.open_for(case.target(), None).is_ok());
    let said = said.filter(|_| is_thought && is_read);
    let Some((said, led)) = said.and_then(|said| Some((said, past.following(said)?))) else {
        return;
    };
    let Some(element) = element_of(view, led) else { return };
    let is_it = |other: &Element<'_>| other.id.zip(said.id).is_some_and(|(id, said)| id.is(said));
    if view.elements.iter().any(is_it) {
        // It is named, if not sent.
        return;
    }
    if view.is_paired && said.is_kept && element.id.is_some() {
        // That is refused, and reported as such.
        return;
    }
    let message = format!(
        "the reasoning that led to this `{}` was issued and is not in the request",
        element.name()
    );
    let back = said.said(if element.id.is_some() { ids(view, said) } else { Ids::Dropped });
    let says_anything = ["encrypted_content", "content"]
        .iter()
        .any(|member| back.tree().root().present(member).is_some());
    let mend = says_anything.then(|| {
        let edit = Edit::InsertBefore(element.node.range(), vec![back]);
        Mend::new("puts the reasoning item back before it", [edit])
    });
    findings.add(
        Finding::at(&REASONING_DROPPED, element.node, message).under(element.path()).mended(mend),
    );
}

/// Messages that had a phase and are sent without it.
fn phases(view: &View<'_>, past: &Past<'_>, findings: &mut Findings<'_>) {
    let mut by_text: HashMap<String, Json> = HashMap::new();
    for output in past.outputs().iter().filter(|output| output.kind == Kind::Message) {
        let tree = output.json.tree();
        if let Some(phase) = tree.root().present("phase") {
            by_text.insert(text_of(tree.root()), phase.json());
        }
    }
    if by_text.is_empty() {
        return;
    }
    for element in view.of_kind(Kind::Message).filter(|element| element.is_models) {
        if element.node.present("phase").is_some() {
            continue;
        }
        let Some(phase) = by_text.get(&text_of(element.node)) else { continue };
        let message = format!(
            "this message was said in the phase {}, and is sent without it",
            phase.as_str()
        );
        let edit = Edit::Set(element.node.range(), "phase".into(), phase.clone());
        findings.add(
            Finding::at(&PHASE_DROPPED, element.node, message)
                .under(element.path())
                .mended(Some(Mend::new("gives the message its phase back", [edit]))),
        );
    }
}
