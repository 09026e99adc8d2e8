//! Compares what a request sends back with what was issued.
//!
//! What was issued is every thought and every sealed part of the earlier replies. Each is looked for in the request by its
//! seal, then by its id, its text, and its place among its neighbours; what is left over on either side was altered,
//! moved or lost. A reply of which nothing comes back belongs to another branch of the conversation, and is not missed.

use std::collections::HashMap;
use std::ops::Range;

use throughline_core::{Body, Call, Item, Role, Target, Tree};

use crate::audit::carried::{Carried, normal};
use crate::audit::compare::{Change, ChangeKind, Comparison, Issued};
use crate::audit::likeness::{
    Likeness, id_key, is_same_element, is_same_id, is_same_kind, is_same_part, part_key, said_key,
};
use crate::audit::{Prior, Transcript, prefix_of};
use crate::edit::place_in;
use crate::{Asked, CodecError};

impl<'p> Comparison<'p> {
    /// Reads the request and compares it with what came before.
    pub(super) fn of(
        transcript: &Transcript<'p>,
        target: &Target,
        tree: &Tree,
    ) -> Result<Self, CodecError> {
        // The index is over the very bytes that the Call is read from, so places in one are places in the other.
        let asked = Asked::of(target.clone());
        let request =
            throughline_core::Request { body: tree.bytes().clone(), ..transcript.request.clone() };
        let call = transcript.codec.decode_request(&request, &asked)?;
        let mut search = Search::new(transcript.prior, target, &call, tree);
        search.match_seals();
        search.match_the_rest();
        search.judge();
        let (changes, matches) = (search.changes, search.matches);
        let prefix = prefix_of::changed(transcript, target, tree, &matches);
        let reordered = prefix_of::reordered(transcript, target, tree);
        Ok(Self { call, changes, prefix, reordered })
    }
}

/// Something issued that came back: what was issued, and where in the request it stands.
pub(super) struct Match<'p> {
    pub(super) issued: Issued<'p>,
    pub(super) part: Range<usize>,
    /// The number of its message in the request.
    pub(super) message: u32,
    /// What stands before it in its message, and was not said before it.
    pub(super) stranger: Option<Range<usize>>,
}

/// One part that was issued.
struct Given<'p> {
    exchange: usize,
    index: usize,
    reply: &'p throughline_core::Reply,
    item: &'p Item,
    /// The Item of the request that it came back as.
    found: Option<usize>,
}

impl<'p> Given<'p> {
    fn issued(&self, seal: Option<usize>) -> Issued<'p> {
        let Self { exchange, index, reply, item, .. } = *self;
        Issued { exchange, index, reply, item, seal }
    }

    fn counts(&self) -> bool {
        counts(self.item)
    }
}

/// Whether an Item carries what a provider wants back.
fn counts(item: &Item) -> bool {
    matches!(item.body, Body::Thought(_)) || !item.seals.is_empty()
}

struct Search<'a, 'p> {
    prior: &'p Prior,
    target: &'a Target,
    call: &'a Call,
    tree: &'a Tree,
    /// Everything that was said by the model, in order, and whether it came back.
    given: Vec<Given<'p>>,
    /// What earlier requests and answers carried.
    carried: Carried,
    /// For each Item of the request, the number of what was issued.
    known: Vec<Option<usize>>,
    changes: Vec<Change<'p>>,
    matches: Vec<Match<'p>>,
    /// The first Item of the unfinished turn, and the last message of the model.
    current: usize,
    latest: Option<u32>,
}

impl<'a, 'p> Search<'a, 'p> {
    fn new(prior: &'p Prior, target: &'a Target, call: &'a Call, tree: &'a Tree) -> Self {
        let mut given = Vec::new();
        for (exchange, said) in prior.exchanges().iter().enumerate() {
            let Some(reply) = &said.reply else { continue };
            given.extend(reply.items.iter().enumerate().map(|(index, item)| Given {
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
            carried: Carried::of(prior),
            known,
            changes,
            matches,
            current,
            latest,
        }
    }

    /// Finds what came back by its seals, in whichever base64 alphabet.
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
                // Among equal seals the one on the likeliest part, and each once.
                let likely = givers.iter().filter(free).find(|number| {
                    self.given.get(**number).is_some_and(|given| is_same_part(given.item, item))
                });
                match likely.or_else(|| givers.iter().find(free)).copied() {
                    Some(number) => self.join(at, number),
                    None => {
                        let given = givers.first().and_then(|number| self.given.get(*number));
                        let issued = given.map(|given| given.issued(None));
                        // What would not be read once is not read twice either.
                        let mut seals = given.into_iter().flat_map(|given| &given.item.seals);
                        let refused = seals.find_map(|seal| seal.open_for(self.target, None).err());
                        let kind = refused.map_or(ChangeKind::Duplicated, ChangeKind::Foreign);
                        self.report(kind, Some(at), Some(seal_number), issued);
                    }
                }
            }
        }
    }

