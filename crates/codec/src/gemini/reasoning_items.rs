//! Reads and writes thought parts and part signatures as typed reasoning elements.
//!
//! A signature belongs to a specific part. The element of a signed function call has the call's id,
//! and every element has the index of its part.

use throughline_core::{ReasoningFormat, Vendor};
use throughline_json::{self as json, Json, Name, Node, Opaque};
use throughline_spec::{DetailMeta, ReasoningCodec, ReasoningItem};

use crate::gemini::Gemini;
use crate::gemini::wire::{self, GeminiPartKind as Kind};
use crate::native_parts::{self, ListPointers, native_meta};

const PARTS: ListPointers = &["/candidates/0/content/parts", "/content/parts", "/parts"];

impl ReasoningCodec for Gemini {
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem> {
        native_parts::read_elements(response, PARTS, read)
    }

    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json {
        if items.is_empty() {
            return message.clone();
        }
        let own = items.iter().filter(|item| native_parts::is_from(item, &[Vendor::Google]));
        let text = |text: &str| object! { "text": text };
        native_parts::edit_parts(message, PARTS, text, |mut parts| {
            parts.retain(|part| Kind::from_part(part.tree().root()).0 != Kind::Thought);
            for part in &mut parts {
                if !wire::signatures(part.tree().root()).is_empty() {
                    *part = wire::signed_with(part, None);
                }
            }
            let thoughts = own.clone().filter_map(|element| {
                Some((element.meta().and_then(|meta| meta.index), thought_part(element)?))
            });
            native_parts::insert_parts(&mut parts, thoughts);
            for element in own {
                if let ReasoningItem::Encrypted { meta, data } = element {
                    sign(&mut parts, meta, data);
                }
            }
            parts
        })
    }
}

fn read(part: Node<'_>) -> Vec<ReasoningItem> {
    let (kind, content) = Kind::from_part(part);
    let signatures = wire::signatures(part).into_iter();
    let signature = signatures.filter_map(|(_, value)| value.name()).map(Opaque::from).next();
    let format = ReasoningFormat::GoogleGeminiV1;
    if kind == Kind::Thought {
        let own = ["text", "thought", "thoughtSignature", "thought_signature"];
        let meta = native_meta(part, &own, format);
        let text = content.name().unwrap_or_default();
        return vec![match signature {
            Some(_) => ReasoningItem::Text { meta, text: Some(text), signature },
            None => ReasoningItem::Summary { meta, summary: text },
        }];
    }
    let id = content.name_of("id").filter(|id: &Name| kind == Kind::Call && !id.is_empty());
    let meta = DetailMeta { id, format: Some(format), ..DetailMeta::default() };
    signature.map(|data| ReasoningItem::Encrypted { meta, data }).into_iter().collect()
}

/// Rebuilds the payload of a caller's thought as a thought part; `None` if the payload is not a
/// thought part.
pub(super) fn caller_part(payload: &Json) -> Option<Json> {
    read(payload.tree().root()).first().and_then(thought_part)
}

fn thought_part(element: &ReasoningItem) -> Option<Json> {
    let (meta, text, signature) = match element {
        ReasoningItem::Text { meta, text, signature } => {
            (meta, text.as_deref().unwrap_or_default(), signature.as_ref())
        }
        ReasoningItem::Summary { meta, summary } => (meta, &**summary, None),
        ReasoningItem::Encrypted { .. } | ReasoningItem::Unknown(_) => return None,
    };
    Some(json::object(|out| {
        out.string("text", text).bool("thought", true);
        out.maybe("thoughtSignature", signature.map(Opaque::reveal_to_tenant));
        native_parts::put_extras(out, meta, &["text", "thought", "thoughtSignature"]);
    }))
}

/// Signs the part that an element belongs to: the call with the element's id, or the part at the
/// element's index. An element with neither belongs to the first unsigned call or, if there is
/// none, to the last part. If the message has no such part, adds an empty text with the signature.
fn sign(parts: &mut Vec<Json>, meta: &DetailMeta, data: &Opaque) {
    let kind = |part: &Json| Kind::from_part(part.tree().root()).0;
    let is_free = |part: &Json| {
        kind(part) != Kind::Thought && wire::signatures(part.tree().root()).is_empty()
    };
    let has_id = |part: &Json| {
        let tree = part.tree();
        let (kind, call) = Kind::from_part(tree.root());
        kind == Kind::Call && meta.id.is_some() && call.name_of("id") == meta.id
    };
    let is_unsigned_call = |part: &Json| kind(part) == Kind::Call && is_free(part);
    let index = meta.index.filter(|_| meta.id.is_none());
    let position = match (parts.iter().position(has_id), index) {
        (Some(named), _) => Some(named),
        (None, Some(index)) => {
            let index = usize::try_from(index).ok();
            index.filter(|index| parts.get(*index).is_some_and(is_free))
        }
        (None, None) => {
            let call = parts.iter().position(is_unsigned_call);
            call.or_else(|| parts.iter().rposition(is_free))
        }
    };
    match position.and_then(|position| parts.get_mut(position)) {
        Some(part) => *part = wire::signed_with(part, Some(data.reveal_to_tenant())),
        None => {
            parts.push(object! { "text": "", "thoughtSignature": data.reveal_to_tenant() });
        }
    }
}
