//! What the Responses endpoints keep: items and whole conversations, by their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Json, Node};

use crate::digest::Mark;

/// What the Responses endpoints keep between requests. Nothing is forgotten, and nobody finds what somebody else stored.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    shelves: Mutex<HashMap<Mark, Shelf>>,
}

/// What one account has at one endpoint.
#[derive(Debug, Default)]
struct Shelf {
    items: HashMap<String, Arc<Kept>>,
    conversations: HashMap<String, Arc<Vec<Json>>>,
}

/// An item of a response that was kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// The item.
    pub(super) json: Json,
    /// For a reasoning item: the item that it led to.
    pub(super) follows: Option<String>,
    /// For any other: the reasoning item that led to it.
    pub(super) requires: Option<String>,
}

impl Stored {
    /// The item of that id.
    pub(super) fn item(&self, owner: Mark, id: &str) -> Option<Arc<Kept>> {
        self.shelves().get(&owner)?.items.get(id).cloned()
    }

    /// All that was said up to the end of the response of that id.
    pub(super) fn conversation(&self, owner: Mark, id: &str) -> Option<Arc<Vec<Json>>> {
        self.shelves().get(&owner)?.conversations.get(id).cloned()
    }

    /// Keeps a response: what was said before it, and its own items.
    pub(super) fn keep(&self, owner: Mark, id: &str, before: Vec<Json>, output: &[Json]) {
        let mut shelves = self.shelves();
        let own = shelves.entry(owner).or_default();
        for (at, json) in output.iter().enumerate() {
            let tree = json.tree();
            let Some(item_id) = tree.root().text_of("id") else { continue };
            let is_reasoning = is_reasoning(tree.root());
            let led = output.iter().skip(at + 1).find(|item| !is_reasoning_json(item));
            let leader = output.iter().take(at).rev().find(|item| is_reasoning_json(item));
            let kept = Kept {
                json: json.clone(),
                follows: led.filter(|_| is_reasoning).and_then(id_of),
                requires: leader.filter(|_| !is_reasoning).and_then(id_of),
            };
            own.items.insert(item_id.into_owned(), Arc::new(kept));
        }
        let whole = before.into_iter().chain(output.iter().cloned()).collect();
        own.conversations.insert(id.to_owned(), Arc::new(whole));
    }

    fn shelves(&self) -> std::sync::MutexGuard<'_, HashMap<Mark, Shelf>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id_of(item: &Json) -> Option<String> {
    item.tree().root().text_of("id").map(std::borrow::Cow::into_owned)
}

fn is_reasoning_json(item: &Json) -> bool {
    is_reasoning(item.tree().root())
}

fn is_reasoning(item: Node<'_>) -> bool {
    item.get("type").is_some_and(|kind| kind.is("reasoning"))
}
