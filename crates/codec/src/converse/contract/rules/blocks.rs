//! Rules about single blocks that need no earlier exchanges.

use throughline_core::{Target, Wire};

use crate::audit::{Example, Rule, Severity, Source, SourceKind, ViolationKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// A thinking block has no signature.
pub(crate) static SIGNATURE_MISSING: Rule = Rule {
    id: "bedrock/signature-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::SIGNATURE_MISSING.title,
    why: rule_text::SIGNATURE_MISSING.why,
    provider_error: Some(
        "The model returned the following errors: messages.….content.….thinking.signature: Field required",
    ),
    breach: Some(ViolationKind::Unsigned),
    fix: rule_text::SIGNATURE_MISSING.fix,
    applies: claude::is_claude,
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/langchain-ai/langchain-aws/issues/408",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/can1357/oh-my-pi/pull/10486" },
        Source {
            kind: SourceKind::Types,
            at: "botocore 1.44.0, bedrock-runtime, ReasoningTextBlock",
        },
    ],
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-4-6-v1:0",
        prior: &[],
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
            "reasoningText": {"text": "The user wants the weather, so I look it up."}
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

/// The signature of a thinking block is invalid.
pub(crate) static SIGNATURE_INVALID: Rule = Rule {
    id: "bedrock/signature-invalid",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::SIGNATURE_INVALID.title,
    why: rule_text::SIGNATURE_INVALID.why,
    provider_error: Some(
        "The model returned the following errors: messages.….content.…: Invalid `signature` in `thinking` block",
    ),
    breach: Some(ViolationKind::Invalid),
    fix: rule_text::SIGNATURE_INVALID.fix,
    applies: claude::is_claude,
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/maximhq/bifrost/pull/6942" },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/anthropics/anthropic-sdk-python/issues/1598",
        },
    ],
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-4-6-v1:0",
        prior: &[],
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
              "signature": ""
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

/// A thought is sent as plain text.
pub(crate) static THOUGHT_AS_TEXT: Rule = Rule {
    id: "bedrock/thought-as-text",
    wire: WIRE,
    severity: Severity::Degrade,
    title: rule_text::THOUGHT_AS_TEXT.title,
    why: rule_text::THOUGHT_AS_TEXT.why,
    provider_error: None,
    breach: None,
    fix: rule_text::THOUGHT_AS_TEXT.fix,
    applies: claude::is_claude,
    evidence: rule_text::THOUGHT_AS_TEXT.evidence,
    example: Example {
        provider: "bedrock",
        model: "us.anthropic.claude-opus-5-v1:0",
        prior: &[],
        failing: r#"{
  "inferenceConfig": {"maxTokens": 4096},
  "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {"text": "<think>The user wants the weather, so I look it up.</think>"},
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

/// A text block is blank.
pub(crate) static BLANK_TEXT: Rule = Rule {
    id: "bedrock/blank-text",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A text block is blank.",
    why: "Converse rejects texts that contain only white space, in every message and for every \
          model. Typical sources are a turn that only called a tool and an image sent without \
          text.",
    provider_error: Some(
        "The text field in the ContentBlock object at messages.….content.… is blank. Add text to the text field, and \
                     try again.",
    ),
    breach: None,
    fix: "Omit the block, or add text.",
    applies: |_| true,
    evidence: &[
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/OpenHands/OpenHands/issues/5722",
        },
        Source { kind: SourceKind::Issue, at: "https://github.com/LibreChat-AI/agents/pull/501" },
        Source {
            kind: SourceKind::Issue,
            at: "https://github.com/NousResearch/hermes-agent/pull/63983",
        },
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
        {"text": ""},
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

/// Reasoning is sent with an empty signature to a model without signatures.
pub(crate) static EMPTY_SIGNATURE: Rule = Rule {
    id: "bedrock/empty-signature",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Reasoning is sent with an empty signature to a model without signatures.",
    why: "Nova and MiniMax do not sign their reasoning. An empty `signature` member is rejected, \
          because these models do not support the field. Clients that add missing members, or \
          echo the output of MiniMax, cause this.",
    provider_error: Some(
        "This model doesn't support the reasoningContent.reasoningText.signature field",
    ),
    breach: None,
    fix: "Omit the `signature` member.",
    applies: rejects_empty_signature,
    evidence: &[
        Source { kind: SourceKind::Issue, at: "https://github.com/maximhq/bifrost/pull/4528" },
        Source { kind: SourceKind::Issue, at: "https://github.com/maximhq/bifrost/pull/6942" },
    ],
    example: Example {
        provider: "bedrock",
        model: "us.amazon.nova-2-lite-v1:0",
        prior: &[],
        failing: r#"{
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {
              "text": "The user wants the weather, so I look it up.",
              "signature": ""
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
  "messages": [
    {"role": "user", "content": [{"text": "What is the weather in Oslo?"}]},
    {
      "role": "assistant",
      "content": [
        {
          "reasoningContent": {
            "reasoningText": {"text": "The user wants the weather, so I look it up."}
          }
        },
        {"text": "It rains."}
      ]
    },
    {"role": "user", "content": [{"text": "And tomorrow?"}]}
  ]
}"#,
    },
};

/// Returns whether the model has no signatures and rejects an empty one.
fn rejects_empty_signature(target: &Target) -> bool {
    let note = target.profile.notes.get("empty-signature");
    note.is_some_and(|note| note == "refused")
}
