//! Writes Responses API responses: output items with their Seals, and the echoed settings.

use serde_json::{Value, json};
use throughline_core::{StopReason, Usage};
use throughline_json::{Json, Node};

use crate::digest::Digest;
use crate::keys::{SealClaims, SealFormat};
use crate::turn::{Operation, ReplyPart, ReplyPlan, SimRequest, ThoughtDisplay, Turn};
use crate::wires::responses::input::{InputItem, ItemKind, elements};
use crate::wires::responses::{StorageMode, read};
use crate::wires::{Exchange, member_is, openai, set, value};

/// Writes a complete response. Stores the response if the request enables storage.
pub(super) fn respond(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Value {
    let (request, state) = (exchange.request, exchange.state);
    let root = request.body.root();
    let storage = StorageMode::from_provider(&request.row);
    let id = storage.id(request, "resp_", "reply");
    let items = items(exchange, turn, plan, storage);
    if request.verb == Operation::Compact {
        return compaction(request, &id, items, plan);
    }
    let stores = read::stores(root) && storage != StorageMode::Stateless;
    if stores {
        let output: Vec<Json> = items.iter().map(Json::from).collect();
        // A compaction replaces the conversation before it.
        let before = if turn.compacts { Vec::new() } else { read::conversation(request, state) };
        state.stored.insert(read::owner(request), &id, before, &output);
    }
    let (status, details) = match &plan.stop {
        StopReason::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
        StopReason::Paused | StopReason::Cut | StopReason::Other(_) => {
            ("incomplete", json!({"reason": "content_filter"}))
        }
        StopReason::Done | StopReason::Tools | StopReason::Sequence(_) | StopReason::Refused(_) => {
            ("completed", Value::Null)
        }
    };
    let echo = |key: &str, default: Value| root.present(key).map_or(default, value);
    let effort = root.at("/reasoning/effort").and_then(Node::text);
    let default = turn.target.profile.notes.get("default-effort").map(String::as_str);
    let summary = root.at("/reasoning/summary").map_or(Value::Null, value);
    let effort = effort.as_deref().or(default);
    json!({
        "id": id,
        "object": "response",
        "created_at": openai::CREATED,
        "status": status,
        "background": false,
        "completed_at": openai::CREATED + 1,
        "error": null,
        "incomplete_details": details,
        "instructions": echo("instructions", Value::Null),
        "max_output_tokens": echo("max_output_tokens", Value::Null),
        "max_tool_calls": null,
        "model": request.model,
        "output": items,
        "parallel_tool_calls": echo("parallel_tool_calls", json!(true)),
        "previous_response_id": echo("previous_response_id", Value::Null),
        "prompt_cache_key": echo("prompt_cache_key", Value::Null),
        "reasoning": {"effort": effort, "summary": summary},
        "safety_identifier": null,
        "service_tier": "default",
        "store": stores,
        "temperature": echo("temperature", json!(1.0)),
        "text": echo("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
        "tool_choice": echo("tool_choice", json!("auto")),
        "tools": echo("tools", json!([])),
        "top_logprobs": 0,
        "top_p": echo("top_p", json!(1.0)),
        "truncation": "disabled",
        "usage": usage_json(&plan.usage),
        "user": null,
        "metadata": echo("metadata", json!({})),
    })
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.written,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.thought},
        "total_tokens": usage.total(),
    })
}

/// Writes the response of `/v1/responses/compact`: the user's messages, then the compaction.
fn compaction(request: &SimRequest, id: &str, items: Vec<Value>, plan: &ReplyPlan) -> Value {
    let input = elements(request.body.root().present("input")).into_iter();
    let messages = input.enumerate().filter_map(|(at, item)| {
        let tree = item.json.tree();
        let is_users = item.kind == ItemKind::Message && member_is(tree.root(), "role", "user");
        is_users.then(|| {
            let text = openai::text(tree.root().get("content"));
            let id = request.id("msg_", &format!("user message {at}"), 48);
            let content = json!([{"type": "input_text", "text": text}]);
            json!({"id": id, "type": "message", "status": "completed", "content": content,
                   "role": "user"})
        })
    });
    json!({
        "id": id,
        "object": "response.compaction",
        "created_at": openai::CREATED,
        "output": messages.chain(items).collect::<Vec<Value>>(),
        "usage": usage_json(&plan.usage),
    })
}

impl StorageMode {
    /// Derives an id: a UUID for DeepSeek, otherwise a prefix followed by letters and digits.
    fn id(self, request: &SimRequest, prefix: &str, label: &str) -> String {
        match self {
            Self::Paired | Self::Unpaired => request.id(prefix, label, 48),
            Self::Stateless => request.nonce.and(label).uuid(),
        }
    }
}

