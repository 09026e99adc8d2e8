//! Encodes messages as `input` elements.

use throughline_core::{
    Body, Digest, Direction, Disposition, ElisionReason, Fate, Item, Media, Part, ReshapeKind,
    Role, ToolResult,
};
use throughline_json::{self as json, Json};

use crate::draft::{self, Draft};
use crate::responses::WIRE;
use crate::responses::encode::{
    ResponseStorage, ResponsesWriter, intact_element, parts, without_members,
};
use crate::responses::wire::{self, CONTENT, IdPolicy};
use crate::{cross_wire, seal_policy};

/// Builds a user message with string content.
pub(super) fn bare_message(text: &Json) -> Json {
    object! { "role": "user", (CONTENT): text }
}

impl ResponsesWriter<'_> {
    /// Encodes one message and records a Fate for each of its parts.
    pub(super) fn message(
        &mut self,
        draft: &mut Draft<'_>,
        group: &[&Item],
        prefix: Option<&Digest>,
    ) -> Option<Json> {
        let opens = |item: &&Item| {
            seal_policy::refusal(&seal_policy::seals(item, &self.call.target, prefix)).is_none()
                && self.foreign_reason(item).is_none()
                && self.can_resolve(&item.body)
        };
        let drops = group.iter().any(|item| self.drops_ids(item));
        if let Some((json, side)) = intact_element(group)
            && group.iter().all(opens)
        {
            let fate =
                |item: &&Item| if drops { ids_dropped_fate(item) } else { draft::kept_fate(item) };
            draft.fates.extend(group.iter().map(fate));
            let tree = json.tree();
            return Some(match side {
                Direction::Request if tree.root().is_string() => bare_message(json),
                Direction::Request if drops => without_members(json, &["id", "status"]),
                Direction::Request => json.clone(),
                Direction::Response => {
                    wire::to_request_element(tree.root(), self.message_ids(drops))
                }
            });
        }
        let base = group.iter().find_map(|item| item.native_on(&WIRE)?.envelope.as_ref());
        let base = base.filter(|_| group.iter().all(|item| self.foreign_reason(item).is_none()));
        let encoded: Vec<Json> =
            group.iter().filter_map(|item| self.part(draft, item, prefix)).collect();
        if encoded.is_empty() {
            return None;
        }
        let role = group.first().map_or(Role::User, |item| item.role);
        Some(match base.filter(|base| base.json.tree().root().is_object()) {
            Some(base) => {
                let base = wire::to_request_element(base.json.tree().root(), IdPolicy::Dropped);
                draft::with_member(&base, CONTENT, json::array_of(&encoded))
            }
            None => parts::message(role, &encoded),
        })
    }

    pub(super) fn message_ids(&self, drops: bool) -> IdPolicy {
        let keeps = self.storage == ResponseStorage::Stored && !drops;
        if keeps { IdPolicy::Kept } else { IdPolicy::Dropped }
    }

    /// Encodes a part that changed or that came from another wire.
    fn part(&self, draft: &mut Draft<'_>, item: &Item, prefix: Option<&Digest>) -> Option<Json> {
        let native = item.native_on(&WIRE);
        let seals = seal_policy::seals(item, &self.call.target, prefix);
        let refusal = seal_policy::refusal(&seals);
        let is_at_home = self.foreign_reason(item).is_none() && refusal.is_none();
        if let Some(native) = native
            && is_at_home
            && self.can_resolve(&item.body)
        {
            let has_id = native.id.is_some();
            let ids_dropped = Disposition::Reshaped(ReshapeKind::IdsDropped);
            let visible = if has_id { ids_dropped } else { Disposition::Kept };
            draft.fates.push(Fate { item: item.id.clone(), visible, seals });
            let tree = native.json.tree();
            return Some(match (tree.root().text(), native.side) {
                (Some(text), _) => parts::text(item.role, &text),
                (None, Direction::Request) => native.json.clone(),
                (None, Direction::Response) => {
                    wire::to_request_part(tree.root(), IdPolicy::Dropped)
                }
            });
        }
        draft.warn_about_cache_markers(item.native.as_ref());
        let why = refusal.unwrap_or_else(|| seal_policy::elision_reason(item, &self.call.target));
        let part = match &item.body {
            // An empty text carries only a signature on another wire.
            Body::Text(text) | Body::Summary { text, .. } if text.is_empty() => None,
            Body::Text(text) | Body::Summary { text, .. } => Some(parts::text(item.role, text)),
            Body::Media(media) => {
                cross_wire::media(draft, parts::media(item.role, media, &self.call.target))
            }
            _ => None,
        };
        draft.fates.push(match (&part, &item.native) {
            (None, _) => draft::elided_fate(item, why),
            (Some(_), None) => draft::kept_fate(item),
            (Some(_), Some(native)) if native.wire == WIRE => ids_dropped_fate(item),
            (Some(_), Some(_)) => draft::reshaped_fate(item, ReshapeKind::OtherWire, why),
        });
        part
    }

    /// Returns whether the target can resolve the media reference in `body`; true if `body` has
    /// none.
    fn can_resolve(&self, body: &Body) -> bool {
        let Body::Media(media) = body else { return true };
        parts::can_resolve(media, &self.call.target)
    }

    /// Returns whether the target can resolve all media references in a tool result.
    pub(super) fn can_resolve_media(&self, result: &ToolResult) -> bool {
        result.parts.iter().all(|part| match part {
            Part::Media(media) => parts::can_resolve(media, &self.call.target),
            Part::Text(_) | Part::Value(_) | Part::Unknown(..) => true,
        })
    }

    pub(super) fn result(&self, draft: &mut Draft<'_>, result: &ToolResult) -> Json {
        if result.outcome != throughline_core::Outcome::Ok {
            let message = "this wire cannot mark a tool failure; only its text was sent";
            draft.warn("tool result", message);
        }
        let mut encoded = Vec::new();
        for part in &result.parts {
            encoded.extend(match part {
                Part::Text(text) => Some(parts::text(Role::User, text)),
                Part::Value(value) => Some(parts::text(Role::User, value.as_str())),
                Part::Media(media) => {
                    cross_wire::media(draft, parts::media(Role::User, media, &self.call.target))
                }
                Part::Unknown(wire, json) => cross_wire::native_part_or_warn(draft, wire, json),
            });
        }
        let is_custom = self.custom.contains(&result.call);
        let kind = if is_custom { "custom_tool_call_output" } else { "function_call_output" };
        json::object(|o| {
            o.string("type", kind).string("call_id", &self.ids.result_id(&result.call));
            match result.parts.as_slice() {
                [] => o.string("output", ""),
                [Part::Text(text)] => o.string("output", text),
                [Part::Value(value)] => o.string("output", value.as_str()),
                [Part::Media(Media::Inline { .. } | Media::Remote { .. }) | Part::Unknown(..)]
                | [_, _, ..] => o.raw("output", &json::array_of(&encoded)),
            };
        })
    }
}

fn ids_dropped_fate(item: &Item) -> Fate {
    draft::reshaped_fate(item, ReshapeKind::IdsDropped, ElisionReason::Altered)
}
