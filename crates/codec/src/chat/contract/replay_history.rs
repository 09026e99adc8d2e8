//! Compares assistant messages with known replies: finds the reply that each message replays,
//! reports changes, and builds fixes that restore the reply.

use std::collections::HashMap;
use std::ops::Range;

use throughline_core::{
    Body, Direction, ElisionReason, Item, ReasoningChannel, Reply, ThoughtKind, Vendor, Wire,
};
use throughline_json::{self as json, Json, Node};

use crate::audit::{Change, ChangeKind, Edit, Finding, Findings, Fix, Severity, opens_all};
use crate::chat::contract::alteration::{is_in_place, severity, subject};
use crate::chat::contract::rules;
use crate::chat::contract::view::{ChatMessage, ChatRequest, ChatRole};
use crate::chat::{contract, slot, wire};
use crate::draft::is_same_endpoint;

impl<'c> ChatRequest<'c> {
    /// Matches each assistant message to a reply by its calls, or else by its text. Replies are
    /// matched in order, because ids and texts may repeat.
    pub(super) fn find_replies(&self) -> Vec<Option<&'c Reply>> {
        if self.case.comparison().is_none() {
            return Vec::new();
        }
        let exchanges = self.case.prior().exchanges().iter();
        let prior_replies: Vec<&'c Reply> =
            exchanges.filter_map(|exchange| exchange.reply.as_ref()).collect();
        let mut by_call: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_text: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, reply) in prior_replies.iter().enumerate() {
            for item in &reply.items {
                if let Body::Call(call) = &item.body {
                    let id = call.wire_id.as_deref().unwrap_or_default();
                    by_call.entry(id).or_default().push(number);
                } else if let Body::Text(text) = &item.body {
                    by_text.entry(text.trim()).or_default().push(number);
                }
            }
        }
        let mut next = 0;
        let mut replies = vec![None; self.messages.len()];
        for (number, message) in self.assistant_messages() {
            let ids = message.calls.iter().filter_map(|call| call.text_of("id"));
            let named = ids.filter(|id| !id.is_empty()).find_map(|id| by_call.get(&*id));
            let text = message.text().and_then(Node::text).unwrap_or_default();
            let by_text = || by_text.get(text.trim()).filter(|_| message.calls.is_empty());
            let matched = named.or_else(by_text).and_then(|found| {
                found.iter().find(|reply| **reply >= next).or_else(|| found.last()).copied()
            });
            if let (Some(matched), Some(slot)) = (matched, replies.get_mut(number)) {
                *slot = prior_replies.get(matched).copied();
                next = matched + 1;
            }
        }
        replies
    }

    /// Returns the reply that the message with this index replays.
    fn reply(&self, number: usize) -> Option<&'c Reply> {
        self.replies.get(number).copied().flatten()
    }

    /// Returns the message that replays a reply, with its index.
    fn message_of(&self, reply: &Reply) -> Option<(usize, &ChatMessage<'c>)> {
        let mut replies = self.replies.iter().copied();
        let number = replies.position(|own| own.is_some_and(|own| std::ptr::eq(own, reply)))?;
        Some((number, self.messages.get(number)?))
    }

    /// Returns the reasoning that the replayed reply contained in the member `name`.
    pub(super) fn issued_field(&self, number: usize, name: &str) -> Option<Json> {
        let reply = self.reply(number).filter(|reply| self.is_own(reply))?;
        let thoughts = reply.items.iter().filter(|item| matches!(item.body, Body::Thought(_)));
        thoughts.filter_map(|item| Some((item, slot_of(item)?))).find_map(|(item, slot)| {
            slot::fields(slot).any(|field| field == name).then(|| request_json(item, slot))
        })
    }

    /// Builds a fix that restores all reasoning of the reply that a message replays.
    pub(super) fn restore(&self, number: usize) -> Option<Fix> {
        self.restore_from(self.reply(number)?, self.messages.get(number)?)
    }

    /// Builds a fix that restores all reasoning of `reply` in the message `msg`.
    fn restore_from(&self, reply: &Reply, msg: &ChatMessage<'_>) -> Option<Fix> {
        if !self.is_own(reply) {
            return None;
        }
        let (mut details, mut edits, mut content) = (Vec::new(), Vec::new(), String::new());
        let set = |key: &str, value: Json| Edit::Set(msg.node.range(), key.to_owned(), value);
        let own = contract::reasoning_field(self.channel);
        for item in &reply.items {
            let Some(native) = item.native_on(&Wire::OPENAI_CHAT) else { continue };
            match slot::first_member(&native.slot) {
                slot::DETAILS => details.push(request_json(item, &native.slot)),
                // Thoughts between tags are part of the text.
                slot::CONTENT => {
                    content.push_str(&native.json.tree().root().text().unwrap_or_default());
                }
                _ => {
                    let fields = slot::fields(&native.slot);
                    let accepted = fields.filter(|field| own.is_none_or(|own| own == *field));
                    edits.extend(accepted.map(|field| set(field, native.json.clone())));
                }
            }
        }
        if !details.is_empty() {
            edits.push(set(slot::DETAILS, json::array_of(&details)));
        }
        if self.channel == ReasoningChannel::Tags && !content.is_empty() {
            edits.push(set(slot::CONTENT, json::string(&content)));
        }
        let description = "restores the reasoning issued with this message";
        (!edits.is_empty()).then(|| Fix::new(description, edits))
    }

    /// Returns whether the target issued a reply and accepts all Seals in it.
    fn is_own(&self, reply: &Reply) -> bool {
        let target = self.case.target();
        is_same_endpoint(&reply.origin, &target.origin)
            && reply.items.iter().all(|item| opens_all(item, target))
    }

    /// Reports how replayed parts differ from the issued parts.
    pub(super) fn check_changes(&self, findings: &mut Findings<'_>) {
        let Some(comparison) = self.case.comparison() else { return };
        // Report broken Seals before foreign Seals.
        let is_foreign = |change: &&Change<'_>| matches!(change.kind, ChangeKind::Foreign(_));
        let (foreign, others): (Vec<_>, Vec<_>) = comparison.changes.iter().partition(is_foreign);
        for change in others.into_iter().chain(foreign) {
            if change.part.as_ref().is_some_and(|part| findings.is_covered(part)) {
                continue;
            }
            match change.kind {
                ChangeKind::SealDropped | ChangeKind::PartDropped => {
                    self.report_dropped(change, findings);
                }
                ChangeKind::Foreign(why) => findings.extend(self.foreign_seal_finding(change, why)),
                ChangeKind::SentAsText => findings.extend(self.leaked_thought_finding(change)),
                ChangeKind::SealAltered { .. }
                | ChangeKind::SealReencoded
                | ChangeKind::SealMoved
                | ChangeKind::PartMoved
                | ChangeKind::TextEdited { .. }
                | ChangeKind::Merged
                | ChangeKind::Reordered
                | ChangeKind::Duplicated
                | ChangeKind::Unissued => self.report_altered(change, findings),
            }
        }
        findings.extend(comparison.cache_finding(&rules::CACHE_PREFIX_BROKEN));
    }

    /// Builds a fix that restores the reasoning of a message. If the message's calls and text do
    /// not identify a reply, the fix uses the reply in `change`.
    fn restore_change(&self, number: usize, change: &Change<'_>) -> Option<Fix> {
        let issued = change.issued.filter(|_| is_in_place(change.kind)).map(|issued| issued.reply);
        self.restore_from(self.reply(number).or(issued)?, self.messages.get(number)?)
    }

    /// Reports a part that is replayed with changes.
    fn report_altered(&self, change: &Change<'_>, findings: &mut Findings<'_>) {
        // A thought between tags has no separate range in the request, so the finding covers its
        // message.
        let message_range = || {
            let reply = change.issued?.reply;
            let found = self.message_of(reply).or_else(|| self.message_with_text_of(reply));
            found.map(|(_, msg)| msg.node.range())
        };
        let Some(part) = &change.part.clone().or_else(message_range) else { return };
        let is_routed = self.channel == ReasoningChannel::Details;
        let sealed =
            self.detail_at(part).filter(|(_, detail)| is_routed && detail.vendor.is_some());
        let Some((number, detail)) = sealed else {
            return findings.extend(self.plain_altered_finding(change, part));
        };
        // A detail without a Seal is not verified by the vendor.
        let Some(seal) = detail.seal else { return };
        if self.is_stand_in(seal) {
            // The documented stand-in is accepted, but the issued signature is better.
            let message = "a stand-in replaces the issued signature";
            let finding = Finding::in_range(&rules::DETAILS_DROPPED, part.clone(), message);
            findings.extend(self.restore(number).map(|fix| finding.with_auto_fix(fix)));
            return;
        }
        let is_known = self.reply(number).is_some();
        let Some(severity) = severity(change.kind, detail.vendor, is_known) else { return };
        let message = format!("{} {}", subject(change.kind), change.kind.describe());
        let fix = self
            .restore_change(number, change)
            .unwrap_or_else(|| Fix::new("removes the changed block", [Edit::Remove(part.clone())]));
        let place = change.seal.clone().unwrap_or_else(|| part.clone());
        findings.cover(part.clone());
        let finding = Finding::in_range(&rules::SIGNATURE_INVALID, place, message)
            .with_severity(self.lowered_severity(severity, number, change))
            .with_rejection_error(self.upstream_error(number, detail));
        findings.add(self.with_router_severity(finding.with_auto_fix(fix)));
    }

    /// Returns the message that ends with the visible text of a reply.
    fn message_with_text_of(&self, reply: &Reply) -> Option<(usize, &ChatMessage<'c>)> {
        let end = reply.items.iter().rev().find_map(|item| match &item.body {
            Body::Text(text) if !text.trim().is_empty() => Some(text.trim()),
            _ => None,
        })?;
        self.assistant_messages().find(|(_, message)| {
            let text = message.text().and_then(Node::text);
            text.is_some_and(|text| text.trim_end().ends_with(end))
        })
    }

    /// Lowers the severity if a message was only split in two, because no provider is known to
    /// reject split messages.
    fn lowered_severity(&self, severity: Severity, number: usize, change: &Change<'_>) -> Severity {
        let here = self.reply(number).zip(change.issued);
        let is_anothers = here.is_some_and(|(here, issued)| !std::ptr::eq(here, issued.reply));
        let is_relayed = self.case.target().provider.dialect.relays;
        // A router that is not known to forward signatures is not known to check them.
        if change.kind == ChangeKind::Duplicated && !is_relayed {
            Severity::Note
        } else if change.kind == ChangeKind::PartMoved && !is_anothers {
            severity.min(Severity::Degrade)
        } else {
            severity
        }
    }

    /// Reports changed reasoning that has no Seal. Reasoning from other providers is skipped,
    /// because such reasoning is never sent to this endpoint.
    fn plain_altered_finding(&self, change: &Change<'_>, part: &Range<usize>) -> Option<Finding> {
        let provider = &self.case.target().origin.provider;
        if change.issued.is_some_and(|issued| issued.reply.origin.provider != *provider) {
            return None;
        }
        let is_sealed = change.seal.is_some();
        let subject = if is_sealed { subject(change.kind) } else { "this reasoning" };
        let message = format!("{subject} {}", change.kind.describe());
        let found = self.message_at(part);
        let fix = found.and_then(|(number, _)| self.restore_change(number, change));
        let finding = Finding::in_range(&rules::REASONING_ALTERED, part.clone(), message);
        Some(finding.with_severity(severity(change.kind, None, false)?).with_auto_fix(fix))
    }

    /// Reports an issued part that is missing from the request.
    fn report_dropped(&self, change: &Change<'_>, findings: &mut Findings<'_>) {
        let Some(issued) = change.issued else { return };
        let part = change.part.as_ref().and_then(|part| self.message_at(part));
        let Some((number, msg)) = part.or_else(|| self.message_of(issued.reply)) else { return };
        let place = msg.node.range();
        if findings.is_covered(&place) || !self.is_expected_back(change, issued.item, number) {
            return;
        }
        let member = slot::first_member(slot_of(issued.item).unwrap_or_default());
        let issued_with = format!("this message was issued with `{member}`");
        let is_stripped = self.channel == ReasoningChannel::Tags;
        let (rule, message) = if member == slot::DETAILS
            && self.channel == ReasoningChannel::Details
        {
            let message = "this detail was issued with a signature".to_owned();
            (&rules::DETAILS_DROPPED, if change.part.is_some() { message } else { issued_with })
        } else if is_stripped {
            (&rules::THINKING_STRIPPED, "this text was issued with a thought before it".to_owned())
        } else if &*self.case.target().provider.name == "zai" {
            (&rules::ZAI_REASONING_DROPPED, issued_with)
        } else {
            (&rules::REASONING_DROPPED, issued_with)
        };
        let sign = if is_stripped { msg.content } else { msg.node.get("role") };
        findings.cover(place.clone());
        let finding = Finding::in_range(rule, change.part.clone().unwrap_or(place), message)
            .with_path(format!("messages[{number}].{member}"))
            .with_auto_fix(self.restore_change(number, change));
        findings.add_at(sign.filter(|_| change.part.is_none()), finding);
    }

    /// Returns whether the endpoint would use a dropped part of the message `number` if the part
    /// were sent.
    fn is_expected_back(&self, change: &Change<'_>, item: &Item, number: usize) -> bool {
        let is_summary = matches!(&item.body, Body::Thought(thought)
            if thought.kind == ThoughtKind::Summary && item.seals.is_empty());
        let is_geminis_text = self.vendor == Some(Vendor::Google) && item.seals.is_empty();
        // OpenAI's chat messages have no member for reasoning.
        let takes_any = self.channel != ReasoningChannel::None;
        let preserves = self.channel == ReasoningChannel::Tags
            || self.root.at("/thinking/clear_thinking").and_then(Node::bool) == Some(false);
        takes_any
            && !is_summary
            && !is_geminis_text
            && self.is_readable(item)
            && (change.is_current || preserves || self.demands_reasoning(number))
    }

    /// Returns whether the endpoint demands the reasoning of the message `number` in every later
    /// request: the model called tools in the message or before it, after the last user message.
    /// DeepSeek's guide states this for answers too; reports disagree on whether a missing member
    /// of an answer is an error.
    fn demands_reasoning(&self, number: usize) -> bool {
        let until = self.messages.get(..=number).unwrap_or_default();
        let mut turn = until.iter().rev().take_while(|msg| msg.role != ChatRole::User);
        contract::requires_reasoning(self.case.target())
            && self.thinks
            && turn.any(|msg| !msg.calls.is_empty())
    }

    /// Returns whether the target model can read the Item. The model must be able to open the
    /// Item's Seals, regardless of the account. Unsealed reasoning must come from the model's
    /// family.
    fn is_readable(&self, item: &Item) -> bool {
        let target = self.case.target();
        if item.seals.is_empty() {
            let origin = item.origin.as_ref();
            return origin.is_none_or(|origin| origin.family == target.origin.family);
        }
        let mut opened = item.seals.iter().map(|seal| seal.open_for(target, None));
        opened.all(|opened| matches!(opened, Ok(_) | Err(ElisionReason::OtherAccount)))
    }

    /// Reports a Seal that is sent to an endpoint other than its issuer.
    fn foreign_seal_finding(&self, change: &Change<'_>, why: ElisionReason) -> Option<Finding> {
        let (number, detail) = self.detail_at(change.part.as_ref()?)?;
        // Any Claude model accepts a Claude signature, and drops blocks that it cannot read. Values
        // sealed by OpenAI or Google cannot be decrypted at another endpoint. A router calls its
        // upstreams with its own account, so the caller's account does not matter.
        let severity = match (why, detail.vendor) {
            (ElisionReason::Foreign, Some(Vendor::OpenAi | Vendor::Google)) => Severity::Refuse,
            (ElisionReason::OtherAccount, _) => Severity::Note,
            (_, _) => Severity::Degrade,
        };
        let message = format!("the signature of this block {}", change.kind.describe());
        let finding = Finding::at(&rules::FOREIGN_DETAILS, detail.node, message)
            .with_severity(severity)
            .with_rejection_error(self.upstream_error(number, detail));
        let description = "removes the block that this model cannot read";
        Some(self.with_router_severity(finding.fixed_by_removing(detail.node, description)))
    }

    /// Reports a thought that is sent as plain text.
    fn leaked_thought_finding(&self, change: &Change<'_>) -> Option<Finding> {
        let part = change.part.as_ref()?;
        let (_, msg) = self.message_at(part)?;
        // Claude answers requests that contain leaked thoughts with the stop reason `refusal`.
        let is_claude = self.vendor == Some(Vendor::Anthropic);
        let severity = if is_claude { Severity::Degrade } else { Severity::Note };
        let edit = match msg.content.filter(|content| content.range() == *part) {
            Some(content) if !msg.calls.is_empty() => Edit::Replace(content.range(), Json::null()),
            Some(_) => Edit::Remove(msg.node.range()),
            None => Edit::Remove(part.clone()),
        };
        let message = "this text is the model's reasoning, not its answer";
        let finding = Finding::in_range(&rules::THOUGHT_AS_TEXT, part.clone(), message);
        let finding = finding.with_severity(severity);
        Some(finding.fixed_by("removes the thought from the text", [edit]))
    }
}

fn slot_of(item: &Item) -> Option<&str> {
    item.native.as_ref().map(|native| &*native.slot)
}

/// Converts a part to its form in a request.
fn request_json(item: &Item, slot: &str) -> Json {
    match &item.native {
        Some(native) if native.side == Direction::Response => {
            wire::to_request_part(slot, &native.json)
        }
        Some(native) => native.json.clone(),
        None => Json::null(),
    }
}
