//! Commands that are suggested to the user as the next step.

use crate::args::{AgentArgs, StoreArgs};
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
        let file = using.and_then(|using| using.agent.as_ref());
        let file = file.map(|file| file.display().to_string());
        let tools = using.into_iter().flat_map(|using| using.tool.clone());
        Self {
            of_store: format_options("--store", url) + &format_options("--tenant", tenant),
            of_tools: format_options("--agent", file) + &format_options("--tool", tools),
        }
    }

    /// Returns the command that resumes a run.
    pub(crate) fn resume(&self, run: &str) -> String {
        format!("throughline resume {run}{}{}", self.of_tools, self.of_store)
    }

    /// Returns a command whose argument is the id of a pending request or a run.
    pub(crate) fn command(&self, command: &str, id: &str) -> String {
        format!("throughline {command} {id}{}", self.of_store)
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
