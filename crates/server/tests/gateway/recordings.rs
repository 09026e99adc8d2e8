//! Recorded conversations through the gateway, over HTTP: what a client sent arrives as it was, and what a client lost arrives
//! all the same.
//!
//! The provider of each exchange is played: it takes down what arrives, and answers with the recorded answer. Each recording is
//! a tenant of its own, once with its requests as they were, and once with all reasoning taken out of them.

use std::sync::{Arc, Mutex};

use crate::common::recorded::{Tally, asked, comparable, items_of, owed, recorded_reply, stripped};
use crate::common::{codec_of, request, sealed, target};
use crate::harness::{Opening, begin, serve};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use throughline_core::{Answer, Answering, Boxed, Name, Outgoing, Tenant, Upstream, Wire};
use throughline_server::{
    Admission, Allowance, Directory, Keyring, Passthrough, Reached, ReplayMode,
};
use throughline_store::Journal;
use throughline_testkit::{Exchange, Folder, figure, recordings, skip};

/// Requests that arrive otherwise than they were sent, each with its reason. An entry must be needed, or the test fails.
const NOT_AS_SENT: &[&str] = &[
    // These clients had lost what was issued; it is put back.
    "fantasy--TestOpenRouterCommon--grok--tool_streaming 1",
    "fantasy--TestOpenRouterCommon--kimi--tool_streaming 1",
    "pydantic-ai--models--test_anthropic--test_anthropic_web_search_tool 1",
    "pydantic-ai--models--test_deepseek_responses--test_deepseek_responses_replay_own_reasoning_history 1",
    "pydantic-ai--test_cache_prefix_stability--test_anthropic_thinking_agui_0_1_10_drops_prefix 2",
    // These put the first call's signature on its sibling too.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    // This client showed one provider what another had thought.
    "pydantic-ai--models--test_mistral--test_mistral_model_thinking_part 1",
    // These were refused for what was wrong with them; it is mended.
    "pydantic-ai--models--test_anthropic--test_anthropic_explicit_effort_xhigh_unsupported_model_errors 0",
    "pydantic-ai--models--test_deepseek_responses--test_deepseek_responses_rejects_interleaved_function_calls 0",
    "pydantic-ai--models--test_openai_responses--test_openai_responses_thinking_with_modified_history 1",
    "rig--deepseek--wire_shape_matrix--forced_tool_choice_under_thinking_is_rejected_upstream 0",
    "rig--deepseek--wire_shape_matrix--forced_tool_choice_under_thinking_is_rejected_upstream 1",
];

/// Requests in which an opaque value does not arrive, each with its reason. An entry must be needed, or the test fails.
const NOT_IN_PLACE: &[&str] = &[
    // The client's last request has no system prompt any more, and the client that was stripped sends no ids.
    "pydantic-ai--models--test_bedrock_mantle--test_reused_tool_call_ids-request 3",
    // The client had put the first call's signature on its sibling too; only what was issued comes back.
    "ruby_llm--chat_function_calling_gemini_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    "ruby_llm--chat_function_calling_vertexai_gemini-2_5-flash_can_use_parallel_tool_calls 1",
    // The client had merged the text with the signed empty part behind it; the signature comes back on that part.
    "pydantic-ai--models--test_google--test_google_model_file_search_grounding_gemini_3-True 1",
    // The client had put a call of its own into the model's turn, so that it is not the turn that was captured.
    "pydantic-ai--test_tool_search--test_cross_provider_capability_replay-google-gemini-3-flash-preview-openai-responses-gpt-5.4 1",
    "pydantic-ai--test_tool_search--test_cross_provider_capability_replay-google-gemini-3-flash-preview-openai-responses-gpt-5.4 2",
    // The client had replaced the text that its reasoning led to; it was refused, and so it is not put back.
    "pydantic-ai--models--test_openai_responses--test_openai_responses_thinking_with_modified_history 1",
];

/// A gateway, and the provider behind it.
struct Theatre {
    url: String,
    stage: Arc<Stage>,
    _store: (Journal, Folder),
}

