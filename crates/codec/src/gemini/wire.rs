//! The provider's own words: parts, finish reasons, usage, the two spellings of every name, and which member of a part
//! holds a Seal.

use std::borrow::Cow;

use throughline_core::{Json, Name, Node, Reply, Stop, Usage, Wire, json};

use crate::{Document, draft};

/// What a Seal of this wire is.
pub(super) const SIGNATURE: &str = "gemini.thought_signature";

/// The member of a part that holds its signature, in both spellings.
const SIGNATURE_KEYS: [&str; 2] = ["thoughtSignature", "thought_signature"];

/// What Google documents in place of a signature that was never issued: public words, so no Seals. The field is bytes,
/// so some clients write them in base64.
const STAND_INS: [&str; 4] = [
    "skip_thought_signature_validator",
    "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I",
    "context_engineering_is_the_way_to_go",
    "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv",
];

/// The finish reasons that are refusals.
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

/// Whether `key` is `name`, which is given in camelCase, in either spelling.
pub(super) fn is_spelled(key: &str, name: &str) -> bool {
    let mut rest = key.bytes();
    name.bytes().all(|letter| match rest.next() {
        Some(b'_') if letter.is_ascii_uppercase() => {
            rest.next() == Some(letter.to_ascii_lowercase())
        }
        next => next == Some(letter),
    }) && rest.next().is_none()
}

/// Whether names that are joined by dots are these, in either spelling.
pub(super) fn is_path(path: &str, names: &str) -> bool {
    let (mut path, mut names) = (path.split('.'), names.split('.'));
    names.all(|name| path.next().is_some_and(|key| is_spelled(key, name))) && path.next().is_none()
}

/// The member of that name in either spelling: the last, where there are several.
pub(super) fn get<'t>(node: Node<'t>, name: &str) -> Option<Node<'t>> {
    member(node, name).map(|(_, value)| value)
}

/// The same, with the spelling.
pub(super) fn member<'t>(node: Node<'t>, name: &str) -> Option<(Cow<'t, str>, Node<'t>)> {
    let members = node.members().filter_map(|(key, value)| Some((key.text()?, value)));
    members.filter(|(key, _)| is_spelled(key, name)).last()
}

/// The text of the member of that name, shared.
pub(super) fn name_of(node: Node<'_>, name: &str) -> Option<Name> {
    get(node, name)?.name()
}

/// The member of that name, unless it is `null`.
pub(super) fn present<'t>(node: Node<'t>, name: &str) -> Option<Node<'t>> {
    get(node, name).filter(|value| !value.is_null())
}

/// Whether a document is one of this wire's.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    let is_list = |name: &str| get(document, name).is_some_and(Node::is_array);
    let is_object = |name: &str| get(document, name).is_some_and(Node::is_object);
    if is_list("contents") || (is_object("systemInstruction") && is_object("generationConfig")) {
        return Some(Document::Request);
    }
    let is_answer = is_list("candidates") || is_object("promptFeedback");
    // Other wires' errors have no `status`.
    let is_error = document.at("/error/status").is_some_and(Node::is_string)
        && document.at("/error/code").and_then(Node::u64).is_some();
    (is_answer || is_error || is_object("usageMetadata")).then_some(Document::Response)
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

