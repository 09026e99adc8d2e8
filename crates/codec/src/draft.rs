//! Requests that stay what they were wherever nothing has changed.
//!
//! A Call that was read from a request remembers that request's bytes. Writing it again on the same wire is a
//! matter of edits: members that still say what the Call says are copied with the white space around them, others
//! are replaced, added or left out. A Call with nothing to edit comes out byte for byte as it went in; a Call that
//! was made from scratch has nothing to copy and is written member by member, in one fixed order.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Call, Choice, Did, Digest, Encoded, Envelope, Fate, How, Item, Json, Name, Native, Node,
    Received, Request, SIDE_CHANNEL, Settings, Side, Target, Tree, Warning, Why, Wire, work,
};

use crate::edit::{self, Rope, place_in};
pub(crate) use crate::edit::{edited, merged};
use crate::group;

/// A request body that is being written.
pub(crate) struct Draft<'c> {
    call: &'c Call,
    wire: Wire,
    source: Option<&'c Received>,
    changes: Vec<(Cow<'static, str>, Option<Rope>)>,
    /// The names of the members in `changes`.
    edited: HashSet<Cow<'static, str>>,
    pub(crate) aside: Vec<Json>,
    /// The order in which the last Items of the Call were said.
    order: Option<Vec<usize>>,
    pub(crate) fates: Vec<Fate>,
    pub(crate) warnings: Vec<Warning>,
}

impl<'c> Draft<'c> {
    pub(crate) fn new(call: &'c Call, wire: Wire) -> Self {
        let source = call.source_on(&wire);
        let fates = Vec::with_capacity(call.system.len() + call.items.len());
        let (changes, aside, warnings) = (Vec::new(), Vec::new(), Vec::new());
        let edited = HashSet::new();
        Self { call, wire, source, changes, edited, aside, order: None, fates, warnings }
    }

