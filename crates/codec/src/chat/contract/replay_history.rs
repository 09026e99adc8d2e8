//! Compares the request with known replies: finds the reply of each message, its changes, and how
//! to restore it.

use std::collections::HashMap;
use std::ops::Range;

use throughline_core::{
    Body, Direction, ElisionReason, Item, ReasoningChannel, Reply, Target, ThoughtKind, Vendor,
    Wire,
};
use throughline_json::{self as json, Json, Node};

use crate::audit::{Change, ChangeKind, Edit, Finding, Fix, Severity};
use crate::chat::contract::alteration::Alteration;
use crate::chat::contract::details::upstream_error;
use crate::chat::contract::rules::{
    CACHE_PREFIX_BROKEN, DETAILS_DROPPED, FOREIGN_DETAILS, REASONING_ALTERED, REASONING_DROPPED,
    SIGNATURE_INVALID, THINKING_STRIPPED, THOUGHT_AS_TEXT, ZAI_REASONING_DROPPED,
};
use crate::chat::contract::view::{ChatDetail, ChatFindings, ChatMessage, ChatRequest};
use crate::chat::{contract, slot, wire};

/// The reply that became each message of the request, where known.
pub(super) struct ChatReplayHistory<'c> {
    replies: Vec<Option<&'c Reply>>,
    target: &'c Target,
    channel: ReasoningChannel,
}

impl<'c> ChatReplayHistory<'c> {
    /// Matches each assistant message to a reply by its calls, otherwise by its text. Replies are
    /// taken in order, because ids and texts may repeat.
    pub(super) fn of(view: &ChatRequest<'c>) -> Self {
        let target = view.case.target();
        let channel = target.provider.dialect.channel;
        if view.case.comparison().is_none() {
            return Self { replies: Vec::new(), target, channel };
        }
        let exchanges = view.case.prior().exchanges().iter();
        let said: Vec<&'c Reply> =
            exchanges.filter_map(|exchange| exchange.reply.as_ref()).collect();
        let mut by_call: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_text: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, reply) in said.iter().enumerate() {
            for item in &reply.items {
                match &item.body {
                    Body::Call(call) => {
                        let id = call.wire_id.as_deref().unwrap_or_default();
                        by_call.entry(id).or_default().push(number);
                    }
                    Body::Text(text) => by_text.entry(text.trim()).or_default().push(number),
                    Body::Media(_)
                    | Body::Thought(_)
                    | Body::Result(_)
                    | Body::Hosted(_)
                    | Body::Compaction
                    | Body::Summary { .. }
                    | Body::Unknown => {}
                }
            }
        }
        let mut next = 0;
        let mut replies = vec![None; view.messages.len()];
        for (number, message) in view.assistant_messages() {
            let ids = message.calls.iter().filter_map(|call| call.text_of("id"));
            let named = ids.filter(|id| !id.is_empty()).find_map(|id| by_call.get(&*id));
            let text = message.text().and_then(Node::text).unwrap_or_default();
            let by_text = || by_text.get(text.trim()).filter(|_| message.calls.is_empty());
            let found = named.or_else(by_text);
            let taken = found.and_then(|found| {
                found.iter().find(|reply| **reply >= next).or_else(|| found.last()).copied()
            });
            if let (Some(taken), Some(place)) = (taken, replies.get_mut(number)) {
                *place = said.get(taken).copied();
                next = taken + 1;
            }
        }
        Self { replies, target, channel }
    }

    /// Returns the reply that became a message.
    pub(super) fn reply(&self, number: usize) -> Option<&'c Reply> {
        self.replies.get(number).copied().flatten()
    }

    /// Returns the index of the message that a reply became.
    fn message_index(&self, reply: &Reply) -> Option<usize> {
        self.replies.iter().position(|own| own.is_some_and(|own| std::ptr::eq(own, reply)))
    }

    /// Returns the reasoning that was issued with a message in the named member.
    pub(super) fn field(&self, number: usize, name: &str) -> Option<Json> {
        let mut issued = thoughts(self.reply(number).filter(|reply| self.is_own(reply))?);
        issued.find_map(|(item, slot)| {
            slot::fields(slot).any(|field| field == name).then(|| request_json(item, slot))
        })
    }

    /// Builds a fix that restores all reasoning issued with a message.
    pub(super) fn restore(&self, number: usize, said: &ChatMessage<'_>) -> Option<Fix> {
        self.restore_from(self.reply(number)?, said)
    }

    /// Builds a fix that restores all reasoning of a reply on its message.
    fn restore_from(&self, reply: &Reply, said: &ChatMessage<'_>) -> Option<Fix> {
        if !self.is_own(reply) {
            return None;
        }
        let mut details = Vec::new();
        let mut edits = Vec::new();
        let set = |key: &str, value: Json| Edit::Set(said.node.range(), key.to_owned(), value);
        let mut content = String::new();
        for item in &reply.items {
            let Some(native) = item.native_on(&Wire::OPENAI_CHAT) else {
                continue;
            };
            let tree = native.json.tree();
            match slot::first_member(&native.slot) {
                slot::DETAILS => details.push(request_json(item, &native.slot)),
                // Thoughts between tags are part of the text.
                slot::CONTENT => content.push_str(&tree.root().text().unwrap_or_default()),
                _ => {
                    let own = contract::reasoning_field(self.channel);
                    let fields: Vec<_> = slot::fields(&native.slot).collect();
                    let wanted = fields.iter().filter(|field| own.is_none_or(|own| own == **field));
                    edits.extend(wanted.map(|field| set(field, native.json.clone())));
                }
            }
        }
        if !details.is_empty() {
            edits.push(set(slot::DETAILS, json::array_of(&details)));
        }
        if self.channel == ReasoningChannel::Tags && !content.is_empty() {
            edits.push(set(slot::CONTENT, json::string(&content)));
        }
        let what = "restores the reasoning issued with this message";
        (!edits.is_empty()).then(|| Fix::new(what, edits))
    }

    /// Returns whether the target issued a reply and accepts all its Seals.
    fn is_own(&self, reply: &Reply) -> bool {
        let (owner, reader) = (&reply.origin, &self.target.origin);
        let seals = reply.items.iter().flat_map(|item| &item.seals);
        owner.provider == reader.provider
            && owner.endpoint == reader.endpoint
            && seals.into_iter().all(|seal| seal.open_for(self.target, None).is_ok())
    }
}

