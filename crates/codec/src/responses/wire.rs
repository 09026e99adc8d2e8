//! Vocabulary of the Responses API: element kinds, statuses, usage, the members that hold Seals,
//! and the members of a response element that a request accepts.

use throughline_core::{ReasoningFormat, StopReason, Tool, Usage};
use throughline_json::{self as json, Json, Label, Name, Node};

use self::ResponsesElementKind as Kind;
use crate::Document;
use crate::cross_wire::ADDITIONAL_TOOLS;
use crate::object::copy_members;
use crate::responses::WIRE;

/// The slot of message parts. All other elements have an empty slot.
pub(super) const CONTENT: &str = "content";

/// The types of items that replace the conversation before them.
pub const COMPACTION_TYPES: [&str; 3] = ["compaction", "compaction_summary", "context_compaction"];

/// The type of the input item with which a client requests a compaction.
pub(super) const COMPACTION_TRIGGER: &str = "compaction_trigger";

/// The namespace whose tools are called without it.
const DEFAULT_NAMESPACE: &str = "functions";

/// The text between the namespace and the name of a tool on other wires.
const SEPARATOR: &str = "__";

/// The maximum length in bytes of a tool's name that every wire accepts.
const MAX_TOOL_NAME: usize = 64;

/// Returns whether a tool is defined inside another element: in an `additional_tools` element of
/// the input, or in a namespace.
pub(super) fn is_additional(tool: &Tool) -> bool {
    inner_slot(tool).is_some()
}

/// Returns whether calls of a tool must name its namespace.
pub(super) fn is_in_namespace(tool: &Tool) -> bool {
    namespace(tool).is_some()
}

fn namespace(tool: &Tool) -> Option<&str> {
    let namespace = inner_slot(tool)?.strip_prefix('/')?;
    Some(namespace).filter(|namespace| must_be_named(namespace))
}

/// Returns the namespace that calls of a tool must name, and the tool's name in it.
pub(super) fn own_names(tool: &Tool) -> (Option<Name>, Name) {
    match (namespace(tool), tool.native_on(&WIRE)) {
        (Some(namespace), Some(native)) => {
            let name = native.json.tree().root().name_of("name");
            (Some(Name::from(namespace)), name.unwrap_or_default())
        }
        (Some(_) | None, _) => (None, tool.name.clone()),
    }
}

fn must_be_named(namespace: &str) -> bool {
    !namespace.is_empty() && namespace != DEFAULT_NAMESPACE
}

/// Returns the name that a tool has on wires without namespaces: `namespace__name`. It depends on
/// no other tool, so a tool that the client adds later does not rename earlier calls.
pub(super) fn qualified_name(namespace: Option<&str>, name: Name) -> Name {
    let Some(namespace) = namespace.filter(|namespace| must_be_named(namespace)) else {
        return name;
    };
    // Codex ends some namespaces with the separator.
    let namespace = namespace.strip_suffix(SEPARATOR).unwrap_or(namespace);
    let joined = format!("{namespace}{SEPARATOR}{name}");
    if joined.len() <= MAX_TOOL_NAME {
        return Name::from(joined);
    }
    let digest = blake3::hash(joined.as_bytes()).to_hex();
    let digest = digest.get(..8).unwrap_or_default();
    let start = joined.floor_char_boundary(MAX_TOOL_NAME - digest.len() - 1);
    Name::from(format!("{}_{digest}", joined.get(..start).unwrap_or_default()))
}

/// Returns the name that the tool of a call or of a tool choice has on wires without namespaces.
pub(super) fn called_tool(element: Node<'_>) -> Option<Name> {
    let name = element.name_of("name")?;
    Some(qualified_name(element.text_of("namespace").as_deref(), name))
}

/// Returns the slot of a tool inside another element; the namespace follows the prefix.
pub(super) fn slot_in(namespace: Option<&str>) -> Label {
    match namespace {
        Some(name) => Label::Owned(format!("{ADDITIONAL_TOOLS}/{name}")),
        None => Label::Borrowed(ADDITIONAL_TOOLS),
    }
}

fn inner_slot(tool: &Tool) -> Option<&str> {
    tool.native_on(&WIRE)?.slot.strip_prefix(ADDITIONAL_TOOLS)
}

