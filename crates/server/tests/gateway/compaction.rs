//! Tests that every target compacts a conversation, and that the conversation goes on from the
//! compaction with its reasoning.

use std::sync::Arc;

use crate::harness::{ClientDialect, GatewayOptions, MODELS, QUESTION, SimGateway};
use crate::house::{RawGateway, RawGatewayOptions, RawProvider, http_response, store};
use serde_json::{Value, json};
use throughline_core::{LogId, StoreFuture, Tenant};
use throughline_server::{Admission, Allowance, Keyring, ReplayMode};
use throughline_sim::Options;
use throughline_testkit::{Folder, figure};

const DIALECT: ClientDialect = ClientDialect::Responses;
/// A model that binds its Seals to the prefix and rejects trailing assistant messages.
const BOUND: &str = "sim/claude-opus-5-5";

const INSTRUCTIONS: &str = "You are a coding agent. Answer briefly.";

/// Returns a request as Codex sends it.
fn codex_request(model: &str, input: &[Value], stream: bool) -> Value {
    let (_, mut body) = DIALECT.request(model, input, stream);
    body["instructions"] = json!(INSTRUCTIONS);
    body["tool_choice"] = json!("auto");
    body["parallel_tool_calls"] = json!(true);
    body["prompt_cache_key"] = json!("0199-session");
    body
}

/// The response to a request, and its call record.
struct Answer {
    status: u16,
    body: Value,
    /// The items of `response.output_item.done` events, or of a whole response.
    items: Vec<Value>,
    /// The header with the counts of Fates.
    fates: String,
    record: Value,
}

impl Answer {
    /// Returns the number of omitted Items and Seals.
    fn elided(&self) -> usize {
        self.fates.split_once("elided=").unwrap().1.parse().unwrap()
    }
}

async fn send(gateway: &SimGateway, path: &str, body: &Value, key: Option<&str>) -> Answer {
    let key = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<_> = key.iter().map(|key| ("authorization", key.as_str())).collect();
    let (status, headers, bytes) =
        gateway.send("POST", path, body.to_string().into_bytes(), &headers).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let is_stream = status == 200 && body["stream"] == true;
    let (body, items) = if is_stream {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
        let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
        let done = of("response.output_item.done").map(|event| event["item"].clone());
        let last = of("response.completed").next().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(
            of("response.output_item.added").count(),
            of("response.output_item.done").count(),
            "{text}"
        );
        (last["response"].clone(), done.collect())
    } else {
        let body: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}"));
        let items = body["output"].as_array().cloned().unwrap_or_default();
        (body, items)
    };
    let record = match headers.get("x-throughline-call") {
        Some(call) if key.is_none() => {
            gateway.get(&format!("/v1/throughline/calls/{}", call.to_str().unwrap())).await.1
        }
        _ => Value::Null,
    };
    let fates = headers.get("x-throughline-fates").map(|fates| fates.to_str().unwrap().to_owned());
    Answer { status, body, items, fates: fates.unwrap_or_default(), record }
}

/// Sends a request as Codex does, and returns the items of the reply.
async fn ask(gateway: &SimGateway, model: &str, input: &[Value], stream: bool) -> Answer {
    let answer = send(gateway, "/v1/responses", &codex_request(model, input, stream), None).await;
    assert_eq!(answer.status, 200, "{model}, streamed {stream}: {:#}", answer.body);
    answer
}

/// Continues a conversation until the model has answered `finals` times. Returns the number of
/// requests.
async fn continue_until(
    gateway: &SimGateway,
    model: &str,
    history: &mut Vec<Value>,
    stream: bool,
    finals: usize,
) -> usize {
    let (mut requests, mut answered) = (0, 0);
    while answered < finals {
        let reply = ask(gateway, model, history, stream).await.items;
        requests += 1;
        assert!(requests < 12, "the conversation does not end: {history:#?}");
        let calls = DIALECT.calls(&reply);
        history.extend(reply);
        if calls.is_empty() {
            answered += 1;
            history.push(DIALECT.user("Thank you. And once more, please."));
        } else {
            history.extend(DIALECT.results(&calls));
        }
    }
    requests
}

