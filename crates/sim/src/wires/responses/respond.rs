//! Writes responses: the output items with their Seals, and the echoed settings.

use serde_json::{Value, json};
use throughline_core::StopReason;
use throughline_json::{Json, Node};

use crate::digest::Digest;
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::EntryBuilder;
use crate::state::SimState;
use crate::turn::{ReplyPart, ReplyPlan, SimRequest, ThoughtDisplay, Turn};
use crate::wires::Exchange;
use crate::wires::openai;
use crate::wires::responses::input::InputItem;
use crate::wires::responses::{StorageMode, read};

/// Writes a whole response, and stores it if requested.
pub(super) fn respond(exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
    let Exchange { asking, world, record } = exchange;
    let root = asking.body.root();
    let house = StorageMode::from_provider(&asking.row);
    let id = match house {
        StorageMode::Pairs | StorageMode::Keeps => asking.id("resp_", "reply", 48),
        StorageMode::Forgets => uuid(asking, "reply"),
    };
    let items = items(asking, turn, plan, house, world, record);
    let stores = read::stores(root) && house != StorageMode::Forgets;
    if stores {
        let kept: Vec<Json> = items.iter().map(openai::json).collect();
        let before = read::conversation(asking, world);
        world.stored.insert(read::owner(asking), &id, before, &kept);
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
    let echo = |key: &str| root.present(key).map_or(Value::Null, openai::value);
    let echo_or = |key: &str, usual: Value| root.present(key).map_or(usual, openai::value);
    let effort = root.at("/reasoning/effort").and_then(Node::text);
    let default = turn.target.profile.notes.get("default-effort").map(String::as_str);
    let summary = root.at("/reasoning/summary").map_or(Value::Null, openai::value);
    let effort = effort.as_deref().or(default);
    let usage = &plan.usage;
    openai::json(&json!({
        "id": id,
        "object": "response",
        "created_at": openai::CREATED,
        "status": status,
        "background": false,
        "completed_at": openai::CREATED + 1,
        "error": null,
        "incomplete_details": details,
        "instructions": echo("instructions"),
        "max_output_tokens": echo("max_output_tokens"),
        "max_tool_calls": null,
        "model": asking.model,
        "output": items,
        "parallel_tool_calls": echo_or("parallel_tool_calls", json!(true)),
        "previous_response_id": echo("previous_response_id"),
        "prompt_cache_key": echo("prompt_cache_key"),
        "reasoning": {"effort": effort, "summary": summary},
        "safety_identifier": null,
        "service_tier": "default",
        "store": stores,
        "temperature": echo_or("temperature", json!(1.0)),
        "text": echo_or("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
        "tool_choice": echo_or("tool_choice", json!("auto")),
        "tools": echo_or("tools", json!([])),
        "top_logprobs": 0,
        "top_p": echo_or("top_p", json!(1.0)),
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {
                "cached_tokens": usage.cached,
                "cache_write_tokens": usage.written,
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.thought},
            "total_tokens": usage.total(),
        },
        "user": null,
        "metadata": echo_or("metadata", json!({})),
    }))
}

fn items(
    asking: &SimRequest,
    turn: &Turn,
    plan: &ReplyPlan,
    house: StorageMode,
    world: &SimState,
    record: &mut EntryBuilder,
) -> Vec<Value> {
    let has_calls = plan.parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }));
    // Write the other items first, because the Seal of a thought is bound to the item that follows
    // it.
    let written: Vec<Option<Value>> = plan
        .parts
        .iter()
        .enumerate()
        .map(|(at, part)| match part {
            ReplyPart::Thought { .. } => None,
            ReplyPart::Text(text) => {
                record.record_text(text);
                Some(message(asking, turn, at, text, has_calls))
            }
            ReplyPart::Call { name, arguments } => {
                Some(call(asking, at, name, arguments, house, record))
            }
        })
        .collect();
    let count = written.iter().filter(|item| item.is_none()).count();
    let (mut items, mut ordinal) = (Vec::with_capacity(written.len()), 0);
    for (at, part) in plan.parts.iter().enumerate() {
        let ReplyPart::Thought { text, telling } = part else {
            items.extend(written.get(at).cloned().flatten());
            continue;
        };
        let led = written.iter().skip(at + 1).flatten().next();
        let claims = SealClaims {
            kind: "reasoning".to_owned(),
            row: asking.row.name.to_string(),
            family: turn.target.profile.name.clone(),
            account: asking.account,
            reply: asking.nonce,
            ordinal,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            text: Digest::new("throughline-sim reasoning", text),
            hidden: !turn.shows,
            beside: led.map(|item| InputItem::new(openai::json(item), None).bound_digest()),
            is_behind: false,
            prefix: None,
        };
        ordinal += 1;
        let is_shown = turn.shows && *telling == ThoughtDisplay::AsAsked;
        if is_shown {
            record.think(text);
        }
        items.push(reasoning(asking, at, text, is_shown, house, || {
            if house == StorageMode::Forgets {
                // There is no Seal, so the text identifies the thought.
                record.issue(text, "reasoning");
                return String::new();
            }
            let sealed = world.keys.seal(&asking.row.name, SealFormat::Fernet, &claims);
            record.issue(&sealed, "reasoning");
            sealed
        }));
    }
    if let StopReason::Refused(_) = plan.stop {
        items.push(refusal(asking));
    }
    items
}

