//! Tests which plain Thoughts are restored, for each setting and each statement of a profile.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{
    CallId, ItemPosition, Outcome, Profile, Provider, ReasoningFormat, Seal, Tenant, Thought,
    ToolCall, ToolResult,
};
use throughline_json::{Json, Name};

use super::*;
use crate::engine::chain::VisibleDigests;

fn item(message: usize, role: Role, body: Body) -> Item {
    let place = ItemPosition::new(message, 0);
    Item::new(format!("m{message}").as_str(), place, role, body)
}

fn text(message: usize, role: Role) -> Item {
    item(message, role, Body::Text(Name::from("text")))
}

fn result(message: usize) -> Item {
    let (call, parts) = (CallId::from("call"), Vec::new());
    let result = ToolResult { call, wire_id: None, name: None, outcome: Outcome::Ok, parts };
    item(message, Role::Tool, Body::Result(result))
}

fn call(message: usize) -> Item {
    let (id, name) = (CallId::from("call"), Name::from("tool"));
    let call = ToolCall { id, wire_id: None, name, args: Json::null(), custom: false };
    item(message, Role::Assistant, Body::Call(call))
}

fn thought(target: &Target, content: &str, kind: ThoughtKind) -> Item {
    let thought = Thought::issued(content, kind, ReasoningFormat::new("reasoning_content"));
    let mut item = item(0, Role::Assistant, Body::Thought(thought));
    item.origin = Some(Arc::clone(&target.origin));
    item
}

fn captured(items: Vec<Item>) -> Captured {
    let visible = VisibleDigests::of(&items);
    Captured { end_user: None, number: 0, items, visible, size: 0 }
}

fn target(provider: &str, model: &str) -> Target {
    Catalog::builtin().target_for(provider, model, "test").unwrap()
}

fn with_setting(target: &Target, replay_plain: PlainReplay) -> Target {
    let provider = Provider { replay_plain, ..Provider::clone(&target.provider) };
    Target { provider: Arc::new(provider), ..target.clone() }
}

/// Decides about a turn with a Thought, and with a call if `has_call`. The client sends everything
/// except the Thought.
fn decide(target: &Target, has_call: bool, is_current: bool) -> PlainThoughts {
    let visible = if has_call { call(0) } else { text(0, Role::Assistant) };
    let issued = captured(vec![thought(target, "because", ThoughtKind::Text), visible.clone()]);
    PlainThoughts::of(&[visible], &issued, target, || is_current)
}

use ElisionReason::{ByPolicy, EarlierTurn, OtherModel, Unused};
use PlainThoughts::{Complete, Omit, Restore};

#[test]
fn the_profile_decides_which_turns_get_their_thoughts_back() {
    // The columns are: a call in the current tool loop, a call in an earlier turn, and an earlier
    // turn without a call.
    for (provider, model, expected) in [
        ("deepseek", "deepseek-v4-pro", [Restore, Restore, Omit(Unused)]),
        ("moonshot", "kimi-k2.5", [Restore, Restore, Omit(Unused)]),
        ("zai", "glm-4.6", [Restore, Omit(EarlierTurn), Omit(EarlierTurn)]),
        ("zai", "glm-5.2", [Restore, Restore, Restore]),
        ("vllm", "openai/gpt-oss-120b", [Restore, Omit(EarlierTurn), Omit(EarlierTurn)]),
        ("qwen", "qwen3-max", [Restore, Omit(EarlierTurn), Omit(EarlierTurn)]),
        ("minimax", "MiniMax-M2", [Restore, Restore, Restore]),
        ("xai-chat", "grok-3-mini", [Restore, Restore, Restore]),
        ("mistral", "magistral-medium-latest", [Restore, Restore, Restore]),
        ("vllm", "an-unknown-model", [Restore, Omit(EarlierTurn), Omit(EarlierTurn)]),
        ("deepseek-anthropic", "deepseek-v4-pro", [Restore, Restore, Omit(Unused)]),
        ("deepseek-anthropic", "an-unknown-model", [Omit(Unused), Omit(Unused), Omit(Unused)]),
    ] {
        let target = target(provider, model);
        let decided = [(true, true), (true, false), (false, false)]
            .map(|(has_call, is_current)| decide(&target, has_call, is_current));
        assert_eq!(decided, expected, "{provider}/{model}");
    }
}

