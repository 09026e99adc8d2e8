//! Rules about what comes back of what was issued.

use throughline_core::Wire;

use crate::audit::{Breach, Example, Rule, Severity, Source, SourceKind};
use crate::claude::{self, lore};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// A thinking block is not as it was issued.
pub(crate) static THINKING_MODIFIED: Rule = Rule {
    id: "anthropic/thinking-modified",
    wire: WIRE,
    severity: Severity::Refuse,
    title: lore::THINKING_MODIFIED.title,
    why: lore::THINKING_MODIFIED.why,
    provider_error: Some(
        "messages.….content.…: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be \
                     modified. These blocks must remain as they were in the original response.",
    ),
    breach: Some(Breach::Invalid),
    fix: lore::THINKING_MODIFIED.fix,
    applies: claude::is_claude,
    evidence: lore::THINKING_MODIFIED.evidence,
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

/// Thinking of an open tool loop is gone.
pub(crate) static THINKING_DROPPED: Rule = Rule {
    id: "anthropic/thinking-dropped",
    wire: WIRE,
    severity: Severity::Refuse,
    title: lore::THINKING_DROPPED.title,
    why: lore::THINKING_DROPPED.why,
    provider_error: Some(
        "messages.….content.…: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be \
                     modified. These blocks must remain as they were in the original response.",
    ),
    breach: Some(Breach::Missing),
    fix: lore::THINKING_DROPPED.fix,
    applies: claude::is_claude,
    evidence: lore::THINKING_DROPPED.evidence,
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

/// What stood before a thinking block has changed since it was issued.
pub(crate) static PREFIX_CHANGED: Rule = Rule {
    id: "anthropic/prefix-changed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: lore::PREFIX_CHANGED.title,
    why: lore::PREFIX_CHANGED.why,
    provider_error: Some(
        "messages.….content.…: Invalid `signature` in `thinking` block. The block is bound to a different \
                     conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". \
                     That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header. …",
    ),
    breach: Some(Breach::Invalid),
    fix: lore::PREFIX_CHANGED.fix,
    applies: claude::is_bound_claude,
    evidence: lore::PREFIX_CHANGED.evidence,
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
    title: lore::BLOCK_UNREADABLE.title,
    why: lore::BLOCK_UNREADABLE.why,
    provider_error: None,
    breach: None,
    fix: lore::BLOCK_UNREADABLE.fix,
    applies: claude::is_claude,
    evidence: lore::BLOCK_UNREADABLE.evidence,
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

/// A sealed block that is no thought is not as it was issued.
pub(crate) static SEALED_CONTENT_CHANGED: Rule = Rule {
    id: "anthropic/sealed-content-changed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A sealed block is not as it was issued.",
    why: "Compactions are signed as thoughts are: one that was changed is refused with an error code of its own. \
          Search results and citations carry encrypted values too, which the documentation asks to pass back as they \
          came; what happens otherwise is not known.",
    provider_error: Some("compaction_signature_invalid"),
    breach: None,
    fix: "Send the block back as it was received.",
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

/// What was sent before is written in another order.
pub(crate) static CACHE_PREFIX_BROKEN: Rule = Rule {
    id: "anthropic/cache-prefix-broken",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "What was sent before is written differently, so the prompt cache misses.",
    why: "Prompt caches go by what was written, not by what it means. Members of a tool or a message that come in \
          another order than last time are another prefix, so everything behind them is read anew, slowly and at full \
          price. Serialisers that go through an unordered map bring it about.",
    provider_error: None,
    breach: None,
    fix: "Send what was sent before byte for byte, with its members in the same order.",
    // DeepSeek caches beginnings for everybody, on whichever of its wires.
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
