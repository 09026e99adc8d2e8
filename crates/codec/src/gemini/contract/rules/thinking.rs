//! Rules about levels and budgets of thinking.

use super::{THINKING_PAGE, WIRE, is_known, issue};
use crate::{Example, Rule, Severity};

pub(in crate::gemini::contract) static LEVEL_NOT_SUPPORTED: Rule = Rule {
    id: "gemini/level-not-supported",
    wire: WIRE,
    severity: Severity::Refuse,
    title: "The model does not take this `thinkingLevel`.",
    why: "Levels came with Gemini 3; earlier models take a budget of tokens and refuse the field itself. Among those \
          that have levels the choice differs: Gemini 3 Pro has two, later Pro models three, and `MINIMAL` is for \
          some Flash models only. A level that a settings page offers for all of them is refused by some.",
    provider_error: Some("Thinking level … is not supported for this model."),
    breach: None,
    fix: "Ask for a level that the model takes; before Gemini 3, ask for a `thinkingBudget`.",
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
    title: "The model does not take a thinking budget of this size.",
    why: "Each Gemini 2.5 model has its own limits: Pro 128 to 32768 and no way to switch thinking off, Flash up to \
          24576 and 0 for off, Flash-Lite 512 to 24576 and 0 for off. Budgets that are computed from the length of \
          the answer, or kept while the model is changed, fall outside.",
    provider_error: Some("The thinking budget (…) is invalid."),
    breach: None,
    fix: "Ask for a budget within the model's limits.",
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
    title: "Thoughts cannot be shown where thinking is switched off.",
    why: "`includeThoughts` asks for summaries of what the model thinks, and a budget of 0 tells it not to. Settings \
          pages that keep the two apart send both.",
    provider_error: Some(
        "Unable to submit request because Thinking_config.include_thoughts is only enabled when thinking is \
                     enabled.",
    ),
    breach: None,
    fix: "Leave `includeThoughts` out, or give the model a budget.",
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
