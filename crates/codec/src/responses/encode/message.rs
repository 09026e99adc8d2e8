//! Messages, written.

use std::borrow::Cow;

use throughline_core::{
    Body, Did, Digest, Fate, How, Item, Json, Media, Part, Role, Side, ToolResult, Why, json,
};

use crate::crossing;
use crate::draft::{self, Draft};
use crate::gate;
use crate::responses::encode::{Storage, WIRE, Writer, parts, whole, without};
use crate::responses::wire::{self, CONTENT, Ids};

/// A message that was only a string, or that we make of one: the user's.
pub(super) fn bare(text: &Json) -> Json {
    json::object(|o| {
        o.string("role", "user").raw(CONTENT, text);
    })
}

impl Writer<'_> {
    /// One message, with a Fate for each of its parts.
    pub(super) fn message(
        &mut self,
        draft: &mut Draft<'_>,
        group: &[&Item],
        prefix: Option<&Digest>,
    ) -> Option<Json> {
        let opens = |item: &&Item| {
            gate::refusal(&gate::seals(item, &self.call.target, prefix)).is_none()
                && self.stranger(item).is_none()
                && self.owns(&item.body)
        };
        let drops = group.iter().any(|item| self.drops_ids(item));
        if let Some((json, side)) = whole(group)
            && group.iter().all(opens)
        {
            let fate = |item: &&Item| if drops { ids_dropped(item) } else { draft::kept(item) };
            draft.fates.extend(group.iter().map(fate));
            let tree = json.tree();
            return Some(match side {
                Side::Request if tree.root().is_string() => bare(json),
                Side::Request if drops => without(json, &["id", "status"]),
                Side::Request => json.clone(),
                Side::Response => wire::project(tree.root(), self.message_ids(drops)),
            });
        }
        let base = group.iter().find_map(|item| item.native_on(&WIRE)?.envelope.as_ref());
        let base = base.filter(|_| group.iter().all(|item| self.stranger(item).is_none()));
        let said: Vec<Json> =
            group.iter().filter_map(|item| self.part(draft, item, prefix)).collect();
        if said.is_empty() {
            return None;
        }
        let role = group.first().map_or(Role::User, |item| item.role);
        Some(match base.filter(|base| base.json.tree().root().is_object()) {
            Some(base) => {
                let base = wire::project(base.json.tree().root(), Ids::Dropped);
                let content = json::array_of(&said);
                draft::edited(Some(&base), &[(Cow::Borrowed(CONTENT), Some(content))])
            }
            None => parts::message(role, &said),
        })
    }

    fn message_ids(&self, drops: bool) -> Ids {
        if self.storage == Storage::Stored && !drops { Ids::Kept } else { Ids::Dropped }
    }

    /// One part of a message that has changed or comes from elsewhere.
    fn part(&self, draft: &mut Draft<'_>, item: &Item, prefix: Option<&Digest>) -> Option<Json> {
        let native = item.native_on(&WIRE);
        let seals = gate::seals(item, &self.call.target, prefix);
        let refusal = gate::refusal(&seals);
        let is_at_home = self.stranger(item).is_none() && refusal.is_none();
        if let Some(native) = native
            && is_at_home
            && self.owns(&item.body)
        {
            let has_id = native.id.is_some();
            let visible = if has_id { Did::Reshaped(How::IdsDropped) } else { Did::Kept };
            draft.fates.push(Fate { item: item.id.clone(), visible, seals });
            let tree = native.json.tree();
            return Some(match (tree.root().text(), native.side) {
                (Some(text), _) => parts::text(item.role, &text),
                (None, Side::Request) => native.json.clone(),
                (None, Side::Response) => wire::project_part(tree.root(), Ids::Dropped),
            });
        }
        draft.warn_of_markers(item.native.as_ref());
        let why = refusal.unwrap_or_else(|| gate::why_left(item, &self.call.target));
        let part = match &item.body {
            // A text that another wire had for the sake of its signature says nothing here.
            Body::Text(text) | Body::Summary { text, .. } if text.is_empty() => None,
            Body::Text(text) | Body::Summary { text, .. } => Some(parts::text(item.role, text)),
            Body::Media(media) => {
                crossing::media(draft, parts::media(item.role, media, &self.call.target))
            }
            Body::Thought(_)
            | Body::Call(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown => None,
        };
        draft.fates.push(match (&part, &item.native) {
            (None, _) => draft::elided(item, why),
            (Some(_), None) => draft::kept(item),
            (Some(_), Some(native)) if native.wire == WIRE => ids_dropped(item),
            (Some(_), Some(_)) => draft::reshaped(item, How::OtherWire, why),
        });
        part
    }

    /// Whether the target can find what is only referred to.
    fn owns(&self, body: &Body) -> bool {
        match body {
            Body::Media(media) => parts::is_found(media, &self.call.target),
            Body::Text(_)
            | Body::Thought(_)
            | Body::Call(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => true,
        }
    }

    /// Whether the target can find everything that a tool's answer refers to.
    pub(super) fn owns_media(&self, result: &ToolResult) -> bool {
        result.parts.iter().all(|part| match part {
            Part::Media(media) => parts::is_found(media, &self.call.target),
            Part::Text(_) | Part::Value(_) | Part::Unknown(..) => true,
        })
    }

    /// A tool's answer.
    pub(super) fn result(&self, draft: &mut Draft<'_>, result: &ToolResult) -> Json {
        if result.outcome != throughline_core::Outcome::Ok {
            let message = "this wire has no mark for a tool that failed; only its text can say so";
            draft.warn("tool result", message);
        }
        let mut said = Vec::new();
        for part in &result.parts {
            said.extend(match part {
                Part::Text(text) => Some(parts::text(Role::User, text)),
                Part::Value(value) => Some(parts::text(Role::User, value.as_str())),
                Part::Media(media) => {
                    crossing::media(draft, parts::media(Role::User, media, &self.call.target))
                }
                Part::Unknown(wire, json) => crossing::unknown(draft, wire, json),
            });
        }
        let is_custom = self.custom.contains(&result.call);
        let kind = if is_custom { "custom_tool_call_output" } else { "function_call_output" };
        json::object(|o| {
            o.string("type", kind).string("call_id", &self.ids.result(&result.call));
            match result.parts.as_slice() {
                [] => o.string("output", ""),
                [Part::Text(text)] => o.string("output", text),
                [Part::Value(value)] => o.string("output", value.as_str()),
                [Part::Media(Media::Inline { .. } | Media::Remote { .. }) | Part::Unknown(..)]
                | [_, _, ..] => o.raw("output", &json::array_of(&said)),
            };
        })
    }
}

fn ids_dropped(item: &Item) -> Fate {
    draft::reshaped(item, How::IdsDropped, Why::Altered)
}
