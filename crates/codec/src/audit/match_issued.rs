//! Compares the replayed content of a request with the content that was issued.
//!
//! Issued content means every thought and every sealed part of the earlier replies. Each is looked
//! up in the request by its Seal, then by id, text and position. Unmatched content on either side
//! was altered, moved or lost. A reply without any matched part belongs to another branch of the
//! conversation and is not reported as missing.

use std::collections::HashMap;
use std::ops::Range;

use throughline_core::{Body, Call, Item, Role, Target};
use throughline_json::Tree;

use crate::audit::compare::{Change, ChangeKind, Comparison, IssuedItem};
use crate::audit::match_criteria::{
    MatchCriterion, id_key, is_same_element, is_same_id, is_same_kind, is_same_part, output_key,
    part_key,
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
        // The Call is decoded from the bytes that the index covers, so byte ranges are valid in
        // both.
        let asked = DecodeContext::of(target.clone());
        let request =
            throughline_core::Request { body: tree.bytes().clone(), ..transcript.request.clone() };
        let call = transcript.codec.decode_request(&request, &asked)?;
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
    /// The index of its message in the request.
    pub(super) message: u32,
    /// The first part before it in its message that its Reply did not contain before it.
    pub(super) stranger: Option<Range<usize>>,
}

/// One Item of an earlier reply.
struct IssuedPart<'p> {
    exchange: usize,
    index: usize,
    reply: &'p throughline_core::Reply,
    item: &'p Item,
    /// The index of the request's Item that replays it.
    found: Option<usize>,
}

impl<'p> IssuedPart<'p> {
    fn issued(&self, seal: Option<usize>) -> IssuedItem<'p> {
        let Self { exchange, index, reply, item, .. } = *self;
        IssuedItem { exchange, index, reply, item, seal }
    }

    fn requires_replay(&self) -> bool {
        requires_replay(self.item)
    }
}

/// Returns whether an Item contains something that a provider requires to be replayed.
fn requires_replay(item: &Item) -> bool {
    matches!(item.body, Body::Thought(_)) || !item.seals.is_empty()
}

struct IssuedMatcher<'a, 'p> {
    prior: &'p PriorExchanges,
    target: &'a Target,
    call: &'a Call,
    tree: &'a Tree,
    /// All Items that the model issued, in order.
    given: Vec<IssuedPart<'p>>,
    carried: PriorContent,
    /// For each Item of the request, the index of the matching issued Item.
    known: Vec<Option<usize>>,
    changes: Vec<Change<'p>>,
    matches: Vec<ReplayedItem<'p>>,
    /// The index of the first Item of the unfinished turn.
    current: usize,
    latest: Option<u32>,
}

impl<'a, 'p> IssuedMatcher<'a, 'p> {
    fn new(prior: &'p PriorExchanges, target: &'a Target, call: &'a Call, tree: &'a Tree) -> Self {
        let mut given = Vec::new();
        for (exchange, said) in prior.exchanges().iter().enumerate() {
            let Some(reply) = &said.reply else { continue };
            given.extend(reply.items.iter().enumerate().map(|(index, item)| IssuedPart {
                exchange,
                index,
                reply,
                item,
                found: None,
            }));
        }
        let is_users =
            |item: &Item| item.role == Role::User && !matches!(item.body, Body::Result(_));
        let current = call.items.iter().rposition(is_users).map_or(0, |last| last + 1);
        let mut models = call.items.iter().rev().filter(|item| item.role == Role::Assistant);
        let latest = models.next().map(|item| item.place.message);
        let known = vec![None; call.items.len()];
        let (changes, matches) = (Vec::new(), Vec::new());
        Self {
            prior,
            target,
            call,
            tree,
            given,
            carried: PriorContent::of(prior),
            known,
            changes,
            matches,
            current,
            latest,
        }
    }

