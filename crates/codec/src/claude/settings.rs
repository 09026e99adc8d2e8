//! Checks the thinking, effort, tool choice and sampling settings.

use throughline_core::{ForcedTools, Mode, ToolChoice};
use throughline_json::{self as json, Json, Node};

use crate::audit::{Edit, Finding, Fix, Severity};
use crate::claude::fixes::thinking_object;
use crate::claude::{self, Inspection, MIN_ANSWER_TOKENS, MIN_BUDGET, ThinkingMode};
use crate::effort::{self, quoted_list};

/// With this beta the budget covers the whole turn and may exceed `max_tokens`.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// The error for a temperature with a manual budget.
const TEMPERATURE_WITH_BUDGET: &str = "`temperature` may only be set to 1 when thinking is enabled. Please consult our \
     documentation at https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking\
     #important-considerations-when-using-extended-thinking";

/// The error for a temperature with adaptive thinking.
const TEMPERATURE_WITH_ADAPTIVE: &str = "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. \
     Please consult our documentation at https://platform.claude.com/docs/en/build-with-claude/extended-thinking";

impl Inspection<'_, '_, '_> {
    pub(super) fn check_settings(&mut self) {
        if self.check_mode() && self.view.knobs.thinking_mode() == ThinkingMode::Manual {
            self.check_budget();
        }
        self.check_tool_choice();
        self.check_efforts();
        self.check_sampling();
    }

    /// Checks whether the model supports the requested thinking mode.
    fn check_mode(&mut self) -> bool {
        let profile = self.case.profile();
        let Some(thinking) = self.view.knobs.thinking else { return true };
        let Some(kind) = thinking.get("type") else { return true };
        let word = kind.text().unwrap_or_default();
        // An unknown mode may be new, so it is not reported.
        let Some(mode) = parse_mode(&word) else { return true };
        if profile.modes.is_empty() || profile.supports_mode(mode) {
            return self.check_effort_for_mode(mode);
        }
        // The error texts for the other modes are unknown.
        let error = match mode {
            Mode::Adaptive => Some("adaptive thinking is not supported on this model".to_owned()),
            Mode::Enabled | Mode::Disabled if profile.supports_mode(Mode::Adaptive) => {
                Some(format!(
                    "\"thinking.type.{word}\" is not supported for this model. Use \"thinking.type.adaptive\" and \
                 \"output_config.effort\" to control thinking behavior."
                ))
            }
            Mode::Enabled | Mode::Disabled | Mode::BetweenTools => None,
        };
        let taken: Vec<&str> = profile.modes.iter().map(|mode| word_of(*mode)).collect();
        let message = format!("{} supports {}, not `{word}`", profile.name, quoted_list(&taken));
        let finding = Finding::at(self.book.mode_not_supported, kind, message)
            .with_auto_fix(self.nearest_mode_fix(thinking, mode));
        self.add(match error {
            Some(error) => finding.with_provider_error(self.provider_error(error)),
            None => finding.without_provider_error(),
        });
        false
    }

    /// Returns a fix that selects the nearest supported mode.
    fn nearest_mode_fix(&self, thinking: Node<'_>, mode: Mode) -> Fix {
        let profile = self.case.profile();
        let takes = |mode: Mode| profile.supports_mode(mode);
        let whole = |kind: &str| {
            let what = format!("uses `{kind}` thinking instead");
            Fix::new(what, [Edit::Replace(thinking.range(), thinking_object(kind))])
        };
        match mode {
            Mode::Enabled | Mode::BetweenTools if takes(Mode::Adaptive) => {
                let kind = Edit::Set(thinking.range(), "type".to_owned(), json::string("adaptive"));
                let mut edits = vec![kind];
                edits.extend(thinking.get("budget_tokens").map(|b| Edit::Remove(b.range())));
                Fix::new("uses `adaptive` thinking instead", edits)
            }
            Mode::Adaptive if takes(Mode::Enabled) => {
                let effort = self.view.knobs.efforts.first().and_then(|effort| effort.text());
                let budget = effort::budget(effort.as_deref()).max(MIN_BUDGET);
                let manual = json::object(|o| {
                    o.string("type", "enabled").number("budget_tokens", budget);
                });
                let what = format!("uses thinking with a budget of {budget} tokens instead");
                Fix::new(what, [Edit::Replace(thinking.range(), manual)])
            }
            Mode::Disabled if takes(Mode::BetweenTools) => whole("between_tools"),
            Mode::BetweenTools if takes(Mode::Disabled) => whole("disabled"),
            Mode::Enabled | Mode::Adaptive | Mode::Disabled | Mode::BetweenTools => {
                Fix::new("omits `thinking`", [Edit::Remove(thinking.range())])
            }
        }
    }

    /// Checks modes that are supported only up to some effort.
    fn check_effort_for_mode(&mut self, mode: Mode) -> bool {
        let note = match mode {
            Mode::Disabled => "disabled-up-to",
            Mode::BetweenTools => "between-tools-up-to",
            Mode::Enabled | Mode::Adaptive => return true,
        };
        let profile = self.case.profile();
        let (Some(most), Some(effort)) = (profile.notes.get(note), self.view.knobs.efforts.first())
        else {
            return true;
        };
        let word = effort.text().unwrap_or_default();
        if effort::effort_rank(&word) <= effort::effort_rank(most) {
            return true;
        }
        let message = format!(
            "with `{}` thinking, {} supports efforts up to `{most}`",
            word_of(mode),
            profile.name,
        );
        let fix = Fix::new(
            format!("uses effort `{most}` instead"),
            [Edit::Replace(effort.range(), json::string(most))],
        );
        let finding = Finding::at(self.book.mode_not_supported, *effort, message)
            .with_fix(format!("Use effort `{most}` or less, or omit `thinking`."))
            .with_auto_fix(fix);
        self.add(match mode {
            Mode::Disabled => finding.with_provider_error(self.provider_error(format!(
                "output_config.effort '{word}' is not supported when thinking is disabled on this model. Use effort \
                 '{most}' or below, or enable thinking."
            ))),
            Mode::Enabled | Mode::Adaptive | Mode::BetweenTools => finding.without_provider_error(),
        });
        false
    }

    fn check_budget(&mut self) {
        let knobs = &self.view.knobs;
        let Some(thinking) = knobs.thinking else { return };
        let least = self.case.profile().budget.map_or(MIN_BUDGET, |budget| budget.min);
        let path = "thinking.enabled.budget_tokens";
        let set = |budget: u64| {
            let edit = Edit::Set(thinking.range(), "budget_tokens".to_owned(), Json::from(budget));
            Fix::new(format!("sets a budget of {budget} tokens"), [edit])
        };
        let Some(budget) = thinking.present("budget_tokens") else {
            let error = self.provider_error(format!("{path}: Field required"));
            let message = "`budget_tokens` is missing";
            let finding = Finding::at(self.book.budget_too_small, thinking, message);
            self.add(finding.with_provider_error(error).with_auto_fix(set(least)));
            return;
        };
        let Some(tokens) = budget.u64() else { return };
        if tokens < least {
            let error = self.provider_error(format!(
                "{path}: Input should be greater than or equal to {least}"
            ));
            let message = format!("{tokens} is below the minimum of {least}");
            let finding = Finding::at(self.book.budget_too_small, budget, message);
            self.add(finding.with_provider_error(error).with_auto_fix(set(least)));
            return;
        }
        let Some((place, most)) = knobs.max_tokens.and_then(|node| Some((node, node.u64()?)))
        else {
            return;
        };
        let is_interleaved = knobs.has_tools && knobs.has_beta(INTERLEAVED) == Some(true);
        if tokens < most || is_interleaved {
            return;
        }
        let may_be_interleaved = knobs.has_tools && knobs.has_beta(INTERLEAVED).is_none();
        let severity = if may_be_interleaved { Severity::Note } else { Severity::Refuse };
        let error =
            self.provider_error("`max_tokens` must be greater than `thinking.budget_tokens`.");
        let room = tokens.saturating_add(MIN_ANSWER_TOKENS);
        let fix = Fix::new(
            format!("raises the maximum number of tokens to {room}"),
            [Edit::Replace(place.range(), Json::from(room))],
        );
        let message = format!("thinking and answer together have only {most} tokens");
        let finding = Finding::at(self.book.budget_not_below_max_tokens, budget, message);
        self.add(finding.with_severity(severity).with_provider_error(error).with_auto_fix(fix));
    }

    fn check_tool_choice(&mut self) {
        let knobs = &self.view.knobs;
        let Some(choice) = knobs.choice.filter(|_| knobs.is_forced) else { return };
        let profile = self.case.profile();
        let rule = (self.book.forced_tools)(profile);
        if !claude::rejects_tool_choice(profile, rule, knobs.thinking_mode(), &ToolChoice::Any) {
            return;
        }
        let (error, message) = match rule {
            ForcedTools::Refused => (
                "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
                format!("{} never supports a forced tool choice", profile.name),
            ),
            ForcedTools::Allowed
            | ForcedTools::RefusedWithBudget
            | ForcedTools::RefusedWhileThinking => (
                "Thinking may not be enabled when tool_choice forces tool use.",
                format!("{} does not support a forced tool choice while thinking", profile.name),
            ),
        };
        let error = self.provider_error(error);
        let free = Edit::Replace(choice.range(), (self.book.free_choice)(choice));
        let fix = Fix::new("lets the model choose its tools", [free]);
        let finding = Finding::at(self.book.forced_tool_choice, choice, message);
        self.add(finding.with_provider_error(error).with_auto_fix(fix));
    }

    fn check_efforts(&mut self) {
        let view = self.view;
        let profile = self.case.profile();
        // An unlisted model may support unlisted efforts.
        if claude::is_unlisted(profile) {
            return;
        }
        for effort in &view.knobs.efforts {
            let word = effort.text().unwrap_or_default();
            if profile.efforts.iter().any(|taken| **taken == *word) {
                continue;
            }
            let error = if profile.efforts.is_empty() {
                "This model does not support the effort parameter.".to_owned()
            } else {
                let mut levels: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
                levels.sort_unstable();
                let levels = levels.join(", ");
                format!(
                    "This model does not support effort level '{word}'. Supported levels: {levels}."
                )
            };
            let error = self.provider_error(error);
            let fix = match effort::closest(&word, &profile.efforts) {
                Some(near) => Fix::new(
                    format!("uses effort `{near}` instead"),
                    [Edit::Replace(effort.range(), json::string(near))],
                ),
                None => {
                    // Also remove the parent object if it contains nothing else.
                    let holder = view.knobs.output_config.filter(|config| {
                        let place = config.range();
                        config.members().count() == 1 && place.contains(&effort.range().start)
                    });
                    let gone = holder.unwrap_or(*effort).range();
                    Fix::new("omits the effort", [Edit::Remove(gone)])
                }
            };
            let message = if profile.efforts.is_empty() {
                format!("{} has no effort setting", profile.name)
            } else {
                let taken: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
                format!("{} supports {}, not `{word}`", profile.name, quoted_list(&taken))
            };
            let finding = Finding::at(self.book.effort_not_supported, *effort, message);
            self.add(finding.with_provider_error(error).with_auto_fix(fix));
        }
    }

    fn check_sampling(&mut self) {
        let view = self.view;
        let profile = self.case.profile();
        let asking = view.knobs.thinking_mode();
        for (name, value) in &view.knobs.sampling {
            if *name != "top_k" && is_one(*value) {
                continue;
            }
            let error = if profile.fixed_sampling {
                format!("`{name}` is deprecated for this model.")
            } else if *name == "temperature" {
                match asking {
                    ThinkingMode::Manual => TEMPERATURE_WITH_BUDGET.to_owned(),
                    ThinkingMode::Adaptive => TEMPERATURE_WITH_ADAPTIVE.to_owned(),
                    ThinkingMode::Silent | ThinkingMode::Off => continue,
                }
            } else {
                continue;
            };
            let message = if profile.fixed_sampling {
                format!("{} does not accept `{name}`", profile.name)
            } else {
                format!("{} does not accept `{name}` while thinking", profile.name)
            };
            let error = self.provider_error(error);
            let fix = Fix::new(format!("omits `{name}`"), [Edit::Remove(value.range())]);
            let finding = Finding::at(self.book.sampling_fixed, *value, message);
            self.add(finding.with_provider_error(error).with_auto_fix(fix));
        }
    }
}

fn parse_mode(word: &str) -> Option<Mode> {
    let modes = [Mode::Enabled, Mode::Adaptive, Mode::Disabled, Mode::BetweenTools];
    modes.into_iter().find(|mode| word_of(*mode) == word)
}

/// Returns the value of `thinking.type` for a mode.
fn word_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Enabled => "enabled",
        Mode::Adaptive => "adaptive",
        Mode::Disabled => "disabled",
        Mode::BetweenTools => "between_tools",
    }
}

/// Returns whether a value is 1, the default of the sampling settings that have one.
fn is_one(value: Node<'_>) -> bool {
    let number = value.number().and_then(|number| number.parse::<f64>().ok());
    number.is_none_or(|number| (number - 1.0).abs() < 1e-9)
}
