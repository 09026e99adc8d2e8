//! Audit against simulator: two judges who share the rows of the catalog and nothing else hear the same conversations,
//! whole and spoiled, and must agree.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod doctor;

use std::collections::BTreeMap;

use doctor::{Conversation, Setup};
use serde_json::{Value, json};
use throughline_codec::{Reach, Severity, Verdict};
use throughline_sim::{Options, Simulator, start};
use throughline_testkit::{Dice, OPERATORS, On, Place, cases, figure, seals};

fn manual() -> Value {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 8000, "system": "Be brief.", "thinking": {"type": "enabled", "budget_tokens": 2000}})
}

fn claude(model: &str) -> Value {
    json!({"model": model, "max_tokens": 8000, "system": "Be brief.", "thinking": {"type": "adaptive"}})
}

fn converse(thinking: &Value) -> Value {
    json!({"system": [{"text": "Be brief."}], "inferenceConfig": {"maxTokens": 8000}, "additionalModelRequestFields": {"thinking": thinking}})
}

fn responses(model: &str, store: bool) -> Value {
    json!({"model": model, "store": store, "instructions": "Be brief.", "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"}})
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "system", "content": "Be brief."}]})
}

fn router(model: &str) -> Value {
    let mut request = chat(model);
    request["reasoning"] = json!({"effort": "medium"});
    request
}

fn gemini() -> Value {
    json!({"systemInstruction": {"parts": [{"text": "Be brief."}]}, "generationConfig": {"thinkingConfig": {"includeThoughts": true}}})
}

macro_rules! setup {
    ($provider:literal $model:literal $knobs:expr $(, $header:literal: $value:literal)*) => {
        Setup { provider: $provider, model: $model, knobs: || $knobs, headers: &[$(($header, $value)),*] }
    };
}

static SETUPS: &[Setup] = &[
    setup!("anthropic" "claude-sonnet-4-5" manual()),
    setup!("anthropic" "claude-opus-4-7" claude("claude-opus-4-7")),
    setup!("anthropic" "claude-sonnet-5" claude("claude-sonnet-5")),
    setup!("anthropic" "claude-opus-5-5" claude("claude-opus-5-5")),
    setup!("anthropic" "claude-opus-5-5" claude("claude-opus-5-5"), "x-sim-account-created": "2026-01-01"),
    setup!("anthropic" "claude-sonnet-5-5" claude("claude-sonnet-5-5")),
    setup!("bedrock" "us.anthropic.claude-sonnet-4-5-20250929-v1:0" converse(&json!({"type": "enabled", "budget_tokens": 2000}))),
    setup!("bedrock" "us.anthropic.claude-opus-4-7-v1:0" converse(&json!({"type": "adaptive"}))),
    setup!("openai" "gpt-5.2" responses("gpt-5.2", false)),
    setup!("openai" "gpt-5.2" responses("gpt-5.2", true)),
    setup!("xai" "grok-4.3" responses("grok-4.3", false)),
    setup!("deepseek-responses" "deepseek-v4" responses("deepseek-v4", false)),
    setup!("deepseek" "deepseek-v4" chat("deepseek-v4")),
    setup!("moonshot" "kimi-k2-thinking" chat("kimi-k2-thinking")),
    setup!("openrouter" "anthropic/claude-sonnet-4.5" router("anthropic/claude-sonnet-4.5")),
    setup!("openrouter" "google/gemini-3-pro-preview" router("google/gemini-3-pro-preview")),
    setup!("openai-chat" "gpt-5.2" chat("gpt-5.2")),
    setup!("mistral" "magistral-medium-latest" chat("magistral-medium-latest")),
    setup!("zai" "glm-4.7" chat("glm-4.7")),
    setup!("gemini" "gemini-3-pro-preview" gemini()),
    setup!("gemini" "gemini-2.5-flash" gemini()),
];

