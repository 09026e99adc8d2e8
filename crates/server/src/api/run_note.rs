//! The note that the agent API stores with each run it starts.

use serde::Deserialize;
use throughline_agent::RunSpec;
use throughline_json::{Json, Name};

use crate::object::object;

/// The note of a run that was started through this API.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunNote {
    pub(crate) agent: Name,
    pub(crate) tokens: bool,
    pub(crate) background: bool,
    /// Whether the run was restored from a snapshot. The agent of such a run may not exist in this
    /// tenant.
    pub(crate) adopted: bool,
    /// The id of the key that started the run.
    pub(crate) key: Option<Name>,
    /// The digest of the first message; `None` for runs started by older versions.
    pub(crate) digest: Option<Name>,
    pub(crate) otids: Vec<Option<Name>>,
    /// The names and ids that the client sent with the parts of the first message.
    pub(crate) names: Vec<Option<Name>>,
    pub(crate) senders: Vec<Option<Name>>,
}

impl RunNote {
    /// Returns whether a run was started through this API.
    pub(crate) fn is_present(casting: &RunSpec) -> bool {
        casting.note.as_ref().is_some_and(|note| note.tree().root().get("letta").is_some())
    }

    /// Returns the note for a run that starts without a message.
    pub(crate) fn without_message(agent: &str, key: Option<&Name>) -> Json {
        object! { "letta": object! { "agent": agent, "key"? key } }
    }

    /// Returns the note for a run that is restored from a snapshot.
    pub(crate) fn for_restored_run(casting: &RunSpec, key: Option<&Name>) -> Json {
        let agent = Self::parse(casting).agent;
        let note = object! { "agent": agent, "background": true, "adopted": true, "key"? key };
        object! { "letta": note }
    }

    /// Parses a run's note. If the run was not started through this API, only `agent` is set.
    pub(crate) fn parse(casting: &RunSpec) -> Self {
        let parse = |note: &Json| serde_json::from_slice::<Notes>(note.bytes()).ok();
        if let Some(Notes { letta: note }) = casting.note.as_ref().and_then(parse) {
            return note;
        }
        let first = casting.agents.get(&casting.first);
        let agent = first.map(|first| first.identifier.as_ref().unwrap_or(&first.name));
        Self { agent: agent.cloned().unwrap_or_default(), ..Self::default() }
    }
}

/// The notes that applications store with a run. This API stores its note under `letta`.
#[derive(Deserialize)]
struct Notes {
    letta: RunNote,
}
