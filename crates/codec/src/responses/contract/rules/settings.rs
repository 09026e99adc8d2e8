//! Rules about settings, and about going on from an answer that the provider keeps.

use super::{TYPES, WIRE, always, issue, recorded, stores};
use crate::{Example, Rule, Severity};

pub(in crate::responses::contract) static PREVIOUS_RESPONSE_AND_CONVERSATION: Rule = Rule {
    id: "openai/previous-response-and-conversation",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A request goes on from an answer or from a conversation, not from both.",
    why: "`previous_response_id` and `conversation` are two ways to say what came before, and each of them says all \
          of it. Frameworks that have both kinds of session set the second without clearing the first.",
    provider_error: Some(
        "Mutually exclusive parameters: 'conversation' and 'previous_response_id'. Ensure you are only \
                     providing one of: 'previous_response_id' or 'conversation'.",
    ),
    breach: None,
    fix: "Leave out one of `previous_response_id` and `conversation`.",
    applies: always,
    evidence: &[TYPES],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "previous_response_id": "resp_1",
  "conversation": "conv_1",
  "input": "And in Rome?"
}"#,
        mended: r#"{
  "model": "gpt-5",
  "conversation": "conv_1",
  "input": "And in Rome?"
}"#,
    },
};

pub(in crate::responses::contract) static PREVIOUS_RESPONSE_NOT_FOUND: Rule = Rule {
    id: "openai/previous-response-not-found",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "An answer that was made with `store` set to false cannot be gone on from.",
    why: "`previous_response_id` finds an answer that the provider kept. With `store: false` it kept nothing, though \
          it gave the answer an id all the same. What came before must then be sent again, reasoning items with \
          their encrypted content included.",
    provider_error: Some("Previous response with id 'resp_…' not found."),
    breach: None,
    fix: "Send the earlier items in `input` instead, or make answers with `store` set to true.",
    applies: always,
    evidence: &[
        recorded("rig, a cassette that answers previous_response_not_found"),
        issue("https://github.com/bigduu/Bamboo-agent/issues/64"),
        issue("https://github.com/maximhq/bifrost/issues/2441"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[
            r#"{"model": "gpt-5", "store": false, "input": [{"role": "user", "content": "Say hello."}]}"#,
            r#"{"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed", "store": false, "output": [
  {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
]}"#,
        ],
        failing: r#"{
  "model": "gpt-5",
  "store": false,
  "previous_response_id": "resp_1",
  "input": [
    {"role": "user", "content": "Again."}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Say hello."},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    {"role": "user", "content": "Again."}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static REASONING_RESENT: Rule = Rule {
    id: "openai/reasoning-resent",
    wire: WIRE,
    severity: Severity::Note,
    title: "Reasoning need not be sent again where an answer is gone on from.",
    why: "With `previous_response_id` the provider has the items of that answer and of all before it, reasoning \
          included. Sending them again makes the model read them twice and pay for both; no accepted request that \
          was recorded did so.",
    provider_error: None,
    breach: None,
    fix: "Send only what is new: the tool outputs, or what the user says next.",
    applies: stores,
    evidence: &[
        recorded("15 accepted requests with previous_response_id, none with reasoning items"),
        TYPES,
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "previous_response_id": "resp_1",
  "input": [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABoxC3jL8rE"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "previous_response_id": "resp_1",
  "input": [
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static EFFORT_NOT_SUPPORTED: Rule = Rule {
    id: "openai/effort-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not take this `reasoning.effort`.",
    why: "The efforts form one ladder, from `none` to `max`, but each model has its own rungs: `minimal` came with \
          GPT-5 and went with 5.1, `none` came with 5.1, `xhigh` and `max` later. A setting that is right for one \
          model is refused by the next, so it breaks when only the model's name is changed.",
    provider_error: Some(
        "Unsupported value: '…' is not supported with the '…' model. Supported values are: …",
    ),
    breach: None,
    fix: "Ask for an effort that the model takes.",
    applies: always,
    evidence: &[
        issue("https://github.com/anomalyco/opencode/issues/4451"),
        issue("https://github.com/kaitranntt/ccs/issues/344"),
        TYPES,
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5.1",
        prior: &[],
        failing: r#"{
  "model": "gpt-5.1",
  "reasoning": {"effort": "minimal"},
  "input": "Say hello."
}"#,
        mended: r#"{
  "model": "gpt-5.1",
  "reasoning": {"effort": "low"},
  "input": "Say hello."
}"#,
    },
};

pub(in crate::responses::contract) static SAMPLING_FIXED: Rule = Rule {
    id: "openai/sampling-fixed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model sets `temperature` and `top_p` itself.",
    why: "Reasoning models sample in a way of their own, and refuse to be told another. The o-series and GPT-5 do so \
          always, later models while they reason: with the effort `none` they take both. Code that set a \
          temperature for an older model keeps sending it.",
    provider_error: Some("Unsupported parameter: 'temperature' is not supported with this model."),
    breach: None,
    fix: "Leave `temperature` and `top_p` out.",
    applies: always,
    evidence: &[
        issue("https://github.com/OpenHands/software-agent-sdk/issues/1837"),
        issue("https://github.com/sourcebot-dev/sourcebot/issues/454"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "temperature": 0.2,
  "input": "Say hello."
}"#,
        mended: r#"{
  "model": "gpt-5",
  "input": "Say hello."
}"#,
    },
};
