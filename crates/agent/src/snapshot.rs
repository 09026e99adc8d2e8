//! A run as one document, with which it goes on elsewhere: on another machine, in another store, under another version.
//!
//! It holds the documented state, the Items that the model is shown exactly as they are kept, the answers of tools that were
//! archived, who takes part, and how far the run is. What only means something to the process that ran it is left out.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{
    Item, Json, Name, Node, SmartState, StoredItem, TokenCounter, Tree, json, restore_items,
    store_items,
};

use crate::cast::{Cast, Casting};
use crate::config::InvalidConfig;
use crate::progress::{Phase, Progress};
use crate::state::State;
use crate::window::{Kept, Window, readable};

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Members of `ctx` that mean something only to the process that ran it: callbacks, tokens, and our own marks.
const RUNTIME: [&str; 10] = [
    "__onEvent",
    "__onProgress",
    "__onStream",
    "__traceSession",
    "__paused",
    "__cancellationToken",
    "__abortSignal",
    "__contextPilot",
    "__run",
    "__contextFrom",
];

/// A run as one document.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The documented state, without its messages.
    pub smart: SmartState,
    /// The Items that the model is shown: the summary last.
    pub items: Vec<Item>,
    /// The answers of tools that were archived, each with the name that its execution gives it.
    pub archived: Vec<(Name, Item)>,
    /// Who takes part.
    pub casting: Casting,
    /// How far it is.
    pub progress: Progress,
    /// The Thread.
    pub thread: Name,
}

/// Why a document is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be used: {0}")]
pub struct InvalidSnapshot(pub Name);

impl Snapshot {
    /// A run as it stands.
    pub(crate) fn of(state: &State, thread: Name, archived: Vec<(Name, Item)>) -> Self {
        let mut smart = state.smart.clone();
        strip_runtime(&mut smart);
        let items = state.window.items.iter().chain(&state.window.summary);
        Self {
            smart,
            items: items.map(|kept| kept.item.clone()).collect(),
            archived,
            casting: state.cast.casting.clone(),
            progress: state.progress.clone(),
            thread,
        }
    }

    /// The document. `tag` is the taker's own word for it.
    pub fn json(&self, now: Timestamp, tag: Option<&str>) -> Result<Json, InvalidSnapshot> {
        let unwritable = |error: serde_json::Error| InvalidSnapshot(error.to_string().into());
        let raw = |value: Result<Vec<u8>, serde_json::Error>| {
            let bytes = Bytes::from(value.map_err(unwritable)?);
            Json::parse(bytes).map_err(|error| InvalidSnapshot(error.to_string().into()))
        };
        let casting = raw(serde_json::to_vec(&self.casting))?;
        let progress = raw(serde_json::to_vec(&self.progress))?;
        let shown: Vec<&Item> =
            self.items.iter().rev().take(1).filter(|item| is_summary(item)).collect();
        let rest = self.items.iter().filter(|item| !is_summary(item));
        let messages: Vec<Item> = shown.into_iter().chain(rest).cloned().collect();
        let messages = throughline_core::Message::of(&messages);
        let state = SmartState { messages, ..self.smart.clone() };
        let is_paused = self.progress.phase == Phase::Waiting;
        Ok(json::object(|out| {
            out.number("version", VERSION).string("thread", &self.thread);
            out.raw("state", &state.json());
            out.array("items", |list| {
                for StoredItem { json, .. } in store_items(&self.items) {
                    list.raw(&json);
                }
            });
            out.array("archived", |list| {
                for (name, item) in &self.archived {
                    list.object(|out| {
                        out.string("archiveId", name);
                        for StoredItem { json, .. } in store_items(std::slice::from_ref(item)) {
                            out.raw("item", &json);
                        }
                    });
                }
            });
            out.raw("casting", &casting).raw("progress", &progress);
            out.object("metadata", |out| {
                out.string("createdAt", &now.to_string()).maybe_string("tag", tag);
                out.bool("paused", is_paused);
            });
            out.object("runtimeHint", |out| {
                out.string("name", "throughline").string("version", env!("CARGO_PKG_VERSION"));
                out.array("tools", |list| {
                    for spec in &self.casting.tools {
                        list.string(&spec.name);
                    }
                });
            });
        }))
    }

    /// Reads the document.
    pub fn parse(document: &Json) -> Result<Self, InvalidSnapshot> {
        let tree = document.tree();
        let root = tree.root();
        let missing = |what: &str| InvalidSnapshot(format!("`{what}` is missing").into());
        match root.get("version").and_then(Node::u64) {
            Some(VERSION) => {}
            Some(other) => {
                let problem = format!("it has version {other}, and this program reads {VERSION}");
                return Err(InvalidSnapshot(problem.into()));
            }
            None => return Err(missing("version")),
        }
        let invalid = |error: String| InvalidSnapshot(error.into());
        let member = |key: &str| root.get(key).ok_or_else(|| missing(key));
        let mut smart = SmartState::parse(&member("state")?.json())
            .map_err(|error| invalid(error.to_string()))?;
        smart.messages.clear();
        let items = member("items")?.elements().map(|item| Some(item.json().bytes().clone()));
        let items = restore_items(items).map_err(|error| invalid(error.to_string()))?;
        let mut archived = Vec::new();
        for entry in root.get("archived").into_iter().flat_map(Node::elements) {
            let name = entry.name_of("archiveId").ok_or_else(|| missing("archiveId"))?;
            let item = entry.get("item").ok_or_else(|| missing("item"))?;
            let item = restore_items([Some(item.json().bytes().clone())]);
            let item = item.map_err(|error| invalid(error.to_string()))?;
            archived.extend(item.into_iter().map(|item| (name.clone(), item)));
        }
        let casting = serde_json::from_slice(member("casting")?.raw());
        let progress = serde_json::from_slice(member("progress")?.raw());
        Ok(Self {
            smart,
            items,
            archived,
            casting: casting.map_err(|error| invalid(format!("casting: {error}")))?,
            progress: progress.map_err(|error| invalid(format!("progress: {error}")))?,
            thread: root.name_of("thread").ok_or_else(|| missing("thread"))?,
        })
    }

    /// The state that it holds, for looking at without a store.
    pub fn state(&self, counter: Arc<dyn TokenCounter>) -> Result<State, InvalidConfig> {
        let mut window = Window::default();
        for item in &self.items {
            let tokens = counter.count(&readable(item));
            window.push(Kept { item: item.clone(), tokens, seq: 0 });
        }
        let cast = Arc::new(Cast::new(self.casting.clone(), counter)?);
        Ok(State::resumed(cast, self.smart.clone(), window, self.progress.clone()))
    }
}

/// Removes the members of `ctx` that mean something only to the process that ran it.
pub(crate) fn strip_runtime(smart: &mut SmartState) {
    if let Some(ctx) = &mut smart.ctx {
        ctx.retain(|(name, _)| !RUNTIME.contains(&&**name));
    }
}

fn is_summary(item: &Item) -> bool {
    matches!(item.body, throughline_core::Body::Summary { .. })
}

/// A document as bytes, which may come from anywhere.
pub fn parse_snapshot(bytes: &Bytes) -> Result<Snapshot, InvalidSnapshot> {
    let tree = Tree::parse(bytes.clone());
    let tree = tree.map_err(|error| InvalidSnapshot(format!("it is not JSON: {error}").into()))?;
    Snapshot::parse(&tree.root().json())
}
