//! Commands that are suggested to the user as the next step.

use std::path::PathBuf;

use throughline_agent::ToolSpec;
use throughline_spec::UserQuestionItem;

use crate::args::{AgentArgs, StoreArgs};
use crate::print::text::plain;
use crate::store::without_password;

/// Builds follow-up commands that repeat the store and tool options of the current command.
pub(crate) struct CommandHints {
    of_store: String,
    of_tools: String,
}

impl CommandHints {
    pub(crate) fn new(at: &StoreArgs, using: Option<&AgentArgs>) -> Self {
        let url = at.store.as_deref().map(without_password);
        let tenant = Some(at.tenant.clone()).filter(|tenant| tenant != "default");
        let path = |file: &PathBuf| file.display().to_string();
        let of_store = [
            format_options("--store", url),
            format_options("--tenant", tenant),
            format_options("--config", at.config.as_ref().map(path)),
            format_options("--master-key-file", at.master_key_file.as_ref().map(path)),
            format_options("--retired-key-file", at.retired_key_file.iter().map(path)),
        ];
        let file = using.and_then(|using| using.agent.as_ref()).map(path);
        let tools = using.into_iter().flat_map(|using| using.tool.clone());
        Self {
            of_store: of_store.concat(),
            of_tools: format_options("--agent", file) + &format_options("--tool", tools),
        }
    }

    /// Returns the command that resumes a run.
    pub(crate) fn resume(&self, run: &str) -> String {
        format!("throughline resume {run}{}{}", self.of_tools, self.of_store)
    }

    /// Returns a sentence with the command that resumes a run whose tools are not known to this
    /// command. The store contains the names of the run's tools, but not their commands, so they
    /// must be passed again.
    pub(crate) fn resume_with_tools(&self, run: &str, tools: &[ToolSpec]) -> String {
        let names = tools.iter().filter(|tool| !tool.client).map(|tool| &*tool.name);
        let names: Vec<&str> = names.collect();
        let of_store = &self.of_store;
        if names.is_empty() {
            return format!("`throughline resume {run}{of_store}` continues the run");
        }
        format!(
            "`throughline resume {run} --agent FILE{of_store}` continues the run, with the file or \
             the --tool options that declare {}",
            plain(&names.join(", "))
        )
    }

    /// Returns a command whose argument is the id of a pending request or a run.
    pub(crate) fn command(&self, command: &str, id: &str) -> String {
        format!("throughline {command} {id}{}", self.of_store)
    }

    /// Returns the command that answers a request, with a placeholder for each of its questions.
    pub(crate) fn answer(&self, id: &str, questions: &[UserQuestionItem]) -> String {
        let placeholder = |item: &UserQuestionItem| match (&item.options, item.is_multi_select()) {
            (None, _) => " ANSWER",
            (Some(_), false) => " NUMBER",
            (Some(_), true) => " NUMBER,NUMBER",
        };
        let placeholders: String = questions.iter().map(placeholder).collect();
        let placeholders = if questions.is_empty() { " ANSWER" } else { &placeholders };
        format!("{}{placeholders}", self.command("answer", id))
    }
}

/// Formats one command-line option per value, each with a leading space and a shell-quoted value.
fn format_options(name: &str, values: impl IntoIterator<Item = String>) -> String {
    let options = values.into_iter().map(|value| format!(" {name} {}", shell_quote(&value)));
    options.collect::<Vec<_>>().concat()
}

/// Quotes a value for a POSIX shell, if the value needs quotes.
fn shell_quote(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
