//! Mutation operators for requests. Each operator damages reasoning in a way that real frameworks,
//! stores or sanitisers do.
//!
//! An operator makes one change to a valid request. The operators know the conversation format of
//! the five wires, but not how providers react. The tests specify the reactions.

#![expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a request of the wrong shape must fail the test"
)]

use serde_json::{Value, json};

use crate::message_parts::{TEXTS, is_call, is_result, is_thinking, object, parts, text_of};
use crate::rng::TestRng;
use crate::seal_location::{SealLocation, seals};

/// The conversation format of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// The wire `anthropic-messages`.
    Anthropic,
    /// The wire `bedrock-converse`.
    Converse,
    /// The wire `openai-responses`.
    Responses,
    /// The wire `openai-chat`.
    Chat,
    /// The wire `gemini`.
    Gemini,
}

impl Shape {
    /// Returns the shape for a wire name. Panics if the wire is unknown.
    pub fn from_wire(wire: &str) -> Self {
        match wire {
            "anthropic-messages" => Self::Anthropic,
            "bedrock-converse" => Self::Converse,
            "openai-responses" => Self::Responses,
            "openai-chat" => Self::Chat,
            "gemini" => Self::Gemini,
            other => panic!("no shape for {other}"),
        }
    }

    /// Returns the name of the request field that holds the conversation.
    pub fn list(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Converse | Self::Chat => "messages",
            Self::Responses => "input",
            Self::Gemini => "contents",
        }
    }

    /// Returns the name of the message field that holds the parts, or `None` if messages have no
    /// parts.
    pub fn parts(self) -> Option<&'static str> {
        match self {
            Self::Anthropic | Self::Converse => Some("content"),
            Self::Gemini => Some("parts"),
            Self::Responses | Self::Chat => None,
        }
    }

    /// Returns the name of the request field that holds the system prompt, or `None` if the prompt
    /// is a message.
    pub fn system(self) -> Option<&'static str> {
        match self {
            Self::Anthropic | Self::Converse => Some("system"),
            Self::Responses => Some("instructions"),
            Self::Gemini => Some("systemInstruction"),
            Self::Chat => None,
        }
    }

    /// Returns the request's messages for editing. Adds an empty list if the request has no list of
    /// messages.
    pub fn messages(self, request: &mut Value) -> &mut Vec<Value> {
        let members = match request {
            Value::Object(members) => members,
            other => panic!("a request is an object, not {other}"),
        };
        match members.entry(self.list()).or_insert_with(|| json!([])) {
            Value::Array(messages) => messages,
            other => panic!("a conversation is a list, not {other}"),
        }
    }
}

/// A mutation operator.
pub struct Mutation {
    /// Name of the operator, for test output.
    pub name: &'static str,
    /// Whether the operator changes one Seal or the whole request.
    pub on: MutationTarget,
    apply: fn(Shape, &mut Value, &SealLocation, &mut TestRng) -> bool,
}

impl Mutation {
    /// Mutates the Seal at `location`, or the whole request if that is the operator's target.
    /// Returns whether the request changed.
    pub fn apply(
        &self,
        shape: Shape,
        request: &mut Value,
        location: &SealLocation,
        rng: &mut TestRng,
    ) -> bool {
        (self.apply)(shape, request, location, rng)
    }
}

/// The part of a request that an operator changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationTarget {
    /// One Seal, or the part that contains it.
    Seal,
    /// The request as a whole.
    Request,
}

macro_rules! operators {
    ($($name:literal on $on:ident => $apply:expr;)*) => {
        /// All mutation operators, including `nothing`, which leaves the request unchanged.
        pub static MUTATIONS: &[Mutation] = &[$(Mutation { name: $name, on: MutationTarget::$on, apply: $apply }),*];
    };
}

