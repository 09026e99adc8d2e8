//! Stores items and whole conversations of the Responses endpoints by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use throughline_json::{Json, Node};

use crate::digest::Digest;

/// Stored responses of all accounts. Nothing expires, and accounts are isolated.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore {
    shelves: Mutex<HashMap<Digest, AccountResponses>>,
}

/// Stored responses of one account at one endpoint.
#[derive(Debug, Default)]
struct AccountResponses {
    items: HashMap<String, Arc<StoredItem>>,
    conversations: HashMap<String, Arc<Vec<Json>>>,
}

/// A stored item of a response.
#[derive(Debug)]
pub(crate) struct StoredItem {
    pub(crate) json: Json,
    /// For a reasoning item: the id of the item it led to.
    pub(crate) follows: Option<String>,
    /// For other items: the id of the reasoning item that led to it.
    pub(crate) requires: Option<String>,
}

impl ResponseStore {
    /// Returns the item with this id.
    pub(crate) fn item(&self, owner: Digest, id: &str) -> Option<Arc<StoredItem>> {
        self.shelves().get(&owner)?.items.get(id).cloned()
    }

    /// Returns the conversation up to the end of this response.
    pub(crate) fn conversation(&self, owner: Digest, id: &str) -> Option<Arc<Vec<Json>>> {
        self.shelves().get(&owner)?.conversations.get(id).cloned()
    }

    /// Stores a response: the preceding conversation and its own items.
    pub(crate) fn insert(&self, owner: Digest, id: &str, before: Vec<Json>, output: &[Json]) {
        let mut shelves = self.shelves();
        let own = shelves.entry(owner).or_default();
        for (at, json) in output.iter().enumerate() {
            let tree = json.tree();
            let Some(item_id) = tree.root().text_of("id") else { continue };
            let is_reasoning = is_reasoning(tree.root());
            let led = output.iter().skip(at + 1).find(|item| !is_reasoning_json(item));
            let leader = output.iter().take(at).rev().find(|item| is_reasoning_json(item));
            let kept = StoredItem {
                json: json.clone(),
                follows: led.filter(|_| is_reasoning).and_then(id_of),
                requires: leader.filter(|_| !is_reasoning).and_then(id_of),
            };
            own.items.insert(item_id.into_owned(), Arc::new(kept));
        }
        let whole = before.into_iter().chain(output.iter().cloned()).collect();
        own.conversations.insert(id.to_owned(), Arc::new(whole));
    }

    fn shelves(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, AccountResponses>> {
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
