//! Requests that stay what they were wherever nothing has changed.
//!
//! A Call that was read from a request remembers that request's bytes. Writing it again on the same wire is a
//! matter of edits: members that still say what the Call says are copied with the white space around them, others
//! are replaced, added or left out. A Call with nothing to edit comes out byte for byte as it went in; a Call that
//! was made from scratch has nothing to copy and is written member by member, in one fixed order.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Call, Did, Digest, Encoded, Envelope, Fate, How, Item, Json, Name, Native, Received, Request,
    Settings, Side, Tree, Warning, Why, Wire, json,
};

/// A request body that is being written.
pub(crate) struct Draft<'c> {
    call: &'c Call,
    wire: Wire,
    source: Option<&'c Received>,
    changes: Vec<(Cow<'static, str>, Option<Json>)>,
    pub(crate) aside: Vec<Json>,
    pub(crate) fates: Vec<Fate>,
    pub(crate) warnings: Vec<Warning>,
}

impl<'c> Draft<'c> {
    pub(crate) fn new(call: &'c Call, wire: Wire) -> Self {
        let source = call.source_on(&wire);
        let fates = Vec::with_capacity(call.system.len() + call.items.len());
        let (changes, aside, warnings) = (Vec::new(), Vec::new(), Vec::new());
        Self { call, wire, source, changes, aside, fates, warnings }
    }

