//! The dialects in which the benchmark's client calls a gateway: paths, requests, and the parts of
//! a response that the client keeps.
//!
//! The client behaves like the vendors' official clients. It returns each response exactly as the
//! gateway sent it, including members that the client does not know.

use serde_json::{Map, Value, json};
use throughline_core::Wire;

/// An API that the client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Messages,
    Responses,
    Chat,
    Gemini,
    Converse,
}

/// A tool call that the client must answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedCall {
    pub(super) id: Option<String>,
    pub(super) name: String,
}

/// The values from which a request is built.
pub(super) struct RequestParts<'p> {
    pub(super) model: &'p str,
    pub(super) system: &'p str,
    pub(super) history: &'p [Value],
    pub(super) is_streamed: bool,
}

const MAX_TOKENS: u32 = 8192;
const THINKING_BUDGET: u32 = 2048;

/// Name, description and parameter of each tool that the client offers.
const TOOLS: [(&str, &str, &str); 2] = [
    ("read_metrics", "Reads the metrics of a service.", "service"),
    ("list_deploys", "Lists the latest deployments — newest first.", "since"),
];

/// Members of a request that form the model's prompt.
const PROMPT_MEMBERS: [&str; 8] = [
    "system",
    "instructions",
    "systemInstruction",
    "tools",
    "toolConfig",
    "messages",
    "input",
    "contents",
];

impl Dialect {
    pub(super) fn wire(self) -> Wire {
        match self {
            Self::Messages => Wire::ANTHROPIC_MESSAGES,
            Self::Responses => Wire::OPENAI_RESPONSES,
            Self::Chat => Wire::OPENAI_CHAT,
            Self::Gemini => Wire::GEMINI,
            Self::Converse => Wire::BEDROCK_CONVERSE,
        }
    }

    /// Returns the path of a request, as in the vendor's own API.
    pub(super) fn path(self, model: &str, is_streamed: bool) -> String {
        let model = escaped(model);
        match (self, is_streamed) {
            (Self::Messages, _) => "/v1/messages".to_owned(),
            (Self::Responses, _) => "/v1/responses".to_owned(),
            (Self::Chat, _) => "/v1/chat/completions".to_owned(),
            (Self::Gemini, false) => format!("/v1beta/models/{model}:generateContent"),
            (Self::Gemini, true) => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
            (Self::Converse, false) => format!("/model/{model}/converse"),
            (Self::Converse, true) => format!("/model/{model}/converse-stream"),
        }
    }

