//! Rules about the order of blocks.

use throughline_core::Wire;

use crate::audit::{Example, Rule, Severity, Source, SourceKind, ViolationKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// A tool loop with a thinking budget must begin with thinking.
pub(crate) static TOOL_LOOP_NEEDS_THINKING: Rule = Rule {
    id: "bedrock/tool-loop-needs-thinking",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::TOOL_LOOP_NEEDS_THINKING.title,
    why: rule_text::TOOL_LOOP_NEEDS_THINKING.why,
    provider_error: Some(
        "The model returned the following errors: messages.….content.0.type: Expected `thinking` or \
                     `redacted_thinking`, but found `…`. When `thinking` is enabled, a final `assistant` message must start with \
                     a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you \
                     include thinking blocks from previous turns. To avoid this requirement, disable `thinking`.",
    ),
    breach: Some(ViolationKind::Missing),
    fix: rule_text::TOOL_LOOP_NEEDS_THINKING.fix,
    applies: claude::is_claude,
    evidence: rule_text::TOOL_LOOP_NEEDS_THINKING.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-sonnet-4-5-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ]
  },
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 2048}
  },
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "toolUse": {
            "toolUseId": "toolu_01",
            "name": "weather",
            "input": {"city": "Oslo"}
          }
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"toolResult": {"toolUseId": "toolu_01", "content": [{"text": "4 °C, rain"}]}}
      ]
    }
  ]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ]
  },
  "additionalModelRequestFields": {"thinking": {"type": "disabled"}},
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "toolUse": {
            "toolUseId": "toolu_01",
            "name": "weather",
            "input": {"city": "Oslo"}
          }
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"toolResult": {"toolUseId": "toolu_01", "content": [{"text": "4 °C, rain"}]}}
      ]
    }
  ]
}"#,
    },
};

/// A tool call and its result are separated.
pub(crate) static TOOL_CALL_UNANSWERED: Rule = Rule {
    id: "bedrock/tool-call-unanswered",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::TOOL_CALL_UNANSWERED.title,
    why: "Every `toolUse` block must be answered by a `toolResult` with its id in the next \
          message, and every result needs such a call. Compaction and sliding windows separate \
          the two, an aborted tool leaves its call unanswered, and clients that spread the \
          results of parallel calls over several messages leave some unanswered too.",
    provider_error: Some(
        "Expected toolResult blocks at messages.….content for the following Ids: …",
    ),
    breach: None,
    fix: rule_text::TOOL_CALL_UNANSWERED.fix,
    applies: |_| true,
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/agno-agi/agno/issues/6698" },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/zeroclaw-labs/zeroclaw/pull/1476",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/Just-Curieous/Curie/issues/16" },
    ],
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-sonnet-4-5-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ]
  },
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "toolUse": {
            "toolUseId": "toolu_01",
            "name": "weather",
            "input": {"city": "Oslo"}
          }
        },
        {
          "toolUse": {
            "toolUseId": "toolu_02",
            "name": "weather",
            "input": {"city": "Bergen"}
          }
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"toolResult": {"toolUseId": "toolu_01", "content": [{"text": "4 °C, rain"}]}}
      ]
    }
  ]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ]
  },
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "toolUse": {
            "toolUseId": "toolu_01",
            "name": "weather",
            "input": {"city": "Oslo"}
          }
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {"toolResult": {"toolUseId": "toolu_01", "content": [{"text": "4 °C, rain"}]}}
      ]
    }
  ]
}"#,
    },
};

/// The model does not continue a trailing assistant message.
pub(crate) static PREFILL_REFUSED: Rule = Rule {
    id: "bedrock/prefill-refused",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::PREFILL_REFUSED.title,
    why: rule_text::PREFILL_REFUSED.why,
    provider_error: Some(
        "The model returned the following errors: This model does not support assistant message prefill. The \
                     conversation must end with a user message.",
    ),
    breach: None,
    fix: rule_text::PREFILL_REFUSED.fix,
    applies: claude::is_claude,
    evidence: rule_text::PREFILL_REFUSED.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-5-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {"role": "assistant", "content": [{"text": "The weather is"}]}
  ]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};

/// An assistant message ends with thinking.
pub(crate) static ENDS_IN_THINKING: Rule = Rule {
    id: "bedrock/ends-in-thinking",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::ENDS_IN_THINKING.title,
    why: rule_text::ENDS_IN_THINKING.why,
    provider_error: Some(
        "The model returned the following errors: messages.…: The final block in an assistant message cannot be \
                     `thinking`.",
    ),
    breach: None,
    fix: rule_text::ENDS_IN_THINKING.fix,
    applies: claude::is_claude,
    evidence: rule_text::ENDS_IN_THINKING.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-sonnet-4-5-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants the weather, so I look it up.",
              "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
            }
          }
        }
      ]
    }
  ]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};
