//! Storage of agents and conversations.
//!
//! Each agent and conversation has a Thread under its own id and a definition log. Every record of
//! the definition log contains all fields, and the latest record wins. One log per tenant lists the
//! agents. An agent's definition log also lists its conversations.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use throughline_core::{
    Append, Batch, ForkPoint, LogId, LogOpening, NewRecord, Record, Store, Tenant,
};
use throughline_json::{self as json, Json, Name, Node, Tree, work};

use crate::object::object;
use crate::records::{RecordPages, StoreResult, commit_with_entry};

/// The log that lists a tenant's agents.
const INDEX: &str = "letta.agents";

/// Record kinds of the definition logs.
mod kind {
    pub(super) const AGENT: &str = "agent";
    pub(super) const CONVERSATION: &str = "conversation";
    pub(super) const DELETED: &str = "deleted";
}

/// The fields of an agent or conversation as the client sent them, verbatim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Members(Vec<(Name, Json)>);

impl Members {
    pub(crate) fn new(node: Node<'_>) -> Self {
        let mut all = Self::default();
        all.merge(node.members());
        all
    }

    /// Sets these fields. If a field name is repeated, the last value wins.
    pub(crate) fn merge<'t>(&mut self, members: impl Iterator<Item = (Node<'t>, Node<'t>)>) {
        let known = self.0.iter().enumerate();
        let mut positions: HashMap<Name, usize> =
            known.map(|(position, (name, _))| (Name::clone(name), position)).collect();
        for (name, value) in members {
            let Some(name) = name.name() else { continue };
            work::step();
            match positions.get(&name).and_then(|position| self.0.get_mut(*position)) {
                Some((_, known)) => *known = value.json(),
                None => {
                    positions.insert(Name::clone(&name), self.0.len());
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

    /// Parses a field that contains a list; returns an empty list if the field is missing.
    pub(crate) fn list(&self, name: &str) -> Tree {
        self.get(name).map_or_else(|| json::array(|_| {}).tree(), Json::tree)
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<Name> {
        self.list(name).root().elements().filter_map(Node::name).collect()
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
    /// The agent that a conversation belongs to; `None` for an agent.
    pub(crate) agent: Option<Name>,
    pub(crate) members: Members,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// The ids of an agent's conversations, oldest first.
    pub(crate) conversations: Vec<Name>,
    is_deleted: bool,
}

impl AgentRecord {
    /// Creates an agent record that is not stored yet.
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

    /// Returns an agent's own Thread, followed by the Threads of its conversations.
    pub(crate) fn threads(&self) -> impl Iterator<Item = LogId> {
        std::iter::once(&self.id).chain(&self.conversations).cloned().map(LogId)
    }
}

/// Returns the Threads that a tenant's agents need: the list of agents, and the Thread of each
/// agent that was not deleted. The conversations of agents are not included.
pub async fn agent_threads(store: &dyn Store, tenant: &Tenant) -> StoreResult<Vec<LogId>> {
    let agents = AgentStore { store, tenant }.agents().await?;
    Ok(std::iter::once(LogId::from(INDEX)).chain(agents.into_iter().map(LogId)).collect())
}

/// Reads and writes the agents and conversations of one tenant.
#[derive(Clone, Copy)]
pub(crate) struct AgentStore<'s> {
    pub(crate) store: &'s dyn Store,
    pub(crate) tenant: &'s Tenant,
}

impl AgentStore<'_> {
    pub(crate) async fn agent(&self, id: &str) -> StoreResult<Option<AgentRecord>> {
        Ok(self.read(id).await?.filter(|found| found.agent.is_none()))
    }

    pub(crate) async fn conversation(&self, id: &str) -> StoreResult<Option<AgentRecord>> {
        Ok(self.read(id).await?.filter(|found| found.agent.is_some()))
    }

    async fn read(&self, id: &str) -> StoreResult<Option<AgentRecord>> {
        let mut found: Option<AgentRecord> = None;
        for record in self.records(&definition_log(id)).await? {
            let Some(tree) = tree_of(&record) else { continue };
            let root = tree.root();
            match &*record.kind {
                kind::AGENT => {
                    let draft =
                        || AgentRecord::draft(Name::from(id), Members::default(), record.at);
                    let found = found.get_or_insert_with(draft);
                    (found.members, found.updated) = (Members::new(root), record.at);
                }
                // In a conversation's log this record holds its members; in an agent's log it names
                // a conversation.
                kind::CONVERSATION => match (root.name_of("id"), &mut found) {
                    (Some(conversation), Some(found)) => found.conversations.push(conversation),
                    (_, found) => {
                        let created = found.as_ref().map_or(record.at, |found| found.created);
                        *found = Some(AgentRecord {
                            agent: root.name_of("agent_id"),
                            updated: record.at,
                            ..AgentRecord::draft(Name::from(id), Members::new(root), created)
                        });
                    }
                },
                kind::DELETED => {
                    if let Some(found) = &mut found {
                        found.is_deleted = true;
                    }
                }
                _ => {}
            }
        }
        Ok(found.filter(|found| !found.is_deleted))
    }

    /// Returns the ids of the tenant's agents, oldest first.
    pub(crate) async fn agents(&self) -> StoreResult<Vec<Name>> {
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
    pub(crate) async fn create_agent(&self, id: &Name, members: &Members) -> StoreResult<()> {
        let batch = self.open_logs(id, members_record(None, members), None);
        let entry = Append::new(INDEX).record(id_record(kind::AGENT, id));
        commit_with_entry(self.store, &batch, &entry).await.map(drop)
    }

    /// Creates a conversation with an agent: an empty Thread, or a fork of another Thread.
    pub(crate) async fn create_conversation(
        &self,
        agent: &Name,
        id: &Name,
        members: &Members,
        fork: Option<ForkPoint>,
    ) -> StoreResult<()> {
        let entry = Append::new(definition_log(agent)).record(id_record(kind::CONVERSATION, id));
        let batch = self.open_logs(id, members_record(Some(agent), members), fork).append(entry);
        self.store.commit(batch).await.map(drop)
    }

    /// Returns a batch that creates a Thread and its definition log.
    fn open_logs(&self, id: &Name, definition: NewRecord, fork: Option<ForkPoint>) -> Batch {
        let thread = LogId(id.clone());
        let opening = LogOpening { fork, ..LogOpening::thread() };
        let definition = Append::new(definition_log(id)).record(definition);
        Batch::new(self.tenant.clone())
            .append(Append::new(thread.clone()).opening(opening))
            .append(definition.opening(LogOpening::run(thread)))
    }

    /// Replaces the fields of an agent or conversation.
    pub(crate) async fn change(&self, known: &AgentRecord, members: &Members) -> StoreResult<()> {
        let record = members_record(known.agent.as_ref(), members);
        let append = Append::new(definition_log(&known.id)).record(record);
        self.store.commit(Batch::new(self.tenant.clone()).append(append)).await.map(drop)
    }

    /// Marks an agent or conversation as deleted. The stored history remains until it is forgotten.
    pub(crate) async fn delete(&self, found: &AgentRecord) -> StoreResult<()> {
        let append =
            Append::new(definition_log(&found.id)).record(id_record(kind::DELETED, &found.id));
        let batch = Batch::new(self.tenant.clone()).append(append);
        match &found.agent {
            None => {
                let entry = Append::new(INDEX).record(id_record(kind::DELETED, &found.id));
                commit_with_entry(self.store, &batch, &entry).await.map(drop)
            }
            Some(_) => self.store.commit(batch).await.map(drop),
        }
    }

    async fn records(&self, log: &LogId) -> StoreResult<Vec<Record>> {
        let mut all: Vec<Record> = Vec::new();
        if self.store.log(self.tenant, log).await?.is_some() {
            let mut pages = RecordPages::new(self.store, self.tenant, log, 0);
            while let Some(page) = pages.next().await? {
                all.extend(page);
            }
        }
        Ok(all)
    }
}

fn definition_log(id: &str) -> LogId {
    LogId::from(format!("{id}.definition"))
}

fn tree_of(record: &Record) -> Option<Tree> {
    Tree::parse(record.content.bytes()?.clone()).ok()
}

fn id_record(kind: &str, id: &str) -> NewRecord {
    NewRecord::new(kind, object! { "id": id }.bytes().clone())
}

/// Returns a record that contains the fields of an agent, or of a conversation with that agent.
fn members_record(agent: Option<&Name>, members: &Members) -> NewRecord {
    let Some(agent) = agent else {
        return NewRecord::new(kind::AGENT, members.json().bytes().clone());
    };
    let all = json::object(|o| {
        o.string("agent_id", agent);
        for (name, value) in members.iter().filter(|(name, _)| !matches!(*name, "agent_id" | "id"))
        {
            o.raw(name, value);
        }
    });
    NewRecord::new(kind::CONVERSATION, all.bytes().clone())
}