/// How often both accept, only the audit refuses, only the simulator refuses, both refuse.
type Table = BTreeMap<(&'static str, String), [usize; 4]>;

/// Each kind of disagreement, how often it was met, and what was said the first time.
type Kinds = BTreeMap<String, (usize, String)>;

#[tokio::test]
async fn audit_and_simulator_agree() {
    let simulator = start(Options::default()).await.unwrap();
    let (mut table, mut kinds) = (Table::new(), Kinds::new());
    let wanted = cases(400) as usize;
    let (mut seed, mut heard) = (0, 0);
    while heard < wanted {
        for setup in SETUPS {
            seed += 1;
            let mut dice = Dice::new(seed);
            let mut talk = conversation(&simulator, *setup, &mut dice).await;
            let Some(label) = spoil(&mut talk, setup, &mut dice) else { continue };
            heard += 1;
            let row = table.entry((setup.provider, label.clone())).or_default();
            hear(&talk, &format!("{} {} | {label}", setup.provider, setup.model), row, &mut kinds)
                .await;
        }
    }
    simulator.stop().await;
    for ((provider, operator), [accepted, stricter, laxer, refused]) in &table {
        figure(
            &format!("{provider}: {operator}"),
            format!(
                "both accept {accepted}, both refuse {refused}, only audit {stricter}, only simulator {laxer}"
            ),
        );
    }
    figure("conversations heard by audit and simulator", heard);
    figure("kinds of disagreement", kinds.len());
    let kinds = kinds.iter().map(|(kind, (count, said))| format!("{count} × {kind}\n      {said}"));
    let kinds: Vec<String> = kinds.collect();
    assert!(kinds.is_empty(), "{} kinds of disagreement:\n{}", kinds.len(), kinds.join("\n"));
}

/// A conversation of some turns: within a tool loop, behind an answer, or in the loop of a later turn.
async fn conversation<'s>(
    simulator: &'s Simulator,
    setup: Setup,
    dice: &mut Dice,
) -> Conversation<'s> {
    let tools = dice.below(4);
    let mut talk = Conversation::new(simulator, setup, tools, "Plan a weekend in Lisbon.");
    for _ in 0..dice.below(3) {
        talk.steps(6).await;
        talk.say("And for a week, please?");
    }
    for _ in 0..dice.below(tools + 1) {
        if !talk.step().await {
            talk.say("And after that?");
            break;
        }
    }
    talk
}

/// Spoils the next request, and now and then lets somebody else send it. Nothing where there was nothing to spoil.
fn spoil(talk: &mut Conversation<'_>, setup: &Setup, dice: &mut Dice) -> Option<String> {
    let operator = dice.pick(OPERATORS).unwrap();
    let is_other = |other: &&Setup| other.provider == setup.provider && other.model != setup.model;
    let others: Vec<&Setup> = SETUPS.iter().filter(is_other).collect();
    let who = match dice.below(8) {
        0 => {
            talk.account = String::from("key-of-theirs");
            " from another account"
        }
        1 if !others.is_empty() => {
            talk.switch(**dice.pick(&others).unwrap());
            " on another model"
        }
        _ => "",
    };
    let places = seals(&talk.next);
    let place = match operator.on {
        On::Seal => dice.pick(&places).cloned()?,
        On::Request => Place { parent: String::new(), key: String::new() },
    };
    let is_spoiled = operator.apply(talk.shape(), &mut talk.next, &place, dice);
    is_spoiled.then(|| format!("{}{who}", operator.name))
}

/// Puts one request to both judges, and what was mended in it to the simulator again.
async fn hear(talk: &Conversation<'_>, name: &str, row: &mut [usize; 4], kinds: &mut Kinds) {
    let mut disagree = |kind: String, said: String| {
        kinds.entry(kind).or_insert((0, said)).0 += 1;
    };
    let body = talk.body();
    let answer = talk.send(body.clone()).await;
    let audit = talk.audit(&body, true);
    let (by_simulator, by_audit) = (answer.status >= 400, audit.verdict() == Verdict::Refuse);
    row[usize::from(by_simulator) * 2 + usize::from(by_audit)] += 1;
    if by_simulator != by_audit {
        let refusals = audit.findings.iter().filter(|finding| finding.severity == Severity::Refuse);
        let rules: Vec<&str> = refusals.map(|finding| finding.rule.id).collect();
        let kind = format!("{name} | simulator {} audit {rules:?}", answer.status);
        let found = audit.findings.first().map(|found| format!("{} {}", found.path, found.message));
        disagree(kind, if by_simulator { answer.text() } else { found.unwrap_or_default() });
    }
    if by_simulator && by_audit {
        // What was mended is taken, or the doctor said that it cannot be mended.
        let mended = talk.repair(&body, Reach::Refused);
        if mended.audit.verdict() != Verdict::Refuse {
            let again = talk.send(mended.request.body.clone()).await;
            if again.status >= 400 {
                disagree(format!("{name} | refused after repair"), again.text());
            }
        }
    }
}
