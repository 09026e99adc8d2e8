//! Compares the replayed content of a request with the issued content.
//!
//! Issued content means the thoughts and sealed parts of the earlier replies. Each part is looked
//! up in the request by its Seal, then by id, text and position. Unmatched content on either side
//! was altered, moved or lost. If no part of a reply matches, the reply belongs to another branch
//! of the conversation and is not reported as missing.

use std::collections::HashMap;
use std::ops::Range;

use throughline_core::{Body, Call, Item, Request, Role, Target};
use throughline_json::Tree;

use crate::audit::compare::{Change, ChangeKind, Comparison, IssuedItem};
use crate::audit::match_criteria::{
    id_key, is_same_element, is_same_id, is_same_kind, is_same_part, output_key, part_key,
};
use crate::audit::prior_content::{PriorContent, normal};
use crate::audit::{PriorExchanges, Transcript, prefix_change};
use crate::edit::range_in;
use crate::{CodecError, DecodeContext};

impl<'p> Comparison<'p> {
    /// Decodes the request and compares it with the earlier exchanges.
    pub(super) fn of(
        transcript: &Transcript<'p>,
        target: &Target,
        tree: &Tree,
    ) -> Result<Self, CodecError> {
        // Decode the Call from the bytes of `tree`, so that byte ranges are valid in both.
        let context = DecodeContext::of(target.clone());
        let request = Request { body: tree.bytes().clone(), ..transcript.request.clone() };
        let call = transcript.codec.decode_request(&request, &context)?;
        let mut search = IssuedMatcher::new(transcript.prior, target, &call, tree);
        search.match_seals();
        search.match_remaining();
        search.judge();
        let (changes, matches) = (search.changes, search.matches);
        let prefix = prefix_change::changed(transcript, target, tree, &matches);
        let reordered = prefix_change::reordered(transcript, target, tree);
        Ok(Self { call, changes, prefix, reordered })
    }
}

/// An issued Item and the part of the request that replays it.
pub(super) struct ReplayedItem<'p> {
    pub(super) issued: IssuedItem<'p>,
    pub(super) part: Range<usize>,
    /// The index of the request message that contains the part.
    pub(super) message: u32,
    /// The first part of the request message that precedes the replayed Item but did not precede
    /// the Item in the reply.
    pub(super) foreign_part: Option<Range<usize>>,
}

/// An Item of an earlier reply, and the index of the request Item that replays the issued Item.
struct IssuedPart<'p> {
    issued: IssuedItem<'p>,
    /// The index of the request Item that replays this issued Item; `None` if no match was found.
    found: Option<usize>,
}

impl<'p> IssuedPart<'p> {
    fn requires_replay(&self) -> bool {
        requires_replay(self.issued.item)
    }

    /// Returns the issued Item and, if it has Seals, the index of the first Seal.
    fn with_first_seal(&self) -> IssuedItem<'p> {
        let seal = (!self.issued.item.seals.is_empty()).then_some(0);
        IssuedItem { seal, ..self.issued }
    }
}

/// Returns whether an Item is a thought or has a Seal. Providers require only such Items to be
/// replayed.
fn requires_replay(item: &Item) -> bool {
    matches!(item.body, Body::Thought(_)) || !item.seals.is_empty()
}

struct IssuedMatcher<'a, 'p> {
    prior: &'p PriorExchanges,
    target: &'a Target,
    call: &'a Call,
    tree: &'a Tree,
    /// All Items of the earlier replies, in the order in which they were issued.
    issued_parts: Vec<IssuedPart<'p>>,
    carried: PriorContent,
    /// For each Item of the request, the index of the matching issued Item in `given`.
    issued_index: Vec<Option<usize>>,
    changes: Vec<Change<'p>>,
    matches: Vec<ReplayedItem<'p>>,
    /// The index of the first Item of the unfinished turn.
    current: usize,
    latest: Option<u32>,
}

