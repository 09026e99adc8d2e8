//! State of a running simulator that is kept across requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use throughline_codec::SharedCatalog;

use crate::Options;
use crate::cache::PromptCache;
use crate::digest::Digest;
use crate::keys::SealKeys;
use crate::ledger::SharedLedger;
use crate::script::ScriptPlayer;
use crate::stored::ResponseStore;

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct SimState {
    pub(crate) options: Options,
    /// Providers and model families.
    pub(crate) catalog: SharedCatalog,
    pub(crate) keys: SealKeys,
    pub(crate) ledger: SharedLedger,
    pub(crate) cache: PromptCache,
    pub(crate) script: ScriptPlayer,
    /// Responses stored by the Responses API.
    pub(crate) stored: ResponseStore,
    /// The text of each interrupted reply, by the digest of the token that continues it.
    pub(crate) interrupted: Mutex<HashMap<Digest, String>>,
    requests: AtomicU64,
    repeats: Mutex<HashMap<Digest, u64>>,
    /// Bodies by the number of the request, if the options ask for them.
    bodies: Mutex<HashMap<u64, Bytes>>,
}

impl SimState {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            catalog: options.catalog.clone(),
            keys: SealKeys::new(options.seed),
            ledger: SharedLedger::default(),
            cache: PromptCache::default(),
            script: ScriptPlayer::new(options.script.clone()),
            stored: ResponseStore::default(),
            interrupted: Mutex::default(),
            requests: AtomicU64::new(0),
            repeats: Mutex::default(),
            bodies: Mutex::default(),
            options,
        }
    }

    /// Returns the number of the next request, starting at 1.
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Keeps the body of a request, if the options ask for it.
    pub(crate) fn keep_body(&self, request: u64, body: Option<&Bytes>) {
        if let Some(body) = body.filter(|_| self.options.keep_bodies) {
            self.bodies
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(request, body.clone());
        }
    }

    /// Returns the body of a request, if the simulator kept it.
    pub(crate) fn body(&self, request: u64) -> Option<Bytes> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner).get(&request).cloned()
    }

    /// Derives the seed for all generated values in a reply. The seed depends on the simulator's
    /// seed, the request, and the number of identical earlier requests, but not on other requests.
    pub(crate) fn nonce(&self, request: Digest) -> Digest {
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let repeat = repeats.entry(request).or_default();
        let nonce = request.and(self.options.seed.to_le_bytes()).and(repeat.to_le_bytes());
        *repeat += 1;
        nonce
    }
}