    /// Matches Items by their Seals, in any base64 alphabet.
    fn match_seals(&mut self) {
        let mut by_seal: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (number, given) in self.given.iter().enumerate() {
            for seal in &given.item.seals {
                by_seal.entry(normal(seal.reveal_to_tenant())).or_default().push(number);
            }
        }
        for (at, item) in self.call.items.iter().enumerate() {
            for (seal_number, seal) in item.seals.iter().enumerate() {
                let Some(givers) = by_seal.get(&normal(seal.reveal_to_tenant())) else { continue };
                if self.known.get(at).is_some_and(Option::is_some) {
                    continue;
                }
                let free = |number: &&usize| {
                    self.given.get(**number).is_some_and(|given| given.found.is_none())
                };
                // Among equal Seals, prefer the one on an equal part, and use each only once.
                let likely = givers.iter().filter(free).find(|number| {
                    self.given.get(**number).is_some_and(|given| is_same_part(given.item, item))
                });
                match likely.or_else(|| givers.iter().find(free)).copied() {
                    Some(number) => self.join(at, number),
                    None => {
                        let given = givers.first().and_then(|number| self.given.get(*number));
                        let issued = given.map(|given| given.issued(None));
                        // A Seal that the target cannot read is reported as foreign, not as a
                        // duplicate.
                        let mut seals = given.into_iter().flat_map(|given| &given.item.seals);
                        let refused = seals.find_map(|seal| seal.open_for(self.target, None).err());
                        let kind = refused.map_or(ChangeKind::Duplicated, ChangeKind::Foreign);
                        self.report(kind, Some(at), Some(seal_number), issued);
                    }
                }
            }
        }
    }

    /// Matches Items that have lost or changed their Seals.
    fn match_remaining(&mut self) {
        let by_element = MatchCriterion { key: id_key, is_like: is_same_element };
        let by_id = MatchCriterion { key: id_key, is_like: is_same_id };
        let by_part = MatchCriterion { key: part_key, is_like: is_same_part };
        for likeness in [by_element, by_id, by_part] {
            self.match_by(likeness);
        }
        // An Item at the position of the next issued Item, and of the same kind, is that Item in
        // altered form.
        let mut expected = 0;
        for at in 0..self.call.items.len() {
            if let Some(number) = self.known.get(at).copied().flatten() {
                expected = number + 1;
                continue;
            }
            let Some(item) = self.call.items.get(at).filter(|item| requires_replay(item)) else {
                continue;
            };
            let next = self.given.iter().enumerate().skip(expected).find(|(number, given)| {
                given.requires_replay()
                    && given.found.is_none()
                    && is_same_kind(given.item, item)
                    // Only a reply with other replayed parts can be altered, and only in its own
                    // message.
                    && self.is_partly_replayed(*number, item)
            });
            let carries =
                |item: &Item| !item.seals.is_empty() || matches!(item.body, Body::Thought(_));
            if let Some((number, _)) = next
                && item.role == Role::Assistant
                && carries(item)
                && !self.carried.was_sent(item)
            {
                self.join(at, number);
                expected = number + 1;
            }
        }
    }

    /// Returns whether another part of the same reply is replayed, and in the message of `item` if
    /// both were issued in one message.
    fn is_partly_replayed(&self, number: usize, item: &Item) -> bool {
        let is_back = self.reply_parts(number).any(|(_, other)| other.found.is_some());
        is_back && !self.is_elsewhere(number, item)
    }

    /// Returns whether the parts issued in the same message are replayed, but none in the message
    /// of `item`.
    fn is_elsewhere(&self, number: usize, item: &Item) -> bool {
        let Some(given) = self.given.get(number) else { return false };
        let is_beside = |(other_number, other): &(usize, &IssuedPart<'p>)| {
            *other_number != number && other.item.place.message == given.item.place.message
        };
        let beside = self.reply_parts(number).filter(is_beside);
        let found = beside.filter_map(|(_, other)| self.call.items.get(other.found?));
        let mut places = found.map(|found| found.place.message).peekable();
        places.peek().is_some() && places.all(|message| message != item.place.message)
    }

