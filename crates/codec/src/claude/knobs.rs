//! What a Claude refuses to be asked for.

use throughline_core::{Choice, ForcedTools, Json, Mode, Node, json};

use crate::audit::{Edit, Finding, Mend, Severity};
use crate::claude::mending::kind_of_thinking;
use crate::claude::{self, Asking, Inspection, LEAST_ANSWER, LEAST_BUDGET};
use crate::effort::{self, listed};

/// The beta under which a budget is for the whole turn and may exceed what one answer may have.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// What is said of a temperature beside a manual budget.
const HOT_WITH_BUDGET: &str = "`temperature` may only be set to 1 when thinking is enabled. Please consult our \
     documentation at https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking\
     #important-considerations-when-using-extended-thinking";

/// What is said of one beside adaptive thinking.
const HOT_WHILE_ADAPTIVE: &str = "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. \
     Please consult our documentation at https://platform.claude.com/docs/en/build-with-claude/extended-thinking";

impl Inspection<'_, '_, '_> {
    pub(super) fn look_at_knobs(&mut self) {
        if self.look_at_mode() && self.view.knobs.asking() == Asking::Manual {
            self.look_at_budget();
        }
        self.look_at_choice();
        self.look_at_efforts();
        self.look_at_sampling();
    }

    /// Whether the model takes the kind of thinking that is asked for.
    fn look_at_mode(&mut self) -> bool {
        let profile = self.case.profile();
        let Some(thinking) = self.view.knobs.thinking else { return true };
        let Some(kind) = thinking.get("type") else { return true };
        let word = kind.text().unwrap_or_default();
        // A kind that nobody has heard of may be new.
        let Some(mode) = mode_of(&word) else { return true };
        if profile.modes.is_empty() || profile.takes(mode) {
            return self.look_at_effort_beside(mode);
        }
        // What is said of the others is not known.
        let error = match mode {
            Mode::Adaptive => Some("adaptive thinking is not supported on this model".to_owned()),
            Mode::Enabled | Mode::Disabled if profile.takes(Mode::Adaptive) => Some(format!(
                "\"thinking.type.{word}\" is not supported for this model. Use \"thinking.type.adaptive\" and \
                 \"output_config.effort\" to control thinking behavior."
            )),
            Mode::Enabled | Mode::Disabled | Mode::BetweenTools => None,
        };
        let taken: Vec<&str> = profile.modes.iter().map(|mode| word_of(*mode)).collect();
        let message = format!("{} takes {}, not `{word}`", profile.name, listed(&taken));
        let finding = Finding::at(self.book.mode_not_supported, kind, message)
            .mended(Some(self.other_mode(thinking, mode)));
        self.add(match error {
            Some(error) => finding.answered(self.says(error)),
            None => finding.unanswered(),
        });
        false
    }

    /// Asks for the kind of thinking that comes nearest to the one that is refused.
    fn other_mode(&self, thinking: Node<'_>, mode: Mode) -> Mend {
        let profile = self.case.profile();
        let takes = |mode: Mode| profile.takes(mode);
        let whole = |kind: &str| {
            let what = format!("asks for `{kind}` thinking instead");
            Mend::new(what, [Edit::Replace(thinking.range(), kind_of_thinking(kind))])
        };
        match mode {
            Mode::Enabled | Mode::BetweenTools if takes(Mode::Adaptive) => {
                let kind = Edit::Set(thinking.range(), "type".to_owned(), json::string("adaptive"));
                let mut edits = vec![kind];
                edits.extend(thinking.get("budget_tokens").map(|b| Edit::Remove(b.range())));
                Mend::new("asks for `adaptive` thinking instead", edits)
            }
            Mode::Adaptive if takes(Mode::Enabled) => {
                let effort = self.view.knobs.efforts.first().and_then(|effort| effort.text());
                let budget = effort::budget(effort.as_deref()).max(LEAST_BUDGET);
                let manual = json::object(|o| {
                    o.string("type", "enabled").number("budget_tokens", budget);
                });
                let what = format!("asks for thinking with a budget of {budget} tokens instead");
                Mend::new(what, [Edit::Replace(thinking.range(), manual)])
            }
            Mode::Disabled if takes(Mode::BetweenTools) => whole("between_tools"),
            Mode::BetweenTools if takes(Mode::Disabled) => whole("disabled"),
            Mode::Enabled | Mode::Adaptive | Mode::Disabled | Mode::BetweenTools => {
                Mend::new("leaves `thinking` out", [Edit::Remove(thinking.range())])
            }
        }
    }

    /// Some kinds of thinking are taken up to some effort only.
    fn look_at_effort_beside(&mut self, mode: Mode) -> bool {
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
        if effort::rung(&word) <= effort::rung(most) {
            return true;
        }
        let message = format!(
            "beside `{}` thinking, {} takes efforts up to `{most}`",
            word_of(mode),
            profile.name,
        );
        let mend = Mend::new(
            format!("asks for effort `{most}` instead"),
            [Edit::Replace(effort.range(), json::string(most))],
        );
        let finding = Finding::at(self.book.mode_not_supported, *effort, message)
            .advised(format!("Ask for effort `{most}` or less, or leave `thinking` out."))
            .mended(Some(mend));
        self.add(match mode {
            Mode::Disabled => finding.answered(self.says(format!(
                "output_config.effort '{word}' is not supported when thinking is disabled on this model. Use effort \
                 '{most}' or below, or enable thinking."
            ))),
            Mode::Enabled | Mode::Adaptive | Mode::BetweenTools => finding.unanswered(),
        });
        false
    }

    fn look_at_budget(&mut self) {
        let knobs = &self.view.knobs;
        let Some(thinking) = knobs.thinking else { return };
        let least = self.case.profile().budget.map_or(LEAST_BUDGET, |budget| budget.min);
        let path = "thinking.enabled.budget_tokens";
        let set = |budget: u64| {
            let edit = Edit::Set(thinking.range(), "budget_tokens".to_owned(), Json::from(budget));
            Mend::new(format!("asks for a budget of {budget} tokens"), [edit])
        };
        let Some(budget) = thinking.present("budget_tokens") else {
            let error = self.says(format!("{path}: Field required"));
            let message = "`budget_tokens` is missing";
            let finding = Finding::at(self.book.budget_too_small, thinking, message);
            self.add(finding.answered(error).mended(Some(set(least))));
            return;
        };
        let Some(tokens) = budget.u64() else { return };
        if tokens < least {
            let error =
                self.says(format!("{path}: Input should be greater than or equal to {least}"));
            let message = format!("{tokens} is below the least of {least}");
            let finding = Finding::at(self.book.budget_too_small, budget, message);
            self.add(finding.answered(error).mended(Some(set(least))));
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
        let error = self.says("`max_tokens` must be greater than `thinking.budget_tokens`.");
        let room = tokens.saturating_add(LEAST_ANSWER);
        let mend = Mend::new(
            format!("raises the tokens of the answer to {room}"),
            [Edit::Replace(place.range(), Json::from(room))],
        );
        let message = format!("thinking and answer share {most} tokens");
        let finding = Finding::at(self.book.budget_not_below_max_tokens, budget, message);
        self.add(finding.as_grave_as(severity).answered(error).mended(Some(mend)));
    }

    fn look_at_choice(&mut self) {
        let knobs = &self.view.knobs;
        let Some(choice) = knobs.choice.filter(|_| knobs.is_forced) else { return };
        let profile = self.case.profile();
        let rule = (self.book.forced_tools)(profile);
        if !claude::refuses_choice(profile, rule, knobs.asking(), &Choice::Any) {
            return;
        }
        let (error, message) = match rule {
            ForcedTools::Refused => (
                "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
                format!("{} never takes a forced tool", profile.name),
            ),
            ForcedTools::Allowed
            | ForcedTools::RefusedWithBudget
            | ForcedTools::RefusedWhileThinking => (
                "Thinking may not be enabled when tool_choice forces tool use.",
                format!("{} takes no forced tool while it thinks", profile.name),
            ),
        };
        let error = self.says(error);
        let free = Edit::Replace(choice.range(), (self.book.free_choice)(choice));
        let mend = Mend::new("leaves the model free to choose its tools", [free]);
        let finding = Finding::at(self.book.forced_tool_choice, choice, message);
        self.add(finding.answered(error).mended(Some(mend)));
    }

    fn look_at_efforts(&mut self) {
        let view = self.view;
        let profile = self.case.profile();
        // A model that is not listed may know words that are not listed either.
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
            let error = self.says(error);
            let mend = match effort::closest(&word, &profile.efforts) {
                Some(near) => Mend::new(
                    format!("asks for effort `{near}` instead"),
                    [Edit::Replace(effort.range(), json::string(near))],
                ),
                None => {
                    // With the effort goes the object that holds nothing else.
                    let holder = view.knobs.output_config.filter(|config| {
                        let place = config.range();
                        config.members().count() == 1 && place.contains(&effort.range().start)
                    });
                    let gone = holder.unwrap_or(*effort).range();
                    Mend::new("leaves the effort out", [Edit::Remove(gone)])
                }
            };
            let message = if profile.efforts.is_empty() {
                format!("{} has no effort to set", profile.name)
            } else {
                let taken: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
                format!("{} takes {}, not `{word}`", profile.name, listed(&taken))
            };
            let finding = Finding::at(self.book.effort_not_supported, *effort, message);
            self.add(finding.answered(error).mended(Some(mend)));
        }
    }

    fn look_at_sampling(&mut self) {
        let view = self.view;
        let profile = self.case.profile();
        let asking = view.knobs.asking();
        for (name, value) in &view.knobs.sampling {
            if *name != "top_k" && is_one(*value) {
                continue;
            }
            let error = if profile.fixed_sampling {
                format!("`{name}` is deprecated for this model.")
            } else if *name == "temperature" {
                match asking {
                    Asking::Manual => HOT_WITH_BUDGET.to_owned(),
                    Asking::Adaptive => HOT_WHILE_ADAPTIVE.to_owned(),
                    Asking::Silent | Asking::Off => continue,
                }
            } else {
                continue;
            };
            let message = if profile.fixed_sampling {
                format!("{} sets `{name}` itself", profile.name)
            } else {
                format!("{} sets `{name}` itself while it thinks", profile.name)
            };
            let error = self.says(error);
            let mend = Mend::new(format!("leaves `{name}` out"), [Edit::Remove(value.range())]);
            let finding = Finding::at(self.book.sampling_fixed, *value, message);
            self.add(finding.answered(error).mended(Some(mend)));
        }
    }
}

fn mode_of(word: &str) -> Option<Mode> {
    match word {
        "enabled" => Some(Mode::Enabled),
        "adaptive" => Some(Mode::Adaptive),
        "disabled" => Some(Mode::Disabled),
        "between_tools" => Some(Mode::BetweenTools),
        _ => None,
    }
}

/// The request's word for a kind of thinking.
fn word_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Enabled => "enabled",
        Mode::Adaptive => "adaptive",
        Mode::Disabled => "disabled",
        Mode::BetweenTools => "between_tools",
    }
}

/// Whether a number is the default of every sampling setting that has one.
fn is_one(value: Node<'_>) -> bool {
    let number = value.number().and_then(|number| number.parse::<f64>().ok());
    number.is_none_or(|number| (number - 1.0).abs() < 1e-9)
}