/// Compacts a conversation. Returns the only item of the reply.
async fn compact(gateway: &SimGateway, model: &str, history: &[Value], stream: bool) -> Value {
    let mut input = history.to_vec();
    input.push(json!({"type": "compaction_trigger"}));
    let answer = ask(gateway, model, &input, stream).await;
    let label = format!("{model}, streamed {stream}: {:#}", answer.body);
    let [item] = answer.items.as_slice() else { panic!("not exactly one item: {label}") };
    assert_eq!(answer.body["output"], json!([item]), "{label}");
    assert_eq!(answer.body["status"], "completed", "{label}");
    assert_compaction(item, &label);
    assert!(answer.body["usage"]["output_tokens"].as_u64().unwrap() > 0, "{label}");
    item.clone()
}

fn assert_compaction(item: &Value, label: &str) {
    assert_eq!(item["type"], "compaction", "{label}");
    assert!(item["id"].as_str().unwrap().starts_with("cmp_"), "{label}");
    assert!(!item["encrypted_content"].as_str().unwrap().is_empty(), "{label}");
}

/// Panics if a simulator refused a request, or if a request lost or altered reasoning.
fn assert_reasoning_intact(gateway: &SimGateway, label: &str) -> usize {
    let ledger = gateway.ledger();
    for entry in &ledger.entries {
        assert!(entry.all_verified(), "{label}: {entry:#?}");
    }
    ledger.returned().count()
}

/// A Codex-shaped trigger returns exactly one compaction item from every target. The conversation
/// then goes on for two further tool loops, and every request contains the reasoning that it needs.
#[tokio::test(flavor = "multi_thread")]
async fn conversation_continues_after_a_compaction_trigger() {
    let (mut requests, mut returned) = (0, 0);
    for model in MODELS.into_iter().chain([BOUND]) {
        for stream in [false, true] {
            let gateway = SimGateway::open(ReplayMode::Repair).await;
            let mut history = vec![DIALECT.user(QUESTION)];
            requests += continue_until(&gateway, model, &mut history, stream, 1).await;
            history.pop();
            let item = compact(&gateway, model, &history, stream).await;
            // Codex keeps the user's messages and replaces everything else with the item.
            let mut history = vec![DIALECT.user(QUESTION), item, DIALECT.user("Go on, please.")];
            requests += 1 + continue_until(&gateway, model, &mut history, stream, 2).await;
            let label = format!("{model}, streamed {stream}");
            let count = assert_reasoning_intact(&gateway, &label);
            assert!(count > 0, "{label}: no request contained reasoning");
            returned += count;
        }
    }
    figure(
        "compaction",
        format!("{requests} requests around 10 compactions returned {returned} Seals, all intact"),
    );
}

/// Codex also compacts inside a tool loop. The next request ends with the compaction item, and the
/// model continues the loop.
#[tokio::test(flavor = "multi_thread")]
async fn tool_loop_continues_after_a_compaction() {
    for model in MODELS.into_iter().chain([BOUND]) {
        for stream in [false, true] {
            let gateway = SimGateway::open(ReplayMode::Repair).await;
            let mut history = vec![DIALECT.user(QUESTION)];
            let reply = ask(&gateway, model, &history, stream).await.items;
            let calls = DIALECT.calls(&reply);
            assert!(!calls.is_empty());
            history.extend(reply);
            history.extend(DIALECT.results(&calls));
            let item = compact(&gateway, model, &history, stream).await;
            for kept in [vec![DIALECT.user(QUESTION), item.clone()], vec![item.clone()]] {
                let mut history = kept;
                continue_until(&gateway, model, &mut history, stream, 2).await;
            }
            assert_reasoning_intact(&gateway, &format!("{model}, streamed {stream}"));
        }
    }
}

