//! Rules about the replay of issued content.

use throughline_core::Wire;

use crate::audit::{Example, Rule, Severity, Source, SourceKind, ViolationKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// A thinking block differs from the one that was issued.
pub(crate) static THINKING_MODIFIED: Rule = Rule {
    id: "bedrock/thinking-modified",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::THINKING_MODIFIED.title,
    why: rule_text::THINKING_MODIFIED.why,
    provider_error: Some(
        "The model returned the following errors: messages.….content.…: `thinking` or `redacted_thinking` blocks in \
                     the latest assistant message cannot be modified. These blocks must remain as they were in the original \
                     response.",
    ),
    breach: Some(ViolationKind::Invalid),
    fix: rule_text::THINKING_MODIFIED.fix,
    applies: claude::is_claude,
    evidence: rule_text::THINKING_MODIFIED.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-4-6-v1:0",
        prior: &[
            r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ]
  },
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
            r#"{
  "output": {
    "message": {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants the weather, so I look it up.",
              "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
            }
          }
        },
        {
          "toolUse": {
            "toolUseId": "toolu_01",
            "name": "weather",
            "input": {"city": "Oslo"}
          }
        }
      ]
    }
  },
  "stopReason": "tool_use",
  "usage": {"inputTokens": 9, "outputTokens": 9, "totalTokens": 18}
}"#,
        ],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ]
  },
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants weather.",
              "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
            }
          }
        },
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
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
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
        },
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

/// Thinking of an open tool loop is missing.
pub(crate) static THINKING_DROPPED: Rule = Rule {
    id: "bedrock/thinking-dropped",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::THINKING_DROPPED.title,
    why: rule_text::THINKING_DROPPED.why,
    provider_error: Some(
        "The model returned the following errors: messages.….content.…: `thinking` or `redacted_thinking` blocks in \
                     the latest assistant message cannot be modified. These blocks must remain as they were in the original \
                     response.",
    ),
    breach: Some(ViolationKind::Missing),
    fix: rule_text::THINKING_DROPPED.fix,
    applies: claude::is_claude,
    evidence: rule_text::THINKING_DROPPED.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-sonnet-4-5-v1:0",
        prior: &[
            r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ]
  },
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 2048}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
            r#"{
  "output": {
    "message": {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants the weather, so I look it up.",
              "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
            }
          }
        },
        {
          "reasoningContent": {
            "redactedContent": "EsYBCkYIBRgCKkBzZWNvbmRTaWduYXR1cmUh"
          }
        },
        {
          "toolUse": {
            "toolUseId": "toolu_01",
            "name": "weather",
            "input": {"city": "Oslo"}
          }
        }
      ]
    }
  },
  "stopReason": "tool_use",
  "usage": {"inputTokens": 9, "outputTokens": 9, "totalTokens": 18}
}"#,
        ],
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
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants the weather, so I look it up.",
              "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
            }
          }
        },
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
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 2048}
  },
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
        },
        {
          "reasoningContent": {
            "redactedContent": "EsYBCkYIBRgCKkBzZWNvbmRTaWduYXR1cmUh"
          }
        },
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

/// The content before a thinking block changed after the block was issued.
pub(crate) static PREFIX_CHANGED: Rule = Rule {
    id: "bedrock/prefix-changed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::PREFIX_CHANGED.title,
    why: rule_text::PREFIX_CHANGED.why,
    provider_error: Some(
        "The model returned the following errors: messages.….content.…: Invalid `signature` in `thinking` block. The \
                     block is bound to a different conversation. Remove the block, or set \
                     `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires the \
                     `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header. …",
    ),
    breach: Some(ViolationKind::Invalid),
    fix: rule_text::PREFIX_CHANGED.fix,
    applies: claude::is_bound_claude,
    evidence: &[
        Source {
            kind: SourceKind::Documentation,
            at: "https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-thinking-block-binding.html",
        },
        Source {
            kind: SourceKind::Documentation,
            at: "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anomalyco/opencode/issues/48637",
        },
    ],
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-fable-5-1-v1:0",
        prior: &[
            r#"{
  "system": [{"text": "Today is Monday."}],
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {
      "type": "adaptive",
      "block_binding": {"prefix_mismatch_behavior": "error"}
    }
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
            r#"{
  "output": {
    "message": {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants the weather, so I look it up.",
              "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
            }
          }
        },
        {"text": "It rains."}
      ]
    }
  },
  "stopReason": "end_turn",
  "usage": {"inputTokens": 9, "outputTokens": 9, "totalTokens": 18}
}"#,
        ],
        failing: r#"{
  "system": [{"text": "Today is Tuesday."}],
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {
      "type": "adaptive",
      "block_binding": {"prefix_mismatch_behavior": "error"}
    }
  },
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
        },
        {"text": "It rains."}
      ]
    },
    {"role": "user", "content": [{"text": "And tomorrow?"}]}
  ]
}"#,
        mended: r#"{
  "system": [{"text": "Today is Tuesday."}],
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {
      "type": "adaptive",
      "block_binding": {"prefix_mismatch_behavior": "error"}
    }
  },
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {"role": "assistant", "content": [{"text": "It rains."}]},
    {"role": "user", "content": [{"text": "And tomorrow?"}]}
  ]
}"#,
    },
};

/// The model cannot read this thinking block and drops it.
pub(crate) static BLOCK_UNREADABLE: Rule = Rule {
    id: "bedrock/block-unreadable",
    wire: WIRE,
    severity: Severity::Degrade,
    title: rule_text::BLOCK_UNREADABLE.title,
    why: rule_text::BLOCK_UNREADABLE.why,
    provider_error: None,
    breach: None,
    fix: rule_text::BLOCK_UNREADABLE.fix,
    applies: claude::is_claude,
    evidence: &[Source {
        kind: SourceKind::Documentation,
        at: "https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-thinking-block-binding.html",
    }],
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-5-v1:0",
        prior: &[
            r#"{
  "modelId": "us.anthropic.claude-fable-5-1-v1:0",
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
            r#"{
  "output": {
    "message": {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants the weather, so I look it up.",
              "signature": "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl"
            }
          }
        },
        {"text": "It rains."}
      ]
    }
  },
  "stopReason": "end_turn",
  "usage": {"inputTokens": 9, "outputTokens": 9, "totalTokens": 18}
}"#,
        ],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
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
        },
        {"text": "It rains."}
      ]
    },
    {"role": "user", "content": [{"text": "And tomorrow?"}]}
  ]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {"role": "assistant", "content": [{"text": "It rains."}]},
    {"role": "user", "content": [{"text": "And tomorrow?"}]}
  ]
}"#,
    },
};
