//! Rules for the settings and messages of chat endpoints, as data. Rules of routers are in
//! `rules/router.rs`, rules of plain reasoning in `rules/plain.rs`.

mod plain;
mod router;

use throughline_core::{CallIds, ReasoningChannel, ReasoningSwitch, Target, Wire};

use crate::audit::{Example, Rule, Severity, Source, SourceKind};
use crate::chat::contract;

pub(super) use crate::chat::contract::rules::plain::{
    KIMI_REASONING_MISSING, REASONING_ALTERED, REASONING_CONTENT_FORBIDDEN,
    REASONING_CONTENT_IGNORED, REASONING_CONTENT_MISSING, REASONING_DROPPED, REASONING_SENT,
    THINKING_STRIPPED, THOUGHT_AS_TEXT, ZAI_REASONING_DROPPED,
};
pub(super) use crate::chat::contract::rules::router::{
    DETAILS_DROPPED, DETAILS_FRAGMENTED, FIRST_CALL_NEEDS_SIGNATURE, FOREIGN_DETAILS,
    SIGNATURE_INVALID, SIGNATURE_MISSING,
};

const WIRE: Wire = Wire::OPENAI_CHAT;

/// All rules of this wire.
pub(in crate::chat) static RULES: &[&Rule] = &[
    &REASONING_CONTENT_MISSING,
    &KIMI_REASONING_MISSING,
    &REASONING_CONTENT_FORBIDDEN,
    &CALL_ID_FORM,
    &FORCED_TOOL_CHOICE,
    &REASONING_SENT,
    &EFFORT_NOT_SUPPORTED,
    &SAMPLING_FIXED,
    &MAX_TOKENS_RENAMED,
    &TOOL_CALL_UNANSWERED,
    &SIGNATURE_MISSING,
    &DETAILS_FRAGMENTED,
    &SIGNATURE_INVALID,
    &FOREIGN_DETAILS,
    &FIRST_CALL_NEEDS_SIGNATURE,
    &DETAILS_DROPPED,
    &ZAI_REASONING_DROPPED,
    &THINKING_STRIPPED,
    &REASONING_DROPPED,
    &REASONING_ALTERED,
    &REASONING_CONTENT_IGNORED,
    &REASONING_FORMAT_EXCLUSIVE,
    &THOUGHT_AS_TEXT,
    &CACHE_PREFIX_BROKEN,
];

const fn issue(at: &'static str) -> Source {
    Source { kind: SourceKind::Issue, at }
}

const fn documented(at: &'static str) -> Source {
    Source { kind: SourceKind::Documentation, at }
}

const fn recorded(at: &'static str) -> Source {
    Source { kind: SourceKind::Recorded, at }
}

const fn typed(at: &'static str) -> Source {
    Source { kind: SourceKind::Types, at }
}

fn applies_always(_: &Target) -> bool {
    true
}

/// Returns whether the endpoint is the vendor's own, which rejects settings its models do not
/// support.
fn checks_settings(target: &Target) -> bool {
    target.provider.dialect.checks_settings && target.profile.name != "unknown"
}

fn is_strict_openai(target: &Target) -> bool {
    let family = target.profile.name.as_str();
    let is_listed = family.starts_with("openai") || family.starts_with("gpt-");
    checks_settings(target) && contract::is_openai(target) && is_listed
}

/// Flags tool call ids that Mistral rejects.
pub(super) static CALL_ID_FORM: Rule = Rule {
    id: "mistral/call-id-form",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A tool call's id is not nine letters and digits.",
    why: "Mistral accepts tool call ids in one form only: exactly nine letters and digits. Ids \
          from another provider (`call_…`, `toolu_…`) or from a client have another form, so a \
          conversation that began elsewhere fails at its first tool call. The id only joins a \
          call to its result, so both can be renamed together.",
    provider_error: Some("Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9."),
    breach: None,
    fix: "Give the call and its result the same id of nine letters and digits.",
    applies: |target| target.provider.dialect.call_ids == CallIds::Nine,
    evidence: &[
        issue("https://github.com/nearai/ironclaw/issues/1241"),
        issue("https://github.com/anomalyco/opencode/issues/1680"),
    ],
    example: Example {
        provider: "mistral",
        model: "magistral-medium-latest",
        prior: &[],
        failing: r#"{
  "model": "magistral-medium-latest",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "call_PTLP8xhu3uwZk4l3", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_PTLP8xhu3uwZk4l3", "content": "Rain."}
  ]
}"#,
        mended: r#"{
  "model": "magistral-medium-latest",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "PTLP8xhu3", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}
    ]},
    {"role": "tool", "tool_call_id": "PTLP8xhu3", "content": "Rain."}
  ]
}"#,
    },
};

