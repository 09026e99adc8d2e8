//! Rules about function responses, thoughts sent as text, and the prompt cache.

use super::{WIRE, applies_always, issue};
use crate::{Example, Rule, Severity};

pub(in crate::gemini::contract) static ANSWERS_DO_NOT_MATCH: Rule = Rule {
    id: "gemini/answers-do-not-match",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A step must have as many function responses as function calls.",
    why: "The responses must directly follow the model's step, with exactly one response per \
          call. Calls lose their responses when a run is interrupted or a tool fails silently; \
          responses lose their calls when history is trimmed from the front. Consecutive steps of \
          the model count as one.",
    provider_error: Some(
        "Please ensure that the number of function response parts is equal to the number of function call \
                     parts of the function call turn.",
    ),
    breach: None,
    fix: "Respond to every call, with an error if necessary, in the content directly after the \
          step, or omit the call.",
    applies: applies_always,
    evidence: &[
        issue("https://github.com/google-gemini/gemini-cli/issues/16543"),
        issue("https://github.com/microsoft/vscode/issues/299295"),
        issue("https://github.com/langchain-ai/langchain/issues/27799"),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-2.5-flash",
        prior: &[],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris and Rome?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"id": "a", "name": "weather", "args": {"city": "Paris"}}},
      {"functionCall": {"id": "b", "name": "weather", "args": {"city": "Rome"}}}
    ]},
    {"role": "user", "parts": [
      {"functionResponse": {"id": "a", "name": "weather", "response": {"output": "sunny"}}}
    ]}
  ]
}"#,
        mended: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris and Rome?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"id": "a", "name": "weather", "args": {"city": "Paris"}}}
    ]},
    {"role": "user", "parts": [
      {"functionResponse": {"id": "a", "name": "weather", "response": {"output": "sunny"}}}
    ]}
  ]
}"#,
    },
};

pub(in crate::gemini::contract) static THOUGHT_AS_TEXT: Rule = Rule {
    id: "gemini/thought-as-text",
    wire: WIRE,
    severity: Severity::Note,
    title: "A thought is sent as plain text.",
    why: "Parts with `thought: true` are summaries for display. If they are sent back as ordinary \
          text, the model reads them as its answer to the user and may imitate them. The \
          signatures already hold the reasoning that the model needs.",
    provider_error: None,
    breach: None,
    fix: "Omit the thought, or send it unchanged with `thought: true`.",
    applies: applies_always,
    evidence: &[super::SIGNATURES_PAGE],
    example: Example {
        provider: "gemini",
        model: "gemini-2.5-flash",
        prior: &[
            r#"{"contents": [{"role": "user", "parts": [{"text": "Weather in Paris?"}]}]}"#,
            r#"{"candidates": [{"content": {"role": "model", "parts": [
  {"text": "The user wants the weather.", "thought": true},
  {"text": "It is sunny."}
]}, "finishReason": "STOP"}], "responseId": "r1"}"#,
        ],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [{"text": "The user wants the weather."}, {"text": "It is sunny."}]},
    {"role": "user", "parts": [{"text": "And in Rome?"}]}
  ]
}"#,
        mended: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [{"text": "It is sunny."}]},
    {"role": "user", "parts": [{"text": "And in Rome?"}]}
  ]
}"#,
    },
};

pub(in crate::gemini::contract) static CACHE_PREFIX_BROKEN: Rule = Rule {
    id: "gemini/cache-prefix-broken",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The request has the same content as the last one in different bytes, so the prompt \
          cache misses.",
    why: "The implicit cache compares requests from the start, byte for byte, so a declaration \
          whose members are in another order does not match. Maps without a fixed order, and JSON \
          that is parsed and serialised again, change the bytes from turn to turn. Everything \
          after the change is processed and billed again.",
    provider_error: None,
    breach: None,
    fix: "Serialise declarations and earlier contents to the same bytes every time.",
    applies: applies_always,
    evidence: &[
        issue("https://github.com/Lakr233/FlowDown/issues/273"),
        issue("https://github.com/sgl-project/sglang/pull/34553"),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-2.5-flash",
        prior: &[r#"{
  "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
  "tools": [{"functionDeclarations": [{"name": "weather", "description": "Tells the weather."}]}]
}"#],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Say hello."}]},
    {"role": "model", "parts": [{"text": "Hello."}]},
    {"role": "user", "parts": [{"text": "Again."}]}
  ],
  "tools": [{"functionDeclarations": [{"description": "Tells the weather.", "name": "weather"}]}]
}"#,
        mended: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Say hello."}]},
    {"role": "model", "parts": [{"text": "Hello."}]},
    {"role": "user", "parts": [{"text": "Again."}]}
  ],
  "tools": [{"functionDeclarations": [{"name": "weather", "description": "Tells the weather."}]}]
}"#,
    },
};
