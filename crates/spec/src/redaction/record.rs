//! Redacts stored records for exports and views.

use std::borrow::Cow;

use bytes::Bytes;
use throughline_core::{kind, pack_events, split_pack};
use throughline_json::{self as json, Json};

use crate::redaction::{REDACTED, RedactionPolicy, ThoughtRedaction, without_piece};
use crate::run_event::RunEvent;

impl RedactionPolicy {
    /// Redacts the content of a stored record. Returns `None` if nothing was redacted.
    ///
    /// The position of a text does not show whether it is a Thought. The thinking patterns
    /// therefore apply to every text in the record.
    pub fn redact_record(&self, kind: &str, content: &Bytes) -> Option<Bytes> {
        if *self == Self::nothing() {
            return None;
        }
        match kind {
            kind::EVENTS => self.redact_events(content),
            // Copies are differences between texts, so a match may span several records. The whole
            // content is redacted.
            kind::COPY => Some(json::string(REDACTED).bytes().clone()),
            _ => self.redact_content(content),
        }
    }

    /// Redacts a stored run event. The text of a stream piece is replaced completely, because a
    /// secret may span several pieces. A later event contains the complete text.
    pub fn redact_stored_event<'e>(&self, event: &'e Json) -> Cow<'e, Json> {
        if *self == Self::nothing() {
            return Cow::Borrowed(event);
        }
        if let Ok(parsed) = RunEvent::parse(event) {
            if let Some(piece) = without_piece(&parsed) {
                return Cow::Owned(piece);
            }
            if self.emit_patterns.iter().any(|name| name.is_match(&parsed.name())) {
                return Cow::Owned(json::string(REDACTED));
            }
        }
        self.redact_json(event, ThoughtRedaction::Anywhere)
    }

    fn redact_content(&self, content: &Bytes) -> Option<Bytes> {
        let Ok(value) = Json::parse(content.clone()) else {
            return match self.redact_thought(&String::from_utf8_lossy(content)) {
                Cow::Borrowed(_) => None,
                Cow::Owned(redacted) => Some(Bytes::from(redacted)),
            };
        };
        match self.redact_json(&value, ThoughtRedaction::Anywhere) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted.bytes().clone()),
        }
    }

    /// Redacts each event in a pack separately. Returns `None` if no event contained anything to
    /// redact.
    fn redact_events(&self, content: &Bytes) -> Option<Bytes> {
        let events = split_pack(content);
        let redacted = events.iter().map(|event| match Json::parse(event.clone()) {
            Ok(json) => match self.redact_stored_event(&json) {
                Cow::Borrowed(_) => None,
                Cow::Owned(redacted) => Some(redacted.bytes().clone()),
            },
            Err(_) => self.redact_content(event),
        });
        let redacted: Vec<Option<Bytes>> = redacted.collect();
        if redacted.iter().all(Option::is_none) {
            return None;
        }
        let stored = events.iter().zip(&redacted);
        let stored = stored.map(|(event, redacted)| &**redacted.as_ref().unwrap_or(event));
        Some(pack_events(stored).content)
    }
}