impl<'a, 'p> IssuedMatcher<'a, 'p> {
    fn new(prior: &'p PriorExchanges, target: &'a Target, call: &'a Call, tree: &'a Tree) -> Self {
        let exchanges = prior.exchanges().iter().enumerate();
        let replies = exchanges.filter_map(|(at, exchange)| Some((at, exchange.reply.as_ref()?)));
        let issued_parts = replies.flat_map(|(exchange, reply)| {
            reply.items.iter().enumerate().map(move |(index, item)| IssuedPart {
                issued: IssuedItem { exchange, index, reply, item, seal: None },
                found: None,
            })
        });
        let is_users =
            |item: &Item| item.role == Role::User && !matches!(item.body, Body::Result(_));
        let current = call.items.iter().rposition(is_users).map_or(0, |last| last + 1);
        let mut models = call.items.iter().rev().filter(|item| item.role == Role::Assistant);
        Self {
            prior,
            target,
            call,
            tree,
            issued_parts: issued_parts.collect(),
            carried: PriorContent::of(prior),
            issued_index: vec![None; call.items.len()],
            changes: Vec::new(),
            matches: Vec::new(),
            current,
            latest: models.next().map(|item| item.place.message),
        }
    }

    /// Returns the index of the issued Item that matches the request Item at index `at`.
    fn matched(&self, at: usize) -> Option<usize> {
        self.issued_index.get(at).copied().flatten()
    }

    /// Matches Items by their Seals, regardless of the base64 alphabet and padding.
    fn match_seals(&mut self) {
        let mut by_seal: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (number, part) in self.issued_parts.iter().enumerate() {
            for seal in &part.issued.item.seals {
                by_seal.entry(normal(seal.reveal_to_tenant())).or_default().push(number);
            }
        }
        for (at, item) in self.call.items.iter().enumerate() {
            for (seal_number, seal) in item.seals.iter().enumerate() {
                let Some(candidates) = by_seal.get(&normal(seal.reveal_to_tenant())) else {
                    continue;
                };
                if self.matched(at).is_some() {
                    continue;
                }
                let candidates =
                    candidates.iter().filter_map(|n| Some((*n, self.issued_parts.get(*n)?)));
                let mut free = candidates.clone().filter(|(_, part)| part.found.is_none());
                // Among equal Seals, prefer the Seal of an equal part. Match each issued Seal only
                // once.
                let likely = free.clone().find(|(_, part)| is_same_part(part.issued.item, item));
                if let Some((number, _)) = likely.or_else(|| free.next()) {
                    self.join(at, number);
                    continue;
                }
                // A Seal that the target cannot read is reported as foreign, not as a duplicate.
                let issued = candidates.map(|(_, part)| part.issued).next();
                let mut seals = issued.into_iter().flat_map(|issued| &issued.item.seals);
                let refused = seals.find_map(|seal| seal.open_for(self.target, None).err());
                let kind = refused.map_or(ChangeKind::Duplicated, ChangeKind::Foreign);
                self.report(kind, at, Some(seal_number), issued);
            }
        }
    }

    /// Matches Items that have lost or changed their Seals.
    fn match_remaining(&mut self) {
        self.match_by(id_key, is_same_element);
        self.match_by(id_key, is_same_id);
        self.match_by(part_key, is_same_part);
        // An unmatched Item of the same kind at the position of the next issued Item is an altered
        // copy of that Item.
        let mut expected = 0;
        for (at, item) in self.call.items.iter().enumerate() {
            if let Some(number) = self.matched(at) {
                expected = number + 1;
                continue;
            }
            if !requires_replay(item) {
                continue;
            }
            let mut later = self.issued_parts.iter().enumerate().skip(expected);
            let next = later.find(|(number, part)| {
                part.requires_replay()
                    && part.found.is_none()
                    && is_same_kind(part.issued.item, item)
                    // A reply counts as altered only if other parts of it are replayed, and only in
                    // its own message.
                    && self.is_partly_replayed(*number, item)
            });
            if let Some((number, _)) = next
                && item.role == Role::Assistant
                && !self.carried.was_sent(item)
            {
                self.join(at, number);
                expected = number + 1;
            }
        }
    }

