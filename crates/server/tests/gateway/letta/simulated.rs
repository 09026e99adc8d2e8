//! Runs Letta's own clients with simulated models. Every request sends back exactly the Seals that
//! its Thread has received.

use std::collections::BTreeSet;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use serde_json::json;
use throughline_agent::{Ports, Runner, Tool};
use throughline_codec::Catalog;
use throughline_core::{ModelError, ModelErrorKind};
use throughline_json::Name;
use throughline_provider::EndpointModels;
use throughline_server::{AgentApi, ReplayMode};
use throughline_sim::{Ledger, Verdict};
use throughline_testkit::figure;

use crate::harness::{DOWN, GatewayOptions, MODELS, SimGateway, official, upstream};
use crate::letta::scene::{SequentialIds, SystemClock, noting, with_text};

/// A route to two models. The first model is unavailable.
const ROUTE: &str = "in-turn";

fn row_of(model: &str) -> Option<&'static str> {
    let rows = [
        ("claude", "anthropic"),
        ("gpt", "openai"),
        ("gemini", "gemini"),
        ("deepseek", "deepseek"),
    ];
    rows.iter().find(|(begins, _)| model.starts_with(begins)).map(|(_, row)| *row)
}

fn models(simulators: &str) -> EndpointModels {
    EndpointModels::new(Arc::new(upstream(simulators)), |name| {
        if name == ROUTE {
            // The first model is unavailable, and the second model uses another wire.
            let first = Catalog::builtin().target_for("anthropic", "claude-sonnet-4-5", "sim");
            let next = Catalog::builtin().target_for("openai", "gpt-5.2", "sim");
            let next = (Name::from("sim-openai"), next.unwrap());
            return Ok(vec![(Name::from(DOWN), first.unwrap()), next]);
        }
        let model = name.strip_prefix("sim/").unwrap_or(name);
        let row = row_of(model);
        let row = row.ok_or_else(|| {
            ModelError::new(ModelErrorKind::Other, format!("there is no model {name}"))
        })?;
        let target = Catalog::builtin().target_for(row, model, "sim").unwrap();
        Ok(vec![(Name::from(format!("sim-{row}")), target)])
    })
}

async fn open() -> SimGateway {
    let make = |simulators: String| -> GatewayOptions {
        let agents = move |store| {
            let ports = Ports {
                clock: Arc::new(SystemClock),
                ids: Arc::new(SequentialIds),
                secret: [7; 32],
            };
            let tools = [with_text("get_weather", "city"), with_text("get_time", "zone")];
            let tools = tools.map(|spec| Arc::new(noting(spec)) as Arc<dyn Tool>);
            let runner = Runner::new(store, Arc::new(models(&simulators)), ports).with_tools(tools);
            AgentApi::new(runner)
        };
        GatewayOptions { agents: Some(Box::new(agents)), ..GatewayOptions::of(ReplayMode::Repair) }
    };
    SimGateway::open_before(make, throughline_sim::Options::default()).await
}

async fn run(language: &str, script: &str) {
    let gateway = open().await;
    let Some(output) = official::run(language, script, gateway.url(), "none", &MODELS).await else {
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language}/{script}:\n{stdout}\n{error}");
    let conversations = stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(conversations, 2 * MODELS.len(), "{stdout}");
    gateway.assert_nothing_refused();
    let ledger = gateway.ledger();
    assert_all_returned(&ledger);
    let (issued, back) = (ledger.issued().count(), ledger.returned().count());
    let calls = ledger.entries.len();
    figure(
        &format!("{language}/{script}"),
        format!(
            "{conversations} threads, {calls} calls, 0 refused, {issued} seals issued, {back} returned"
        ),
    );
}

/// Checks that every reply has reasoning, and that every request of a Thread sends back exactly the
/// Seals that the Thread has received. Each Thread has two questions.
fn assert_all_returned(ledger: &Ledger) {
    let (mut expected, mut finals) = (BTreeSet::new(), 0);
    for entry in &ledger.entries {
        assert!(!entry.issued.is_empty(), "an answer without reasoning: {entry:#?}");
        let returned = entry.returned.iter().filter(|back| back.verdict == Verdict::Accepted);
        let back: BTreeSet<String> = returned.map(|back| back.seal.clone()).collect();
        assert_eq!(back, expected, "{entry:#?}");
        expected.extend(entry.issued.iter().map(|issued| issued.seal.clone()));
        finals += usize::from(entry.stop.as_deref() != Some("tools"));
        if finals == 2 {
            (expected, finals) = (BTreeSet::new(), 0);
        }
    }
    assert_eq!(finals, 0, "the last thread has no end");
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_python_letta_with_the_simulators() {
    run("python", "letta_simulated.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_node_letta_with_the_simulators() {
    run("node", "letta_simulated.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn route_falls_back_to_the_next_model() {
    let gateway = open().await;
    let send = async |path: &str, body: serde_json::Value| -> serde_json::Value {
        let headers = [("content-type", "application/json")];
        let response = gateway.begin("POST", path, body.to_string().into_bytes(), &headers).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, 200, "{bytes:?}");
        serde_json::from_slice(&bytes).unwrap()
    };
    let agent = json!({"model": ROUTE, "tools": ["get_weather"]});
    let agent = send("/v1/agents/", agent).await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/agents/{agent}/messages");
    for text in ["What is the weather in Paris?", "And in Rome?"] {
        let reply = send(&path, json!({"input": text})).await;
        assert_eq!(reply["stop_reason"]["stop_reason"], "end_turn", "{reply}");
    }
    gateway.assert_nothing_refused();
    let ledger = gateway.ledger();
    assert!(ledger.entries.iter().all(|entry| entry.model == "gpt-5.2"));
    // Each answering model gets its own Seals back, although the unavailable model is always tried
    // first.
    assert_all_returned(&ledger);
}

/// In a stream, Gemini puts the final signature on an empty text part. The part is kept for replay
/// but not shown.
#[tokio::test(flavor = "multi_thread")]
async fn gemini_answers_end_without_an_empty_assistant_message() {
    let gateway = open().await;
    let headers = [("content-type", "application/json")];
    let send = async |path: &str, body: serde_json::Value| -> String {
        let body = body.to_string().into_bytes();
        let (status, _, reply_text) = gateway.send("POST", path, body, &headers).await;
        let reply_text = String::from_utf8_lossy(&reply_text).into_owned();
        assert_eq!(status, 200, "{reply_text}");
        reply_text
    };
    let agent = send("/v1/agents/", json!({"model": MODELS[2]})).await;
    let agent: serde_json::Value = serde_json::from_str(&agent).unwrap();
    let path = format!("/v1/agents/{}/messages", agent["id"].as_str().unwrap());
    let response = send(&path, json!({"input": "Hi"})).await;
    let response: serde_json::Value = serde_json::from_str(&response).unwrap();
    let streamed = send(&format!("{path}/stream"), json!({"input": "And again"})).await;
    let streamed = streamed.lines().filter_map(|line| line.strip_prefix("data: "));
    let streamed: Vec<serde_json::Value> =
        streamed.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (_, listed) = gateway.get(&path).await;
    for messages in
        [response["messages"].as_array().unwrap(), &streamed, listed.as_array().unwrap()]
    {
        let answers =
            messages.iter().filter(|message| message["message_type"] == "assistant_message");
        let answers: Vec<_> = answers.map(|message| message["content"].clone()).collect();
        assert!(!answers.is_empty() && answers.iter().all(|text| *text != ""), "{messages:#?}");
    }
    gateway.assert_nothing_refused();
    assert_all_returned(&gateway.ledger());
}