/// Flags a forced tool for a model that is thinking.
pub(super) static FORCED_TOOL_CHOICE: Rule = Rule {
    id: "deepseek/forced-tool-choice",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The request forces a tool on a model that is thinking.",
    why: "A thinking model decides for itself which tool to call, so DeepSeek rejects `required` \
          and a named tool while thinking is enabled, which is the default. Frameworks that force \
          a tool to get structured output break a request that would work without the choice.",
    provider_error: Some("Thinking mode does not support this tool_choice"),
    breach: None,
    fix: "Set `tool_choice` to `auto`, or `thinking.type` to `disabled`.",
    applies: |target| checks_settings(target) && target.provider.dialect.demanded_with_tools,
    evidence: &[recorded(
        "0xPlaygrounds/rig tests/cassettes/deepseek/wire_shape_matrix/forced_tool_choice_under_thinking_is_rejected_upstream.yaml",
    )],
    example: Example {
        provider: "deepseek",
        model: "deepseek-v4-flash",
        prior: &[],
        failing: r#"{
  "model": "deepseek-v4-flash",
  "messages": [{"role": "user", "content": "ping"}],
  "thinking": {"type": "enabled"},
  "tool_choice": "required",
  "tools": [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]
}"#,
        mended: r#"{
  "model": "deepseek-v4-flash",
  "messages": [{"role": "user", "content": "ping"}],
  "thinking": {"type": "enabled"},
  "tool_choice": "auto",
  "tools": [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]
}"#,
    },
};

/// Flags a reasoning effort that the model does not support.
pub(super) static EFFORT_NOT_SUPPORTED: Rule = Rule {
    id: "openai-chat/effort-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not support this reasoning effort.",
    why: "The supported efforts differ by model: GPT-5 added `minimal`, GPT-5.1 replaced it with \
          `none`, and later models added `xhigh` and `max`. Models before o1 support no effort. \
          If the setting stays while the model changes, the API rejects the value and lists the \
          supported ones.",
    provider_error: Some(
        "Unsupported value: 'reasoning_effort' does not support '…' with this model. Supported values are: ….",
    ),
    breach: None,
    fix: "Use an effort that the model supports, or omit `reasoning_effort`.",
    applies: |target| {
        is_strict_openai(target) && target.provider.dialect.switch == ReasoningSwitch::Effort
    },
    evidence: &[
        issue("https://github.com/Kilo-Org/cloud/pull/3807"),
        issue("https://github.com/davidmigloz/langchain_dart/issues/712"),
        typed("openai 3.49.0, reasoning_effort"),
    ],
    example: Example {
        provider: "openai-chat",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "messages": [{"role": "user", "content": "Is 91 prime?"}],
  "reasoning_effort": "xhigh"
}"#,
        mended: r#"{
  "model": "gpt-5",
  "messages": [{"role": "user", "content": "Is 91 prime?"}],
  "reasoning_effort": "high"
}"#,
    },
};

/// Flags sampling settings that the model fixes.
pub(super) static SAMPLING_FIXED: Rule = Rule {
    id: "openai-chat/sampling-fixed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not support this sampling setting.",
    why: "Reasoning models are tuned for one sampling method. OpenAI's models reject any \
          temperature except 1, some of them only while they reason. Kimi rejects any temperature \
          except its own while it thinks. Agents often send a low temperature by default, which \
          returns HTTP 400 here.",
    provider_error: Some(
        "Unsupported value: 'temperature' does not support … with this model. Only the default (1) value is supported.",
    ),
    breach: None,
    fix: "Omit `temperature` and `top_p`.",
    applies: checks_settings,
    evidence: &[
        issue("https://github.com/QwenLM/qwen-code/issues/921"),
        issue("https://github.com/holoviz/lumen/pull/1087"),
        issue("https://github.com/opencyvis/opencyvis-phone/issues/12"),
        issue("https://github.com/NousResearch/hermes-agent/pull/12668"),
    ],
    example: Example {
        provider: "openai-chat",
        model: "gpt-5-mini",
        prior: &[],
        failing: r#"{
  "model": "gpt-5-mini",
  "messages": [{"role": "user", "content": "Is 91 prime?"}],
  "temperature": 0.2
}"#,
        mended: r#"{
  "model": "gpt-5-mini",
  "messages": [{"role": "user", "content": "Is 91 prime?"}]
}"#,
    },
};

/// Flags the old name of the token limit.
pub(super) static MAX_TOKENS_RENAMED: Rule = Rule {
    id: "openai-chat/max-tokens-renamed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The token limit uses its old name.",
    why: "Reasoning tokens count towards the limit although they are not visible, so OpenAI \
          renamed the limit to `max_completion_tokens` with its first reasoning models. Reasoning \
          models reject the old name; other models still accept it.",
    provider_error: Some(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    ),
    breach: None,
    fix: "Rename `max_tokens` to `max_completion_tokens`, and leave room for reasoning tokens.",
    applies: |target| {
        checks_settings(target)
            && contract::is_openai(target)
            && target.profile.notes.get("max-tokens").is_some_and(|note| note == "refused")
    },
    evidence: &[
        issue("https://github.com/teilomillet/gollm/issues/33"),
        issue("https://github.com/koosoli/ESPHomeDesigner/issues/379"),
        typed("openai 3.49.0, max_tokens: deprecated, not compatible with o-series models"),
    ],
    example: Example {
        provider: "openai-chat",
        model: "o3-mini",
        prior: &[],
        failing: r#"{
  "model": "o3-mini",
  "messages": [{"role": "user", "content": "Is 91 prime?"}],
  "max_tokens": 4000
}"#,
        mended: r#"{
  "model": "o3-mini",
  "messages": [{"role": "user", "content": "Is 91 prime?"}],
  "max_completion_tokens": 4000
}"#,
    },
};

