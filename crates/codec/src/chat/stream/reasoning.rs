//! Decodes streamed reasoning: details, and strings that do not repeat them.

use std::sync::Arc;

use throughline_core::Delta;
use throughline_json::Node;

use crate::chat::slot::{self, Slots};
use crate::chat::stream::ChatDecoder;
use crate::chat::stream::part::{OpenDetail, OpenPartKind as Kind};

impl ChatDecoder {
    /// Handles the details and reasoning strings in a delta.
    pub(super) fn reasoning(&mut self, delta: Node<'_>) {
        for fragment in delta.get(slot::DETAILS).into_iter().flat_map(Node::elements) {
            self.detail(fragment);
        }
        let has_details = self.parts.iter().any(|part| part.slot.starts_with(slot::DETAILS));
        let mut strings: Vec<(Vec<&'static str>, Node<'_>)> = Vec::new();
        for (field, value) in Slots::from_message(delta).strings {
            if has_details {
                let piece = value.text().unwrap_or_default();
                match self.echoes.iter_mut().find(|(existing, _)| *existing == field) {
                    Some((_, echo)) => echo.push_str(&piece),
                    None => self.echoes.push((field, piece.into_owned())),
                }
                continue;
            }
            match strings.iter_mut().find(|(_, existing)| existing.text() == value.text()) {
                Some((fields, _)) => fields.push(field),
                None => strings.push((vec![field], value)),
            }
        }
        for (fields, value) in strings {
            self.field(&fields, &value.text().unwrap_or_default());
        }
    }

    fn field(&mut self, fields: &[&'static str], piece: &str) {
        let slot = slot::joined_slot(fields);
        let existing = self.parts.iter_mut().find_map(|part| match &mut part.kind {
            Kind::Field(text) if part.is_open && part.slot == slot => Some((part.index, text)),
            _ => None,
        });
        if let Some((index, text)) = existing {
            text.push_str(piece);
            return self.reply.add_delta(index, Delta::Thought(Arc::from(piece)));
        }
        self.close(Kind::is_text);
        self.open(slot, Kind::Field(piece.to_owned()));
    }

    fn detail(&mut self, fragment: Node<'_>) {
        let last = self.parts.iter().rposition(|part| matches!(part.kind, Kind::Detail(_)));
        let existing =
            self.parts.iter_mut().enumerate().rev().find_map(|(at, part)| match &mut part.kind {
                Kind::Detail(detail) if detail.is_continued_by(fragment, Some(at) == last) => {
                    Some((part.index, part.is_open, detail))
                }
                _ => None,
            });
        if let Some((index, is_open, detail)) = existing {
            let piece = detail.add(fragment);
            if is_open && !piece.is_empty() {
                self.reply.add_delta(index, Delta::Thought(Arc::from(piece)));
            }
            return;
        }
        let slot = self.next_slot(slot::DETAILS);
        let mut detail = OpenDetail::new(fragment);
        self.close(Kind::is_text);
        if detail.text_key().is_none() {
            return self.push_complete(slot, fragment);
        }
        detail.add(fragment);
        self.open(slot, Kind::Detail(detail));
    }

    /// Returns the fields whose text repeats the details.
    pub(super) fn echoing_fields(&self) -> impl Iterator<Item = &'static str> {
        let details = self.parts.iter().filter_map(|part| match &part.kind {
            Kind::Detail(detail) => Some(detail.text.as_str()),
            _ => None,
        });
        let readable: String = details.collect();
        let echoes = self.echoes.iter();
        echoes.filter(move |(_, echo)| *echo == readable).map(|(field, _)| *field)
    }
}
