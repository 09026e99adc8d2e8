//! Rules about pairs: reasoning and the item it led to, calls and their outputs.

use super::{WIRE, applies_always, issue, pairs_by_id, recorded};
use crate::{Example, Rule, Severity, ViolationKind};

pub(in crate::responses::contract) static REASONING_WITHOUT_FOLLOWING_ITEM: Rule = Rule {
    id: "openai/reasoning-without-following-item",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A stored reasoning item must be followed by the item it led to.",
    why: "With `store` enabled, the API stores every item of its responses and resolves them by \
          id. A reasoning item sent with its id must be directly before the item it led to, with \
          that item's own id; only more reasoning may be between them. History that was edited, \
          trimmed, or rebuilt from plain text keeps the `rs_…` item and loses the other item of \
          the pair. Items with encrypted content and no id are not paired and may be followed by \
          anything.",
    provider_error: Some(
        "Item 'rs_…' of type 'reasoning' was provided without its required following item.",
    ),
    breach: None,
    fix: "Send the item that followed the reasoning back with its own id, or omit the reasoning \
          item.",
    applies: pairs_by_id,
    evidence: &[
        recorded("pydantic-ai, test_openai_responses_thinking_with_modified_history"),
        issue("https://github.com/continuedev/continue/issues/8933"),
        issue("https://github.com/vercel/ai/issues/7099"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "What is the meaning of life?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABoxC3jL8rE"},
    {"role": "assistant", "content": "The meaning of life is 42"},
    {"role": "user", "content": "Anything to add?"}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "What is the meaning of life?"},
    {"role": "assistant", "content": "The meaning of life is 42"},
    {"role": "user", "content": "Anything to add?"}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static ITEM_WITHOUT_ITS_REASONING: Rule = Rule {
    id: "openai/item-without-its-reasoning",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "An item sent by its stored id needs the reasoning that led to it.",
    why: "This is the reverse of the pair rule. A call, message or search of a reasoning model is \
          stored together with the reasoning item before it. A client that drops reasoning, to \
          save tokens or because its framework has no type for it, and still sends `fc_…` or \
          `msg_…` ids is rejected. Earlier reasoning may be dropped only together with the ids of \
          the items it led to.",
    provider_error: Some(
        "Item 'fc_…' of type 'function_call' was provided without its required 'reasoning' item: 'rs_…'.",
    ),
    breach: Some(ViolationKind::Missing),
    fix: "Put the reasoning item back directly before it, or omit the `id` of the item.",
    applies: pairs_by_id,
    evidence: &[
        issue("https://github.com/0xPlaygrounds/rig/issues/751"),
        issue("https://github.com/openai/openai-python/issues/3008"),
        issue("https://github.com/openai/openai-agents-python/pull/3941"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[
            r#"{"model": "gpt-5", "input": "What is the weather in Paris?"}"#,
            r#"{"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed", "output": [
  {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABoxC3jL8rE"},
  {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"}
]}"#,
        ],
        failing: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABoxC3jL8rE"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static ITEM_DUPLICATED: Rule = Rule {
    id: "openai/item-duplicated",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "No two items of a request may have the same id.",
    why: "An id identifies one stored item. A session that was merged, resumed twice, or replayed \
          with its own copy contains the id twice, and the API rejects the ambiguity. Some \
          clients generate ids (`msg_0`, `msg_1`) and restart the numbering in every turn, with \
          the same result.",
    provider_error: Some("Duplicate item found with id …"),
    breach: None,
    fix: "Send each item once, and omit ids that your own code generated.",
    applies: pairs_by_id,
    evidence: &[
        issue("https://github.com/github/copilot-cli/issues/3560"),
        issue("https://github.com/earendil-works/pi/issues/5148"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "Say hello."},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    {"role": "user", "content": "Again."}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "Say hello."},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    {"role": "user", "content": "Again."}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static TOOL_CALL_UNANSWERED: Rule = Rule {
    id: "openai/tool-call-unanswered",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Every call needs its output, and every output needs its call.",
    why: "A `function_call` and its `function_call_output` are joined by `call_id`, and the API \
          accepts neither without the other. Calls lose their outputs when a run is interrupted \
          or a tool fails silently. Outputs lose their calls when history is trimmed from the \
          front. With `previous_response_id` or `conversation`, the call may be stored at the \
          API.",
    provider_error: Some("No tool output found for function call call_…."),
    breach: None,
    fix: "Send an output for the call, even if it only reports a failure, or omit the call with \
          its reasoning.",
    applies: applies_always,
    evidence: &[
        issue("https://github.com/router-for-me/CLIProxyAPI/issues/2368"),
        issue("https://github.com/continuedev/continue/issues/10092"),
        issue("https://github.com/openai/openai-agents-python/pull/3207"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"role": "user", "content": "Never mind. And in Rome?"}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "input": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "user", "content": "Never mind. And in Rome?"}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static CALLS_INTERRUPTED: Rule = Rule {
    id: "deepseek/calls-interrupted",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "No message may be between parallel calls and their outputs.",
    why: "DeepSeek's Responses endpoint converts items to chat messages, in which a batch of \
          calls is one message and the outputs follow directly. A message among the calls ends \
          the batch early, and the calls before it count as unanswered. This happens when \
          reasoning between two parallel calls is converted to text and left in place.",
    provider_error: Some("No tool output found for tool call …."),
    breach: None,
    fix: "Put the message before the first call of the batch. Send reasoning back as `reasoning` items, not as text.",
    applies: |target| target.provider.dialect.calls_together,
    evidence: &[recorded(
        "pydantic-ai, test_deepseek_responses_rejects_interleaved_function_calls",
    )],
    example: Example {
        provider: "deepseek-responses",
        model: "deepseek-v4-flash",
        prior: &[],
        failing: r#"{
  "model": "deepseek-v4-flash",
  "input": [
    {"role": "user", "content": "Compare a and b."},
    {"type": "function_call", "call_id": "call-a", "name": "read", "arguments": "{\"path\":\"a\"}"},
    {"role": "assistant", "content": "Now the other one."},
    {"type": "function_call", "call_id": "call-b", "name": "read", "arguments": "{\"path\":\"b\"}"},
    {"type": "function_call_output", "call_id": "call-a", "output": "1"},
    {"type": "function_call_output", "call_id": "call-b", "output": "2"}
  ]
}"#,
        mended: r#"{
  "model": "deepseek-v4-flash",
  "input": [
    {"role": "user", "content": "Compare a and b."},
    {"role": "assistant", "content": "Now the other one."},
    {"type": "function_call", "call_id": "call-a", "name": "read", "arguments": "{\"path\":\"a\"}"},
    {"type": "function_call", "call_id": "call-b", "name": "read", "arguments": "{\"path\":\"b\"}"},
    {"type": "function_call_output", "call_id": "call-a", "output": "1"},
    {"type": "function_call_output", "call_id": "call-b", "output": "2"}
  ]
}"#,
    },
};