/// The provider of whichever exchange is on.
#[derive(Default)]
struct Stage {
    playing: Mutex<Option<Exchange>>,
    arrived: Mutex<Vec<Outgoing>>,
}

impl Stage {
    fn playing(&self) -> Exchange {
        self.playing.lock().unwrap().clone().expect("an exchange is on")
    }
}

impl Upstream for Stage {
    fn send(&self, outgoing: Outgoing) -> Answering<'_> {
        self.arrived.lock().unwrap().push(outgoing);
        let Exchange { status, content_type, response, .. } = self.playing();
        let headers = content_type.map(|kind| (Name::from("content-type"), Name::from(kind)));
        let pieces: Vec<_> =
            response.chunks(700).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let body = Box::pin(stream::iter(pieces));
        Box::pin(async move { Ok(Answer { status, headers: headers.into_iter().collect(), body }) })
    }
}

impl Directory for Stage {
    fn reach(&self, model: &str) -> Result<Vec<Reached>, String> {
        let exchange = self.playing();
        if model != exchange.model {
            return Err(format!("{model} is not on: {} is", exchange.model));
        }
        let asked = asked(&exchange).target;
        Ok(vec![Reached {
            endpoint: asked.origin.provider.clone(),
            account: asked.origin.account.clone(),
            is_callers: false,
            provider: asked.provider,
            model: model.into(),
        }])
    }

    fn of_wire(&self, _: &Wire) -> Option<Reached> {
        None
    }

    fn models(&self) -> Vec<Name> {
        Vec::new()
    }
}

/// A key is the name of its tenant.
struct Names;

impl Keyring for Names {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> Boxed<'a, Admission> {
        let admission = key.map_or(Admission::Refused, |key| Admission::Key {
            tenant: Tenant::from(key),
            id: key.into(),
            models: Vec::new(),
            allowance: Allowance::default(),
        });
        Box::pin(async { Ok(admission) })
    }
}

/// What became of one request.
struct Played {
    /// What arrived at the provider; nothing where the gateway answered of itself.
    arrived: Option<Outgoing>,
    status: u16,
    body: Bytes,
}

impl Theatre {
    async fn open() -> Self {
        let stage = Arc::new(Stage::default());
        let opening = Opening {
            keyring: Arc::new(Names),
            directory: Arc::<Stage>::clone(&stage),
            // The recorded clients name files that were never uploaded here.
            passthrough: Passthrough::new(["/*"]).unwrap(),
            ..Opening::of(ReplayMode::Repair)
        };
        let (url, journal, folder) = serve(Arc::<Stage>::clone(&stage), opening).await;
        Self { url, stage, _store: (journal, folder) }
    }

    /// Sends that while the exchange is on.
    async fn play(&self, exchange: &Exchange, key: &str, (path, body): (String, String)) -> Played {
        *self.stage.playing.lock().unwrap() = Some(exchange.clone());
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*format!("Bearer {key}")),
            ("anthropic-version", "2023-06-01"),
        ];
        let answer = begin(&self.url, "POST", &path, body.into_bytes(), &headers).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let mut arrived = std::mem::take(&mut *self.stage.arrived.lock().unwrap());
        assert!(arrived.len() <= 1, "one request is sent once");
        Played { arrived: arrived.pop(), status, body }
    }
}

/// The path of an exchange behind the address of its provider.
fn own_path(exchange: &Exchange) -> String {
    let begins = ["/v1/messages", "/responses", "/chat/completions", "/v1beta"];
    let own = begins.iter().find_map(|begin| exchange.path.find(begin));
    let own = &exchange.path[own.unwrap()..];
    // Vertex finds the project by the key.
    match (own.find("/projects/"), own.find("/publishers/")) {
        (Some(project), Some(publisher)) => [&own[..project], &own[publisher..]].concat(),
        _ => own.to_owned(),
    }
}

/// Where its client asks the gateway for the same.
fn path_at_gateway(exchange: &Exchange) -> String {
    let own = own_path(exchange);
    match own.split_once("/models/") {
        Some((_, model)) => format!("/v1beta/models/{model}"),
        None if own.starts_with("/v1/") => own,
        None => format!("/v1{own}"),
    }
}

