//! Tests for changes that are appended as system messages.

use bytes::Bytes;
use serde_json::{Value, json};
use throughline_core::{Disposition, EncodedRequest, Request, ReshapeKind};
use throughline_json::Name;

use super::*;
use crate::{AnthropicMessages, Catalog, Codec};

const MODEL: &str = "claude-fable-5-1";

fn tool(name: &str) -> Value {
    json!({"name": name, "input_schema": {"type": "object"}})
}

fn call(provider: &str, model: &str, body: &Value) -> Call {
    let row = Catalog::builtin().provider(provider).unwrap();
    let target = Catalog::builtin().target(&row, model, "test");
    let beta = (Name::from("anthropic-beta"), Name::from("context-1m-2025-08-07"));
    let request =
        Request { path: "/v1/messages".into(), headers: vec![beta], body: body.to_string().into() };
    AnthropicMessages.decode_request(&request, &DecodeContext::of(target)).unwrap()
}

fn plan(model: &str, before: &Value, appended: &[usize], now: &Value) -> Option<AppendPlan> {
    let call = call("anthropic", model, now);
    let encoded = AnthropicMessages.encode(&call).unwrap();
    let body = Bytes::from(before.to_string());
    let signed = SignedPrefix { body: &body, appended };
    AnthropicMessages.append_changes(&call, &encoded, &signed)
}

fn sent(plan: &AppendPlan) -> (Value, EncodedRequest) {
    let encoded = plan.encode(&AnthropicMessages).unwrap();
    (serde_json::from_slice(&encoded.request.body).unwrap(), encoded)
}

fn first_request() -> Value {
    json!({
        "model": MODEL, "max_tokens": 100, "system": "Be kind.", "tools": [tool("a"), tool("b")],
        "messages": [{"role": "user", "content": "1"}],
    })
}

fn second_request() -> Value {
    let mut request = first_request();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "I"}]}));
    messages.push(json!({"role": "user", "content": "2"}));
    request
}

#[test]
fn an_unchanged_prompt_appends_nothing() {
    let plan = plan(MODEL, &first_request(), &[], &second_request()).unwrap();
    assert_eq!(plan.messages, []);
    let (body, encoded) = sent(&plan);
    assert_eq!(body, second_request());
    assert_eq!(encoded.request.header("anthropic-beta"), Some("context-1m-2025-08-07"));
}

#[test]
fn every_kind_of_change_is_appended_in_one_message() {
    let mut now = second_request();
    now["system"] = json!([{"type": "text", "text": "Be brief.",
        "cache_control": {"type": "ephemeral"}}]);
    let redefined = json!({"name": "b", "description": "New.", "input_schema": {"type": "object"}});
    now["tools"] = json!([redefined, tool("c")]);
    let plan = plan(MODEL, &first_request(), &[], &now).unwrap();
    let (body, encoded) = sent(&plan);
    let mut expected = second_request();
    let addition = |definition: &Value| {
        json!({"type": "tool_addition",
            "tool": {"type": "tool_definition", "definition": definition}})
    };
    expected["messages"].as_array_mut().unwrap().push(json!({"role": "system", "content": [
        {"type": "text", "text": NEW_PROMPT},
        {"type": "text", "text": "Be brief."},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "a"}},
        addition(&redefined),
        addition(&tool("c")),
    ]}));
    assert_eq!(body, expected);
    assert_eq!(plan.removed_tools, [Name::from("a")]);
    let located = plan.locate(&encoded.request.body);
    let [(3, message)] = located[..] else { panic!("{located:?}") };
    assert_eq!((message.system, message.added.len(), message.removed.len()), (true, 2, 1));
    assert_eq!(
        encoded.request.header("anthropic-beta"),
        Some("context-1m-2025-08-07,inline-tools-2026-09-15")
    );
    let appended = Disposition::Reshaped(ReshapeKind::Appended);
    let fates: Vec<_> =
        encoded.fates.iter().map(|fate| (&*fate.item.0, fate.visible == appended)).collect();
    assert_eq!(fates.len(), 1 + 3 + 5);
    assert_eq!(fates.iter().filter(|(_, is_appended)| *is_appended).count(), 1 + 5);
    assert_eq!(fates.first(), Some(&("system.0", true)));
}

