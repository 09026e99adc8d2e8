//! Runs the unmodified official clients through the gateway against the simulators.
//!
//! Covers every dialect with every model family, complete and streamed. Each conversation has two
//! questions with tools and reasoning. It runs once with a client that sends reasoning back and
//! once with a client that drops it.
//!
//! `scripts/sdks` creates the environments for the scripts; `scripts/test` calls it.

use std::collections::BTreeSet;

use crate::harness::{MODELS, SimGateway, official};
use throughline_server::ReplayMode;
use throughline_sim::{Ledger, ReturnedSeal, Verdict};
use throughline_testkit::figure;

/// Runs a script with a client that sends reasoning back and with a client that drops it, and
/// checks the simulators' ledger.
async fn run(language: &str, script: &str) {
    for client in ["honest", "lossy"] {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let Some(output) = official::run(language, script, gateway.url(), client, &MODELS).await
        else {
            return;
        };
        let stdout = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{language}/{script}, {client}:\n{stdout}\n{error}");
        let conversations = stdout.lines().filter(|line| line.starts_with("ok ")).count();
        assert_eq!(conversations, 2 * MODELS.len(), "{stdout}");
        gateway.assert_nothing_refused();
        let ledger = gateway.ledger();
        assert_all_returned(&ledger, client == "lossy");
        let (issued, back) = (ledger.issued().count(), ledger.returned().count());
        let calls = ledger.entries.len();
        figure(
            &format!("{language}/{script}, {client}"),
            format!(
                "{conversations} conversations, {calls} calls, 0 refused, {issued} seals issued, {back} returned"
            ),
        );
    }
}

/// Runs a script with stored conversations, in which each request contains only new input. If the
/// provider stored the previous response, it receives only that response's id. Any other provider
/// receives the whole conversation, including reasoning.
async fn run_stored_script(language: &str, script: &str) {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let Some(output) = official::run(language, script, gateway.url(), "honest", &MODELS).await
    else {
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language}/{script}:\n{stdout}\n{error}");
    let conversations = stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(conversations, 2 * MODELS.len(), "{stdout}");
    gateway.assert_nothing_refused();
    let ledger = gateway.ledger();
    // State that the provider stores itself counts as returned.
    assert_all_returned(&ledger, false);
    let (issued, back) = (ledger.issued().count(), ledger.returned().count());
    figure(
        &format!("{language}/{script}"),
        format!(
            "{conversations} conversations, {} calls, 0 refused, {issued} seals issued, {back} returned",
            ledger.entries.len()
        ),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_python_openai_stored() {
    run_stored_script("python", "openai_stored.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_node_openai_stored() {
    run_stored_script("node", "openai_stored.mjs").await;
}

/// The AI SDK sends earlier model output as references. For every sequence of models, every part of
/// the SDK's message list reaches the provider, and no request is refused.
#[tokio::test(flavor = "multi_thread")]
async fn sdk_node_ai_sdk_responses() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let run = official::run("node", "ai_sdk_responses.mjs", gateway.url(), "honest", &MODELS);
    let Some(output) = run.await else { return };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{error}");
    gateway.assert_nothing_refused();
    let mut totals = [0_usize; 3];
    let conversations = stdout.lines().filter(|line| line.starts_with("ok ")).inspect(|line| {
        let counts = line.split(' ').skip(1).take(3).map(|count| count.parse::<usize>().unwrap());
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    });
    let conversations = conversations.count();
    assert_eq!(conversations, 2 * (2 * MODELS.len() + 1), "{stdout}");
    let [answers, checked, referred] = totals;
    figure(
        "node/ai_sdk_responses.mjs",
        format!(
            "{conversations} conversations, {answers} answers, {checked} parts compared, {referred} kept by OpenAI itself, 0 missing, 0 refused"
        ),
    );
}

/// Checks that every reply contains reasoning, and that every request sends back exactly the Seals
/// that its conversation has received.
fn assert_all_returned(ledger: &Ledger, lossy: bool) {
    let (mut expected, mut finals) = (BTreeSet::new(), 0);
    for entry in &ledger.entries {
        assert!(!entry.issued.is_empty(), "an answer without reasoning: {entry:#?}");
        let accepted =
            |back: &ReturnedSeal| (back.verdict == Verdict::Accepted).then(|| back.seal.clone());
        let back: BTreeSet<String> = entry.returned.iter().filter_map(accepted).collect();
        assert_eq!(back, expected, "lossy {lossy}, {entry:#?}");
        expected.extend(entry.issued.iter().map(|issued| issued.seal.clone()));
        finals += usize::from(entry.stop.as_deref() != Some("tools"));
        if finals == 2 {
            (expected, finals) = (BTreeSet::new(), 0);
        }
    }
    assert_eq!(finals, 0, "the last conversation has no end");
}

/// Without restored reasoning, the simulators refuse the requests of a client that drops it. This
/// shows that the tests above can fail.
#[tokio::test(flavor = "multi_thread")]
async fn lossy_client_is_refused_without_replay() {
    for (script, model, message) in [
        ("anthropic_messages.py", "sim/claude-sonnet-4-5", "Expected `thinking`"),
        ("google_gemini.py", "sim/gemini-3-pro-preview", "missing a thought_signature"),
        ("openai_chat.py", "sim/deepseek-v4-pro", "must be passed back to the API"),
    ] {
        let gateway = SimGateway::open(ReplayMode::Off).await;
        let models = [model];
        let run = official::run("python", script, gateway.url(), "lossy", &models);
        let Some(output) = run.await else { return };
        assert!(!output.status.success(), "{script} got through");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(message), "the client receives the simulator's error: {error}");
        let ledger = gateway.ledger();
        let refused = ledger.entries.iter().filter_map(|entry| entry.refused.as_ref());
        assert_eq!(refused.count(), 1, "{script}: {ledger:#?}");
    }
}

macro_rules! clients {
    ($($test:ident: $language:literal $script:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            run($language, $script).await;
        })*
    };
}

clients! {
    sdk_python_anthropic: "python" "anthropic_messages.py";
    sdk_python_openai_responses: "python" "openai_responses.py";
    sdk_python_openai_chat: "python" "openai_chat.py";
    sdk_python_google_genai: "python" "google_gemini.py";
    sdk_python_pydantic_ai: "python" "pydantic_agent.py";
    sdk_python_anthropic_bedrock: "python" "anthropic_bedrock.py";
    sdk_python_anthropic_vertex: "python" "anthropic_vertex.py";
    sdk_python_google_vertex: "python" "google_vertex.py";
    sdk_python_boto3_converse: "python" "boto3_converse.py";
    sdk_node_anthropic: "node" "anthropic_messages.mjs";
    sdk_node_openai_responses: "node" "openai_responses.mjs";
    sdk_node_openai_chat: "node" "openai_chat.mjs";
    sdk_node_google_genai: "node" "google_gemini.mjs";
}

/// The official clients list the models, page through the list, and retrieve each model. They read
/// the provider's own error for an unknown model.
async fn run_model_lists(language: &str, script: &str) {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let run = official::run(language, script, gateway.url(), "honest", &MODELS);
    let Some(output) = run.await else { return };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language}/{script}:\n{stdout}\n{error}");
    let clients = stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(clients >= 3, "{stdout}");
    assert_eq!(gateway.requests(), 0, "a model list needs no model");
    figure(
        &format!("{language}/{script}"),
        format!("{clients} clients list {} models", MODELS.len()),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_python_model_lists() {
    run_model_lists("python", "model_lists.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_node_model_lists() {
    run_model_lists("node", "model_lists.mjs").await;
}