    /// The request that the Call was read from, if it was on this wire.
    pub(crate) fn source(&self) -> Option<&'c Received> {
        self.source
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
            Some((_, value)) => value.clone(),
            None => self.was(key),
        }
    }

    /// Sets a member.
    pub(crate) fn put(&mut self, key: impl Into<Cow<'static, str>>, value: Json) {
        self.change(key.into(), Some(value));
    }

    /// Leaves a member out.
    pub(crate) fn remove(&mut self, key: impl Into<Cow<'static, str>>) {
        self.change(key.into(), None);
    }

    /// Sets a member, or leaves it out.
    pub(crate) fn set(&mut self, key: impl Into<Cow<'static, str>>, value: Option<Json>) {
        self.change(key.into(), value);
    }

    fn change(&mut self, key: Cow<'static, str>, value: Option<Json>) {
        self.changes.retain(|(changed, _)| *changed != key);
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

    /// Notes the markers on a part of another wire that do not cross over.
    pub(crate) fn warn_of_markers(&mut self, native: Option<&Native>) {
        let Some(native) = native.filter(|native| native.wire != self.wire) else { return };
        if memchr::memmem::find(native.json.bytes(), b"\"cache_control\"").is_some() {
            self.warn("cache_control", "cache markers do not cross wires; they were left out");
        }
    }

    /// Writes the array at `key` with these elements, unless they are what stands there already.
    pub(crate) fn put_elements(&mut self, key: &'static str, elements: &[Json]) {
        let place = self.source.and_then(|source| {
            let (_, range) = source.members.iter().rfind(|(name, _)| **name == *key)?;
            Some((&source.request.body, range.clone()))
        });
        match place {
            Some((body, range)) => {
                if let Some(changed) = rejoin(body, range, elements) {
                    self.put(key, changed);
                }
            }
            None => self.put(key, json::array_of(elements)),
        }
    }

    /// Writes the members that no field of the Call speaks for: the wire's own as they are, and a warning for every
    /// other wire's.
    pub(crate) fn put_extras(&mut self) {
        for extra in &self.call.extras {
            match &extra.wire {
                Some(wire) if *wire == self.wire => {
                    if self.was(&extra.key).as_ref() != Some(&extra.value) {
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
            self.put(key.to_string(), merged(self.latest(key).as_ref(), value));
        }
    }

    /// The finished body.
    pub(crate) fn body(&self) -> Bytes {
        match self.source {
            Some(source) => edit(&source.request.body, &source.members, &self.changes),
            None => edit_new(&self.changes),
        }
    }

    /// The finished request: where the source went, or where this wire's requests go.
    pub(crate) fn finish(
        self,
        path: &str,
        headers: &[(&str, &str)],
        prefix: Option<Digest>,
    ) -> Encoded {
        let (path, headers) = match self.source {
            Some(source) => (Arc::clone(&source.request.path), source.request.headers.clone()),
            None => {
                let headers =
                    headers.iter().map(|(key, value)| (Name::from(*key), Name::from(*value)));
                (Name::from(path), headers.collect())
            }
        };
        let request = Request { path, headers, body: self.body() };
        Encoded { request, fates: self.fates, warnings: self.warnings, prefix }
    }
}

/// An object with some members changed and all others as they were.
pub(crate) fn edited(base: Option<&Json>, changes: &[(Cow<'static, str>, Option<Json>)]) -> Json {
    let bytes = match base {
        Some(base) => {
            let tree = base.tree();
            let members: Vec<_> = members_of(&tree);
            edit(base.bytes(), &members, changes)
        }
        None => edit_new(changes),
    };
    Json::parse(bytes).unwrap_or_else(|_| Json::null())
}

/// The names and places of an object's members.
pub(crate) fn members_of(tree: &Tree) -> Vec<(Name, Range<usize>)> {
    let members = tree.root().members();
    members.map(|(key, value)| (key.name().unwrap_or_default(), value.range())).collect()
}

/// `value` laid over `base`: objects member by member, anything else whole.
fn merged(base: Option<&Json>, value: &Json) -> Json {
    let Some(base) = base else { return value.clone() };
    let (base_tree, value_tree) = (base.tree(), value.tree());
    if !base_tree.root().is_object() || !value_tree.root().is_object() {
        return value.clone();
    }
    let changes: Vec<_> = value_tree
        .root()
        .members()
        .map(|(key, value)| {
            (Cow::Owned(key.text().unwrap_or_default().into_owned()), Some(value.json()))
        })
        .collect();
    edited(Some(base), &changes)
}

fn edit_new(changes: &[(Cow<'static, str>, Option<Json>)]) -> Bytes {
    let object = json::object(|o| {
        for (key, value) in changes {
            if let Some(value) = value {
                o.raw(key, value);
            }
        }
    });
    object.bytes().clone()
}

/// Copies an object, replacing and leaving out members; new ones come last.
fn edit(
    base: &Bytes,
    members: &[(Name, Range<usize>)],
    changes: &[(Cow<'static, str>, Option<Json>)],
) -> Bytes {
    if changes.is_empty() {
        return base.clone();
    }
    let mut copied = memchr::memchr(b'{', base).map_or(0, |open| open + 1);
    let mut out = Vec::with_capacity(base.len() + 256);
    out.extend_from_slice(base.get(..copied).unwrap_or_default());
    let mut is_first = true;
    for (name, range) in members {
        // The comma, the name and the white space before the value.
        let lead = base.get(copied..range.start).unwrap_or_default();
        copied = range.end;
        let value = match changes.iter().find(|(key, _)| **key == **name) {
            Some((_, None)) => continue,
            Some((_, Some(value))) => value.bytes(),
            None => base.get(range.clone()).unwrap_or_default(),
        };
        out.extend_from_slice(if is_first { without_comma(lead) } else { lead });
        out.extend_from_slice(value);
        is_first = false;
    }
    for (key, value) in changes {
        let is_new = !members.iter().any(|(name, _)| **name == **key);
        if let (true, Some(value)) = (is_new, value) {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            json::push_string(&mut out, key);
            out.push(b':');
            out.extend_from_slice(value.bytes());
        }
    }
    out.extend_from_slice(base.get(copied..).unwrap_or_default());
    Bytes::from(out)
}

fn without_comma(lead: &[u8]) -> &[u8] {
    lead.trim_ascii_start().strip_prefix(b",").unwrap_or(lead)
}

/// The array at `place` with these elements, or nothing where they are exactly what stands there. Neighbours
/// that stood side by side keep the white space between them.
fn rejoin(body: &Bytes, place: Range<usize>, elements: &[Json]) -> Option<Json> {
    let places: Vec<Option<Range<usize>>> =
        elements.iter().map(|element| place_in(body, element.bytes())).collect();
    let glue = |from: usize, to: usize| body.get(from..to).unwrap_or_default();
    let is_blank = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_whitespace);
    let is_comma = |bytes: &[u8]| {
        let mut solid = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
        solid.next() == Some(&b',') && solid.next().is_none()
    };
    let joins = |left: &Option<Range<usize>>, right: &Option<Range<usize>>| match (left, right) {
        (Some(left), Some(right)) if left.end <= right.start => {
            is_comma(glue(left.end, right.start))
        }
        (Some(_) | None, _) => false,
    };
    let inner = place.start + 1..place.end.saturating_sub(1);
    let is_unchanged = match (places.first(), places.last()) {
        (Some(Some(first)), Some(Some(last))) => {
            inner.start <= first.start
                && last.end <= inner.end
                && is_blank(glue(inner.start, first.start))
                && is_blank(glue(last.end, inner.end))
                && places.windows(2).all(|pair| matches!(pair, [a, b] if joins(a, b)))
        }
        (None, None) => is_blank(glue(inner.start, inner.end)),
        (Some(_), _) | (None, Some(_)) => false,
    };
    if is_unchanged {
        return None;
    }
    let mut out = Vec::with_capacity(place.len() + 1024);
    out.push(b'[');
    for (position, element) in elements.iter().enumerate() {
        if let Some(before) = position.checked_sub(1) {
            match (places.get(before), places.get(position)) {
                (Some(left), Some(right)) if joins(left, right) => {
                    let (left, right) =
                        (left.clone().unwrap_or_default(), right.clone().unwrap_or_default());
                    out.extend_from_slice(glue(left.end, right.start));
                }
                _ => out.push(b','),
            }
        }
        out.extend_from_slice(element.bytes());
    }
    out.push(b']');
    Json::parse(out).ok()
}

/// Where `part` stands in `whole`, if it shares its memory.
fn place_in(whole: &Bytes, part: &Bytes) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start + part.len();
    (end <= whole.len() && !part.is_empty()).then_some(start..end)
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
    tree: &Tree,
    settings: &Settings,
) -> Arc<Received> {
    Arc::new(Received {
        wire,
        request: request.clone(),
        members: members_of(tree),
        settings: settings.clone(),
    })
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