/// Iterates over the Thoughts of a reply with their slots.
fn thoughts(reply: &Reply) -> impl Iterator<Item = (&Item, &str)> {
    let is_thought = |item: &&Item| matches!(item.body, Body::Thought(_));
    let slots = |item| Some((item, slot_of(item)?));
    reply.items.iter().filter(is_thought).filter_map(slots)
}

fn slot_of(item: &Item) -> Option<&str> {
    item.native.as_ref().map(|native| &*native.slot)
}

/// Returns a part in the form a request uses.
fn request_json(item: &Item, slot: &str) -> Json {
    match &item.native {
        Some(native) if native.side == Direction::Response => {
            wire::to_request_part(slot, &native.json)
        }
        Some(native) => native.json.clone(),
        None => Json::null(),
    }
}

pub(super) fn check(
    view: &ChatRequest<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let Some(comparison) = view.case.comparison() else { return };
    let details: HashMap<usize, (usize, usize)> = view
        .assistant_messages()
        .flat_map(|(number, said)| {
            said.details.iter().enumerate().map(move |(at, detail)| (detail, number, at))
        })
        .map(|(detail, number, at)| (detail.node.range().start, (number, at)))
        .collect();
    let judge = ChangeReporter { view, past, details };
    // A broken Seal takes precedence over a foreign one.
    let is_foreign = |change: &&Change<'_>| matches!(change.kind, ChangeKind::Foreign(_));
    let (foreign, others): (Vec<_>, Vec<_>) = comparison.changes.iter().partition(is_foreign);
    for change in others.into_iter().chain(foreign) {
        judge.report(change, report);
    }
    if let Some(finding) = comparison.cache_finding(&CACHE_PREFIX_BROKEN) {
        report.add(finding);
    }
}

struct ChangeReporter<'v, 'c> {
    view: &'v ChatRequest<'c>,
    past: &'v ChatReplayHistory<'c>,
    /// Message index and position of each detail, by start offset.
    details: HashMap<usize, (usize, usize)>,
}