/// Classifies a document of this wire; `None` if the document does not belong to this wire.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    if let Some(kind) = document.text_of("type") {
        let is_error = kind == "error" && document.get("sequence_number").is_some();
        if kind.starts_with("response.") || is_error {
            return Some(Document::Event);
        }
    }
    let is_response = document.get("object").is_some_and(|object| object.is("response"));
    if is_response || document.get("output").is_some_and(Node::is_array) {
        return document.get("output").map(|_| Document::Response);
    }
    let input = document.get("input").filter(|input| input.is_string() || input.is_array())?;
    let is_request = document.get("messages").is_none()
        && (document.get("model").is_some() || input.elements().any(Node::is_object));
    is_request.then_some(Document::Request)
}

/// The kind of an `input` or `output` element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsesElementKind {
    Message,
    Reasoning,
    Call,
    CustomCall,
    Result,
    CustomResult,
    HostedCall,
    HostedResult,
    Compaction,
    Unknown,
}

impl ResponsesElementKind {
    pub(super) fn from_element(element: Node<'_>) -> Self {
        match element.text_of("type").as_deref() {
            Some("message") => Self::Message,
            None if element.get("role").is_some() => Self::Message,
            Some("reasoning") => Self::Reasoning,
            Some("function_call") => Self::Call,
            Some("custom_tool_call") => Self::CustomCall,
            Some("function_call_output") => Self::Result,
            Some("custom_tool_call_output") => Self::CustomResult,
            Some(kind) if COMPACTION_TYPES.contains(&kind) => Self::Compaction,
            Some("mcp_list_tools" | "mcp_approval_request" | "program") => Self::HostedCall,
            Some("tool_search_output" | "program_output") => Self::HostedResult,
            Some(kind) if kind.ends_with("_call") => Self::HostedCall,
            Some(kind) if kind.ends_with("_call_output") => Self::HostedResult,
            Some(_) | None => Self::Unknown,
        }
    }

    /// Returns whether the member `key`, at any depth in a model-generated element of this kind,
    /// holds a Seal.
    pub(super) fn is_sealed(self, key: &str) -> bool {
        match self {
            Self::Reasoning | Self::Compaction => key == "encrypted_content",
            Self::HostedCall | Self::HostedResult | Self::Unknown => {
                key.starts_with("encrypted_") || key == "fingerprint"
            }
            Self::Message => key.starts_with("encrypted_"),
            Self::Call | Self::CustomCall | Self::Result | Self::CustomResult => false,
        }
    }

    /// Returns whether elements of this kind can contain Seals.
    pub(super) fn holds_seals(self) -> bool {
        !matches!(self, Self::Call | Self::CustomCall | Self::Result | Self::CustomResult)
    }
}

/// Returns the reasoning format that a provider uses on this wire.
pub(crate) fn reasoning_format(provider: &str) -> ReasoningFormat {
    match provider {
        "azure" => ReasoningFormat::AzureOpenAiResponsesV1,
        "xai" => ReasoningFormat::XaiResponsesV1,
        _ => ReasoningFormat::OpenAiResponsesV1,
    }
}

/// Maps a member name to its Seal format.
pub(super) fn seal_format(key: &str) -> Label {
    match key {
        "encrypted_content" => Label::Borrowed("openai.encrypted_content"),
        key => Label::Owned(format!("openai.{key}")),
    }
}

/// Returns the members of a response element that a request accepts; `None` if all are accepted.
pub(super) fn input_members(kind: Kind) -> Option<&'static [&'static str]> {
    match kind {
        Kind::Message => Some(&["type", "id", "role", "status", "phase", "content"]),
        Kind::Reasoning => Some(&["type", "id", "summary", "content", "encrypted_content"]),
        Kind::Call => Some(&["type", "id", "call_id", "name", "namespace", "arguments", "caller"]),
        Kind::CustomCall => {
            Some(&["type", "id", "call_id", "name", "namespace", "input", "caller"])
        }
        Kind::Compaction => Some(&["type", "id", "encrypted_content"]),
        _ => None,
    }
}

/// Whether an element is sent with the ids under which the endpoint stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdPolicy {
    Kept,
    Dropped,
}

/// Converts a response element to the form that a request accepts. `null` members are dropped.
pub(super) fn to_request_element(element: Node<'_>, ids: IdPolicy) -> Json {
    let kind = Kind::from_element(element);
    let Some(accepted) = input_members(kind) else { return element.json() };
    // A message's `status` is accepted only together with its id.
    let is_id = |key: Node<'_>| key.is("id") || key.is("status");
    let is_accepted = |(key, value): &(Node<'_>, Node<'_>)| {
        let is_empty = kind == Kind::Reasoning && key.is("content") && value.raw() == b"[]";
        accepted.iter().any(|member| key.is(member))
            && !value.is_null()
            && !is_empty
            && (ids == IdPolicy::Kept || !is_id(*key))
    };
    json::object(|o| {
        for (key, value) in element.members().filter(is_accepted) {
            let name = key.text().unwrap_or_default();
            if kind == Kind::Message && key.is(CONTENT) && value.is_array() {
                o.array(&name, |a| {
                    for part in value.elements() {
                        a.raw(&to_request_part(part, ids));
                    }
                });
            } else {
                o.node(&name, value);
            }
        }
        if kind == Kind::Reasoning && element.present("summary").is_none() {
            o.array("summary", |_| {});
        }
    })
}