/// Flags a call without a result, or a result without a call.
pub(super) static TOOL_CALL_UNANSWERED: Rule = Rule {
    id: "chat/tool-call-unanswered",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A tool call has no result, or a result has no call.",
    why: "A message with tool calls must be followed directly by one tool message for each call, \
          and a tool message must follow the call whose id it names. Trimming a conversation, a \
          cancelled tool, or a user message inserted too early breaks the pair. Every later \
          request of the conversation then fails.",
    provider_error: Some(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: …",
    ),
    breach: None,
    fix: "Send the result of every call directly after its message, or omit the call together \
          with its result.",
    applies: applies_always,
    evidence: &[
        issue("https://github.com/BerriAI/litellm/issues/10083"),
        issue("https://github.com/dimagi/open-chat-studio/issues/1659"),
        issue("https://github.com/zed-industries/zed/issues/51944"),
        issue("https://github.com/mistralai/client-ts/issues/106"),
        issue("https://github.com/anomalyco/opencode/issues/32608"),
        issue("https://github.com/QwenLM/qwen-code/issues/606"),
    ],
    example: Example {
        provider: "openai-chat",
        model: "gpt-5",
        prior: &[],
        failing: r#"{
  "model": "gpt-5",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "Let me look.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}
    ]},
    {"role": "user", "content": "Never mind. What is 2 + 2?"}
  ]
}"#,
        mended: r#"{
  "model": "gpt-5",
  "messages": [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "Let me look."},
    {"role": "user", "content": "Never mind. What is 2 + 2?"}
  ]
}"#,
    },
};

/// Flags two settings of Groq that are mutually exclusive.
pub(super) static REASONING_FORMAT_EXCLUSIVE: Rule = Rule {
    id: "groq/reasoning-format-exclusive",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "`reasoning_format` and `include_reasoning` are both set.",
    why: "Groq has two settings for the reasoning output: `reasoning_format` (hidden, raw or \
          parsed) for models that write it into the text, and `include_reasoning` for models that \
          return it separately. They are documented as mutually exclusive; the text of the error \
          is not known.",
    provider_error: None,
    breach: None,
    fix: "Set only one of them.",
    applies: |target| &*target.provider.name == "groq",
    evidence: &[
        typed(
            "groq 1.7.0, include_reasoning: This field is mutually exclusive with `reasoning_format`.",
        ),
        documented("https://console.groq.com/docs/api-reference"),
    ],
    example: Example {
        provider: "groq",
        model: "openai/gpt-oss-120b",
        prior: &[],
        failing: r#"{
  "model": "openai/gpt-oss-120b",
  "messages": [{"role": "user", "content": "Is 91 prime?"}],
  "reasoning_format": "parsed",
  "include_reasoning": true
}"#,
        mended: r#"{
  "model": "openai/gpt-oss-120b",
  "messages": [{"role": "user", "content": "Is 91 prime?"}],
  "reasoning_format": "parsed"
}"#,
    },
};

/// Flags elements that differ from the last request only in their serialisation.
pub(super) static CACHE_PREFIX_BROKEN: Rule = Rule {
    id: "chat/cache-prefix-broken",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "Earlier content is serialised differently, so the prompt cache misses.",
    why: "Prompt caches compare the request from its start, byte for byte. A tool schema or \
          message that is parsed and serialised again with its keys in another order has the same \
          meaning but different bytes. Everything after the change is processed and billed again.",
    provider_error: None,
    breach: None,
    fix: "Send earlier content byte for byte, with its members in the same order.",
    applies: |target| target.provider.dialect.channel != ReasoningChannel::Thinking,
    evidence: &[
        issue("https://github.com/Lakr233/FlowDown/issues/273"),
        issue("https://github.com/sgl-project/sglang/pull/34553"),
        issue("https://github.com/openclaw/openclaw/pull/78747"),
    ],
    example: Example {
        provider: "deepseek",
        model: "deepseek-chat",
        prior: &[r#"{"model":"deepseek-chat","messages":[{"role":"user","content":"Hello."}]}"#],
        failing: r#"{
  "model": "deepseek-chat",
  "messages": [
    {"content": "Hello.", "role": "user"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "How are you?"}
  ]
}"#,
        mended: r#"{
  "model": "deepseek-chat",
  "messages": [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "How are you?"}
  ]
}"#,
    },
};
