//! The ledger records which Seals each response issued, which Seals each request returned, and the
//! verdict on each returned Seal.
//!
//! Tests read the ledger to prove that a client returned every Seal. The ledger contains only
//! digests of Seals.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::digest::Digest;

/// All requests to a simulator, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// One entry per request, in order.
    pub entries: Vec<LedgerEntry>,
}

impl Ledger {
    /// Returns only the entries of the requests after this request number.
    #[must_use]
    pub fn after(mut self, request: u64) -> Self {
        self.entries.retain(|entry| entry.request > request);
        self
    }

    /// Iterates over all issued Seals, in order.
    pub fn issued(&self) -> impl Iterator<Item = &IssuedSeal> {
        self.entries.iter().flat_map(|entry| &entry.issued)
    }

    /// Iterates over all returned Seals, in order.
    pub fn returned(&self) -> impl Iterator<Item = &ReturnedSeal> {
        self.entries.iter().flat_map(|entry| &entry.returned)
    }

    /// Returns whether every request succeeded, every returned Seal was accepted, and no Seal was
    /// lost.
    pub fn all_verified(&self) -> bool {
        self.entries.iter().all(LedgerEntry::all_verified)
    }
}

/// A request and its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LedgerEntry {
    /// Number of the request, starting at 1.
    pub request: u64,
    /// Name of the wire protocol.
    pub wire: String,
    /// Name of the provider entry in the catalog that handled the request.
    pub provider: String,
    /// Model named in the request.
    pub model: String,
    /// Digest of the API key, which identifies the account.
    pub account: String,
    /// HTTP status of the response.
    pub status: u16,
    /// Error message, if the simulator rejected the request.
    pub refused: Option<String>,
    /// Stop reason of the reply: `done`, `tools`, `length`, `refused` and so on.
    pub stop: Option<String>,
    /// Seals that the response contained.
    pub issued: Vec<IssuedSeal>,
    /// Seals that the request contained, each with its verdict.
    pub returned: Vec<ReturnedSeal>,
    /// Number of Seals missing from the request although it contains the sealed content. For most
    /// providers, only calls of the current turn count. For Gemini, all signed content counts. For
    /// DeepSeek and Kimi, all replies of all turns that call tools count.
    pub lost: usize,
    /// Whether the request changed the thinking settings within a tool loop.
    pub reconfigured: bool,
    /// Number of input tokens, including cached tokens.
    pub input: u64,
    /// Number of input tokens read from the cache.
    pub cached: u64,
    /// Number of tokens that repeat earlier content but missed the cache, because JSON members in
    /// this or earlier content were reordered.
    pub missed: u64,
}

impl LedgerEntry {
    /// Returns whether the request succeeded, every returned Seal was accepted, and no Seal was
    /// lost.
    pub fn all_verified(&self) -> bool {
        let is_taken = |returned: &ReturnedSeal| returned.verdict == Verdict::Accepted;
        self.status < 400 && self.lost == 0 && self.returned.iter().all(is_taken)
    }
}

/// A Seal that a response contained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IssuedSeal {
    /// Digest of the Seal, comparable with [`ReturnedSeal::seal`].
    pub seal: String,
    /// Type of the sealed part in the wire's terminology, such as `thinking`.
    pub kind: String,
}

/// A Seal that a request contained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReturnedSeal {
    /// Digest of the Seal, comparable with [`IssuedSeal::seal`].
    pub seal: String,
    /// Position in the request, in the provider's notation, such as `messages.1.content.0`.
    pub path: String,
    /// Whether the provider accepted, ignored or rejected the Seal.
    pub verdict: Verdict,
}

/// Outcome of verifying a returned Seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The Seal is unchanged and in the right position.
    Accepted,
    /// The provider ignored the Seal without an error, for the given reason.
    Dropped(String),
    /// The provider rejected the request because of this Seal, with the given error.
    Refused(String),
}

impl Verdict {
    pub(crate) fn dropped(reason: &str) -> Self {
        Self::Dropped(reason.to_owned())
    }

    pub(crate) fn refused(reason: &str) -> Self {
        Self::Refused(reason.to_owned())
    }
}

/// Collects a ledger entry while the request is being handled.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryBuilder {
    pub(crate) entry: LedgerEntry,
    pub(crate) source: ReplySource,
    /// Digests of the reply's readable thoughts, to detect thoughts that a client returns as text.
    thoughts: Vec<Digest>,
    /// Digests of the other keys by which a later request is matched to this reply.
    keys: Vec<Digest>,
}

/// The model family, account and thinking configuration that produced a reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplySource {
    pub(crate) family: String,
    pub(crate) account: Digest,
    /// Digest of the thinking configuration, for providers that require the configuration to stay
    /// constant within a turn.
    pub(crate) config: Option<Digest>,
}

/// A value by which a later request is matched to an earlier reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKey {
    Call(String),
    /// A visible text in a reply to this account; `None` matches any account.
    Text(Option<Digest>, String),
    Thought(String),
    Seal(String),
}

impl ReplyKey {
    fn digest(&self) -> Option<Digest> {
        match self {
            Self::Call(id) => Some(Digest::new("throughline-sim call", id)),
            Self::Text(account, text) => Some(account.unwrap_or_default().and(text)),
            Self::Thought(text) => thought(text),
            Self::Seal(seal) => Some(seal_name_digest(&name_of(seal))),
        }
    }
}

