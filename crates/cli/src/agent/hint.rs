//! Suggested follow-up commands.

use crate::args::{AgentArgs, StoreArgs};
use crate::store::without_password;

/// Builds follow-up commands that repeat the options of the current one.
pub(crate) struct CommandHints {
    of_store: String,
    of_tools: String,
}

impl CommandHints {
    pub(crate) fn new(at: &StoreArgs, using: Option<&AgentArgs>) -> Self {
        let mut of_store = Vec::new();
        if let Some(store) = &at.store {
            of_store.push(("--store", without_password(store)));
        }
        if at.tenant != "default" {
            of_store.push(("--tenant", at.tenant.clone()));
        }
        let file = using.and_then(|using| using.agent.as_ref());
        let mut of_tools: Vec<(&str, String)> =
            file.map(|file| ("--agent", file.display().to_string())).into_iter().collect();
        let tools = using.into_iter().flat_map(|using| &using.tool);
        of_tools.extend(tools.map(|tool| ("--tool", tool.clone())));
        let (of_store, of_tools) = (format_options(&of_store), format_options(&of_tools));
        Self { of_store, of_tools }
    }

    /// Returns the command that resumes a run.
    pub(crate) fn resume(&self, run: &str) -> String {
        format!("throughline resume {run}{}{}", self.of_tools, self.of_store)
    }

    /// Returns a command on a pending request or a run.
    pub(crate) fn command(&self, command: &str, id: &str) -> String {
        format!("throughline {command} {id}{}", self.of_store)
    }
}

/// Formats options for a shell, each with a leading space.
fn format_options(options: &[(&str, String)]) -> String {
    let words = options.iter().map(|(name, value)| format!(" {name} {}", shell_quote(value)));
    words.collect::<Vec<_>>().concat()
}

/// Quotes a value for a shell.
fn shell_quote(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