    /// The wire that is being written.
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The request that the Call was read from, if it was on this wire.
    pub(crate) fn source(&self) -> Option<&'c Received> {
        self.source
    }

    /// The conversation in the order in which it can be said; Fates stay in the order in which it stands.
    pub(crate) fn settle<'i>(
        &mut self,
        items: &'i [Item],
        is_aside: impl Fn(&Item) -> bool,
    ) -> Vec<&'i Item> {
        let (settled, order) = group::settled(items, is_aside);
        self.order = Some(order);
        settled
    }

    /// Whether the source was meant for another endpoint. What only that one knows must not go along.
    pub(crate) fn has_moved(&self) -> bool {
        let now = &self.call.target.origin;
        self.source.is_some_and(|source| {
            let was = &source.target.origin;
            was.provider != now.provider || was.endpoint != now.endpoint
        })
    }

    /// Whether the source was meant for another endpoint or model, so that every setting has to be thought over.
    pub(crate) fn is_retargeted(&self) -> bool {
        let model = self.call.target.model();
        self.has_moved() || self.source.is_some_and(|source| source.target.model() != model)
    }

    /// The value that a member had in the source.
    pub(crate) fn was(&self, key: &str) -> Option<Json> {
        let source = self.source?;
        let (_, range) = source.members.iter().rfind(|(name, _)| **name == *key)?;
        Json::parse(source.request.body.slice(range.clone())).ok()
    }

    /// The value that a member has now: what was put, else what the source had.
    pub(crate) fn latest(&self, key: &str) -> Option<Json> {
        match self.changes.iter().find(|(changed, _)| **changed == *key) {
            Some((_, value)) => value.as_ref().and_then(Rope::json),
            None => self.was(key),
        }
    }

    /// Sets a member.
    pub(crate) fn put(&mut self, key: impl Into<Cow<'static, str>>, value: Json) {
        self.change(key.into(), Some(value.into()));
    }

    /// Sets a member, unless it is what stands there already.
    pub(crate) fn put_as_it_came(&mut self, key: &'static str, value: &Json) {
        if self.was(key).as_ref() != Some(value) {
            self.put(key, value.clone());
        }
    }

    /// Leaves a member out.
    pub(crate) fn remove(&mut self, key: impl Into<Cow<'static, str>>) {
        self.change(key.into(), None);
    }

    /// Sets a member, or leaves it out.
    pub(crate) fn set(&mut self, key: impl Into<Cow<'static, str>>, value: Option<Json>) {
        self.change(key.into(), value.map(Rope::from));
    }

    fn change(&mut self, key: Cow<'static, str>, value: Option<Rope>) {
        if !self.edited.insert(key.clone()) {
            work::steps(self.changes.len());
            self.changes.retain(|(changed, _)| *changed != key);
        }
        self.changes.push((key, value));
    }

    /// Whether a setting has to be written: it differs from the source, or there is no source and it says something.
    pub(crate) fn differs<T: PartialEq>(&self, setting: impl Fn(&Settings) -> &T) -> bool {
        let now = setting(&self.call.settings);
        match self.source {
            Some(source) => *setting(&source.settings) != *now,
            None => *setting(&Settings::default()) != *now,
        }
    }

    /// Notes that a setting could not be carried, or not as it was. Once is enough.
    pub(crate) fn warn(&mut self, setting: impl Into<Name>, message: impl Into<Name>) {
        let warning = Warning::new(setting, message);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The choice of a tool, as far as the tools that are sent allow it: another provider's own stay behind.
    pub(crate) fn fitting_choice(&mut self) -> Option<Choice> {
        let choice = self.call.settings.choice.clone()?;
        let is_own = |native: &Native| native.wire == self.wire && !self.has_moved();
        let mut sent = self
            .call
            .tools
            .iter()
            .filter(|tool| !tool.hosted || tool.native.as_ref().is_some_and(is_own));
        let is_possible = match &choice {
            Choice::Auto | Choice::None | Choice::Any => sent.next().is_some(),
            Choice::Tool(name) => sent.any(|tool| tool.name == *name),
            Choice::Other(_) => true,
        };
        if !is_possible {
            self.warn("tool_choice", "the tools that it speaks of are not sent; it was left out");
        }
        Some(choice).filter(|_| is_possible)
    }

    /// Notes the markers on a part of another wire that do not cross over.
    pub(crate) fn warn_of_markers(&mut self, native: Option<&Native>) {
        let Some(native) = native.filter(|native| native.wire != self.wire) else { return };
        let holds =
            |word: &str| memchr::memmem::find(native.json.bytes(), word.as_bytes()).is_some();
        if holds("\"cache_control\"") || holds("\"cachePoint\"") {
            self.warn("cache_control", "cache markers do not cross wires; they were left out");
        }
    }

    /// Writes the array at `key` with these elements, unless they are what stands there already.
    pub(crate) fn put_elements(&mut self, key: &'static str, elements: &[Json]) {
        let place = self.source.and_then(|source| {
            let (_, range) = source.members.iter().rfind(|(name, _)| **name == *key)?;
            Some((&source.request.body, range.clone()))
        });
        let changed = match place {
            Some((body, range)) => Rope::rejoined(body, range, elements),
            None => Some(Rope::array(elements)),
        };
        if changed.is_some() {
            self.change(key.into(), changed);
        }
    }

    /// Writes the members that no field of the Call speaks for: the wire's own as they are, and a warning for every
    /// other wire's.
    pub(crate) fn put_extras(&mut self) {
        if let Some(id) = self.call.resumes.as_ref().filter(|_| self.wire != Wire::OPENAI_RESPONSES)
        {
            let message =
                format!("what `{id}` goes on from is kept by another provider and was not sent");
            self.warn("previous_response_id", message);
        }
        for extra in &self.call.extras {
            match &extra.wire {
                Some(wire) if *wire == self.wire => {
                    // What was cut from the source stands there already, be it under a name that stands twice.
                    let is_there = self.source.is_some_and(|source| {
                        place_in(&source.request.body, extra.value.bytes()).is_some()
                    });
                    if !is_there {
                        self.put(extra.key.to_string(), extra.value.clone());
                    }
                }
                Some(wire) => self.warnings.push(Warning::new(
                    Arc::clone(&extra.key),
                    format!("only {wire} knows this setting; it was left out"),
                )),
                None => self.put(extra.key.to_string(), extra.value.clone()),
            }
        }
    }

    /// Merges the caller's provider extras, last of all.
    pub(crate) fn put_provider_extras(&mut self) {
        let reasoning = self.call.settings.reasoning.as_ref();
        for (key, value) in reasoning.map(|r| r.provider_extras.as_slice()).unwrap_or_default() {
            self.put(key.to_string(), edit::merged(self.latest(key).as_ref(), value));
        }
    }

    /// Puts the Fates back into the order in which the Items stand.
    fn sort_fates(&mut self) {
        if let Some(order) = self.order.take() {
            let said = self.fates.split_off(self.fates.len().saturating_sub(order.len()));
            let mut placed: Vec<_> = order.into_iter().zip(said).collect();
            placed.sort_by_key(|(position, _)| *position);
            self.fates.extend(placed.into_iter().map(|(_, fate)| fate));
        }
    }

    /// Writes the side channel, if anything goes there.
    fn put_aside(&mut self) {
        if !self.aside.is_empty() {
            let entries = Rope::array(&self.aside);
            self.change(Cow::Borrowed(SIDE_CHANNEL), Some(entries));
        }
    }

    /// The finished body.
    pub(crate) fn body(&self) -> Bytes {
        match self.source {
            Some(source) => edit::edit(&source.request.body, &source.members, &self.changes),
            None => edit::write(&self.changes),
        }
    }

    /// The finished request: where the source went, or where this wire's requests go.
    pub(crate) fn finish(
        mut self,
        path: &str,
        headers: &[(&str, &str)],
        prefix: Option<Digest>,
    ) -> Encoded {
        let (path, headers) = match self.source.filter(|_| !self.has_moved()) {
            Some(source) => (Arc::clone(&source.request.path), source.request.headers.clone()),
            None => {
                let headers =
                    headers.iter().map(|(key, value)| (Name::from(*key), Name::from(*value)));
                (Name::from(path), headers.collect())
            }
        };
        self.put_aside();
        self.sort_fates();
        let request = Request { path, headers, body: self.body() };
        Encoded { request, fates: self.fates, warnings: self.warnings, prefix }
    }
}