/// A compacted conversation can itself be compacted.
#[tokio::test(flavor = "multi_thread")]
async fn compacted_conversation_is_compacted_again() {
    for model in MODELS {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut history = vec![DIALECT.user(QUESTION)];
        for _ in 0..3 {
            continue_until(&gateway, model, &mut history, false, 1).await;
            let item = compact(&gateway, model, &history, false).await;
            history = vec![item, DIALECT.user("Go on, please.")];
        }
        continue_until(&gateway, model, &mut history, false, 1).await;
        assert_reasoning_intact(&gateway, model);
    }
}

/// The endpoint returns one compaction item for every target. OpenAI also repeats the user's
/// messages.
#[tokio::test(flavor = "multi_thread")]
async fn compact_endpoint_works_for_every_target() {
    for model in MODELS {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut history = vec![DIALECT.user(QUESTION)];
        continue_until(&gateway, model, &mut history, false, 1).await;
        let body = json!({"model": model, "input": history, "instructions": INSTRUCTIONS});
        let answer = send(&gateway, "/v1/responses/compact", &body, None).await;
        let label = format!("{model}: {:#}", answer.body);
        assert_eq!(answer.status, 200, "{label}");
        assert_eq!(answer.body["object"], "response.compaction", "{label}");
        let (compactions, others): (Vec<_>, Vec<_>) =
            answer.items.iter().partition(|item| item["type"] == "compaction");
        assert_eq!(compactions.len(), 1, "{label}");
        assert_compaction(compactions[0], &label);
        assert!(others.iter().all(|item| item["role"] == "user"), "{label}");
        assert_eq!(others.is_empty(), !model.contains("gpt"), "{label}");
        let mut history = answer.items.clone();
        history.push(DIALECT.user("Go on, please."));
        continue_until(&gateway, model, &mut history, false, 2).await;
        assert_reasoning_intact(&gateway, model);
    }
}

/// OpenAI's own compaction is readable only for OpenAI. Every other target gets the conversation
/// that the compaction stands for, once, even after several compactions.
#[tokio::test(flavor = "multi_thread")]
async fn native_compaction_continues_at_another_provider() {
    for to in [MODELS[0], MODELS[2], MODELS[3]] {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut history = vec![DIALECT.user(QUESTION)];
        continue_until(&gateway, MODELS[1], &mut history, false, 1).await;
        history.pop();
        let first = compact(&gateway, MODELS[1], &history, false).await;
        let mut history = vec![DIALECT.user(QUESTION), first, DIALECT.user("And the time?")];
        let second = compact(&gateway, MODELS[1], &history, false).await;
        history.truncate(1);
        history.extend([second, DIALECT.user("Go on, please.")]);
        let answer = ask(&gateway, to, &history, false).await;
        let sent = answer.record["sent"]["body"].to_string();
        assert_eq!(sent.matches(&format!("\"{QUESTION}\"")).count(), 1, "{to}: {sent}");
        assert!(sent.contains("And the time?") && sent.contains("get_weather"), "{to}: {sent}");
        continue_until(&gateway, to, &mut history, false, 2).await;
        // Gemini receives its documented placeholder for the signatures of the GPT's calls, so not
        // every returned value is accepted.
        gateway.assert_nothing_refused();
        assert_eq!(gateway.ledger().entries.iter().map(|entry| entry.lost).sum::<usize>(), 0);
    }
}

/// Copies of OpenAI's compaction item stand for the same conversation, which is sent once. All
/// types of compaction items are recognised.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_native_compaction_is_expanded() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let item = compact(&gateway, MODELS[1], &[DIALECT.user(QUESTION)], false).await;
    for kind in ["compaction", "compaction_summary", "context_compaction"] {
        let mut item = item.clone();
        item["type"] = json!(kind);
        let mut input = vec![item; 50];
        input.push(DIALECT.user("Go on, please."));
        let answer = ask(&gateway, MODELS[0], &input, false).await;
        let sent = answer.record["sent"]["body"].to_string();
        assert_eq!(sent.matches(&format!("\"{QUESTION}\"")).count(), 1, "{kind}: {sent}");
        // Each of the other items has one Seal.
        assert_eq!(answer.elided(), 2 * 49, "{kind}: {}", answer.fates);
        let body = json!({"model": MODELS[0], "input": input});
        let counted = send(&gateway, "/v1/responses/input_tokens", &body, None).await;
        let alone = json!({"model": MODELS[0], "input": "Go on, please."});
        let alone = send(&gateway, "/v1/responses/input_tokens", &alone, None).await;
        let tokens = |answer: &Answer| answer.body["input_tokens"].as_u64().unwrap();
        assert!(tokens(&counted) > tokens(&alone), "{kind}: {:#}", counted.body);
    }
}