impl EntryBuilder {
    pub(crate) fn issue(&mut self, seal: &str, kind: &str) {
        self.entry.issued.push(IssuedSeal { seal: name_of(seal), kind: kind.to_owned() });
    }

    pub(crate) fn record_returned(
        &mut self,
        seal: &str,
        path: impl Into<String>,
        verdict: Verdict,
    ) {
        self.entry.returned.push(ReturnedSeal { seal: name_of(seal), path: path.into(), verdict });
    }

    /// Records a readable thought, so that the thought is recognised if a client returns it as
    /// text.
    pub(crate) fn record_thought(&mut self, text: &str) {
        self.thoughts.extend(thought(text));
    }

    /// Records the id of a tool call as a key of the reply.
    pub(crate) fn call(&mut self, id: &str) {
        self.keys.extend(ReplyKey::Call(id.to_owned()).digest());
    }

    /// Records a visible text as a key of the reply.
    pub(crate) fn record_text(&mut self, text: &str) {
        for account in [None, Some(self.source.account)] {
            self.keys.extend(ReplyKey::Text(account, text.to_owned()).digest());
        }
    }
}

/// Returns the digest that represents a Seal in the ledger.
fn name_of(seal: &str) -> String {
    Digest::new("throughline-sim ledger", seal).hex(16)
}

fn seal_name_digest(name: &str) -> Digest {
    Digest::new("throughline-sim named seal", name)
}

/// Returns the digest of a thought's text; `None` for a short text, which could match by chance.
fn thought(text: &str) -> Option<Digest> {
    let text = text.trim();
    (text.chars().count() >= 12).then(|| Digest::new("throughline-sim thought", text))
}

/// The server's ledger, shared by all requests.
#[derive(Debug, Default)]
pub(crate) struct SharedLedger {
    state: Mutex<LedgerState>,
}

#[derive(Debug, Default)]
struct LedgerState {
    ledger: Ledger,
    thoughts: HashSet<Digest>,
    /// Earlier replies by key. Several replies may have the same key.
    replies: HashMap<Digest, Vec<Arc<SentReply>>>,
}

/// A reply that the simulator sent.
#[derive(Debug)]
pub(crate) struct SentReply {
    pub(crate) source: ReplySource,
    request: u64,
    /// Digests of the Seals in the reply.
    seals: Vec<String>,
}

impl SentReply {
    /// Returns whether `returned` contains at least one Seal of this reply.
    fn has_returned_seal(&self, returned: &[ReturnedSeal]) -> bool {
        returned.iter().any(|seal| self.seals.contains(&seal.seal))
    }
}

impl SharedLedger {
    pub(crate) fn read(&self) -> Ledger {
        self.state().ledger.clone()
    }

    pub(crate) fn last(&self) -> Option<LedgerEntry> {
        self.state().ledger.entries.last().cloned()
    }

    /// Appends an entry and indexes its reply by key.
    pub(crate) fn enter(&self, record: EntryBuilder) {
        let mut state = self.state();
        let seals = record.entry.issued.iter().map(|issued| issued.seal.clone()).collect();
        let reply = SentReply { source: record.source, request: record.entry.request, seals };
        let reply = Arc::new(reply);
        let seals = reply.seals.iter().map(|name| seal_name_digest(name));
        let digests: HashSet<Digest> =
            record.keys.iter().chain(&record.thoughts).copied().chain(seals).collect();
        for digest in digests {
            state.replies.entry(digest).or_default().push(Arc::clone(&reply));
        }
        state.thoughts.extend(record.thoughts);
        state.ledger.entries.push(record.entry);
    }

    /// Returns whether this text is a thought that a simulated model produced.
    pub(crate) fn contains_thought(&self, text: &str) -> bool {
        thought(text).is_some_and(|digest| self.state().thoughts.contains(&digest))
    }

    /// Returns the earlier replies that have this key.
    pub(crate) fn replies(&self, key: &ReplyKey) -> Vec<Arc<SentReply>> {
        let digest = key.digest();
        digest.and_then(|digest| self.state().replies.get(&digest).cloned()).unwrap_or_default()
    }

    /// Returns whether both keys belong to earlier replies, but no reply has both keys.
    pub(crate) fn are_apart(&self, one: &ReplyKey, other: &ReplyKey) -> bool {
        let (one, other) = (self.replies(one), self.replies(other));
        let is_one =
            |reply: &Arc<SentReply>| other.iter().any(|other| other.request == reply.request);
        !one.is_empty() && !other.is_empty() && !one.iter().any(is_one)
    }

    /// Counts the Seals of the replies with these keys that are not in `returned`. Skips replies
    /// whose Seals the requested model cannot read.
    pub(crate) fn lost(
        &self,
        keys: &[ReplyKey],
        returned: &[ReturnedSeal],
        is_read: impl Fn(&ReplySource) -> bool,
    ) -> usize {
        // If several replies match a key, prefer a reply whose Seals were returned.
        let matching = keys.iter().filter_map(|key| {
            let mut replies = self.replies(key);
            let back = replies.iter().position(|reply| reply.has_returned_seal(returned));
            back.map(|at| replies.swap_remove(at)).or_else(|| replies.pop())
        });
        let readable: Vec<_> = matching.filter(|reply| is_read(&reply.source)).collect();
        let issued: HashSet<&String> = readable.iter().flat_map(|reply| &reply.seals).collect();
        issued.iter().filter(|seal| !returned.iter().any(|back| back.seal == ***seal)).count()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
