//! Ownership of the objects that providers hold: stored responses, files, batches and the like.
//!
//! Many tenants may share one account at a provider, so the provider cannot tell them apart. The gateway therefore records every
//! object id that a tenant receives. With a gateway key, a request may name only ids that the key's tenant owns.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | the paths that name objects, per dialect, as data |
//! | `body.rs` | the members of a request body that name objects, per dialect, as data |
//! | `form.rs` | the objects that forms and uploaded files name |
//! | `answers.rs` | the ids in answers, and lists with only the tenant's objects |
//! | `passthrough.rs` | the paths that the operator allows although the gateway does not know them |
//!
//! An owned id is a key of the Vault. A captured turn carries the keys of its own ids, so a call needs no further write. Every other
//! id is recorded in the log [`LOG`] of its tenant.

mod answers;
mod body;
mod form;
mod passthrough;
mod routes;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use throughline_core::{
    Append, Batch, Content, Digest, LogId, LogOpening, Name, NewRecord, Node, Origin, Reply,
    StoreError, Tenant, Tree, VaultKey, VaultNode, VaultTurn, Wire, json, kind, restore_items,
};

pub(crate) use crate::objects::answers::{EventIds, filter_list, ids_at, listed};
pub(crate) use crate::objects::body::object_ids;
pub use crate::objects::body::object_members;
pub(crate) use crate::objects::form::{described_file, ids_in_form, ids_in_lines};
pub(crate) use crate::objects::passthrough::METHODS;
pub use crate::objects::passthrough::{InvalidPattern, Passthrough};
pub use crate::objects::routes::object_routes;
pub(crate) use crate::objects::routes::{Gives, List, find as find_route, methods_of};
use crate::replay::{Claims, Replay};

/// The log in which a tenant's objects are recorded.
pub(crate) const LOG: &str = "gateway.objects";

/// The kind of a record that names one object.
const OBJECT: &str = "object";

/// How many owned ids are cached. The cache is cleared when it is full.
const CACHED: usize = 16_384;

/// The dialects that share ids: an object of one wire of a vendor is an object of the vendor's other wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    OpenAi,
    Anthropic,
    Gemini,
}

impl Family {
    /// Its name.
    fn as_str(self) -> &'static str {
        match self {
            Family::OpenAi => "openai",
            Family::Anthropic => "anthropic",
            Family::Gemini => "gemini",
        }
    }

    /// The family of a wire; nothing for a wire whose requests name no objects.
    pub(crate) fn of(wire: &Wire) -> Option<Self> {
        match wire.as_str() {
            "openai-chat" | "openai-responses" => Some(Family::OpenAi),
            "anthropic-messages" => Some(Family::Anthropic),
            "gemini" => Some(Family::Gemini),
            _ => None,
        }
    }
}

macro_rules! kinds {
    ($($kind:ident $word:literal $path:literal;)*) => {
        /// What sort of object an id names. The words are stored: they never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum ObjectKind { $($kind,)* }

        impl ObjectKind {
            /// The stored word.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(ObjectKind::$kind => $word,)* }
            }

            /// The path under which the provider shows such objects.
            fn collection(self) -> &'static str {
                match self { $(ObjectKind::$kind => $path,)* }
            }
        }
    };
}

kinds! {
    Response "response" "/v1/responses";
    Conversation "conversation" "/v1/conversations";
    Item "item" "/v1/items";
    File "file" "/v1/files";
    Batch "batch" "/v1/batches";
    Completion "completion" "/v1/chat/completions";
    Audio "audio" "/v1/audio";
    Container "container" "/v1/containers";
    VectorStore "vector_store" "/v1/vector_stores";
    Prompt "prompt" "/v1/prompts";
    Skill "skill" "/v1/skills";
    Thread "thread" "/v1/threads";
    CachedContent "cached_content" "/v1beta/cachedContents";
    FileSearchStore "file_search_store" "/v1beta/fileSearchStores";
    Interaction "interaction" "/v1beta/interactions";
    Upload "upload" "/upload";
}