/// A request that becomes longer than the limit when its compaction item is expanded is refused.
#[tokio::test(flavor = "multi_thread")]
async fn expanded_request_has_the_size_limit_of_a_request() {
    let reply = r#"{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"gpt-5.2","output":[{"id":"cmp_1","type":"compaction","encrypted_content":"gAAAAABcompacted"}],"usage":{"input_tokens":9,"output_tokens":9,"total_tokens":18}}"#;
    let folder = Folder::new("compaction");
    let provider =
        RawProvider::with_reply(http_response("200 OK", "application/json", reply)).await;
    let options =
        RawGatewayOptions { body_limit: 4096, own_wires: true, ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&provider, &store(&folder).await, options);
    let long = DIALECT.user(&"long ".repeat(600));
    let trigger = json!({"type": "compaction_trigger"});
    let body = json!({"model": "gpt-5.2", "input": [long, trigger]}).to_string();
    let response = gateway.send("/v1/responses", "", &body).await;
    assert_eq!(response.status, 200, "{response:?}");
    let output: Value = serde_json::from_str(&response.body).unwrap();
    let input = json!([output["output"][0], DIALECT.user(&"more ".repeat(300))]);
    let body = json!({"model": "claude-sonnet-4-5", "input": input}).to_string();
    let response = gateway.send("/v1/responses", "", &body).await;
    assert_eq!(response.status, 413, "{response:?}");
    assert!(response.body.contains("the limit is 4096 bytes"), "{response:?}");
    gateway.close().await;
}

