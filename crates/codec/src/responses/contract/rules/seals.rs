//! Rules about reasoning items themselves: what they must carry, and that they come back as they were issued.

use super::{TYPES, WIRE, always, issue, recorded, seals_reasoning, stores};
use crate::{Breach, Example, Rule, Severity};

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
    title: "An item that was never stored cannot be named by its id.",
    why: "A reasoning item without `encrypted_content`, and an `item_reference`, hold nothing but an id: the provider \
          looks the rest up. With `store: false` it kept nothing to look up, though it gave every item an id. \
          Stateless conversations carry the encrypted content instead.",
    provider_error: Some(
        "Item with id 'rs_…' not found. Items are not persisted when `store` is set to false. Try again \
                     with `store` set to true, or remove this item from your input.",
    ),
    breach: Some(Breach::Unsigned),
    fix: "Send the reasoning item with its `encrypted_content`, or leave it out.",
    applies: stores,
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
    title: "Encrypted content must come back exactly as it was issued, to the account that it was issued to.",
    why: "`encrypted_content` is sealed with a key of the provider's, for one organisation and deployment. A byte \
          that was cut off or re-encoded, a value from another account, another endpoint or another vendor, and an \
          empty string fail alike: the provider cannot open them, and says so instead of going on without. In a \
          stream, the value that counts is the one of `response.output_item.done`.",
    provider_error: Some(
        "The encrypted content for item rs_… could not be verified. Reason: Encrypted content could not be \
                     decrypted or parsed.",
    ),
    breach: Some(Breach::Invalid),
    fix: "Send the encrypted content exactly as it was received, and only to whom it came from; else leave the item out.",
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
    title: "A reasoning item must have a `summary`, if only an empty one.",
    why: "The member is required, and an empty list says that there is no summary. Serialisers that leave out empty \
          lists to save space take it away, and the next turn fails.",
    provider_error: Some("Missing required parameter: 'input[…].summary'."),
    breach: None,
    fix: "Send `\"summary\": []`.",
    applies: always,
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
    title: "The reasoning behind the current turn's calls is gone.",
    why: "Nothing is refused when a reasoning item is left out together with the ids that pair it. But the model that \
          reads the tool's output no longer knows why it called: it thinks everything over again, or goes on \
          without. Reasoning of turns that are finished may go; that of the turn in progress should stay.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning items of the current turn back, each right before what it led to.",
    applies: always,
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
    title: "A reasoning item belongs right before the item it led to, once and unmixed.",
    why: "Without ids the provider cannot tell that a reasoning item stands in the wrong place, twice, or with \
          another's content. It takes the request, and the model reads its thoughts in an order in which it never \
          had them.",
    provider_error: None,
    breach: None,
    fix: "Send the items of an answer in the order in which they came.",
    applies: always,
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
    title: "A message that was said in a phase should go back with it.",
    why: "Since GPT-5.3 Codex a message says whether it is `commentary` on the way or the `final_answer`. A model that \
          gets its commentary back without the mark takes it for an answer, and tends to stop early.",
    provider_error: None,
    breach: None,
    fix: "Send the message's `phase` back as it came.",
    applies: always,
    evidence: &[TYPES],
    example: Example {
        provider: "openai",
        model: "gpt-5.4",
        prior: &[
            r#"{"model": "gpt-5.4", "input": [{"role": "user", "content": "Mend the build."}]}"#,
            r#"{"id": "resp_1", "object": "response", "model": "gpt-5.4", "status": "completed", "output": [
  {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I look at the log."}]}
]}"#,
        ],
        failing: r#"{
  "model": "gpt-5.4",
  "input": [
    {"role": "user", "content": "Mend the build."},
    {"role": "assistant", "content": "I look at the log."},
    {"role": "user", "content": "Go on."}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5.4",
  "input": [
    {"role": "user", "content": "Mend the build."},
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
    title: "A thought is said as a plain message.",
    why: "A summary of reasoning that comes back as text is read as something that was said aloud. The model may \
          imitate it and think in the open, and the reasoning that it summarised is lost all the same. It happens \
          where a framework has no other place for a thought.",
    provider_error: None,
    breach: None,
    fix: "Send the reasoning item itself, or leave the thought out.",
    applies: always,
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
    title: "The request says the same as the last one, in other bytes: the prompt cache misses.",
    why: "The cache compares what it is sent from the start, and a tool whose members were written in another order \
          is another text. Maps without a fixed order, and JSON that is parsed and written again, change it from \
          one turn to the next, and everything behind it is paid for and read anew.",
    provider_error: None,
    breach: None,
    fix: "Write tools and earlier items in the same bytes every time.",
    applies: always,
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
