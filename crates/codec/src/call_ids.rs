//! Matches tool results to tool calls.
//!
//! Call ids are optional on some wires and repeat on others. A wire id therefore refers to the
//! latest unanswered call with this id, and every call also gets a unique internal id.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use throughline_core::{Body, CallId, CallIds, Item, ItemPosition, Target};
use throughline_json::{Name, work};

/// Tracks the tool calls of one conversation while it is decoded.
#[derive(Default)]
pub(crate) struct CallTracker {
    used: UniqueNames,
    /// All calls in order; `None` once a call is answered.
    open: Vec<Option<CallId>>,
    /// Maps each id to the indexes of its calls, latest last. Answered calls are removed lazily.
    by_id: HashMap<Name, Vec<usize>>,
    /// Maps each tool name to the indexes of its calls, oldest first. Answered calls are removed
    /// lazily.
    by_name: HashMap<Name, VecDeque<usize>>,
}

impl CallTracker {
    /// Records a call and returns its internal id: the wire's id, or an id derived from `place` if
    /// the wire has none. A repeated id gets a numeric suffix.
    pub(crate) fn open(
        &mut self,
        wire_id: Option<&Name>,
        name: &Name,
        place: ItemPosition,
    ) -> CallId {
        let preferred = wire_id.filter(|id| !id.is_empty()).cloned();
        let preferred =
            preferred.unwrap_or_else(|| format!("call_{}_{}", place.message, place.part).into());
        let id = CallId(self.used.unique(&preferred));
        let number = self.open.len();
        self.open.push(Some(id.clone()));
        if let Some(wire_id) = wire_id {
            self.by_id.entry(Arc::clone(wire_id)).or_default().push(number);
        }
        self.by_name.entry(Arc::clone(name)).or_default().push_back(number);
        id
    }

    /// Returns the id of the call that a result belongs to: the latest open call with the wire id,
    /// or the oldest open call of the tool if there is no wire id. If no call matches, the wire id
    /// or the tool name serves as the id.
    pub(crate) fn answer(&mut self, wire_id: Option<&str>, name: Option<&str>) -> CallId {
        let Self { open, by_id, by_name, .. } = self;
        let take = |number: usize| {
            work::step();
            open.get_mut(number).and_then(Option::take)
        };
        let found = match (wire_id, name) {
            (Some(wire_id), _) => by_id
                .get_mut(wire_id)
                .and_then(|numbers| std::iter::from_fn(|| numbers.pop()).find_map(take)),
            (None, Some(name)) => by_name
                .get_mut(name)
                .and_then(|numbers| std::iter::from_fn(|| numbers.pop_front()).find_map(take)),
            (None, None) => None,
        };
        found.unwrap_or_else(|| CallId::from(wire_id.or(name).unwrap_or("unknown")))
    }

    /// Returns whether any call so far, answered or not, has this wire id.
    pub(crate) fn has_id(&self, wire_id: &str) -> bool {
        self.by_id.contains_key(wire_id)
    }
}

/// Assigns ids to calls that come from another wire. Each id is accepted by the target, unique in
/// the request, and depends only on the preceding Items, so prompt caches still hit.
pub(crate) struct CallIdAllocator {
    style: CallIds,
    used: UniqueNames,
    latest: HashMap<CallId, Name>,
}

impl CallIdAllocator {
    /// Creates an allocator for ids in the form that the target accepts.
    pub(crate) fn for_target(target: &Target) -> Self {
        let style = target.provider.dialect.call_ids;
        Self { style, used: UniqueNames::default(), latest: HashMap::new() }
    }

    /// Returns whether the target accepts `id` unchanged.
    pub(crate) fn accepts(&self, id: &str) -> bool {
        !id.is_empty()
            && match self.style {
                CallIds::Plain => id.len() <= 60 && id.chars().all(is_safe),
                CallIds::Forty => id.len() <= 40 && id.chars().all(is_safe),
                CallIds::Nine => id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()),
            }
    }

    /// Returns an id that the target accepts and that no earlier call in the request uses.
    pub(crate) fn assign(&mut self, id: &CallId) -> Name {
        let mut out = self.used.unique(&self.accepted_id(&id.0));
        while !self.accepts(&out) {
            // A numeric suffix made the id too long, so derive a different digest.
            out = self.used.unique(&digest(&out, self.style));
        }
        self.latest.insert(id.clone(), Arc::clone(&out));
        out
    }

    /// Returns `id` unchanged if the target accepts it, else a substitute derived from it.
    fn accepted_id(&self, id: &Name) -> Name {
        if self.accepts(id) {
            return Arc::clone(id);
        }
        let safe: String = id.chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
        if self.accepts(&safe) { Name::from(safe) } else { digest(id, self.style) }
    }

    /// Records a call that is sent with its original wire id.
    pub(crate) fn record_native(&mut self, id: &CallId, wire_id: &Name) {
        self.used.0.entry(Arc::clone(wire_id)).or_insert(2);
        self.latest.insert(id.clone(), Arc::clone(wire_id));
    }

    /// Records a verbatim Item if the Item is a call with a wire id.
    pub(crate) fn record_item(&mut self, item: &Item) {
        if let Body::Call(call) = &item.body
            && let Some(wire_id) = &call.wire_id
        {
            self.record_native(&call.id, wire_id);
        }
    }

    /// Returns the id that was sent for the call this result answers.
    pub(crate) fn result_id(&self, id: &CallId) -> Name {
        self.latest.get(id).cloned().unwrap_or_else(|| self.accepted_id(&id.0))
    }
}

/// Derives a short id from the hash of `text`: 9 characters, or 24 if the target accepts longer
/// ids.
fn digest(text: &str, style: CallIds) -> Name {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let length = match style {
        CallIds::Nine => 9,
        CallIds::Plain | CallIds::Forty => 24,
    };
    Name::from(hash.chars().take(length).collect::<String>())
}

fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Names in use, each with the next numeric suffix to try.
#[derive(Default)]
struct UniqueNames(HashMap<Name, u32>);

impl UniqueNames {
    /// Returns `base`, or `base` with the first free numeric suffix.
    fn unique(&mut self, base: &Name) -> Name {
        let mut number = match self.0.entry(Arc::clone(base)) {
            Entry::Occupied(used) => *used.get(),
            Entry::Vacant(free) => {
                free.insert(2);
                return Arc::clone(base);
            }
        };
        loop {
            let name = Name::from(format!("{base}_{number}"));
            number += 1;
            if !self.0.contains_key(&name) {
                self.0.insert(Arc::clone(base), number);
                self.0.insert(Arc::clone(&name), 2);
                return name;
            }
        }
    }
}