#[test]
fn an_ignored_thought_is_never_restored() {
    let known = target("vllm", "an-unknown-model");
    let plain_reasoning = Some(PlainReasoning::Ignored);
    let profile = Profile { plain_reasoning, ..Profile::clone(&known.profile) };
    let ignoring = Target { profile: Arc::new(profile), ..known };
    assert_eq!(decide(&ignoring, true, true), Omit(Unused));
}

#[test]
fn the_setting_of_the_provider_overrides_the_profile() {
    for (provider, model) in [("vllm", "gpt-oss-120b"), ("deepseek", "deepseek-v4-pro")] {
        let target = target(provider, model);
        let always = with_setting(&target, PlainReplay::Always);
        assert_eq!(decide(&always, false, false), Restore, "{model}");
        let never = with_setting(&target, PlainReplay::Never);
        assert_eq!(decide(&never, true, true), Omit(ByPolicy), "{model}");
    }
}

#[test]
fn a_client_may_shorten_thoughts_that_are_not_demanded() {
    for (provider, model, expected) in
        [("vllm", "gpt-oss-120b", Complete), ("deepseek", "deepseek-v4-pro", Restore)]
    {
        let target = target(provider, model);
        let issued =
            captured(vec![thought(&target, "because of this", ThoughtKind::Text), call(0)]);
        let sent = [thought(&target, "because", ThoughtKind::Text), call(0)];
        assert_eq!(PlainThoughts::of(&sent, &issued, &target, || true), expected, "{model}");
    }
}

#[test]
fn another_familys_thought_is_never_restored() {
    let qwen = target("openrouter", "qwen/qwen3-max");
    let issued = captured(vec![thought(&qwen, "because", ThoughtKind::Text), call(0)]);
    let used = target("openrouter", "openai/gpt-oss-120b");
    let demanded = target("openrouter", "deepseek/deepseek-v4-pro");
    let always = with_setting(&used, PlainReplay::Always);
    for target in [used, demanded, always] {
        let decided = PlainThoughts::of(&[call(0)], &issued, &target, || true);
        assert_eq!(decided, Omit(OtherModel), "{}", target.origin.asked);
    }
}

/// A client of another dialect returns the text and a Claim. The decision is the same as for a
/// client that drops the Thought.
#[test]
fn a_claim_does_not_replace_the_decision() {
    let claim = Claims::new([7; 32]).claim(&Tenant::from("acme"), &Claims::new_turn_id().unwrap());
    let known = target("vllm", "gpt-oss-120b");
    let never = with_setting(&known, PlainReplay::Never);
    let demanding = target("deepseek", "deepseek-v4-pro");
    for (target, is_current, expected) in [
        (&known, true, Restore),
        (&known, false, Omit(EarlierTurn)),
        (&never, true, Omit(ByPolicy)),
        (&demanding, false, Restore),
    ] {
        let issued = captured(vec![thought(target, "because", ThoughtKind::Text), call(0)]);
        let mut claimed = thought(target, "because", ThoughtKind::Text);
        let owner = Arc::clone(&target.origin);
        let seal = Seal::new(claim.as_bytes().to_vec().into(), "claim", owner, "/signature");
        claimed.seals.push(seal);
        let decided = PlainThoughts::of(&[claimed, call(0)], &issued, target, || is_current);
        assert_eq!(decided, expected, "{} {is_current}", target.origin.asked);
    }
}

#[test]
fn summaries_are_restored_only_at_chat_endpoints() {
    for (provider, expected) in [("openrouter", Restore), ("xai", Complete)] {
        let target = target(provider, "x-ai/grok-4.3");
        let issued = captured(vec![thought(&target, "summary", ThoughtKind::Summary), call(0)]);
        assert_eq!(PlainThoughts::of(&[call(0)], &issued, &target, || true), expected);
    }
}

#[test]
fn a_tool_loop_starts_after_the_last_user_message_without_results() {
    let (user, model) = (|at| text(at, Role::User), |at| text(at, Role::Assistant));
    let approval = item(3, Role::User, Body::Unknown);
    for (items, expected) in [
        (vec![], 0),
        (vec![call(0), result(1)], 0),
        (vec![user(0), call(1), result(2)], 1),
        (vec![user(0), call(1), result(2), call(3), result(4)], 1),
        (vec![user(0), model(1), user(2), call(3), result(4)], 3),
        (vec![user(0), call(1), result(2), user(3)], 4),
        // A user message that also contains a tool result continues the loop.
        (vec![user(0), call(1), result(2), user(2)], 1),
        (vec![user(0), call(1), text(2, Role::System), approval], 1),
    ] {
        assert_eq!(start_of_tool_loop(&items), expected, "{items:?}");
    }
}
