//! Tests that the gateway restores every opaque value that a client drops, with equal bytes and in
//! the original position.
//!
//! Each recording is a separate tenant. The recorded replies are captured unchanged. Each recorded
//! request is sent once unchanged and once without any reasoning.

use crate::common::recorded::{
    Tally, comparable, decode_context, expected_values, items_of, recorded_reply, stripped,
};
use crate::common::{ReplayFixture, codec_of, request, sealed};
use bytes::Bytes;
use throughline_core::{Disposition, EncodedRequest, Reply, StopReason, Tenant};
use throughline_replay::RestoredCall;
use throughline_testkit::{Exchange, Recording, recordings, skip};

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
