//! The state of a Thread, folded from its records.
//!
//! The state contains the number of Items but not the Items. Opening a Thread with a hundred
//! thousand Items therefore reads only a checkpoint and the records after the checkpoint. All other
//! members of [`SmartState`] change through records of kind [`kind::STATE`]. Each of these records
//! is an object with `set` (members to replace) and `add` (values to append to lists).

use bytes::Bytes;
use throughline_core::{Fold, NewRecord, Record, StoreError, kind};
use throughline_json::{self as json, InvalidDocument, Json, Name, Node, Tree, write_extras};

use crate::state::SmartState;
use crate::view::Message;

/// The state of a Thread, without its conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadState {
    /// The number of Item records in the Thread.
    pub items: u64,
    members: Vec<(Name, StateMember)>,
}

#[derive(Clone, Debug, PartialEq)]
enum StateMember {
    Value(Json),
    List(Vec<Json>),
}

impl StateMember {
    fn push(&mut self, value: Json) {
        if let Self::Value(list) = self {
            *self = Self::List(list.tree().root().elements().map(Node::json).collect());
        }
        if let Self::List(values) = self {
            values.push(value);
        }
    }
}

/// A change to a Thread's state, stored as one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateChange {
    /// Members of [`SmartState`] to replace, by their documented names.
    pub set: Vec<(Name, Json)>,
    /// Values to append to lists of [`SmartState`], by the lists' documented names.
    pub add: Vec<(Name, Json)>,
}

impl StateChange {
    /// Creates an empty change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member to replace and its new value.
    #[must_use]
    pub fn set(mut self, member: &str, value: Json) -> Self {
        self.set.push((Name::from(member), value));
        self
    }

    /// Adds a value to be appended to a list.
    #[must_use]
    pub fn add(mut self, list: &str, value: Json) -> Self {
        self.add.push((Name::from(list), value));
        self
    }

    /// Merges a later change into this change.
    pub fn merge(&mut self, other: StateChange) {
        for (member, value) in other.set {
            // A replacement overrides earlier replacements and additions of the same member.
            self.set.retain(|(known, _)| *known != member);
            self.add.retain(|(known, _)| *known != member);
            self.set.push((member, value));
        }
        self.add.extend(other.add);
    }

    /// Returns whether the change is empty.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty()
    }

    /// Returns a record of kind [`kind::STATE`] that stores the change.
    pub fn record(&self) -> NewRecord {
        let change = json::object(|out| {
            if !self.set.is_empty() {
                out.object("set", |out| write_extras(out, &self.set, &[]));
            }
            if !self.add.is_empty() {
                out.objects("add", &self.add, |pair, (list, value)| _ = pair.raw(list, value));
            }
        });
        NewRecord::new(kind::STATE, change.bytes().clone())
    }
}

impl ThreadState {
    /// Returns the whole state as a document, with `messages` as the conversation.
    pub fn to_smart_state(&self, messages: Vec<Message>) -> Result<SmartState, InvalidDocument> {
        let document = json::object(|out| {
            out.array("messages", |_| {});
            self.write(out);
        });
        let mut state = SmartState::parse(&document)?;
        state.messages = messages;
        Ok(state)
    }

    fn write(&self, out: &mut json::Object<'_>) {
        for (name, member) in &self.members {
            match member {
                StateMember::Value(value) => out.raw(name, value),
                StateMember::List(values) => out.list(name, values),
            };
        }
    }

    fn apply_change(&mut self, change: Node<'_>) {
        for (name, value) in change.get("set").into_iter().flat_map(Node::members) {
            if let Some(name) = name.name() {
                self.set_member(name, StateMember::Value(value.json()));
            }
        }
        let added = change.get("add").into_iter().flat_map(Node::elements);
        for (name, value) in added.flat_map(Node::members) {
            let Some(name) = name.name() else { continue };
            let value = value.json();
            match self.members.iter_mut().find(|(known, _)| *known == name) {
                None => self.set_member(name, StateMember::List(vec![value])),
                Some((_, member)) => member.push(value),
            }
        }
    }

    fn set_member(&mut self, name: Name, member: StateMember) {
        match self.members.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = member,
            None => self.members.push((name, member)),
        }
    }
}

impl Fold for ThreadState {
    fn apply(&mut self, record: &Record) -> Result<(), StoreError> {
        match &*record.kind {
            kind::ITEM => self.items += 1,
            kind::STATE => {
                // A change whose content was erased has no effect.
                if let Some(content) = record.content.bytes() {
                    let change = Tree::parse(content.clone()).map_err(|error| {
                        let problem =
                            format!("record {} is not a state change: {error}", record.seq);
                        StoreError::Corrupt(problem.into())
                    })?;
                    self.apply_change(change.root());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn save(&self) -> Bytes {
        let saved = json::object(|out| {
            out.number("items", self.items);
            out.object("state", |state| self.write(state));
        });
        saved.bytes().clone()
    }

    fn load(saved: &Bytes) -> Result<Self, StoreError> {
        let damaged = || StoreError::Corrupt("a checkpoint of the thread state is invalid".into());
        let tree = Tree::parse(saved.clone()).map_err(|_| damaged())?;
        let items = tree.root().get("items").and_then(Node::u64).ok_or_else(damaged)?;
        let members = tree.root().get("state").ok_or_else(damaged)?.members();
        let member = |(name, value): (Node<'_>, Node<'_>)| {
            let value = if value.is_array() {
                StateMember::List(value.elements().map(Node::json).collect())
            } else {
                StateMember::Value(value.json())
            };
            Some((name.name()?, value))
        };
        Ok(Self { items, members: members.map(member).collect::<Option<_>>().ok_or_else(damaged)? })
    }
}

#[cfg(test)]
#[path = "thread_state_tests.rs"]
mod thread_state_tests;
