//! Rules about the replay of issued content.

use throughline_core::Wire;

use crate::audit::{Example, Rule, Severity, Source, SourceKind, ViolationKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// A thinking block differs from the one that was issued.
pub(crate) static THINKING_MODIFIED: Rule = Rule {
    id: "anthropic/thinking-modified",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::THINKING_MODIFIED.title,
    why: rule_text::THINKING_MODIFIED.why,
    provider_error: Some(
        "messages.….content.…: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be \
                     modified. These blocks must remain as they were in the original response.",
    ),
    breach: Some(ViolationKind::Invalid),
    fix: rule_text::THINKING_MODIFIED.fix,
    applies: claude::is_claude,
    evidence: rule_text::THINKING_MODIFIED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-4-6",
        prior: &[
            r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
            r#"{
  "type": "message",
  "role": "assistant",
  "model": "claude-opus-4-6",
  "content": [
    {
      "type": "thinking",
      "thinking": "The user wants the weather, so I look it up.",
      "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
    },
    {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"city": "Oslo"}}
  ],
  "stop_reason": "tool_use"
}"#,
        ],
        failing: r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "thinking",
          "thinking": "The user wants weather.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        },
        {
          "type": "tool_use",
          "id": "toolu_01",
          "name": "weather",
          "input": {"city": "Oslo"}
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "4 °C, rain"}
      ]
    }
  ]
}"#,
        mended: r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "thinking",
          "thinking": "The user wants the weather, so I look it up.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        },
        {
          "type": "tool_use",
          "id": "toolu_01",
          "name": "weather",
          "input": {"city": "Oslo"}
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "4 °C, rain"}
      ]
    }
  ]
}"#,
    },
};

/// Thinking of an open tool loop is missing.
pub(crate) static THINKING_DROPPED: Rule = Rule {
    id: "anthropic/thinking-dropped",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::THINKING_DROPPED.title,
    why: rule_text::THINKING_DROPPED.why,
    provider_error: Some(
        "messages.….content.…: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be \
                     modified. These blocks must remain as they were in the original response.",
    ),
    breach: Some(ViolationKind::Missing),
    fix: rule_text::THINKING_DROPPED.fix,
    applies: claude::is_claude,
    evidence: rule_text::THINKING_DROPPED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        prior: &[
            r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 2048},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
            r#"{
  "type": "message",
  "role": "assistant",
  "model": "claude-sonnet-4-5",
  "content": [
    {
      "type": "thinking",
      "thinking": "The user wants the weather, so I look it up.",
      "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
    },
    {"type": "redacted_thinking", "data": "EsYBCkYIBRgCKkBzZWNvbmRTaWduYXR1cmUh"},
    {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"city": "Oslo"}}
  ],
  "stop_reason": "tool_use"
}"#,
        ],
        failing: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 2048},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "thinking",
          "thinking": "The user wants the weather, so I look it up.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        },
        {
          "type": "tool_use",
          "id": "toolu_01",
          "name": "weather",
          "input": {"city": "Oslo"}
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "4 °C, rain"}
      ]
    }
  ]
}"#,
        mended: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 2048},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "thinking",
          "thinking": "The user wants the weather, so I look it up.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        },
        {"type": "redacted_thinking", "data": "EsYBCkYIBRgCKkBzZWNvbmRTaWduYXR1cmUh"},
        {
          "type": "tool_use",
          "id": "toolu_01",
          "name": "weather",
          "input": {"city": "Oslo"}
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "4 °C, rain"}
      ]
    }
  ]
}"#,
    },
};

/// The content before a thinking block changed after the block was issued.
pub(crate) static PREFIX_CHANGED: Rule = Rule {
    id: "anthropic/prefix-changed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::PREFIX_CHANGED.title,
    why: rule_text::PREFIX_CHANGED.why,
    provider_error: Some(
        "messages.….content.…: Invalid `signature` in `thinking` block. The block is bound to a different \
                     conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". \
                     That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header. …",
    ),
    breach: Some(ViolationKind::Invalid),
    fix: rule_text::PREFIX_CHANGED.fix,
    applies: claude::is_bound_claude,
    evidence: rule_text::PREFIX_CHANGED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-fable-5-1",
        prior: &[
            r#"{
  "model": "claude-fable-5-1",
  "max_tokens": 4096,
  "thinking": {
    "type": "adaptive",
    "block_binding": {"prefix_mismatch_behavior": "error"}
  },
  "system": "Today is Monday.",
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
            r#"{
  "type": "message",
  "role": "assistant",
  "model": "claude-fable-5-1",
  "content": [
    {
      "type": "thinking",
      "thinking": "The user wants the weather, so I look it up.",
      "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
    },
    {"type": "text", "text": "It rains."}
  ],
  "stop_reason": "end_turn"
}"#,
        ],
        failing: r#"{
  "model": "claude-fable-5-1",
  "max_tokens": 4096,
  "thinking": {
    "type": "adaptive",
    "block_binding": {"prefix_mismatch_behavior": "error"}
  },
  "system": "Today is Tuesday.",
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "thinking",
          "thinking": "The user wants the weather, so I look it up.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        },
        {"type": "text", "text": "It rains."}
      ]
    },
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
        mended: r#"{
  "model": "claude-fable-5-1",
  "max_tokens": 4096,
  "thinking": {
    "type": "adaptive",
    "block_binding": {"prefix_mismatch_behavior": "error"}
  },
  "system": "Today is Tuesday.",
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": [{"type": "text", "text": "It rains."}]},
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
    },
};

