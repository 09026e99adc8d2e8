//! Agents and conversations as they are kept.
//!
//! Each has a Thread under its own id, and beside it a log that says what it is: each record holds all of its members, and the
//! latest wins. A log of the tenant names the agents, and an agent's own log its conversations.

use std::collections::HashMap;

use jiff::Timestamp;
use throughline_core::{
    Append, Batch, ForkPoint, Json, LogId, LogOpening, Name, NewRecord, Node, Record, Store,
    StoreError, Tenant, Tree, json, work,
};

/// How many records are read at a time.
const PAGE: u32 = 512;
/// The log that names a tenant's agents.
const INDEX: &str = "letta.agents";

/// The kinds of records.
mod kind {
    pub(super) const AGENT: &str = "agent";
    pub(super) const CONVERSATION: &str = "conversation";
    pub(super) const DELETED: &str = "deleted";
}

/// The members that an agent or a conversation is declared with, verbatim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Members(Vec<(Name, Json)>);

impl Members {
    pub(crate) fn of(node: Node<'_>) -> Self {
        let mut all = Self::default();
        all.merge(node.members());
        all
    }

    /// Sets all of these members. Where a name is repeated, the last value counts.
    pub(crate) fn merge<'t>(&mut self, members: impl Iterator<Item = (Node<'t>, Node<'t>)>) {
        let known = self.0.iter().enumerate();
        let mut places: HashMap<Name, usize> =
            known.map(|(place, (name, _))| (Name::clone(name), place)).collect();
        for (name, value) in members {
            let Some(name) = name.name() else { continue };
            work::step();
            match places.get(&name).and_then(|place| self.0.get_mut(*place)) {
                Some((_, known)) => *known = value.json(),
                None => {
                    places.insert(Name::clone(&name), self.0.len());
                    self.0.push((name, value.json()));
                }
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        work::steps(self.0.len());
        let found = self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| value);
        found.filter(|value| value.as_str() != "null")
    }

    pub(crate) fn text(&self, name: &str) -> Option<Name> {
        self.get(name).and_then(|value| value.tree().root().name())
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<Name> {
        let tree = self.get(name).map(Json::tree);
        let list = tree.iter().flat_map(|tree| tree.root().elements());
        list.filter_map(Node::name).collect()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(|value| value.tree().root().u64())
    }

    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        self.get(name).and_then(|value| value.tree().root().bool())
    }

    pub(crate) fn set(&mut self, name: &str, value: Json) {
        work::steps(self.0.len());
        match self.0.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = value,
            None => self.0.push((Name::from(name), value)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Json)> + Clone {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    fn json(&self) -> Json {
        json::object_of(self.iter())
    }
}

/// An agent or a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) id: Name,
    /// The agent of a conversation.
    pub(crate) agent: Option<Name>,
    pub(crate) members: Members,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// The conversations of an agent, oldest first.
    pub(crate) conversations: Vec<Name>,
    is_deleted: bool,
}

impl Kept {
    /// An agent that is not kept yet.
    pub(crate) fn draft(id: Name, members: Members, now: Timestamp) -> Self {
        Self {
            id,
            agent: None,
            members,
            created: now,
            updated: now,
            conversations: Vec::new(),
            is_deleted: false,
        }
    }

    pub(crate) fn thread(&self) -> LogId {
        LogId(self.id.clone())
    }
}

/// The agents and conversations of a tenant.
#[derive(Clone, Copy)]
pub(crate) struct House<'s> {
    pub(crate) store: &'s dyn Store,
    pub(crate) tenant: &'s Tenant,
}

