//! Checks settings that the endpoint rejects for the requested model.

use throughline_core::{ReasoningSwitch, ToolChoice};
use throughline_json::{self as json, Node};

use crate::audit::{Edit, Finding, Findings, Fix};
use crate::chat::contract::rules;
use crate::chat::contract::view::{ChatRequest, member_key};
use crate::chat::{contract, decode};
use crate::effort;

impl ChatRequest<'_> {
    pub(super) fn check_settings(&self, findings: &mut Findings<'_>) {
        findings.extend(self.check_effort());
        if contract::rejects_sampling(self.case.target(), self.thinks) {
            findings.extend(
                ["temperature", "top_p"].into_iter().filter_map(|k| self.check_sampling(k)),
            );
        }
        findings.extend(self.check_token_limit());
        findings.extend(self.check_tools());
        findings.extend(self.check_tool_choice());
        findings.extend(self.check_reasoning_format());
    }

    fn check_effort(&self) -> Option<Finding> {
        let (target, profile) = (self.case.target(), self.case.profile());
        let is_switch = target.provider.dialect.switch == ReasoningSwitch::Effort;
        let node = self.root.present("reasoning_effort").filter(|_| is_switch)?;
        let requested = node.text()?;
        if profile.efforts.iter().any(|effort| **effort == *requested) {
            return None;
        }
        let model = target.model();
        let removed = || Fix::removal(node, "removes `reasoning_effort`");
        let (message, error, fix) = if profile.efforts.is_empty() {
            (
                format!("{model} does not reason and accepts no `reasoning_effort`"),
                "Unrecognized request argument supplied: reasoning_effort".to_owned(),
                removed(),
            )
        } else {
            let supported: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
            let nearest = effort::closest(&requested, &profile.efforts);
            (
                format!("{model} supports {}, not `{requested}`", effort::quoted_list(&supported)),
                format!(
                    "Unsupported value: 'reasoning_effort' does not support '{requested}' with this model. \
                     Supported values are: {}.",
                    effort::quoted_series(&profile.efforts, '\'')
                ),
                nearest.map_or_else(removed, |nearest| {
                    let description = format!("uses the nearest effort, `{nearest}`");
                    Fix::replacement(node, json::string(nearest), description)
                }),
            )
        };
        let finding = Finding::at(&rules::EFFORT_NOT_SUPPORTED, node, message);
        Some(finding.with_provider_error(error).with_auto_fix(fix))
    }

    fn check_sampling(&self, key: &str) -> Option<Finding> {
        let target = self.case.target();
        let node = self.root.present(key)?;
        let value = node.number().filter(|number| number.parse() != Ok(1.0))?;
        // Kimi fixes only the temperature. OpenAI's reasoning models fix all sampling settings.
        let error = match (contract::is_openai(target), key) {
            (false, "temperature") => {
                "invalid temperature: only 1 is allowed for this model".to_owned()
            }
            (false, _) => return None,
            (true, "temperature") => format!(
                "Unsupported value: 'temperature' does not support {value} with this model. \
                 Only the default (1) value is supported."
            ),
            (true, key) => {
                format!("Unsupported parameter: '{key}' is not supported with this model.")
            }
        };
        let message = format!("{} accepts only its default `{key}`", target.model());
        let finding = Finding::at(&rules::SAMPLING_FIXED, node, message).with_provider_error(error);
        Some(finding.fixed_by_removing(node, format!("removes `{key}`")))
    }

    fn check_token_limit(&self) -> Option<Finding> {
        let old = self.root.present("max_tokens")?;
        let model = self.case.target().model();
        let message = format!("{model} requires the name `max_completion_tokens`");
        let (key, new) = (member_key(self.root, "max_tokens"), "max_completion_tokens");
        let mut edits = vec![Edit::Remove(old.range())];
        if self.root.present(new).is_none() {
            edits.push(Edit::Set(self.root.range(), new.to_owned(), old.json()));
        }
        let finding = Finding::at(&rules::MAX_TOKENS_RENAMED, key.unwrap_or(old), message);
        let description = "renames `max_tokens` to `max_completion_tokens`";
        Some(finding.with_path("max_tokens").fixed_by(description, edits))
    }

    fn check_tools(&self) -> Option<Finding> {
        let (target, profile) = (self.case.target(), self.case.profile());
        let note = profile.notes.get("chat-tools").filter(|_| self.thinks)?;
        let tools = self.root.present("tools")?;
        let is_function = |tool: Node<'_>| tool.get("type").is_some_and(|kind| kind.is("function"));
        if !tools.elements().any(is_function) {
            return None;
        }
        let effort = self.root.present("reasoning_effort");
        let can_stop = profile.efforts.iter().any(|effort| effort == "none");
        let remedy = if note == "unless-none" {
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        } else {
            "Please use /v1/responses instead."
        };
        let model = target.model();
        let message = match effort.and_then(Node::text) {
            Some(effort) => format!("{model} reasons with effort `{effort}` and has tools"),
            None => format!("{model} reasons by default and has tools"),
        };
        let error = format!(
            "Function tools with reasoning_effort are not supported for {model} in \
             /v1/chat/completions. {remedy}"
        );
        let fix = can_stop.then(|| {
            let (member, value) = ("reasoning_effort".to_owned(), json::string("none"));
            let edit = Edit::Set(self.root.range(), member, value);
            Fix::new("disables reasoning, so that the tools are accepted", [edit])
        });
        let finding = Finding::at(&rules::TOOLS_NEED_RESPONSES, effort.unwrap_or(tools), message);
        Some(finding.with_provider_error(error).with_auto_fix(fix))
    }

    fn check_tool_choice(&self) -> Option<Finding> {
        let node = self.root.present("tool_choice")?;
        let choice = decode::choice_of(node);
        if !contract::rejects_tool_choice(self.case.target(), self.thinks, &choice) {
            return None;
        }
        let message = match &choice {
            ToolChoice::Tool(name) => format!("this forces a call to `{name}`"),
            ToolChoice::Any | ToolChoice::Auto | ToolChoice::None | ToolChoice::Other(_) => {
                "this forces a tool call".to_owned()
            }
        };
        let fix = Fix::replacement(node, json::string("auto"), "leaves the choice to the model");
        Some(Finding::at(&rules::FORCED_TOOL_CHOICE, node, message).with_auto_fix(fix))
    }

    fn check_reasoning_format(&self) -> Option<Finding> {
        let format = self.root.present("reasoning_format")?;
        let include = self.root.present("include_reasoning")?;
        let message = format!("`reasoning_format` is also set, to {}", format.json().as_str());
        let finding = Finding::at(&rules::REASONING_FORMAT_EXCLUSIVE, include, message);
        Some(finding.fixed_by_removing(include, "removes `include_reasoning`"))
    }
}