fn reasoning(
    asking: &SimRequest,
    at: usize,
    text: &str,
    is_shown: bool,
    house: StorageMode,
    seal: impl FnOnce() -> String,
) -> Value {
    if house == StorageMode::Forgets {
        seal();
        return json!({
            "type": "reasoning",
            "id": uuid(asking, &format!("reasoning {at}")),
            "status": "completed",
            "content": [{"type": "reasoning_text", "text": text}],
            "summary": [],
        });
    }
    let summary =
        if is_shown { json!([{"type": "summary_text", "text": text}]) } else { json!([]) };
    let id = asking.id("rs_", &format!("reasoning {at}"), 48);
    json!({"id": id, "type": "reasoning", "summary": summary, "encrypted_content": seal()})
}

fn message(asking: &SimRequest, turn: &Turn, at: usize, text: &str, has_calls: bool) -> Value {
    let content = json!([{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]);
    let mut message = json!({
        "id": message_id(asking, at),
        "type": "message",
        "status": "completed",
        "content": content,
        "role": "assistant",
    });
    // Newer families mark the phase of a message and expect it back.
    let family = turn.target.profile.name.as_str();
    if matches!(family, "gpt" | "gpt-5.5" | "gpt-5.6" | "deepseek-v4") {
        openai::set_member(
            &mut message,
            "phase",
            json!(if has_calls { "commentary" } else { "final_answer" }),
        );
    }
    message
}

fn refusal(asking: &SimRequest) -> Value {
    let content = json!([{"type": "refusal", "refusal": "I'm sorry, but I can't help with that."}]);
    json!({
        "id": message_id(asking, usize::MAX),
        "type": "message",
        "status": "completed",
        "content": content,
        "role": "assistant",
    })
}

fn message_id(asking: &SimRequest, at: usize) -> String {
    match StorageMode::from_provider(&asking.row) {
        StorageMode::Pairs | StorageMode::Keeps => asking.id("msg_", &format!("message {at}"), 48),
        StorageMode::Forgets => uuid(asking, &format!("message {at}")),
    }
}

fn call(
    asking: &SimRequest,
    at: usize,
    name: &str,
    arguments: &Value,
    house: StorageMode,
    record: &mut EntryBuilder,
) -> Value {
    let call_id = asking.id("call_", &format!("call {at}"), 24);
    record.call(&call_id);
    let item_id = |prefix: &str| match house {
        StorageMode::Pairs | StorageMode::Keeps => asking.id(prefix, &format!("item {at}"), 48),
        StorageMode::Forgets => uuid(asking, &format!("item {at}")),
    };
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

/// Derives an id in DeepSeek's format.
fn uuid(asking: &SimRequest, label: &str) -> String {
    let hex = asking.nonce.and(label).hex(32);
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    let (one, two, three) = (part(0, 8), part(8, 12), part(13, 16));
    format!("{one}-{two}-4{three}-8{}-{}", part(17, 20), part(20, 32))
}
