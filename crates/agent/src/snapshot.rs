//! Snapshots: a run as one JSON document that another machine, store or Throughline version can
//! resume.
//!
//! The document contains the documented state (`SmartState`), the exact Items that the model sees,
//! archived tool results, the declaration and the progress. Values that are only valid in the
//! original process are left out.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{Item, StoredItem, TokenCounter, restore_items, store_items};
use throughline_json::{self as json, Json, Name, Node, Tree};
use throughline_spec::SmartState;

use crate::config::InvalidConfig;
use crate::progress::{Phase, Progress};
use crate::roster::{ResolvedRun, RunSpec, is_reserved_key};
use crate::state::State;
use crate::window::Window;

/// Version of the snapshot format. All other versions are rejected.
const VERSION: u64 = 1;

/// Marks of the runtime in `ctx` that another process can use. All other keys that start with `__`
/// stand for callbacks, tokens and positions that only the original process can use.
const PORTABLE: [&str; 3] = ["__awaitingApproval", "__awaitingUserQuestion", "__limitBreached"];

/// A complete run, ready to be exported or restored.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The documented state without its messages, which are in `items`.
    pub smart: SmartState,
    /// The Items that the model sees. The summary, if any, is last.
    pub items: Vec<Item>,
    /// Archived tool results, each with the archive id from its execution record.
    pub archived: Vec<(Name, Item)>,
    /// Declaration of the run's agents and tools.
    pub casting: RunSpec,
    /// Progress of the run when the snapshot was taken.
    pub progress: Progress,
    /// Id of the original Thread.
    pub thread: Name,
}

/// Error for a document that is not a valid snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid snapshot: {0}")]
pub struct InvalidSnapshot(pub Name);

impl Snapshot {
    /// Captures a run's state, without the values that are only valid in this process.
    pub(crate) fn capture(state: &State, thread: Name, archived: Vec<(Name, Item)>) -> Self {
        let mut smart = state.smart.clone();
        strip_runtime(&mut smart);
        let items = state.window.items.iter().chain(&state.window.summary);
        Self {
            smart,
            items: items.map(|entry| entry.item.clone()).collect(),
            archived,
            casting: state.cast.casting.clone(),
            progress: state.progress.clone(),
            thread,
        }
    }

    /// Serialises the snapshot. `tag` is an optional label chosen by the caller.
    pub fn to_json(&self, now: Timestamp, tag: Option<&str>) -> Result<Json, InvalidSnapshot> {
        let casting = serde_json::to_vec(&self.casting).map_err(invalid)?;
        let casting = Json::from_trusted(casting.into());
        let progress = serde_json::to_vec(&self.progress).map_err(invalid)?;
        let progress = Json::from_trusted(progress.into());
        let summary = self.items.last().filter(|item| is_summary(item));
        let rest = self.items.iter().filter(|item| !is_summary(item));
        let messages: Vec<Item> = summary.into_iter().chain(rest).cloned().collect();
        let messages = throughline_spec::Message::from_items(&messages);
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

    /// Parses a document written by [`Snapshot::to_json`].
    pub fn parse(document: &Json) -> Result<Self, InvalidSnapshot> {
        let tree = document.tree();
        let root = tree.root();
        let missing = |member_name: &str| invalid(format!("`{member_name}` is missing"));
        match root.get("version").and_then(Node::u64) {
            Some(VERSION) => {}
            Some(version) => {
                let supported = format!("this program supports only version {VERSION}");
                return Err(invalid(format!("version {version} is not supported; {supported}")));
            }
            None => return Err(missing("version")),
        }
        let member = |key: &str| root.get(key).ok_or_else(|| missing(key));
        let mut smart = SmartState::parse(&member("state")?.json()).map_err(invalid)?;
        smart.messages.clear();
        let items = member("items")?.elements().map(|item| Some(item.json().bytes().clone()));
        let items = restore_items(items).map_err(invalid)?;
        let mut archived = Vec::new();
        for entry in root.get("archived").into_iter().flat_map(Node::elements) {
            let name = entry.name_of("archiveId").ok_or_else(|| missing("archiveId"))?;
            let item = entry.get("item").ok_or_else(|| missing("item"))?;
            let item = restore_items([Some(item.json().bytes().clone())]).map_err(invalid)?;
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

    /// Rebuilds the state for inspection without a store.
    pub fn state(&self, counter: Arc<dyn TokenCounter>) -> Result<State, InvalidConfig> {
        let window = Window::from_items(self.items.iter().map(|item| (0, item.clone())), &*counter);
        let cast = Arc::new(ResolvedRun::new(self.casting.clone(), counter)?);
        Ok(State::resume(cast, self.smart.clone(), window, self.progress.clone()))
    }
}

/// Removes the `ctx` values that are only valid in the original process.
pub(crate) fn strip_runtime(smart: &mut SmartState) {
    if let Some(ctx) = &mut smart.ctx {
        ctx.retain(|(name, _)| !is_reserved_key(name) || PORTABLE.contains(&&**name));
    }
}

fn is_summary(item: &Item) -> bool {
    matches!(item.body, throughline_core::Body::Summary { .. })
}

/// Parses a snapshot from untrusted bytes.
pub fn parse_snapshot(bytes: &Bytes) -> Result<Snapshot, InvalidSnapshot> {
    let tree = Tree::parse(bytes.clone());
    let tree = tree.map_err(|error| invalid(format!("not valid JSON: {error}")))?;
    Snapshot::parse(&tree.root().json())
}

fn invalid(problem: impl Display) -> InvalidSnapshot {
    InvalidSnapshot(problem.to_string().into())
}
