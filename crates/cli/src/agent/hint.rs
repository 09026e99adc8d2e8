//! How something is gone on with: the commands that people are told.

use crate::options::{At, Using};
use crate::store::without_password;

/// The commands that people are told, with the options that they gave.
pub(crate) struct Hint {
    of_store: String,
    of_tools: String,
}

impl Hint {
    pub(crate) fn new(at: &At, using: Option<&Using>) -> Self {
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
        let (of_store, of_tools) = (written(&of_store), written(&of_tools));
        Self { of_store, of_tools }
    }

    /// The command that goes on with a run.
    pub(crate) fn resume(&self, run: &str) -> String {
        format!("throughline resume {run}{}{}", self.of_tools, self.of_store)
    }

    /// A command on something that waits, or on a run.
    pub(crate) fn command(&self, command: &str, id: &str) -> String {
        format!("throughline {command} {id}{}", self.of_store)
    }
}

/// Options as a shell takes them, each behind a space.
fn written(options: &[(&str, String)]) -> String {
    let words = options.iter().map(|(name, value)| format!(" {name} {}", word(value)));
    words.collect::<Vec<_>>().concat()
}

/// A word as a shell takes it.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