impl Kind {
    /// The member that makes a part what it is.
    const MEMBERS: [(&'static str, Kind); 8] = [
        ("functionCall", Kind::Call),
        ("functionResponse", Kind::Answer),
        ("inlineData", Kind::Inline),
        ("fileData", Kind::File),
        ("executableCode", Kind::Code),
        ("codeExecutionResult", Kind::CodeResult),
        ("toolCall", Kind::HostedCall),
        ("toolResponse", Kind::HostedResult),
    ];

    /// What a part is, with the member that makes it so.
    pub(super) fn of(part: Node<'_>) -> (Self, Node<'_>) {
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

/// The signatures of a part that are Seals: pointer and value.
pub(super) fn signatures(part: Node<'_>) -> Vec<(&'static str, Node<'_>)> {
    let pointers = ["/thoughtSignature", "/thought_signature"].into_iter().zip(SIGNATURE_KEYS);
    let found = pointers.filter_map(|(at, key)| Some((at, part.get(key)?)));
    found.filter(|(_, value)| is_seal(*value)).collect()
}

/// Whether a part shows the provider something in place of a signature.
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

/// A part without its signature, or with this value in its place.
pub(super) fn signed_with(part: &Json, signature: Option<&str>) -> Json {
    let mut changes: Vec<(Cow<'static, str>, Option<Json>)> =
        SIGNATURE_KEYS.into_iter().map(|key| (Cow::Borrowed(key), None)).collect();
    if let (Some(signature), Some((_, value))) = (signature, changes.first_mut()) {
        *value = Some(json::string(signature));
    }
    draft::edited(Some(part), &changes)
}

/// The members of a response's `functionCall` that a request takes too. All other parts have the same members on both
/// sides and go back whole.
const CALL_MEMBERS: [&str; 3] = ["id", "name", "args"];

/// A response's part as a request would say it.
pub(super) fn project(part: &Json) -> Json {
    let tree = part.tree();
    let Some((key, call)) = member(tree.root(), "functionCall") else { return part.clone() };
    let is_taken = |key: Node<'_>| CALL_MEMBERS.iter().any(|member| key.is(member));
    if !call.is_object() || call.members().all(|(key, _)| is_taken(key)) {
        return part.clone();
    }
    let taken = json::object(|o| {
        for (key, value) in call.members().filter(|(key, _)| is_taken(*key)) {
            o.node(&key.text().unwrap_or_default(), value);
        }
    });
    draft::edited(Some(part), &[(Cow::Owned(key.into_owned()), Some(taken))])
}

/// A tool's answer with this id.
pub(super) fn answering(part: &Json, id: &str) -> Json {
    let tree = part.tree();
    let Some((key, answer)) = member(tree.root(), "functionResponse") else { return part.clone() };
    let answer =
        draft::edited(Some(&answer.json()), &[(Cow::Borrowed("id"), Some(json::string(id)))]);
    draft::edited(Some(part), &[(Cow::Owned(key.into_owned()), Some(answer))])
}

/// Why an answer ended. That it waits for tools is implied by its calls.
pub(super) fn stop(reason: Option<&str>, blocked: Option<Name>, has_calls: bool) -> Stop {
    match (reason, blocked) {
        (Some("STOP"), _) if has_calls => Stop::Tools,
        (Some("STOP"), _) => Stop::Done,
        (Some("MAX_TOKENS"), _) => Stop::Length,
        (Some(reason), _) if REFUSALS.contains(&reason) => Stop::Refused(Name::from(reason)),
        (Some(reason), _) => Stop::Other(Name::from(reason)),
        (None, Some(reason)) => Stop::Refused(reason),
        (None, None) => Stop::Cut,
    }
}

/// The words for why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending<'s> {
    /// The candidate's `finishReason`.
    Finish(&'s str),
    /// The prompt's `blockReason`: there was no answer.
    Block(&'s str),
    /// None.
    Open,
}

/// The words for why an answer ended. Another wire's own words would not be understood here.
pub(super) fn ending(reply: &Reply) -> Ending<'_> {
    let is_own = reply.origin.wire == Wire::GEMINI;
    match &reply.stop {
        Stop::Done | Stop::Tools | Stop::Sequence(_) | Stop::Paused => Ending::Finish("STOP"),
        Stop::Length => Ending::Finish("MAX_TOKENS"),
        Stop::Refused(word) if REFUSALS.contains(&&**word) => Ending::Finish(word),
        Stop::Refused(word) if is_own => Ending::Block(word),
        Stop::Refused(_) => Ending::Finish("SAFETY"),
        Stop::Other(word) if is_own => Ending::Finish(word),
        Stop::Other(_) => Ending::Finish("OTHER"),
        Stop::Cut => Ending::Open,
    }
}

/// Reads `usageMetadata`.
pub(super) fn usage(node: Node<'_>) -> Usage {
    usage_by(|name| get(node, name)?.u64())
}

/// Reads the members of `usageMetadata`.
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
    json::object(|o| {
        o.number("promptTokenCount", usage.input);
        o.number("candidatesTokenCount", usage.output.saturating_sub(usage.thought));
        o.number("totalTokenCount", usage.input.saturating_add(usage.output));
        if usage.cached > 0 {
            o.number("cachedContentTokenCount", usage.cached);
        }
        if usage.thought > 0 {
            o.number("thoughtsTokenCount", usage.thought);
        }
    })
}