/// The model cannot read this thinking block and drops it.
pub(crate) static BLOCK_UNREADABLE: Rule = Rule {
    id: "anthropic/block-unreadable",
    wire: WIRE,
    severity: Severity::Degrade,
    title: rule_text::BLOCK_UNREADABLE.title,
    why: rule_text::BLOCK_UNREADABLE.why,
    provider_error: None,
    breach: None,
    fix: rule_text::BLOCK_UNREADABLE.fix,
    applies: claude::is_claude,
    evidence: rule_text::BLOCK_UNREADABLE.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-5",
        prior: &[
            r#"{
  "model": "claude-fable-5-1",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
            r#"{
  "type": "message",
  "role": "assistant",
  "model": "claude-fable-5-1",
  "content": [
    {
      "type": "thinking",
      "thinking": "The user wants the weather, so I look it up.",
      "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
    },
    {"type": "text", "text": "It rains."}
  ],
  "stop_reason": "end_turn"
}"#,
        ],
        failing: r#"{
  "model": "claude-opus-5",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "thinking",
          "thinking": "The user wants the weather, so I look it up.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        },
        {"type": "text", "text": "It rains."}
      ]
    },
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
        mended: r#"{
  "model": "claude-opus-5",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": [{"type": "text", "text": "It rains."}]},
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
    },
};

/// A sealed block other than a thought differs from the one that was issued.
pub(crate) static SEALED_CONTENT_CHANGED: Rule = Rule {
    id: "anthropic/sealed-content-changed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A sealed block differs from the one that was issued.",
    why: "Compactions are signed like thinking blocks; a changed one is rejected with its own \
          error code. Search results and citations also contain encrypted values, which the \
          documentation requires to be sent back unchanged; the effect of a change is unknown.",
    provider_error: Some("compaction_signature_invalid"),
    breach: None,
    fix: "Send the block back as received.",
    applies: claude::is_claude,
    evidence: &[
        Source {
            kind: SourceKind::Types,
            at: "anthropic 2.8.0, the error codes compaction_signature_invalid and compaction_content_mismatch",
        },
        Source {
            kind: SourceKind::Documentation,
            at: "https://platform.claude.com/docs/zh-CN/agents-and-tools/tool-use/web-search-tool",
        },
    ],
    example: Example {
        provider: "anthropic",
        model: "claude-opus-5-5",
        prior: &[
            r#"{
  "model": "claude-opus-5-5",
  "max_tokens": 4096,
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
            r#"{
  "type": "message",
  "role": "assistant",
  "model": "claude-opus-5-5",
  "content": [
    {
      "type": "compaction",
      "content": "They talked of the weather.",
      "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
    },
    {"type": "text", "text": "It rains."}
  ],
  "stop_reason": "end_turn"
}"#,
        ],
        failing: r#"{
  "model": "claude-opus-5-5",
  "max_tokens": 4096,
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "compaction",
          "content": "They talked of the weather.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0"
        },
        {"type": "text", "text": "It rains."}
      ]
    },
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
        mended: r#"{
  "model": "claude-opus-5-5",
  "max_tokens": 4096,
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "compaction",
          "content": "They talked of the weather.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        },
        {"type": "text", "text": "It rains."}
      ]
    },
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
    },
};

/// Earlier content has another member order.
pub(crate) static CACHE_PREFIX_BROKEN: Rule = Rule {
    id: "anthropic/cache-prefix-broken",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "Earlier content is serialised differently, so the prompt cache misses.",
    why: "Prompt caches compare the serialised text, not its meaning. Members of a tool or a \
          message in another order form another prefix, so everything after them is processed \
          again, slowly and at full price. Serialisers that use an unordered map cause this.",
    provider_error: None,
    breach: None,
    fix: "Send earlier content byte for byte as before, with its members in the same order.",
    // DeepSeek caches prefixes for all requests on all of its wires.
    applies: |target| claude::is_claude(target) || target.provider.name.starts_with("deepseek"),
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/teunlao/swift-ai-sdk/pull/39" },
        Source { kind: SourceKind::Issue, at: "https://github.com/openclaw/openclaw/pull/78747" },
        Source { kind: SourceKind::Issue, at: "https://github.com/Lakr233/FlowDown/issues/273" },
        Source {
            kind: SourceKind::Documentation,
            at: "https://api-docs.deepseek.com/guides/kv_cache/",
        },
    ],
    example: Example {
        provider: "anthropic",
        model: "claude-opus-4-6",
        prior: &[
            r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
            r#"{
  "type": "message",
  "role": "assistant",
  "model": "claude-opus-4-6",
  "content": [{"type": "text", "text": "It rains."}],
  "stop_reason": "end_turn"
}"#,
        ],
        failing: r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "tools": [{"input_schema": {"type": "object"}, "name": "weather"}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": [{"type": "text", "text": "It rains."}]},
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
        mended: r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": [{"type": "text", "text": "It rains."}]},
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
    },
};
