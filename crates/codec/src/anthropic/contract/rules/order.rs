//! Rules about the order of blocks.

use throughline_core::Wire;

use crate::audit::{Example, Rule, Severity, ViolationKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// A tool loop with a thinking budget must begin with thinking.
pub(crate) static TOOL_LOOP_NEEDS_THINKING: Rule = Rule {
    id: "anthropic/tool-loop-needs-thinking",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::TOOL_LOOP_NEEDS_THINKING.title,
    why: rule_text::TOOL_LOOP_NEEDS_THINKING.why,
    provider_error: Some(
        "messages.….content.0.type: Expected `thinking` or `redacted_thinking`, but found `…`. When `thinking` is \
                     enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of \
                     `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid \
                     this requirement, disable `thinking`.",
    ),
    breach: Some(ViolationKind::Missing),
    fix: rule_text::TOOL_LOOP_NEEDS_THINKING.fix,
    applies: claude::is_claude,
    evidence: rule_text::TOOL_LOOP_NEEDS_THINKING.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        prior: &[],
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
  "thinking": {"type": "disabled"},
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
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

/// A tool call and its result are separated.
pub(crate) static TOOL_CALL_UNANSWERED: Rule = Rule {
    id: "anthropic/tool-call-unanswered",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::TOOL_CALL_UNANSWERED.title,
    why: rule_text::TOOL_CALL_UNANSWERED.why,
    provider_error: Some(
        "messages.…: `tool_use` ids were found without `tool_result` blocks immediately after: …. Each `tool_use` \
                     block must have a corresponding `tool_result` block in the next message.",
    ),
    breach: None,
    fix: rule_text::TOOL_CALL_UNANSWERED.fix,
    applies: claude::is_claude,
    evidence: rule_text::TOOL_CALL_UNANSWERED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        prior: &[],
        failing: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "tool_use",
          "id": "toolu_01",
          "name": "weather",
          "input": {"city": "Oslo"}
        },
        {
          "type": "tool_use",
          "id": "toolu_02",
          "name": "weather",
          "input": {"city": "Bergen"}
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
  "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
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

/// The model does not continue a trailing assistant message.
pub(crate) static PREFILL_REFUSED: Rule = Rule {
    id: "anthropic/prefill-refused",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::PREFILL_REFUSED.title,
    why: rule_text::PREFILL_REFUSED.why,
    provider_error: Some(
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    ),
    breach: None,
    fix: rule_text::PREFILL_REFUSED.fix,
    applies: claude::is_claude,
    evidence: rule_text::PREFILL_REFUSED.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-5",
        prior: &[],
        failing: r#"{
  "model": "claude-opus-5",
  "max_tokens": 4096,
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": [{"type": "text", "text": "The weather is"}]}
  ]
}"#,
        mended: r#"{
  "model": "claude-opus-5",
  "max_tokens": 4096,
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};

/// An assistant message ends with thinking.
pub(crate) static ENDS_IN_THINKING: Rule = Rule {
    id: "anthropic/ends-in-thinking",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::ENDS_IN_THINKING.title,
    why: rule_text::ENDS_IN_THINKING.why,
    provider_error: Some(
        "messages.…: The final block in an assistant message cannot be `thinking`.",
    ),
    breach: None,
    fix: rule_text::ENDS_IN_THINKING.fix,
    applies: claude::is_claude,
    evidence: rule_text::ENDS_IN_THINKING.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        prior: &[],
        failing: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {
          "type": "thinking",
          "thinking": "The user wants the weather, so I look it up.",
          "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
        }
      ]
    }
  ]
}"#,
        mended: r#"{
  "model": "claude-sonnet-4-5",
  "max_tokens": 4096,
  "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]
}"#,
    },
};
