//! A client that drops all reasoning: what it lost is put back, every opaque value equal and in its place.
//!
//! Each recording is a tenant of its own. Its recorded answers are captured as they came; each of its recorded requests is sent
//! once as it was, and once with all reasoning taken out.

use crate::common::recorded::{Tally, asked, comparable, items_of, owed, recorded_reply, stripped};
use crate::common::{House, codec_of, request, sealed};
use bytes::Bytes;
use throughline_core::{Did, Encoded, Reply, Stop, Tenant};
use throughline_server::Restored;
use throughline_testkit::{Exchange, Recording, recordings, skip};

/// Opaque values that are not put back, each with its reason. An entry must be needed, or the test fails.
const NOT_PUT_BACK: &[&str] = &[
    // The client's last request has no system prompt any more, and the client that was stripped sends no ids.
    "pydantic-ai--models--test_bedrock_mantle--test_reused_tool_call_ids-request",
    // The client had put the first call's signature on its sibling too; only what was issued comes back.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls",
    // The client had merged the text with the signed empty part behind it; the signature comes back on that part.
    "pydantic-ai--models--test_google--test_google_model_file_search_grounding_gemini_3-True",
    // The client had put a call of its own into the model's turn, so that it is not the turn that was captured.
    "pydantic-ai--test_tool_search--test_cross_provider_capability_replay-google-gemini-3-flash-preview-openai-responses-gpt-5.4",
];

/// Requests that are sent otherwise than they came, each with its reason. An entry must be needed, or the test fails.
const NOT_AS_IT_CAME: &[&str] = &[
    // These clients had lost what was issued; it is put back.
    "fantasy--TestOpenRouterCommon--grok--tool_streaming",
    "fantasy--TestOpenRouterCommon--kimi--tool_streaming",
    "pydantic-ai--models--test_anthropic--test_anthropic_web_search_tool",
    "pydantic-ai--models--test_deepseek_responses--test_deepseek_responses_replay_own_reasoning_history",
    "pydantic-ai--test_cache_prefix_stability--test_anthropic_thinking_agui_0_1_10_drops_prefix",
    // These put the first call's signature on its sibling too.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls",
    // This client showed one provider what another had thought.
    "pydantic-ai--models--test_mistral--test_mistral_model_thinking_part",
];

async fn sent(
    house: &House,
    tenant: &Tenant,
    exchange: &Exchange,
    body: &str,
) -> (Restored, Encoded) {
    let codec = codec_of(&exchange.wire);
    let call = codec.decode_request(&request(&exchange.path, body.to_owned()), &asked(exchange));
    let restored = house.replay.restore(tenant, None, call.unwrap()).await.unwrap();
    let mut encoded = codec.encode(&restored.call).unwrap();
    restored.account(&mut encoded);
    (restored, encoded)
}

/// The recorded answers that can be gone on from.
fn answered(recording: &Recording) -> impl Iterator<Item = (&Exchange, Reply)> {
    let exchanges = recording.exchanges.iter().filter(|exchange| exchange.status == 200);
    exchanges.map(|exchange| (exchange, recorded_reply(exchange, &asked(exchange))))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_lost_is_put_back_in_place() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let house = House::new().await;
    let mut tally = Tally::default();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let tenant = Tenant::from(format!("recording-{number}"));
        let mut issued: Vec<Bytes> = Vec::new();
        for (exchange, reply) in answered(&recording) {
            let (restored, encoded) =
                sent(&house, &tenant, exchange, &stripped(&exchange.wire, &exchange.request)).await;
            let there = sealed(&items_of(exchange, &encoded.request.body));
            tally.note_values(&exchange.wire, &recording.name, owed(exchange, &issued), &there);
            issued.extend(sealed(&reply.items).into_iter().map(|(bytes, _)| bytes));
            if reply.stop != Stop::Cut {
                house.capture(&tenant, &restored, &reply, &encoded).await.expect("a turn is kept");
            }
        }
    }
    tally.tell("opaque values put back in place");
    tally.check(NOT_PUT_BACK);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_sent_intact_goes_out_as_it_came() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let house = House::new().await;
    let mut tally = Tally::default();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let tenant = Tenant::from(format!("recording-{number}"));
        for (exchange, reply) in answered(&recording) {
            let (restored, encoded) = sent(&house, &tenant, exchange, &exchange.request).await;
            let as_it_came = encoded.request.body == exchange.request;
            let seen = if as_it_came { Ok(()) } else { Err(changes(&encoded)) };
            tally.note(&exchange.wire, &recording.name, seen);
            house.capture(&tenant, &restored, &reply, &encoded).await;
        }
    }
    tally.tell("requests that went out as they came");
    tally.check(NOT_AS_IT_CAME);
}

/// What became of the Items that did not go out as they came.
fn changes(encoded: &Encoded) -> String {
    let is_kept = |did: &Did| *did == Did::Kept;
    let fates = encoded.fates.iter();
    let others = fates.filter(|fate| !(is_kept(&fate.visible) && fate.seals.iter().all(is_kept)));
    let did: Vec<String> = others.map(|fate| format!("{} {}", fate.item, fate.visible)).collect();
    did.join(", ")
}
