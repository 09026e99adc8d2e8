//! Rules about thinking levels and budgets.

use super::{THINKING_PAGE, WIRE, is_known, issue};
use crate::{Example, Rule, Severity};

pub(in crate::gemini::contract) static LEVEL_NOT_SUPPORTED: Rule = Rule {
    id: "gemini/level-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not support this `thinkingLevel`.",
    why: "Gemini 3 introduced levels; earlier models accept a token budget and reject the field \
          itself. The supported levels differ: Gemini 3 Pro has two, later Pro models three, and \
          only some Flash models support `MINIMAL`. A settings page that offers one list for all \
          models therefore causes rejections.",
    provider_error: Some("Thinking level … is not supported for this model."),
    breach: None,
    fix: "Use a level that the model supports; before Gemini 3, use a `thinkingBudget`.",
    applies: is_known,
    evidence: &[
        THINKING_PAGE,
        issue("https://github.com/RooCodeInc/Roo-Code/issues/10700"),
        issue("https://github.com/heyhuynhgiabuu/proxypal/issues/170"),
        issue("https://github.com/vellum-ai/vellum-assistant/pull/32687"),
        issue("https://github.com/checkmarble/llmberjack/pull/14"),
    ],
    example: Example {
        provider: "gemini",
        model: "gemini-3-pro-preview",
        prior: &[],
        failing: r#"{
  "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
  "generationConfig": {"thinkingConfig": {"thinkingLevel": "MINIMAL"}}
}"#,
        mended: r#"{
  "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
  "generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}
}"#,
    },
};

pub(in crate::gemini::contract) static BUDGET_OUT_OF_RANGE: Rule = Rule {
    id: "gemini/budget-out-of-range",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not support a thinking budget of this size.",
    why: "Each Gemini 2.5 model has its own limits: Pro 128 to 32768, and thinking cannot be \
          disabled; Flash up to 24576, or 0 to disable; Flash-Lite 512 to 24576, or 0 to disable. \
          Budgets that are computed from the output limit, or kept while the model changes, can \
          be out of range.",
    provider_error: Some("The thinking budget (…) is invalid."),
    breach: None,
    fix: "Use a budget within the model's limits.",
    applies: is_known,
    evidence: &[THINKING_PAGE, issue("https://github.com/RooCodeInc/Roo-Code/issues/4399")],
    example: Example {
        provider: "gemini",
        model: "gemini-2.5-pro",
        prior: &[],
        failing: r#"{
  "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
  "generationConfig": {"thinkingConfig": {"thinkingBudget": 52428}}
}"#,
        mended: r#"{
  "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
  "generationConfig": {"thinkingConfig": {"thinkingBudget": 32768}}
}"#,
    },
};

pub(in crate::gemini::contract) static THOUGHTS_WITHOUT_THINKING: Rule = Rule {
    id: "gemini/thoughts-without-thinking",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "Thoughts cannot be included while thinking is disabled.",
    why: "`includeThoughts` requests summaries of the model's reasoning, and a budget of 0 \
          disables reasoning. Settings pages that treat the two settings independently send both.",
    provider_error: Some(
        "Unable to submit request because Thinking_config.include_thoughts is only enabled when thinking is \
                     enabled.",
    ),
    breach: None,
    fix: "Omit `includeThoughts`, or set a thinking budget.",
    applies: is_known,
    evidence: &[issue("https://github.com/lofcz/LLMTornado/pull/66")],
    example: Example {
        provider: "gemini",
        model: "gemini-2.5-flash",
        prior: &[],
        failing: r#"{
  "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
  "generationConfig": {"thinkingConfig": {"includeThoughts": true, "thinkingBudget": 0}}
}"#,
        mended: r#"{
  "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
  "generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}
}"#,
    },
};
