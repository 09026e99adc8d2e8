//! Rules about settings, and about continuing from a stored response.

use super::{TYPES, WIRE, applies_always, issue, recorded, stores_responses};
use crate::{Example, Rule, Severity};

pub(in crate::responses::contract) static PREVIOUS_RESPONSE_AND_CONVERSATION: Rule = Rule {
    id: "openai/previous-response-and-conversation",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A request can continue a response or a conversation, but not both.",
    why: "`previous_response_id` and `conversation` are two ways to reference the history, and \
          each of them covers all of it. Frameworks that support both kinds of session set the \
          second without clearing the first.",
    provider_error: Some(
        "Mutually exclusive parameters: 'conversation' and 'previous_response_id'. Ensure you are only \
                     providing one of: 'previous_response_id' or 'conversation'.",
    ),
    breach: None,
    fix: "Omit either `previous_response_id` or `conversation`.",
    applies: applies_always,
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
    title: "A response created with `store` set to false cannot be continued.",
    why: "`previous_response_id` references a response that the provider stored. With `store: \
          false` it stored nothing, although the response has an id. The history must then be \
          sent again, including reasoning items with their encrypted content.",
    provider_error: Some("Previous response with id 'resp_…' not found."),
    breach: None,
    fix: "Send the earlier items in `input`, or create responses with `store` set to true.",
    applies: applies_always,
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
    title: "Reasoning is sent again although the request continues a stored response.",
    why: "With `previous_response_id` the provider already has the items of that response and of \
          all earlier ones, including reasoning. If they are sent again, the model reads them \
          twice and both copies are billed. No recorded accepted request did so.",
    provider_error: None,
    breach: None,
    fix: "Send only new items: the tool outputs, or the next user message.",
    applies: stores_responses,
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
    title: "The model does not support this `reasoning.effort`.",
    why: "Efforts range from `none` to `max`, but each model supports a subset: GPT-5 added \
          `minimal`, GPT-5.1 removed it and added `none`, and later models added `xhigh` and \
          `max`. A value that works for one model may be rejected by the next, so changing only \
          the model's name can break a request.",
    provider_error: Some(
        "Unsupported value: '…' is not supported with the '…' model. Supported values are: …",
    ),
    breach: None,
    fix: "Use an effort that the model supports.",
    applies: applies_always,
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
    title: "The model does not support `temperature` and `top_p`.",
    why: "Reasoning models use fixed sampling and reject other settings. The o-series and GPT-5 \
          always reject them; later models reject them while they reason and accept both with the \
          effort `none`. Code that set a temperature for an older model often keeps sending it.",
    provider_error: Some("Unsupported parameter: 'temperature' is not supported with this model."),
    breach: None,
    fix: "Omit `temperature` and `top_p`.",
    applies: applies_always,
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