impl ObjectKind {
    /// The path of one object of a dialect, as `passthrough` can name it.
    pub(crate) fn path_of(self, family: Family, id: &str) -> String {
        let collection = match (family, self) {
            (Family::Gemini, ObjectKind::File) => "/v1beta/files",
            (Family::Gemini, ObjectKind::Batch) => "/v1beta/batches",
            (Family::Anthropic, ObjectKind::Batch) => "/v1/messages/batches",
            (Family::OpenAi | Family::Anthropic | Family::Gemini, kind) => kind.collection(),
        };
        format!("{collection}/{id}")
    }
}

/// An object that a tenant received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    pub(crate) kind: ObjectKind,
    pub(crate) id: Name,
}

/// An object that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRef {
    pub(crate) object: ObjectId,
    /// The member of the body that names it; nothing where the path does.
    pub(crate) member: Option<&'static str>,
}

impl ObjectRef {
    pub(crate) fn new(kind: ObjectKind, id: Name, member: Option<&'static str>) -> Self {
        Self { object: ObjectId { kind, id }, member }
    }
}

/// The account whose objects an origin reaches: the caller's own account, or else the provider's host.
pub(crate) fn account_of(origin: &Origin) -> &str {
    if origin.account.starts_with(Claims::CALLER) { &origin.account } else { &origin.endpoint }
}

/// The key under which the Vault finds the owner of an object.
fn owner_key(account: &str, object: &ObjectId) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("throughline 2026-11 object owner v1");
    for word in [account, object.kind.as_str(), &object.id] {
        hasher.update(&(word.len() as u64).to_le_bytes());
        hasher.update(word.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// The keys of the objects that a reply hands to its caller. `asked` is the request's body.
pub(crate) fn keys_of_reply(reply: &Reply, asked: Option<&Bytes>) -> Vec<VaultKey> {
    let account = account_of(&reply.origin);
    let ids = ids_of_reply(reply, asked);
    ids.iter().map(|object| VaultKey::Chain(owner_key(account, object))).collect()
}

/// The objects that a reply hands to its caller.
pub(crate) fn ids_of_reply(reply: &Reply, asked: Option<&Bytes>) -> Vec<ObjectId> {
    let mut ids = Vec::new();
    let mut add = |kind: ObjectKind, id: Option<Name>| {
        ids.extend(id.filter(|id| !id.is_empty()).map(|id| ObjectId { kind, id }));
    };
    let extra = |key: &str| {
        let found = reply.extras.iter().find(|(name, _)| **name == *key);
        found.map(|(_, value)| value.tree())
    };
    let extra_id = |key: &str| extra(key).and_then(|tree| tree.root().name_of("id"));
    match Family::of(&reply.origin.wire) {
        Some(Family::OpenAi) if reply.origin.wire == Wire::OPENAI_RESPONSES => {
            add(ObjectKind::Response, reply.id.clone());
            add(ObjectKind::Conversation, extra_id("conversation"));
            for native in reply.items.iter().filter_map(|item| item.native.as_ref()) {
                add(ObjectKind::Item, native.id.clone());
            }
        }
        Some(Family::OpenAi) => {
            add(ObjectKind::Completion, reply.id.clone());
            add(ObjectKind::Audio, extra_id("audio"));
        }
        Some(Family::Anthropic) => {
            add(ObjectKind::Container, extra_id("container"));
            let thread = extra("thread");
            let is_asked =
                asked.is_some_and(|body| memchr::memmem::find(body, b"\"thread\"").is_some());
            if thread.is_some() || is_asked {
                add(ObjectKind::Thread, reply.id.clone());
                add(ObjectKind::Thread, thread.and_then(|tree| tree.root().name_of("id")));
            }
        }
        Some(Family::Gemini) | None => return Vec::new(),
    }
    for native in reply.items.iter().filter_map(|item| item.native.as_ref()) {
        if memchr::memmem::find(native.json.bytes(), b"_id").is_some() {
            ids.extend(ids_made_by_tools(native.json.tree().root()));
        }
    }
    ids
}

/// The files and containers that tools of the provider made, at the places where the provider itself writes their ids. Other places,
/// such as the arguments of a call or the results of a search, hold text that a caller can choose.
fn ids_made_by_tools(item: Node<'_>) -> Vec<ObjectId> {
    let kind = item.text_of("type").unwrap_or_default();
    let family = Family::OpenAi;
    match &*kind {
        "code_interpreter_call" => ids_at(family, item, &[("container_id", ObjectKind::Container)]),
        "output_text" => ids_at(family, item, CITED),
        "message" => {
            let parts = item.get("content").into_iter().flat_map(Node::elements);
            let texts = parts.filter(|part| part.text_of("type").as_deref() == Some("output_text"));
            texts.flat_map(|text| ids_at(family, text, CITED)).collect()
        }
        kind if kind.ends_with("code_execution_tool_result") => {
            ids_at(family, item, &[("content.content[].file_id", ObjectKind::File)])
        }
        _ => Vec::new(),
    }
}

/// The places of ids in the annotations that OpenAI adds to a text.
const CITED: &[(&str, ObjectKind)] = &[
    ("annotations[].container_id", ObjectKind::Container),
    ("annotations[].file_id", ObjectKind::File),
];

/// A bounded cache of ids that are known to be owned. Ownership never ends, so an entry never becomes wrong.
#[derive(Default)]
pub(crate) struct OwnedIds(Mutex<HashSet<(Tenant, Digest)>>);

impl OwnedIds {
    fn has(&self, tenant: &Tenant, key: &Digest) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&(tenant.clone(), *key))
    }

    fn add(&self, tenant: &Tenant, key: Digest) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CACHED {
            known.clear();
        }
        known.insert((tenant.clone(), key));
    }
}

