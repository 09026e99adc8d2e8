//! Checks the required members of reasoning items, and whether the items are replayed as issued.

use std::collections::{HashMap, HashSet};

use throughline_core::{Body, Wire};
use throughline_json::{self as json, Json, Node};

use crate::responses::contract::pairing::{
    has_same_content, id_removal_edits, move_before, text_of,
};
use crate::responses::contract::replay_history::PriorOutput;
use crate::responses::contract::rules::{
    CACHE_PREFIX_BROKEN, ENCRYPTED_CONTENT_INVALID, ITEM_NOT_FOUND, PHASE_DROPPED,
    REASONING_DROPPED, REASONING_MOVED, REASONING_NEEDS_SUMMARY, THOUGHT_AS_TEXT,
};
use crate::responses::contract::view::{ResponsesElement, ResponsesRequest};
use crate::responses::wire::{self, IdPolicy, ResponsesElementKind};
use crate::{Change, ChangeKind, Edit, Finding, Findings, Fix, Severity};

impl ResponsesRequest<'_> {
    /// Checks each reasoning and compaction item on its own, without comparing it with earlier
    /// exchanges.
    pub(super) fn check_seals(&self, findings: &mut Findings<'_>) {
        let target = self.case.target();
        let format = wire::reasoning_format(&target.origin.provider);
        for element in &self.elements {
            let node = element.node;
            if element.is_reasoning() || element.kind == ResponsesElementKind::Compaction {
                let is_signed = element.seal.is_some_and(|seal| seal.raw().len() > 2);
                findings.count(node, &format, is_signed);
                // Vendors use different base64 alphabets, so only an empty value is certainly
                // invalid.
                if let Some(seal) = element.seal.filter(|seal| seal.is("")) {
                    let name = element.name();
                    let message = format!("the encrypted content of this `{name}` item is empty");
                    let finding = invalid_content_finding(element, seal, message);
                    findings.add(finding.with_auto_fix(self.remove_seal(element, seal)));
                }
            }
            if element.is_reasoning() && node.present("summary").is_none() {
                let message = "this reasoning item has no `summary`; an empty list is enough";
                let error =
                    format!("Missing required parameter: 'input[{}].summary'.", element.index);
                let edit = Edit::Set(node.range(), "summary".into(), json::array(|_| {}));
                findings.add(
                    Finding::at(&REASONING_NEEDS_SUMMARY, node, message)
                        .with_provider_error(error)
                        .fixed_by("gives the reasoning item an empty summary", [edit]),
                );
            }
            if target.provider.dialect.stores {
                findings.extend(self.check_stored(element));
            }
        }
    }

    /// Builds a fix for a Seal that cannot be decrypted. If the item is stored, only the Seal is
    /// removed; otherwise the whole item is removed.
    fn remove_seal(&self, element: &ResponsesElement<'_>, seal: Node<'_>) -> Fix {
        let prior = self.past.for_element(element);
        if self.is_kept && element.id.is_some() && prior.is_none_or(|prior| prior.is_own) {
            let description = "removes the encrypted content; the stored item has its own";
            return Fix::removal(seal, description);
        }
        self.remove_item(element)
    }

    /// Builds a fix that removes a reasoning item, and the ids of the items paired with it.
    fn remove_item(&self, element: &ResponsesElement<'_>) -> Fix {
        let is_pair = self.is_paired && element.id.is_some();
        let edits = self.removal_edits(element, is_pair);
        let and_ids = if edits.len() > 1 { ", and the paired ids" } else { "" };
        let is_compaction = element.kind == ResponsesElementKind::Compaction;
        let name = if is_compaction { "compaction" } else { "reasoning" };
        Fix::new(format!("removes the {name} item that the target cannot read{and_ids}"), edits)
    }

    /// Builds a fix that removes an item of another endpoint or account. If the item is reasoning,
    /// the ids of the items it led to are removed too.
    fn remove_foreign(&self, element: &ResponsesElement<'_>) -> Fix {
        let edits = self.removal_edits(element, true);
        let description = match edits.len() {
            1 => "removes the item of another endpoint or account",
            _ => "removes the foreign reasoning item and the ids of the items it led to",
        };
        Fix::new(description, edits)
    }

    /// Builds edits that remove an element. With `with_ids`, removing a reasoning element also
    /// removes the ids of the items it led to.
    fn removal_edits(&self, element: &ResponsesElement<'_>, with_ids: bool) -> Vec<Edit> {
        let mut edits = vec![Edit::Remove(element.node.range())];
        if with_ids && element.is_reasoning() {
            edits.extend(self.led_by(element).flat_map(id_removal_edits));
        }
        edits
    }

    /// Reports an item that is sent only by id but was not stored.
    fn check_stored(&self, element: &ResponsesElement<'_>) -> Option<Finding> {
        let content = element.node.get("content");
        let is_named = element.is_reasoning()
            && element.seal.is_none()
            && content.is_none_or(|content| content.elements().next().is_none());
        if element.id.is_none() || !(element.is_reference() || is_named) {
            return None;
        }
        let id = element.id_text();
        let (message, severity, fix) = match self.past.for_element(element) {
            Some(prior) if prior.is_kept => return None,
            Some(prior) if !prior.is_own => {
                let message = format!("`{id}` belongs to another account or endpoint");
                (message, Severity::Refuse, self.remove_item(element))
            }
            Some(prior) => {
                let message = format!(
                    "`{id}` was created with `store` set to false, so its id does not resolve"
                );
                let full_item = prior.to_request(IdPolicy::Dropped);
                let has_seal = full_item.tree().root().present("encrypted_content").is_some();
                let fix = if prior.kind != ResponsesElementKind::Reasoning || has_seal {
                    let description = "sends the item itself instead of its id";
                    Fix::replacement(element.node, full_item, description)
                } else {
                    self.remove_item(element)
                };
                (message, Severity::Refuse, fix)
            }
            None if !self.is_kept && !element.is_reference() => {
                let message = format!(
                    "`{id}` has no encrypted content, and with `store` set to false its id does not resolve"
                );
                (message, Severity::Degrade, self.remove_item(element))
            }
            None => return None,
        };
        let error = format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
        );
        let finding = Finding::at(&ITEM_NOT_FOUND, element.node, message).with_severity(severity);
        Some(finding.with_provider_error(error).with_auto_fix(fix))
    }

    /// Reports how replayed items differ from the issued items.
    pub(super) fn report_changes(&self, findings: &mut Findings<'_>) {
        let Some(comparison) = self.case.comparison() else { return };
        let mut reported = HashSet::new();
        for change in &comparison.changes {
            let element = change.part.as_ref().and_then(|part| self.at(part.start));
            let key = change.issued.map(|issued| (issued.exchange, issued.item.place.message));
            if let Some(element) = element {
                findings.extend(self.report_change(change, element));
            } else if change.kind == ChangeKind::PartDropped && reported.insert(key) {
                findings.extend(self.report_dropped(change));
            }
        }
        findings.extend(comparison.cache_finding(&CACHE_PREFIX_BROKEN));
        self.check_phases(findings);
    }

    /// Reports an item that is replayed with changes.
    fn report_change(
        &self,
        change: &Change<'_>,
        element: &ResponsesElement<'_>,
    ) -> Option<Finding> {
        let (node, phrase) = (element.node, change.kind.describe());
        let issued = change.issued;
        let prior = issued.and_then(|i| self.past.at(i.exchange, i.item.place.message));
        let seal = change.seal.as_ref().map(|place| self.case.node_at(place)).or(element.seal);
        let invalid = |seal: Node<'_>| {
            invalid_content_finding(element, seal, format!("the encrypted content {phrase}"))
        };
        let restored = |prior: &PriorOutput<'_>, description: &str| {
            Fix::replacement(node, prior.to_request(self.restorable_ids(prior)), description)
        };
        match change.kind {
            ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded => {
                let seal = seal.filter(|seal| !seal.is(""))?;
                let value = issued.and_then(|issued| issued.seal_json(&Wire::OPENAI_RESPONSES));
                let description = "restores the issued encrypted content";
                let fix = value.map(|value| Fix::replacement(seal, value, description));
                Some(invalid(seal).with_auto_fix(fix))
            }
            ChangeKind::Foreign(_) => {
                Some(invalid(seal?).with_auto_fix(self.remove_foreign(element)))
            }
            ChangeKind::Unissued => {
                let seal = seal.filter(|seal| !seal.is(""))?;
                let severity = if change.is_placed { Severity::Refuse } else { Severity::Note };
                let fix = self.remove_seal(element, seal);
                Some(invalid(seal).with_severity(severity).with_auto_fix(fix))
            }
            // If the id is stored, the endpoint has the Seal. Unstored ids and empty Seals have
            // their own findings.
            ChangeKind::SealDropped if element.id.is_some() || element.seal.is_some() => None,
            ChangeKind::SealDropped => {
                let prior = prior.filter(|_| change.is_current && element.is_reasoning())?;
                let message = format!("the encrypted content of this reasoning item {phrase}");
                let fix = restored(prior, "restores the encrypted content");
                Some(Finding::at(&REASONING_DROPPED, node, message).with_auto_fix(fix))
            }
            ChangeKind::Reordered | ChangeKind::PartMoved => {
                // A broken pair of stored ids has its own finding, with severity `Refuse`. Unstored
                // items are not paired.
                let prior = prior.filter(|prior| {
                    let is_paired = self.is_paired && element.id.is_some() && prior.is_kept;
                    !is_paired && element.is_reasoning()
                })?;
                let led = self.past.following(prior).and_then(|led| self.element_of(led))?;
                let message = "this reasoning item is no longer directly before the item it led to";
                let finding = Finding::at(&REASONING_MOVED, node, message);
                let is_moved = element.next != Some(led.index);
                is_moved.then(|| finding.with_auto_fix(move_before(element, led)))
            }
            ChangeKind::SealMoved | ChangeKind::Merged | ChangeKind::Duplicated => {
                let is_duplicate = change.kind == ChangeKind::Duplicated;
                let has_own_finding = is_duplicate && self.is_paired && element.id.is_some();
                if !element.is_reasoning() || has_own_finding {
                    return None;
                }
                let fix = if is_duplicate {
                    Some(Fix::removal(node, "removes the second copy of the reasoning item"))
                } else {
                    prior.map(|prior| restored(prior, "restores the issued reasoning item"))
                };
                let message = format!("this reasoning {phrase}");
                Some(Finding::at(&REASONING_MOVED, node, message).with_auto_fix(fix))
            }
            ChangeKind::SentAsText => {
                let place = change.part.clone().unwrap_or_default();
                Some(Finding::in_range(&THOUGHT_AS_TEXT, place, format!("this text {phrase}")))
            }
            // A summary is only for display, and the encrypted content is complete without it.
            ChangeKind::TextEdited { .. } | ChangeKind::PartDropped => None,
        }
    }

    /// Returns whether a restored output keeps its ids: only if the endpoint stores both the
    /// conversation and the output.
    fn restorable_ids(&self, prior: &PriorOutput<'_>) -> IdPolicy {
        if self.is_kept && prior.is_kept { IdPolicy::Kept } else { IdPolicy::Dropped }
    }

    /// Returns the request element that replays an earlier output.
    fn element_of(&self, prior: &PriorOutput<'_>) -> Option<&ResponsesElement<'_>> {
        let mut elements = self.elements.iter();
        let same = || self.elements.iter().find(|element| has_same_content(element.node, prior));
        elements.find(|element| prior.is_named_by(element)).or_else(same)
    }

    /// Reports reasoning that is missing from the current turn although the item it led to is
    /// present.
    fn report_dropped(&self, change: &Change<'_>) -> Option<Finding> {
        let issued = change.issued.filter(|issued| {
            let is_thought = matches!(issued.item.body, Body::Thought(_));
            // Reasoning that the target cannot read is not reported as lost.
            let is_read = issued.is_readable_by(self.case.target());
            change.is_current && !self.is_resumed && is_thought && is_read
        })?;
        let prior = self.past.at(issued.exchange, issued.item.place.message)?;
        let element = self.element_of(self.past.following(prior)?)?;
        let is_referenced = self.elements.iter().any(|other| prior.is_named_by(other));
        // `ITEM_WITHOUT_ITS_REASONING` reports broken pairs.
        let is_pair = self.is_paired && prior.is_kept && element.id.is_some();
        if is_referenced || is_pair {
            return None;
        }
        let message = format!(
            "the reasoning that led to this `{}` was issued but is not in the request",
            element.name()
        );
        let has_id = element.id.is_some();
        let ids = if has_id { self.restorable_ids(prior) } else { IdPolicy::Dropped };
        let restored = prior.to_request(ids);
        let tree = restored.tree();
        let has = |member: &str| tree.root().present(member).is_some();
        let fix = (has("encrypted_content") || has("content")).then(|| {
            let edit = Edit::InsertBefore(element.node.range(), vec![restored.clone()]);
            Fix::new("restores the reasoning item before it", [edit])
        });
        Some(Finding::at(&REASONING_DROPPED, element.node, message).with_auto_fix(fix))
    }

    /// Reports messages that are sent back without their `phase`.
    fn check_phases(&self, findings: &mut Findings<'_>) {
        let mut by_text: HashMap<String, Json> = HashMap::new();
        let is_message = |kind| kind == ResponsesElementKind::Message;
        for output in self.past.outputs.iter().filter(|output| is_message(output.kind)) {
            let tree = output.json.tree();
            if let Some(phase) = tree.root().present("phase") {
                by_text.insert(text_of(tree.root()), phase.json());
            }
        }
        if by_text.is_empty() {
            return;
        }
        let models = self.elements.iter().filter(|e| is_message(e.kind) && e.is_models);
        for element in models.filter(|element| element.node.present("phase").is_none()) {
            let Some(phase) = by_text.get(&text_of(element.node)) else { continue };
            let message = format!(
                "this message was issued with the phase {} and is sent without it",
                phase.as_str()
            );
            let edit = Edit::Set(element.node.range(), "phase".into(), phase.clone());
            let finding = Finding::at(&PHASE_DROPPED, element.node, message);
            findings.add(finding.fixed_by("restores the phase of the message", [edit]));
        }
    }
}

fn invalid_content_finding(
    element: &ResponsesElement<'_>,
    seal: Node<'_>,
    message: String,
) -> Finding {
    let error = match element.id {
        Some(_) => format!(
            "The encrypted content for item {} could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
            element.id_text()
        ),
        // The provider's error contains the first and last characters of the Seal, which are not
        // shown here.
        None => "The encrypted content … could not be verified.".to_owned(),
    };
    Finding::at(&ENCRYPTED_CONTENT_INVALID, seal, message)
        .with_path(format!("input[{}].encrypted_content", element.index))
        .with_provider_error(error)
}