    /// Writes a request.
    pub(super) fn request(self, parts: &RequestParts<'_>) -> Value {
        let RequestParts { model, system, history, is_streamed } = *parts;
        let tools: Vec<Value> = TOOLS.iter().map(|tool| self.tool(tool)).collect();
        let mut request = match self {
            Self::Messages => json!({
                "model": model,
                "max_tokens": MAX_TOKENS,
                "thinking": claude_thinking(model),
                "system": system,
                "tools": tools,
                "messages": history,
            }),
            Self::Responses => json!({
                "model": model,
                "store": false,
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"effort": "medium", "summary": "auto"},
                "instructions": system,
                "tools": tools,
                "input": history,
            }),
            Self::Chat => {
                let system = json!({"role": "system", "content": system});
                let messages: Vec<&Value> = [&system].into_iter().chain(history).collect();
                json!({
                    "model": model,
                    "max_tokens": MAX_TOKENS,
                    "tools": tools,
                    "messages": messages,
                })
            }
            Self::Gemini => json!({
                "systemInstruction": {"parts": [{"text": system}]},
                "tools": [{"functionDeclarations": tools}],
                "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
                "contents": history,
            }),
            Self::Converse => json!({
                "system": [{"text": system}],
                "toolConfig": {"tools": tools},
                "inferenceConfig": {"maxTokens": MAX_TOKENS},
                "additionalModelRequestFields": {"thinking": claude_thinking(model)},
                "messages": history,
            }),
        };
        let is_in_body = matches!(self, Self::Messages | Self::Responses | Self::Chat);
        if let Some(members) = request.as_object_mut().filter(|_| is_streamed && is_in_body) {
            members.insert("stream".to_owned(), Value::Bool(true));
        }
        request
    }

    fn tool(self, (name, description, parameter): &(&str, &str, &str)) -> Value {
        let mut properties = Map::new();
        properties.insert((*parameter).to_owned(), json!({"type": "string"}));
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": [parameter],
        });
        match self {
            Self::Messages => {
                json!({"name": name, "description": description, "input_schema": schema})
            }
            Self::Responses => json!({
                "type": "function",
                "name": name,
                "description": description,
                "parameters": schema,
            }),
            Self::Chat => json!({
                "type": "function",
                "function": {"name": name, "description": description, "parameters": schema},
            }),
            Self::Gemini => json!({
                "name": name,
                "description": description,
                "parametersJsonSchema": schema,
            }),
            Self::Converse => json!({"toolSpec": {
                "name": name,
                "description": description,
                "inputSchema": {"json": schema},
            }}),
        }
    }

    pub(super) fn user_message(self, text: &str) -> Value {
        match self {
            Self::Messages | Self::Responses | Self::Chat => {
                json!({"role": "user", "content": text})
            }
            Self::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
            Self::Converse => json!({"role": "user", "content": [{"text": text}]}),
        }
    }

    /// Returns the messages or items of a response that the client adds to its history. Returns
    /// `None` if the response is not in this dialect.
    pub(super) fn history_items(self, response: &Value) -> Option<Vec<Value>> {
        let item = match self {
            Self::Messages => {
                let content = response.get("content").filter(|content| content.is_array())?;
                json!({"role": "assistant", "content": content})
            }
            Self::Responses => return response.get("output")?.as_array().cloned(),
            Self::Chat => response.pointer("/choices/0/message")?.clone(),
            Self::Gemini => response.pointer("/candidates/0/content")?.clone(),
            Self::Converse => response.pointer("/output/message")?.clone(),
        };
        item.is_object().then(|| vec![item])
    }

    /// Returns the tool calls in history items.
    pub(super) fn calls(self, items: &[Value]) -> Vec<RequestedCall> {
        let parts = items.iter().flat_map(|item| match self {
            Self::Messages | Self::Converse => list(item, "content"),
            Self::Responses => std::slice::from_ref(item),
            Self::Chat => list(item, "tool_calls"),
            Self::Gemini => list(item, "parts"),
        });
        let calls = parts.filter_map(|part| {
            let (call, id, name) = match self {
                Self::Messages => (typed(part, "tool_use")?, "id", "name"),
                Self::Responses => (typed(part, "function_call")?, "call_id", "name"),
                Self::Chat => (part, "id", "/function/name"),
                Self::Gemini => (part.get("functionCall")?, "id", "name"),
                Self::Converse => (part.get("toolUse")?, "toolUseId", "name"),
            };
            let name = call.pointer(name).or_else(|| call.get(name))?.as_str()?.to_owned();
            let id = call.get(id).and_then(Value::as_str).map(str::to_owned);
            Some(RequestedCall { id, name })
        });
        calls.collect()
    }

    /// Returns the history items that answer tool calls.
    pub(super) fn results(self, calls: &[RequestedCall]) -> Vec<Value> {
        let results = calls.iter().map(|RequestedCall { id, name }| {
            let text = format!("{name}: p95 = 0.21 s in Zürich ✅");
            match self {
                Self::Messages => {
                    json!({"type": "tool_result", "tool_use_id": id, "content": text})
                }
                Self::Responses => {
                    json!({"type": "function_call_output", "call_id": id, "output": text})
                }
                Self::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
                Self::Gemini => {
                    let mut result = json!({"name": name, "response": {"result": text}});
                    if let Some((id, members)) = id.as_ref().zip(result.as_object_mut()) {
                        members.insert("id".to_owned(), json!(id));
                    }
                    json!({"functionResponse": result})
                }
                Self::Converse => {
                    json!({"toolResult": {"toolUseId": id, "content": [{"text": text}]}})
                }
            }
        });
        let results: Vec<Value> = results.collect();
        match self {
            Self::Responses | Self::Chat => results,
            Self::Messages | Self::Converse => vec![json!({"role": "user", "content": results})],
            Self::Gemini => vec![json!({"role": "user", "parts": results})],
        }
    }

    /// Removes all reasoning from history items, like a client that stores only readable content.
    pub(super) fn without_reasoning(self, items: &[Value]) -> Vec<Value> {
        let is_kept = |part: &Value| match self {
            Self::Messages => {
                typed(part, "thinking").is_none() && typed(part, "redacted_thinking").is_none()
            }
            Self::Responses => typed(part, "reasoning").is_none(),
            Self::Converse => part.get("reasoningContent").is_none(),
            Self::Gemini => part.get("thought") != Some(&Value::Bool(true)),
            Self::Chat => true,
        };
        let mut items = items.to_vec();
        match self {
            Self::Responses => items.retain(is_kept),
            Self::Chat => items.iter_mut().for_each(strip_chat_message),
            Self::Messages | Self::Converse | Self::Gemini => {
                let member = if self == Self::Gemini { "parts" } else { "content" };
                for parts in
                    items.iter_mut().filter_map(|item| item.get_mut(member)?.as_array_mut())
                {
                    parts.retain(is_kept);
                    for part in parts.iter_mut().filter_map(Value::as_object_mut) {
                        part.shift_remove("thoughtSignature");
                    }
                    // A part with only a signature has no readable content.
                    parts.retain(|part| part.get("text").and_then(Value::as_str) != Some(""));
                }
            }
        }
        items
    }
}

