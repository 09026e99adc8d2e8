//! The objects that a request's body names.
//!
//! A member is known by its name, wherever it stands. What a caller puts into a request as data (arguments of tools, schemas,
//! metadata) is skipped: its members mean nothing to the provider.

use std::borrow::Cow;

use throughline_core::{Name, Node, Tree};

use crate::letta::decode_segment;
use crate::objects::ObjectKind::{
    Audio, CachedContent, Container, Conversation, File, FileSearchStore, Interaction, Item,
    Prompt, Response, Skill, Thread, VectorStore,
};
use crate::objects::routes::bare_name;
use crate::objects::{Family, ObjectKind, ObjectRef, text_of};

/// How a member names objects.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// A text, or a list of texts.
    Text,
    /// A text, or an object with an `id`.
    IdOrText,
    /// An object with an `id`.
    Id,
    /// A text, or an object whose texts are all ids, except its `type`.
    Members,
    /// A text that is a URI; only one that names a file of the provider counts.
    Uri,
}

/// A member that names objects.
pub(super) type Member = (&'static str, Form, ObjectKind);

const OPENAI: &[Member] = &[
    ("previous_response_id", Form::Text, Response),
    ("conversation", Form::IdOrText, Conversation),
    ("file_id", Form::Text, File),
    ("file_ids", Form::Text, File),
    ("input_file_id", Form::Text, File),
    ("container_id", Form::Text, Container),
    ("container", Form::IdOrText, Container),
    ("vector_store_ids", Form::Text, VectorStore),
    ("prompt", Form::Id, Prompt),
    ("skill_id", Form::Text, Skill),
    ("audio", Form::Id, Audio),
];

const ANTHROPIC: &[Member] = &[
    ("file_id", Form::Text, File),
    ("container", Form::IdOrText, Container),
    ("skill_id", Form::Text, Skill),
    ("thread", Form::Members, Thread),
];

/// Gemini takes each name in two spellings: they are compared without `_` and case.
const GEMINI: &[Member] = &[
    ("cachedcontent", Form::Text, CachedContent),
    ("fileuri", Form::Uri, File),
    ("uri", Form::Uri, File),
    ("filename", Form::Uri, File),
    ("filesearchstorenames", Form::Text, FileSearchStore),
    ("previousinteractionid", Form::Text, Interaction),
];

/// Members that hold the caller's own data.
const OPENAI_DATA: &[&str] =
    &["metadata", "parameters", "schema", "json_schema", "annotations", "arguments", "attributes"];
const ANTHROPIC_DATA: &[&str] = &["metadata", "input_schema", "schema", "citations"];
const GEMINI_DATA: &[&str] = &[
    "args",
    "parameters",
    "parametersjsonschema",
    "responseschema",
    "responsejsonschema",
    "labels",
];

/// Items that stand for one that the provider stores, unless they carry that member themselves.
const STORED_ITEMS: &[(&str, &str)] = &[
    ("item_reference", ""),
    ("reasoning", "encrypted_content"),
    ("compaction", "encrypted_content"),
    ("image_generation_call", "result"),
];

/// The dialect, name and kind of every member of a body that names an object. Gemini's are without `_` and case.
pub fn object_members() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let families =
        [(Family::OpenAi, OPENAI), (Family::Anthropic, ANTHROPIC), (Family::Gemini, GEMINI)];
    let members = families.into_iter().flat_map(|(family, members)| {
        members.iter().map(move |(name, _, kind)| (family.as_str(), *name, kind.as_str()))
    });
    let items = STORED_ITEMS.iter().map(|(item, _)| ("openai", *item, Item.as_str()));
    members.chain(items)
}

/// The objects that a body names.
pub(crate) fn object_ids(family: Family, body: &Tree) -> Vec<ObjectRef> {
    let mut found = Vec::new();
    let mut left = vec![(body.root(), Place::Elsewhere)];
    while let Some((node, place)) = left.pop() {
        if node.is_array() {
            left.extend(node.elements().map(|element| (element, place)));
            continue;
        }
        if family == Family::OpenAi && node.is_object() {
            found.extend(stored_item(node, place));
        }
        for (key, value) in node.members() {
            let Some(key) = key.text() else { continue };
            let key = spelled(family, key);
            if is_data(family, &key, node, place) {
                continue;
            }
            let named = members_of(family).iter().filter(|(name, _, _)| *name == &*key);
            for (name, form, kind) in named {
                let is_public = *kind == Skill && is_only_type(node, &["anthropic"]);
                let ids = ids(value, *form).into_iter().filter(|_| !is_public);
                let ids = ids.map(|id| if family == Family::Gemini { bare_name(&id) } else { id });
                found.extend(ids.map(|id| ObjectRef::new(*kind, id, Some(name))));
            }
            left.push((value, Place::of(family, &key, place)));
        }
    }
    found
}

/// The members of a dialect that name objects.
pub(super) fn members_of(family: Family) -> &'static [Member] {
    match family {
        Family::OpenAi => OPENAI,
        Family::Anthropic => ANTHROPIC,
        Family::Gemini => GEMINI,
    }
}