impl House<'_> {
    /// The agent of that id.
    pub(crate) async fn agent(&self, id: &str) -> Result<Option<Kept>, StoreError> {
        Ok(self.read(id).await?.filter(|kept| kept.agent.is_none()))
    }

    /// The conversation of that id.
    pub(crate) async fn conversation(&self, id: &str) -> Result<Option<Kept>, StoreError> {
        Ok(self.read(id).await?.filter(|kept| kept.agent.is_some()))
    }

    async fn read(&self, id: &str) -> Result<Option<Kept>, StoreError> {
        let mut kept: Option<Kept> = None;
        for record in self.records(&definition_of(id)).await? {
            let Some(tree) = tree_of(&record) else { continue };
            let root = tree.root();
            match &*record.kind {
                kind::AGENT => {
                    let draft = || Kept::draft(Name::from(id), Members::default(), record.at);
                    let kept = kept.get_or_insert_with(draft);
                    (kept.members, kept.updated) = (Members::of(root), record.at);
                }
                // In a conversation's log it says what the conversation is; in an agent's, that there is one.
                kind::CONVERSATION => match (root.name_of("id"), &mut kept) {
                    (Some(conversation), Some(kept)) => kept.conversations.push(conversation),
                    (_, kept) => {
                        let created = kept.as_ref().map_or(record.at, |kept| kept.created);
                        *kept = Some(Kept {
                            agent: root.name_of("agent_id"),
                            updated: record.at,
                            ..Kept::draft(Name::from(id), Members::of(root), created)
                        });
                    }
                },
                kind::DELETED => {
                    if let Some(kept) = &mut kept {
                        kept.is_deleted = true;
                    }
                }
                _ => {}
            }
        }
        Ok(kept.filter(|kept| !kept.is_deleted))
    }

    /// The ids of the agents, oldest first.
    pub(crate) async fn agents(&self) -> Result<Vec<Name>, StoreError> {
        let mut ids: Vec<Name> = Vec::new();
        for record in self.records(&LogId::from(INDEX)).await? {
            let id = tree_of(&record).and_then(|tree| tree.root().name_of("id"));
            let Some(id) = id else { continue };
            match &*record.kind {
                kind::DELETED => ids.retain(|known| *known != id),
                _ => ids.push(id),
            }
        }
        Ok(ids)
    }

    /// Makes an agent: its Thread, its log, and its line in the list.
    pub(crate) async fn create_agent(
        &self,
        id: &Name,
        members: &Members,
    ) -> Result<(), StoreError> {
        let thread = LogId(id.clone());
        let definition = Append::to(definition_of(id))
            .opening(LogOpening::run(thread.clone()))
            .record(NewRecord::new(kind::AGENT, members.json().bytes().clone()));
        let batch = Batch::of(self.tenant.clone())
            .append(Append::to(thread).opening(LogOpening::thread()))
            .append(definition);
        self.commit_with_line(batch, kind::AGENT, id).await
    }

    /// Makes a conversation with an agent: a Thread of its own, or one that shares another's history.
    pub(crate) async fn create_conversation(
        &self,
        agent: &Name,
        id: &Name,
        members: &Members,
        fork: Option<ForkPoint>,
    ) -> Result<(), StoreError> {
        let thread = LogId(id.clone());
        let opening = LogOpening { fork, ..LogOpening::thread() };
        let definition = Append::to(definition_of(id))
            .opening(LogOpening::run(thread.clone()))
            .record(NewRecord::new(kind::CONVERSATION, of_agent(agent, members)));
        let line = NewRecord::new(kind::CONVERSATION, named(id).bytes().clone());
        let batch = Batch::of(self.tenant.clone())
            .append(Append::to(thread).opening(opening))
            .append(definition)
            .append(Append::to(definition_of(agent)).record(line));
        self.store.commit(batch).await.map(drop)
    }

    /// An agent or a conversation is declared with these members from now on.
    pub(crate) async fn change(&self, kept: &Kept, members: &Members) -> Result<(), StoreError> {
        let record = match &kept.agent {
            None => NewRecord::new(kind::AGENT, members.json().bytes().clone()),
            Some(agent) => NewRecord::new(kind::CONVERSATION, of_agent(agent, members)),
        };
        let append = Append::to(definition_of(&kept.id)).record(record);
        self.store.commit(Batch::of(self.tenant.clone()).append(append)).await.map(drop)
    }

    /// An agent or a conversation is no more. Its history stays until it is forgotten.
    pub(crate) async fn delete(&self, kept: &Kept) -> Result<(), StoreError> {
        let record = NewRecord::new(kind::DELETED, named(&kept.id).bytes().clone());
        let append = Append::to(definition_of(&kept.id)).record(record);
        let batch = Batch::of(self.tenant.clone()).append(append);
        match &kept.agent {
            None => self.commit_with_line(batch, kind::DELETED, &kept.id).await,
            Some(_) => self.store.commit(batch).await.map(drop),
        }
    }

    /// Commits with a line in the list of agents, which begins with the first.
    async fn commit_with_line(
        &self,
        batch: Batch,
        kind: &str,
        id: &Name,
    ) -> Result<(), StoreError> {
        let line = Append::to(INDEX).record(NewRecord::new(kind, named(id).bytes().clone()));
        let whole = |line: Append| batch.clone().append(line);
        let mut done = self.store.commit(whole(line.clone())).await;
        if matches!(done, Err(StoreError::NotFound { .. })) {
            done = self.store.commit(whole(line.clone().opening(LogOpening::thread()))).await;
            if let Err(StoreError::Conflict { .. } | StoreError::Invalid(_)) = done {
                // Somebody else has begun the list meanwhile.
                done = self.store.commit(whole(line)).await;
            }
        }
        done.map(drop)
    }

    async fn records(&self, log: &LogId) -> Result<Vec<Record>, StoreError> {
        let mut all: Vec<Record> = Vec::new();
        if self.store.log(self.tenant, log).await?.is_none() {
            return Ok(all);
        }
        loop {
            let after = all.last().map_or(0, |record| record.seq);
            let page = self.store.read(self.tenant, log, after, PAGE).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }
}

/// The log that says what the Thread of that id is.
fn definition_of(id: &str) -> LogId {
    LogId::from(format!("{id}.definition"))
}

fn tree_of(record: &Record) -> Option<Tree> {
    Tree::parse(record.content.bytes()?.clone()).ok()
}

fn named(id: &str) -> Json {
    json::object(|o| {
        o.string("id", id);
    })
}

fn of_agent(agent: &str, members: &Members) -> bytes::Bytes {
    let all = json::object(|o| {
        o.string("agent_id", agent);
        for (name, value) in members.iter().filter(|(name, _)| !matches!(*name, "agent_id" | "id"))
        {
            o.raw(name, value);
        }
    });
    all.bytes().clone()
}