/// Reduces a chat message to the members that the first version of the API had.
fn strip_chat_message(message: &mut Value) {
    let Some(members) = message.as_object_mut() else { return };
    members.retain(|name, _| ["role", "content", "tool_calls"].contains(&name.as_str()));
    for call in members.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(call) = call.as_object_mut() {
            call.retain(|name, _| ["id", "type", "function"].contains(&name.as_str()));
        }
    }
}

/// Splits the prompt of a request into JSON tokens, in their original order. White space and
/// different escapes of the same character do not change the tokens.
pub(super) fn prompt_tokens(request: &Value) -> Vec<String> {
    enum Task<'v> {
        Value(&'v Value),
        Token(String),
    }
    let members = PROMPT_MEMBERS.iter().filter_map(|name| Some((*name, request.get(*name)?)));
    let mut tokens = Vec::new();
    for (name, value) in members {
        tokens.push(Value::from(name).to_string());
        let mut tasks = vec![Task::Value(value)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Token(token) => tokens.push(token),
                Task::Value(Value::Array(elements)) => {
                    tokens.push("[".to_owned());
                    tasks.push(Task::Token("]".to_owned()));
                    tasks.extend(elements.iter().rev().map(Task::Value));
                }
                Task::Value(Value::Object(members)) => {
                    tokens.push("{".to_owned());
                    tasks.push(Task::Token("}".to_owned()));
                    for (name, value) in members.iter().rev() {
                        tasks.push(Task::Value(value));
                        tasks.push(Task::Token(Value::from(name.as_str()).to_string()));
                    }
                }
                Task::Value(value) => tokens.push(value.to_string()),
            }
        }
    }
    tokens
}

/// Returns Claude's thinking setting. Claude 4.5 and older models require a budget.
fn claude_thinking(model: &str) -> Value {
    if model.contains("-4-5") {
        json!({"type": "enabled", "budget_tokens": THINKING_BUDGET})
    } else {
        json!({"type": "adaptive"})
    }
}

fn list<'v>(value: &'v Value, member: &str) -> &'v [Value] {
    value.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn typed<'v>(part: &'v Value, kind: &str) -> Option<&'v Value> {
    (part.get("type")?.as_str()? == kind).then_some(part)
}

/// Escapes a model name for use as one segment of a path.
fn escaped(model: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    model.bytes().map(escape).collect()
}