impl Replay {
    /// For each object, whether the tenant received it from that account.
    pub(crate) async fn owns(
        &self,
        tenant: &Tenant,
        account: &str,
        objects: &[&ObjectId],
    ) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<Digest> = objects.iter().map(|object| owner_key(account, object)).collect();
        let mut owned: Vec<bool> = keys.iter().map(|key| self.owned.has(tenant, key)).collect();
        let unknown: Vec<usize> =
            owned.iter().enumerate().filter(|(_, owned)| !**owned).map(|(at, _)| at).collect();
        if unknown.is_empty() {
            return Ok(owned);
        }
        let asked = unknown.iter().filter_map(|at| keys.get(*at));
        let asked: Vec<VaultKey> = asked.map(|key| VaultKey::Chain(*key)).collect();
        let found = self.find(tenant, &asked).await?.found;
        let mut older = Vec::new();
        for (at, found) in unknown.into_iter().zip(found) {
            match found {
                Some(_) => self.note_owned(tenant, &keys, at, &mut owned),
                None => older.push(at),
            }
        }
        for at in self.were_captured(tenant, account, objects, &older).await? {
            self.note_owned(tenant, &keys, at, &mut owned);
        }
        Ok(owned)
    }

    fn note_owned(&self, tenant: &Tenant, keys: &[Digest], at: usize, owned: &mut [bool]) {
        if let (Some(key), Some(place)) = (keys.get(at), owned.get_mut(at)) {
            *place = true;
            self.owned.add(tenant, *key);
        }
    }

    /// Which of these objects stand in captured turns without owner keys: stores of earlier versions hold such turns.
    async fn were_captured(
        &self,
        tenant: &Tenant,
        account: &str,
        objects: &[&ObjectId],
        places: &[usize],
    ) -> Result<Vec<usize>, StoreError> {
        let asked = places.iter().filter_map(|at| Some((*at, *objects.get(*at)?)));
        let asked: Vec<(usize, &ObjectId)> = asked
            .filter(|(_, object)| matches!(object.kind, ObjectKind::Response | ObjectKind::Item))
            .collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<VaultKey> =
            asked.iter().map(|(_, object)| VaultKey::Id(object.id.clone())).collect();
        let found = self.find(tenant, &keys).await?.found;
        let mut captured = Vec::new();
        for ((at, _), found) in asked.into_iter().zip(found) {
            if let Some(found) = found
                && found.turn.gone.is_none()
                && self.answered_at(tenant, &found.turn, account).await?
            {
                captured.push(at);
            }
        }
        Ok(captured)
    }

    /// Whether that account gave the answer of a captured turn.
    async fn answered_at(
        &self,
        tenant: &Tenant,
        turn: &VaultTurn,
        account: &str,
    ) -> Result<bool, StoreError> {
        let count = turn.last.saturating_sub(turn.first) + 1;
        let limit = u32::try_from(count).unwrap_or(u32::MAX);
        let records =
            self.store().read(tenant, &turn.log, turn.first.saturating_sub(1), limit).await?;
        let texts = records.into_iter().filter(|record| *record.kind == *kind::ITEM);
        let texts = texts.map(|record| match record.content {
            Content::Here(text) => Some(text),
            Content::Gone(_) => None,
        });
        let Ok(items) = restore_items(texts) else { return Ok(false) };
        let origins = items.iter().filter_map(|item| item.origin.as_ref());
        Ok(origins.into_iter().any(|origin| account_of(origin) == account))
    }

    /// Notes in memory that the tenant received these objects, because the store failed to record it. This process accepts the ids
    /// until it restarts or the cache is full.
    pub(crate) fn note_unrecorded(&self, tenant: &Tenant, account: &str, objects: &[ObjectId]) {
        for object in objects {
            self.owned.add(tenant, owner_key(account, object));
        }
    }

    /// Records that the tenant received these objects from that account. Known ones are not written again.
    pub(crate) async fn record_objects(
        &self,
        tenant: &Tenant,
        account: &str,
        objects: &[ObjectId],
    ) -> Result<(), StoreError> {
        let all: Vec<&ObjectId> = objects.iter().collect();
        let owned = self.owns(tenant, account, &all).await?;
        let mut seen = HashSet::new();
        let fresh: Vec<&ObjectId> = all
            .into_iter()
            .zip(owned)
            .filter(|(object, owned)| !owned && seen.insert(*object))
            .map(|(object, _)| object)
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let node = Claims::fresh_node().map_err(|error| StoreError::invalid(error.to_string()))?;
        let batch = |log: &LogId, opening: Option<LogOpening>| {
            let mut append = Append::to(log.clone());
            append.opening = opening;
            for object in &fresh {
                let content = json::object(|o| {
                    o.number("v", 1).string("account", account);
                    o.string("kind", object.kind.as_str()).string("id", &object.id);
                });
                append = append.record(NewRecord::new(OBJECT, content.bytes().clone()));
            }
            let mut batch = Batch::of(tenant.clone()).append(append);
            let keys = fresh.iter().map(|object| VaultKey::Chain(owner_key(account, object)));
            batch.vault.push(VaultNode {
                id: node.clone(),
                parent: None,
                keys: keys.collect(),
                log: log.clone(),
                prefix: None,
            });
            batch
        };
        let shared = LogId::from(LOG);
        // Another process may open the log first, and an operator may have destroyed it.
        let own = LogId::from(format!("{LOG}-{node}"));
        let attempts = [
            (&shared, None),
            (&shared, Some(LogOpening::thread())),
            (&shared, None),
            (&own, Some(LogOpening::thread())),
        ];
        let mut failed = StoreError::Closed;
        for (log, opening) in attempts {
            match self.store().commit(batch(log, opening)).await {
                Ok(_) => {
                    for object in &fresh {
                        self.owned.add(tenant, owner_key(account, object));
                    }
                    return Ok(());
                }
                Err(
                    error @ (StoreError::NotFound { .. }
                    | StoreError::Conflict { .. }
                    | StoreError::Invalid(_)),
                ) => failed = error,
                Err(error) => return Err(error),
            }
        }
        Err(failed)
    }
}

/// The text of a node that is a string and not empty.
fn text_of(node: Node<'_>) -> Option<Name> {
    node.name().filter(|text| !text.is_empty())
}

/// A JSON text as a tree, without a byte order mark and white space around it.
fn parse_line(line: &Bytes) -> Option<Tree> {
    let start = line.iter().position(|byte| *byte == b'{')?;
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf);
    if !line.iter().take(start).all(is_blank) {
        return None;
    }
    let end = line.iter().rposition(|byte| !byte.is_ascii_whitespace())?;
    Tree::parse(line.slice(start..=end)).ok()
}

#[cfg(test)]
#[path = "objects/objects_tests.rs"]
mod objects_tests;
