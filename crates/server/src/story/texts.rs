//! The texts of a call, and how they are kept: as differences to those of the call before.
//!
//! | text | is kept as its difference to |
//! |---|---|
//! | `whole`: the request as if its caller had sent all of the conversation | `whole` of the call before |
//! | `came`: the request as it came | `whole` |
//! | `sent`: the request as it was sent | `whole`, or `sent` of the call before: whichever is shorter |
//! | `account`: what became of each Item, and what was found | `account` of the call before |
//!
//! So a call costs what is new in it. When the differences since the last call that was kept in full are together as long as
//! the texts, the next is kept in full: to read a call's texts is to read at most twice as much as they are.

use bytes::Bytes;
use throughline_core::{Json, LogId, Node, json};

use crate::story::{delta, lossy};

/// The texts of one call. All of them are UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    /// The request as if its caller had sent all of the conversation.
    pub(crate) whole: Bytes,
    /// The request as it came.
    pub(crate) came: Bytes,
    /// The request as it was sent.
    pub(crate) sent: Bytes,
    /// What became of each Item, and what was found.
    pub(crate) account: Bytes,
}

/// The texts of a call that others may go on from, and where they are kept.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    pub(crate) texts: Texts,
    /// The record of the last call that was kept in full; nothing where it is this one, and was not written yet.
    pub(crate) full: Option<u64>,
    /// How many bytes the differences since have.
    pub(crate) since: u64,
}

/// What the texts of a call go on from.
#[derive(Clone, Copy)]
pub(crate) struct Base<'b> {
    pub(crate) tail: &'b Tail,
    /// Its log and its last record, where that is another log than the one that is written to.
    pub(crate) elsewhere: Option<(&'b LogId, u64)>,
}

/// How a record says its texts.
pub(crate) struct Written {
    pub(crate) json: Json,
    pub(crate) tail: Tail,
}

/// Whether two texts say the same. Most often they are one and the same.
pub(super) fn is_same(left: &Bytes, right: &Bytes) -> bool {
    (left.as_ptr() == right.as_ptr() && left.len() == right.len()) || left == right
}

impl Texts {
    /// Those of a request of which nothing is known but what came.
    pub(crate) fn of(body: &Bytes) -> Self {
        let body = lossy(body);
        Self { whole: body.clone(), came: body, sent: Bytes::new(), account: Bytes::new() }
    }

    /// How many bytes they have, where what is said twice counts once.
    pub(crate) fn size(&self) -> usize {
        let once = |text: &Bytes| if is_same(text, &self.whole) { 0 } else { text.len() };
        self.whole.len() + once(&self.came) + once(&self.sent) + self.account.len()
    }

    /// Writes them, as differences to what came before where that is worth it.
    pub(crate) fn write(&self, base: Option<Base<'_>>) -> Written {
        if let Some(base) = base
            && let Some(full) = base.tail.full
        {
            let json = self.record(Some((full, base)));
            let since = base.tail.since.saturating_add(json.bytes().len() as u64);
            if since <= self.size() as u64 {
                let tail = Tail { texts: self.clone(), full: Some(full), since };
                return Written { json, tail };
            }
        }
        let tail = Tail { texts: self.clone(), full: None, since: 0 };
        Written { json: self.record(None), tail }
    }

    fn record(&self, base: Option<(u64, Base<'_>)>) -> Json {
        let nothing = Texts::default();
        let before = base.map_or(&nothing, |(_, base)| &base.tail.texts);
        json::object(|o| {
            o.number("v", 1);
            if let Some((full, base)) = base {
                o.number("full", full).number("since", base.tail.since);
                if let Some((log, last)) = base.elsewhere {
                    o.string("log", &log.0).number("last", last);
                }
            }
            let mut put = |name: &str, base: &Bytes, now: &Bytes| {
                o.array(name, |a| delta::write(base, now, a));
            };
            put("whole", &before.whole, &self.whole);
            put("account", &before.account, &self.account);
            if !is_same(&self.came, &self.whole) {
                put("came", &self.whole, &self.came);
            }
            if !is_same(&self.sent, &self.whole) {
                let (name, difference) = self.sent_after(before);
                o.raw(name, &difference);
            }
        })
    }

    /// What was sent, as the shorter of two differences.
    fn sent_after(&self, before: &Texts) -> (&'static str, Json) {
        /// One that is so much shorter than the text is short enough.
        const SHORT: usize = 16;
        let to = |base: &Bytes| json::array(|a| delta::write(base, &self.sent, a));
        let goes_on = to(&before.sent);
        if goes_on.bytes().len() <= self.sent.len() / SHORT {
            return ("sent_on", goes_on);
        }
        let anew = to(&self.whole);
        if anew.bytes().len() < goes_on.bytes().len() {
            ("sent", anew)
        } else {
            ("sent_on", goes_on)
        }
    }

    /// The texts that a record says, behind those of the call before; nothing where it says none.
    pub(crate) fn read(before: &Texts, record: Node<'_>) -> Option<Self> {
        let is_full = record.get("full").is_none();
        let nothing = Texts::default();
        let before = if is_full { &nothing } else { before };
        let whole = delta::read(&before.whole, record.get("whole")?)?;
        let account = delta::read(&before.account, record.get("account")?)?;
        let came = match record.get("came") {
            Some(difference) => delta::read(&whole, difference)?,
            None => whole.clone(),
        };
        let sent = match (record.get("sent"), record.get("sent_on")) {
            (Some(difference), _) => delta::read(&whole, difference)?,
            (None, Some(difference)) => delta::read(&before.sent, difference)?,
            (None, None) => whole.clone(),
        };
        Some(Self { whole, came, sent, account })
    }
}

#[cfg(test)]
#[path = "texts_tests.rs"]
mod texts_tests;
