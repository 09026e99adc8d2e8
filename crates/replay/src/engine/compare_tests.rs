//! Tests which edits by a client still match the captured turn.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use throughline_codec::Catalog;
use throughline_core::{Body, CallId, Item, ItemPosition, Role, Seal, SealBinding, ToolCall};
use throughline_json::{Json, Name};

use super::*;
use crate::engine::chain::VisibleDigests;

fn call(id: &str, name: &str, args: &str) -> Item {
    let call = ToolCall {
        id: CallId::from(id),
        wire_id: Some(Name::from(id)),
        name: Name::from(name),
        args: Json::parse(args.to_owned()).unwrap(),
        custom: false,
    };
    Item::new(id, ItemPosition::default(), Role::Assistant, Body::Call(call))
}

fn captured(item: Item, bound: SealBinding) -> Captured {
    let owner = Catalog::builtin().target_for("anthropic", "claude-sonnet-4-5", "test").unwrap();
    let seal = Seal::new(Bytes::from("seal"), "anthropic.signature", owner.origin, "/signature");
    let body = Body::Compaction;
    let mut sealed = Item::new("sealed", ItemPosition::default(), Role::Assistant, body);
    sealed.seals.push(seal.bound_to(bound));
    let items = vec![sealed, item];
    let visible = VisibleDigests::of(&items);
    Captured { end_user: None, number: 0, items, visible, size: 0 }
}

#[test]
fn arguments_may_only_gain_members() {
    let then = || call("toolu_1", "edit", r#"{"file":"a","edits":[{"old":"x"}]}"#);
    let now = r#"{"edits":[{"old":"x","all":false}],"file":"a","replace_all":false}"#;
    let free = captured(then(), SealBinding::default());
    let grown = |item: Item| has_grown(&[item], &free);
    assert!(grown(call("toolu_1", "edit", now)));
    assert!(!grown(call("toolu_2", "edit", now)), "another id");
    assert!(!grown(call("toolu_1", "write", now)), "another tool");
    assert!(!grown(call("toolu_1", "edit", r#"{"file":"b","edits":[{"old":"x"}]}"#)), "changed");
    assert!(!grown(call("toolu_1", "edit", r#"{"file":"a"}"#)), "a member is missing");
    assert!(!grown(call("toolu_1", "edit", r#"{"file":"a","edits":[]}"#)), "an element is missing");
    let bound = SealBinding { prefix: Some([0; 32]), ..SealBinding::default() };
    let bound = captured(then(), bound);
    assert!(!has_grown(&[call("toolu_1", "edit", now)], &bound), "a seal covers the call");
}

#[test]
fn captured_calls_take_the_clients_arguments() {
    let mut item = call("toolu_1", "edit", r#"{"file":"a"}"#);
    let json = r#"{"type":"tool_use","id":"toolu_1","name":"edit","input":{"file":"a"}}"#;
    let json = Json::parse(json.to_owned()).unwrap();
    let native = throughline_core::NativePart::new(
        Wire::ANTHROPIC_MESSAGES,
        throughline_core::Direction::Response,
        json,
    );
    item.native = Some(native);
    let now = call("toolu_1", "edit", r#"{"file":"a","all":false}"#);
    let merged = with_arguments(&item, now.call().unwrap());
    assert_eq!(
        merged.native.unwrap().json.as_str(),
        r#"{"type":"tool_use","id":"toolu_1","name":"edit","input":{"file":"a","all":false}}"#
    );
}

#[test]
fn only_turns_of_the_target_have_the_signed_prefix() {
    let bound = SealBinding { prefix: Some([0; 32]), ..SealBinding::default() };
    let target = |provider, model| Catalog::builtin().target_for(provider, model, "test").unwrap();
    let fable = target("anthropic", "claude-fable-5-1");
    for (from, binding, expected) in [
        (target("anthropic", "claude-fable-5-1"), SealBinding::default(), true),
        (target("anthropic", "claude-opus-5-5"), bound, true),
        (target("anthropic", "claude-sonnet-4-5"), SealBinding::default(), false),
        (target("openai", "gpt-5.2"), SealBinding::default(), false),
    ] {
        let mut turn = captured(call("toolu_1", "edit", "{}"), binding);
        turn.items.iter_mut().for_each(|item| item.origin = Some(Arc::clone(&from.origin)));
        assert_eq!(has_signed_prefix(&turn, &fable), expected, "{}", from.origin.asked);
    }
}
