//! Finds the objects that a request's body references.
//!
//! A field is recognised by its name, wherever it occurs. Fields that contain the caller's data
//! (tool arguments, schemas, metadata) are skipped, because the provider does not interpret them.

use std::borrow::Cow;

use throughline_codec::COMPACTION_TYPES;
use throughline_json::{Name, Node, Tree};

use crate::gateway::objects::{ObjectRef, is_storage_uri};
use crate::url::decode_segment;
use throughline_replay::ObjectKind::{
    Audio, CachedContent, Container, Conversation, File, FileSearchStore, Interaction, Item,
    Prompt, Response, Skill, Thread, VectorStore,
};
use throughline_replay::{Family, ObjectKind, bare_name, text_of};

/// The form in which a field references objects.
#[derive(Clone, Copy)]
pub(super) enum IdForm {
    /// A string, or a list of strings.
    Text,
    /// A string, or an object with an `id`.
    IdOrText,
    /// An object with an `id`.
    Id,
    /// A string, or an object in which every string except `type` is an id.
    Members,
    /// A URI. It is checked only if it refers to a file stored at the provider.
    Uri,
}

/// A body field that references objects: its name, the form of its ids, and the kind of object.
pub(super) type ObjectMember = (&'static str, IdForm, ObjectKind);

const OPENAI: &[ObjectMember] = &[
    ("previous_response_id", IdForm::Text, Response),
    ("conversation", IdForm::IdOrText, Conversation),
    ("file_id", IdForm::Text, File),
    ("file_ids", IdForm::Text, File),
    ("input_file_id", IdForm::Text, File),
    ("container_id", IdForm::Text, Container),
    ("container", IdForm::IdOrText, Container),
    ("vector_store_ids", IdForm::Text, VectorStore),
    ("prompt", IdForm::Id, Prompt),
    ("skill_id", IdForm::Text, Skill),
    ("audio", IdForm::Id, Audio),
];

const ANTHROPIC: &[ObjectMember] = &[
    ("file_id", IdForm::Text, File),
    ("container", IdForm::IdOrText, Container),
    ("skill_id", IdForm::Text, Skill),
    ("thread", IdForm::Members, Thread),
];

/// Gemini accepts each name in two spellings, so names are compared without underscores and without
/// regard to case.
const GEMINI: &[ObjectMember] = &[
    ("cachedcontent", IdForm::Text, CachedContent),
    ("fileuri", IdForm::Uri, File),
    ("uri", IdForm::Uri, File),
    ("filename", IdForm::Uri, File),
    ("filesearchstorenames", IdForm::Text, FileSearchStore),
    ("previousinteractionid", IdForm::Text, Interaction),
];

/// Fields that contain the caller's own data.
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

/// Types of items that refer to an item stored at the provider. An item is complete, and refers to
/// no stored item, if it contains the field listed with its type.
const STORED_ITEMS: &[(&str, &str)] = &[
    ("item_reference", ""),
    ("reasoning", "encrypted_content"),
    (COMPACTION_TYPES[0], "encrypted_content"),
    (COMPACTION_TYPES[1], "encrypted_content"),
    (COMPACTION_TYPES[2], "encrypted_content"),
    ("image_generation_call", "result"),
];

/// Returns the dialect, name and kind of every body field that references an object. Gemini's names
/// are normalized: no underscores, one case.
pub fn object_members() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let families =
        [(Family::OpenAi, OPENAI), (Family::Anthropic, ANTHROPIC), (Family::Gemini, GEMINI)];
    let members = families.into_iter().flat_map(|(family, members)| {
        members.iter().map(move |(name, _, kind)| (family.as_str(), *name, kind.as_str()))
    });
    let items = STORED_ITEMS.iter().map(|(item, _)| ("openai", *item, Item.as_str()));
    members.chain(items)
}

/// Returns the objects that a body references.
pub(crate) fn object_ids(family: Family, body: &Tree) -> Vec<ObjectRef> {
    let mut found = Vec::new();
    let mut left = vec![(body.root(), BodyPosition::Elsewhere)];
    while let Some((node, position)) = left.pop() {
        if node.is_array() {
            left.extend(node.elements().map(|element| (element, position)));
            continue;
        }
        if family == Family::OpenAi && node.is_object() {
            found.extend(stored_item(node, position));
        }
        for (key, value) in node.members() {
            let Some(key) = key.text() else { continue };
            let key = normalize_name(family, key);
            if is_data(family, &key, node, position) {
                continue;
            }
            let named = members_of(family).iter().filter(|(name, _, _)| *name == &*key);
            for (name, form, kind) in named {
                let is_public = *kind == Skill && is_only_type(node, &["anthropic"]);
                let ids = ids(value, *form).into_iter().filter(|_| !is_public);
                let ids = ids.map(|id| local_name(family, id));
                found.extend(ids.map(|id| ObjectRef::new(*kind, id, Some(name))));
            }
            left.push((value, BodyPosition::of(family, &key, position)));
        }
    }
    found
}

/// Returns the fields of a dialect that reference objects.
pub(super) fn members_of(family: Family) -> &'static [ObjectMember] {
    match family {
        Family::OpenAi => OPENAI,
        Family::Anthropic => ANTHROPIC,
        Family::Gemini => GEMINI,
    }
}

