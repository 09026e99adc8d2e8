//! What came before: which answer each message of the request was, what of it changed on the way, and how it is put back.

use std::collections::HashMap;
use std::ops::Range;

use throughline_core::{
    Body, Channel, Item, Json, Node, Reply, Side, Target, ThoughtKind, Vendor, Why, Wire, json,
};

use crate::audit::{Change, ChangeKind, Edit, Finding, Mend, Severity};
use crate::chat::contract::altered::Altered;
use crate::chat::contract::details::refusal;
use crate::chat::contract::rules::{
    CACHE_PREFIX_BROKEN, DETAILS_DROPPED, FOREIGN_DETAILS, REASONING_ALTERED, REASONING_DROPPED,
    SIGNATURE_INVALID, THINKING_STRIPPED, THOUGHT_AS_TEXT, ZAI_REASONING_DROPPED,
};
use crate::chat::contract::view::{Detail, Report, Said, View};
use crate::chat::{slot, wire};

/// The answers that the request's messages were, as far as they are known.
pub(super) struct Past<'c> {
    replies: Vec<Option<&'c Reply>>,
    target: &'c Target,
    channel: Channel,
}

impl<'c> Past<'c> {
    /// Finds for each message of the model the answer that it was: by its calls, else by its text. Ids and texts may
    /// come again, so answers are taken in their order.
    pub(super) fn of(view: &View<'c>) -> Self {
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
        for (number, message) in view.answers() {
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

    /// The answer that a message was.
    pub(super) fn reply(&self, number: usize) -> Option<&'c Reply> {
        self.replies.get(number).copied().flatten()
    }

    /// The message that an answer became.
    fn message_of(&self, reply: &Reply) -> Option<usize> {
        self.replies.iter().position(|own| own.is_some_and(|own| std::ptr::eq(own, reply)))
    }

    /// The reasoning that was issued with a message in that member.
    pub(super) fn field(&self, number: usize, name: &str) -> Option<Json> {
        let mut issued = thoughts(self.reply(number).filter(|reply| self.is_own(reply))?);
        issued.find_map(|(item, slot)| {
            slot::fields(slot).any(|field| field == name).then(|| as_sent(item, slot))
        })
    }

    /// Puts back all reasoning that was issued with a message, as it was issued.
    pub(super) fn restore(&self, number: usize, said: &Said<'_>) -> Option<Mend> {
        self.restore_from(self.reply(number)?, said)
    }

    /// Puts back all reasoning of an answer on the message that it was.
    fn restore_from(&self, reply: &Reply, said: &Said<'_>) -> Option<Mend> {
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
            match slot::member(&native.slot) {
                slot::DETAILS => details.push(as_sent(item, &native.slot)),
                // Thoughts between tags are part of the text.
                slot::CONTENT => content.push_str(&tree.root().text().unwrap_or_default()),
                _ => {
                    let own = self.field_name();
                    let fields: Vec<_> = slot::fields(&native.slot).collect();
                    let wanted = fields.iter().filter(|field| own.is_none_or(|own| own == **field));
                    edits.extend(wanted.map(|field| set(field, native.json.clone())));
                }
            }
        }
        if !details.is_empty() {
            edits.push(set(slot::DETAILS, json::array_of(&details)));
        }
        if self.channel == Channel::Tags && !content.is_empty() {
            edits.push(set(slot::CONTENT, json::string(&content)));
        }
        let what = "puts back the reasoning that was issued with this message";
        (!edits.is_empty()).then(|| Mend::new(what, edits))
    }

    /// Whether the target itself issued an answer, and takes all its seals back.
    fn is_own(&self, reply: &Reply) -> bool {
        let (owner, reader) = (&reply.origin, &self.target.origin);
        let seals = reply.items.iter().flat_map(|item| &item.seals);
        owner.provider == reader.provider
            && owner.endpoint == reader.endpoint
            && seals.into_iter().all(|seal| seal.open_for(self.target, None).is_ok())
    }

    fn field_name(&self) -> Option<&'static str> {
        match self.channel {
            Channel::ReasoningContent => Some("reasoning_content"),
            Channel::Reasoning => Some("reasoning"),
            Channel::Thinking => Some("thinking"),
            Channel::AsEmitted
            | Channel::None
            | Channel::Details
            | Channel::Chunks
            | Channel::Tags => None,
        }
    }
}

/// The thoughts of an answer with their slots.
fn thoughts(reply: &Reply) -> impl Iterator<Item = (&Item, &str)> {
    let is_thought = |item: &&Item| matches!(item.body, Body::Thought(_));
    let slots = |item| Some((item, slot_of(item)?));
    reply.items.iter().filter(is_thought).filter_map(slots)
}

