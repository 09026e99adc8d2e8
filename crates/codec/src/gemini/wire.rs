//! Vocabulary of Gemini: parts, finish reasons, usage, the two spellings of names, and the members
//! that hold Seals.

use std::borrow::Cow;

use throughline_core::{Reply, StopReason, Usage, Wire};
use throughline_json::{self as json, Json, Name, Node};

use crate::object::copy_members;
use crate::{Document, draft};

/// The format of Seals on this wire.
pub(super) const SIGNATURE: &str = "gemini.thought_signature";

/// The spellings of the member that holds a part's signature.
const SIGNATURE_KEYS: [&str; 2] = ["thoughtSignature", "thought_signature"];

/// Stand-ins that Google documents for missing signatures. They are public values and therefore not
/// Seals. Some clients encode them in base64, because the field holds bytes.
const STAND_INS: [&str; 4] = [
    "skip_thought_signature_validator",
    "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I",
    "context_engineering_is_the_way_to_go",
    "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv",
];

/// Finish reasons that mean a refusal.
const REFUSALS: [&str; 9] = [
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
];

/// Returns whether `key` is `name` in camelCase or `snake_case`; `name` is given in camelCase.
pub(super) fn is_spelled(key: &str, name: &str) -> bool {
    let mut rest = key.bytes();
    name.bytes().all(|letter| match rest.next() {
        Some(b'_') if letter.is_ascii_uppercase() => {
            rest.next() == Some(letter.to_ascii_lowercase())
        }
        next => next == Some(letter),
    }) && rest.next().is_none()
}

/// Returns whether a dotted path equals `names`, where each name may have either spelling.
pub(super) fn is_path(path: &str, names: &str) -> bool {
    let (mut path, mut names) = (path.split('.'), names.split('.'));
    names.all(|name| path.next().is_some_and(|key| is_spelled(key, name))) && path.next().is_none()
}

/// Returns the named member in either spelling; the last value if the name is repeated.
pub(super) fn get<'t>(node: Node<'t>, name: &str) -> Option<Node<'t>> {
    member(node, name).map(|(_, value)| value)
}

/// Returns the named member with its actual spelling.
pub(super) fn member<'t>(node: Node<'t>, name: &str) -> Option<(Cow<'t, str>, Node<'t>)> {
    let members = node.members().filter_map(|(key, value)| Some((key.text()?, value)));
    members.filter(|(key, _)| is_spelled(key, name)).last()
}

/// Returns the string value of the named member.
pub(super) fn name_of(node: Node<'_>, name: &str) -> Option<Name> {
    get(node, name)?.name()
}

/// Returns the named member unless it is `null`.
pub(super) fn present<'t>(node: Node<'t>, name: &str) -> Option<Node<'t>> {
    get(node, name).filter(|value| !value.is_null())
}

/// Classifies a document of this wire; `None` if the document does not belong to this wire.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    let is_list = |name: &str| get(document, name).is_some_and(Node::is_array);
    let is_object = |name: &str| get(document, name).is_some_and(Node::is_object);
    if is_list("contents") || (is_object("systemInstruction") && is_object("generationConfig")) {
        return Some(Document::Request);
    }
    let is_answer = is_list("candidates") || is_object("promptFeedback");
    // Errors on other wires have no `status`.
    let is_error = document.at("/error/status").is_some_and(Node::is_string)
        && document.at("/error/code").and_then(Node::u64).is_some();
    (is_answer || is_error || is_object("usageMetadata")).then_some(Document::Response)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GeminiPartKind {
    Text,
    Thought,
    Call,
    Answer,
    Inline,
    File,
    Code,
    CodeResult,
    HostedCall,
    HostedResult,
    Unknown,
}

