//! Rules about single blocks, whatever came before.

use throughline_core::Wire;

use crate::audit::{Breach, Example, Rule, Severity, Source, SourceKind};
use crate::claude::{self, lore};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// A thinking block has no signature.
pub(crate) static SIGNATURE_MISSING: Rule = Rule {
    id: "anthropic/signature-missing",
    wire: WIRE,
    severity: Severity::Refuse,
    title: lore::SIGNATURE_MISSING.title,
    why: lore::SIGNATURE_MISSING.why,
    provider_error: Some("messages.….content.….thinking.signature: Field required"),
    breach: Some(Breach::Unsigned),
    fix: lore::SIGNATURE_MISSING.fix,
    applies: claude::is_claude,
    evidence: lore::SIGNATURE_MISSING.evidence,
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

/// The signature of a thinking block does not verify.
pub(crate) static SIGNATURE_INVALID: Rule = Rule {
    id: "anthropic/signature-invalid",
    wire: WIRE,
    severity: Severity::Refuse,
    title: lore::SIGNATURE_INVALID.title,
    why: lore::SIGNATURE_INVALID.why,
    provider_error: Some("messages.….content.…: Invalid `signature` in `thinking` block"),
    breach: Some(Breach::Invalid),
    fix: lore::SIGNATURE_INVALID.fix,
    applies: claude::is_claude,
    evidence: lore::SIGNATURE_INVALID.evidence,
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

/// A thought is said aloud.
pub(crate) static THOUGHT_AS_TEXT: Rule = Rule {
    id: "anthropic/thought-as-text",
    wire: WIRE,
    severity: Severity::Degrade,
    title: lore::THOUGHT_AS_TEXT.title,
    why: lore::THOUGHT_AS_TEXT.why,
    provider_error: None,
    breach: None,
    fix: lore::THOUGHT_AS_TEXT.fix,
    applies: claude::is_claude,
    evidence: lore::THOUGHT_AS_TEXT.evidence,
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
    why: "A `compaction` block stands for the messages before it, and goes back as it came: with its content, or with \
          `null` where the compaction failed. The empty text is neither.",
    provider_error: None,
    breach: None,
    fix: "Send the block back as it was received, or leave it out.",
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