#[test]
fn earlier_messages_keep_their_bytes_and_positions() {
    let mut now = second_request();
    now["tools"] = json!([tool("b")]);
    let (second, encoded) = sent(&plan(MODEL, &first_request(), &[], &now).unwrap());
    assert_eq!(
        encoded.request.header("anthropic-beta"),
        Some("context-1m-2025-08-07,mid-conversation-tool-changes-2026-07-01")
    );
    // The removed tool returns, and the prompt is withdrawn.
    now["tools"] = json!([tool("b"), tool("a")]);
    now.as_object_mut().unwrap().remove("system");
    let messages = now["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "II"}]}));
    messages.push(json!({"role": "user", "content": "3"}));
    let next = plan(MODEL, &second, &[3], &now).unwrap();
    let (third, _) = sent(&next);
    assert_eq!(third["system"], second["system"]);
    assert_eq!(third["tools"], second["tools"]);
    let (before, after) =
        (second["messages"].as_array().unwrap(), third["messages"].as_array().unwrap());
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after.len(), 7);
    assert_eq!(after[6]["content"][0]["text"], NO_PROMPT);
    assert_eq!(after[6]["content"][1]["tool"]["definition"], tool("a"));
    assert_eq!(next.removed_tools, [] as [Name; 0]);
    let indexes: Vec<usize> =
        next.locate(&Bytes::from(third.to_string())).into_iter().map(|(index, _)| index).collect();
    assert_eq!(indexes, [3, 6]);
}

#[test]
fn undocumented_changes_are_not_appended() {
    let changed = |change: fn(&mut Value)| {
        let mut now = second_request();
        change(&mut now);
        now
    };
    let new_tool: fn(&mut Value) = |now| now["tools"] = json!([tool("c")]);
    assert!(plan("claude-sonnet-5", &first_request(), &[], &changed(new_tool)).is_none());
    assert!(plan(MODEL, &first_request(), &[], &changed(new_tool)).is_some());
    let mut untooled = first_request();
    untooled.as_object_mut().unwrap().remove("tools");
    assert!(plan(MODEL, &untooled, &[], &changed(new_tool)).is_none(), "no tools at first");
    let forced = changed(|now| {
        now["tools"] = json!([tool("c")]);
        now["tool_choice"] = json!({"type": "tool", "name": "c"});
    });
    assert!(plan(MODEL, &first_request(), &[], &forced).is_none(), "forced new tool");
    let toolset = changed(|now| {
        now["tools"].as_array_mut().unwrap().push(json!({"type": "mcp_toolset"}));
    });
    assert!(plan(MODEL, &first_request(), &[], &toolset).is_none(), "MCP toolset");
    let ended = changed(|now| {
        now["system"] = json!("Be brief.");
        now["messages"].as_array_mut().unwrap().pop();
    });
    assert!(plan(MODEL, &first_request(), &[], &ended).is_none(), "ends with the model");
    let unplaced = plan(MODEL, &first_request(), &[7], &changed(new_tool));
    assert!(unplaced.is_none(), "the earlier message is missing");
}

#[test]
fn only_the_attribution_line_itself_is_ignored() {
    let line = "x-anthropic-billing-header: cc_version=2;";
    let block = |text: &str| json!({"type": "text", "text": text});
    for (system, appended) in [
        (json!([block(line), block("Be kind.")]), 0),
        (json!([block(&format!("{line}\n")), block("Be kind.")]), 0),
        (json!([block("Be kind."), block(line)]), 1),
        (json!([block(&format!("{line}\nYou are a pirate."))]), 1),
        (json!(format!("{line}\nYou are a pirate.")), 1),
    ] {
        let mut now = second_request();
        now["system"] = system.clone();
        let plan = plan(MODEL, &first_request(), &[], &now).unwrap();
        assert_eq!(plan.messages.len(), appended, "{system}");
    }
}

/// A repair changed the first of two messages.
#[test]
fn a_missing_message_does_not_hide_later_ones() {
    let mut now = second_request();
    now["system"] = json!("Be brief.");
    let first = plan(MODEL, &first_request(), &[], &now).unwrap();
    let mut next = first.clone();
    next.messages
        .insert(0, AppendedMessage { json: text_block("gone"), ..first.messages[0].clone() });
    let (_, encoded) = sent(&first);
    let located = next.locate(&encoded.request.body);
    assert_eq!(located, [(3, &first.messages[0])]);
}