operators! {
    "nothing" on Request => |_, _, _, _| true;
    "drop seal" on Seal => |_, request, location, _| on_seal(request, location, |parent, key| {
        object(parent).shift_remove(key);
        true
    });
    "blank seal" on Seal => |_, request, location, _| on_seal(request, location, |parent, key| { parent[key] = json!(""); true });
    "truncate seal" on Seal => |_, request, location, _| on_seal(request, location, |parent, key| {
        let seal = parent[key].as_str().unwrap().to_owned();
        parent[key] = json!(seal.chars().take(seal.len() / 8 * 4).collect::<String>());
        true
    });
    "flip seal" on Seal => |_, request, location, _| on_seal(request, location, |parent, key| {
        let mut seal: Vec<char> = parent[key].as_str().unwrap().chars().collect();
        let middle = seal.len() / 2;
        seal[middle] = if seal[middle] == 'A' { 'B' } else { 'A' };
        parent[key] = json!(seal.into_iter().collect::<String>());
        true
    });
    "re-encode seal" on Seal => |_, request, location, _| on_seal(request, location, |parent, key| {
        let seal = parent[key].as_str().unwrap().to_owned();
        let other: String = seal.trim_end_matches('=').chars().map(|letter| match letter {
            '+' => '-', '/' => '_', '-' => '+', '_' => '/', other => other,
        }).collect();
        let is_other = other != seal;
        parent[key] = json!(other);
        is_other
    });
    "empty a thought" on Seal => |shape, request, location, _| on_seal(request, location, |parent, key| {
        if shape != Shape::Anthropic || !parent["thinking"].is_string() { return false }
        parent["thinking"] = json!("");
        parent[key] = json!("");
        true
    });
    "edit sealed text" on Seal => |_, request, location, _| on_seal(request, location, |parent, _| edit_text(parent));
    "swap two seals" on Seal => |_, request, a, rng| {
        let read = |request: &Value, location: &SealLocation| request.pointer(&location.pointer()).cloned().unwrap();
        let first = read(request, a);
        let mut others = seals(request);
        others.retain(|other| other.key == a.key && read(request, other) != first);
        let Some(b) = rng.pick(&others) else { return false };
        let second = read(request, b);
        *request.pointer_mut(&a.pointer()).unwrap() = second;
        *request.pointer_mut(&b.pointer()).unwrap() = first;
        true
    };
    "move seal" on Seal => |shape, request, location, _| {
        let Some(seal) = request.pointer(&location.pointer()).cloned() else { return false };
        let moved = on_part(shape, request, location, |list, at| {
            let Some(next) = list.get_mut(at + 1).and_then(Value::as_object_mut) else { return false };
            next.insert(location.key.clone(), seal).is_none()
        });
        moved && on_seal(request, location, |parent, key| object(parent).shift_remove(key).is_some())
    };
    "merge sealed parts" on Seal => |shape, request, location, _| on_part(shape, request, location, merge_with_neighbour);
    "drop sealed part" on Seal => |shape, request, location, _| on_part(shape, request, location, |list, at| {
        // Removing a call would orphan its result; a separate operator does that.
        if is_call(&list[at]) { return false }
        list.remove(at);
        true
    });
    "duplicate sealed part" on Seal => |shape, request, location, _| on_part(shape, request, location, |list, at| {
        if is_call(&list[at]) { return false }
        let copy = list[at].clone();
        list.insert(at, copy);
        true
    });
    "reorder sealed part" on Seal => |shape, request, location, _| on_part(shape, request, location, |list, at| {
        if at + 1 >= list.len() || list[at] == list[at + 1] { return false }
        list.swap(at, at + 1);
        true
    });
    "say thought aloud" on Seal => |shape, request, location, _| on_part(shape, request, location, |list, at| {
        let Some(thought) = text_of(&list[at]).filter(|text| !text.is_empty()) else { return false };
        if is_call(&list[at]) { return false }
        list[at] = match shape {
            Shape::Anthropic => json!({"type": "text", "text": thought}),
            Shape::Converse | Shape::Gemini => json!({"text": thought}),
            Shape::Responses => json!({"role": "assistant", "content": thought}),
            Shape::Chat => return false,
        };
        true
    });
    "drop follower" on Seal => |shape, request, location, _| on_part(shape, request, location, |list, at| {
        if shape != Shape::Responses || at + 1 >= list.len() { return false }
        let follower = list.remove(at + 1);
        // Also remove the output of a removed call; `drop a call` keeps the output.
        list.retain(|item| !is_result(item) || item["call_id"] != follower["call_id"]);
        true
    });
    "drop a call" on Request => |shape, request, _, rng| drop_call(shape, request, rng);
    "drop a result" on Request => |shape, request, _, rng| {
        let messages = shape.messages(request);
        let results: Vec<usize> = (0..messages.len()).filter(|at| is_result(&messages[*at])).collect();
        let Some(at) = rng.pick(&results).copied() else { return false };
        messages.remove(at);
        true
    };
    "drop ids of followers" on Request => |shape, request, _, _| {
        if shape != Shape::Responses { return false }
        let items = shape.messages(request).iter_mut();
        let mut dropped = false;
        for item in items.filter(|item| matches!(item["type"].as_str(), Some("function_call" | "message"))) {
            dropped |= object(item).shift_remove("id").is_some();
        }
        dropped
    };
    "drop reasoning ids" on Request => |shape, request, _, _| {
        if shape != Shape::Responses { return false }
        let items = shape.messages(request).iter_mut();
        let mut dropped = false;
        for item in items.filter(|item| item["type"] == "reasoning") {
            dropped |= object(item).shift_remove("id").is_some();
        }
        dropped
    };
    "drop all reasoning" on Request => |shape, request, _, _| drop_reasoning(shape, request, usize::MAX);
    "drop earlier turns' reasoning" on Request => |shape, request, _, _| {
        let messages = shape.messages(request);
        let last = messages.iter().rposition(|message| message["role"] == "user" && !is_result(message));
        last.is_some_and(|last| drop_reasoning(shape, request, last))
    };
    "drop an earlier thought" on Request => |shape, request, _, _| {
        if !matches!(shape, Shape::Anthropic | Shape::Converse) { return false }
        let thoughts = |message: &Value| parts(message).filter(|part| is_thinking(part)).count();
        let messages = shape.messages(request);
        let counts: Vec<usize> = messages.iter().map(thoughts).collect();
        let Some(first) = counts.iter().position(|count| *count > 0) else { return false };
        // A later message must still have a thought, and this message must keep another part.
        let is_followed = counts.iter().skip(first + 1).any(|count| *count > 0);
        let is_kept = parts(&messages[first]).count() > counts[first];
        if !is_followed || !is_kept { return false }
        let content = messages[first]["content"].as_array_mut().unwrap();
        content.retain(|part| !is_thinking(part));
        true
    };
    "add a system message" on Request => |shape, request, _, _| {
        if shape != Shape::Anthropic { return false }
        let messages = shape.messages(request);
        let last = messages.len().saturating_sub(1);
        if last == 0 || messages[last]["role"] != "user" { return false }
        messages.insert(last, json!({"role": "system", "content": "Be kind."}));
        true
    };
    "change the effort" on Request => |shape, request, _, _| {
        if shape != Shape::Anthropic || request["thinking"]["type"] != "between_tools" { return false }
        let effort = json!({"role": "system", "content": [], "output_config": {"effort": "low"}});
        shape.messages(request).push(effort);
        true
    };
    "drop fallback blocks" on Request => |shape, request, _, _| {
        if shape != Shape::Anthropic { return false }
        let mut dropped = false;
        for message in shape.messages(request) {
            let Some(content) = message["content"].as_array_mut() else { continue };
            let count = content.len();
            content.retain(|part| part["type"] != "fallback");
            dropped |= content.len() < count;
        }
        dropped
    };
    "reason with tools" on Request => |shape, request, _, _| {
        // Only some models accept tools if they do not reason.
        let is_stopped = shape == Shape::Chat && request["reasoning_effort"] == "none";
        if !is_stopped || request.get("tools").is_none() { return false }
        request["reasoning_effort"] = json!("medium");
        true
    };
    "drop a plain thought" on Request => |shape, request, _, rng| on_plain_thought(shape, request, rng, |_| None);
    "edit a plain thought" on Request => |shape, request, _, rng| {
        on_plain_thought(shape, request, rng, |thought| Some(thought.replace("The user says", "The user said")))
    };
    "edit system" on Request => |shape, request, _, _| match shape.system() {
        Some(member) if request.get(member).is_some() => {
            request[member] = match shape {
                Shape::Converse => json!([{"text": "Be long-winded."}]),
                Shape::Gemini => json!({"parts": [{"text": "Be long-winded."}]}),
                Shape::Anthropic | Shape::Responses | Shape::Chat => json!("Be long-winded."),
            };
            true
        }
        Some(_) => false,
        None => {
            let first = shape.messages(request).first_mut();
            first.filter(|first| first["role"] == "system").is_some_and(|system| {
                system["content"] = json!("Be long-winded.");
                true
            })
        }
    };
    "edit a tool" on Request => |shape, request, _, _| {
        let tool = match shape {
            Shape::Anthropic | Shape::Responses => "/tools/0",
            Shape::Converse => "/toolConfig/tools/0/toolSpec",
            Shape::Chat => "/tools/0/function",
            Shape::Gemini => "/tools/0/functionDeclarations/0",
        };
        let tool = request.pointer_mut(tool).and_then(Value::as_object_mut);
        // A provider's built-in tool has no description that could be edited.
        tool.filter(|tool| shape == Shape::Converse || tool.contains_key("description")).is_some_and(|tool| {
            tool.insert("description".to_owned(), json!("Looks it up, quickly."));
            true
        })
    };
    "edit first question" on Request => |shape, request, _, _| {
        let messages = shape.messages(request);
        if messages.len() < 2 { return false }
        let text = match shape {
            Shape::Anthropic | Shape::Responses | Shape::Chat => "/content",
            Shape::Converse => "/content/0/text",
            Shape::Gemini => "/parts/0/text",
        };
        messages[0].pointer_mut(text).is_some_and(|text| { *text = json!("Something else entirely."); true })
    };
    "add cache markers" on Request => |shape, request, _, _| {
        if shape != Shape::Anthropic { return false }
        let Some(tools) = request.get_mut("tools").and_then(Value::as_array_mut) else { return false };
        tools.last_mut().is_some_and(|tool| { tool["cache_control"] = json!({"type": "ephemeral"}); true })
    };
    "force a tool" on Request => |shape, request, _, _| {
        if request.get("tools").or_else(|| request.get("toolConfig")).is_none() { return false }
        match shape {
            Shape::Anthropic => request["tool_choice"] = json!({"type": "any"}),
            Shape::Converse => request["toolConfig"]["toolChoice"] = json!({"any": {}}),
            Shape::Responses | Shape::Chat => request["tool_choice"] = json!("required"),
            Shape::Gemini => request["toolConfig"] = json!({"functionCallingConfig": {"mode": "ANY"}}),
        }
        true
    };
    "set temperature" on Request => |shape, request, _, _| {
        match shape {
            Shape::Anthropic | Shape::Responses | Shape::Chat => request["temperature"] = json!(0.2),
            Shape::Converse => {
                object(request).entry("inferenceConfig").or_insert_with(|| json!({}))["temperature"] = json!(0.2);
            }
            Shape::Gemini => {
                object(request).entry("generationConfig").or_insert_with(|| json!({}))["temperature"] = json!(0.2);
            }
        }
        true
    };
    "ask for a strange effort" on Request => |shape, request, _, rng| {
        let effort = rng.pick(&["minimal", "xhigh", "max", "none"]).copied().unwrap();
        match shape {
            Shape::Anthropic => request["output_config"] = json!({"effort": effort}),
            Shape::Responses => {
                object(request).entry("reasoning").or_insert_with(|| json!({}))["effort"] = json!(effort);
            }
            Shape::Chat | Shape::Converse | Shape::Gemini => return false,
        }
        true
    };
    "ask for a tiny budget" on Request => |shape, request, _, _| match shape {
        Shape::Anthropic => { request["thinking"] = json!({"type": "enabled", "budget_tokens": 100}); true }
        Shape::Gemini => {
            object(request).entry("generationConfig").or_insert_with(|| json!({}))["thinkingConfig"] = json!({"thinkingBudget": 90000});
            true
        }
        Shape::Converse | Shape::Responses | Shape::Chat => false,
    };
    "switch thinking off" on Request => |shape, request, _, _| match shape {
        Shape::Anthropic => { request["thinking"] = json!({"type": "disabled"}); true }
        Shape::Converse => { request["additionalModelRequestFields"] = json!({"thinking": {"type": "disabled"}}); true }
        Shape::Responses | Shape::Chat | Shape::Gemini => false,
    };
    "reorder members of a tool" on Request => |shape, request, _, _| {
        let pointer = match shape {
            Shape::Anthropic | Shape::Responses | Shape::Chat => "/tools/0",
            Shape::Converse => "/toolConfig/tools/0/toolSpec",
            Shape::Gemini => "/tools/0/functionDeclarations/0",
        };
        let tool = request.pointer_mut(pointer).and_then(Value::as_object_mut);
        tool.is_some_and(|tool| {
            let first = tool.keys().next().cloned().unwrap();
            let value = tool.shift_remove(&first).unwrap();
            tool.insert(first, value);
            true
        })
    };
}

