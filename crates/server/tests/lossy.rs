//! A client that drops all reasoning: what it lost is put back, every opaque value equal and in its place.
//!
//! Each recording is a tenant of its own. Its recorded answers are captured as they came; each of its recorded requests is sent
//! once as it was, and once with all reasoning taken out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{House, codec_of, comparable, recorded_reply, request, sealed, stripped, target};
use throughline_codec::Asked;
use throughline_core::{Did, Encoded, Item, Reply, Stop, Tenant};
use throughline_server::Restored;
use throughline_testkit::{Exchange, Recording, figure, recordings, skip};

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

fn check_exceptions(found: &BTreeMap<String, Vec<String>>, expected: &[&str]) {
    let unforeseen: Vec<_> =
        found.iter().filter(|(name, _)| !expected.contains(&name.as_str())).collect();
    assert!(unforeseen.is_empty(), "{unforeseen:#?}");
    let needless: Vec<_> = expected.iter().filter(|name| !found.contains_key(**name)).collect();
    assert!(needless.is_empty(), "no longer needed: {needless:?}");
}

/// A base64 text in one alphabet and without padding: Google's clients change them.
fn plain(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).replace('-', "+").replace('_', "/");
    text.trim_end_matches('=').as_bytes().to_vec()
}

fn asked(exchange: &Exchange) -> Asked {
    Asked::of(target(&exchange.provider, &exchange.wire, &exchange.model))
}

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

#[derive(Default)]
struct Count {
    values: usize,
    found: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_lost_is_put_back_in_place() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let house = House::new().await;
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let tenant = Tenant::from(format!("recording-{number}"));
        let mut issued: Vec<Bytes> = Vec::new();
        for (exchange, reply) in answered(&recording) {
            let (restored, encoded) =
                sent(&house, &tenant, exchange, &stripped(&exchange.wire, &exchange.request)).await;
            let codec = codec_of(&exchange.wire);
            let read = |body: &[u8]| -> Vec<Item> {
                let body = request(&exchange.path, Bytes::copy_from_slice(body));
                codec.decode_request(&body, &asked(exchange)).unwrap().items
            };
            // What the recorded client sent back of what had been issued in this recording must be there again, as it
            // was issued.
            let expected = sealed(&read(exchange.request.as_bytes())).into_iter();
            let expected = expected.filter_map(|(bytes, on)| {
                let known = issued.iter().find(|known| plain(known) == plain(&bytes))?;
                Some((known.clone(), on))
            });
            let now = sealed(&read(&encoded.request.body));
            let mut rest = now.iter();
            let count = counts.entry(exchange.wire.clone()).or_default();
            for value in expected {
                count.values += 1;
                let mut ahead = rest.clone();
                if ahead.any(|found| *found == value) {
                    count.found += 1;
                    rest = ahead;
                } else {
                    missing.entry(recording.name.clone()).or_default().push(value.1);
                }
            }
            issued.extend(sealed(&reply.items).into_iter().map(|(bytes, _)| bytes));
            if reply.stop != Stop::Cut {
                house.capture(&tenant, &restored, &reply, &encoded).await.expect("a turn is kept");
            }
        }
    }
    for (wire, count) in &counts {
        let Count { values, found } = count;
        figure(&format!("opaque values put back in place: {wire}"), format!("{found} of {values}"));
    }
    check_exceptions(&missing, NOT_PUT_BACK);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_sent_intact_goes_out_as_it_came() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let house = House::new().await;
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut changed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let tenant = Tenant::from(format!("recording-{number}"));
        for (exchange, reply) in answered(&recording) {
            let (restored, encoded) = sent(&house, &tenant, exchange, &exchange.request).await;
            let count = counts.entry(exchange.wire.clone()).or_default();
            count.values += 1;
            if encoded.request.body == exchange.request {
                count.found += 1;
            } else {
                let is_kept = |did: &Did| *did == Did::Kept;
                let fates = encoded.fates.iter();
                let others = fates
                    .filter(|fate| !(is_kept(&fate.visible) && fate.seals.iter().all(is_kept)));
                let did = others.map(|fate| format!("{} {}", fate.item, fate.visible));
                changed.entry(recording.name.clone()).or_default().extend(did);
            }
            house.capture(&tenant, &restored, &reply, &encoded).await;
        }
    }
    for (wire, count) in &counts {
        let Count { values, found } = count;
        figure(
            &format!("requests that went out as they came: {wire}"),
            format!("{found} of {values}"),
        );
    }
    check_exceptions(&changed, NOT_AS_IT_CAME);
}