/// Whether callers of the gateway speak that wire. The others are reached in Anthropic's words.
fn is_dialect(wire: &str) -> bool {
    wire != Wire::BEDROCK_CONVERSE.as_str()
}

/// The request of a client that knows of no reasoning, in a dialect of the gateway's.
fn without_reasoning(exchange: &Exchange) -> (String, String) {
    if is_dialect(&exchange.wire) {
        return (path_at_gateway(exchange), stripped(&exchange.wire, &exchange.request));
    }
    let read = request(&exchange.path, exchange.request.clone());
    let mut call = codec_of(&exchange.wire).decode_request(&read, &asked(exchange)).unwrap();
    let wire = Wire::ANTHROPIC_MESSAGES;
    call.target = target("anthropic", wire.as_str(), &exchange.model);
    let said = codec_of(wire.as_str()).encode(&call).unwrap().request.body;
    let said = stripped(wire.as_str(), std::str::from_utf8(&said).unwrap());
    ("/v1/messages".to_owned(), said)
}

/// Whether a request arrived as it was sent, and its answer as it was given.
fn is_as_it_was(exchange: &Exchange, played: &Played) -> Result<(), String> {
    let said = || String::from_utf8_lossy(&played.body).into_owned();
    let arrived = played.arrived.as_ref();
    let arrived = arrived.ok_or_else(|| format!("not sent: {} {}", played.status, said()))?;
    if *arrived.path != *own_path(exchange) {
        return Err(format!("it arrived at {}", arrived.path));
    }
    if arrived.body != exchange.request {
        return Err(difference(exchange.request.as_bytes(), &arrived.body));
    }
    let is_answered = played.status == exchange.status && played.body == exchange.response;
    if is_answered { Ok(()) } else { Err(format!("answered {} {}", played.status, said())) }
}

/// Where two texts begin to differ.
fn difference(sent: &[u8], arrived: &[u8]) -> String {
    let equal = sent.iter().zip(arrived).take_while(|(sent, arrived)| sent == arrived).count();
    let from = |text: &[u8]| {
        let (start, end) = (equal.saturating_sub(60), text.len().min(equal + 120));
        String::from_utf8_lossy(&text[start..end]).into_owned()
    };
    format!("sent …{}… arrived …{}…", from(sent), from(arrived))
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_arrive_as_they_were_sent() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let theatre = Theatre::open().await;
    let (mut tally, mut unspoken) = (Tally::default(), 0);
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let key = format!("tl_recording_{number}");
        for (turn, exchange) in recording.exchanges.iter().enumerate() {
            if !is_dialect(&exchange.wire) {
                unspoken += 1;
                continue;
            }
            let sending = (path_at_gateway(exchange), exchange.request.clone());
            let played = theatre.play(exchange, &key, sending).await;
            let at = format!("{} {turn}", recording.name);
            tally.note(&exchange.wire, &at, is_as_it_was(exchange, &played));
        }
    }
    tally.tell("recorded requests that arrived as they were sent");
    figure("recorded requests on a wire that no caller speaks", unspoken);
    tally.check(NOT_AS_SENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recorded_requests_lost_arrives_in_place() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let theatre = Theatre::open().await;
    let mut tally = Tally::default();
    for (number, recording) in recordings.iter().map(comparable).enumerate() {
        let key = format!("tl_recording_{number}");
        let mut issued: Vec<Bytes> = Vec::new();
        for (turn, exchange) in recording.exchanges.iter().enumerate() {
            let played = theatre.play(exchange, &key, without_reasoning(exchange)).await;
            let arrived = played.arrived.map(|arrived| items_of(exchange, &arrived.body));
            let there = sealed(&arrived.unwrap_or_default());
            let at = format!("{} {turn}", recording.name);
            tally.note_values(&exchange.wire, &at, owed(exchange, &issued), &there);
            if exchange.status == 200 {
                let reply = recorded_reply(exchange, &asked(exchange));
                issued.extend(sealed(&reply.items).into_iter().map(|(bytes, _)| bytes));
            }
        }
    }
    tally.tell("opaque values of recorded requests that arrived in place");
    tally.check(NOT_IN_PLACE);
}
