//! Rules about thought signatures.

use throughline_core::Contract;

use super::{SIGNATURES_PAGE, WIRE, issue, recorded, signs};
use crate::{Breach, Example, Rule, Severity};

const ASKED: &str = r#"{"contents": [{"role": "user", "parts": [{"text": "Weather in Paris?"}]}]}"#;

const ANSWERED: &str = r#"{"candidates": [{"content": {"role": "model", "parts": [
  {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "EuIKAcCxzXzr"}
]}, "finishReason": "STOP"}], "responseId": "r1"}"#;

const CONTINUED: &str = r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "EuIKAcCxzXzr"}
    ]},
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "sunny"}}}]}
  ]
}"#;

const SAID: &str = r#"{"candidates": [{"content": {"role": "model", "parts": [
  {"text": "It is sunny in Paris.", "thoughtSignature": "EuIKAcCxzXzr"}
]}, "finishReason": "STOP"}], "responseId": "r1"}"#;

const SAID_BACK: &str = r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [{"text": "It is sunny in Paris.", "thoughtSignature": "EuIKAcCxzXzr"}]},
    {"role": "user", "parts": [{"text": "And in Rome?"}]}
  ]
}"#;

pub(in crate::gemini::contract) static FIRST_CALL_NEEDS_SIGNATURE: Rule = Rule {
    id: "gemini/first-call-needs-signature",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "In the current turn, the first function call of each step must carry its thought signature.",
    why: "Gemini 3 keeps its train of thought in the signature that comes with a function call, and refuses to go on \
          from a call without one, at every thinking level. Of calls made at once only the first is signed; of calls \
          made one after another, each. Only the turn in progress is checked: what stands behind the last thing \
          that the user said. Signatures get lost where a library has no field for them, where calls are stored \
          without their part, and where parallel calls are split into contents of their own.",
    provider_error: Some(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
                     work correctly, and missing thought_signature may lead to degraded model performance. Additional \
                     data, function call `default_api:…` , position …. Please refer to \
                     https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
    ),
    breach: Some(Breach::UnsignedCall),
    fix: "Send the call's part back with its `thoughtSignature`. For calls that Gemini never made, send the documented \
          `skip_thought_signature_validator`.",
    applies: |target| target.profile.contract == Contract::RequiredWithTools,
    evidence: &[
        SIGNATURES_PAGE,
        recorded("302 of 302 accepted Gemini 3 steps had a signature on their first call"),
        issue("https://github.com/lbjlaq/Antigravity-Manager/issues/139"),
        issue("https://github.com/pipecat-ai/pipecat/pull/3420"),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-3-flash-preview",
        prior: &[ASKED, ANSWERED],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"name": "weather", "args": {"city": "Paris"}}}
    ]},
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "sunny"}}}]}
  ]
}"#,
        mended: CONTINUED,
    },
};

pub(in crate::gemini::contract) static SIGNATURE_CORRUPTED: Rule = Rule {
    id: "gemini/signature-corrupted",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A thought signature must be one that this endpoint issued to this account, unchanged.",
    why: "A signature is opaque bytes in base64. Either alphabet will do, but the bytes must be those that came: cut \
          off, replaced by a word, taken from another vendor, from Vertex instead of the Gemini API, or from \
          another account, they are corrupted. Conversations break for good when a model or an account is switched \
          and the old signatures are sent on. Between Gemini models nothing certain is known to fail.",
    provider_error: Some("Corrupted thought signature."),
    breach: Some(Breach::Invalid),
    fix: "Send signatures exactly as they came, and only to whom they came from; leave others out.",
    applies: signs,
    evidence: &[
        issue("https://github.com/google-gemini/gemini-cli/issues/13467"),
        issue("https://github.com/lbjlaq/Antigravity-Manager/issues/970"),
        issue("https://github.com/OpenRouterTeam/ai-sdk-provider/issues/491"),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-3-flash-preview",
        prior: &[ASKED, ANSWERED],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "EuIKAcCx"}
    ]},
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "sunny"}}}]}
  ]
}"#,
        mended: CONTINUED,
    },
};

