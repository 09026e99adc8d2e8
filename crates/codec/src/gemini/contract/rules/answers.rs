//! Rules about what surrounds the reasoning: answers of tools, thoughts said aloud, and the prompt cache.

use super::{WIRE, always, issue};
use crate::{Example, Rule, Severity};

pub(in crate::gemini::contract) static ANSWERS_DO_NOT_MATCH: Rule = Rule {
    id: "gemini/answers-do-not-match",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A step must be answered by as many function responses as it made calls.",
    why: "Behind a step of the model that calls functions come their responses, as many as there are calls and with \
          nothing between. Calls stay unanswered when a run is interrupted, or when a tool fails and nobody says \
          so; responses stay behind when history is trimmed from the front. Steps of the model in a row count as \
          one.",
    provider_error: Some(
        "Please ensure that the number of function response parts is equal to the number of function call \
                     parts of the function call turn.",
    ),
    breach: None,
    fix: "Answer every call, if only with an error, in the content right behind the step; or leave the call out.",
    applies: always,
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
    title: "A thought is said as plain text.",
    why: "Parts with `thought: true` are summaries for the reader. Sent back as ordinary text they are read as \
          something that the model said to the user, which it may then imitate; what it needs of its thoughts is in \
          the signatures.",
    provider_error: None,
    breach: None,
    fix: "Leave the thought out, or send it as it came, with `thought: true`.",
    applies: always,
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
    title: "The request says the same as the last one, in other bytes: the prompt cache misses.",
    why: "The implicit cache compares what it is sent from the start, and a declaration whose members were written in \
          another order is another text. Maps without a fixed order, and JSON that is parsed and written again, \
          change it from one turn to the next, and everything behind it is paid for and read anew.",
    provider_error: None,
    breach: None,
    fix: "Write declarations and earlier contents in the same bytes every time.",
    applies: always,
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