fn slot_of(item: &Item) -> Option<&str> {
    item.native.as_ref().map(|native| &*native.slot)
}

/// A part as a request says it.
fn as_sent(item: &Item, slot: &str) -> Json {
    match &item.native {
        Some(native) if native.side == Side::Response => wire::project(slot, &native.json),
        Some(native) => native.json.clone(),
        None => Json::null(),
    }
}

pub(super) fn check(view: &View<'_>, past: &Past<'_>, report: &mut Report<'_, '_>) {
    let Some(comparison) = view.case.comparison() else { return };
    let details: HashMap<usize, (usize, usize)> = view
        .answers()
        .flat_map(|(number, said)| {
            said.details.iter().enumerate().map(move |(at, detail)| (detail, number, at))
        })
        .map(|(detail, number, at)| (detail.node.range().start, (number, at)))
        .collect();
    let judge = Judge { view, past, details };
    // Whether a seal is whole counts before whose it is.
    let is_foreign = |change: &&Change<'_>| matches!(change.kind, ChangeKind::Foreign(_));
    let (foreign, others): (Vec<_>, Vec<_>) = comparison.changes.iter().partition(is_foreign);
    for change in others.into_iter().chain(foreign) {
        judge.judge(change, report);
    }
    if let Some(finding) = comparison.broken_cache(&CACHE_PREFIX_BROKEN) {
        report.add(finding);
    }
}

struct Judge<'v, 'c> {
    view: &'v View<'c>,
    past: &'v Past<'c>,
    /// The message and position of each detail, by where it begins.
    details: HashMap<usize, (usize, usize)>,
}

impl<'v, 'c> Judge<'v, 'c> {
    fn judge(&self, change: &Change<'_>, report: &mut Report<'_, '_>) {
        if change.part.as_ref().is_some_and(|part| report.is_covered(part)) {
            return;
        }
        match change.kind {
            ChangeKind::SealDropped | ChangeKind::PartDropped => self.dropped(change, report),
            ChangeKind::Foreign(why) => self.foreign(change, why, report),
            ChangeKind::SaidAloud => self.aloud(change, report),
            ChangeKind::SealAltered { .. }
            | ChangeKind::SealReencoded
            | ChangeKind::SealMoved
            | ChangeKind::PartMoved
            | ChangeKind::TextEdited { .. }
            | ChangeKind::Merged
            | ChangeKind::Reordered
            | ChangeKind::Duplicated
            | ChangeKind::Unissued => self.altered(change, report),
        }
    }

    /// The detail at a place, with the number of its message.
    fn detail(&self, part: &Range<usize>) -> Option<(usize, &'v Detail<'c>)> {
        let (number, at) = self.details.get(&part.start)?;
        Some((*number, self.view.messages.get(*number)?.details.get(*at)?))
    }

    /// Puts back what was issued with a message; where its calls and text no longer tell which answer it was, the change
    /// itself may.
    fn restore(&self, number: usize, change: &Change<'_>) -> Option<Mend> {
        let said = self.view.messages.get(number)?;
        let is_in_place = Altered::of(change.kind).is_none_or(Altered::is_in_place);
        let issued = change.issued.filter(|_| is_in_place).map(|issued| issued.reply);
        let reply = self.past.reply(number).or(issued)?;
        self.past.restore_from(reply, said)
    }

    /// A finding with what the upstream says of the detail, where it refuses it.
    fn answered(&self, finding: Finding, number: usize, detail: &Detail<'_>) -> Finding {
        match finding.severity {
            Severity::Refuse => finding.answered(refusal(self.view, number, detail)),
            Severity::Degrade | Severity::Note => finding.unanswered(),
        }
    }

