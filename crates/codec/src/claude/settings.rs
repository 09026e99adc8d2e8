//! Checks the thinking, effort, tool choice and sampling settings of a request.

use throughline_core::{ForcedTools, Mode, ToolChoice};
use throughline_json::{self as json, Json, Node};

use crate::audit::{Edit, Finding, Fix, Severity};
use crate::claude::fixes::thinking_object;
use crate::claude::{self, Inspection, MIN_ANSWER_TOKENS, MIN_BUDGET, ThinkingMode};
use crate::effort::{self, quoted_list};

/// The beta feature that applies the budget to the whole turn, so the budget may exceed
/// `max_tokens`.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// The provider's error if a request sets both a temperature and a manual budget.
const TEMPERATURE_WITH_BUDGET: &str = "`temperature` may only be set to 1 when thinking is enabled. Please consult our \
     documentation at https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking\
     #important-considerations-when-using-extended-thinking";

/// The provider's error if a request sets both a temperature and adaptive thinking.
const TEMPERATURE_WITH_ADAPTIVE: &str = "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. \
     Please consult our documentation at https://platform.claude.com/docs/en/build-with-claude/extended-thinking";

impl Inspection<'_, '_, '_> {
    pub(super) fn check_settings(&mut self) {
        let (unsupported, view) = (self.check_mode(), self.view);
        if unsupported.is_none() && view.settings.thinking_mode() == ThinkingMode::Manual {
            self.extend(self.check_budget());
        }
        self.extend(unsupported);
        self.extend(self.check_tool_choice());
        // A model without its own profile has the generic profile `claude`, and may support other
        // efforts.
        if self.case.profile().name != "claude" {
            let efforts = view.settings.efforts.iter();
            let found: Vec<_> = efforts.filter_map(|effort| self.check_effort(*effort)).collect();
            self.extend(found);
        }
        self.extend(self.check_message_efforts());
        for (name, value) in &view.settings.sampling {
            self.extend(self.check_sampling(name, *value));
        }
    }

    /// Reports a thinking mode that the model does not support.
    fn check_mode(&self) -> Option<Finding> {
        let profile = self.case.profile();
        let thinking = self.view.settings.thinking?;
        let kind = thinking.get("type")?;
        let mode_name = kind.text().unwrap_or_default();
        // An unknown mode may be new, so do not report it.
        let modes = [Mode::Enabled, Mode::Adaptive, Mode::Disabled, Mode::BetweenTools];
        let mode = modes.into_iter().find(|mode| mode_name_of(*mode) == mode_name)?;
        if profile.modes.is_empty() || profile.supports_mode(mode) {
            return self.check_effort_for_mode(mode);
        }
        let supported: Vec<&str> = profile.modes.iter().map(|mode| mode_name_of(*mode)).collect();
        let message =
            format!("{} supports {}, not `{mode_name}`", profile.name, quoted_list(&supported));
        // The provider's errors for the other modes are unknown.
        let error = match mode {
            Mode::Adaptive => Some("adaptive thinking is not supported on this model".to_owned()),
            Mode::Enabled | Mode::Disabled if profile.supports_mode(Mode::Adaptive) => {
                Some(format!(
                    "\"thinking.type.{mode_name}\" is not supported for this model. Use \"thinking.type.adaptive\" and \
                 \"output_config.effort\" to control thinking behavior."
                ))
            }
            Mode::Enabled | Mode::Disabled | Mode::BetweenTools => None,
        };
        let finding = self.finding("mode-not-supported", kind.range(), message)?;
        let provider_error = error.map(|error| self.provider_error(error).into());
        let finding = Finding { provider_error, ..finding };
        Some(finding.with_auto_fix(self.nearest_mode_fix(thinking, mode)))
    }

    /// Builds a fix that selects the nearest supported mode.
    fn nearest_mode_fix(&self, thinking: Node<'_>, mode: Mode) -> Fix {
        let profile = self.case.profile();
        let takes = |mode: Mode| profile.supports_mode(mode);
        let replaced = |kind: &str| {
            let description = format!("uses `{kind}` thinking instead");
            Fix::replacement(thinking, thinking_object(kind), description)
        };
        match mode {
            Mode::Enabled | Mode::BetweenTools if takes(Mode::Adaptive) => {
                let kind = Edit::Set(thinking.range(), "type".to_owned(), json::string("adaptive"));
                let budget = thinking.get("budget_tokens").map(|b| Edit::Remove(b.range()));
                let edits: Vec<_> = [kind].into_iter().chain(budget).collect();
                Fix::new("uses `adaptive` thinking instead", edits)
            }
            Mode::Adaptive if takes(Mode::Enabled) => {
                let effort = self.view.settings.efforts.first().and_then(|effort| effort.text());
                let budget = effort::budget(effort.as_deref()).max(MIN_BUDGET);
                let manual = object! { "type": "enabled", "budget_tokens": budget };
                let description = format!("uses thinking with a budget of {budget} tokens instead");
                Fix::replacement(thinking, manual, description)
            }
            Mode::Disabled if takes(Mode::BetweenTools) => replaced("between_tools"),
            Mode::BetweenTools if takes(Mode::Disabled) => replaced("disabled"),
            Mode::Enabled | Mode::Adaptive | Mode::Disabled | Mode::BetweenTools => {
                Fix::removal(thinking, "omits `thinking`")
            }
        }
    }

    /// Reports an effort that is too high for the thinking mode.
    fn check_effort_for_mode(&self, mode: Mode) -> Option<Finding> {
        let note = match mode {
            Mode::Disabled => "disabled-up-to",
            Mode::BetweenTools => "between-tools-up-to",
            Mode::Enabled | Mode::Adaptive => return None,
        };
        let profile = self.case.profile();
        let (most, effort) = (profile.notes.get(note)?, *self.view.settings.efforts.first()?);
        let effort_name = effort.text().unwrap_or_default();
        if effort::effort_rank(&effort_name) <= effort::effort_rank(most) {
            return None;
        }
        let (name, mode_name) = (&profile.name, mode_name_of(mode));
        let message =
            format!("with `{mode_name}` thinking, {name} supports efforts up to `{most}`");
        let description = format!("uses effort `{most}` instead");
        let finding = self
            .finding("mode-not-supported", effort.range(), message)?
            .with_fix(format!("Use effort `{most}` or less, or omit `thinking`."))
            .with_auto_fix(Fix::replacement(effort, json::string(most), description));
        Some(if mode == Mode::Disabled {
            finding.with_provider_error(self.provider_error(format!(
                "output_config.effort '{effort_name}' is not supported when thinking is disabled on this model. Use effort \
                 '{most}' or below, or enable thinking."
            )))
        } else {
            finding.without_provider_error()
        })
    }

    fn check_budget(&self) -> Option<Finding> {
        let settings = &self.view.settings;
        let thinking = settings.thinking?;
        let least = self.case.profile().budget.map_or(MIN_BUDGET, |budget| budget.min);
        let too_small = |node: Node<'_>, message: String, problem: String| {
            let error = format!("thinking.enabled.budget_tokens: {problem}");
            let edit = Edit::Set(thinking.range(), "budget_tokens".to_owned(), Json::from(least));
            let finding = self.rejection("budget-too-small", node, message, error)?;
            Some(finding.fixed_by(format!("sets a budget of {least} tokens"), [edit]))
        };
        let Some(budget) = thinking.present("budget_tokens") else {
            let message = "`budget_tokens` is missing".to_owned();
            return too_small(thinking, message, "Field required".to_owned());
        };
        let tokens = budget.u64()?;
        if tokens < least {
            let message = format!("{tokens} is below the minimum of {least}");
            let problem = format!("Input should be greater than or equal to {least}");
            return too_small(budget, message, problem);
        }
        let (place, most) = settings.max_tokens.and_then(|node| Some((node, node.u64()?)))?;
        let interleaves = settings.has_beta(INTERLEAVED);
        if tokens < most || settings.has_tools && interleaves == Some(true) {
            return None;
        }
        let may_interleave = settings.has_tools && interleaves.is_none();
        let severity = if may_interleave { Severity::Note } else { Severity::Refuse };
        let error = "`max_tokens` must be greater than `thinking.budget_tokens`.";
        let room = tokens.saturating_add(MIN_ANSWER_TOKENS);
        let description = format!("raises the maximum number of tokens to {room}");
        let message = format!("thinking and answer together have only {most} tokens");
        let finding = self.rejection("budget-not-below-max-tokens", budget, message, error)?;
        let fix = Fix::replacement(place, Json::from(room), description);
        Some(finding.with_severity(severity).with_auto_fix(fix))
    }

    fn check_tool_choice(&self) -> Option<Finding> {
        let settings = &self.view.settings;
        let choice = settings.choice.filter(|_| settings.is_forced)?;
        let profile = self.case.profile();
        let rule = (self.book.forced_tools)(profile);
        if !claude::rejects_tool_choice(profile, rule, settings.thinking_mode(), &ToolChoice::Any) {
            return None;
        }
        let (error, message) = if rule == ForcedTools::Refused {
            (
                "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
                format!("{} never supports a forced tool choice", profile.name),
            )
        } else {
            (
                "Thinking may not be enabled when tool_choice forces tool use.",
                format!("{} does not support a forced tool choice while thinking", profile.name),
            )
        };
        let free = (self.book.free_choice)(choice);
        let fix = Fix::replacement(choice, free, "lets the model choose its tools");
        let finding = self.rejection("forced-tool-choice", choice, message, error)?;
        Some(finding.with_auto_fix(fix))
    }

    fn check_effort(&self, effort: Node<'_>) -> Option<Finding> {
        let profile = self.case.profile();
        let (name, efforts) = (&profile.name, &profile.efforts);
        let effort_name = effort.text().unwrap_or_default();
        if efforts.iter().any(|supported| **supported == *effort_name) {
            return None;
        }
        let mut levels: Vec<&str> = efforts.iter().map(String::as_str).collect();
        let message = if efforts.is_empty() {
            format!("{name} has no effort setting")
        } else {
            format!("{name} supports {}, not `{effort_name}`", quoted_list(&levels))
        };
        levels.sort_unstable();
        let error = if efforts.is_empty() {
            "This model does not support the effort parameter.".to_owned()
        } else {
            let levels = levels.join(", ");
            format!(
                "This model does not support effort level '{effort_name}'. Supported levels: {levels}."
            )
        };
        let fix = if let Some(near) = effort::closest(&effort_name, efforts) {
            Fix::replacement(effort, json::string(near), format!("uses effort `{near}` instead"))
        } else {
            // Also remove the parent object if it contains nothing else.
            let holder = self.view.settings.output_config.filter(|config| {
                let place = config.range();
                config.members().count() == 1 && place.contains(&effort.range().start)
            });
            Fix::removal(holder.unwrap_or(effort), "omits the effort")
        };
        let finding = self.rejection("effort-not-supported", effort, message, error)?;
        Some(finding.with_auto_fix(fix))
    }

    /// Reports messages that change the effort although the thinking mode requires one effort for
    /// the whole conversation.
    fn check_message_efforts(&self) -> Vec<Finding> {
        let settings = &self.view.settings;
        let kind = settings.thinking.and_then(|thinking| thinking.text_of("type"));
        if kind.as_deref() != Some(mode_name_of(Mode::BetweenTools)) {
            return Vec::new();
        }
        let base = settings.output_config.and_then(|config| config.text_of("effort"));
        let default = self.case.profile().notes.get("default-effort");
        let base = base.as_deref().or(default.map(String::as_str));
        let changed = settings.message_efforts.iter().filter_map(|(number, effort)| {
            let own = effort.text()?;
            let base = base.filter(|base| **base != *own)?;
            let message = format!("this message changes the effort from `{base}` to `{own}`");
            let place = self.view.messages.get(*number)?;
            let config = place.node.get("output_config")?;
            let removed = if place.blocks.is_empty() { place.node } else { config };
            let finding = self.finding("between-tools-effort", effort.range(), message)?;
            let finding = finding.with_path(format!("messages.{number}.output_config.effort"));
            Some(finding.fixed_by_removing(removed, "keeps the effort of the conversation"))
        });
        changed.collect()
    }

    fn check_sampling(&self, name: &str, value: Node<'_>) -> Option<Finding> {
        let profile = self.case.profile();
        if name != "top_k" && is_one(value) {
            return None;
        }
        let mode = self.view.settings.thinking_mode();
        let (condition, error) = match mode {
            _ if profile.fixed_sampling => ("", format!("`{name}` is deprecated for this model.")),
            ThinkingMode::Manual if name == "temperature" => {
                (" while thinking", TEMPERATURE_WITH_BUDGET.to_owned())
            }
            ThinkingMode::Adaptive if name == "temperature" => {
                (" while thinking", TEMPERATURE_WITH_ADAPTIVE.to_owned())
            }
            _ => return None,
        };
        let message = format!("{} does not accept `{name}`{condition}", profile.name);
        let finding = self.rejection("sampling-fixed", value, message, error)?;
        Some(finding.fixed_by_removing(value, format!("omits `{name}`")))
    }
}

/// Returns the value of `thinking.type` for a mode.
fn mode_name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Enabled => "enabled",
        Mode::Adaptive => "adaptive",
        Mode::Disabled => "disabled",
        Mode::BetweenTools => "between_tools",
    }
}

/// Returns whether a value is 1, the default of `temperature` and `top_p`. Values that are not
/// numbers count as 1.
fn is_one(value: Node<'_>) -> bool {
    let number = value.number().and_then(|number| number.parse::<f64>().ok());
    number.is_none_or(|number| (number - 1.0).abs() < 1e-9)
}
