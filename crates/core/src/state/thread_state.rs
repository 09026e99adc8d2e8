//! The state of a Thread, as the sum of its records.
//!
//! The conversation itself is not in it: Items are counted here and read from the log, so that opening a Thread of a
//! hundred thousand Items reads a checkpoint and what came after it. Everything else of [`SmartState`] changes by records of
//! kind [`kind::STATE`], each an object with `set` (members that are replaced) and `add` (lists that grow).

use bytes::Bytes;

use crate::document::InvalidDocument;
use crate::json::{self, Json, Node, Tree};
use crate::name::Name;
use crate::state::SmartState;
use crate::store::{Fold, NewRecord, Record, StoreError, kind};
use crate::view::Message;

/// The state of a Thread, without its conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadState {
    /// How many Items the Thread has.
    pub items: u64,
    members: Vec<(Name, Member)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Member {
    Value(Json),
    List(Vec<Json>),
}

/// A change of the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateChange {
    /// Members of [`SmartState`] that are replaced, by their documented names.
    pub set: Vec<(Name, Json)>,
    /// Lists of [`SmartState`] that grow, and by what.
    pub add: Vec<(Name, Json)>,
}

impl StateChange {
    /// Nothing changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, and that member is replaced.
    #[must_use]
    pub fn set(mut self, member: &str, value: Json) -> Self {
        self.set.push((Name::from(member), value));
        self
    }

    /// The same, and that list grows by a value.
    #[must_use]
    pub fn add(mut self, list: &str, value: Json) -> Self {
        self.add.push((Name::from(list), value));
        self
    }

    /// The same, and then the other.
    pub fn merge(&mut self, other: StateChange) {
        for (member, value) in other.set {
            // What is replaced is neither what it was set to before nor what it grew by.
            self.set.retain(|(known, _)| *known != member);
            self.add.retain(|(known, _)| *known != member);
            self.set.push((member, value));
        }
        self.add.extend(other.add);
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty()
    }

    /// The record that keeps it.
    pub fn record(&self) -> NewRecord {
        let members = |out: &mut json::Object<'_>, members: &[(Name, Json)]| {
            for (member, value) in members {
                out.raw(member, value);
            }
        };
        let change = json::object(|out| {
            if !self.set.is_empty() {
                out.object("set", |set| members(set, &self.set));
            }
            if !self.add.is_empty() {
                out.array("add", |list| {
                    for (member, value) in &self.add {
                        list.object(|pair| {
                            pair.raw(member, value);
                        });
                    }
                });
            }
        });
        NewRecord::new(kind::STATE, change.bytes().clone())
    }
}

impl ThreadState {
    /// The whole state, with these messages as the conversation.
    pub fn state(&self, messages: Vec<Message>) -> Result<SmartState, InvalidDocument> {
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
                Member::Value(value) => out.raw(name, value),
                Member::List(values) => out.array(name, |list| {
                    for value in values {
                        list.raw(value);
                    }
                }),
            };
        }
    }

    fn change(&mut self, change: Node<'_>) {
        for (name, value) in change.get("set").into_iter().flat_map(Node::members) {
            if let Some(name) = name.name() {
                self.put(name, Member::Value(value.json()));
            }
        }
        let added = change.get("add").into_iter().flat_map(Node::elements);
        for (name, value) in added.flat_map(Node::members) {
            let Some(name) = name.name() else { continue };
            let value = value.json();
            match self.members.iter_mut().find(|(known, _)| *known == name) {
                None => self.put(name, Member::List(vec![value])),
                Some((_, Member::List(values))) => values.push(value),
                Some((_, member @ Member::Value(_))) => {
                    let mut values = match member {
                        Member::Value(list) => {
                            list.tree().root().elements().map(Node::json).collect()
                        }
                        Member::List(_) => Vec::new(),
                    };
                    values.push(value);
                    *member = Member::List(values);
                }
            }
        }
    }

    fn put(&mut self, name: Name, member: Member) {
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
                // What was forgotten changes nothing any more.
                if let Some(content) = record.content.bytes() {
                    let change = Tree::parse(content.clone()).map_err(|error| {
                        let seq = record.seq;
                        StoreError::Corrupt(format!("record {seq} is no change: {error}").into())
                    })?;
                    self.change(change.root());
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
        let damaged = || StoreError::Corrupt("a checkpoint cannot be read".into());
        let tree = Tree::parse(saved.clone()).map_err(|_| damaged())?;
        let items = tree.root().get("items").and_then(Node::u64).ok_or_else(damaged)?;
        let members = tree.root().get("state").ok_or_else(damaged)?.members();
        let member = |(name, value): (Node<'_>, Node<'_>)| {
            let value = if value.is_array() {
                Member::List(value.elements().map(Node::json).collect())
            } else {
                Member::Value(value.json())
            };
            Some((name.name()?, value))
        };
        Ok(Self { items, members: members.map(member).collect::<Option<_>>().ok_or_else(damaged)? })
    }
}

#[cfg(test)]
#[path = "thread_state_tests.rs"]
mod thread_state_tests;
