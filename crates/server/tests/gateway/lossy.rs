//! Tests that the gateway restores the reasoning that a client drops, in the original position:
//! every opaque value with equal bytes, and reasoning without a Seal where the model uses it.
//!
//! Each recording is a separate tenant. The recorded replies are captured unchanged. Each recorded
//! request is sent once unchanged and once without any reasoning.

use std::collections::BTreeMap;

use crate::common::recorded::{
    Tally, comparable, decode_context, expected_values, items_of, recorded_reply, stripped,
};
use crate::common::{ReplayFixture, codec_of, request, sealed};
use bytes::Bytes;
use throughline_codec::{Preparation, RepairLevel, Verdict};
use throughline_core::{
    Body, Disposition, EncodedRequest, Item, PlainReasoning, Profile, Reply, Role, StopReason,
    Tenant, ThoughtKind, Wire,
};
use throughline_replay::RestoredCall;
use throughline_testkit::{Exchange, Recording, figure, recordings, skip};

/// Recordings whose opaque values are not all restored, each with a reason. The test fails if a
/// listed recording has no such failure.
const NOT_RESTORED: &[&str] = &[
    // The last request has no system prompt, and the stripped client sends no ids.
    "pydantic-ai--models--test_bedrock_mantle--test_reused_tool_call_ids-request",
    // The client copied the first call's signature to its sibling; only issued values are restored.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls",
    // The client merged a text with the signed empty part after it; the signature is restored on
    // the empty part.
    "pydantic-ai--models--test_google--test_google_model_file_search_grounding_gemini_3-True",
    // The client inserted its own call into the model's turn, so the turn no longer matches the
    // captured turn.
    "pydantic-ai--test_tool_search--test_cross_provider_capability_replay-google-gemini-3-flash-preview-openai-responses-gpt-5.4",
];

/// Recordings with requests that are changed before they are sent, each with a reason. The test
/// fails if a listed recording has no such request.
const NOT_AS_IT_CAME: &[&str] = &[
    // These clients had dropped issued values, which are restored.
    "fantasy--TestOpenRouterCommon--grok--tool_streaming",
    "fantasy--TestOpenRouterCommon--kimi--tool_streaming",
    "pydantic-ai--models--test_anthropic--test_anthropic_web_search_tool",
    "pydantic-ai--models--test_deepseek_responses--test_deepseek_responses_replay_own_reasoning_history",
    "pydantic-ai--test_cache_prefix_stability--test_anthropic_thinking_agui_0_1_10_drops_prefix",
    // These clients copied the first call's signature to its sibling.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls",
    // This client sent one provider's thoughts to another.
    "pydantic-ai--models--test_mistral--test_mistral_model_thinking_part",
];

/// Recordings with reasoning without a Seal that the model uses and that is not restored, each with
/// a reason. The test fails if a listed recording has no such failure.
const PLAIN_NOT_RESTORED: &[&str] = &[];

async fn restore_and_encode(
    fixture: &ReplayFixture,
    tenant: &Tenant,
    exchange: &Exchange,
    body: &str,
) -> (RestoredCall, EncodedRequest) {
    let codec = codec_of(&exchange.wire);
    let call =
        codec.decode_request(&request(&exchange.path, body.to_owned()), &decode_context(exchange));
    let restored = fixture.replay.restore(tenant, None, call.unwrap()).await.unwrap();
    let mut encoded = codec.encode(&restored.call).unwrap();
    restored.account(&mut encoded);
    (restored, encoded)
}

/// Returns the successful exchanges of a recording, each with its decoded reply.
fn successful_exchanges(recording: &Recording) -> impl Iterator<Item = (&Exchange, Reply)> {
    let exchanges = recording.exchanges.iter().filter(|exchange| exchange.status == 200);
    exchanges.map(|exchange| (exchange, recorded_reply(exchange, &decode_context(exchange))))
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_values_are_restored_in_place() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let fixture = ReplayFixture::new().await;
    let mut tally = Tally::default();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let tenant = Tenant::from(format!("recording-{number}"));
        let mut issued: Vec<Bytes> = Vec::new();
        for (exchange, reply) in successful_exchanges(&recording) {
            let (restored, encoded) = restore_and_encode(
                &fixture,
                &tenant,
                exchange,
                &stripped(&exchange.wire, &exchange.request),
            )
            .await;
            let found = sealed(&items_of(exchange, &encoded.request.body));
            tally.count_values(
                &exchange.wire,
                &recording.name,
                expected_values(exchange, &issued),
                &found,
            );
            issued.extend(sealed(&reply.items).into_iter().map(|(bytes, _)| bytes));
            if reply.stop != StopReason::Cut {
                fixture
                    .capture(&tenant, &restored, &reply, &encoded)
                    .await
                    .expect("a turn is kept");
            }
        }
    }
    tally.print("opaque values restored in place");
    tally.check(NOT_RESTORED);
}