    /// Something comes back otherwise than it was issued.
    fn altered(&self, change: &Change<'_>, report: &mut Report<'_, '_>) {
        let Some(altered) = Altered::of(change.kind) else { return };
        // A thought between tags has no place of its own in the request, but its message has.
        let whole = || {
            let reply = change.issued?.reply;
            let number = self.past.message_of(reply).or_else(|| self.saying(reply))?;
            Some(self.view.messages.get(number)?.node.range())
        };
        let Some(part) = &change.part.clone().or_else(whole) else { return };
        let is_routed = self.past.channel == Channel::Details;
        let sealed = self.detail(part).filter(|(_, detail)| is_routed && detail.vendor.is_some());
        let Some((number, detail)) = sealed else {
            return self.plain_altered(change, altered, part, report);
        };
        if detail.seal.is_some_and(|seal| self.view.is_stand_in(seal)) {
            return self.stood_in_for(part, number, report);
        }
        // What carries no seal is not checked.
        let gravity = altered
            .gravity(detail.vendor, self.past.reply(number).is_some())
            .filter(|_| detail.seal.is_some());
        let Some(gravity) = gravity.map(|gravity| self.eased(gravity, altered, number, change))
        else {
            return;
        };
        let message = format!("{} {}", altered.subject(), change.kind.phrase());
        let remove = || {
            let what = "removes the block that was not issued like that";
            Mend::new(what, [Edit::Remove(part.clone())])
        };
        let place = change.seal.clone().unwrap_or_else(|| part.clone());
        report.cover(part);
        let finding = Finding::in_range(&SIGNATURE_INVALID, place, message)
            .as_grave_as(gravity)
            .mended(Some(self.restore(number, change).unwrap_or_else(remove)));
        report.add(self.answered(finding, number, detail));
    }