fn on_seal(
    request: &mut Value,
    location: &SealLocation,
    change: impl FnOnce(&mut Value, &str) -> bool,
) -> bool {
    request.pointer_mut(&location.parent).is_some_and(|parent| change(parent, &location.key))
}

/// Applies `change` to the list of parts, at the index of the part that contains the Seal.
fn on_part(
    shape: Shape,
    request: &mut Value,
    location: &SealLocation,
    change: impl FnOnce(&mut Vec<Value>, usize) -> bool,
) -> bool {
    let depth = match shape {
        Shape::Anthropic | Shape::Converse | Shape::Gemini => 4,
        Shape::Responses => 2,
        // In chat, only a router's reasoning details are parts.
        Shape::Chat if location.parent.contains("/reasoning_details/") => 4,
        Shape::Chat => return false,
    };
    let part = location.parent.split('/').take(depth + 1).collect::<Vec<_>>().join("/");
    let Some((list, at)) = part.rsplit_once('/') else { return false };
    let Some(list) = request.pointer_mut(list).and_then(Value::as_array_mut) else { return false };
    at.parse().is_ok_and(|at: usize| at < list.len() && change(list, at))
}

fn edit_text(parent: &mut Value) -> bool {
    for key in ["thinking", "text", "reasoning_content"] {
        if let Some(text) = parent.get(key).and_then(Value::as_str).filter(|text| text.len() > 3) {
            parent[key] = json!(format!("{}!", text.trim_end_matches(['.', '!'])));
            return true;
        }
    }
    let summary = parent.pointer_mut("/summary/0/text");
    summary.is_some_and(|text| {
        *text = json!("Something else was thought.");
        true
    })
}

