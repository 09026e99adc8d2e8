//! Rules about thought signatures.

use throughline_core::Contract;

use super::{SIGNATURES_PAGE, WIRE, is_signing_model, issue, recorded};
use crate::{Example, Rule, Severity, ViolationKind};

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

const EXAMPLE_TEXT_CONTINUATION: &str = r#"{
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
    title: "In the current turn, the first function call of each step must have its thought \
          signature.",
    why: "Gemini 3 stores its reasoning in the signature of a function call and rejects a call \
          without one, at every thinking level. Of parallel calls only the first is signed; of \
          sequential calls, each is. Only the current turn is checked: everything after the last \
          user message. Signatures get lost when a library has no field for them, when calls are \
          stored without their part, and when parallel calls are split into separate contents.",
    provider_error: Some(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
                     work correctly, and missing thought_signature may lead to degraded model performance. Additional \
                     data, function call `default_api:…` , position …. Please refer to \
                     https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
    ),
    breach: Some(ViolationKind::UnsignedCall),
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
    title: "A thought signature must be unchanged, and issued by this endpoint to this account.",
    why: "A signature is opaque bytes in base64. Either alphabet is accepted, but the bytes must \
          be the issued ones. A signature that is truncated, replaced by text, or taken from \
          another vendor, another account, or Vertex instead of the Gemini API is corrupted. A \
          conversation stays broken if the model or account changes and the old signatures are \
          still sent. Between Gemini models no failure is confirmed.",
    provider_error: Some("Corrupted thought signature."),
    breach: Some(ViolationKind::Invalid),
    fix: "Send signatures exactly as received, and only to the endpoint and account that issued \
          them; omit others.",
    applies: is_signing_model,
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
    title: "A signed part is sent without its signature.",
    why: "Except for the calls that Gemini 3 checks, a missing signature is accepted silently: on \
          texts, on code, and on calls of Gemini 2.5 or of earlier turns. The model loses the \
          reasoning of that part. In streams the signature often arrives on an empty text in the \
          last chunk, which many clients discard.",
    provider_error: None,
    breach: None,
    fix: "Send each part back with its `thoughtSignature`, including empty parts.",
    applies: is_signing_model,
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
        mended: EXAMPLE_TEXT_CONTINUATION,
    },
};

pub(in crate::gemini::contract) static SIGNATURE_MOVED: Rule = Rule {
    id: "gemini/signature-moved",
    wire: WIRE,
    severity: Severity::Note,
    title: "A signature is on a different part than the one it was issued with.",
    why: "Google requires each signature inside its original part. In recorded traffic, \
          signatures that were moved to a neighbouring part or repeated on a parallel call were \
          accepted, so this is not a refusal. But the original part has lost its signature, and \
          the effect on the other part is unknown.",
    provider_error: None,
    breach: None,
    fix: "Keep each signature on its own part, and leave the other calls of a batch unsigned.",
    applies: is_signing_model,
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
    title: "The text of a signed part was changed.",
    why: "A signed part must not be changed or joined with another part, signed or not. No \
          rejection is known, but the signature then belongs to text that the model did not \
          produce with that reasoning.",
    provider_error: None,
    breach: None,
    fix: "Send signed parts back separately and unchanged.",
    applies: is_signing_model,
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
        mended: EXAMPLE_TEXT_CONTINUATION,
    },
};

pub(in crate::gemini::contract) static STAND_IN_USED: Rule = Rule {
    id: "gemini/stand-in-used",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "A documented stand-in replaces a signature.",
    why: "`skip_thought_signature_validator` and `context_engineering_is_the_way_to_go`, plain or \
          in base64, make Gemini accept a call that it never signed, from another model or \
          generated by a client. Google states that this reduces quality, because the reasoning \
          for the call is missing. Parallel calls after a signed call do not need it.",
    provider_error: None,
    breach: None,
    fix: "Send the issued signature if there is one; use the stand-in only for history from other \
          models.",
    applies: is_signing_model,
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