    /// The message that ends with what an answer said aloud.
    fn saying(&self, reply: &Reply) -> Option<usize> {
        let said = reply.items.iter().rev().find_map(|item| match &item.body {
            Body::Text(text) if !text.trim().is_empty() => Some(text.trim()),
            _ => None,
        })?;
        let mut answers = self.view.answers();
        let is_it = |message: &Said<'_>| {
            let text = message.text().and_then(Node::text);
            text.is_some_and(|text| text.trim_end().ends_with(said))
        };
        answers.find(|(_, message)| is_it(message)).map(|(number, _)| number)
    }

    /// A documented stand-in is taken. Where the signature itself is at hand, it would be better.
    fn stood_in_for(&self, part: &Range<usize>, number: usize, report: &mut Report<'_, '_>) {
        let said = self.view.messages.get(number);
        let Some(mend) = said.and_then(|said| self.past.restore(number, said)) else { return };
        let message = "a stand-in takes the place of the signature that was issued";
        report.add(Finding::in_range(&DETAILS_DROPPED, part.clone(), message).mended(Some(mend)));
    }

    /// A message that was only cut in two still has its block: nothing is known to be refused.
    fn eased(
        &self,
        gravity: Severity,
        altered: Altered,
        number: usize,
        change: &Change<'_>,
    ) -> Severity {
        let here = self.past.reply(number).zip(change.issued);
        let is_anothers = here.is_some_and(|(here, issued)| !std::ptr::eq(here, issued.reply));
        let is_cut = altered == Altered::Apart && !is_anothers;
        let is_relayed = self.view.case.target().provider.dialect.relays;
        if altered == Altered::Twice && !is_relayed {
            // A router that is not known to hand signatures on is not known to count them.
            return Severity::Note;
        }
        if is_cut { gravity.min(Severity::Degrade) } else { gravity }
    }

    /// Reasoning that carries no seal comes back otherwise than it was issued. What another provider thought comes back to
    /// nobody.
    fn plain_altered(
        &self,
        change: &Change<'_>,
        altered: Altered,
        part: &Range<usize>,
        report: &mut Report<'_, '_>,
    ) {
        let provider = &self.view.case.target().origin.provider;
        if change.issued.is_some_and(|issued| issued.reply.origin.provider != *provider) {
            return;
        }
        let is_sealed = change.seal.is_some();
        let subject = if is_sealed { altered.subject() } else { "this reasoning" };
        let message = format!("{subject} {}", change.kind.phrase());
        let mend = self.view.message_at(part).and_then(|number| self.restore(number, change));
        let Some(gravity) = altered.gravity(None, false) else { return };
        report.add(
            Finding::in_range(&REASONING_ALTERED, part.clone(), message)
                .as_grave_as(gravity)
                .mended(mend),
        );
    }

    /// Something that was issued does not come back.
    fn dropped(&self, change: &Change<'_>, report: &mut Report<'_, '_>) {
        let Some(issued) = change.issued else { return };
        let part = change.part.as_ref().and_then(|part| self.view.message_at(part));
        let number = part.or_else(|| self.past.message_of(issued.reply));
        let Some((number, said)) =
            number.and_then(|number| Some((number, self.view.messages.get(number)?)))
        else {
            return;
        };
        let place = said.node.range();
        if report.is_covered(&place) || !self.is_wanted(change, issued.item) {
            return;
        }
        let slot = slot_of(issued.item).unwrap_or_default();
        let channel = self.past.channel;
        let is_detail = slot::member(slot) == slot::DETAILS;
        let member = if is_detail { slot::DETAILS } else { slot::member(slot) };
        let issued_with = format!("this message was issued with `{member}`");
        let (rule, message) = if is_detail && channel == Channel::Details {
            let message = if change.part.is_some() {
                "this detail was issued with a signature".to_owned()
            } else {
                issued_with
            };
            (&DETAILS_DROPPED, message)
        } else if channel == Channel::Tags {
            (&THINKING_STRIPPED, "this text was issued with its thought before it".to_owned())
        } else if &*self.view.case.target().provider.name == "zai" {
            (&ZAI_REASONING_DROPPED, issued_with)
        } else {
            (&REASONING_DROPPED, issued_with)
        };
        let is_stripped = channel == Channel::Tags;
        let sign = if is_stripped { said.content } else { said.node.get("role") };
        let path = format!("messages[{number}].{member}");
        report.cover(&place);
        let finding = Finding::in_range(rule, change.part.clone().unwrap_or(place), message)
            .under(path)
            .mended(self.restore(number, change));
        report.add_at(sign.filter(|_| change.part.is_none()), finding);
    }

    /// Whether the endpoint has any use for what was dropped.
    fn is_wanted(&self, change: &Change<'_>, item: &Item) -> bool {
        let is_summary = matches!(&item.body, Body::Thought(thought)
            if thought.kind == ThoughtKind::Summary && item.seals.is_empty());
        let is_geminis_text = self.view.vendor == Some(Vendor::Google) && item.seals.is_empty();
        // OpenAI's messages have no place for reasoning at all.
        let takes_any = self.past.channel != Channel::None;
        let preserves = self.past.channel == Channel::Tags
            || self.view.root.at("/thinking/clear_thinking").and_then(Node::bool) == Some(false);
        takes_any
            && !is_summary
            && !is_geminis_text
            && self.is_readable(item)
            && (change.is_current || preserves)
    }

    /// Whether the model asked could have read it: its own seals, and what its own family thought in the open.
    fn is_readable(&self, item: &Item) -> bool {
        let target = self.view.case.target();
        let is_familiar = || {
            let origin = item.origin.as_ref();
            origin.is_none_or(|origin| origin.family == target.origin.family)
        };
        let opens = item.seals.iter().all(|seal| match seal.open_for(target, None) {
            Ok(_) | Err(Why::OtherAccount) => true,
            Err(_) => false,
        });
        if item.seals.is_empty() { is_familiar() } else { opens }
    }

    /// A seal that goes to somebody else than its owner.
    fn foreign(&self, change: &Change<'_>, why: Why, report: &mut Report<'_, '_>) {
        let Some((number, detail)) = change.part.as_ref().and_then(|part| self.detail(part)) else {
            return;
        };
        // A Claude's signature is good wherever a Claude is; a block that the target may not read is dropped unread. What
        // OpenAI or Google sealed at one endpoint does not open at another.
        // A router asks its upstreams with an account of its own, whoever asks it.
        let gravity = match (why, detail.vendor) {
            (Why::Foreign, Some(Vendor::OpenAi | Vendor::Google)) => Severity::Refuse,
            (Why::OtherAccount, _) => Severity::Note,
            (_, _) => Severity::Degrade,
        };
        let message = format!("the signature of this block {}", change.kind.phrase());
        let mend = Mend::new(
            "removes the block that this model cannot read",
            [Edit::Remove(detail.node.range())],
        );
        let finding = Finding::at(&FOREIGN_DETAILS, detail.node, message)
            .as_grave_as(gravity)
            .mended(Some(mend));
        report.add(self.answered(finding, number, detail));
    }

    /// A thought that is said as plain text.
    fn aloud(&self, change: &Change<'_>, report: &mut Report<'_, '_>) {
        let Some(part) = &change.part else { return };
        let said = self.view.message_at(part).and_then(|number| self.view.messages.get(number));
        let Some(said) = said else { return };
        let message = "this text is what the model thought, not what it said";
        // Claude answers such texts with a refusal.
        let is_claude = self.view.vendor == Some(Vendor::Anthropic);
        let gravity = if is_claude { Severity::Degrade } else { Severity::Note };
        let whole = said.content.filter(|content| content.range() == *part);
        let edit = match whole {
            Some(content) if !said.calls.is_empty() => Edit::Replace(content.range(), Json::null()),
            Some(_) => Edit::Remove(said.node.range()),
            None => Edit::Remove(part.clone()),
        };
        let mend = Mend::new("removes the thought from the text", [edit]);
        report.add(
            Finding::in_range(&THOUGHT_AS_TEXT, part.clone(), message)
                .as_grave_as(gravity)
                .mended(Some(mend)),
        );
    }
}