/// Changes or removes the plain thought of one random chat message. The thought may be a field, a
/// content chunk, or text in `<think>` tags.
fn on_plain_thought(
    shape: Shape,
    request: &mut Value,
    rng: &mut TestRng,
    change: fn(&str) -> Option<String>,
) -> bool {
    if shape != Shape::Chat {
        return false;
    }
    let messages = shape.messages(request).iter_mut();
    let mut models: Vec<&mut Value> = messages
        .filter(|m| m["role"] == "assistant" && m.get("reasoning_details").is_none())
        .collect();
    let number = rng.below(models.len().max(1));
    let Some(message) = models.get_mut(number) else { return false };
    let before = message.clone();
    for key in ["reasoning", "reasoning_content"] {
        if let Some(thought) = message[key].as_str() {
            match change(thought) {
                Some(changed) => message[key] = json!(changed),
                None => drop(object(message).shift_remove(key)),
            }
            return **message != before;
        }
    }
    if let Some((thought, rest)) = message["content"].as_str().and_then(|text| {
        let (thought, rest) = text.strip_prefix("<think>")?.split_once("</think>")?;
        Some((thought.to_owned(), rest.to_owned()))
    }) {
        let changed = change(&thought).map(|thought| format!("<think>{thought}</think>{rest}"));
        message["content"] = json!(changed.unwrap_or_else(|| rest.trim_start().to_owned()));
    } else if let Some(chunks) = message["content"].as_array_mut() {
        let Some(at) = chunks.iter().position(|chunk| chunk["type"] == "thinking") else {
            return false;
        };
        match change(chunks[at]["thinking"][0]["text"].as_str().unwrap_or_default()) {
            Some(changed) => chunks[at]["thinking"][0]["text"] = json!(changed),
            None => drop(chunks.remove(at)),
        }
    }
    **message != before
}

