//! Records, per request, the Seals issued, the Seals returned, and the verdict on each.
//!
//! Tests read it to prove that a client returned everything. The ledger identifies a Seal by a
//! digest and never contains one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::digest::Digest;

/// The record of all requests to a simulator, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// One entry per request.
    pub entries: Vec<LedgerEntry>,
}

impl Ledger {
    /// Iterates over all issued Seals, in order.
    pub fn issued(&self) -> impl Iterator<Item = &IssuedSeal> {
        self.entries.iter().flat_map(|entry| &entry.issued)
    }

    /// Iterates over all returned Seals, in order.
    pub fn returned(&self) -> impl Iterator<Item = &ReturnedSeal> {
        self.entries.iter().flat_map(|entry| &entry.returned)
    }

    /// Returns whether every request succeeded, every returned Seal was accepted and none was lost.
    pub fn all_verified(&self) -> bool {
        self.entries.iter().all(LedgerEntry::all_verified)
    }
}

/// One request and its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LedgerEntry {
    /// Number of the request, from 1.
    pub request: u64,
    /// Wire of the request.
    pub wire: String,
    /// Name of the provider row that answered.
    pub provider: String,
    /// Requested model.
    pub model: String,
    /// Digest of the API key.
    pub account: String,
    /// HTTP status of the response.
    pub status: u16,
    /// Error message, if the request was rejected.
    pub refused: Option<String>,
    /// Why the reply ended: `done`, `tools`, `length`, `refused` and so on.
    pub stop: Option<String>,
    /// Seals in the response.
    pub issued: Vec<IssuedSeal>,
    /// Seals in the request.
    pub returned: Vec<ReturnedSeal>,
    /// Number of Seals missing although the content they were issued with came back: for the calls
    /// of the current turn, and for Gemini everything it signed.
    pub lost: usize,
    /// Whether the thinking settings differ from those under which the calls of the open tool loop
    /// were made.
    pub reconfigured: bool,
    /// Number of input tokens.
    pub input: u64,
    /// Number of input tokens read from the cache.
    pub cached: u64,
    /// Number of tokens that repeat earlier content but missed the cache, because members were
    /// reordered here or before.
    pub missed: u64,
}

impl LedgerEntry {
    /// Returns whether the request succeeded, every returned Seal was accepted and none was lost.
    pub fn all_verified(&self) -> bool {
        let is_taken = |returned: &ReturnedSeal| returned.verdict == Verdict::Accepted;
        self.status < 400 && self.lost == 0 && self.returned.iter().all(is_taken)
    }
}

/// A Seal in a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IssuedSeal {
    /// Digest of the Seal.
    pub seal: String,
    /// Kind of the sealed part, in the wire's terms.
    pub kind: String,
}

/// A Seal in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReturnedSeal {
    /// Digest of the Seal.
    pub seal: String,
    /// Position in the request, as the provider writes it: `messages.1.content.0`.
    pub path: String,
    /// Outcome of the verification.
    pub verdict: Verdict,
}

/// Outcome of verifying a returned Seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The Seal is intact and in its place.
    Accepted,
    /// The provider ignored the Seal without an error; contains the provider's reason.
    Dropped(String),
    /// The provider rejected the request because of this Seal; contains the error.
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

/// Collects the ledger entry of one request while it is being answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryBuilder {
    pub(crate) entry: LedgerEntry,
    pub(crate) source: ReplySource,
    /// The readable thoughts of the reply, to detect them if they return as text.
    thoughts: Vec<Digest>,
    /// Other keys that identify the reply in a later request.
    landmarks: Vec<Digest>,
}

/// The model, account and thinking configuration of a reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplySource {
    pub(crate) family: String,
    pub(crate) account: Digest,
    /// The thinking configuration, where it must stay constant for a whole turn.
    pub(crate) config: Option<Digest>,
}

/// A value that identifies an earlier reply in a later request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKey {
    /// The id of a tool call.
    Call(String),
    /// A text sent to this account; to any account if `None`.
    Text(Option<Digest>, String),
    /// The text of a thought.
    Thought(String),
    Seal(String),
}

impl ReplyKey {
    fn mark(&self) -> Option<Digest> {
        match self {
            Self::Call(id) => Some(Digest::new("throughline-sim call", id)),
            Self::Text(account, text) => Some(account.unwrap_or_default().and(text)),
            Self::Thought(text) => thought(text),
            Self::Seal(seal) => Some(seal_name_digest(&name_of(seal))),
        }
    }
}

impl EntryBuilder {
    /// Records a Seal in the response.
    pub(crate) fn issue(&mut self, seal: &str, kind: &str) {
        self.entry.issued.push(IssuedSeal { seal: name_of(seal), kind: kind.to_owned() });
    }

    /// Records a Seal in the request.
    pub(crate) fn record_returned(
        &mut self,
        seal: &str,
        path: impl Into<String>,
        verdict: Verdict,
    ) {
        self.entry.returned.push(ReturnedSeal { seal: name_of(seal), path: path.into(), verdict });
    }