/// The summary of one provider's model continues at every other provider, and the Fates report the
/// expansion.
#[tokio::test(flavor = "multi_thread")]
async fn summary_continues_at_another_provider() {
    for from in [MODELS[0], MODELS[2], MODELS[3]] {
        for to in MODELS {
            let gateway = SimGateway::open(ReplayMode::Repair).await;
            let item = compact(&gateway, from, &[DIALECT.user(QUESTION)], false).await;
            let claim = item["encrypted_content"].as_str().unwrap().to_owned();
            let mut history = vec![item, DIALECT.user("Go on, please.")];
            let answer = ask(&gateway, to, &history, false).await;
            let (label, sent) =
                (format!("{from} → {to}"), answer.record["sent"]["body"].to_string());
            assert!(!sent.contains(&claim), "{label}: {sent}");
            // A provider's own compaction has a Seal, which is counted separately.
            let is_native = sent.contains(r#""compaction""#);
            assert!(is_native || sent.contains("replaced by this summary"), "{label}: {sent}");
            let restored = format!("restored={} ", if is_native { 2 } else { 1 });
            assert!(answer.fates.contains(&restored), "{label}: {}", answer.fates);
            continue_until(&gateway, to, &mut history, false, 1).await;
            assert_reasoning_intact(&gateway, &label);
        }
    }
}

/// The last compaction stands for the conversation before it, so earlier compactions are left out.
/// Anthropic accepts only one compaction.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_claimed_compaction_is_expanded() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let (first, second) = (DIALECT.user("An apple"), DIALECT.user("A pear"));
    let goes_on = DIALECT.user("Go on, please.");
    for from in [MODELS[0], MODELS[2]] {
        let c1 = compact(&gateway, from, std::slice::from_ref(&first), false).await;
        let c2 = compact(&gateway, from, &[c1.clone(), second.clone()], false).await;
        for to in MODELS {
            let alone = ask(&gateway, to, &[c2.clone(), goes_on.clone()], false).await;
            for copies in [1, 40] {
                let mut input = vec![c1.clone(); copies];
                input.extend([second.clone(), c2.clone(), goes_on.clone()]);
                let answer = ask(&gateway, to, &input, false).await;
                let label = format!("{from} → {to}, {copies} copies: {}", answer.fates);
                let sent = answer.record["sent"]["body"].to_string();
                // The simulated models quote the start of their input in their answers.
                let count = sent.matches(r"replaced by this summary of it:\n\n").count()
                    + sent.matches(r#""type":"compaction""#).count();
                assert_eq!(count, 1, "{label}: {sent}");
                assert!(sent.contains("A pear"), "{label}: {sent}");
                let expected = alone.elided() + 2 * copies;
                assert_eq!(answer.elided(), expected, "{label}");
                assert_eq!(answer.record["audit"], alone.record["audit"], "{label}");
            }
        }
    }
    gateway.assert_nothing_refused();
}

/// Anthropic's own compaction block is readable, so every other provider gets its text.
#[tokio::test(flavor = "multi_thread")]
async fn anthropic_compaction_block_continues_at_another_provider() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Messages;
    let block = |text: &str| json!({"type": "compaction", "content": text});
    let history = [
        dialect.user("An apple"),
        json!({"role": "assistant", "content": [block("The user has an apple.")]}),
        dialect.user("A pear"),
        json!({"role": "assistant", "content":
               [block("The user has an apple and a pear."), {"type": "text", "text": "Noted."}]}),
        dialect.user("What do I have?"),
    ];
    for model in [MODELS[1], MODELS[2], MODELS[3]] {
        let (path, body) = dialect.request(model, &history, false);
        let body = body.to_string().into_bytes();
        let (status, headers, answer) = gateway.send("POST", &path, body, &[]).await;
        assert_eq!(status, 200, "{model}: {answer:?}");
        let call = headers["x-throughline-call"].to_str().unwrap();
        let record = gateway.get(&format!("/v1/throughline/calls/{call}")).await.1;
        let sent = record["sent"]["body"].to_string();
        assert!(sent.contains("The user has an apple and a pear."), "{model}: {sent}");
        assert_eq!(sent.matches("replaced by this summary").count(), 1, "{model}: {sent}");
        assert!(sent.contains("Noted.") && sent.contains("What do I have?"), "{model}: {sent}");
    }
    gateway.assert_nothing_refused();
}

/// The mode `observe` also expands compactions and reports their Fates.
#[tokio::test(flavor = "multi_thread")]
async fn observed_expansion_has_a_fate() {
    let gateway = SimGateway::open(ReplayMode::Observe).await;
    let item = compact(&gateway, MODELS[0], &[DIALECT.user(QUESTION)], false).await;
    let input = [item.clone(), item, DIALECT.user("Go on, please.")];
    let answer = ask(&gateway, MODELS[1], &input, false).await;
    let sent = answer.record["sent"]["body"].to_string();
    assert!(sent.contains("replaced by this summary"), "{sent}");
    assert!(answer.fates.contains("restored=1"), "{}", answer.fates);
    assert_eq!(answer.elided(), 2, "{}", answer.fates);
}

/// The summarising call is an ordinary call: it is recorded, its usage counts, it offers no choice
/// of tools, and it contains the reasoning of the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn summarising_call_is_recorded_like_any_other() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut input = vec![DIALECT.user(QUESTION)];
    continue_until(&gateway, MODELS[2], &mut input, false, 1).await;
    input.push(json!({"type": "compaction_trigger"}));
    let answer = ask(&gateway, MODELS[2], &input, false).await;
    let sent = &answer.record["sent"]["body"];
    assert_eq!(sent["toolConfig"]["functionCallingConfig"]["mode"], "NONE", "{:#}", answer.record);
    assert!(sent.to_string().contains("thoughtSignature"), "{sent:#}");
    assert!(!sent.to_string().contains("compaction_trigger"), "{sent:#}");
    assert!(answer.body["usage"]["input_tokens"].as_u64().unwrap() > 0, "{:#}", answer.body);
    assert_eq!(answer.record["status"], 200, "{:#}", answer.record);
}