/// Merges a part and its Seal with the next part or, if that fails, with the previous one.
fn merge_with_neighbour(list: &mut Vec<Value>, at: usize) -> bool {
    let text_at = |at: usize| list.get(at).filter(|part| !is_call(part)).and_then(text_of);
    let (Some(own), after) = (text_at(at), text_at(at + 1)) else { return false };
    let (neighbour, merged) = match (after, at.checked_sub(1).and_then(text_at)) {
        (Some(after), _) => (at + 1, own + &after),
        (None, Some(before)) => (at - 1, before + &own),
        (None, None) => return false,
    };
    let pointer = TEXTS.iter().find(|pointer| list[at].pointer(pointer).is_some());
    *list[at].pointer_mut(pointer.unwrap()).unwrap() = json!(merged);
    list.remove(neighbour);
    true
}

/// Removes one tool call from its message and keeps its result.
fn drop_call(shape: Shape, request: &mut Value, rng: &mut TestRng) -> bool {
    let messages = shape.messages(request);
    let list = shape.parts().or((shape == Shape::Chat).then_some("tool_calls"));
    let mut calls: Vec<(usize, usize)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match list {
            Some(list) => {
                let parts = message[list].as_array().into_iter().flatten().enumerate();
                let parts = parts.filter(|(_, part)| shape == Shape::Chat || is_call(part));
                calls.extend(parts.map(|(part, _)| (at, part)));
            }
            None if is_call(message) => calls.push((at, 0)),
            None => {}
        }
    }
    let Some((at, part)) = rng.pick(&calls).copied() else { return false };
    match list.and_then(|list| messages[at][list].as_array_mut()) {
        Some(parts) if parts.len() > 1 => {
            parts.remove(part);
        }
        Some(_) | None => {
            messages.remove(at);
        }
    }
    true
}

/// Removes all thoughts and signatures from the messages before index `end`.
fn drop_reasoning(shape: Shape, request: &mut Value, end: usize) -> bool {
    let messages = shape.messages(request);
    let before = messages.clone();
    let is_reasoning = |part: &Value| {
        matches!(part["type"].as_str(), Some("thinking" | "redacted_thinking" | "reasoning"))
            || part.get("reasoningContent").is_some()
            || part["thought"] == true
    };
    for message in messages.iter_mut().take(end) {
        if let Some(parts) =
            shape.parts().and_then(|parts| message.get_mut(parts)).and_then(Value::as_array_mut)
        {
            parts.retain(|part| !is_reasoning(part));
            for part in parts {
                if let Some(part) = part.as_object_mut() {
                    part.shift_remove("thoughtSignature");
                    part.shift_remove("thought_signature");
                }
            }
        }
        if let Some(message) = message.as_object_mut() {
            for key in ["reasoning", "reasoning_details", "reasoning_content"] {
                message.shift_remove(key);
            }
        }
    }
    let mut at = 0;
    messages.retain(|message| {
        at += 1;
        at > end || !is_reasoning(message)
    });
    *messages != before
}
