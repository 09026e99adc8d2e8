//! Converts results of MCP calls to tool results.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use throughline_agent::ToolAnswer;
use throughline_core::Outcome;

use crate::answer::Parts;

/// Converts the result of an MCP call to a tool result of at most about `limit` bytes.
pub(super) fn answer(result: CallToolResult, limit: usize) -> ToolAnswer {
    let mut parts = Parts::with_limit(limit);
    for block in result.content {
        add(block, &mut parts);
    }
    if let Some(value) = result.structured_content {
        // For older clients, servers usually repeat structured content as text. Skip the structured
        // content if a text equals it.
        let same = |text: &str| {
            serde_json::from_str(text).is_ok_and(|text: serde_json::Value| text == value)
        };
        if !parts.has_text(same) {
            parts.text(&value.to_string());
        }
    }
    parts.into_answer(if result.is_error == Some(true) { Outcome::Error } else { Outcome::Ok })
}

fn add(block: ContentBlock, parts: &mut Parts) {
    match block {
        ContentBlock::Text(text) => parts.text(&text.text),
        ContentBlock::Image(image) => parts.media(&image.mime_type, image.data),
        ContentBlock::Audio(audio) => parts.media(&audio.mime_type, audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => parts.text(&text),
            ResourceContents::BlobResourceContents { mime_type: Some(mime), blob, .. } => {
                parts.media(&mime, blob);
            }
            ResourceContents::BlobResourceContents { uri, .. } => {
                parts.text(&format!("[{uri}: bytes of an unknown type]"));
            }
            _ => parts.text(UNKNOWN),
        },
        ContentBlock::ResourceLink(link) => parts.text(&describe_link(&link)),
        _ => parts.text(UNKNOWN),
    }
}

/// Placeholder for content types that this version does not support.
const UNKNOWN: &str = "[content of an unknown kind]";

/// Describes a resource link as text. The model cannot open the link, because only the server can
/// resolve it.
fn describe_link(link: &Resource) -> String {
    let description = link.description.as_deref().or(link.title.as_deref());
    let description =
        description.map_or_else(String::new, |description| format!(": {description}"));
    let mime = link.mime_type.as_deref().map_or_else(String::new, |mime| format!(" ({mime})"));
    format!("{} <{}>{mime}{description}", link.name, link.uri)
}
