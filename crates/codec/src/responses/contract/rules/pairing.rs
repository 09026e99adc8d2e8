//! Rules about what needs what: reasoning and the item it led to, calls and their outputs.

use super::{WIRE, always, issue, pairs, recorded};
use crate::{Breach, Example, Rule, Severity};

pub(in crate::responses::contract) static REASONING_WITHOUT_FOLLOWING_ITEM: Rule = Rule {
    id: "openai/reasoning-without-following-item",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A stored reasoning item must be followed by the item it led to.",
    why: "While `store` is on, the API keeps every item of its answers and finds them again by id. A reasoning item \
          that comes back under its id must stand right before the very item that it led to, under that item's own \
          id; only more reasoning may stand between. History that was edited, trimmed, or rebuilt from plain texts \
          keeps the `rs_…` item and loses the other half of the pair. Without ids nothing is paired: items that \
          carry their encrypted content and no id may be followed by anything.",
    provider_error: Some(
        "Item 'rs_…' of type 'reasoning' was provided without its required following item.",
    ),
    breach: None,
    fix: "Send the item that followed the reasoning back under its own id, or leave the reasoning item out.",
    applies: pairs,
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
    title: "An item that is sent under its stored id needs the reasoning that led to it.",
    why: "This is the other half of the pair. A call, a message or a search that a reasoning model made is stored \
          together with the reasoning item before it. Whoever drops reasoning to save tokens, or because a \
          framework has no type for it, and goes on sending `fc_…` or `msg_…` ids is refused. Earlier reasoning may \
          be dropped, but then the ids of what it led to must go as well.",
    provider_error: Some(
        "Item 'fc_…' of type 'function_call' was provided without its required 'reasoning' item: 'rs_…'.",
    ),
    breach: Some(Breach::Missing),
    fix: "Put the reasoning item back right before it, or leave out the `id` of the item.",
    applies: pairs,
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
    why: "An id names one stored item. A session that was merged, resumed twice, or replayed beside its own copy \
          names it twice, and the API does not guess which is meant. Some clients make ids up (`msg_0`, `msg_1`) \
          and begin to count anew with every turn, with the same result.",
    provider_error: Some("Duplicate item found with id …"),
    breach: None,
    fix: "Send each item once, and leave out ids that your own code made up.",
    applies: pairs,
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
    title: "Every call needs its output, and every output its call.",
    why: "A `function_call` and its `function_call_output` are joined by `call_id`, and the API takes neither \
          without the other. Calls lose their outputs when a run is interrupted or a tool fails without saying so; \
          outputs lose their calls when history is trimmed from the front. Where `previous_response_id` or \
          `conversation` is set, the call may be one that the API has itself.",
    provider_error: Some("No tool output found for function call call_…."),
    breach: None,
    fix: "Send an output for the call, if only to say that it failed, or leave the call out with its reasoning.",
    applies: always,
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
    title: "Nothing may be said between calls made at once and their outputs.",
    why: "DeepSeek's Responses endpoint turns items into chat messages, in which a batch of calls is one message and \
          their outputs follow at once. A message that stands among the calls ends the batch early, and the calls \
          before it are then taken for unanswered. It happens when reasoning is flattened into text and left where \
          it was thought: between two parallel calls.",
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
