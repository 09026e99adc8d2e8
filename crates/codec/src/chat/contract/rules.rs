//! What each rule says, as data: the settings and messages of chat endpoints. What routers do is in `rules/router.rs`, and what
//! becomes of plain reasoning in `rules/plain.rs`.

mod plain;
mod router;

use throughline_core::{CallIds, Channel, Switch, Target, Wire};

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

fn anywhere(_: &Target) -> bool {
    true
}

/// Whether the endpoint is the vendor's own, which refuses what its models do not take.
fn checks_settings(target: &Target) -> bool {
    target.provider.dialect.checks_settings && target.profile.name != "unknown"
}

fn is_strict_openai(target: &Target) -> bool {
    let family = target.profile.name.as_str();
    let is_listed = family.starts_with("openai") || family.starts_with("gpt-");
    checks_settings(target) && contract::is_openai(target) && is_listed
}

/// Tool call ids of another form than Mistral's.
pub(super) static CALL_ID_FORM: Rule = Rule {
    id: "mistral/call-id-form",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A tool call's id is not nine letters and digits.",
    why: "Mistral takes ids of tool calls in one form only: exactly nine letters and digits. Ids that another provider made \
          (`call_…`, `toolu_…`), or that a client made up, break it, so a conversation that began elsewhere fails at its \
          first tool call. The id has no meaning beyond joining a call to its answer, so both can be renamed together.",
    provider_error: Some("Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9."),
    breach: None,
    fix: "Give the call an id of nine letters and digits, and its answer the same.",
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

/// A tool is forced on a model that thinks.
pub(super) static FORCED_TOOL_CHOICE: Rule = Rule {
    id: "deepseek/forced-tool-choice",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A tool is forced on a model that is thinking.",
    why: "A model that thinks decides for itself which tool it needs, so DeepSeek refuses `required` and a named tool while \
          thinking is on; it is on unless the request switches it off. Frameworks force a tool to get structured output, \
          and so break a request that would work without the choice.",
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

/// An effort that the model does not take.
pub(super) static EFFORT_NOT_SUPPORTED: Rule = Rule {
    id: "openai-chat/effort-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not take this reasoning effort.",
    why: "The words for how hard to think have grown with the models: `minimal` came with GPT-5 and went with 5.1, which \
          brought `none`; `xhigh` and `max` came later; models before o1 know no effort at all. A setting that is kept \
          while the model behind it changes is refused by name, with the list of what the model does take.",
    provider_error: Some(
        "Unsupported value: 'reasoning_effort' does not support '…' with this model. Supported values are: ….",
    ),
    breach: None,
    fix: "Ask for an effort that the model takes, or leave `reasoning_effort` out.",
    applies: |target| is_strict_openai(target) && target.provider.dialect.switch == Switch::Effort,
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

/// Sampling that the model sets itself.
pub(super) static SAMPLING_FIXED: Rule = Rule {
    id: "openai-chat/sampling-fixed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not take this sampling setting.",
    why: "Reasoning models are tuned for one way of sampling. OpenAI's refuse any temperature but 1, some of them only while \
          they reason, and Kimi refuses any but its own while it thinks. Agents send a low temperature out of habit, and the \
          habit is an HTTP 400 here.",
    provider_error: Some(
        "Unsupported value: 'temperature' does not support … with this model. Only the default (1) value is supported.",
    ),
    breach: None,
    fix: "Leave `temperature` and `top_p` out.",
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

/// The old name of the limit of tokens.
pub(super) static MAX_TOKENS_RENAMED: Rule = Rule {
    id: "openai-chat/max-tokens-renamed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The token limit goes by its old name.",
    why: "What a reasoning model thinks counts towards its limit although nobody sees it, so OpenAI gave the limit a new name \
          when the first of them came: `max_completion_tokens`. Models that reason refuse the old one; models that do not \
          still take it.",
    provider_error: Some(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    ),
    breach: None,
    fix: "Rename `max_tokens` to `max_completion_tokens`, and leave room in it for the thoughts.",
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

/// A call without its answer, or an answer without its call.
pub(super) static TOOL_CALL_UNANSWERED: Rule = Rule {
    id: "chat/tool-call-unanswered",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A tool call has no answer, or an answer no call.",
    why: "A message with tool calls is followed by one tool message for each of them, and a tool message stands behind the call \
          whose id it names; nothing may come between. Trimming a conversation to its last messages, a tool that was cancelled, \
          or a note of the user's put in too early breaks the pair, and every later request of the conversation fails.",
    provider_error: Some(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: …",
    ),
    breach: None,
    fix: "Answer every call right behind its message, or leave the call and its answer out together.",
    applies: anywhere,
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

/// Two settings of Groq's that exclude each other.
pub(super) static REASONING_FORMAT_EXCLUSIVE: Rule = Rule {
    id: "groq/reasoning-format-exclusive",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "`reasoning_format` and `include_reasoning` are both set.",
    why: "Groq has two ways to say what becomes of the reasoning: `reasoning_format` (hidden, raw or parsed) for the models that \
          write it into the text, and `include_reasoning` for those that keep it apart. They are documented as exclusive; the \
          words of the error are not known.",
    provider_error: None,
    breach: None,
    fix: "Set one of them, and leave the other out.",
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

/// An element that was only written in another order.
pub(super) static CACHE_PREFIX_BROKEN: Rule = Rule {
    id: "chat/cache-prefix-broken",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "What was sent before is written differently, so the prompt cache misses.",
    why: "Prompt caches compare what the model reads from the beginning, byte for byte. A tool's schema or a message that is \
          parsed and written again with its keys in another order means the same and reads otherwise, so everything behind it is \
          paid for and waited for again.",
    provider_error: None,
    breach: None,
    fix: "Send what was sent before byte for byte, with its members in the same order.",
    applies: |target| target.provider.dialect.channel != Channel::Thinking,
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
