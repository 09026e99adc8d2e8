//! Decodes streamed reasoning: details, and strings that do not repeat them.

use std::sync::Arc;

use throughline_core::{Delta, Event};
use throughline_json::Node;

use crate::chat::slot::{self, FIELDS};
use crate::chat::stream::ChatDecoder;
use crate::chat::stream::part::{OpenDetail, OpenPartKind};

impl ChatDecoder {
    /// Handles the reasoning of a delta: details, and strings that do not repeat them.
    pub(super) fn reasoning(&mut self, delta: Node<'_>) -> Vec<Event> {
        let mut events = Vec::new();
        let details = delta.get(slot::DETAILS).into_iter().flat_map(Node::elements);
        for fragment in details {
            events.extend(self.detail(fragment));
        }
        let has_details = self.parts.iter().any(|part| part.slot.starts_with(slot::DETAILS));
        let mut strings: Vec<(Vec<&'static str>, Node<'_>)> = Vec::new();
        for (key, value) in delta.members() {
            let field = FIELDS.into_iter().find(|field| key.is(field));
            let Some(field) = field.filter(|_| value.is_string() && value.raw().len() > 2) else {
                continue;
            };
            if has_details {
                let piece = value.text().unwrap_or_default();
                match self.echoes.iter_mut().find(|(known, _)| *known == field) {
                    Some((_, echo)) => echo.push_str(&piece),
                    None => self.echoes.push((field, piece.into_owned())),
                }
                continue;
            }
            match strings.iter_mut().find(|(_, known)| known.text() == value.text()) {
                Some((fields, _)) => fields.push(field),
                None => strings.push((vec![field], value)),
            }
        }
        for (fields, value) in strings {
            super::append_events(
                &mut events,
                self.field(&fields, &value.text().unwrap_or_default()),
            );
        }
        events
    }

    fn field(&mut self, fields: &[&'static str], piece: &str) -> Vec<Event> {
        let slot = slot::joined_slot(fields);
        let known = self.parts.iter_mut().find_map(|part| match &mut part.kind {
            OpenPartKind::Field(text) if part.is_open && part.slot == slot => {
                Some((part.index, text))
            }
            _ => None,
        });
        if let Some((index, text)) = known {
            text.push_str(piece);
            return vec![Event::Delta { index, delta: Delta::Thought(Arc::from(piece)) }];
        }
        let mut events = self.close(OpenPartKind::is_text);
        events.extend(self.open(slot, OpenPartKind::Field(piece.to_owned())));
        events
    }

    fn detail(&mut self, fragment: Node<'_>) -> Vec<Event> {
        let last = self.parts.iter().rposition(|part| matches!(part.kind, OpenPartKind::Detail(_)));
        let known = self.parts.iter_mut().enumerate().rev().find_map(|(at, part)| match &mut part
            .kind
        {
            OpenPartKind::Detail(detail) if detail.is_continued_by(fragment, Some(at) == last) => {
                Some((part.index, part.is_open, detail))
            }
            _ => None,
        });
        if let Some((index, is_open, detail)) = known {
            let piece = detail.add(fragment);
            let is_told = is_open && !piece.is_empty();
            let delta = Delta::Thought(Arc::from(piece));
            return is_told.then_some(Event::Delta { index, delta }).into_iter().collect();
        }
        let position =
            self.parts.iter().filter(|part| part.slot.starts_with(slot::DETAILS)).count();
        let slot = slot::list_slot(slot::DETAILS, position);
        let mut detail = OpenDetail::new(fragment);
        let mut events = self.close(OpenPartKind::is_text);
        if detail.text_key().is_none() {
            events.extend(self.whole(slot, fragment));
            return events;
        }
        detail.add(fragment);
        events.extend(self.open(slot, OpenPartKind::Detail(detail)));
        events
    }

    /// Returns the fields whose text equals the text of the details.
    pub(super) fn echoing_fields(&self) -> impl Iterator<Item = &'static str> {
        let readable: String = self
            .parts
            .iter()
            .filter_map(|part| match &part.kind {
                OpenPartKind::Detail(detail) => Some(detail.text()),
                _ => None,
            })
            .collect();
        let echoes = self.echoes.iter();
        echoes.filter(move |(_, echo)| *echo == readable).map(|(field, _)| *field)
    }
}
