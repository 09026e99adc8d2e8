//! Which answer belongs to which tool call.
//!
//! Wire ids are optional on some wires and repeat on others, so an id names the latest unanswered call that has
//! it, and calls get ids of our own.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use throughline_core::{Body, CallId, CallIds, Item, Name, Place, Target, work};

/// The calls of one conversation, while it is read.
#[derive(Default)]
pub(crate) struct Calls {
    taken: Taken,
    /// All calls in order; nothing where a call was answered.
    open: Vec<Option<CallId>>,
    /// The numbers of the calls with an id, the latest last. Answered calls are removed when they are met.
    by_id: HashMap<Name, Vec<usize>>,
    /// The numbers of the calls of a tool, the oldest first. Answered calls are removed when they are met.
    by_name: HashMap<Name, VecDeque<usize>>,
}

impl Calls {
    /// Notes a call: its id is the wire's where that is there and not taken, else one made from its place.
    pub(crate) fn open(&mut self, wire_id: Option<&Name>, name: &Name, place: Place) -> CallId {
        let wanted = wire_id.filter(|id| !id.is_empty()).cloned();
        let wanted =
            wanted.unwrap_or_else(|| format!("call_{}_{}", place.message, place.part).into());
        let id = CallId(self.taken.unique(&wanted));
        let number = self.open.len();
        self.open.push(Some(id.clone()));
        if let Some(wire_id) = wire_id {
            self.by_id.entry(Arc::clone(wire_id)).or_default().push(number);
        }
        self.by_name.entry(Arc::clone(name)).or_default().push_back(number);
        id
    }

    /// The call that an answer belongs to, by the wire's id or else by the tool's name, oldest first. An answer to
    /// nothing we know keeps the id it came with.
    pub(crate) fn answer(&mut self, wire_id: Option<&str>, name: Option<&str>) -> CallId {
        let found = match (wire_id, name) {
            (Some(wire_id), _) => self.latest_with_id(wire_id),
            (None, Some(name)) => self.oldest_of_tool(name),
            (None, None) => None,
        };
        found.unwrap_or_else(|| CallId::from(wire_id.or(name).unwrap_or("unknown")))
    }

    fn latest_with_id(&mut self, wire_id: &str) -> Option<CallId> {
        let numbers = self.by_id.get_mut(wire_id)?;
        while let Some(number) = numbers.pop() {
            work::step();
            if let Some(id) = self.open.get_mut(number).and_then(Option::take) {
                return Some(id);
            }
        }
        None
    }

    fn oldest_of_tool(&mut self, name: &str) -> Option<CallId> {
        let numbers = self.by_name.get_mut(name)?;
        while let Some(number) = numbers.pop_front() {
            work::step();
            if let Some(id) = self.open.get_mut(number).and_then(Option::take) {
                return Some(id);
            }
        }
        None
    }
}

/// The ids under which calls go out on a wire that did not name them: safe on every wire, unique in the request,
/// and dependent only on the Items before.
pub(crate) struct OutgoingIds {
    style: CallIds,
    taken: Taken,
    latest: HashMap<CallId, Name>,
}

impl OutgoingIds {
    /// Ids that the target takes.
    pub(crate) fn for_target(target: &Target) -> Self {
        let style = target.provider.dialect.call_ids;
        Self { style, taken: Taken::default(), latest: HashMap::new() }
    }

    /// Whether the target takes an id as it is.
    pub(crate) fn takes(&self, id: &str) -> bool {
        !id.is_empty()
            && match self.style {
                CallIds::Plain => id.len() <= 60 && id.chars().all(is_safe),
                CallIds::Forty => id.len() <= 40 && id.chars().all(is_safe),
                CallIds::Nine => id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()),
            }
    }

    /// The id for a call.
    pub(crate) fn call(&mut self, id: &CallId) -> Name {
        let mut out = self.taken.unique(&self.fitted(&id.0));
        while !self.takes(&out) {
            // A number behind it made it too long: another digest is another name.
            out = self.taken.unique(&digest(&out, self.style));
        }
        self.latest.insert(id.clone(), Arc::clone(&out));
        out
    }

    /// The id itself where the target takes it, else one that stands for it.
    fn fitted(&self, id: &Name) -> Name {
        if self.takes(id) {
            return Arc::clone(id);
        }
        let safe: String = id.chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
        if self.takes(&safe) { Name::from(safe) } else { digest(id, self.style) }
    }

    /// Notes a call that goes out under the wire's own id.
    pub(crate) fn native(&mut self, id: &CallId, wire_id: &Name) {
        self.taken.0.entry(Arc::clone(wire_id)).or_insert(2);
        self.latest.insert(id.clone(), Arc::clone(wire_id));
    }

    /// Notes an Item that goes out as its wire said it, if it is a call with an id.
    pub(crate) fn note(&mut self, item: &Item) {
        if let Body::Call(call) = &item.body
            && let Some(wire_id) = &call.wire_id
        {
            self.native(&call.id, wire_id);
        }
    }

    /// The id for the answer to a call.
    pub(crate) fn result(&self, id: &CallId) -> Name {
        self.latest.get(id).cloned().unwrap_or_else(|| self.fitted(&id.0))
    }
}

/// A name that stands for another: nine letters and digits, or a longer one where that is taken.
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

/// Names that are taken, each with the number to try next behind it.
#[derive(Default)]
struct Taken(HashMap<Name, u32>);

impl Taken {
    /// The name itself, or with the first free number behind it.
    fn unique(&mut self, wanted: &Name) -> Name {
        let mut number = match self.0.entry(Arc::clone(wanted)) {
            Entry::Occupied(taken) => *taken.get(),
            Entry::Vacant(free) => {
                free.insert(2);
                return Arc::clone(wanted);
            }
        };
        loop {
            let name = Name::from(format!("{wanted}_{number}"));
            number += 1;
            if !self.0.contains_key(&name) {
                self.0.insert(Arc::clone(wanted), number);
                self.0.insert(Arc::clone(&name), 2);
                return name;
            }
        }
    }
}
