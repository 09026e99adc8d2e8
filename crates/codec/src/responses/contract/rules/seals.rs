//! Rules about reasoning items: their required members, and that they come back as issued.

use super::{TYPES, WIRE, applies_always, issue, recorded, seals_reasoning, stores_responses};
use crate::{Example, Rule, Severity, ViolationKind};

const ASKED: &str = r#"{"model": "gpt-5", "store": false, "input": [{"role": "user", "content": "Weather in Paris?"}]}"#;

const ANSWERED: &str = r#"{"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed", "store": false, "output": [
  {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "The weather tool knows."}], "encrypted_content": "gAAAAABoxC3jL8rE"},
  {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"}
]}"#;

const CONTINUED: &str = r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Weather in Paris?"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "The weather tool knows."}], "encrypted_content": "gAAAAABoxC3jL8rE"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#;

pub(in crate::responses::contract) static ITEM_NOT_FOUND: Rule = Rule {
    id: "openai/item-not-found",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "An item that was not stored cannot be referenced by its id.",
    why: "A reasoning item without `encrypted_content`, or an `item_reference`, contains only an \
          id, and the provider looks up the rest. With `store: false` the provider stored \
          nothing, although every item got an id. Stateless conversations send the encrypted \
          content instead.",
    provider_error: Some(
        "Item with id 'rs_…' not found. Items are not persisted when `store` is set to false. Try again \
                     with `store` set to true, or remove this item from your input.",
    ),
    breach: Some(ViolationKind::Unsigned),
    fix: "Send the reasoning item with its `encrypted_content`, or omit it.",
    applies: stores_responses,
    evidence: &[
        issue("https://github.com/vercel/ai/issues/7543"),
        issue("https://github.com/can1357/oh-my-pi/issues/41"),
        issue("https://github.com/openai/openai-agents-python/issues/2020"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[ASKED, ANSWERED],
        failing: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Weather in Paris?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
        mended: CONTINUED,
    },
};

pub(in crate::responses::contract) static ENCRYPTED_CONTENT_INVALID: Rule = Rule {
    id: "openai/encrypted-content-invalid",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Encrypted content must be sent back unchanged, and only to the account that received \
          it.",
    why: "The provider encrypts `encrypted_content` with its own key, for one organisation and \
          deployment. A truncated or re-encoded value, a value from another account, endpoint or \
          vendor, and an empty string all fail: the provider cannot decrypt them and rejects the \
          request. In a stream, only the value of `response.output_item.done` is valid.",
    provider_error: Some(
        "The encrypted content for item rs_… could not be verified. Reason: Encrypted content could not be \
                     decrypted or parsed.",
    ),
    breach: Some(ViolationKind::Invalid),
    fix: "Send the encrypted content exactly as received, and only to the endpoint and account \
          that issued it; otherwise omit the item.",
    applies: seals_reasoning,
    evidence: &[
        issue("https://github.com/openai/codex/issues/8145"),
        issue("https://github.com/UKGovernmentBEIS/inspect_ai/issues/3978"),
        issue("https://github.com/openai/codex/issues/17541"),
        issue("https://github.com/openai/codex/issues/35334"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[ASKED, ANSWERED],
        failing: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Weather in Paris?"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "The weather tool knows."}], "encrypted_content": "gAAAAABoxC3j"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
        mended: CONTINUED,
    },
};

pub(in crate::responses::contract) static REASONING_NEEDS_SUMMARY: Rule = Rule {
    id: "openai/reasoning-needs-summary",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A reasoning item must have a `summary`, even an empty one.",
    why: "The member is required, and an empty list means that there is no summary. Serialisers \
          that omit empty lists to save space remove it, and the next turn fails.",
    provider_error: Some("Missing required parameter: 'input[…].summary'."),
    breach: None,
    fix: "Send `\"summary\": []`.",
    applies: applies_always,
    evidence: &[
        issue("https://github.com/newo-ether/Agora/issues/126"),
        issue("https://github.com/newo-ether/Agora/issues/141"),
        TYPES,
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Say hello."},
    {"type": "reasoning", "encrypted_content": "gAAAAABoxC3jL8rE"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Again."}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Say hello."},
    {"type": "reasoning", "encrypted_content": "gAAAAABoxC3jL8rE", "summary": []},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Again."}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static REASONING_DROPPED: Rule = Rule {
    id: "openai/reasoning-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The reasoning for the current turn's calls is missing.",
    why: "The API accepts a request without a reasoning item if the paired ids are omitted too. \
          But the model that reads the tool's output then lacks the reason for the call: it \
          reasons again from the start, or continues without. Reasoning of finished turns may be \
          omitted; reasoning of the current turn should stay.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning items of the current turn back, each directly before the item it led \
          to.",
    applies: applies_always,
    evidence: &[TYPES, issue("https://github.com/langgenius/dify/issues/41092")],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[ASKED, ANSWERED],
        failing: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Weather in Paris?"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
        mended: CONTINUED,
    },
};

pub(in crate::responses::contract) static REASONING_MOVED: Rule = Rule {
    id: "openai/reasoning-moved",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "A reasoning item must be directly before the item it led to, once, with its own \
          content.",
    why: "Without ids the provider cannot detect that a reasoning item is misplaced, repeated, or \
          has the content of another item. It accepts the request, and the model reads its \
          reasoning in an order in which it never occurred.",
    provider_error: None,
    breach: None,
    fix: "Send the items of a response in their original order.",
    applies: applies_always,
    evidence: &[
        TYPES,
        recorded("accepted requests have each reasoning item right before what it led to"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[ASKED, ANSWERED],
        failing: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Weather in Paris?"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "The weather tool knows."}], "encrypted_content": "gAAAAABoxC3jL8rE"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
  ]
}"#,
        mended: CONTINUED,
    },
};

pub(in crate::responses::contract) static PHASE_DROPPED: Rule = Rule {
    id: "openai/phase-dropped",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "A message is sent without its phase.",
    why: "Since GPT-5.3 Codex, each message is marked as intermediate `commentary` or as the \
          `final_answer`. A model that gets its commentary back without the mark treats it as an \
          answer and tends to stop early.",
    provider_error: None,
    breach: None,
    fix: "Send the message's `phase` back unchanged.",
    applies: applies_always,
    evidence: &[TYPES],
    example: Example {
        provider: "openai",
        model: "gpt-5.4",
        prior: &[
            r#"{"model": "gpt-5.4", "input": [{"role": "user", "content": "Fix the build."}]}"#,
            r#"{"id": "resp_1", "object": "response", "model": "gpt-5.4", "status": "completed", "output": [
  {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I look at the log."}]}
]}"#,
        ],
        failing: r#"{
  "model": "gpt-5.4",
  "input": [
    {"role": "user", "content": "Fix the build."},
    {"role": "assistant", "content": "I look at the log."},
    {"role": "user", "content": "Go on."}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5.4",
  "input": [
    {"role": "user", "content": "Fix the build."},
    {"role": "assistant", "content": "I look at the log.", "phase": "commentary"},
    {"role": "user", "content": "Go on."}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static THOUGHT_AS_TEXT: Rule = Rule {
    id: "openai/thought-as-text",
    wire: WIRE,
    severity: Severity::Note,
    title: "A thought is sent as a plain message.",
    why: "The model reads a reasoning summary that comes back as text as part of the \
          conversation. It may imitate the style and reason in visible text, and the summarised \
          reasoning itself is lost. This happens when a framework has no type for reasoning.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning item itself, or omit the thought.",
    applies: applies_always,
    evidence: &[
        recorded("pydantic-ai, test_openai_responses_thinking_with_modified_history"),
        issue("https://github.com/BerriAI/litellm/issues/24985"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[
            ASKED,
            r#"{"id": "resp_1", "object": "response", "model": "gpt-5", "status": "completed", "store": false, "output": [
  {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "The weather tool knows."}], "encrypted_content": "gAAAAABoxC3jL8rE"},
  {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]}
]}"#,
        ],
        failing: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "<think>The weather tool knows.</think>"},
    {"role": "assistant", "content": "Sunny."},
    {"role": "user", "content": "And in Rome?"}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "store": false,
  "input": [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "Sunny."},
    {"role": "user", "content": "And in Rome?"}
  ]
}"#,
    },
};