/// The objects that a field of a form names. `a[b][]` is the member `b` of `a`.
pub(super) fn ids_of_field(family: Family, field: &str, value: &str) -> Vec<ObjectRef> {
    let steps: Vec<_> = field
        .split('[')
        .map(|step| spelled(family, step.trim_end_matches(']').into()))
        .filter(|step| !step.is_empty())
        .collect();
    let has_id = steps.last().is_some_and(|step| *step == "id");
    let named = members_of(family).iter().filter(|(name, form, _)| {
        steps.iter().any(|step| *step == *name) && (has_id || !matches!(form, Form::Id))
    });
    let ids = named.filter_map(|(name, form, kind)| {
        let id = if matches!(form, Form::Uri) { file_of(value) } else { Some(Name::from(value)) };
        let id = id.map(|id| if family == Family::Gemini { bare_name(&id) } else { id })?;
        Some(ObjectRef::new(*kind, id, Some(name)))
    });
    ids.filter(|named| !named.object.id.is_empty()).collect()
}

/// Where a value stands, as far as that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Elsewhere,
    /// In a list of OpenAI's items.
    Items,
    /// In Gemini's answer of a function.
    FunctionResponse,
}

impl Place {
    fn of(family: Family, key: &str, outer: Place) -> Self {
        match (family, key) {
            (Family::OpenAi, "input" | "items") => Place::Items,
            (Family::Gemini, "functionresponse") => Place::FunctionResponse,
            (Family::Gemini, key) if key != "parts" => outer,
            (Family::OpenAi | Family::Anthropic | Family::Gemini, _) => Place::Elsewhere,
        }
    }
}

/// The item that an input item stands for.
fn stored_item(node: Node<'_>, place: Place) -> Option<ObjectRef> {
    let has = |key: &str| node.members().any(|(name, value)| name.is(key) && !value.is_null());
    let is_full = |key: &str| !key.is_empty() && node.get(key).and_then(text_of).is_some();
    let stands_for = STORED_ITEMS.iter().any(|(kind, own)| is_type(node, &[kind]) && !is_full(own));
    // The type of a reference may be left out.
    let is_bare = place == Place::Items && !has("type") && !has("role") && !has("content");
    let id = (stands_for || is_bare).then(|| node.get("id").and_then(text_of)).flatten()?;
    Some(ObjectRef::new(Item, id, Some("input")))
}

fn is_data(family: Family, key: &str, owner: Node<'_>, place: Place) -> bool {
    match family {
        Family::OpenAi => {
            OPENAI_DATA.contains(&key)
                || (key == "results" && is_only_type(owner, &["file_search_call"]))
        }
        Family::Anthropic => {
            const CALLS: &[&str] = &["tool_use", "server_tool_use", "mcp_tool_use"];
            ANTHROPIC_DATA.contains(&key) || (key == "input" && is_only_type(owner, CALLS))
        }
        Family::Gemini => {
            GEMINI_DATA.contains(&key) || (key == "response" && place == Place::FunctionResponse)
        }
    }
}

/// Whether an object says, in any of its `type` members, that it is one of these.
fn is_type(node: Node<'_>, kinds: &[&str]) -> bool {
    let types = node.members().filter(|(key, _)| key.is("type"));
    types.into_iter().any(|(_, value)| kinds.iter().any(|kind| value.is(kind)))
}

/// Whether every `type` of an object is one of these, and it has one. Some readers take the first of two, and others the last.
fn is_only_type(node: Node<'_>, kinds: &[&str]) -> bool {
    let mut types = node.members().filter(|(key, _)| key.is("type")).peekable();
    types.peek().is_some() && types.all(|(_, value)| kinds.iter().any(|kind| value.is(kind)))
}

/// A member's name as it is compared.
pub(super) fn spelled(family: Family, key: Cow<'_, str>) -> Cow<'_, str> {
    match family {
        Family::Gemini => Cow::Owned(key.replace('_', "").to_ascii_lowercase()),
        Family::OpenAi | Family::Anthropic => key,
    }
}

fn ids(value: Node<'_>, form: Form) -> Vec<Name> {
    let members = |key: Option<&'static str>| {
        let members = value.members();
        let named = members.filter(move |(name, _)| match key {
            Some(key) => name.is(key),
            None => !name.is("type"),
        });
        named.filter_map(|(_, value)| text_of(value)).collect()
    };
    match form {
        Form::Text if value.is_array() => value.elements().filter_map(text_of).collect(),
        Form::Text => text_of(value).into_iter().collect(),
        Form::IdOrText | Form::Members if value.is_string() => text_of(value).into_iter().collect(),
        Form::IdOrText | Form::Id => members(Some("id")),
        Form::Members => members(None),
        Form::Uri => text_of(value).and_then(|uri| file_of(&uri)).into_iter().collect(),
    }
}

/// The file of the provider that a URI names: `files/abc`, or an address of the files API. An address of that API with anything
/// else after `files/` names a file that no tenant owns.
fn file_of(uri: &str) -> Option<Name> {
    const VERSIONS: [&str; 3] = ["/v1beta/", "/v1alpha/", "/v1/"];
    let uri = decode_segment(uri);
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let (before, id) = path.split_once("files/")?;
    let is_own = matches!(before, "" | "/")
        || before.contains("generativelanguage")
        || VERSIONS.iter().any(|version| before.ends_with(version));
    let id = id.split_once(':').map_or(id, |(id, _)| id);
    (is_own && !id.is_empty()).then(|| Name::from(id.replace('/', "%2F")))
}