/// If a provider refuses its own kind of compaction, the same model writes a summary.
#[tokio::test(flavor = "multi_thread")]
async fn refused_native_compaction_becomes_a_summary() {
    for model in [MODELS[0], MODELS[1]] {
        let script = r#"[{"refuse": {"status": 400, "message": "compaction is not available"}}]"#;
        let simulators = Options { script: script.parse().unwrap(), ..Options::default() };
        let options = GatewayOptions::of(ReplayMode::Repair);
        let gateway = SimGateway::open_with(options, simulators).await;
        let item = compact(&gateway, model, &[DIALECT.user(QUESTION)], false).await;
        let mut history = vec![item, DIALECT.user("Go on, please.")];
        continue_until(&gateway, model, &mut history, false, 1).await;
        let ledger = gateway.ledger();
        assert_eq!(ledger.entries.iter().filter(|entry| entry.refused.is_some()).count(), 1);
        assert!(ledger.entries.iter().skip(1).all(throughline_sim::LedgerEntry::all_verified));
    }
}

/// A request that continues a stored compaction starts from the compaction.
#[tokio::test(flavor = "multi_thread")]
async fn stored_compaction_is_continued_by_its_id() {
    for model in MODELS {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let input = json!([{"role": "user", "content": QUESTION}, {"type": "compaction_trigger"}]);
        let body = json!({"model": model, "input": input});
        let first = send(&gateway, "/v1/responses", &body, None).await;
        assert_eq!(first.status, 200, "{model}: {:#}", first.body);
        let body =
            json!({"model": model, "input": "Go on.", "previous_response_id": first.body["id"]});
        let second = send(&gateway, "/v1/responses", &body, None).await;
        assert_eq!(second.status, 200, "{model}: {:#}", second.body);
        assert_reasoning_intact(&gateway, model);
    }
}

/// Invalid compaction requests get a 400 in OpenAI's format, and no provider receives them.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_compaction_requests_are_refused() {
    let (user, trigger) =
        (json!({"role": "user", "content": "Hi"}), json!({"type": "compaction_trigger"}));
    let responses = "/v1/responses";
    let endpoint = "/v1/responses/compact";
    let cases = [
        (responses, json!([trigger, user]), "must be the final input item"),
        (responses, json!([user, trigger, trigger]), "2 items of type `compaction_trigger`"),
        (responses, json!([trigger]), "no conversation to compact"),
        (endpoint, json!([]), "no conversation to compact"),
        (endpoint, json!(""), "no conversation to compact"),
        (endpoint, json!([user, trigger]), "remove the item"),
    ];
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for model in MODELS {
        for (path, input, expected) in &cases {
            let answer = send(&gateway, path, &json!({"model": model, "input": input}), None).await;
            let error = &answer.body["error"];
            let label = format!("{model}, {path}, {input}: {:#}", answer.body);
            assert_eq!(answer.status, 400, "{label}");
            assert_eq!(
                (&error["type"], &error["param"], &error["code"]),
                (&json!("invalid_request_error"), &json!("input"), &json!("invalid_value")),
                "{label}"
            );
            assert!(error["message"].as_str().unwrap().contains(expected), "{label}");
        }
    }
    assert_eq!(gateway.requests(), 0);
}

/// A keyring in which each key is the name of its tenant.
pub(crate) struct TenantNames;

