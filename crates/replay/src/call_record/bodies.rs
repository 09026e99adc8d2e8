//! The bodies of a call, stored as differences from the bodies of the previous call.
//!
//! | body (stored name) | content | base of the difference |
//! |---|---|---|
//! | `expanded` (`whole`) | the conversation as one request | `expanded` of the previous call |
//! | `received` (`came`) | the request as received | `expanded` |
//! | `sent` | the request as sent | the shorter of `expanded` and `sent` of the previous call |
//! | `account` | the report of Fates and findings | `account` of the previous call |
//!
//! The stored size of a call is therefore proportional to its new content. If the differences since
//! the last full record would exceed the size of the bodies, the bodies are stored in full.
//! Decoding a call therefore reads at most about twice the size of its bodies.

use bytes::Bytes;
use throughline_core::LogId;
use throughline_json::{self as json, Json, Node};

use crate::call_record::{delta, lossy};

/// The bodies of one call, each valid UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bodies {
    /// The request expanded to the whole conversation.
    pub expanded: Bytes,
    /// The request as the caller sent it.
    pub received: Bytes,
    /// The request as sent to the provider; empty if none was sent.
    pub sent: Bytes,
    /// The report of Fates and findings, as JSON.
    pub account: Bytes,
}

/// The bodies of a call, as the delta base for encoding the next call.
#[derive(Clone, Debug)]
pub struct DeltaBase {
    /// The decoded bodies.
    pub texts: Bodies,
    /// The sequence number of the last full record; `None` if these bodies are stored in full but
    /// have no sequence number yet.
    pub full: Option<u64>,
    /// The size in bytes of all differences since the last full record.
    pub since: u64,
}

/// The delta base for encoding a call's bodies, and its location in the store.
#[derive(Clone, Copy)]
pub struct DeltaSource<'b> {
    pub tail: &'b DeltaBase,
    /// If the base is in another log: that log, and the sequence number of the base's last record.
    pub other_log: Option<(&'b LogId, u64)>,
}

/// An encoded record and the delta base for encoding the next call.
pub struct EncodedBodies {
    pub json: Json,
    pub tail: DeltaBase,
}

/// Whether two texts are equal. Compares pointers first, because the texts usually share memory.
pub(super) fn is_same(left: &Bytes, right: &Bytes) -> bool {
    (left.as_ptr() == right.as_ptr() && left.len() == right.len()) || left == right
}

impl Bodies {
    /// Returns the bodies of a request that was received but not expanded or sent yet.
    pub fn of(body: &Bytes) -> Self {
        Self::of_text(lossy(body))
    }

    /// Like [`Bodies::of`], for a body that is valid UTF-8.
    pub fn of_text(body: Bytes) -> Self {
        Self { expanded: body.clone(), received: body, sent: Bytes::new(), account: Bytes::new() }
    }

    /// Returns the total size in bytes. A request body that equals `expanded` is not counted again.
    pub fn size(&self) -> usize {
        let once = |text: &Bytes| if is_same(text, &self.expanded) { 0 } else { text.len() };
        self.expanded.len() + once(&self.received) + once(&self.sent) + self.account.len()
    }

    /// Encodes the bodies as differences from `base`. If all differences since the last full record
    /// would exceed the size of the bodies, encodes the bodies in full instead.
    pub fn write(&self, base: Option<DeltaSource<'_>>) -> EncodedBodies {
        if let Some(base) = base
            && let Some(full) = base.tail.full
        {
            let json = self.record(Some((full, base)));
            let since = base.tail.since.saturating_add(json.bytes().len() as u64);
            if since <= self.size() as u64 {
                let tail = DeltaBase { texts: self.clone(), full: Some(full), since };
                return EncodedBodies { json, tail };
            }
        }
        let tail = DeltaBase { texts: self.clone(), full: None, since: 0 };
        EncodedBodies { json: self.record(None), tail }
    }

    fn record(&self, base: Option<(u64, DeltaSource<'_>)>) -> Json {
        let nothing = Bodies::default();
        let before = base.map_or(&nothing, |(_, base)| &base.tail.texts);
        json::object(|o| {
            o.number("v", 1);
            if let Some((full, base)) = base {
                o.number("full", full).number("since", base.tail.since);
                if let Some((log, last)) = base.other_log {
                    o.string("log", &log.0).number("last", last);
                }
            }
            let mut put = |name: &str, base: &Bytes, now: &Bytes| {
                o.array(name, |a| delta::write(base, now, a));
            };
            put("whole", &before.expanded, &self.expanded);
            put("account", &before.account, &self.account);
            if !is_same(&self.received, &self.expanded) {
                put("came", &self.expanded, &self.received);
            }
            if !is_same(&self.sent, &self.expanded) {
                let (name, difference) = self.encode_sent(before);
                o.raw(name, &difference);
            }
        })
    }

    /// Encodes the sent request as a difference from the previous sent request or from `expanded`,
    /// whichever difference is shorter.
    fn encode_sent(&self, before: &Bodies) -> (&'static str, Json) {
        /// If the difference from the previous sent request is this many times shorter than the
        /// text, the difference from `expanded` is not computed.
        const SHORT: usize = 16;
        let encode = |base: &Bytes| json::array(|a| delta::write(base, &self.sent, a));
        let from_previous = encode(&before.sent);
        if from_previous.bytes().len() <= self.sent.len() / SHORT {
            return ("sent_on", from_previous);
        }
        let from_expanded = encode(&self.expanded);
        if from_expanded.bytes().len() < from_previous.bytes().len() {
            ("sent", from_expanded)
        } else {
            ("sent_on", from_previous)
        }
    }

    /// Decodes a record. `before` contains the bodies of the previous call. Returns `None` if the
    /// record is invalid.
    pub fn read(before: &Bodies, record: Node<'_>) -> Option<Self> {
        let is_full = record.get("full").is_none();
        let nothing = Bodies::default();
        let before = if is_full { &nothing } else { before };
        let expanded = delta::read(&before.expanded, record.get("whole")?)?;
        let account = delta::read(&before.account, record.get("account")?)?;
        let received = match record.get("came") {
            Some(difference) => delta::read(&expanded, difference)?,
            None => expanded.clone(),
        };
        let sent = match (record.get("sent"), record.get("sent_on")) {
            (Some(difference), _) => delta::read(&expanded, difference)?,
            (None, Some(difference)) => delta::read(&before.sent, difference)?,
            (None, None) => expanded.clone(),
        };
        Some(Self { expanded, received, sent, account })
    }
}

#[cfg(test)]
#[path = "bodies_tests.rs"]
mod bodies_tests;
