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
use throughline_sim::{Options, start};
use throughline_testkit::{Dice, OPERATORS, On, Place, cases, figure, seals};

fn manual() -> Value {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 8000, "system": "Be brief.", "thinking": {"type": "enabled", "budget_tokens": 2000}})
}

fn claude(model: &str) -> Value {
    json!({"model": model, "max_tokens": 8000, "system": "Be brief.", "thinking": {"type": "adaptive"}})
}

fn converse(thinking: Value) -> Value {
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
    setup!("bedrock" "us.anthropic.claude-sonnet-4-5-20250929-v1:0" converse(json!({"type": "enabled", "budget_tokens": 2000}))),
    setup!("bedrock" "us.anthropic.claude-opus-4-7-v1:0" converse(json!({"type": "adaptive"}))),
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

/// Kinds of disagreement that are known, each with who is right and why.
const KNOWN: &[(&str, &str, &str)] = &[];

#[tokio::test]
async fn audit_and_simulator_agree() {
    let simulator = start(Options::default()).await.unwrap();
    let mut table: BTreeMap<(&str, String), [usize; 4]> = BTreeMap::new();
    let mut wrong: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut seed = 0;
    let wanted = cases(400) as usize;
    let mut heard = 0;
    while heard < wanted {
        for setup in SETUPS {
            seed += 1;
            let mut dice = Dice::new(seed);
            let tools = dice.below(4);
            let mut talk =
                Conversation::new(&simulator, *setup, tools, "Plan a weekend in Lisbon.");
            // Within a tool loop, behind an answer, or in the loop of a second turn.
            let turns = dice.below(3);
            for _ in 0..turns {
                talk.steps(6).await;
                talk.say("And for a week, please?");
            }
            let steps = dice.below(tools + 1);
            for _ in 0..steps {
                if !talk.step().await {
                    talk.say("And after that?");
                    break;
                }
            }
            let operator = dice.pick(OPERATORS).unwrap();
            // Now and then whoever goes on is somebody else.
            let others: Vec<&Setup> = SETUPS
                .iter()
                .filter(|other| other.provider == setup.provider && other.model != setup.model)
                .collect();
            let switch = match dice.below(8) {
                0 => {
                    talk.account = "key-of-theirs".to_owned();
                    " from another account"
                }
                1 if !others.is_empty() => {
                    talk.switch(**dice.pick(&others).unwrap());
                    " on another model"
                }
                _ => "",
            };
            let label = format!("{}{switch}", operator.name);
            let whole = talk.next.clone();
            let places = seals(&talk.next);
            let place = match operator.on {
                On::Seal => dice.pick(&places).cloned(),
                On::Request => Some(Place { parent: String::new(), key: String::new() }),
            };
            let spoil = |place| operator.apply(talk.shape(), &mut talk.next, &place, &mut dice);
            if !place.is_some_and(spoil) {
                talk.next = whole;
                continue;
            }
            heard += 1;
            let body = talk.body();
            let answer = talk.send(body.clone()).await;
            let looked = talk.audit(&body, true);
            let (refuses, refused) = (answer.status >= 400, looked.verdict() == Verdict::Refuse);
            let row = table.entry((setup.provider, label.clone())).or_default();
            row[usize::from(refuses) * 2 + usize::from(refused)] += 1;
            let known = KNOWN
                .iter()
                .any(|(provider, name, _)| *provider == setup.provider && *name == label);
            if refuses != refused && !known {
                let rules: Vec<&str> = looked
                    .findings
                    .iter()
                    .filter(|finding| finding.severity == Severity::Refuse)
                    .map(|finding| finding.rule.id)
                    .collect();
                let key = format!(
                    "{} {} | {} | simulator {} audit {:?}",
                    setup.provider, setup.model, label, answer.status, rules
                );
                let said = if refuses {
                    answer.text()
                } else {
                    looked.findings.first().map_or_else(String::new, |finding| {
                        format!("{} {}", finding.path, finding.message)
                    })
                };
                let entry = wrong.entry(key).or_insert((0, said));
                entry.0 += 1;
            }
            if refuses && refused {
                // What was mended is taken, or the doctor said that it cannot be mended.
                let mended = talk.repair(&body, Reach::Refused);
                if mended.audit.verdict() != Verdict::Refuse {
                    let again = talk.send(mended.request.body.clone()).await;
                    if again.status >= 400 {
                        let key = format!(
                            "{} {} | {} | refused after repair",
                            setup.provider, setup.model, label
                        );
                        wrong.entry(key).or_insert((0, again.text())).0 += 1;
                    }
                }
            }
        }
    }
    for ((provider, operator), [accepted, stricter, laxer, refused]) in &table {
        figure(
            &format!("{provider}: {operator}"),
            format!(
                "both accept {accepted}, both refuse {refused}, only audit {stricter}, only simulator {laxer}"
            ),
        );
    }
    figure("conversations heard", heard);
    simulator.stop().await;
    let wrong: Vec<String> =
        wrong.iter().map(|(key, (count, said))| format!("{count} × {key}\n      {said}")).collect();
    assert!(wrong.is_empty(), "{} kinds of disagreement:\n{}", wrong.len(), wrong.join("\n"));
}