/// The message that these Items were cut from on this wire, if all of them are here and nothing else is.
pub(crate) fn intact_envelope<'i>(items: &[&'i Item], wire: &Wire) -> Option<&'i Envelope> {
    let native = |item: &'i Item| {
        item.native_on(wire).filter(|native| native.side == Side::Request)?.envelope.as_ref()
    };
    let first = native(items.first()?)?;
    let all = items.iter().all(|item| native(item).is_some_and(|other| Arc::ptr_eq(first, other)));
    (all && items.len() == first.parts).then_some(&**first)
}

/// A Fate in which everything was sent as it is.
pub(crate) fn kept(item: &Item) -> Fate {
    Fate { item: item.id.clone(), visible: Did::Kept, seals: vec![Did::Kept; item.seals.len()] }
}

/// A Fate in which nothing was sent.
pub(crate) fn elided(item: &Item, why: Why) -> Fate {
    Fate {
        item: item.id.clone(),
        visible: Did::Elided(why),
        seals: vec![Did::Elided(why); item.seals.len()],
    }
}

/// A Fate in which the content was said in another shape and the Seals were left behind.
pub(crate) fn reshaped(item: &Item, how: How, seals: Why) -> Fate {
    Fate {
        item: item.id.clone(),
        visible: Did::Reshaped(how),
        seals: vec![Did::Elided(seals); item.seals.len()],
    }
}

/// Notes a request's bytes, so that writing the Call again can copy them.
pub(crate) fn received(
    wire: Wire,
    request: &Request,
    target: &Target,
    tree: &Tree,
    settings: &Settings,
) -> Arc<Received> {
    let (target, request, settings) = (target.clone(), request.clone(), settings.clone());
    Arc::new(Received { wire, target, request, members: edit::members_of(tree), settings })
}

/// Members by name. Where a name is repeated, the last member counts and keeps its place.
pub(crate) fn last_of_each_name<'t>(
    members: impl Iterator<Item = (Node<'t>, Node<'t>)>,
) -> Vec<(Name, Node<'t>)> {
    let mut all: Vec<_> =
        members.map(|(key, value)| (key.name().unwrap_or_default(), value)).collect();
    let last: HashMap<Name, usize> =
        all.iter().enumerate().map(|(place, (key, _))| (Arc::clone(key), place)).collect();
    let mut place = 0;
    all.retain(|(key, _)| {
        place += 1;
        last.get(key) == Some(&(place - 1))
    });
    all
}

/// What a wire said of a part of a request.
pub(crate) fn heard(
    wire: Wire,
    side: Side,
    json: Json,
    envelope: Option<&Arc<Envelope>>,
) -> Native {
    Native { envelope: envelope.cloned(), ..Native::new(wire, side, json) }
}
