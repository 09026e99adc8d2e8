//! What a running simulator knows: its keys, its rows, and everything that it remembers between requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use throughline_codec::Catalog;

use crate::Options;
use crate::cache::Cache;
use crate::digest::Mark;
use crate::keys::Keys;
use crate::ledger::Book;
use crate::script::Playing;
use crate::wires::responses;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct World {
    /// How the simulator was started.
    pub(crate) options: Options,
    /// The rows of endpoints and model families.
    pub(crate) catalog: Catalog,
    /// What it seals with.
    pub(crate) keys: Keys,
    /// What was issued and what came back.
    pub(crate) book: Book,
    /// The prompt caches.
    pub(crate) cache: Cache,
    /// What was told to be answered.
    pub(crate) playing: Playing,
    /// What the Responses endpoints keep.
    pub(crate) stored: responses::Stored,
    requests: AtomicU64,
    repeats: Mutex<HashMap<Mark, u64>>,
}

impl World {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            catalog: options.catalog.clone(),
            keys: Keys::new(options.seed),
            book: Book::default(),
            cache: Cache::default(),
            playing: Playing::new(options.script.clone()),
            stored: responses::Stored::default(),
            requests: AtomicU64::new(0),
            repeats: Mutex::default(),
            options,
        }
    }

    /// The number of the next request, from 1.
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Where everything new in the answer to a request follows from: the seed, the request, and how often the very same
    /// request was made before. So what else is asked meanwhile changes nothing.
    pub(crate) fn nonce(&self, request: Mark) -> Mark {
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let repeat = repeats.entry(request).or_default();
        let nonce = request.and(self.options.seed.to_le_bytes()).and(repeat.to_le_bytes());
        *repeat += 1;
        nonce
    }
}