    /// Finds what came back without its seal, or with another one.
    fn match_the_rest(&mut self) {
        let by_element = Likeness { key: id_key, is_like: is_same_element };
        let by_id = Likeness { key: id_key, is_like: is_same_id };
        let by_part = Likeness { key: part_key, is_like: is_same_part };
        for likeness in [by_element, by_id, by_part] {
            self.match_by(likeness);
        }
        // What stands where the next thing issued should stand, and is of its kind, is that thing, altered.
        let mut expected = 0;
        for at in 0..self.call.items.len() {
            if let Some(number) = self.known.get(at).copied().flatten() {
                expected = number + 1;
                continue;
            }
            let Some(item) = self.call.items.get(at).filter(|item| counts(item)) else { continue };
            let next = self.given.iter().enumerate().skip(expected).find(|(number, given)| {
                given.counts()
                    && given.found.is_none()
                    && is_same_kind(given.item, item)
                    // Only an answer of which something came back can have come back altered, and only in its message.
                    && self.is_begun(*number, item)
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

    /// Whether something of the same answer came back, and not in another message where that was one.
    fn is_begun(&self, number: usize, item: &Item) -> bool {
        let is_back = self.answer_of(number).any(|(_, other)| other.found.is_some());
        is_back && !self.is_elsewhere(number, item)
    }

    /// Whether what stood beside it in its message came back, and none of it in that of an Item.
    fn is_elsewhere(&self, number: usize, item: &Item) -> bool {
        let Some(given) = self.given.get(number) else { return false };
        let is_beside = |(other_number, other): &(usize, &Given<'p>)| {
            *other_number != number && other.item.place.message == given.item.place.message
        };
        let beside = self.answer_of(number).filter(is_beside);
        let found = beside.filter_map(|(_, other)| self.call.items.get(other.found?));
        let mut places = found.map(|found| found.place.message).peekable();
        places.peek().is_some() && places.all(|message| message != item.place.message)
    }

    fn match_by(&mut self, likeness: Likeness) {
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
            // In order where possible: equal texts were said more than once.
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

    /// Says what happened to each thing that was found, and to each that was not.
    fn judge(&mut self) {
        for at in 0..self.call.items.len() {
            match self.known.get(at).copied().flatten() {
                Some(number) => self.judge_found(at, number),
                None => self.judge_stranger(at),
            }
        }
        self.judge_order();
        self.judge_lost();
        self.changes.sort_by_key(|change| change.part.as_ref().map(|part| part.start));
    }

    fn judge_found(&mut self, at: usize, number: usize) {
        let (Some(item), Some(given)) = (self.call.items.get(at), self.given.get(number)) else {
            return;
        };
        let given_item = given.item;
        let issued = given.issued((!given_item.seals.is_empty()).then_some(0));
        if let Some(part) = self.place(at)
            && given.counts()
        {
            let (message, stranger) = (item.place.message, self.stranger_before(at, number));
            self.matches.push(Match { issued, part, message, stranger });
        }
        for (seal_number, seal) in given_item.seals.iter().enumerate() {
            let issued = Issued { seal: Some(seal_number), ..issued };
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
        if counts(given_item) {
            let is_elsewhere = self.is_elsewhere(number, item);
            self.judge_content(at, given_item, item, issued, is_elsewhere);
        }
        // More seals than were issued with it: those of another part were reported as such.
        for (number, seal) in item.seals.iter().enumerate().skip(given_item.seals.len()) {
            self.judge_unknown(at, number, seal.reveal_to_tenant());
        }
    }

    /// The first thing but thoughts that stands in the same message before an Item, and that its answer did not say before it.
    fn stranger_before(&self, at: usize, number: usize) -> Option<Range<usize>> {
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

    /// Reports a seal that nobody issued, and no earlier request carried.
    fn judge_unknown(&mut self, at: usize, number: usize, seal: &[u8]) {
        if !self.carried.knows(seal) {
            self.report(ChangeKind::Unissued, Some(at), Some(number), None);
        }
    }

    /// Whether what the seal stands for is still what it was issued with.
    fn judge_content(
        &mut self,
        at: usize,
        was: &Item,
        is: &Item,
        issued: Issued<'p>,
        is_elsewhere: bool,
    ) {
        if !is_same_kind(was, is) || self.is_on_another(was, is) {
            self.report(ChangeKind::SealMoved, Some(at), None, Some(issued));
            return;
        }
        let (Some(before), Some(now)) = (was.visible(), is.visible()) else { return };
        if before == now {
            return;
        }
        let is_other =
            |given: &Given<'p>| !std::ptr::eq(given.item, was) && is_same_kind(given.item, is);
        let others = || self.given.iter().filter(|given| is_other(given));
        let text_of = |given: &Given<'p>| given.item.visible().unwrap_or_default().to_owned();
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

    /// Whether what a seal was issued with is one thing, and what carries it now another: a thought of another id, or a call
    /// that was made beside it.
    fn is_on_another(&self, was: &Item, is: &Item) -> bool {
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

    /// Judges a part that nothing issued was found to be.
    fn judge_stranger(&mut self, at: usize) {
        let Some(item) = self.call.items.get(at) else { return };
        if let Body::Text(text) = &item.body
            && item.role != Role::System
            && text.trim().len() > 8
        {
            let is_thought = |given: &&Given<'p>| {
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
            self.judge_unknown(at, number, seal.reveal_to_tenant());
        }
    }

    /// Reports what stands before something that was issued earlier, or apart from the rest of its Reply.
    fn judge_order(&mut self) {
        let found: Vec<(usize, usize)> = self
            .known
            .iter()
            .enumerate()
            .filter_map(|(at, number)| Some((at, (*number)?)))
            .filter(|(_, number)| self.given.get(*number).is_some_and(Given::counts))
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
        self.judge_calls_order();
    }

    /// Reports a thought that stands behind a part of its own Reply that it was issued before, and one that stands in
    /// another message than that part.
    fn judge_calls_order(&mut self) {
        let mut reports = Vec::new();
        for (number, given) in self.given.iter().enumerate() {
            let (Some(at), true) = (given.found, given.counts()) else { continue };
            let siblings = self.answer_of(number);
            for (other_number, other) in siblings.filter(|(_, other)| !other.counts()) {
                let Some(other_at) = other.found else { continue };
                if (number < other_number) != (at < other_at) {
                    reports.push((ChangeKind::Reordered, at, given.issued(None)));
                    break;
                }
            }
            let message = |at: usize| self.call.items.get(at).map(|item| item.place.message);
            let was_one = |other: &Given<'p>| other.item.place.message == given.item.place.message;
            let is_apart = self.answer_of(number).any(|(_, other)| {
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

    /// Reports what did not come back although others of its Reply did.
    fn judge_lost(&mut self) {
        let mut gone = Vec::new();
        for (number, given) in self.given.iter().enumerate() {
            if given.found.is_some() || !given.counts() {
                continue;
            }
            let last = self.answer_of(number).filter_map(|(_, other)| other.found).max();
            if let Some(last) = last {
                gone.push((last, given.issued((!given.item.seals.is_empty()).then_some(0))));
            }
        }
        for (near, issued) in gone {
            let (is_current, is_latest) = self.standing(near);
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

    /// Everything that was said in the same Reply, with its number.
    fn answer_of(&self, number: usize) -> impl Iterator<Item = (usize, &Given<'p>)> {
        let given = self.given.get(number);
        let start = number - given.map_or(0, |given| given.index);
        let is_same = move |(_, other): &(usize, &Given<'p>)| {
            given.is_some_and(|given| other.exchange == given.exchange)
        };
        self.given.iter().enumerate().skip(start).take_while(is_same)
    }

    fn report(
        &mut self,
        kind: ChangeKind,
        at: Option<usize>,
        seal: Option<usize>,
        issued: Option<Issued<'p>>,
    ) {
        let part = at.and_then(|at| self.place(at));
        let seal = at.zip(seal).and_then(|(at, seal)| self.seal_place(at, seal));
        let (is_current, is_latest) = at.map_or((false, false), |at| self.standing(at));
        let is_placed = kind != ChangeKind::Unissued || at.is_some_and(|at| self.is_placed(at));
        self.changes.push(Change { kind, part, seal, issued, is_current, is_latest, is_placed });
    }

    /// Whether an Item, or what the model says next after it, is known to have been said; or whether it is known what was
    /// answered in its place, because all that stands before is a request that was made.
    fn is_placed(&self, at: usize) -> bool {
        let items = &self.call.items;
        let rest = items.get(at..).unwrap_or_default().iter();
        let mut models = rest.take_while(|item| item.role == Role::Assistant);
        if models.find_map(said_key).is_some_and(|key| self.carried.was_said(key)) {
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

    /// Whether an Item belongs to the unfinished turn, and whether to the model's last message.
    fn standing(&self, at: usize) -> (bool, bool) {
        let message = self.call.items.get(at).map(|item| item.place.message);
        (at >= self.current, message.is_some() && message == self.latest)
    }

    fn place(&self, at: usize) -> Option<Range<usize>> {
        let native = self.call.items.get(at)?.native.as_ref()?;
        place_in(self.tree.bytes(), native.json.bytes())
    }

    fn seal_place(&self, at: usize, seal: usize) -> Option<Range<usize>> {
        let item = self.call.items.get(at)?;
        let (native, seal) = (item.native.as_ref()?, item.seals.get(seal)?);
        let base = place_in(self.tree.bytes(), native.json.bytes())?.start;
        let inner = native.json.tree();
        let range = inner.root().at(&seal.attached.at)?.range();
        Some(base + range.start..base + range.end)
    }
}

/// Whether a text is a thought said aloud: the thought itself, or the thought in tags or quotes of some kind.
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