/// Converts a part of a response message to the form that a request accepts.
pub(super) fn to_request_part(part: Node<'_>, ids: IdPolicy) -> Json {
    if !part.get("type").is_some_and(|kind| kind.is("output_text")) {
        return part.json();
    }
    let is_taken = |(key, value): &(Node<'_>, Node<'_>)| {
        // A message without an id is a plain input message, which has no empty `annotations`.
        let is_citing = key.is("annotations") && (ids == IdPolicy::Kept || value.raw() != b"[]");
        key.is("type") || key.is("text") || (is_citing && !value.is_null())
    };
    json::object(|o| copy_members(o, part.members().filter(is_taken)))
}

/// Properties of a response that, besides its status, determine the stop reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StopSignals {
    /// Whether the response contains a call that the client must respond to.
    pub(super) waits: bool,
    /// Whether the response contains a refusal.
    pub(super) refused: bool,
}

/// Returns whether the model waits for the client to respond to an element.
pub(super) fn waits_for_client(kind: Kind, element: Node<'_>) -> bool {
    use Kind::{Compaction, CustomResult, HostedResult, Message, Reasoning, Result, Unknown};
    match kind {
        Kind::Call | Kind::CustomCall => true,
        Kind::HostedCall => match &*element.text_of("type").unwrap_or_default() {
            "computer_call"
            | "local_shell_call"
            | "shell_call"
            | "apply_patch_call"
            | "mcp_approval_request" => true,
            "tool_search_call" => element.get("execution").is_some_and(|e| e.is("client")),
            _ => false,
        },
        Message | Reasoning | Result | CustomResult | HostedResult | Compaction | Unknown => false,
    }
}

/// Maps the status of a response to a stop reason.
pub(super) fn decode_stop(response: Node<'_>, signs: StopSignals) -> StopReason {
    let reason = response.at("/incomplete_details/reason").and_then(Node::text);
    match (response.text_of("status").as_deref(), reason.as_deref()) {
        (Some("completed") | None, _) if signs.refused => {
            StopReason::Refused(Name::from("refusal"))
        }
        (Some("completed") | None, _) if signs.waits => StopReason::Tools,
        (Some("completed") | None, _) => StopReason::Done,
        (Some("incomplete"), Some("max_output_tokens")) => StopReason::Length,
        (Some("incomplete"), Some("content_filter")) => {
            StopReason::Refused(Name::from("content_filter"))
        }
        (Some("incomplete"), Some(reason)) => StopReason::Other(Name::from(reason)),
        (Some(status), _) => StopReason::Other(Name::from(status)),
    }
}

/// Returns the wire's status for a stop reason. For an incomplete response, also returns the wire's
/// reason.
pub(super) fn status_and_reason(stop: &StopReason) -> (&str, Option<&str>) {
    match stop {
        StopReason::Done | StopReason::Tools | StopReason::Sequence(_) => ("completed", None),
        StopReason::Length => ("incomplete", Some("max_output_tokens")),
        StopReason::Refused(_) => ("incomplete", Some("content_filter")),
        StopReason::Paused => ("incomplete", Some("pause_turn")),
        StopReason::Other(word) => ("incomplete", Some(word)),
        StopReason::Cut => ("in_progress", None),
    }
}

pub(super) fn usage(node: Node<'_>) -> Usage {
    let count = |pointer: &str| node.at(pointer).and_then(Node::u64).unwrap_or(0);
    Usage {
        input: count("/input_tokens"),
        cached: count("/input_tokens_details/cached_tokens"),
        written: count("/input_tokens_details/cache_write_tokens"),
        output: count("/output_tokens"),
        thought: count("/output_tokens_details/reasoning_tokens"),
    }
}

pub(super) fn usage_json(usage: &Usage) -> Json {
    let written = Some(usage.written).filter(|written| *written > 0);
    object! {
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cached, "cache_write_tokens": written,
        },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.thought },
        "total_tokens": usage.total(),
    }
}
