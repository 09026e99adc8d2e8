//! Stores the output items and conversations of the Responses API by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use throughline_json::Json;

use crate::digest::Digest;

/// Stored responses of all accounts. Responses never expire, and each account can read only its own
/// responses.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore {
    accounts: Mutex<HashMap<Digest, AccountResponses>>,
}

/// Stored responses of one account at one provider.
#[derive(Debug, Default)]
struct AccountResponses {
    items: HashMap<String, Arc<StoredItem>>,
    conversations: HashMap<String, Arc<Vec<Json>>>,
}

#[derive(Debug)]
pub(crate) struct StoredItem {
    pub(crate) json: Json,
    /// For a reasoning item, the id of the output item directly after it.
    pub(crate) follows: Option<String>,
    /// For any other item, the id of the reasoning item directly before it.
    pub(crate) requires: Option<String>,
}

impl ResponseStore {
    pub(crate) fn item(&self, owner: Digest, id: &str) -> Option<Arc<StoredItem>> {
        self.accounts().get(&owner)?.items.get(id).cloned()
    }

    /// Returns the conversation up to and including this response.
    pub(crate) fn conversation(&self, owner: Digest, id: &str) -> Option<Arc<Vec<Json>>> {
        self.accounts().get(&owner)?.conversations.get(id).cloned()
    }

    /// Stores the output items of a response, and the conversation up to and including the
    /// response.
    pub(crate) fn insert(&self, owner: Digest, id: &str, before: Vec<Json>, output: &[Json]) {
        let mut accounts = self.accounts();
        let account = accounts.entry(owner).or_default();
        for (at, json) in output.iter().enumerate() {
            let Some(item_id) = id_of(json) else { continue };
            let leads = is_reasoning(json);
            let next = output.iter().skip(at + 1).find(|item| !is_reasoning(item));
            let previous = output.iter().take(at).rev().find(|item| is_reasoning(item));
            let item = StoredItem {
                json: json.clone(),
                follows: next.filter(|_| leads).and_then(id_of),
                requires: previous.filter(|_| !leads).and_then(id_of),
            };
            account.items.insert(item_id, Arc::new(item));
        }
        let conversation = before.into_iter().chain(output.iter().cloned()).collect();
        account.conversations.insert(id.to_owned(), Arc::new(conversation));
    }

    fn accounts(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, AccountResponses>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id_of(item: &Json) -> Option<String> {
    item.tree().root().text_of("id").map(std::borrow::Cow::into_owned)
}

fn is_reasoning(item: &Json) -> bool {
    item.tree().root().get("type").is_some_and(|kind| kind.is("reasoning"))
}
