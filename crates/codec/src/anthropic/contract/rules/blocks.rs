//! Rules about single blocks that need no earlier exchanges.

use throughline_core::Wire;

use crate::audit::{Example, Rule, Severity, Source, SourceKind, ViolationKind};
use crate::claude::{self, rule_text};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// A thinking block has no signature.
pub(crate) static SIGNATURE_MISSING: Rule = Rule {
    id: "anthropic/signature-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::SIGNATURE_MISSING.title,
    why: rule_text::SIGNATURE_MISSING.why,
    provider_error: Some("messages.….content.….thinking.signature: Field required"),
    breach: Some(ViolationKind::Unsigned),
    fix: rule_text::SIGNATURE_MISSING.fix,
    applies: claude::is_claude,
    evidence: rule_text::SIGNATURE_MISSING.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-4-6",
        prior: &[],
        failing: r#"{
  "model": "claude-opus-4-6",
  "max_tokens": 4096,
  "thinking": {"type": "adaptive"},
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {"type": "thinking", "thinking": "The user wants the weather, so I look it up."},
        {"type": "text", "text": "It rains."}
      ]
    },
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
        mended: r#"{
  "model": "claude-opus-4-6",
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

/// The signature of a thinking block is invalid.
pub(crate) static SIGNATURE_INVALID: Rule = Rule {
    id: "anthropic/signature-invalid",
    wire: WIRE,
    severity: Severity::Refuse,
    title: rule_text::SIGNATURE_INVALID.title,
    why: rule_text::SIGNATURE_INVALID.why,
    provider_error: Some("messages.….content.…: Invalid `signature` in `thinking` block"),
    breach: Some(ViolationKind::Invalid),
    fix: rule_text::SIGNATURE_INVALID.fix,
    applies: claude::is_claude,
    evidence: rule_text::SIGNATURE_INVALID.evidence,
    example: Example {
        provider: "anthropic",
        model: "claude-opus-4-6",
        prior: &[],
        failing: r#"{
  "model": "claude-opus-4-6",
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
          "signature": ""
        },
        {"type": "text", "text": "It rains."}
      ]
    },
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
        mended: r#"{
  "model": "claude-opus-4-6",
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

/// A thought is sent as plain text.
pub(crate) static THOUGHT_AS_TEXT: Rule = Rule {
    id: "anthropic/thought-as-text",
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
        provider: "anthropic",
        model: "claude-opus-5",
        prior: &[],
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
          "type": "text",
          "text": "<think>The user wants the weather, so I look it up.</think>"
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

/// A compaction block has an empty text.
pub(crate) static COMPACTION_BLOCK_EMPTY: Rule = Rule {
    id: "anthropic/compaction-block-empty",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "A compaction block has an empty text.",
    why: "A `compaction` block replaces the messages before it and must be sent back as received: \
          with its content, or with `null` if the compaction failed. An empty text is neither.",
    provider_error: None,
    breach: None,
    fix: "Send the block back as received, or omit it.",
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
  "messages": [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
      "role": "assistant",
      "content": [
        {"type": "compaction", "content": ""},
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
    {"role": "assistant", "content": [{"type": "text", "text": "It rains."}]},
    {"role": "user", "content": "And tomorrow?"}
  ]
}"#,
    },
};