impl<'v, 'c> ChangeReporter<'v, 'c> {
    fn report(&self, change: &Change<'_>, report: &mut ChatFindings<'_, '_>) {
        if change.part.as_ref().is_some_and(|part| report.is_covered(part)) {
            return;
        }
        match change.kind {
            ChangeKind::SealDropped | ChangeKind::PartDropped => {
                self.report_dropped(change, report);
            }
            ChangeKind::Foreign(why) => self.report_foreign(change, why, report),
            ChangeKind::SaidAloud => self.report_thought_as_text(change, report),
            ChangeKind::SealAltered { .. }
            | ChangeKind::SealReencoded
            | ChangeKind::SealMoved
            | ChangeKind::PartMoved
            | ChangeKind::TextEdited { .. }
            | ChangeKind::Merged
            | ChangeKind::Reordered
            | ChangeKind::Duplicated
            | ChangeKind::Unissued => self.report_altered(change, report),
        }
    }

    /// Returns the detail at a source range, with the index of its message.
    fn detail(&self, part: &Range<usize>) -> Option<(usize, &'v ChatDetail<'c>)> {
        let (number, at) = self.details.get(&part.start)?;
        Some((*number, self.view.messages.get(*number)?.details.get(*at)?))
    }

    /// Builds a fix that restores the reasoning of a message. If calls and text do not identify the
    /// reply, the reply of the change is used.
    fn restore(&self, number: usize, change: &Change<'_>) -> Option<Fix> {
        let said = self.view.messages.get(number)?;
        let is_in_place = Alteration::of(change.kind).is_none_or(Alteration::is_in_place);
        let issued = change.issued.filter(|_| is_in_place).map(|issued| issued.reply);
        let reply = self.past.reply(number).or(issued)?;
        self.past.restore_from(reply, said)
    }

    /// Adds the upstream's error to a finding that is a refusal.
    fn with_provider_error(
        &self,
        finding: Finding,
        number: usize,
        detail: &ChatDetail<'_>,
    ) -> Finding {
        match finding.severity {
            Severity::Refuse => {
                finding.with_provider_error(upstream_error(self.view, number, detail))
            }
            Severity::Degrade | Severity::Note => finding.without_provider_error(),
        }
    }

    /// Reports a part that comes back changed.
    fn report_altered(&self, change: &Change<'_>, report: &mut ChatFindings<'_, '_>) {
        let Some(altered) = Alteration::of(change.kind) else { return };
        // A thought between tags has no separate range in the request, so the finding covers its
        // message.
        let whole = || {
            let reply = change.issued?.reply;
            let number =
                self.past.message_index(reply).or_else(|| self.message_with_text_of(reply))?;
            Some(self.view.messages.get(number)?.node.range())
        };
        let Some(part) = &change.part.clone().or_else(whole) else { return };
        let is_routed = self.past.channel == ReasoningChannel::Details;
        let sealed = self.detail(part).filter(|(_, detail)| is_routed && detail.vendor.is_some());
        let Some((number, detail)) = sealed else {
            return self.report_plain_altered(change, altered, part, report);
        };
        if detail.seal.is_some_and(|seal| self.view.is_stand_in(seal)) {
            return self.report_stand_in(part, number, report);
        }
        // A detail without a Seal is not checked.
        let gravity = altered
            .severity(detail.vendor, self.past.reply(number).is_some())
            .filter(|_| detail.seal.is_some());
        let Some(gravity) =
            gravity.map(|gravity| self.lowered_severity(gravity, altered, number, change))
        else {
            return;
        };
        let message = format!("{} {}", altered.subject(), change.kind.describe());
        let remove = || {
            let what = "removes the changed block";
            Fix::new(what, [Edit::Remove(part.clone())])
        };
        let place = change.seal.clone().unwrap_or_else(|| part.clone());
        report.cover(part);
        let finding = Finding::in_range(&SIGNATURE_INVALID, place, message)
            .with_severity(gravity)
            .with_auto_fix(self.restore(number, change).unwrap_or_else(remove));
        report.add(self.with_provider_error(finding, number, detail));
    }

