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
fn decide(target: &Target, has_call: bool, position: TurnPosition) -> PlainThoughts {
    let visible = if has_call { call(0) } else { text(0, Role::Assistant) };
    let issued = captured(vec![thought(target, "because", ThoughtKind::Text), visible.clone()]);
    decide_at(&[visible], &issued, target, position)
}

/// The position of a turn in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnPosition {
    InCurrentLoop,
    Earlier,
    /// The answer of an earlier turn, after its calls.
    AfterCalls,
}

use TurnPosition::{AfterCalls, Earlier, InCurrentLoop};

/// Decides about a captured turn at a position.
fn decide_at(
    items: &[Item],
    issued: &Captured,
    target: &Target,
    position: TurnPosition,
) -> PlainThoughts {
    let is_at = |other| move || position == other;
    PlainThoughts::of(items, issued, target, is_at(InCurrentLoop), is_at(AfterCalls))
}

use ElisionReason::{ByPolicy, EarlierTurn, OtherModel, Unused};
use PlainThoughts::{Complete, Omit, Restore};

#[test]
fn the_profile_decides_which_turns_get_their_thoughts_back() {
    // The columns are: a call in the current tool loop, a call in an earlier turn, the answer of an
    // earlier turn after calls, and the answer of an earlier turn without calls.
    let demanded = [Restore, Restore, Restore, Omit(Unused)];
    let in_loop = [Restore, Omit(EarlierTurn), Omit(EarlierTurn), Omit(EarlierTurn)];
    let always = [Restore; 4];
    for (provider, model, expected) in [
        ("deepseek", "deepseek-v4-pro", demanded),
        ("moonshot", "kimi-k2.5", demanded),
        ("zai", "glm-4.6", in_loop),
        ("zai", "glm-5.2", always),
        ("vllm", "openai/gpt-oss-120b", in_loop),
        ("qwen", "qwen3-max", in_loop),
        ("minimax", "MiniMax-M2", always),
        ("xai-chat", "grok-3-mini", always),
        ("mistral", "magistral-medium-latest", always),
        ("vllm", "an-unknown-model", in_loop),
        ("deepseek-anthropic", "deepseek-v4-pro", demanded),
        ("deepseek-anthropic", "an-unknown-model", [Omit(Unused); 4]),
    ] {
        let target = target(provider, model);
        let decided =
            [(true, InCurrentLoop), (true, Earlier), (false, AfterCalls), (false, Earlier)]
                .map(|(has_call, position)| decide(&target, has_call, position));
        assert_eq!(decided, expected, "{provider}/{model}");
    }
}

#[test]
fn an_ignored_thought_is_never_restored() {
    let known = target("vllm", "an-unknown-model");
    let plain_reasoning = Some(PlainReasoning::Ignored);
    let profile = Profile { plain_reasoning, ..Profile::clone(&known.profile) };
    let ignoring = Target { profile: Arc::new(profile), ..known };
    assert_eq!(decide(&ignoring, true, InCurrentLoop), Omit(Unused));
}

#[test]
fn the_setting_of_the_provider_overrides_the_profile() {
    for (provider, model) in [("vllm", "gpt-oss-120b"), ("deepseek", "deepseek-v4-pro")] {
        let target = target(provider, model);
        let always = with_setting(&target, PlainReplay::Always);
        assert_eq!(decide(&always, false, Earlier), Restore, "{model}");
        let never = with_setting(&target, PlainReplay::Never);
        assert_eq!(decide(&never, true, InCurrentLoop), Omit(ByPolicy), "{model}");
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
        assert_eq!(decide_at(&sent, &issued, &target, InCurrentLoop), expected, "{model}");
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
        let decided = decide_at(&[call(0)], &issued, &target, InCurrentLoop);
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
    for (target, position, expected) in [
        (&known, InCurrentLoop, Restore),
        (&known, Earlier, Omit(EarlierTurn)),
        (&never, InCurrentLoop, Omit(ByPolicy)),
        (&demanding, Earlier, Restore),
    ] {
        let issued = captured(vec![thought(target, "because", ThoughtKind::Text), call(0)]);
        let mut claimed = thought(target, "because", ThoughtKind::Text);
        let owner = Arc::clone(&target.origin);
        let seal = Seal::new(claim.as_bytes().to_vec().into(), "claim", owner, "/signature");
        claimed.seals.push(seal);
        let decided = decide_at(&[claimed, call(0)], &issued, target, position);
        assert_eq!(decided, expected, "{} {position:?}", target.origin.asked);
    }
}

#[test]
fn summaries_are_restored_only_at_chat_endpoints() {
    for (provider, expected) in [("openrouter", Restore), ("xai", Complete)] {
        let target = target(provider, "x-ai/grok-4.3");
        let issued = captured(vec![thought(&target, "summary", ThoughtKind::Summary), call(0)]);
        assert_eq!(decide_at(&[call(0)], &issued, &target, InCurrentLoop), expected);
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

#[test]
fn an_answer_follows_the_calls_after_the_last_user_message() {
    let (user, model) = (|at| text(at, Role::User), |at| text(at, Role::Assistant));
    let items =
        [user(0), model(1), user(2), call(3), result(4), model(5), user(6), model(7), user(8)];
    let after_calls: Vec<usize> =
        (0..items.len()).filter(|at| follows_calls(&items, *at)).collect();
    assert_eq!(after_calls, [4, 5, 6]);
}
