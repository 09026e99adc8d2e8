//! Rules about the settings of a request.

use throughline_core::Wire;

use crate::audit::{Example, Rule, Severity, Source, SourceKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// The model does not support this thinking mode.
pub(crate) static MODE_NOT_SUPPORTED: Rule = Rule {
    id: "anthropic/mode-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::MODE_NOT_SUPPORTED.title,
    why: rule_text::MODE_NOT_SUPPORTED.why,
    provider_error: Some(
        "\"thinking.type.…\" is not supported for this model. Use \"thinking.type.adaptive\" and \
                     \"output_config.effort\" to control thinking behavior.",
    ),
    breach: None,
    fix: rule_text::MODE_NOT_SUPPORTED.fix,
    applies: claude::is_claude,
    evidence: rule_text::MODE_NOT_SUPPORTED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-4-7",
        prior: &[],
        failing: r#"{
  "model": "claude-opus-4-7",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 2048},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-opus-4-7",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// The thinking budget is missing or too small.
pub(crate) static BUDGET_TOO_SMALL: Rule = Rule {
    id: "anthropic/budget-too-small",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::BUDGET_TOO_SMALL.title,
    why: rule_text::BUDGET_TOO_SMALL.why,
    provider_error: Some(
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    breach: None,
    fix: rule_text::BUDGET_TOO_SMALL.fix,
    applies: claude::is_claude,
    evidence: rule_text::BUDGET_TOO_SMALL.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        prior: &[],
        failing: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 512},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 1024},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// The thinking budget leaves no tokens for the answer.
pub(crate) static BUDGET_NOT_BELOW_MAX_TOKENS: Rule = Rule {
    id: "anthropic/budget-not-below-max-tokens",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::BUDGET_NOT_BELOW_MAX_TOKENS.title,
    why: rule_text::BUDGET_NOT_BELOW_MAX_TOKENS.why,
    provider_error: Some("`max_tokens` must be greater than `thinking.budget_tokens`."),
    breach: None,
    fix: rule_text::BUDGET_NOT_BELOW_MAX_TOKENS.fix,
    applies: claude::is_claude,
    evidence: rule_text::BUDGET_NOT_BELOW_MAX_TOKENS.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        prior: &[],
        failing: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 4096},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 5120,
  "thinking": {"type": "enabled", "budget_tokens": 4096},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// The model does not support a forced tool choice.
pub(crate) static FORCED_TOOL_CHOICE: Rule = Rule {
    id: "anthropic/forced-tool-choice",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::FORCED_TOOL_CHOICE.title,
    why: rule_text::FORCED_TOOL_CHOICE.why,
    provider_error: Some("Thinking may not be enabled when tool_choice forces tool use."),
    breach: None,
    fix: rule_text::FORCED_TOOL_CHOICE.fix,
    applies: claude::is_claude,
    evidence: rule_text::FORCED_TOOL_CHOICE.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        prior: &[],
        failing: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 2048},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "tool_choice": {"type": "tool", "name": "weather"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "thinking": {"type": "enabled", "budget_tokens": 2048},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "tool_choice": {"type": "auto"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// The model does not support this effort.
pub(crate) static EFFORT_NOT_SUPPORTED: Rule = Rule {
    id: "anthropic/effort-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::EFFORT_NOT_SUPPORTED.title,
    why: rule_text::EFFORT_NOT_SUPPORTED.why,
    provider_error: Some("This model does not support effort level '…'. Supported levels: …."),
    breach: None,
    fix: rule_text::EFFORT_NOT_SUPPORTED.fix,
    applies: claude::is_claude,
    evidence: rule_text::EFFORT_NOT_SUPPORTED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-4-6",
        prior: &[],
        failing: r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "output_config": {"effort": "xhigh"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "output_config": {"effort": "high"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// The model does not support this sampling setting.
pub(crate) static SAMPLING_FIXED: Rule = Rule {
    id: "anthropic/sampling-fixed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::SAMPLING_FIXED.title,
    why: rule_text::SAMPLING_FIXED.why,
    provider_error: Some("`…` is deprecated for this model."),
    breach: None,
    fix: rule_text::SAMPLING_FIXED.fix,
    applies: claude::is_claude,
    evidence: rule_text::SAMPLING_FIXED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-4-7",
        prior: &[],
        failing: r#"{
  "model": "claude-opus-4-7",
  "max_tokens": 4096,
  "temperature": 0.2,
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-opus-4-7",
  "max_tokens": 4096,
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// `block_binding` is sent without its beta.
pub(crate) static BINDING_NEEDS_BETA: Rule = Rule {
    id: "anthropic/binding-needs-beta",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "`block_binding` needs a beta header.",
    why: "`thinking.block_binding` is accepted only with the beta \
          `thinking-binding-controls-2026-08-01`. Without this value in the `anthropic-beta` \
          header, the API rejects it as an unknown member. Gateways that forward the body but \
          drop the header cause this.",
    provider_error: Some("thinking.….block_binding: Extra inputs are not permitted"),
    breach: None,
    fix: "Send `anthropic-beta: thinking-binding-controls-2026-08-01`, or omit `block_binding`.",
    applies: claude::is_claude,
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/Wei-Shaw/sub2api/pull/6677" },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anomalyco/opencode/issues/46729",
        },
        Source { kind: SourceKind::Types, at: "anthropic 2.8.0, the beta types of `thinking`" },
    ],
    example: Example {
        provider: "anthropic",
        model: "claude-fable-5-1",
        prior: &[],
        failing: r#"{
  "model": "claude-fable-5-1",
  "max_tokens": 4096,
  "thinking": {
    "type": "adaptive",
    "block_binding": {"prefix_mismatch_behavior": "drop_block"}
  },
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-fable-5-1",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// The request sets both `compaction` and `context_management`.
pub(crate) static COMPACTION_EXCLUSIVE: Rule = Rule {
    id: "anthropic/compaction-exclusive",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The request sets both `compaction` and `context_management`.",
    why: "Both settings rewrite long conversations for the model, so a request may contain only \
          one of them. Clients that set `context_management` for all requests fail when they also \
          set the newer `compaction`.",
    provider_error: None,
    breach: None,
    fix: "Keep one of the two settings and omit the other.",
    applies: claude::is_claude,
    evidence: &[Source {
        kind: SourceKind::Types,
        at: "anthropic 2.8.0, the beta types of compaction",
    }],
    example: Example {
        provider: "anthropic",
        model: "claude-opus-5-5",
        prior: &[],
        failing: r#"{
  "model": "claude-opus-5-5",
  "max_tokens": 4096,
  "compaction": {"type": "summarize"},
  "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
        mended: r#"{
  "model": "claude-opus-5-5",
  "max_tokens": 4096,
  "compaction": {"type": "summarize"},
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// The thinking setting changes within a tool loop.
pub(crate) static CONFIG_CHANGED_IN_LOOP: Rule = Rule {
    id: "anthropic/config-changed-in-loop",
    wire: WIRE,
    severity: Severity::Degrade,
    title: "The thinking setting changes within a tool loop.",
    why: "A tool loop is one assistant turn, and a turn has one thinking configuration. If it \
          changes within the loop, the thinking is lost until the next turn and the message cache \
          misses.",
    provider_error: None,
    breach: None,
    fix: "Change `thinking` between turns, not between a call and its result.",
    applies: claude::is_claude,
    evidence: &[Source {
        kind: SourceKind::Documentation,
        at: "https://platform.claude.com/docs/en/build-with-claude/extended-thinking",
    }],
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
  "thinking": {"type": "disabled"},
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