pub(in crate::responses::contract) static CACHE_PREFIX_BROKEN: Rule = Rule {
    id: "openai/cache-prefix-broken",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The request has the same content as the last one in different bytes, so the prompt \
          cache misses.",
    why: "The cache compares requests from the start, byte for byte, so a tool whose members are \
          in another order does not match. Maps without a fixed order, and JSON that is parsed \
          and serialised again, change the bytes from turn to turn. Everything after the change \
          is processed and billed again.",
    provider_error: None,
    breach: None,
    fix: "Serialise tools and earlier items to the same bytes every time.",
    applies: applies_always,
    evidence: &[
        issue("https://github.com/Lakr233/FlowDown/issues/273"),
        issue("https://github.com/openclaw/openclaw/pull/78747"),
        issue("https://github.com/teunlao/swift-ai-sdk/pull/39"),
    ],
    example: Example {
        provider: "openai",
        model: "gpt-5",
        prior: &[r#"{
  "model": "gpt-5",
  "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
  "input": [{"role": "user", "content": "Say hello."}]
}"#],
        failing: r#"{
  "model": "gpt-5",
  "tools": [{"name": "weather", "type": "function", "parameters": {"properties": {}, "type": "object"}}],
  "input": [
    {"role": "user", "content": "Say hello."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Again."}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
  "input": [
    {"role": "user", "content": "Say hello."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Again."}
  ]
}"#,
    },
};
