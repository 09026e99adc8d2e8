//! Ids of objects that providers store for their callers, and the Vault keys that record the
//! owners.
//!
//! Many tenants may share one provider account, and the provider cannot distinguish the tenants.
//! The engine therefore records every object id that a tenant receives, as a Vault key. A captured
//! turn includes the keys for the ids in its reply, so these ids need no further write. Every other
//! id is recorded in the tenant's log [`LOG`].

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use throughline_core::{ACCOUNT_SEPARATOR, Digest, Origin, Reply, Tenant, VaultKey, Wire};
use throughline_json::{Name, Node, Tree, words};

use crate::claim::Claims;

/// The id of the log that records a tenant's objects.
pub const LOG: &str = "gateway.objects";

/// The kind of a record that contains one object id.
pub(crate) const OBJECT: &str = "object";

/// Maximum number of cached ids. The cache is cleared when it is full.
const MAX_CACHED_IDS: usize = 16_384;

words! {
    /// The dialects of one vendor, which share object ids: an object created on one wire exists on
    /// the vendor's other wires. Error messages use these names.
    Family {
        /// OpenAI's Responses and Chat Completions APIs.
        OpenAi = "openai",
        /// Anthropic's Messages API.
        Anthropic = "anthropic",
        /// Google's Gemini API.
        Gemini = "gemini",
    }
}

impl Family {
    /// Returns the family of a wire; `None` if requests on that wire never contain object ids.
    pub fn of(wire: &Wire) -> Option<Self> {
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
        /// The type of an object. The string forms of the types are stored, so they must never
        /// change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ObjectKind { $(#[doc = concat!("`", $word, "`")] $kind,)* }

        impl ObjectKind {
            /// Returns the string that represents the type in the store.
            pub fn as_str(self) -> &'static str {
                match self { $(ObjectKind::$kind => $word,)* }
            }

            /// Returns the URL path of the provider's collection for this type.
            pub fn collection(self) -> &'static str {
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
    /// Returns the URL path of one object in a dialect, in the form used by the `passthrough`
    /// setting.
    pub fn path_of(self, family: Family, id: &str) -> String {
        let collection = match (family, self) {
            (Family::Gemini, ObjectKind::File) => "/v1beta/files",
            (Family::Gemini, ObjectKind::Batch) => "/v1beta/batches",
            (Family::Anthropic, ObjectKind::Batch) => "/v1/messages/batches",
            (Family::OpenAi | Family::Anthropic | Family::Gemini, kind) => kind.collection(),
        };
        format!("{collection}/{id}")
    }
}

/// The type and id of an object that a provider stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId {
    /// The type of the object, such as a file.
    pub kind: ObjectKind,
    /// The provider's id for the object. Gemini ids are stored without their collection prefix.
    pub id: Name,
}

/// Returns the account that owns the objects from an Origin: the caller's own account if the
/// caller's key was used, the account if it is one of several at the provider, otherwise the
/// endpoint.
pub fn account_of(origin: &Origin) -> &str {
    let is_one_of_several = origin.account.contains(ACCOUNT_SEPARATOR);
    if origin.account.starts_with(Claims::CALLER_PREFIX) || is_one_of_several {
        &origin.account
    } else {
        &origin.endpoint
    }
}

/// Returns the Vault key that records the owner of an object.
pub(crate) fn owner_key(account: &str, object: &ObjectId) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("throughline 2026-11 object owner v1");
    for part in [account, object.kind.as_str(), &object.id] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// Returns the Vault keys that record the owner of objects of an Origin's account.
pub(crate) fn owner_keys<'o>(
    origin: &'o Origin,
    objects: &'o [ObjectId],
) -> impl Iterator<Item = VaultKey> + 'o {
    let account = account_of(origin);
    objects.iter().map(move |object| VaultKey::Chain(owner_key(account, object)))
}