    /// Returns whether another part of the same reply is replayed. If parts from the same issued
    /// message are replayed, at least one must be in the message of `item`.
    fn is_partly_replayed(&self, number: usize, item: &Item) -> bool {
        let is_replayed = self.reply_parts(number).any(|(_, other)| other.found.is_some());
        is_replayed && !self.is_elsewhere(number, item)
    }

    /// Returns whether other parts from the same issued message are replayed, but none of them in
    /// the message of `item`.
    fn is_elsewhere(&self, number: usize, item: &Item) -> bool {
        let Some(part) = self.issued_parts.get(number) else { return false };
        let message = part.issued.item.place.message;
        let neighbours = self.reply_parts(number).filter(|(other_number, other)| {
            *other_number != number && other.issued.item.place.message == message
        });
        let found = neighbours.filter_map(|(_, other)| self.call.items.get(other.found?));
        let mut places = found.map(|found| found.place.message).peekable();
        places.peek().is_some() && places.all(|message| message != item.place.message)
    }

    /// Matches the unmatched Items for which `is_like` returns true. Only Items with the same `key`
    /// are compared.
    fn match_by(&mut self, key: fn(&Item) -> Option<u64>, is_like: fn(&Item, &Item) -> bool) {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, part) in self.issued_parts.iter().enumerate() {
            if let Some(key) = key(part.issued.item).filter(|_| part.found.is_none()) {
                places.entry(key).or_default().push(number);
            }
        }
        let mut from = 0;
        for (at, item) in self.call.items.iter().enumerate() {
            if item.role != Role::Assistant || self.matched(at).is_some() {
                continue;
            }
            let Some(numbers) = key(item).and_then(|key| places.get(&key)) else { continue };
            let fits = |number: &&usize| {
                let part = self.issued_parts.get(**number).filter(|part| part.found.is_none());
                part.is_some_and(|part| is_like(part.issued.item, item))
            };
            // Prefer the issued order, because equal texts may occur more than once.
            let later = numbers.partition_point(|number| *number < from);
            let later = numbers.get(later..).unwrap_or_default().iter().find(fits);
            if let Some(number) = later.or_else(|| numbers.iter().find(fits)).copied() {
                self.join(at, number);
                from = number + 1;
            }
        }
    }

    fn join(&mut self, at: usize, number: usize) {
        if let (Some(slot), Some(part)) =
            (self.issued_index.get_mut(at), self.issued_parts.get_mut(number))
        {
            *slot = Some(number);
            part.found = Some(at);
        }
    }

    /// Records a change for each difference between replayed and issued Items.
    fn judge(&mut self) {
        for (at, item) in self.call.items.iter().enumerate() {
            match self.matched(at) {
                Some(number) => self.check_matched(at, item, number),
                None => self.check_unmatched(at, item),
            }
        }
        self.check_order();
        self.check_sibling_order();
        self.check_missing();
        self.changes.sort_by_key(|change| change.part.as_ref().map(|part| part.start));
    }

    fn check_matched(&mut self, at: usize, item: &Item, number: usize) {
        let Some(issued_part) = self.issued_parts.get(number) else { return };
        let issued = issued_part.with_first_seal();
        if let Some(part) = self.place(at)
            && issued_part.requires_replay()
        {
            let (message, foreign_part) =
                (item.place.message, self.foreign_part_before(at, number));
            self.matches.push(ReplayedItem { issued, part, message, foreign_part });
        }
        for (seal_number, seal) in issued.item.seals.iter().enumerate() {
            let issued = Some(IssuedItem { seal: Some(seal_number), ..issued });
            let position = item.seals.iter().position(|other| {
                other.format == seal.format && other.attached.at == seal.attached.at
            });
            let position =
                position.or_else(|| (seal_number < item.seals.len()).then_some(seal_number));
            let Some(other) = position.and_then(|position| item.seals.get(position)) else {
                self.report(ChangeKind::SealDropped, at, None, issued);
                continue;
            };
            let (was, is) = (seal.reveal_to_tenant(), other.reveal_to_tenant());
            if normal(was) == normal(is) {
                if let Err(why) = seal.open_for(self.target, None) {
                    self.report(ChangeKind::Foreign(why), at, position, issued);
                }
                if was != is {
                    self.report(ChangeKind::SealReencoded, at, position, issued);
                }
            } else if self.carried.issued(is) {
                self.report(ChangeKind::SealMoved, at, position, issued);
            } else {
                let first = was.iter().zip(is).take_while(|(was, is)| was == is).count();
                self.report(ChangeKind::SealAltered { first }, at, position, issued);
            }
        }
        if requires_replay(issued.item)
            && let Some(kind) = self.content_change(item, issued, number)
        {
            self.report(kind, at, None, Some(issued));
        }
        // Check only additional Seals, because Seals that moved here from another part were already
        // reported.
        self.check_unissued(at, item, issued.item.seals.len());
    }

    /// Returns the first part that precedes the request Item at index `at` in its message but did
    /// not precede the Item in the reply. Thoughts are ignored.
    fn foreign_part_before(&self, at: usize, number: usize) -> Option<Range<usize>> {
        let message = self.call.items.get(at)?.place.message;
        let answer = self.issued_parts.get(number)?.issued.exchange;
        let before = self.call.items.iter().enumerate().take(at).rev();
        let before = before.take_while(|(_, item)| item.place.message == message);
        let is_foreign = |(before, item): &(usize, &Item)| {
            let earlier = self.matched(*before).filter(|earlier| *earlier < number);
            let earlier = earlier.and_then(|earlier| self.issued_parts.get(earlier));
            let is_of_reply = earlier.is_some_and(|part| part.issued.exchange == answer);
            item.role == Role::Assistant && !matches!(item.body, Body::Thought(_)) && !is_of_reply
        };
        before.filter(is_foreign).last().and_then(|(before, _)| self.place(before))
    }

    /// Reports each Seal of `item`, from index `start` on, that no earlier request or response
    /// contained.
    fn check_unissued(&mut self, at: usize, item: &Item, start: usize) {
        for (number, seal) in item.seals.iter().enumerate().skip(start) {
            if !self.carried.contains_seal(seal.reveal_to_tenant()) {
                self.report(ChangeKind::Unissued, at, Some(number), None);
            }
        }
    }

    /// Returns how the content of a part differs from the content that its Seal was issued with.
    fn content_change(
        &self,
        is: &Item,
        issued: IssuedItem<'p>,
        number: usize,
    ) -> Option<ChangeKind> {
        let was = issued.item;
        if !is_same_kind(was, is) || self.is_on_other_part(was, is) {
            return Some(ChangeKind::SealMoved);
        }
        let (before, now) = (was.visible()?, is.visible()?);
        if before == now {
            return None;
        }
        let issued_items = self.issued_parts.iter().map(|part| part.issued.item);
        let others =
            issued_items.filter(|item| !std::ptr::eq(*item, was) && is_same_kind(item, is));
        let mut texts = others.map(|item| item.visible().unwrap_or_default());
        let holds_another = texts.clone().any(|text| !text.is_empty() && now.contains(text));
        Some(if !before.is_empty() && now.contains(before) && holds_another {
            ChangeKind::Merged
        } else if self.is_elsewhere(number, is) || texts.any(|text| !now.is_empty() && text == now)
        {
            ChangeKind::SealMoved
        } else {
            let first = before.chars().zip(now.chars()).take_while(|(a, b)| a == b).count();
            ChangeKind::TextEdited { first }
        })
    }

    /// Returns whether a Seal moved to another part: a thought with another id, or another call.
    fn is_on_other_part(&self, was: &Item, is: &Item) -> bool {
        let id = |item: &Item| item.native.as_ref().and_then(|native| native.id.clone());
        if matches!(is.body, Body::Thought(_)) {
            return id(was).zip(id(is)).is_some_and(|(was, is)| was != is);
        }
        matches!(is.body, Body::Call(_))
            && !is_same_part(was, is)
            && self.issued_parts.iter().any(|part| is_same_part(part.issued.item, is))
    }

    /// Checks a part that matches no issued Item: it may be a leaked thought, or have unissued
    /// Seals.
    fn check_unmatched(&mut self, at: usize, item: &Item) {
        if let Body::Text(text) = &item.body
            && item.role != Role::System
            && text.trim().len() > 8
        {
            let is_thought = |issued: &IssuedItem<'p>| {
                let thought = issued.item.visible().unwrap_or_default().trim();
                matches!(issued.item.body, Body::Thought(_))
                    && thought.len() > 8
                    && contains_thought(text, thought)
            };
            let issued = self.issued_parts.iter().map(|part| part.issued).find(is_thought);
            if issued.is_some() {
                self.report(ChangeKind::SentAsText, at, None, issued);
            }
            return;
        }
        self.check_unissued(at, item, 0);
    }

    /// Reports parts that follow a part that was issued later.
    fn check_order(&mut self) {
        let mut highest = None;
        for at in 0..self.issued_index.len() {
            let number = self.matched(at);
            let part = number.and_then(|number| self.issued_parts.get(number));
            let Some(part) = part.filter(|part| part.requires_replay()) else {
                continue;
            };
            let issued = Some(part.issued);
            if number < highest {
                self.report(ChangeKind::Reordered, at, None, issued);
            }
            highest = highest.max(number);
        }
    }

    /// Reports thoughts and sealed parts whose order relative to other parts of their Reply
    /// changed. Also reports those that are not in the same message as the rest of their Reply.
    fn check_sibling_order(&mut self) {
        let mut reports = Vec::new();
        let message = |at: usize| self.call.items.get(at).map(|item| item.place.message);
        for (number, issued_part) in self.issued_parts.iter().enumerate() {
            let (Some(at), true) = (issued_part.found, issued_part.requires_replay()) else {
                continue;
            };
            let parts = self.reply_parts(number);
            let found = parts.filter_map(|(number, part)| Some((number, part, part.found?)));
            let found: Vec<_> = found.collect();
            let is_swapped = found.iter().any(|(other, part, other_at)| {
                !part.requires_replay() && (number < *other) != (at < *other_at)
            });
            let is_apart = found.iter().any(|(_, part, other_at)| {
                part.issued.item.place.message == issued_part.issued.item.place.message
                    && message(*other_at) != message(at)
            });
            let kinds = [(is_swapped, ChangeKind::Reordered), (is_apart, ChangeKind::PartMoved)];
            let kinds = kinds.into_iter().filter(|(applies, _)| *applies);
            reports.extend(kinds.map(|(_, kind)| (kind, at, issued_part.issued)));
        }
        for (kind, at, issued) in reports {
            let part = self.place(at);
            if !self.changes.iter().any(|change| change.kind == kind && change.part == part) {
                self.report(kind, at, None, Some(issued));
            }
        }
    }

    /// Reports missing thoughts and sealed parts of replies that are otherwise replayed.
    fn check_missing(&mut self) {
        let missing = self.issued_parts.iter().enumerate();
        let missing = missing.filter(|(_, issued_part)| {
            issued_part.found.is_none() && issued_part.requires_replay()
        });
        let missing = missing.filter_map(|(number, issued_part)| {
            let near = self.reply_parts(number).filter_map(|(_, other)| other.found).max()?;
            let (is_current, is_latest) = self.turn_position(near);
            let issued = Some(issued_part.with_first_seal());
            let (kind, part, seal) = (ChangeKind::PartDropped, None, None);
            Some(Change { kind, part, seal, issued, is_current, is_latest, is_placed: true })
        });
        let missing: Vec<_> = missing.collect();
        self.changes.extend(missing);
    }

    /// Iterates over all Items of the same Reply, with their indexes.
    fn reply_parts(&self, number: usize) -> impl Iterator<Item = (usize, &IssuedPart<'p>)> {
        let issued = self.issued_parts.get(number).map(|part| part.issued);
        let start = number - issued.map_or(0, |issued| issued.index);
        let parts = self.issued_parts.iter().enumerate().skip(start);
        let exchange = issued.map(|issued| issued.exchange);
        parts.take_while(move |(_, other)| Some(other.issued.exchange) == exchange)
    }

    fn report(
        &mut self,
        kind: ChangeKind,
        at: usize,
        seal: Option<usize>,
        issued: Option<IssuedItem<'p>>,
    ) {
        let part = self.place(at);
        let seal = seal.and_then(|seal| self.seal_range(at, seal));
        let (is_current, is_latest) = self.turn_position(at);
        let is_placed = kind != ChangeKind::Unissued || self.is_placed(at);
        self.changes.push(Change { kind, part, seal, issued, is_current, is_latest, is_placed });
    }

    /// Returns whether the Item at index `at`, or the model output that follows, occurs in the
    /// earlier exchanges. Also returns true if the Item replays the response to a known request,
    /// because that response is known. If all Items of this kind in the response are replayed, the
    /// Item may belong to a later response instead, because the end of the known one may be lost.
    fn is_placed(&self, at: usize) -> bool {
        let items = &self.call.items;
        let rest = items.get(at..).unwrap_or_default().iter();
        let mut models = rest.take_while(|item| item.role == Role::Assistant);
        if models.find_map(output_key).is_some_and(|key| self.carried.has_output(key)) {
            return true;
        }
        let json = |item: &Item| item.native.as_ref().map(|native| native.json.clone());
        let is_same = |(was, is): (&Item, &Item)| was.role == is.role && json(was) == json(is);
        let Some(own) = items.get(at) else { return false };
        let is_replayed = |number: usize| {
            let parts = self.issued_parts.iter().filter(|part| part.issued.exchange == number);
            let mut alike = parts.filter(|part| is_same_kind(part.issued.item, own)).peekable();
            alike.peek().is_some() && alike.all(|part| part.found.is_some())
        };
        let mut exchanges = self.prior.exchanges().iter().enumerate();
        exchanges.any(|(number, exchange)| {
            let Some(sent) = exchange.call.as_ref().map(|call| &call.items) else { return false };
            let answer = items.get(sent.len()..=at).unwrap_or_default();
            !answer.is_empty()
                && answer.iter().all(|item| item.role == Role::Assistant)
                && sent.iter().zip(items).all(is_same)
                && exchange.reply.is_some()
                && !is_replayed(number)
        })
    }

    /// Returns whether an Item belongs to the unfinished turn, and whether it belongs to the last
    /// assistant message.
    fn turn_position(&self, at: usize) -> (bool, bool) {
        let message = self.call.items.get(at).map(|item| item.place.message);
        (at >= self.current, message.is_some() && message == self.latest)
    }

    fn place(&self, at: usize) -> Option<Range<usize>> {
        let native = self.call.items.get(at)?.native.as_ref()?;
        range_in(self.tree.bytes(), native.json.bytes())
    }

    fn seal_range(&self, at: usize, seal: usize) -> Option<Range<usize>> {
        let item = self.call.items.get(at)?;
        let (native, seal) = (item.native.as_ref()?, item.seals.get(seal)?);
        let base = self.place(at)?.start;
        let range = native.json.tree().root().at(&seal.attached.at)?.range();
        Some(base + range.start..base + range.end)
    }
}

/// Returns whether a text repeats a thought. Up to 63 additional bytes, such as tags or quotes, are
/// allowed.
fn contains_thought(text: &str, thought: &str) -> bool {
    let text = text.trim();
    let is_as_long = (thought.len()..thought.len() + 64).contains(&text.len());
    is_as_long && text.contains(thought)
}

#[cfg(test)]
#[path = "exact_tests.rs"]
mod exact_tests;
