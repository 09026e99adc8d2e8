//! Encodes Items as content blocks.

use throughline_core::{
    Body, Digest, Direction, Disposition, ElisionReason, Fate, Item, Media, NativePart, Outcome,
    Part, ToolResult,
};
use throughline_json::{self as json, Json};

use crate::converse::encode::ConverseWriter;
use crate::converse::reasoning_items::caller_part;
use crate::converse::wire::{self, ConverseBlockKind as Kind};
use crate::converse::{WIRE, contract};
use crate::draft::{self, Draft};
use crate::{cross_wire, seal_policy};

impl ConverseWriter<'_> {
    /// Encodes one block of the system prompt, which may contain only texts and cache markers.
    pub(super) fn system_block(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
    ) -> (Option<Json>, Fate) {
        let is_text = matches!(item.body, Body::Text(_) | Body::Summary { .. });
        if is_text || item.native_on(&WIRE).is_some() {
            return self.block(draft, item, None);
        }
        (None, cross_wire::unsupported_fate(item, ElisionReason::NotOnThisWire))
    }

    /// Encodes an Item as a content block and returns its Fate.
    pub(super) fn block(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        if let Some(native) = item.native_on(&WIRE) {
            return self.native_block(item, native, prefix);
        }
        draft.warn_about_cache_markers(item.native.as_ref());
        let seals_why = seal_policy::elision_reason(item, &self.call.target);
        let sent = |block: Json| (Some(block), cross_wire::sent_fate(item, seals_why));
        let omitted = |why| (None, draft::elided_fate(item, why));
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } if contract::is_blank(text) => {
                omitted(ElisionReason::NotOnThisWire)
            }
            Body::Text(text) | Body::Summary { text, .. } => sent(text_block(text)),
            Body::Media(media) => match cross_wire::media(draft, self.media_block(media)) {
                Some(block) => sent(block),
                None => omitted(ElisionReason::NotOnThisWire),
            },
            Body::Thought(_) if item.origin.is_some() => omitted(seals_why),
            Body::Thought(thought) => cross_wire::thought(
                draft,
                self.call,
                (item, thought),
                &WIRE,
                caller_part,
                text_block,
            ),
            Body::Call(call) => {
                let id = self.ids.assign(&call.id);
                sent(object! {
                    "toolUse": {
                        "toolUseId": id, "name": call.name,
                        "input": cross_wire::arguments(&call.args),
                    },
                })
            }
            Body::Result(result) => sent(self.result_block(draft, result)),
            Body::Hosted(_) | Body::Compaction => omitted(seals_why),
            Body::Unknown => (None, cross_wire::unsupported_fate(item, seals_why)),
        }
    }

    /// Encodes a block that was decoded from a Converse document. The block is sent whole or not at
    /// all.
    fn native_block(
        &mut self,
        item: &Item,
        native: &NativePart,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        let target = &self.call.target;
        let seals = seal_policy::seals(item, target, prefix);
        let is_message = native.envelope.as_ref().is_some_and(|e| e.json == native.json);
        let why = match &item.body {
            Body::Thought(thought) if !thought.whole => Some(ElisionReason::Cut),
            Body::Thought(_) if item.seals.is_empty() => contract::unsealed_elision(item, target),
            // A model may return a blank text, but requests must not contain blank texts.
            Body::Text(text) if native.side == Direction::Response && contract::is_blank(text) => {
                Some(ElisionReason::NotOnThisWire)
            }
            _ => None,
        };
        let empty = is_message.then_some(ElisionReason::NotOnThisWire);
        if let Some(why) = empty.or(why).or_else(|| seal_policy::refusal(&seals)) {
            return (None, draft::elided_fate(item, why));
        }
        self.ids.record_item(item);
        let block = match native.side {
            Direction::Request => native.json.clone(),
            Direction::Response => wire::project(&native.json),
        };
        (Some(block), Fate { item: item.id.clone(), visible: Disposition::Kept, seals })
    }

    fn result_block(&mut self, draft: &mut Draft<'_>, result: &ToolResult) -> Json {
        let id = self.ids.result_id(&result.call);
        let mut parts = Vec::new();
        for part in &result.parts {
            parts.extend(match part {
                Part::Text(text) => Some(text_block(text)),
                // The API accepts only objects as JSON results.
                Part::Value(value) if value.tree().root().is_object() => Some(object! {
                    "json": value,
                }),
                Part::Value(value) => Some(text_block(value.as_str())),
                Part::Media(media) => cross_wire::media(draft, self.media_block(media)),
                Part::Unknown(wire, json) => cross_wire::native_part_or_warn(draft, wire, json),
            });
        }
        let (content, status) = (json::array_of(&parts), result.outcome != Outcome::Ok);
        let status = status.then_some("error");
        object! { "toolResult": { "toolUseId": id, "content": content, "status": status } }
    }

    fn media_block(&mut self, media: &Media) -> Option<Json> {
        let (mime, source) = match media {
            Media::Inline { mime, base64 } => {
                let data = std::str::from_utf8(base64).ok()?;
                (mime, object! { "bytes": data })
            }
            Media::Remote { mime, uri, .. } if uri.starts_with("s3://") => {
                (mime.as_ref()?, object! { "s3Location": { "uri": uri } })
            }
            Media::Remote { .. } => return None,
        };
        let (kind, format) = wire::format_of(mime)?;
        let key = kind.key()?;
        // Each document must have a unique name.
        let name = (kind == Kind::Document).then(|| {
            self.documents += 1;
            format!("document-{}", self.documents)
        });
        Some(object! { (key): { "format": format, "name": name.as_deref(), "source": source } })
    }
}

pub(super) fn text_block(text: &str) -> Json {
    object! { "text": text }
}
