//! The note that the agent API stores with each run it starts.

use throughline_agent::RunSpec;
use throughline_json::{self as json, Json, Name, Node};

/// The note of a run that was started through this API.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunNote {
    pub(crate) agent: Name,
    pub(crate) tokens: bool,
    pub(crate) background: bool,
    /// Whether the run comes from a snapshot, so its agent may not exist in this tenant.
    pub(crate) adopted: bool,
    /// The id of the key that started the run.
    pub(crate) key: Option<Name>,
    /// The digest of the first message; runs of older versions have none.
    pub(crate) digest: Option<Name>,
    pub(crate) otids: Vec<Option<Name>>,
}

impl RunNote {
    /// Whether a run was started through this API.
    pub(crate) fn is_present(casting: &RunSpec) -> bool {
        let note = casting.note.as_ref().map(Json::tree);
        note.is_some_and(|tree| tree.root().get("letta").is_some())
    }

    /// The note for a run that starts without a message.
    pub(crate) fn without_message(agent: &str, key: Option<&Name>) -> Json {
        json::object(|o| {
            o.object("letta", |o| {
                o.string("agent", agent).maybe_string("key", key.map(|key| &**key));
            });
        })
    }

    /// The note for a run that is restored from a snapshot.
    pub(crate) fn for_restored_run(casting: &RunSpec, key: Option<&Name>) -> Json {
        let agent = Self::of(casting).agent;
        json::object(|o| {
            o.object("letta", |o| {
                o.string("agent", &agent).bool("background", true).bool("adopted", true);
                o.maybe_string("key", key.map(|key| &**key));
            });
        })
    }

    pub(crate) fn of(casting: &RunSpec) -> Self {
        let tree = casting.note.as_ref().map(Json::tree);
        let note = tree.as_ref().and_then(|tree| tree.root().get("letta"));
        let first = casting.agents.get(&casting.first);
        let Some(note) = note else {
            let agent = first.map(|first| first.identifier.as_ref().unwrap_or(&first.name));
            return Self { agent: agent.cloned().unwrap_or_default(), ..Self::default() };
        };
        let is = |key: &str| note.get(key).and_then(Node::bool) == Some(true);
        Self {
            agent: note.name_of("agent").unwrap_or_default(),
            tokens: is("tokens"),
            background: is("background"),
            adopted: is("adopted"),
            key: note.name_of("key"),
            digest: note.name_of("digest"),
            otids: note.get("otids").into_iter().flat_map(Node::elements).map(Node::name).collect(),
        }
    }
}
