//! Sends recorded conversations through the gateway over HTTP. Checks that requests arrive
//! unchanged and that lost values are restored.
//!
//! A scripted provider records each request and returns the recorded response. Each recording is
//! sent twice, as separate tenants: once unchanged and once without any reasoning.

use std::sync::{Arc, Mutex};

use crate::common::recorded::{
    Tally, comparable, decode_context, expected_values, items_of, recorded_reply, stripped,
};
use crate::common::{codec_of, request, sealed, target};
use crate::harness::{GatewayOptions, begin, serve};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use throughline_core::{
    StoreFuture, Tenant, Upstream, UpstreamFuture, UpstreamRequest, UpstreamResponse, Wire,
};
use throughline_json::Name;
use throughline_server::{
    Admission, Allowance, Keyring, ModelRouter, Passthrough, ReplayMode, RouteTarget,
};
use throughline_store::Journal;
use throughline_testkit::{Exchange, Folder, figure, recordings, skip};

/// Requests that do not arrive unchanged, each with a reason. The test fails if a listed request
/// arrives unchanged.
const NOT_AS_SENT: &[&str] = &[
    // These clients had dropped issued values, which are restored.
    "fantasy--TestOpenRouterCommon--grok--tool_streaming 1",
    "fantasy--TestOpenRouterCommon--kimi--tool_streaming 1",
    "pydantic-ai--models--test_anthropic--test_anthropic_web_search_tool 1",
    "pydantic-ai--models--test_deepseek_responses--test_deepseek_responses_replay_own_reasoning_history 1",
    "pydantic-ai--test_cache_prefix_stability--test_anthropic_thinking_agui_0_1_10_drops_prefix 2",
    // These clients copied the first call's signature to its sibling.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    // This client sent one provider's thoughts to another.
    "pydantic-ai--models--test_mistral--test_mistral_model_thinking_part 1",
    // These requests were refused for an error that the gateway repairs.
    "pydantic-ai--models--test_anthropic--test_anthropic_explicit_effort_xhigh_unsupported_model_errors 0",
    "pydantic-ai--models--test_deepseek_responses--test_deepseek_responses_rejects_interleaved_function_calls 0",
    "pydantic-ai--models--test_openai_responses--test_openai_responses_thinking_with_modified_history 1",
    "rig--deepseek--wire_shape_matrix--forced_tool_choice_under_thinking_is_rejected_upstream 0",
    "rig--deepseek--wire_shape_matrix--forced_tool_choice_under_thinking_is_rejected_upstream 1",
];

/// Requests in which an opaque value does not arrive, each with a reason. The test fails if all
/// values of a listed request arrive.
const NOT_IN_PLACE: &[&str] = &[
    // The last request has no system prompt, and the stripped client sends no ids.
    "pydantic-ai--models--test_bedrock_mantle--test_reused_tool_call_ids-request 3",
    // The client copied the first call's signature to its sibling; only issued values are restored.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    // The client merged a text with the signed empty part after it; the signature is restored on
    // the empty part.
    "pydantic-ai--models--test_google--test_google_model_file_search_grounding_gemini_3-True 1",
    // The client inserted its own call into the model's turn, so the turn no longer matches the
    // captured turn.
    "pydantic-ai--test_tool_search--test_cross_provider_capability_replay-google-gemini-3-flash-preview-openai-responses-gpt-5.4 1",
    "pydantic-ai--test_tool_search--test_cross_provider_capability_replay-google-gemini-3-flash-preview-openai-responses-gpt-5.4 2",
    // The client replaced the text that its reasoning led to. The provider refused that request, so
    // nothing is restored.
    "pydantic-ai--models--test_openai_responses--test_openai_responses_thinking_with_modified_history 1",
];

/// A gateway with its scripted provider.
struct RecordingGateway {
    url: String,
    provider: Arc<RecordedProvider>,
    _store: (Journal, Folder),
}

/// A provider that returns the recorded response of the current exchange.
#[derive(Default)]
struct RecordedProvider {
    playing: Mutex<Option<Exchange>>,
    arrived: Mutex<Vec<UpstreamRequest>>,
}