/// Returns the objects whose ids a reply contains. `names_thread` is set if the caller's request
/// [names a thread](names_thread).
pub fn ids_of_reply(reply: &Reply, names_thread: bool) -> Vec<ObjectId> {
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
            if is_in_thread(reply, names_thread) {
                add(ObjectKind::Thread, reply.id.clone());
                add(ObjectKind::Thread, extra_id("thread"));
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

/// Returns whether a request body names one of Anthropic's message threads, or starts one.
pub fn names_thread(body: &Tree) -> bool {
    body.root().get("thread").is_some()
}

/// Returns whether a reply belongs to one of Anthropic's message threads, whose later requests name
/// the reply by its id.
fn is_in_thread(reply: &Reply, names_thread: bool) -> bool {
    reply.origin.wire == Wire::ANTHROPIC_MESSAGES
        && (names_thread || reply.extras.iter().any(|(name, _)| &**name == "thread"))
}

/// Returns the files and containers that the provider's tools created. Ids are taken only from
/// members that the provider writes. Other members, such as call arguments or search results,
/// contain text that a caller can choose.
fn ids_made_by_tools(item: Node<'_>) -> Vec<ObjectId> {
    let kind = item.text_of("type").unwrap_or_default();
    let family = Family::OpenAi;
    match &*kind {
        "code_interpreter_call" => ids_at(family, item, &[("container_id", ObjectKind::Container)]),
        "output_text" => ids_at(family, item, ANNOTATION_IDS),
        "message" => {
            let parts = item.get("content").into_iter().flat_map(Node::elements);
            let texts = parts.filter(|part| part.text_of("type").as_deref() == Some("output_text"));
            texts.flat_map(|text| ids_at(family, text, ANNOTATION_IDS)).collect()
        }
        kind if kind.ends_with("code_execution_tool_result") => {
            ids_at(family, item, &[("content.content[].file_id", ObjectKind::File)])
        }
        _ => Vec::new(),
    }
}

/// The paths of object ids in the annotations that OpenAI adds to a text.
const ANNOTATION_IDS: &[(&str, ObjectKind)] = &[
    ("annotations[].container_id", ObjectKind::Container),
    ("annotations[].file_id", ObjectKind::File),
];

/// A bounded cache of owned ids. Ownership never ends, so an entry never becomes stale.
#[derive(Default)]
pub(crate) struct OwnedIds(Mutex<HashSet<(Tenant, Digest)>>);

impl OwnedIds {
    pub(crate) fn has(&self, tenant: &Tenant, key: &Digest) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&(tenant.clone(), *key))
    }

    pub(crate) fn add(&self, tenant: &Tenant, key: Digest) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED_IDS {
            known.clear();
        }
        known.insert((tenant.clone(), key));
    }
}

/// Returns the object ids at these paths in a response. A path consists of member names; `[]`
/// matches every array element.
pub fn ids_at(
    family: Family,
    root: Node<'_>,
    paths: &[(&'static str, ObjectKind)],
) -> Vec<ObjectId> {
    let mut found = Vec::new();
    for (path, kind) in paths {
        let mut nodes = vec![root];
        for step in path.split('.') {
            let name = step.trim_end_matches("[]");
            let next = nodes.into_iter().filter_map(|node| node.get(name));
            let is_list = name.len() < step.len();
            nodes = if is_list { next.flat_map(Node::elements).collect() } else { next.collect() };
        }
        found.extend(nodes.into_iter().filter_map(|node| id_of(family, *kind, node)));
    }
    found
}

/// Reads an object id from a node; `None` unless the node is a non-empty string.
pub fn id_of(family: Family, kind: ObjectKind, node: Node<'_>) -> Option<ObjectId> {
    let id = text_of(node)?;
    let id = if family == Family::Gemini { bare_name(&id) } else { id };
    Some(ObjectId { kind, id })
}

/// Returns a Gemini id without its collection: `files/abc` and `abc` are the same file.
pub fn bare_name(name: &str) -> Name {
    Name::from(name.rsplit('/').next().unwrap_or(name))
}

/// Returns the text of a node; `None` unless the node is a non-empty string.
pub fn text_of(node: Node<'_>) -> Option<Name> {
    node.name().filter(|text| !text.is_empty())
}