impl GeminiPartKind {
    /// The members that determine the kind of a part.
    const MEMBERS: [(&'static str, GeminiPartKind); 8] = [
        ("functionCall", GeminiPartKind::Call),
        ("functionResponse", GeminiPartKind::Answer),
        ("inlineData", GeminiPartKind::Inline),
        ("fileData", GeminiPartKind::File),
        ("executableCode", GeminiPartKind::Code),
        ("codeExecutionResult", GeminiPartKind::CodeResult),
        ("toolCall", GeminiPartKind::HostedCall),
        ("toolResponse", GeminiPartKind::HostedResult),
    ];

    /// Returns the kind of a part and the value of the member that determines it.
    pub(super) fn from_part(part: Node<'_>) -> (Self, Node<'_>) {
        let special =
            part.members().filter(|(_, value)| !value.is_null()).find_map(|(key, value)| {
                let key = key.text()?;
                let (_, kind) = Self::MEMBERS.iter().find(|(name, _)| is_spelled(&key, name))?;
                Some((*kind, value))
            });
        let is_thought = part.get("thought").and_then(Node::bool) == Some(true);
        match (special, part.get("text").filter(|text| text.is_string())) {
            (Some((Self::Call, call)), _) if name_of(call, "name").is_none() => {
                (Self::Unknown, call)
            }
            (Some(special), _) => special,
            (None, Some(text)) if is_thought => (Self::Thought, text),
            (None, Some(text)) => (Self::Text, text),
            (None, None) if is_thought => (Self::Thought, part),
            (None, None) => (Self::Unknown, part),
        }
    }
}

/// Returns the Seals among a part's signatures, as JSON pointer and value.
pub(super) fn signatures(part: Node<'_>) -> Vec<(&'static str, Node<'_>)> {
    let pointers = ["/thoughtSignature", "/thought_signature"].into_iter().zip(SIGNATURE_KEYS);
    let found = pointers.filter_map(|(at, key)| Some((at, part.get(key)?)));
    found.filter(|(_, value)| is_seal(*value)).collect()
}

/// Returns whether a part has a stand-in as its signature.
pub(super) fn has_stand_in(part: Node<'_>) -> bool {
    let mut values = SIGNATURE_KEYS.into_iter().filter_map(|key| part.get(key)?.text());
    values.any(|value| is_stand_in(&value))
}

fn is_seal(value: Node<'_>) -> bool {
    value.text().is_some_and(|text| !text.is_empty() && !is_stand_in(&text))
}

fn is_stand_in(signature: &str) -> bool {
    STAND_INS.contains(&signature.trim_end_matches('='))
}

/// Replaces the signature of a part, or removes it if `signature` is `None`.
pub(super) fn signed_with(part: &Json, signature: Option<&str>) -> Json {
    let [camel, snake] = SIGNATURE_KEYS;
    draft::edit_object(Some(part), &[(camel, signature.map(json::string)), (snake, None)])
}

/// The members of a `functionCall` that a request accepts. All other parts have the same form in
/// requests and responses.
const CALL_MEMBERS: [&str; 3] = ["id", "name", "args"];

/// Converts a response part to the form that a request accepts.
pub(super) fn to_request_part(part: &Json) -> Json {
    let tree = part.tree();
    let Some((key, call)) = member(tree.root(), "functionCall") else { return part.clone() };
    let is_accepted = |key: Node<'_>| CALL_MEMBERS.iter().any(|member| key.is(member));
    if !call.is_object() || call.members().all(|(key, _)| is_accepted(key)) {
        return part.clone();
    }
    let members = call.members().filter(|(key, _)| is_accepted(*key));
    let accepted = json::object(|o| copy_members(o, members));
    draft::with_member(part, key.into_owned(), accepted)
}

pub(super) fn with_response_id(part: &Json, id: &str) -> Json {
    let tree = part.tree();
    let Some((key, answer)) = member(tree.root(), "functionResponse") else { return part.clone() };
    let answer = draft::with_member(&answer.json(), "id", json::string(id));
    draft::with_member(part, key.into_owned(), answer)
}

/// Converts a finish reason. If the response contains calls, `STOP` means that the model waits for
/// their results.
pub(super) fn decode_stop(
    reason: Option<&str>,
    blocked: Option<Name>,
    has_calls: bool,
) -> StopReason {
    match (reason, blocked) {
        (Some("STOP"), _) if has_calls => StopReason::Tools,
        (Some("STOP"), _) => StopReason::Done,
        (Some("MAX_TOKENS"), _) => StopReason::Length,
        (Some(reason), _) if REFUSALS.contains(&reason) => StopReason::Refused(Name::from(reason)),
        (Some(reason), _) => StopReason::Other(Name::from(reason)),
        (None, Some(reason)) => StopReason::Refused(reason),
        (None, None) => StopReason::Cut,
    }
}

/// How the Gemini API represents a stop reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinishMarker<'s> {
    /// The candidate's `finishReason`.
    Finish(&'s str),
    /// The prompt's `blockReason`. A response with a `blockReason` has no candidate.
    Block(&'s str),
    /// The response has no finish reason.
    Open,
}

/// Returns how a reply's stop reason is written. Provider-specific reasons from other wires become
/// `SAFETY` or `OTHER`.
pub(super) fn finish_marker(reply: &Reply) -> FinishMarker<'_> {
    let is_own = reply.origin.wire == Wire::GEMINI;
    match &reply.stop {
        StopReason::Done | StopReason::Tools | StopReason::Sequence(_) | StopReason::Paused => {
            FinishMarker::Finish("STOP")
        }
        StopReason::Length => FinishMarker::Finish("MAX_TOKENS"),
        StopReason::Refused(word) if REFUSALS.contains(&&**word) => FinishMarker::Finish(word),
        StopReason::Refused(word) if is_own => FinishMarker::Block(word),
        StopReason::Refused(_) => FinishMarker::Finish("SAFETY"),
        StopReason::Other(word) if is_own => FinishMarker::Finish(word),
        StopReason::Other(_) => FinishMarker::Finish("OTHER"),
        StopReason::Cut => FinishMarker::Open,
    }
}

/// Reads `usageMetadata`.
pub(super) fn usage(node: Node<'_>) -> Usage {
    usage_by(|name| get(node, name)?.u64())
}

/// Computes usage from the counts in `usageMetadata`. `count` returns the count with the given
/// member name.
pub(super) fn usage_by(count: impl Fn(&str) -> Option<u64>) -> Usage {
    let count = |name: &str| count(name).unwrap_or_default();
    let thought = count("thoughtsTokenCount");
    Usage {
        input: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
        cached: count("cachedContentTokenCount"),
        written: 0,
        output: count("candidatesTokenCount").saturating_add(thought),
        thought,
    }
}

/// Writes `usageMetadata`.
pub(super) fn usage_json(usage: &Usage) -> Json {
    let positive = |count| Some(count).filter(|count| *count > 0);
    object! {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output.saturating_sub(usage.thought),
        "totalTokenCount": usage.input.saturating_add(usage.output),
        "cachedContentTokenCount": positive(usage.cached),
        "thoughtsTokenCount": positive(usage.thought),
    }
}
