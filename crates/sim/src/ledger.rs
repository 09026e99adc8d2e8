//! What happened, request by request: the seals that were issued, the seals that came back, and the verdict on each.
//!
//! Tests read it to prove that a client sent everything back. A seal is named by a digest of its text, so the ledger
//! never holds one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

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
        self.entries.iter().all(Entry::is_content)
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
    /// How many seals did not come back although what they were issued with did: the calls of the current turn, and with
    /// Gemini everything that it signed.
    pub lost: usize,
    /// Whether thinking is asked for otherwise than when the calls of the open tool loop were made.
    pub reconfigured: bool,
    /// How many tokens the request had.
    pub input: u64,
    /// How many of them were read from the cache.
    pub cached: u64,
    /// How many of them were not, although they say what was said before: their members stand in another order, or something
    /// before them does.
    pub missed: u64,
}

impl Entry {
    /// Whether it was answered, and every seal of it was taken as it was.
    pub fn is_content(&self) -> bool {
        let is_taken = |returned: &Returned| returned.verdict == Verdict::Accepted;
        self.status < 400 && self.lost == 0 && self.returned.iter().all(is_taken)
    }
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
    /// Who answers.
    pub(crate) giver: Giver,
    /// The readable thoughts of the answer, so that they are known when they come back as text.
    thoughts: Vec<Mark>,
    /// By what else the answer is known when it comes back.
    landmarks: Vec<Mark>,
}

/// Who gave an answer to whom, and how it was asked to think.
#[derive(Clone, Debug, Default)]
pub(crate) struct Giver {
    /// The model family.
    pub(crate) family: String,
    /// The account that it was given to.
    pub(crate) account: Mark,
    /// The configuration of its thinking, where one must last for a whole turn.
    pub(crate) config: Option<Mark>,
}

/// By what an answer is known when it comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Landmark {
    /// The id of a call.
    Call(String),
    /// What was said to that account; to whomever, where none is named.
    Text(Option<Mark>, String),
    /// What was thought.
    Thought(String),
    /// A seal.
    Seal(String),
}

impl Landmark {
    fn mark(&self) -> Option<Mark> {
        match self {
            Self::Call(id) => Some(Mark::of("throughline-sim call", id)),
            Self::Text(account, text) => Some(account.unwrap_or_default().and(text)),
            Self::Thought(text) => thought(text),
            Self::Seal(seal) => Some(mark_of(&name_of(seal))),
        }
    }
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
        self.landmarks.extend(Landmark::Call(id.to_owned()).mark());
    }

    /// Notes what the answer says.
    pub(crate) fn say(&mut self, text: &str) {
        for account in [None, Some(self.giver.account)] {
            self.landmarks.extend(Landmark::Text(account, text.to_owned()).mark());
        }
    }
}

/// The name of a seal.
fn name_of(seal: &str) -> String {
    Mark::of("throughline-sim ledger", seal).hex(16)
}

/// What a seal of that name is known by.
fn mark_of(name: &str) -> Mark {
    Mark::of("throughline-sim named seal", name)
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
    /// The answers, by what they are known by. The same may have been said more than once.
    answers: HashMap<Mark, Vec<Arc<Given>>>,
}

/// An answer that was given.
#[derive(Debug)]
pub(crate) struct Given {
    /// Who gave it.
    pub(crate) giver: Giver,
    /// The number of its request.
    request: u64,
    /// The names of its seals.
    seals: Vec<String>,
}

impl Given {
    /// Whether one of its seals came back.
    fn is_back(&self, returned: &[Returned]) -> bool {
        returned.iter().any(|back| self.seals.contains(&back.seal))
    }
}

impl Book {
    /// The ledger as it stands.
    pub(crate) fn read(&self) -> Ledger {
        self.pages().ledger.clone()
    }

    /// What became of the last request.
    pub(crate) fn last(&self) -> Option<Entry> {
        self.pages().ledger.entries.last().cloned()
    }

    /// Writes down one request.
    pub(crate) fn enter(&self, record: Record) {
        let mut pages = self.pages();
        let seals = record.entry.issued.iter().map(|issued| issued.seal.clone()).collect();
        let given = Given { giver: record.giver, request: record.entry.request, seals };
        let given = Arc::new(given);
        let seals = given.seals.iter().map(|name| mark_of(name));
        let marks: HashSet<Mark> =
            record.landmarks.iter().chain(&record.thoughts).copied().chain(seals).collect();
        for mark in marks {
            pages.answers.entry(mark).or_default().push(Arc::clone(&given));
        }
        pages.thoughts.extend(record.thoughts);
        pages.ledger.entries.push(record.entry);
    }

    /// Whether a text is something that was thought here.
    pub(crate) fn was_thought(&self, text: &str) -> bool {
        thought(text).is_some_and(|mark| self.pages().thoughts.contains(&mark))
    }

    /// The answers that are known by this.
    pub(crate) fn answers(&self, landmark: &Landmark) -> Vec<Arc<Given>> {
        let mark = landmark.mark();
        mark.and_then(|mark| self.pages().answers.get(&mark).cloned()).unwrap_or_default()
    }

    /// Whether two things were both said here, and never in one answer.
    pub(crate) fn are_apart(&self, one: &Landmark, other: &Landmark) -> bool {
        let (one, other) = (self.answers(one), self.answers(other));
        let is_one = |given: &Arc<Given>| other.iter().any(|other| other.request == given.request);
        !one.is_empty() && !other.is_empty() && !one.iter().any(is_one)
    }

    /// How many seals were issued with what is known by these, and are not among those that came back. What would not be
    /// read is not missed.
    pub(crate) fn lost(
        &self,
        landmarks: &[Landmark],
        returned: &[Returned],
        is_read: impl Fn(&Giver) -> bool,
    ) -> usize {
        // Of answers that say the same, whichever came back is the one.
        let answers = landmarks.iter().filter_map(|landmark| {
            let mut said = self.answers(landmark);
            let back = said.iter().position(|given| given.is_back(returned));
            back.map(|at| said.swap_remove(at)).or_else(|| said.pop())
        });
        let own: Vec<_> = answers.filter(|given| is_read(&given.giver)).collect();
        let issued: HashSet<&String> = own.iter().flat_map(|given| &given.seals).collect();
        issued.iter().filter(|seal| !returned.iter().any(|back| back.seal == ***seal)).count()
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