    /// Records a readable thought of the reply.
    pub(crate) fn think(&mut self, text: &str) {
        self.thoughts.extend(thought(text));
    }

    /// Records a tool call of the reply by its wire id.
    pub(crate) fn call(&mut self, id: &str) {
        self.landmarks.extend(ReplyKey::Call(id.to_owned()).mark());
    }

    /// Records a text of the reply.
    pub(crate) fn record_text(&mut self, text: &str) {
        for account in [None, Some(self.source.account)] {
            self.landmarks.extend(ReplyKey::Text(account, text.to_owned()).mark());
        }
    }
}

/// Returns the digest that identifies a Seal in the ledger.
fn name_of(seal: &str) -> String {
    Digest::new("throughline-sim ledger", seal).hex(16)
}

fn seal_name_digest(name: &str) -> Digest {
    Digest::new("throughline-sim named seal", name)
}

/// Returns the digest of a thought's text; `None` for short texts, which may occur by chance.
fn thought(text: &str) -> Option<Digest> {
    let text = text.trim();
    (text.chars().count() >= 12).then(|| Digest::new("throughline-sim thought", text))
}

/// Shared, mutable ledger of the server.
#[derive(Debug, Default)]
pub(crate) struct SharedLedger {
    state: Mutex<LedgerState>,
}

#[derive(Debug, Default)]
struct LedgerState {
    ledger: Ledger,
    thoughts: HashSet<Digest>,
    /// Earlier replies by key. Several replies may share a key.
    answers: HashMap<Digest, Vec<Arc<SentReply>>>,
}

/// A reply that was sent.
#[derive(Debug)]
pub(crate) struct SentReply {
    pub(crate) source: ReplySource,
    request: u64,
    /// Digests of its Seals.
    seals: Vec<String>,
}

impl SentReply {
    /// Returns whether at least one of its Seals was returned.
    fn has_returned_seal(&self, returned: &[ReturnedSeal]) -> bool {
        returned.iter().any(|back| self.seals.contains(&back.seal))
    }
}

impl SharedLedger {
    /// Returns a copy of the ledger.
    pub(crate) fn read(&self) -> Ledger {
        self.state().ledger.clone()
    }

    /// Returns the entry of the last request.
    pub(crate) fn last(&self) -> Option<LedgerEntry> {
        self.state().ledger.entries.last().cloned()
    }

    /// Adds the entry of one request.
    pub(crate) fn enter(&self, record: EntryBuilder) {
        let mut state = self.state();
        let seals = record.entry.issued.iter().map(|issued| issued.seal.clone()).collect();
        let reply = SentReply { source: record.source, request: record.entry.request, seals };
        let reply = Arc::new(reply);
        let seals = reply.seals.iter().map(|name| seal_name_digest(name));
        let marks: HashSet<Digest> =
            record.landmarks.iter().chain(&record.thoughts).copied().chain(seals).collect();
        for mark in marks {
            state.answers.entry(mark).or_default().push(Arc::clone(&reply));
        }
        state.thoughts.extend(record.thoughts);
        state.ledger.entries.push(record.entry);
    }

    /// Returns whether a simulated model produced this text as a thought.
    pub(crate) fn contains_thought(&self, text: &str) -> bool {
        thought(text).is_some_and(|mark| self.state().thoughts.contains(&mark))
    }

    /// Returns the replies that contain this value.
    pub(crate) fn answers(&self, landmark: &ReplyKey) -> Vec<Arc<SentReply>> {
        let mark = landmark.mark();
        mark.and_then(|mark| self.state().answers.get(&mark).cloned()).unwrap_or_default()
    }

    /// Returns whether both values occur in earlier replies, but never in the same one.
    pub(crate) fn are_apart(&self, one: &ReplyKey, other: &ReplyKey) -> bool {
        let (one, other) = (self.answers(one), self.answers(other));
        let is_one =
            |reply: &Arc<SentReply>| other.iter().any(|other| other.request == reply.request);
        !one.is_empty() && !other.is_empty() && !one.iter().any(is_one)
    }

    /// Counts the Seals issued with these values that are not in `returned`. Replies that the model
    /// would not read are skipped.
    pub(crate) fn lost(
        &self,
        landmarks: &[ReplyKey],
        returned: &[ReturnedSeal],
        is_read: impl Fn(&ReplySource) -> bool,
    ) -> usize {
        // If several replies match, prefer one whose Seals were returned.
        let answers = landmarks.iter().filter_map(|landmark| {
            let mut replies = self.answers(landmark);
            let back = replies.iter().position(|reply| reply.has_returned_seal(returned));
            back.map(|at| replies.swap_remove(at)).or_else(|| replies.pop())
        });
        let own: Vec<_> = answers.filter(|reply| is_read(&reply.source)).collect();
        let issued: HashSet<&String> = own.iter().flat_map(|reply| &reply.seals).collect();
        issued.iter().filter(|seal| !returned.iter().any(|back| back.seal == ***seal)).count()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