    fn match_by(&mut self, likeness: MatchCriterion) {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, given) in self.given.iter().enumerate() {
            if let Some(key) = (likeness.key)(given.item).filter(|_| given.found.is_none()) {
                places.entry(key).or_default().push(number);
            }
        }
        let mut from = 0;
        for at in 0..self.call.items.len() {
            let Some(item) = self.call.items.get(at) else { continue };
            if item.role != Role::Assistant || self.known.get(at).is_some_and(Option::is_some) {
                continue;
            }
            let Some(numbers) = (likeness.key)(item).and_then(|key| places.get(&key)) else {
                continue;
            };
            let fits = |number: &&usize| {
                let given = self.given.get(**number);
                given.is_some_and(|given| {
                    given.found.is_none() && (likeness.is_like)(given.item, item)
                })
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
        if let (Some(known), Some(given)) = (self.known.get_mut(at), self.given.get_mut(number)) {
            *known = Some(number);
            given.found = Some(at);
        }
    }

    /// Reports a change for each matched and each unmatched Item that differs.
    fn judge(&mut self) {
        for at in 0..self.call.items.len() {
            match self.known.get(at).copied().flatten() {
                Some(number) => self.check_matched(at, number),
                None => self.check_unmatched(at),
            }
        }
        self.check_order();
        self.check_missing();
        self.changes.sort_by_key(|change| change.part.as_ref().map(|part| part.start));
    }

    fn check_matched(&mut self, at: usize, number: usize) {
        let (Some(item), Some(given)) = (self.call.items.get(at), self.given.get(number)) else {
            return;
        };
        let given_item = given.item;
        let issued = given.issued((!given_item.seals.is_empty()).then_some(0));
        if let Some(part) = self.place(at)
            && given.requires_replay()
        {
            let (message, stranger) = (item.place.message, self.foreign_part_before(at, number));
            self.matches.push(ReplayedItem { issued, part, message, stranger });
        }
        for (seal_number, seal) in given_item.seals.iter().enumerate() {
            let issued = IssuedItem { seal: Some(seal_number), ..issued };
            let back = item.seals.iter().position(|other| {
                other.format == seal.format && other.attached.at == seal.attached.at
            });
            let back = back.or_else(|| (seal_number < item.seals.len()).then_some(seal_number));
            let Some(other) = back.and_then(|back| item.seals.get(back)) else {
                self.report(ChangeKind::SealDropped, Some(at), None, Some(issued));
                continue;
            };
            let (was, is) = (seal.reveal_to_tenant(), other.reveal_to_tenant());
            if normal(was) == normal(is) {
                if let Err(why) = seal.open_for(self.target, None) {
                    self.report(ChangeKind::Foreign(why), Some(at), back, Some(issued));
                }
                if was != is {
                    self.report(ChangeKind::SealReencoded, Some(at), back, Some(issued));
                }
            } else if self.carried.issued(is) {
                self.report(ChangeKind::SealMoved, Some(at), back, Some(issued));
            } else {
                let first = first_difference(was, is);
                self.report(ChangeKind::SealAltered { first }, Some(at), back, Some(issued));
            }
        }
        if requires_replay(given_item) {
            let is_elsewhere = self.is_elsewhere(number, item);
            self.check_content(at, given_item, item, issued, is_elsewhere);
        }
        // Additional Seals. Seals of another part were already reported.
        for (number, seal) in item.seals.iter().enumerate().skip(given_item.seals.len()) {
            self.check_unissued(at, number, seal.reveal_to_tenant());
        }
    }

    /// Returns the first part before an Item in its message that is not a thought and that its
    /// reply did not contain before it.
    fn foreign_part_before(&self, at: usize, number: usize) -> Option<Range<usize>> {
        let message = self.call.items.get(at)?.place.message;
        let (start, answer) = (at.checked_sub(1)?, self.given.get(number)?.exchange);
        let before = (0..=start).rev().map_while(|before| {
            let item = self.call.items.get(before)?;
            (item.place.message == message).then_some((before, item))
        });
        let is_stranger = |(before, item): &(usize, &Item)| {
            let known = self.known.get(*before).copied().flatten();
            let is_said = known.is_some_and(|known| {
                known < number && self.given.get(known).is_some_and(|g| g.exchange == answer)
            });
            item.role == Role::Assistant && !matches!(item.body, Body::Thought(_)) && !is_said
        };
        before.filter(is_stranger).last().and_then(|(before, _)| self.place(before))
    }

    /// Reports a Seal that neither a response nor an earlier request contained.
    fn check_unissued(&mut self, at: usize, number: usize, seal: &[u8]) {
        if !self.carried.contains_seal(seal) {
            self.report(ChangeKind::Unissued, Some(at), Some(number), None);
        }
    }

    /// Checks that a part still has the content its Seal was issued with.
    fn check_content(
        &mut self,
        at: usize,
        was: &Item,
        is: &Item,
        issued: IssuedItem<'p>,
        is_elsewhere: bool,
    ) {
        if !is_same_kind(was, is) || self.is_on_other_part(was, is) {
            self.report(ChangeKind::SealMoved, Some(at), None, Some(issued));
            return;
        }
        let (Some(before), Some(now)) = (was.visible(), is.visible()) else { return };
        if before == now {
            return;
        }
        let is_other =
            |given: &IssuedPart<'p>| !std::ptr::eq(given.item, was) && is_same_kind(given.item, is);
        let others = || self.given.iter().filter(|given| is_other(given));
        let text_of = |given: &IssuedPart<'p>| given.item.visible().unwrap_or_default().to_owned();
        let holds_another =
            others().any(|other| !text_of(other).is_empty() && now.contains(&text_of(other)));
        let kind = if !before.is_empty() && now.contains(before) && holds_another {
            ChangeKind::Merged
        } else if is_elsewhere || others().any(|other| !now.is_empty() && text_of(other) == now) {
            ChangeKind::SealMoved
        } else {
            let first = before.chars().zip(now.chars()).take_while(|(a, b)| a == b).count();
            ChangeKind::TextEdited { first }
        };
        self.report(kind, Some(at), None, Some(issued));
    }

    /// Returns whether a Seal is on another part than the one it was issued with: a thought with
    /// another id, or another call of the conversation.
    fn is_on_other_part(&self, was: &Item, is: &Item) -> bool {
        let id = |item: &Item| item.native.as_ref().and_then(|native| native.id.clone());
        match &is.body {
            Body::Thought(_) => id(was).zip(id(is)).is_some_and(|(was, is)| was != is),
            Body::Call(_) => {
                !is_same_part(was, is)
                    && self.given.iter().any(|given| is_same_part(given.item, is))
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => false,
        }
    }

    /// Checks a part that matches no issued Item.
    fn check_unmatched(&mut self, at: usize) {
        let Some(item) = self.call.items.get(at) else { return };
        if let Body::Text(text) = &item.body
            && item.role != Role::System
            && text.trim().len() > 8
        {
            let is_thought = |given: &&IssuedPart<'p>| {
                matches!(given.item.body, Body::Thought(_))
                    && given.item.visible().is_some_and(|thought| {
                        thought.trim().len() > 8 && says(text, thought.trim())
                    })
            };
            if let Some(issued) = self.given.iter().find(is_thought).map(|given| given.issued(None))
            {
                self.report(ChangeKind::SaidAloud, Some(at), None, Some(issued));
            }
            return;
        }
        for (number, seal) in item.seals.iter().enumerate() {
            self.check_unissued(at, number, seal.reveal_to_tenant());
        }
    }

    /// Reports parts that precede earlier issued parts, or are separated from the rest of their
    /// Reply.
    fn check_order(&mut self) {
        let found: Vec<(usize, usize)> = self
            .known
            .iter()
            .enumerate()
            .filter_map(|(at, number)| Some((at, (*number)?)))
            .filter(|(_, number)| self.given.get(*number).is_some_and(IssuedPart::requires_replay))
            .collect();
        let mut highest = None;
        for (at, number) in found {
            let Some(given) = self.given.get(number) else { continue };
            let issued = given.issued(None);
            if highest.is_some_and(|highest| number < highest) {
                self.report(ChangeKind::Reordered, Some(at), None, Some(issued));
            }
            highest = highest.max(Some(number));
        }
        self.check_sibling_order();
    }

    /// Reports thoughts that follow a part of their Reply that they preceded when issued, and
    /// thoughts in another message than the rest of their Reply.
    fn check_sibling_order(&mut self) {
        let mut reports = Vec::new();
        for (number, given) in self.given.iter().enumerate() {
            let (Some(at), true) = (given.found, given.requires_replay()) else { continue };
            let siblings = self.reply_parts(number);
            for (other_number, other) in siblings.filter(|(_, other)| !other.requires_replay()) {
                let Some(other_at) = other.found else { continue };
                if (number < other_number) != (at < other_at) {
                    reports.push((ChangeKind::Reordered, at, given.issued(None)));
                    break;
                }
            }
            let message = |at: usize| self.call.items.get(at).map(|item| item.place.message);
            let was_one =
                |other: &IssuedPart<'p>| other.item.place.message == given.item.place.message;
            let is_apart = self.reply_parts(number).any(|(_, other)| {
                was_one(other)
                    && other.found.is_some_and(|other_at| message(other_at) != message(at))
            });
            if is_apart {
                reports.push((ChangeKind::PartMoved, at, given.issued(None)));
            }
        }
        for (kind, at, issued) in reports {
            let part = self.place(at);
            if !self.changes.iter().any(|change| change.kind == kind && change.part == part) {
                self.report(kind, Some(at), None, Some(issued));
            }
        }
    }

    /// Reports missing parts of replies that are otherwise replayed.
    fn check_missing(&mut self) {
        let mut gone = Vec::new();
        for (number, given) in self.given.iter().enumerate() {
            if given.found.is_some() || !given.requires_replay() {
                continue;
            }
            let last = self.reply_parts(number).filter_map(|(_, other)| other.found).max();
            if let Some(last) = last {
                gone.push((last, given.issued((!given.item.seals.is_empty()).then_some(0))));
            }
        }
        for (near, issued) in gone {
            let (is_current, is_latest) = self.turn_position(near);
            self.changes.push(Change {
                kind: ChangeKind::PartDropped,
                part: None,
                seal: None,
                issued: Some(issued),
                is_current,
                is_latest,
                is_placed: true,
            });
        }
    }

    /// Returns all Items of the same Reply with their indexes.
    fn reply_parts(&self, number: usize) -> impl Iterator<Item = (usize, &IssuedPart<'p>)> {
        let given = self.given.get(number);
        let start = number - given.map_or(0, |given| given.index);
        let is_same = move |(_, other): &(usize, &IssuedPart<'p>)| {
            given.is_some_and(|given| other.exchange == given.exchange)
        };
        self.given.iter().enumerate().skip(start).take_while(is_same)
    }

    fn report(
        &mut self,
        kind: ChangeKind,
        at: Option<usize>,
        seal: Option<usize>,
        issued: Option<IssuedItem<'p>>,
    ) {
        let part = at.and_then(|at| self.place(at));
        let seal = at.zip(seal).and_then(|(at, seal)| self.seal_range(at, seal));
        let (is_current, is_latest) = at.map_or((false, false), |at| self.turn_position(at));
        let is_placed = kind != ChangeKind::Unissued || at.is_some_and(|at| self.is_placed(at));
        self.changes.push(Change { kind, part, seal, issued, is_current, is_latest, is_placed });
    }

    /// Returns whether an Item, or the model output after it, is known. Also returns true if
    /// everything before the Item equals an earlier request, because then the response to it is
    /// known.
    fn is_placed(&self, at: usize) -> bool {
        let items = &self.call.items;
        let rest = items.get(at..).unwrap_or_default().iter();
        let mut models = rest.take_while(|item| item.role == Role::Assistant);
        if models.find_map(output_key).is_some_and(|key| self.carried.has_output(key)) {
            return true;
        }
        let json = |item: &Item| item.native.as_ref().map(|native| native.json.clone());
        let is_same = |(was, is): (&Item, &Item)| was.role == is.role && json(was) == json(is);
        self.prior.exchanges().iter().filter(|exchange| exchange.reply.is_some()).any(|exchange| {
            let Some(asked) = exchange.call.as_ref().map(|call| &call.items) else { return false };
            let answer = items.get(asked.len()..=at).unwrap_or_default();
            !answer.is_empty()
                && answer.iter().all(|item| item.role == Role::Assistant)
                && asked.iter().zip(items).all(is_same)
        })
    }

    /// Returns whether an Item belongs to the unfinished turn, and whether to the model's last
    /// message.
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
        let base = range_in(self.tree.bytes(), native.json.bytes())?.start;
        let inner = native.json.tree();
        let range = inner.root().at(&seal.attached.at)?.range();
        Some(base + range.start..base + range.end)
    }
}

/// Returns whether a text is a thought, possibly with up to 63 additional bytes such as tags or
/// quotes.
fn says(text: &str, thought: &str) -> bool {
    let text = text.trim();
    let is_as_long = (thought.len()..thought.len() + 64).contains(&text.len());
    is_as_long && text.contains(thought)
}

fn first_difference(was: &[u8], is: &[u8]) -> usize {
    was.iter().zip(is).take_while(|(was, is)| was == is).count()
}

#[cfg(test)]
#[path = "exact_tests.rs"]
mod exact_tests;
