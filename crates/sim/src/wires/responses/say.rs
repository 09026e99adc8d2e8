//! Answers, written: the output items with their seals, and everything else that a response says of itself.

use serde_json::{Value, json};
use throughline_core::{Json, Node, Stop};

use crate::digest::Mark;
use crate::keys::{Claims, Form};
use crate::ledger::Record;
use crate::turn::{Asking, Part, Plan, Telling, Turn};
use crate::wires::openai;
use crate::wires::responses::input::Element;
use crate::wires::responses::{House, read};
use crate::world::World;

/// Writes a whole response, and keeps it where it is to be kept.
pub(super) fn say(
    asking: &Asking,
    turn: &Turn,
    plan: &Plan,
    world: &World,
    record: &mut Record,
) -> Json {
    let root = asking.body.root();
    let house = House::of(&asking.row);
    let id = match house {
        House::Pairs | House::Keeps => asking.id("resp_", "reply", 48),
        House::Forgets => uuid(asking, "reply"),
    };
    let items = items(asking, turn, plan, house, world, record);
    let stores = read::stores(root) && house != House::Forgets;
    if stores {
        let kept: Vec<Json> = items.iter().map(openai::json).collect();
        let before = read::conversation(asking, world);
        world.stored.keep(read::owner(asking), &id, before, &kept);
    }
    let (status, details) = match &plan.stop {
        Stop::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
        Stop::Paused | Stop::Cut | Stop::Other(_) => {
            ("incomplete", json!({"reason": "content_filter"}))
        }
        Stop::Done | Stop::Tools | Stop::Sequence(_) | Stop::Refused(_) => {
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
    asking: &Asking,
    turn: &Turn,
    plan: &Plan,
    house: House,
    world: &World,
    record: &mut Record,
) -> Vec<Value> {
    let has_calls = plan.parts.iter().any(|part| matches!(part, Part::Call { .. }));
    // What a thought led to is written first: its seal knows that.
    let written: Vec<Option<Value>> = plan
        .parts
        .iter()
        .enumerate()
        .map(|(at, part)| match part {
            Part::Thought { .. } => None,
            Part::Text(text) => {
                record.say(text);
                Some(message(asking, turn, at, text, has_calls))
            }
            Part::Call { name, arguments } => {
                Some(call(asking, at, name, arguments, house, record))
            }
        })
        .collect();
    let count = written.iter().filter(|item| item.is_none()).count();
    let (mut items, mut ordinal) = (Vec::with_capacity(written.len()), 0);
    for (at, part) in plan.parts.iter().enumerate() {
        let Part::Thought { text, telling } = part else {
            items.extend(written.get(at).cloned().flatten());
            continue;
        };
        let led = written.iter().skip(at + 1).flatten().next();
        let claims = Claims {
            kind: "reasoning".to_owned(),
            row: asking.row.name.to_string(),
            family: turn.target.profile.name.clone(),
            account: asking.account,
            reply: asking.nonce,
            ordinal,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            text: Mark::of("throughline-sim reasoning", text),
            hidden: !turn.shows,
            beside: led.map(|item| Element::new(openai::json(item), None).said()),
            is_behind: false,
            prefix: None,
        };
        ordinal += 1;
        let is_shown = turn.shows && *telling == Telling::AsAsked;
        if is_shown {
            record.think(text);
        }
        items.push(reasoning(asking, at, text, is_shown, house, || {
            if house == House::Forgets {
                // Nothing is sealed there: the text is all there is to know it by.
                record.issue(text, "reasoning");
                return String::new();
            }
            let sealed = world.keys.seal(&asking.row.name, Form::Fernet, &claims);
            record.issue(&sealed, "reasoning");
            sealed
        }));
    }
    if let Stop::Refused(_) = plan.stop {
        items.push(refusal(asking));
    }
    items
}

fn reasoning(
    asking: &Asking,
    at: usize,
    text: &str,
    is_shown: bool,
    house: House,
    seal: impl FnOnce() -> String,
) -> Value {
    if house == House::Forgets {
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

fn message(asking: &Asking, turn: &Turn, at: usize, text: &str, has_calls: bool) -> Value {
    let content = json!([{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]);
    let mut message = json!({
        "id": message_id(asking, at),
        "type": "message",
        "status": "completed",
        "content": content,
        "role": "assistant",
    });
    // The newer families say what a message is for, and want to hear it again.
    let family = turn.target.profile.name.as_str();
    if matches!(family, "gpt" | "gpt-5.5" | "gpt-5.6" | "deepseek-v4") {
        openai::put(
            &mut message,
            "phase",
            json!(if has_calls { "commentary" } else { "final_answer" }),
        );
    }
    message
}

fn refusal(asking: &Asking) -> Value {
    let content = json!([{"type": "refusal", "refusal": "I'm sorry, but I can't help with that."}]);
    json!({
        "id": message_id(asking, usize::MAX),
        "type": "message",
        "status": "completed",
        "content": content,
        "role": "assistant",
    })
}

fn message_id(asking: &Asking, at: usize) -> String {
    match House::of(&asking.row) {
        House::Pairs | House::Keeps => asking.id("msg_", &format!("message {at}"), 48),
        House::Forgets => uuid(asking, &format!("message {at}")),
    }
}

fn call(
    asking: &Asking,
    at: usize,
    name: &str,
    arguments: &Value,
    house: House,
    record: &mut Record,
) -> Value {
    let call_id = asking.id("call_", &format!("call {at}"), 24);
    record.call(&call_id);
    let item_id = |prefix: &str| match house {
        House::Pairs | House::Keeps => asking.id(prefix, &format!("item {at}"), 48),
        House::Forgets => uuid(asking, &format!("item {at}")),
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

/// An id of the form that DeepSeek uses.
fn uuid(asking: &Asking, label: &str) -> String {
    let hex = asking.nonce.and(label).hex(32);
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    let (one, two, three) = (part(0, 8), part(8, 12), part(13, 16));
    format!("{one}-{two}-4{three}-8{}-{}", part(17, 20), part(20, 32))
}
