//! What a server answered, as parts that a model is shown.

use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use throughline_agent::ToolAnswer;
use throughline_core::Outcome;

use crate::answer::Parts;

/// The answer of a call, within so many bytes.
pub(super) fn answer(said: CallToolResult, limit: usize) -> ToolAnswer {
    let mut parts = Parts::within(limit);
    for block in said.content {
        add(block, &mut parts);
    }
    if let Some(value) = said.structured_content {
        // Servers should say it as text too, for those who read no structure. Then it is not said twice.
        let same = |text: &str| {
            serde_json::from_str(text).is_ok_and(|said: serde_json::Value| said == value)
        };
        if !parts.has_text(same) {
            parts.text(&value.to_string());
        }
    }
    parts.answer(if said.is_error == Some(true) { Outcome::Error } else { Outcome::Ok })
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
        ContentBlock::ResourceLink(link) => parts.text(&linked(&link)),
        _ => parts.text(UNKNOWN),
    }
}

/// What stands for content that the protocol did not have when this was written.
const UNKNOWN: &str = "[content of an unknown kind]";

/// A link stays words: what it points to is known to the server, and to no provider.
fn linked(link: &Resource) -> String {
    let about = link.description.as_deref().or(link.title.as_deref());
    let about = about.map_or_else(String::new, |about| format!(": {about}"));
    let mime = link.mime_type.as_deref().map_or_else(String::new, |mime| format!(" ({mime})"));
    format!("{} <{}>{mime}{about}", link.name, link.uri)
}
