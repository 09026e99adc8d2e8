//! Leaves empty texts out of an answer that is written for another wire.
//!
//! Gemini signs the end of a streamed answer in a part that has no text. The part is kept for replay. In
//! another dialect it would be an empty block or message, which clients take for the answer. So the parts
//! after it are counted without it, whole and streamed alike.

use std::borrow::Cow;
use std::collections::BTreeMap;

use throughline_core::{Body, Delta, Event, Item, Reply, Wire};

/// The answer without the empty texts of another wire.
pub(crate) fn without_empty_texts<'r>(reply: &'r Reply, wire: &Wire) -> Cow<'r, Reply> {
    if reply.origin.wire == *wire || !reply.items.iter().any(|item| is_left_out(item, wire)) {
        return Cow::Borrowed(reply);
    }
    let mut shown = reply.clone();
    shown.items.retain(|item| !is_left_out(item, wire));
    Cow::Owned(shown)
}

fn is_left_out(item: &Item, wire: &Wire) -> bool {
    matches!(&item.body, Body::Text(text) if text.is_empty()) && item.native_on(wire).is_none()
}

/// Does the same for a stream: a text begins with its first piece, and Items are counted as they begin.
pub(crate) struct EmptyTextFilter {
    wire: Wire,
    is_foreign: bool,
    /// Texts that have begun and that have said nothing.
    silent: BTreeMap<u32, Event>,
    /// The numbers of the Items that were passed on.
    numbers: BTreeMap<u32, u32>,
}

impl EmptyTextFilter {
    /// Filters for a client of that wire.
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, is_foreign: false, silent: BTreeMap::new(), numbers: BTreeMap::new() }
    }

    /// The events to write for this one.
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
            Event::Opened { index, .. } => vec![self.numbered(*index, event)],
            Event::Delta { index, delta } => {
                let is_empty = matches!(delta, Delta::Text(text) if text.is_empty());
                if is_empty && self.silent.contains_key(index) {
                    return Vec::new();
                }
                self.begun(*index, event)
            }
            Event::Closed { index, item } => {
                let is_silent = self.silent.contains_key(index);
                if is_silent && is_left_out(item, &self.wire) {
                    self.silent.remove(index);
                    return Vec::new();
                }
                self.begun(*index, event)
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

    /// An event of an Item, after the beginning of the Item if that was held back.
    fn begun<'e>(&mut self, index: u32, event: &'e Event) -> Vec<Cow<'e, Event>> {
        let mut events = Vec::with_capacity(2);
        if let Some(opened) = self.silent.remove(&index) {
            events.push(Cow::Owned(self.numbered(index, &opened).into_owned()));
        }
        events.push(self.numbered(index, event));
        events
    }

    /// The event under the number that its Item has for the client.
    fn numbered<'e>(&mut self, index: u32, event: &'e Event) -> Cow<'e, Event> {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(index).or_insert(next);
        if number == index {
            return Cow::Borrowed(event);
        }
        match event {
            Event::Opened { id, body, .. } => {
                Cow::Owned(Event::Opened { index: number, id: id.clone(), body: body.clone() })
            }
            Event::Delta { delta, .. } => {
                Cow::Owned(Event::Delta { index: number, delta: delta.clone() })
            }
            Event::Closed { item, .. } => {
                Cow::Owned(Event::Closed { index: number, item: item.clone() })
            }
            Event::Began { .. }
            | Event::Usage(_)
            | Event::Ended(_)
            | Event::Failed(_)
            | Event::Alien(_) => Cow::Borrowed(event),
        }
    }
}