impl RecordedProvider {
    fn playing(&self) -> Exchange {
        self.playing.lock().unwrap().clone().expect("an exchange is set")
    }
}

impl Upstream for RecordedProvider {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        self.arrived.lock().unwrap().push(outgoing);
        let Exchange { status, content_type, response, .. } = self.playing();
        let headers = content_type.map(|kind| (Name::from("content-type"), Name::from(kind)));
        let pieces: Vec<_> =
            response.chunks(700).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let body = Box::pin(stream::iter(pieces));
        Box::pin(async move {
            Ok(UpstreamResponse { status, headers: headers.into_iter().collect(), body })
        })
    }
}

impl ModelRouter for RecordedProvider {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        let exchange = self.playing();
        if model != exchange.model {
            return Err(format!("{model} is not on: {} is", exchange.model));
        }
        let target = decode_context(&exchange).target;
        Ok(vec![RouteTarget {
            endpoint: target.origin.provider.clone(),
            account: target.origin.account.clone(),
            is_callers: false,
            provider: target.provider,
            model: model.into(),
        }])
    }

    fn of_wire(&self, _: &Wire) -> Option<RouteTarget> {
        None
    }

    fn models(&self) -> Vec<Name> {
        Vec::new()
    }
}

/// A keyring in which each key is the name of its tenant.
struct NameKeys;

impl Keyring for NameKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        let admission = key.map_or(Admission::Refused, |key| Admission::Key {
            role: None,
            tenant: Tenant::from(key),
            id: key.into(),
            models: Vec::new(),
            allowance: Allowance::default(),
        });
        Box::pin(async { Ok(admission) })
    }
}

/// The outcome of one request.
struct PlayedExchange {
    /// The request that reached the provider; `None` if the gateway responded itself.
    arrived: Option<UpstreamRequest>,
    status: u16,
    body: Bytes,
}

impl RecordingGateway {
    async fn open() -> Self {
        let provider = Arc::new(RecordedProvider::default());
        let options = GatewayOptions {
            keyring: Arc::new(NameKeys),
            directory: Arc::<RecordedProvider>::clone(&provider),
            // The recorded clients name files that were never uploaded here.
            passthrough: Passthrough::new(["/*", "gs://*"]).unwrap(),
            ..GatewayOptions::of(ReplayMode::Repair)
        };
        let (url, journal, folder) =
            serve(Arc::<RecordedProvider>::clone(&provider), options).await;
        Self { url, provider, _store: (journal, folder) }
    }

    /// Sends a request while the provider replays this exchange.
    async fn play(
        &self,
        exchange: &Exchange,
        key: &str,
        (path, body): (String, String),
    ) -> PlayedExchange {
        *self.provider.playing.lock().unwrap() = Some(exchange.clone());
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*format!("Bearer {key}")),
            ("anthropic-version", "2023-06-01"),
        ];
        let answer = begin(&self.url, "POST", &path, body.into_bytes(), &headers).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let mut arrived = std::mem::take(&mut *self.provider.arrived.lock().unwrap());
        assert!(arrived.len() <= 1, "one request is sent once");
        PlayedExchange { arrived: arrived.pop(), status, body }
    }
}

/// Returns the path of an exchange without the provider's base URL.
fn provider_path(exchange: &Exchange) -> String {
    let begins = ["/v1/messages", "/responses", "/chat/completions", "/v1beta"];
    let path = begins.iter().find_map(|begin| exchange.path.find(begin));
    let path = &exchange.path[path.unwrap()..];
    // Vertex derives the project from the key.
    match (path.find("/projects/"), path.find("/publishers/")) {
        (Some(project), Some(publisher)) => [&path[..project], &path[publisher..]].concat(),
        _ => path.to_owned(),
    }
}

/// Returns the gateway path for the request of an exchange.
fn gateway_path(exchange: &Exchange) -> String {
    let path = provider_path(exchange);
    match path.split_once("/models/") {
        Some((_, model)) => format!("/v1beta/models/{model}"),
        None if path.starts_with("/v1/") => path,
        None => format!("/v1{path}"),
    }
}

