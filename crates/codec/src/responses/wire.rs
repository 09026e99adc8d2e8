//! The Responses API's own words: kinds of elements, statuses, usage, which fields hold Seals, and what of a response's
//! element a request takes.

use throughline_core::{Json, Label, Name, Node, ReasoningFormat, Stop, Usage, json};

use crate::Document;

/// The slot of a part that was cut from the content of a `message`. Anything else is an element by itself.
pub(super) const CONTENT: &str = "content";

/// Whether a document is one of this wire's.
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

/// What an element of `input` or `output` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

impl Kind {
    pub(super) fn of(element: Node<'_>) -> Self {
        match element.text_of("type").as_deref() {
            Some("message") => Self::Message,
            None if element.get("role").is_some() => Self::Message,
            Some("reasoning") => Self::Reasoning,
            Some("function_call") => Self::Call,
            Some("custom_tool_call") => Self::CustomCall,
            Some("function_call_output") => Self::Result,
            Some("custom_tool_call_output") => Self::CustomResult,
            Some("compaction" | "compaction_summary" | "context_compaction") => Self::Compaction,
            Some("mcp_list_tools" | "mcp_approval_request" | "program") => Self::HostedCall,
            Some("tool_search_output" | "program_output") => Self::HostedResult,
            Some(kind) if kind.ends_with("_call") => Self::HostedCall,
            Some(kind) if kind.ends_with("_call_output") => Self::HostedResult,
            Some(_) | None => Self::Unknown,
        }
    }

    /// Whether a member of what the model said, at any depth, holds a Seal.
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

    /// Whether it may hold Seals at all.
    pub(super) fn holds_seals(self) -> bool {
        !matches!(self, Self::Call | Self::CustomCall | Self::Result | Self::CustomResult)
    }
}

/// Whose shape the reasoning of that provider has.
pub(super) fn reasoning_format(provider: &str) -> ReasoningFormat {
    match provider {
        "azure" => ReasoningFormat::AzureOpenAiResponsesV1,
        "xai" => ReasoningFormat::XaiResponsesV1,
        _ => ReasoningFormat::OpenAiResponsesV1,
    }
}

/// What a Seal is, by the member that holds it.
pub(super) fn seal_format(key: &str) -> Label {
    match key {
        "encrypted_content" => Label::Borrowed("openai.encrypted_content"),
        key => Label::Owned(format!("openai.{key}")),
    }
}

/// The members of a response's element that a request takes too; elements of other kinds go back whole.
pub(super) fn input_members(kind: Kind) -> Option<&'static [&'static str]> {
    match kind {
        Kind::Message => Some(&["type", "id", "role", "status", "phase", "content"]),
        Kind::Reasoning => Some(&["type", "id", "summary", "content", "encrypted_content"]),
        Kind::Call => Some(&["type", "id", "call_id", "name", "namespace", "arguments", "caller"]),
        Kind::CustomCall => {
            Some(&["type", "id", "call_id", "name", "namespace", "input", "caller"])
        }
        Kind::Compaction => Some(&["type", "id", "encrypted_content"]),
        Kind::Result
        | Kind::CustomResult
        | Kind::HostedCall
        | Kind::HostedResult
        | Kind::Unknown => None,
    }
}

/// Whether an element keeps the ids by which the endpoint's store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    Kept,
    Dropped,
}

/// A response's element as a request would say it. Members that are `null` were never there.
pub(super) fn project(element: Node<'_>, ids: Ids) -> Json {
    let kind = Kind::of(element);
    let Some(taken) = input_members(kind) else { return element.json() };
    // The status of a message is taken where its id is, and refused without.
    let is_id = |key: Node<'_>| key.is("id") || key.is("status");
    let is_taken = |(key, value): &(Node<'_>, Node<'_>)| {
        let is_empty = kind == Kind::Reasoning && key.is("content") && value.raw() == b"[]";
        taken.iter().any(|member| key.is(member))
            && !value.is_null()
            && !is_empty
            && (ids == Ids::Kept || !is_id(*key))
    };
    json::object(|o| {
        for (key, value) in element.members().filter(is_taken) {
            let name = key.text().unwrap_or_default();
            if kind == Kind::Message && key.is(CONTENT) && value.is_array() {
                o.array(&name, |a| {
                    for part in value.elements() {
                        a.raw(&project_part(part, ids));
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

/// A part of a response's message as a request would say it.
pub(super) fn project_part(part: Node<'_>, ids: Ids) -> Json {
    if !part.get("type").is_some_and(|kind| kind.is("output_text")) {
        return part.json();
    }
    json::object(|o| {
        for (key, value) in part.members() {
            // A message that names no id is a plain one, which has no empty lists.
            let is_citing = key.is("annotations") && (ids == Ids::Kept || value.raw() != b"[]");
            if key.is("type") || key.is("text") || (is_citing && !value.is_null()) {
                o.node(&key.text().unwrap_or_default(), value);
            }
        }
    })
}

/// What a response said besides its status, as far as why it ended depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// It asked for something that the client must do.
    pub(super) waits: bool,
    /// It refused in words.
    pub(super) refused: bool,
}

/// Whether an element waits for the client.
pub(super) fn waits(kind: Kind, element: Node<'_>) -> bool {
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
        Kind::Message
        | Kind::Reasoning
        | Kind::Result
        | Kind::CustomResult
        | Kind::HostedResult
        | Kind::Compaction
        | Kind::Unknown => false,
    }
}

/// Why a response ended.
pub(super) fn stop(response: Node<'_>, signs: Signs) -> Stop {
    let reason = response.at("/incomplete_details/reason").and_then(Node::text);
    match (response.text_of("status").as_deref(), reason.as_deref()) {
        (Some("completed") | None, _) if signs.refused => Stop::Refused(Name::from("refusal")),
        (Some("completed") | None, _) if signs.waits => Stop::Tools,
        (Some("completed") | None, _) => Stop::Done,
        (Some("incomplete"), Some("max_output_tokens")) => Stop::Length,
        (Some("incomplete"), Some("content_filter")) => Stop::Refused(Name::from("content_filter")),
        (Some("incomplete"), Some(reason)) => Stop::Other(Name::from(reason)),
        (Some(status), _) => Stop::Other(Name::from(status)),
    }
}

/// The words for why a response ended: status, and the reason where it is incomplete.
pub(super) fn stop_words(stop: &Stop) -> (&str, Option<&str>) {
    match stop {
        Stop::Done | Stop::Tools | Stop::Sequence(_) => ("completed", None),
        Stop::Length => ("incomplete", Some("max_output_tokens")),
        Stop::Refused(_) => ("incomplete", Some("content_filter")),
        Stop::Paused => ("incomplete", Some("pause_turn")),
        Stop::Other(word) => ("incomplete", Some(word)),
        Stop::Cut => ("in_progress", None),
    }
}

/// Reads a `usage` object.
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

/// Writes a `usage` object.
pub(super) fn usage_json(usage: &Usage) -> Json {
    json::object(|o| {
        o.number("input_tokens", usage.input);
        o.object("input_tokens_details", |o| {
            o.number("cached_tokens", usage.cached);
            if usage.written > 0 {
                o.number("cache_write_tokens", usage.written);
            }
        });
        o.number("output_tokens", usage.output);
        o.object("output_tokens_details", |o| {
            o.number("reasoning_tokens", usage.thought);
        });
        o.number("total_tokens", usage.total());
    })
}