#[tokio::test(flavor = "multi_thread")]
async fn intact_requests_are_sent_unchanged() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let fixture = ReplayFixture::new().await;
    let mut tally = Tally::default();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let tenant = Tenant::from(format!("recording-{number}"));
        for (exchange, reply) in successful_exchanges(&recording) {
            let (restored, encoded) =
                restore_and_encode(&fixture, &tenant, exchange, &exchange.request).await;
            let as_it_came = encoded.request.body == exchange.request;
            let outcome = if as_it_came { Ok(()) } else { Err(changes(&encoded)) };
            tally.note(&exchange.wire, &recording.name, outcome);
            fixture.capture(&tenant, &restored, &reply, &encoded).await;
        }
    }
    tally.print("requests sent unchanged");
    tally.check(NOT_AS_IT_CAME);
}

/// Returns the Fates of the Items that were restored, reshaped or left out.
fn changes(encoded: &EncodedRequest) -> String {
    let is_kept = |did: &Disposition| *did == Disposition::Kept;
    let fates = encoded.fates.iter();
    let others = fates.filter(|fate| !(is_kept(&fate.visible) && fate.seals.iter().all(is_kept)));
    let did: Vec<String> = others.map(|fate| format!("{} {}", fate.item, fate.visible)).collect();
    did.join(", ")
}

/// Reasoning without a Seal in one message.
#[derive(Clone, Debug)]
struct PlainValue {
    content: String,
    /// The message members that carried the reasoning, joined by `+`.
    slot: String,
    is_due: bool,
}

impl PlainValue {
    fn members(slot: &str) -> impl Iterator<Item = &str> {
        slot.split('+').map(|member| member.split('/').next().unwrap_or(member))
    }

    /// Returns whether this value is the other one, in a member that carried the other one.
    fn is_same(&self, issued: &Self) -> bool {
        let is_issued = |member| Self::members(&issued.slot).any(|known| known == member);
        self.content == issued.content && Self::members(&self.slot).all(is_issued)
    }
}

/// Returns the reasoning without a Seal in these Items. On wires other than chat, summaries are for
/// display only and do not count. A value is due if the profile states that
/// the model uses it at its position. A message with sealed reasoning is restored as a whole, so
/// its other reasoning is due too.
fn plain_values(items: &[Item], profile: &Profile, wire: &str) -> Vec<PlainValue> {
    let is_chat = wire == Wire::OPENAI_CHAT.as_str();
    let is_sealed = |item: &Item| matches!(item.body, Body::Thought(_)) && !item.seals.is_empty();
    let is_user = |item: &Item| item.role == Role::User && !matches!(item.body, Body::Result(_));
    let is_call = |item: &Item| item.call().is_some();
    let last_user = items.iter().rposition(is_user);
    let mut values = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let Body::Thought(thought) = &item.body else { continue };
        let is_shown_only = !is_chat && thought.kind != ThoughtKind::Text;
        if !item.seals.is_empty() || thought.content.is_empty() || is_shown_only {
            continue;
        }
        let message = items.iter().filter(|other| other.place.message == item.place.message);
        let before = items.get(..at).unwrap_or_default();
        let user = before.iter().rposition(is_user).map_or(0, |user| user + 1);
        let follows_calls = before.get(user..).unwrap_or_default().iter().any(is_call);
        let is_in_loop = last_user.is_none_or(|user| at > user);
        let is_due = is_chat && message.clone().any(is_sealed)
            || match profile.plain() {
                PlainReasoning::Demanded => follows_calls || message.clone().any(is_call),
                PlainReasoning::UsedAcrossTurns => true,
                PlainReasoning::UsedInToolLoop => is_in_loop,
                PlainReasoning::Unknown => is_in_loop && is_chat,
                PlainReasoning::Ignored => false,
            };
        let slot = item.native.as_ref().map(|native| native.slot.to_string());
        let (content, slot) = (thought.content.to_string(), slot.unwrap_or_default());
        values.push(PlainValue { content, slot, is_due });
    }
    values
}

