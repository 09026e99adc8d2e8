//! Reads and writes `thinking` and `redacted_thinking` blocks as typed reasoning elements.

use throughline_core::{ReasoningFormat, Vendor};
use throughline_json::{self as json, Json, Node, Opaque};
use throughline_spec::{ReasoningCodec, ReasoningItem};

use crate::anthropic::AnthropicMessages;
use crate::native_parts::{self, ListPointers, native_meta, put_extras};

const CONTENT: ListPointers = &["/content"];
const MEMBERS: [&str; 4] = ["type", "thinking", "signature", "data"];

impl ReasoningCodec for AnthropicMessages {
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem> {
        native_parts::read_elements(response, CONTENT, read)
    }

    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json {
        let text = |text: &str| object! { "type": "text", "text": text };
        native_parts::replace_reasoning_blocks(message, items, CONTENT, text, read, block)
    }
}

fn read(block: Node<'_>) -> Vec<ReasoningItem> {
    let element = match block.text_of("type").as_deref() {
        Some("thinking") => {
            let signature = native_parts::sealed_member(block, "signature");
            let own: &[&str] = match signature {
                Some(_) => &["type", "thinking", "signature"],
                None => &["type", "thinking"],
            };
            let meta = native_meta(block, own, ReasoningFormat::AnthropicClaudeV1);
            let text = Some(block.name_of("thinking").unwrap_or_default());
            Some(ReasoningItem::Text { meta, text, signature })
        }
        Some("redacted_thinking") => block.name_of("data").map(|data| {
            let meta = native_meta(block, &["type", "data"], ReasoningFormat::AnthropicClaudeV1);
            ReasoningItem::Encrypted { meta, data: data.into() }
        }),
        Some(_) | None => None,
    };
    element.into_iter().collect()
}

/// Rebuilds the payload of a caller's thought as a block; `None` if the payload is not a reasoning
/// block.
pub(super) fn caller_part(payload: &Json) -> Option<Json> {
    read(payload.tree().root()).first().and_then(block)
}

/// Returns the block for an element that Anthropic issued; `None` for all other elements.
fn block(element: &ReasoningItem) -> Option<Json> {
    if !native_parts::is_from(element, &[Vendor::Anthropic]) {
        return None;
    }
    match element {
        ReasoningItem::Text { meta, text, signature } => Some(json::object(|out| {
            out.string("type", "thinking").string("thinking", text.as_deref().unwrap_or_default());
            match signature.as_ref().map(Opaque::reveal_to_tenant) {
                Some(signature) => out.string("signature", signature),
                None => out.maybe("signature", extra(element, "signature")),
            };
            put_extras(out, meta, &MEMBERS);
        })),
        ReasoningItem::Encrypted { meta, data } => Some(json::object(|out| {
            out.string("type", "redacted_thinking").string("data", data.reveal_to_tenant());
            put_extras(out, meta, &MEMBERS);
        })),
        ReasoningItem::Summary { .. } | ReasoningItem::Unknown(_) => None,
    }
}

fn extra<'e>(element: &'e ReasoningItem, name: &str) -> Option<&'e Json> {
    let extras = &element.meta()?.extras;
    extras.iter().find(|(key, value)| **key == *name && *value != Json::null()).map(|(_, v)| v)
}
