//! Reads and writes `reasoningContent` blocks as typed reasoning elements.

use throughline_core::{ReasoningFormat, Vendor};
use throughline_json::{self as json, Json, Name, Node, Opaque};
use throughline_spec::{ReasoningCodec, ReasoningItem};

use crate::converse::BedrockConverse;
use crate::native_parts::{self, ListPointers, native_meta, put_extras};

const CONTENT: ListPointers = &["/output/message/content", "/content"];

/// The format of unsigned reasoning. Models of all families but Claude emit it on this wire.
pub(crate) const UNSIGNED: &str = "bedrock-converse-v1";

impl ReasoningCodec for BedrockConverse {
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem> {
        native_parts::read_elements(response, CONTENT, read)
    }

    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json {
        let text = |text: &str| object! { "text": text };
        native_parts::replace_reasoning_blocks(message, items, CONTENT, text, read, block)
    }
}

fn read(block: Node<'_>) -> Vec<ReasoningItem> {
    let Some(reasoning) = block.get("reasoningContent") else { return Vec::new() };
    let element = match reasoning.get("reasoningText") {
        Some(inner) => {
            let signature = native_parts::sealed_member(inner, "signature");
            let format = match signature {
                Some(_) => ReasoningFormat::AnthropicClaudeV1,
                None => ReasoningFormat::Other(Name::from(UNSIGNED)),
            };
            let meta = native_meta(inner, &["text", "signature"], format);
            let text = Some(inner.name_of("text").unwrap_or_default());
            Some(ReasoningItem::Text { meta, text, signature })
        }
        None => reasoning.name_of("redactedContent").map(|data| {
            let format = ReasoningFormat::AnthropicClaudeV1;
            let meta = native_meta(reasoning, &["redactedContent"], format);
            ReasoningItem::Encrypted { meta, data: data.into() }
        }),
    };
    element.into_iter().collect()
}

/// Rebuilds the payload of a caller's thought as a block; `None` if the payload is not a reasoning
/// block.
pub(crate) fn caller_part(payload: &Json) -> Option<Json> {
    read(payload.tree().root()).first().and_then(block)
}

/// Returns the block for an element of a model that this wire serves; `None` for all other
/// elements.
fn block(element: &ReasoningItem) -> Option<Json> {
    let is_unsigned = element.format().as_str() == UNSIGNED;
    if !is_unsigned && !native_parts::is_from(element, &[Vendor::Anthropic]) {
        return None;
    }
    let inner = match element {
        ReasoningItem::Text { meta, text, signature } => {
            let inner = json::object(|out| {
                out.string("text", text.as_deref().unwrap_or_default());
                out.maybe("signature", signature.as_ref().map(Opaque::reveal_to_tenant));
                put_extras(out, meta, &["text", "signature"]);
            });
            object! { "reasoningText": inner }
        }
        ReasoningItem::Encrypted { data, .. } => {
            object! { "redactedContent": data.reveal_to_tenant() }
        }
        ReasoningItem::Summary { .. } | ReasoningItem::Unknown(_) => return None,
    };
    Some(object! { "reasoningContent": inner })
}