/// The number of values that were expected and restored.
#[derive(Default)]
struct PlainCount {
    due: usize,
    restored: usize,
    /// Values that the model does not use.
    unused: usize,
    /// Unused values that were sent all the same.
    sent_unused: usize,
}

/// The client removes all reasoning from every request. Chat endpoints get at least 97 % of the
/// reasoning without a Seal back that the model's profile states as used or demanded, in the
/// members in which the endpoints emitted it. No provider is known to reject a restored chat
/// request after the gateway's repair, which adds the empty members that some endpoints require.
#[tokio::test(flavor = "multi_thread")]
async fn lost_plain_reasoning_is_restored_where_the_model_uses_it() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let fixture = ReplayFixture::new().await;
    let mut tally = Tally::default();
    let mut counts: BTreeMap<(String, &str), PlainCount> = BTreeMap::new();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let tenant = Tenant::from(format!("recording-{number}"));
        let mut issued: Vec<(String, PlainValue)> = Vec::new();
        for (exchange, reply) in successful_exchanges(&recording) {
            let context = decode_context(exchange);
            let profile = &*context.target.profile;
            let body = stripped(&exchange.wire, &exchange.request);
            let (restored, encoded) = restore_and_encode(&fixture, &tenant, exchange, &body).await;
            let sent = items_of(exchange, exchange.request.as_bytes());
            let found =
                plain_values(&items_of(exchange, &encoded.request.body), profile, &exchange.wire);
            let mut found = found.iter();
            let statement = match profile.plain() {
                PlainReasoning::Unknown => "profile states nothing",
                _ => "profile states used or demanded",
            };
            let count = counts.entry((exchange.wire.clone(), statement)).or_default();
            for value in plain_values(&sent, profile, &exchange.wire) {
                let is_known = |(provider, known): &&(String, PlainValue)| {
                    *provider == exchange.provider && known.content == value.content
                };
                let Some((_, known)) = issued.iter().find(is_known) else { continue };
                let mut ahead = found.clone();
                let is_back = ahead.any(|value| value.is_same(known));
                if is_back {
                    found = ahead;
                }
                if value.is_due {
                    count.due += 1;
                    count.restored += usize::from(is_back);
                    let outcome = if is_back { Ok(()) } else { Err(value.content) };
                    tally.note(&exchange.wire, &recording.name, outcome);
                } else {
                    count.unused += 1;
                    count.sent_unused += usize::from(is_back);
                }
            }
            let values = plain_values(&reply.items, profile, &exchange.wire);
            issued.extend(values.into_iter().map(|value| (exchange.provider.clone(), value)));
            if reply.stop != StopReason::Cut {
                fixture
                    .capture(&tenant, &restored, &reply, &encoded)
                    .await
                    .expect("a turn is kept");
            }
            if exchange.wire == Wire::OPENAI_CHAT.as_str() {
                let codec = codec_of(&exchange.wire);
                let level = Some(RepairLevel::Refused);
                let preparation = Preparation { level, ..Preparation::new(codec, &context.target) };
                let outcome = preparation.check(encoded).unwrap().outcome;
                let name = &recording.name;
                assert_ne!(outcome.verdict, Verdict::Refuse, "{name}: {:?}", outcome.findings);
            }
        }
    }
    for ((wire, statement), count) in &counts {
        let PlainCount { due, restored, unused, sent_unused } = count;
        let label = format!("plain reasoning restored, {statement}: {wire}");
        figure(&label, format!("{restored} of {due} used, {sent_unused} of {unused} unused"));
        let is_chat = *wire == Wire::OPENAI_CHAT.as_str();
        assert!(!is_chat || *sent_unused == 0, "unused reasoning was sent");
    }
    let chat = (Wire::OPENAI_CHAT.to_string(), "profile states used or demanded");
    let PlainCount { due, restored, .. } = counts[&chat];
    assert!(due > 0 && restored * 100 >= due * 97, "{restored} of {due}");
    tally.check(PLAIN_NOT_RESTORED);
}