/// Returns whether the gateway accepts this wire as a dialect. Recordings of other wires are sent
/// in Anthropic's dialect.
fn is_dialect(wire: &str) -> bool {
    wire != Wire::BEDROCK_CONVERSE.as_str()
}

/// Returns the exchange's path and request without reasoning, in a gateway dialect.
fn without_reasoning(exchange: &Exchange) -> (String, String) {
    if is_dialect(&exchange.wire) {
        return (gateway_path(exchange), stripped(&exchange.wire, &exchange.request));
    }
    let read = request(&exchange.path, exchange.request.clone());
    let mut call =
        codec_of(&exchange.wire).decode_request(&read, &decode_context(exchange)).unwrap();
    let wire = Wire::ANTHROPIC_MESSAGES;
    call.target = target("anthropic", wire.as_str(), &exchange.model);
    let body = codec_of(wire.as_str()).encode(&call).unwrap().request.body;
    let body = stripped(wire.as_str(), std::str::from_utf8(&body).unwrap());
    ("/v1/messages".to_owned(), body)
}

/// Checks that the request reached the provider unchanged, and that the response reached the caller
/// unchanged.
fn is_as_it_was(exchange: &Exchange, played: &PlayedExchange) -> Result<(), String> {
    let response = || String::from_utf8_lossy(&played.body).into_owned();
    let arrived = played.arrived.as_ref();
    let arrived = arrived.ok_or_else(|| format!("not sent: {} {}", played.status, response()))?;
    if *arrived.path != *provider_path(exchange) {
        return Err(format!("it arrived at {}", arrived.path));
    }
    if arrived.body != exchange.request {
        return Err(difference(exchange.request.as_bytes(), &arrived.body));
    }
    let is_answered = played.status == exchange.status && played.body == exchange.response;
    if is_answered { Ok(()) } else { Err(format!("answered {} {}", played.status, response())) }
}

/// Describes the position at which two texts differ.
fn difference(sent: &[u8], arrived: &[u8]) -> String {
    let equal = sent.iter().zip(arrived).take_while(|(sent, arrived)| sent == arrived).count();
    let from = |text: &[u8]| {
        let (start, end) = (equal.saturating_sub(60), text.len().min(equal + 120));
        String::from_utf8_lossy(&text[start..end]).into_owned()
    };
    format!("sent …{}… arrived …{}…", from(sent), from(arrived))
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_arrive_unchanged() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let gateway = RecordingGateway::open().await;
    let (mut tally, mut unspoken) = (Tally::default(), 0);
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let key = format!("tl_recording_{number}");
        for (turn, exchange) in recording.exchanges.iter().enumerate() {
            if !is_dialect(&exchange.wire) {
                unspoken += 1;
                continue;
            }
            let sending = (gateway_path(exchange), exchange.request.clone());
            let played = gateway.play(exchange, &key, sending).await;
            let at = format!("{} {turn}", recording.name);
            tally.note(&exchange.wire, &at, is_as_it_was(exchange, &played));
        }
    }
    tally.print("recorded requests that arrived unchanged");
    figure("recorded requests on wires without a dialect", unspoken);
    tally.check(NOT_AS_SENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_values_of_recorded_requests_arrive_in_place() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let gateway = RecordingGateway::open().await;
    let mut tally = Tally::default();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let key = format!("tl_recording_{number}");
        let mut issued: Vec<Bytes> = Vec::new();
        for (turn, exchange) in recording.exchanges.iter().enumerate() {
            let played = gateway.play(exchange, &key, without_reasoning(exchange)).await;
            let arrived = played.arrived.map(|arrived| items_of(exchange, &arrived.body));
            let found = sealed(&arrived.unwrap_or_default());
            let at = format!("{} {turn}", recording.name);
            tally.count_values(&exchange.wire, &at, expected_values(exchange, &issued), &found);
            if exchange.status == 200 {
                let reply = recorded_reply(exchange, &decode_context(exchange));
                issued.extend(sealed(&reply.items).into_iter().map(|(bytes, _)| bytes));
            }
        }
    }
    tally.print("opaque values of recorded requests that arrived in place");
    tally.check(NOT_IN_PLACE);
}