/// Returns the objects that a form field references. `a[b][]` is the member `b` of `a`.
pub(super) fn ids_of_field(family: Family, field: &str, value: &str) -> Vec<ObjectRef> {
    let steps: Vec<_> = field
        .split('[')
        .map(|step| normalize_name(family, step.trim_end_matches(']').into()))
        .filter(|step| !step.is_empty())
        .collect();
    let has_id = steps.last().is_some_and(|step| *step == "id");
    let named = members_of(family).iter().filter(|(name, form, _)| {
        steps.iter().any(|step| *step == *name) && (has_id || !matches!(form, IdForm::Id))
    });
    let ids = named.filter_map(|(name, form, kind)| {
        let id =
            if matches!(form, IdForm::Uri) { file_in_uri(value) } else { Some(Name::from(value)) };
        let id = id.map(|id| local_name(family, id))?;
        Some(ObjectRef::new(*kind, id, Some(name)))
    });
    ids.filter(|named| !named.object.id.is_empty()).collect()
}

/// Returns an id without the path that Gemini's names begin with.
fn local_name(family: Family, id: Name) -> Name {
    match family {
        Family::Gemini if !is_storage_uri(&id) => bare_name(&id),
        Family::Gemini | Family::OpenAi | Family::Anthropic => id,
    }
}

/// The context of a value, which affects how ids are recognised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyPosition {
    Elsewhere,
    /// The value is in a list of OpenAI items.
    Items,
    /// The value is in a Gemini function response.
    FunctionResponse,
}

impl BodyPosition {
    fn of(family: Family, key: &str, outer: BodyPosition) -> Self {
        match (family, key) {
            (Family::OpenAi, "input" | "items") => BodyPosition::Items,
            (Family::Gemini, "functionresponse") => BodyPosition::FunctionResponse,
            (Family::Gemini, key) if key != "parts" => outer,
            (Family::OpenAi | Family::Anthropic | Family::Gemini, _) => BodyPosition::Elsewhere,
        }
    }
}

/// Returns the stored item that an input item refers to.
fn stored_item(node: Node<'_>, position: BodyPosition) -> Option<ObjectRef> {
    let has = |key: &str| node.members().any(|(name, value)| name.is(key) && !value.is_null());
    let is_full = |key: &str| !key.is_empty() && node.get(key).and_then(text_of).is_some();
    let stands_for = STORED_ITEMS.iter().any(|(kind, own)| is_type(node, &[kind]) && !is_full(own));
    // The type of a reference is optional.
    let is_bare =
        position == BodyPosition::Items && !has("type") && !has("role") && !has("content");
    let id = (stands_for || is_bare).then(|| node.get("id").and_then(text_of)).flatten()?;
    Some(ObjectRef::new(Item, id, Some("input")))
}

fn is_data(family: Family, key: &str, owner: Node<'_>, position: BodyPosition) -> bool {
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
            GEMINI_DATA.contains(&key)
                || (key == "response" && position == BodyPosition::FunctionResponse)
        }
    }
}

/// Returns whether any `type` field of an object is one of `kinds`.
fn is_type(node: Node<'_>, kinds: &[&str]) -> bool {
    let types = node.members().filter(|(key, _)| key.is("type"));
    types.into_iter().any(|(_, value)| kinds.iter().any(|kind| value.is(kind)))
}

/// Returns whether an object has a `type` and every `type` is one of `kinds`. Duplicate fields are
/// all checked, because some parsers use the first and others the last.
fn is_only_type(node: Node<'_>, kinds: &[&str]) -> bool {
    let mut types = node.members().filter(|(key, _)| key.is("type")).peekable();
    types.peek().is_some() && types.all(|(_, value)| kinds.iter().any(|kind| value.is(kind)))
}

/// Normalizes a field's name for comparison.
pub(super) fn normalize_name(family: Family, key: Cow<'_, str>) -> Cow<'_, str> {
    match family {
        Family::Gemini => Cow::Owned(key.replace('_', "").to_ascii_lowercase()),
        Family::OpenAi | Family::Anthropic => key,
    }
}

fn ids(value: Node<'_>, form: IdForm) -> Vec<Name> {
    let members = |key: Option<&'static str>| {
        let members = value.members();
        let named = members.filter(move |(name, _)| match key {
            Some(key) => name.is(key),
            None => !name.is("type"),
        });
        named.filter_map(|(_, value)| text_of(value)).collect()
    };
    match form {
        IdForm::Text if value.is_array() => value.elements().filter_map(text_of).collect(),
        IdForm::Text => text_of(value).into_iter().collect(),
        IdForm::IdOrText | IdForm::Members if value.is_string() => {
            text_of(value).into_iter().collect()
        }
        IdForm::IdOrText | IdForm::Id => members(Some("id")),
        IdForm::Members => members(None),
        IdForm::Uri => text_of(value).and_then(|uri| file_in_uri(&uri)).into_iter().collect(),
    }
}

/// Returns the provider's file that a URI refers to: `files/abc`, or a URL of the files API. If
/// such a URL has anything but a file id after `files/`, it counts as a file that no tenant owns.
/// An object in Google Cloud Storage is returned as its whole URI.
fn file_in_uri(uri: &str) -> Option<Name> {
    const VERSIONS: [&str; 3] = ["/v1beta/", "/v1alpha/", "/v1/"];
    let decoded = decode_segment(uri);
    if is_storage_uri(uri) || is_storage_uri(&decoded) {
        return Some(if is_storage_uri(uri) { Name::from(uri) } else { decoded });
    }
    let uri = decoded;
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let (before, id) = path.split_once("files/")?;
    let is_own = matches!(before, "" | "/")
        || before.contains("generativelanguage")
        || VERSIONS.iter().any(|version| before.ends_with(version));
    let id = id.split_once(':').map_or(id, |(id, _)| id);
    (is_own && !id.is_empty()).then(|| Name::from(id.replace('/', "%2F")))
}