pub(in crate::gemini::contract) static SIGNATURE_DROPPED: Rule = Rule {
    id: "gemini/signature-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "A part that was signed is sent without its signature.",
    why: "Outside the calls that Gemini 3 insists on, a missing signature is accepted in silence: on texts, on code, on \
          calls of Gemini 2.5 and of earlier turns. What the model thought there is lost to it. In streams the \
          signature often comes on an empty text in the last chunk, which many clients throw away.",
    provider_error: None,
    breach: None,
    fix: "Send each part back with its `thoughtSignature`, the empty ones too.",
    applies: signs,
    evidence: &[
        SIGNATURES_PAGE,
        recorded("15 of 52 streamed signatures came on an empty text in the last chunk"),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-3-flash-preview",
        prior: &[ASKED, SAID],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [{"text": "It is sunny in Paris."}]},
    {"role": "user", "parts": [{"text": "And in Rome?"}]}
  ]
}"#,
        mended: SAID_BACK,
    },
};

pub(in crate::gemini::contract) static SIGNATURE_MOVED: Rule = Rule {
    id: "gemini/signature-moved",
    wire: WIRE,
    severity: Severity::Note,
    title: "A signature stands on another part than the one it was issued with.",
    why: "Google asks for each signature inside its original part. Moved to a neighbour or repeated on a parallel \
          call it was accepted wherever that was recorded, so nothing is refused; but the part that had it has lost \
          it, and what it says of the other is anybody's guess.",
    provider_error: None,
    breach: None,
    fix: "Keep each signature on its own part, and leave the other calls of a batch unsigned.",
    applies: signs,
    evidence: &[
        SIGNATURES_PAGE,
        recorded(
            "ruby_llm, can_use_parallel_tool_calls repeats the first call's signature, and was accepted",
        ),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-2.5-flash",
        prior: &[
            ASKED,
            r#"{"candidates": [{"content": {"role": "model", "parts": [
  {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "EuIKAcCxzXzr"},
  {"functionCall": {"name": "weather", "args": {"city": "Rome"}}}
]}, "finishReason": "STOP"}], "responseId": "r1"}"#,
        ],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "EuIKAcCxzXzr"},
      {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "EuIKAcCxzXzr"}
    ]},
    {"role": "user", "parts": [
      {"functionResponse": {"name": "weather", "response": {"output": "sunny"}}},
      {"functionResponse": {"name": "weather", "response": {"output": "rain"}}}
    ]}
  ]
}"#,
        mended: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "EuIKAcCxzXzr"},
      {"functionCall": {"name": "weather", "args": {"city": "Rome"}}}
    ]},
    {"role": "user", "parts": [
      {"functionResponse": {"name": "weather", "response": {"output": "sunny"}}},
      {"functionResponse": {"name": "weather", "response": {"output": "rain"}}}
    ]}
  ]
}"#,
    },
};

pub(in crate::gemini::contract) static SIGNED_TEXT_EDITED: Rule = Rule {
    id: "gemini/signed-text-edited",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The text of a signed part is not the one that was signed.",
    why: "A signed part is not to be joined with another, signed or not, nor changed. No refusal is known, but the \
          signature then stands beside something that the model did not say when it thought it.",
    provider_error: None,
    breach: None,
    fix: "Send signed parts back one by one, as they came.",
    applies: signs,
    evidence: &[SIGNATURES_PAGE],
    example: Example {
        provider: "gemini",
        model: "gemini-3-flash-preview",
        prior: &[ASKED, SAID],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [{"text": "It is rainy in Paris.", "thoughtSignature": "EuIKAcCxzXzr"}]},
    {"role": "user", "parts": [{"text": "And in Rome?"}]}
  ]
}"#,
        mended: SAID_BACK,
    },
};

pub(in crate::gemini::contract) static STAND_IN_USED: Rule = Rule {
    id: "gemini/stand-in-used",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "A documented stand-in takes the place of a signature.",
    why: "`skip_thought_signature_validator` and `context_engineering_is_the_way_to_go`, plain or in base64, let a call \
          pass that Gemini never signed: one from another model, or from a client that made it up. Google says that \
          it will negatively impact performance, since the thought behind the call is missing. On the parallel \
          siblings of a signed call it is not needed at all.",
    provider_error: None,
    breach: None,
    fix: "Send the signature that was issued where there is one; keep the stand-in for history from elsewhere.",
    applies: signs,
    evidence: &[
        SIGNATURES_PAGE,
        issue("https://github.com/vercel/ai/pull/15560"),
        issue("https://github.com/vercel/ai/issues/16298"),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-3-flash-preview",
        prior: &[ASKED, ANSWERED],
        failing: r#"{
  "contents": [
    {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
    {"role": "model", "parts": [
      {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "skip_thought_signature_validator"}
    ]},
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "sunny"}}}]}
  ]
}"#,
        mended: CONTINUED,
    },
};