impl Keyring for TenantNames {
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

#[tokio::test(flavor = "multi_thread")]
async fn compaction_of_another_caller_is_refused() {
    let gateway = SimGateway::open_for(ReplayMode::Repair, Arc::new(TenantNames)).await;
    for model in [MODELS[0], MODELS[2], MODELS[3]] {
        let input = [DIALECT.user("A secret plan"), json!({"type": "compaction_trigger"})];
        let mut body = codex_request(model, &input, false);
        body["safety_identifier"] = json!("ann");
        let answer = send(&gateway, "/v1/responses", &body, Some("tl_acme")).await;
        assert_eq!(answer.status, 200, "{:#}", answer.body);
        let history = [answer.items[0].clone(), DIALECT.user("Go on.")];
        let requests = gateway.requests();
        for (tenant, user) in [("tl_other", "ann"), ("tl_acme", "bob")] {
            let mut body = codex_request(model, &history, false);
            body["safety_identifier"] = json!(user);
            let answer = send(&gateway, "/v1/responses", &body, Some(tenant)).await;
            let label = format!("{model}, {tenant}, {user}: {:#}", answer.body);
            assert_eq!(answer.status, 400, "{label}");
            assert_eq!(answer.body["error"]["code"], "invalid_encrypted_content", "{label}");
        }
        assert_eq!(gateway.requests(), requests, "a provider received a refused request");
        let mut body = codex_request(model, &history, false);
        body["safety_identifier"] = json!("ann");
        assert_eq!(send(&gateway, "/v1/responses", &body, Some("tl_acme")).await.status, 200);
    }
}

/// A forgotten summary is not sent, and the call record states the reason.
#[tokio::test(flavor = "multi_thread")]
async fn forgotten_summary_is_not_expanded() {
    for model in [MODELS[0], MODELS[2]] {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let input = [DIALECT.user("A secret plan"), json!({"type": "compaction_trigger"})];
        let answer = ask(&gateway, model, &input, false).await;
        let history = [answer.items[0].clone(), DIALECT.user("Go on.")];
        let thread = LogId::from(answer.record["thread"].as_str().unwrap());
        gateway.journal().forget(&Tenant::from("default"), &thread, None).await.unwrap();
        let answer = ask(&gateway, model, &history, false).await;
        let sent = answer.record["sent"]["body"].to_string();
        assert!(!sent.contains("secret"), "{sent}");
        assert!(answer.record.to_string().contains("forgotten"), "{:#}", answer.record);
        assert_eq!(answer.record["audit"], "degrade", "{:#}", answer.record);
    }
}

/// Without capture, the gateway cannot issue compaction items of its own.
#[tokio::test(flavor = "multi_thread")]
async fn only_native_compaction_works_without_replay() {
    let gateway = SimGateway::open(ReplayMode::Off).await;
    let input = [DIALECT.user(QUESTION), json!({"type": "compaction_trigger"})];
    for (model, status) in MODELS.into_iter().zip([400, 200, 400, 400]) {
        let body = codex_request(model, &input, false);
        let answer = send(&gateway, "/v1/responses", &body, None).await;
        assert_eq!(answer.status, status, "{model}: {:#}", answer.body);
    }
}

/// If the model writes no summary, the client gets an error instead of an empty compaction. The
/// call is recorded as failed, with its usage.
#[tokio::test(flavor = "multi_thread")]
async fn missing_summary_is_an_error() {
    let cases = [
        (r#"[{"parts": [{"thought": "Hm."}]}]"#, "returned no summary"),
        (r#"[{"texts": ["Half a summary"], "stop": "length"}]"#, "output limit"),
    ];
    for (script, expected) in cases {
        let open = async || {
            let simulators = Options { script: script.parse().unwrap(), ..Options::default() };
            SimGateway::open_with(GatewayOptions::of(ReplayMode::Repair), simulators).await
        };
        let input = [DIALECT.user(QUESTION), json!({"type": "compaction_trigger"})];
        for stream in [false, true] {
            let gateway = open().await;
            let body = codex_request(MODELS[3], &input, stream);
            let (status, headers, answer) =
                gateway.send("POST", "/v1/responses", body.to_string().into_bytes(), &[]).await;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            assert_eq!(status, if stream { 200 } else { 502 }, "{answer}");
            assert!(answer.contains(expected), "{answer}");
            assert!(!answer.contains("response.completed"), "{answer}");
            let call = headers["x-throughline-call"].to_str().unwrap();
            let record = gateway.get(&format!("/v1/throughline/calls/{call}")).await.1;
            assert_eq!(record["status"], 502, "{record:#}");
            assert!(record["usage"]["output"].as_u64().unwrap() > 0, "{record:#}");
        }
    }
}