    /// Returns the message that ends with the visible text of a reply.
    fn message_with_text_of(&self, reply: &Reply) -> Option<usize> {
        let said = reply.items.iter().rev().find_map(|item| match &item.body {
            Body::Text(text) if !text.trim().is_empty() => Some(text.trim()),
            _ => None,
        })?;
        let mut answers = self.view.assistant_messages();
        let is_it = |message: &ChatMessage<'_>| {
            let text = message.text().and_then(Node::text);
            text.is_some_and(|text| text.trim_end().ends_with(said))
        };
        answers.find(|(_, message)| is_it(message)).map(|(number, _)| number)
    }

    /// Suggests the issued signature where the request has a documented stand-in, which is
    /// accepted.
    fn report_stand_in(
        &self,
        part: &Range<usize>,
        number: usize,
        report: &mut ChatFindings<'_, '_>,
    ) {
        let said = self.view.messages.get(number);
        let Some(fix) = said.and_then(|said| self.past.restore(number, said)) else { return };
        let message = "a stand-in replaces the issued signature";
        report.add(Finding::in_range(&DETAILS_DROPPED, part.clone(), message).with_auto_fix(fix));
    }

    /// Lowers the severity for a message that was only split in two: no provider is known to reject
    /// it.
    fn lowered_severity(
        &self,
        gravity: Severity,
        altered: Alteration,
        number: usize,
        change: &Change<'_>,
    ) -> Severity {
        let here = self.past.reply(number).zip(change.issued);
        let is_anothers = here.is_some_and(|(here, issued)| !std::ptr::eq(here, issued.reply));
        let is_cut = altered == Alteration::Apart && !is_anothers;
        let is_relayed = self.view.case.target().provider.dialect.relays;
        if altered == Alteration::Twice && !is_relayed {
            // A router that is not known to forward signatures is not known to check them.
            return Severity::Note;
        }
        if is_cut { gravity.min(Severity::Degrade) } else { gravity }
    }

    /// Reports changed reasoning without a Seal. Reasoning of another provider is never sent back.
    fn report_plain_altered(
        &self,
        change: &Change<'_>,
        altered: Alteration,
        part: &Range<usize>,
        report: &mut ChatFindings<'_, '_>,
    ) {
        let provider = &self.view.case.target().origin.provider;
        if change.issued.is_some_and(|issued| issued.reply.origin.provider != *provider) {
            return;
        }
        let is_sealed = change.seal.is_some();
        let subject = if is_sealed { altered.subject() } else { "this reasoning" };
        let message = format!("{subject} {}", change.kind.describe());
        let fix = self.view.message_at(part).and_then(|number| self.restore(number, change));
        let Some(gravity) = altered.severity(None, false) else { return };
        report.add(
            Finding::in_range(&REASONING_ALTERED, part.clone(), message)
                .with_severity(gravity)
                .with_auto_fix(fix),
        );
    }

    /// Reports an issued part that does not come back.
    fn report_dropped(&self, change: &Change<'_>, report: &mut ChatFindings<'_, '_>) {
        let Some(issued) = change.issued else { return };
        let part = change.part.as_ref().and_then(|part| self.view.message_at(part));
        let number = part.or_else(|| self.past.message_index(issued.reply));
        let Some((number, said)) =
            number.and_then(|number| Some((number, self.view.messages.get(number)?)))
        else {
            return;
        };
        let place = said.node.range();
        if report.is_covered(&place) || !self.is_expected_back(change, issued.item) {
            return;
        }
        let slot = slot_of(issued.item).unwrap_or_default();
        let channel = self.past.channel;
        let is_detail = slot::first_member(slot) == slot::DETAILS;
        let member = if is_detail { slot::DETAILS } else { slot::first_member(slot) };
        let issued_with = format!("this message was issued with `{member}`");
        let (rule, message) = if is_detail && channel == ReasoningChannel::Details {
            let message = if change.part.is_some() {
                "this detail was issued with a signature".to_owned()
            } else {
                issued_with
            };
            (&DETAILS_DROPPED, message)
        } else if channel == ReasoningChannel::Tags {
            (&THINKING_STRIPPED, "this text was issued with a thought before it".to_owned())
        } else if &*self.view.case.target().provider.name == "zai" {
            (&ZAI_REASONING_DROPPED, issued_with)
        } else {
            (&REASONING_DROPPED, issued_with)
        };
        let is_stripped = channel == ReasoningChannel::Tags;
        let sign = if is_stripped { said.content } else { said.node.get("role") };
        let path = format!("messages[{number}].{member}");
        report.cover(&place);
        let finding = Finding::in_range(rule, change.part.clone().unwrap_or(place), message)
            .with_path(path)
            .with_auto_fix(self.restore(number, change));
        report.add_at(sign.filter(|_| change.part.is_none()), finding);
    }

    /// Returns whether the endpoint uses what was dropped.
    fn is_expected_back(&self, change: &Change<'_>, item: &Item) -> bool {
        let is_summary = matches!(&item.body, Body::Thought(thought)
            if thought.kind == ThoughtKind::Summary && item.seals.is_empty());
        let is_geminis_text = self.view.vendor == Some(Vendor::Google) && item.seals.is_empty();
        // OpenAI's chat messages have no member for reasoning.
        let takes_any = self.past.channel != ReasoningChannel::None;
        let preserves = self.past.channel == ReasoningChannel::Tags
            || self.view.root.at("/thinking/clear_thinking").and_then(Node::bool) == Some(false);
        takes_any
            && !is_summary
            && !is_geminis_text
            && self.is_readable(item)
            && (change.is_current || preserves)
    }

    /// Returns whether the target model can read the Item: its own Seals, or plain reasoning of its
    /// family.
    fn is_readable(&self, item: &Item) -> bool {
        let target = self.view.case.target();
        let is_familiar = || {
            let origin = item.origin.as_ref();
            origin.is_none_or(|origin| origin.family == target.origin.family)
        };
        let opens = item.seals.iter().all(|seal| match seal.open_for(target, None) {
            Ok(_) | Err(ElisionReason::OtherAccount) => true,
            Err(_) => false,
        });
        if item.seals.is_empty() { is_familiar() } else { opens }
    }

    /// Reports a Seal that is sent to another endpoint than its owner.
    fn report_foreign(
        &self,
        change: &Change<'_>,
        why: ElisionReason,
        report: &mut ChatFindings<'_, '_>,
    ) {
        let Some((number, detail)) = change.part.as_ref().and_then(|part| self.detail(part)) else {
            return;
        };
        // Any Claude accepts a Claude signature; a block that the target cannot read is dropped.
        // Values sealed by OpenAI or Google at one endpoint do not open at another. A router calls
        // its upstreams with its own account, so the caller's account does not matter.
        let gravity = match (why, detail.vendor) {
            (ElisionReason::Foreign, Some(Vendor::OpenAi | Vendor::Google)) => Severity::Refuse,
            (ElisionReason::OtherAccount, _) => Severity::Note,
            (_, _) => Severity::Degrade,
        };
        let message = format!("the signature of this block {}", change.kind.describe());
        let fix = Fix::new(
            "removes the block that this model cannot read",
            [Edit::Remove(detail.node.range())],
        );
        let finding = Finding::at(&FOREIGN_DETAILS, detail.node, message)
            .with_severity(gravity)
            .with_auto_fix(fix);
        report.add(self.with_provider_error(finding, number, detail));
    }

    /// Reports a thought that is sent as plain text.
    fn report_thought_as_text(&self, change: &Change<'_>, report: &mut ChatFindings<'_, '_>) {
        let Some(part) = &change.part else { return };
        let said = self.view.message_at(part).and_then(|number| self.view.messages.get(number));
        let Some(said) = said else { return };
        let message = "this text is the model's reasoning, not its answer";
        // Claude answers such texts with the stop reason `refusal`.
        let is_claude = self.view.vendor == Some(Vendor::Anthropic);
        let gravity = if is_claude { Severity::Degrade } else { Severity::Note };
        let whole = said.content.filter(|content| content.range() == *part);
        let edit = match whole {
            Some(content) if !said.calls.is_empty() => Edit::Replace(content.range(), Json::null()),
            Some(_) => Edit::Remove(said.node.range()),
            None => Edit::Remove(part.clone()),
        };
        let fix = Fix::new("removes the thought from the text", [edit]);
        report.add(
            Finding::in_range(&THOUGHT_AS_TEXT, part.clone(), message)
                .with_severity(gravity)
                .with_auto_fix(fix),
        );
    }
}
