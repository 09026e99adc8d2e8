//! Omits empty texts from a response that is encoded for a client of another wire.
//!
//! Gemini signs the end of a streamed response in a part without text. The part is stored for
//! replay. On another wire, the part would become an empty block or message, which clients would
//! mistake for the answer. The part is therefore omitted, and later parts are renumbered, in both
//! whole and streamed responses.

use std::borrow::Cow;
use std::collections::BTreeMap;

use throughline_core::{Body, Delta, Event, Item, Reply, Wire};

/// Returns the reply without the empty texts that come from another wire.
pub(crate) fn without_empty_texts<'r>(reply: &'r Reply, wire: &Wire) -> Cow<'r, Reply> {
    if reply.origin.wire == *wire || !reply.items.iter().any(|item| is_omitted(item, wire)) {
        return Cow::Borrowed(reply);
    }
    let mut shown = reply.clone();
    shown.items.retain(|item| !is_omitted(item, wire));
    Cow::Owned(shown)
}

fn is_omitted(item: &Item, wire: &Wire) -> bool {
    matches!(&item.body, Body::Text(text) if text.is_empty()) && item.native_on(wire).is_none()
}

/// Omits empty texts from a stream. A text is opened only at its first non-empty delta, and Items
/// are numbered in the order in which they are opened.
pub(crate) struct EmptyTextFilter {
    wire: Wire,
    is_foreign: bool,
    /// The delayed `Opened` events of texts that are still empty, by Item index.
    silent: BTreeMap<u32, Event>,
    /// Maps each forwarded Item to its index in the filtered stream.
    numbers: BTreeMap<u32, u32>,
}

impl EmptyTextFilter {
    /// Creates a filter for a stream that is encoded on `wire`.
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, is_foreign: false, silent: BTreeMap::new(), numbers: BTreeMap::new() }
    }

    /// Returns the events to encode instead of `event`, possibly none.
    pub(crate) fn push<'e>(&mut self, event: &'e Event) -> Vec<Cow<'e, Event>> {
        if let Event::Began { origin, .. } = event {
            self.is_foreign = origin.wire != self.wire;
        }
        if !self.is_foreign {
            return vec![Cow::Borrowed(event)];
        }
        match event {
            Event::Opened { index, body: Body::Text(_), .. } => {
                self.silent.insert(*index, event.clone());
                Vec::new()
            }
            Event::Opened { index, .. } => vec![self.renumbered(*index, event)],
            Event::Delta { index, delta } => {
                let is_empty = matches!(delta, Delta::Text(text) if text.is_empty());
                if is_empty && self.silent.contains_key(index) {
                    return Vec::new();
                }
                self.with_delayed_opening(*index, event)
            }
            Event::Closed { index, item } => {
                if is_omitted(item, &self.wire) && self.silent.remove(index).is_some() {
                    return Vec::new();
                }
                self.with_delayed_opening(*index, event)
            }
            Event::Ended(reply) => match without_empty_texts(reply, &self.wire) {
                Cow::Borrowed(_) => vec![Cow::Borrowed(event)],
                Cow::Owned(shown) => vec![Cow::Owned(Event::Ended(Box::new(shown)))],
            },
            Event::Began { .. } | Event::Usage(_) | Event::Failed(_) | Event::Alien(_) => {
                vec![Cow::Borrowed(event)]
            }
        }
    }

    /// Returns `event`, preceded by the Item's delayed `Opened` event if there is one.
    fn with_delayed_opening<'e>(&mut self, index: u32, event: &'e Event) -> Vec<Cow<'e, Event>> {
        let mut events = Vec::with_capacity(2);
        if let Some(opened) = self.silent.remove(&index) {
            events.push(Cow::Owned(self.renumbered(index, &opened).into_owned()));
        }
        events.push(self.renumbered(index, event));
        events
    }

    /// Returns `event` with its Item index replaced by the Item's index in the filtered stream.
    fn renumbered<'e>(&mut self, index: u32, event: &'e Event) -> Cow<'e, Event> {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(index).or_insert(next);
        if number == index {
            return Cow::Borrowed(event);
        }
        let mut event = event.clone();
        if let Event::Opened { index, .. }
        | Event::Delta { index, .. }
        | Event::Closed { index, .. } = &mut event
        {
            *index = number;
        }
        Cow::Owned(event)
    }
}
