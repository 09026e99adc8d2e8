//! Storage of agents and conversations.
//!
//! Each has a Thread under its own id and a definition log. Every record of that log contains all
//! members, and the latest record wins. A log of the tenant lists the agents; the definition log of
//! an agent also lists its conversations.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use throughline_core::{
    Append, Batch, ForkPoint, LogId, LogOpening, NewRecord, Record, Store, StoreError, Tenant,
};
use throughline_json::{self as json, Json, Name, Node, Tree, work};

/// Number of records per store read.
const PAGE: u32 = 512;
/// The log that lists a tenant's agents.
const INDEX: &str = "letta.agents";

/// Record kinds of the definition logs.
mod kind {
    pub(super) const AGENT: &str = "agent";
    pub(super) const CONVERSATION: &str = "conversation";
    pub(super) const DELETED: &str = "deleted";
}

/// The members of an agent or conversation as the client sent them, verbatim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Members(Vec<(Name, Json)>);

impl Members {
    pub(crate) fn of(node: Node<'_>) -> Self {
        let mut all = Self::default();
        all.merge(node.members());
        all
    }

    /// Sets all of these members. For a repeated name, the last value wins.
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

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// A stored agent or conversation.
#[derive(Clone, Debug)]
pub(crate) struct AgentRecord {
    pub(crate) id: Name,
    /// The agent of a conversation; `None` for an agent.
    pub(crate) agent: Option<Name>,
    pub(crate) members: Members,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// The conversations of an agent, oldest first.
    pub(crate) conversations: Vec<Name>,
    is_deleted: bool,
}

impl AgentRecord {
    /// An agent that is not stored yet.
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

/// The agents and conversations of one tenant.
#[derive(Clone, Copy)]
pub(crate) struct AgentStore<'s> {
    pub(crate) store: &'s dyn Store,
    pub(crate) tenant: &'s Tenant,
}

impl AgentStore<'_> {
    /// Reads an agent.
    pub(crate) async fn agent(&self, id: &str) -> Result<Option<AgentRecord>, StoreError> {
        Ok(self.read(id).await?.filter(|kept| kept.agent.is_none()))
    }

    /// Reads a conversation.
    pub(crate) async fn conversation(&self, id: &str) -> Result<Option<AgentRecord>, StoreError> {
        Ok(self.read(id).await?.filter(|kept| kept.agent.is_some()))
    }

    async fn read(&self, id: &str) -> Result<Option<AgentRecord>, StoreError> {
        let mut kept: Option<AgentRecord> = None;
        for record in self.records(&definition_log(id)).await? {
            let Some(tree) = tree_of(&record) else { continue };
            let root = tree.root();
            match &*record.kind {
                kind::AGENT => {
                    let draft =
                        || AgentRecord::draft(Name::from(id), Members::default(), record.at);
                    let kept = kept.get_or_insert_with(draft);
                    (kept.members, kept.updated) = (Members::of(root), record.at);
                }
                // In a conversation's log this record holds its members; in an agent's log it names
                // a conversation.
                kind::CONVERSATION => match (root.name_of("id"), &mut kept) {
                    (Some(conversation), Some(kept)) => kept.conversations.push(conversation),
                    (_, kept) => {
                        let created = kept.as_ref().map_or(record.at, |kept| kept.created);
                        *kept = Some(AgentRecord {
                            agent: root.name_of("agent_id"),
                            updated: record.at,
                            ..AgentRecord::draft(Name::from(id), Members::of(root), created)
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

    /// Creates an agent: its Thread, its definition log, and its entry in the index.
    pub(crate) async fn create_agent(
        &self,
        id: &Name,
        members: &Members,
    ) -> Result<(), StoreError> {
        let thread = LogId(id.clone());
        let definition = Append::new(definition_log(id))
            .opening(LogOpening::run(thread.clone()))
            .record(NewRecord::new(kind::AGENT, members.json().bytes().clone()));
        let batch = Batch::new(self.tenant.clone())
            .append(Append::new(thread).opening(LogOpening::thread()))
            .append(definition);
        self.commit_with_index_entry(batch, kind::AGENT, id).await
    }

    /// Creates a conversation with an agent: an empty Thread, or a fork of another one.
    pub(crate) async fn create_conversation(
        &self,
        agent: &Name,
        id: &Name,
        members: &Members,
        fork: Option<ForkPoint>,
    ) -> Result<(), StoreError> {
        let thread = LogId(id.clone());
        let opening = LogOpening { fork, ..LogOpening::thread() };
        let definition = Append::new(definition_log(id))
            .opening(LogOpening::run(thread.clone()))
            .record(NewRecord::new(kind::CONVERSATION, conversation_members(agent, members)));
        let line = NewRecord::new(kind::CONVERSATION, named(id).bytes().clone());
        let batch = Batch::new(self.tenant.clone())
            .append(Append::new(thread).opening(opening))
            .append(definition)
            .append(Append::new(definition_log(agent)).record(line));
        self.store.commit(batch).await.map(drop)
    }

    /// Replaces the members of an agent or conversation.
    pub(crate) async fn change(
        &self,
        kept: &AgentRecord,
        members: &Members,
    ) -> Result<(), StoreError> {
        let record = match &kept.agent {
            None => NewRecord::new(kind::AGENT, members.json().bytes().clone()),
            Some(agent) => NewRecord::new(kind::CONVERSATION, conversation_members(agent, members)),
        };
        let append = Append::new(definition_log(&kept.id)).record(record);
        self.store.commit(Batch::new(self.tenant.clone()).append(append)).await.map(drop)
    }

    /// Marks an agent or conversation as deleted. Its history remains until it is forgotten.
    pub(crate) async fn delete(&self, kept: &AgentRecord) -> Result<(), StoreError> {
        let record = NewRecord::new(kind::DELETED, named(&kept.id).bytes().clone());
        let append = Append::new(definition_log(&kept.id)).record(record);
        let batch = Batch::new(self.tenant.clone()).append(append);
        match &kept.agent {
            None => self.commit_with_index_entry(batch, kind::DELETED, &kept.id).await,
            Some(_) => self.store.commit(batch).await.map(drop),
        }
    }

    /// Commits the batch together with an index entry, and creates the index if it is missing.
    async fn commit_with_index_entry(
        &self,
        batch: Batch,
        kind: &str,
        id: &Name,
    ) -> Result<(), StoreError> {
        let line = Append::new(INDEX).record(NewRecord::new(kind, named(id).bytes().clone()));
        let whole = |line: Append| batch.clone().append(line);
        let mut done = self.store.commit(whole(line.clone())).await;
        if matches!(done, Err(StoreError::NotFound { .. })) {
            done = self.store.commit(whole(line.clone().opening(LogOpening::thread()))).await;
            if let Err(StoreError::Conflict { .. } | StoreError::Invalid(_)) = done {
                // Another process created the index at the same time.
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

/// The definition log of an agent or conversation.
fn definition_log(id: &str) -> LogId {
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

fn conversation_members(agent: &str, members: &Members) -> bytes::Bytes {
    let all = json::object(|o| {
        o.string("agent_id", agent);
        for (name, value) in members.iter().filter(|(name, _)| !matches!(*name, "agent_id" | "id"))
        {
            o.raw(name, value);
        }
    });
    all.bytes().clone()
}
