//! Rules about the settings of a request.

use throughline_core::Wire;

use crate::audit::{Example, Rule, Severity, Source, SourceKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// The model does not support this thinking mode.
pub(crate) static MODE_NOT_SUPPORTED: Rule = Rule {
    id: "bedrock/mode-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::MODE_NOT_SUPPORTED.title,
    why: rule_text::MODE_NOT_SUPPORTED.why,
    provider_error: Some(
        "The model returned the following errors: \"thinking.type.…\" is not supported for this model. Use \
                     \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.",
    ),
    breach: None,
    fix: rule_text::MODE_NOT_SUPPORTED.fix,
    applies: claude::is_claude,
    evidence: rule_text::MODE_NOT_SUPPORTED.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-4-7-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 2048}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};

/// The thinking budget is missing or too small.
pub(crate) static BUDGET_TOO_SMALL: Rule = Rule {
    id: "bedrock/budget-too-small",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::BUDGET_TOO_SMALL.title,
    why: rule_text::BUDGET_TOO_SMALL.why,
    provider_error: Some(
        "The model returned the following errors: thinking.enabled.budget_tokens: Input should be greater than or \
                     equal to 1024",
    ),
    breach: None,
    fix: rule_text::BUDGET_TOO_SMALL.fix,
    applies: claude::is_claude,
    evidence: rule_text::BUDGET_TOO_SMALL.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-sonnet-4-5-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 512}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 1024}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};

/// The thinking budget leaves no tokens for the answer.
pub(crate) static BUDGET_NOT_BELOW_MAX_TOKENS: Rule = Rule {
    id: "bedrock/budget-not-below-max-tokens",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::BUDGET_NOT_BELOW_MAX_TOKENS.title,
    why: rule_text::BUDGET_NOT_BELOW_MAX_TOKENS.why,
    provider_error: Some(
        "The model returned the following errors: `max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    breach: None,
    fix: "Raise `inferenceConfig.maxTokens` above the budget, or lower the budget.",
    applies: claude::is_claude,
    evidence: rule_text::BUDGET_NOT_BELOW_MAX_TOKENS.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-sonnet-4-5-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 4096}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 5120},
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 4096}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};

/// The model does not support a forced tool choice.
pub(crate) static FORCED_TOOL_CHOICE: Rule = Rule {
    id: "bedrock/forced-tool-choice",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::FORCED_TOOL_CHOICE.title,
    why: "A model that is forced to call a tool cannot think first about whether to call it. A \
          forced `toolChoice` is therefore rejected with a thinking budget, always by Opus 5.5, \
          Sonnet 5.5 and Fable 5.1, and on Bedrock also with adaptive thinking by models up to \
          4.7. Clients that force a tool for structured output fail when thinking is enabled.",
    provider_error: Some(
        "The model returned the following errors: Thinking may not be enabled when tool_choice forces tool use.",
    ),
    breach: None,
    fix: rule_text::FORCED_TOOL_CHOICE.fix,
    applies: claude::is_claude,
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/langchain-ai/langchain-aws/issues/1141",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/langchain-ai/langchain-aws/issues/1151",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/can1357/oh-my-pi/issues/12939" },
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
    ],
    "toolChoice": {"tool": {"name": "weather"}}
  },
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 2048}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "toolConfig": {
    "tools": [
      {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}
    ],
    "toolChoice": {"auto": {}}
  },
  "additionalModelRequestFields": {
    "thinking": {"type": "enabled", "budget_tokens": 2048}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};

/// The model does not support this effort.
pub(crate) static EFFORT_NOT_SUPPORTED: Rule = Rule {
    id: "bedrock/effort-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::EFFORT_NOT_SUPPORTED.title,
    why: rule_text::EFFORT_NOT_SUPPORTED.why,
    provider_error: Some(
        "The model returned the following errors: This model does not support effort level '…'. Supported levels: ….",
    ),
    breach: None,
    fix: rule_text::EFFORT_NOT_SUPPORTED.fix,
    applies: claude::is_claude,
    evidence: rule_text::EFFORT_NOT_SUPPORTED.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-4-6-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "xhigh"}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"}
  },
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};

/// The model does not support this sampling setting.
pub(crate) static SAMPLING_FIXED: Rule = Rule {
    id: "bedrock/sampling-fixed",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::SAMPLING_FIXED.title,
    why: rule_text::SAMPLING_FIXED.why,
    provider_error: Some(
        "The model returned the following errors: `…` is deprecated for this model.",
    ),
    breach: None,
    fix: "Omit `temperature`, `topP` and `top_k`.",
    applies: claude::is_claude,
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/DayuanJiang/next-ai-draw-io/issues/861",
        },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/pollinations/pollinations/pull/11319",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/theopenco/llmgateway/pull/1726" },
    ],
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-4-7-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096, "temperature": 0.2},
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
        mended: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "messages": [{"role": "user", "content": [{"text": "What is the weather in Oslo?"}]}]
}"#,
    },
};