fn items(
    exchange: &mut Exchange<'_>,
    turn: &Turn,
    plan: &ReplyPlan,
    storage: StorageMode,
) -> Vec<Value> {
    let request = exchange.request;
    let has_calls = plan.parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }));
    // Write the other items first, because the Seal of a thought is bound to the item after it.
    let mut encoded: Vec<Option<Value>> = Vec::new();
    for (at, part) in plan.parts.iter().enumerate() {
        encoded.push(match part {
            ReplyPart::Thought { .. } => None,
            ReplyPart::Text(text) if turn.compacts => {
                let label = format!("compaction {at}");
                Some(compaction_item(exchange, turn, text, &storage.id(request, "cmp_", &label)))
            }
            ReplyPart::Text(text) => {
                exchange.record.record_text(text);
                let id = storage.id(request, "msg_", &format!("message {at}"));
                Some(message(turn, &id, text, has_calls))
            }
            ReplyPart::Call { name, arguments } => {
                let call_id = request.id("call_", &format!("call {at}"), 24);
                exchange.record.call(&call_id);
                let item_id = |prefix: &str| storage.id(request, prefix, &format!("item {at}"));
                let mut item = call(&item_id, &call_id, name, arguments);
                let tool = turn.tools.iter().find(|tool| tool.name == *name);
                if let Some(namespace) = tool.and_then(|tool| tool.namespace.as_deref()) {
                    set(&mut item, "namespace", namespace);
                }
                Some(item)
            }
        });
    }
    let count = encoded.iter().filter(|item| item.is_none()).count();
    let (mut items, mut ordinal) = (Vec::with_capacity(encoded.len() + 1), 0);
    if turn.compacts_first {
        let id = storage.id(request, "cmp_", "compaction before the reply");
        items.push(compaction_item(exchange, turn, &turn.user_text, &id));
    }
    for (at, part) in plan.parts.iter().enumerate() {
        let ReplyPart::Thought { text, display } = part else {
            items.extend(encoded.get(at).cloned().flatten());
            continue;
        };
        let next = encoded.iter().skip(at + 1).flatten().next();
        let next = next.map(|item| InputItem::new(Json::from(item), None));
        let claims = SealClaims {
            ordinal,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            text: Digest::new("throughline-sim reasoning", text),
            hidden: !turn.shows,
            beside: next.as_ref().map(InputItem::bound_digest),
            beside_call: next.as_ref().and_then(InputItem::call_digest),
            ..exchange.claims(turn, "reasoning")
        };
        ordinal += 1;
        let is_shown = turn.shows && *display == ThoughtDisplay::AsAsked;
        if is_shown {
            exchange.record.record_thought(text);
        }
        let id = storage.id(request, "rs_", &format!("reasoning {at}"));
        items.push(if storage == StorageMode::Stateless {
            // Without a Seal, the ledger identifies the thought by its text.
            exchange.record.issue(text, "reasoning");
            json!({
                "type": "reasoning",
                "id": id,
                "status": "completed",
                "content": [{"type": "reasoning_text", "text": text}],
                "summary": [],
            })
        } else {
            let summary = is_shown.then(|| json!({"type": "summary_text", "text": text}));
            let summary: Vec<Value> = summary.into_iter().collect();
            let sealed = exchange.seal(&request.row.name, SealFormat::Fernet, &claims);
            json!({"id": id, "type": "reasoning", "summary": summary, "encrypted_content": sealed})
        });
    }
    if let StopReason::Refused(_) = plan.stop {
        let text = "I'm sorry, but I can't help with that.";
        let id = storage.id(request, "msg_", &format!("message {}", usize::MAX));
        items.push(message_item(&id, &json!([{"type": "refusal", "refusal": text}])));
    }
    items
}

/// Writes a sealed compaction of a text.
fn compaction_item(exchange: &mut Exchange<'_>, turn: &Turn, text: &str, id: &str) -> Value {
    let text = Digest::new("throughline-sim compaction", text);
    let claims = SealClaims { text, ..exchange.claims(turn, "compaction") };
    let signer = exchange.request.row.name.clone();
    let sealed = exchange.seal(&signer, SealFormat::Fernet, &claims);
    json!({"id": id, "type": "compaction", "encrypted_content": sealed})
}

fn message_item(id: &str, content: &Value) -> Value {
    json!({
        "id": id,
        "type": "message",
        "status": "completed",
        "content": content,
        "role": "assistant",
    })
}

fn message(turn: &Turn, id: &str, text: &str, has_calls: bool) -> Value {
    let content = json!([{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]);
    let mut message = message_item(id, &content);
    // Newer families mark each message with a phase, and expect the phase back.
    let family = turn.target.profile.name.as_str();
    if matches!(family, "gpt" | "gpt-5.5" | "gpt-5.6" | "deepseek-v4") {
        set(&mut message, "phase", if has_calls { "commentary" } else { "final_answer" });
    }
    message
}

fn call(item_id: &dyn Fn(&str) -> String, call_id: &str, name: &str, arguments: &Value) -> Value {
    if let Value::String(input) = arguments {
        return json!({
            "id": item_id("ctc_"),
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": call_id,
            "input": input,
            "name": name,
        });
    }
    json!({
        "id": item_id("fc_"),
        "type": "function_call",
        "status": "completed",
        "arguments": arguments.to_string(),
        "call_id": call_id,
        "name": name,
    })
}
