//! What happened, request by request: the seals that were issued, the seals that came back, and the verdict on each.
//!
//! Tests read it to prove that a client sent everything back. A seal is named by a digest of its text, so the ledger
//! never holds one.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::digest::Mark;

/// Everything that a simulator was asked and answered, in the order of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// One entry for each request.
    pub entries: Vec<Entry>,
}

impl Ledger {
    /// All seals that were issued, in order.
    pub fn issued(&self) -> impl Iterator<Item = &Issued> {
        self.entries.iter().flat_map(|entry| &entry.issued)
    }

    /// All seals that came back, in order.
    pub fn returned(&self) -> impl Iterator<Item = &Returned> {
        self.entries.iter().flat_map(|entry| &entry.returned)
    }

    /// Whether every seal that came back was taken as it was.
    pub fn is_content(&self) -> bool {
        self.returned().all(|returned| returned.verdict == Verdict::Accepted)
            && self.entries.iter().all(|entry| entry.status < 400 && entry.lost == 0)
    }
}

/// One request and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its number, from 1.
    pub request: u64,
    /// The wire that it spoke.
    pub wire: String,
    /// The provider's row that it went to.
    pub provider: String,
    /// The model that it asked for.
    pub model: String,
    /// A digest of the key that it came with.
    pub account: String,
    /// The status that was answered.
    pub status: u16,
    /// What was said where it was refused.
    pub refused: Option<String>,
    /// Why the answer ended, in the words of `throughline-core`: `Done`, `Tools`, `Refused`.
    pub stop: Option<String>,
    /// The seals that went out with the answer.
    pub issued: Vec<Issued>,
    /// The seals that came with the request.
    pub returned: Vec<Returned>,
    /// How many seals of the current turn's calls did not come back although the calls did.
    pub lost: usize,
    /// How many tokens of the request were read from the cache.
    pub cached: u64,
}

/// A seal that went out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Issued {
    /// The seal's name: a digest of its text.
    pub seal: String,
    /// What it seals, in the wire's word.
    pub kind: String,
}

/// A seal that came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Returned {
    /// The seal's name: a digest of its text.
    pub seal: String,
    /// Where it stood, as the provider writes it: `messages.1.content.0`.
    pub path: String,
    /// What was made of it.
    pub verdict: Verdict,
}

/// What was made of a seal that came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is whole and in its place.
    Accepted,
    /// It was left out without an error, for the reason in the provider's word.
    Dropped(String),
    /// The request was refused because of it.
    Refused(String),
}

/// What one request adds to the ledger, while it is being answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) entry: Entry,
    /// The readable thoughts of the answer, so that they are known when they come back as text.
    thoughts: Vec<Mark>,
    /// The ids of the answer's calls.
    calls: Vec<String>,
}

impl Record {
    /// Notes a seal that goes out.
    pub(crate) fn issue(&mut self, seal: &str, kind: &str) {
        self.entry.issued.push(Issued { seal: name_of(seal), kind: kind.to_owned() });
    }

    /// Notes a seal that came back.
    pub(crate) fn give_back(&mut self, seal: &str, path: impl Into<String>, verdict: Verdict) {
        self.entry.returned.push(Returned { seal: name_of(seal), path: path.into(), verdict });
    }

    /// Notes a readable thought of the answer.
    pub(crate) fn think(&mut self, text: &str) {
        self.thoughts.extend(thought(text));
    }

    /// Notes a call of the answer by the id that the wire gave it.
    pub(crate) fn call(&mut self, id: &str) {
        self.calls.push(id.to_owned());
    }
}

/// The name of a seal.
fn name_of(seal: &str) -> String {
    Mark::of("throughline-sim ledger", seal).hex(16)
}

/// What is known of a thought's text. A short one says nothing, because anybody may have written it.
fn thought(text: &str) -> Option<Mark> {
    let text = text.trim();
    (text.chars().count() >= 12).then(|| Mark::of("throughline-sim thought", text))
}

/// The ledger as the server keeps it.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    ledger: Ledger,
    thoughts: HashSet<Mark>,
    sealed_calls: HashMap<String, Vec<String>>,
}

impl Book {
    /// The ledger as it stands.
    pub(crate) fn read(&self) -> Ledger {
        self.pages().ledger.clone()
    }

    /// Writes down one request.
    pub(crate) fn enter(&self, record: Record) {
        let mut pages = self.pages();
        pages.thoughts.extend(record.thoughts);
        let seals: Vec<String> = record.entry.issued.iter().map(|i| i.seal.clone()).collect();
        if !seals.is_empty() {
            for call in record.calls {
                pages.sealed_calls.insert(call, seals.clone());
            }
        }
        pages.ledger.entries.push(record.entry);
    }

    /// Whether a text is something that was thought here.
    pub(crate) fn was_thought(&self, text: &str) -> bool {
        thought(text).is_some_and(|mark| self.pages().thoughts.contains(&mark))
    }

    /// The names of the seals that were issued with a call.
    pub(crate) fn sealed_with(&self, call: &str) -> Vec<String> {
        self.pages().sealed_calls.get(call).cloned().unwrap_or_default()
    }

    /// How many seals were issued with these calls and are not among those that came back.
    pub(crate) fn lost<'c>(
        &self,
        calls: impl IntoIterator<Item = &'c str>,
        returned: &[Returned],
    ) -> usize {
        let issued: HashSet<String> =
            calls.into_iter().flat_map(|call| self.sealed_with(call)).collect();
        issued.iter().filter(|seal| !returned.iter().any(|back| back.seal == **seal)).count()
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
