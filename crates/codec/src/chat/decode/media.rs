//! Decodes images, audio and documents.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Media, Origin};
use throughline_json::{Name, Node};

/// Reads the media of a `content` part; `None` if the part is not media.
pub(super) fn from_part(part: Node<'_>, origin: &Arc<Origin>) -> Option<Media> {
    let kind = part.text_of("type")?;
    let value = part.get(&kind)?;
    match &*kind {
        "image_url" | "video_url" | "document_url" => {
            let url = if value.is_string() { Some(value) } else { value.get("url") };
            from_data_url(url?)
                .or_else(|| Some(Media::Remote { mime: None, uri: url?.name()?, owner: None }))
        }
        "input_audio" => {
            let mime = Name::from(format!("audio/{}", value.text_of("format")?));
            Some(Media::Inline { mime, base64: value.get("data")?.text_bytes()? })
        }
        "file" => value.get("file_data").and_then(from_data_url).or_else(|| {
            let owner = Some(Arc::clone(origin));
            Some(Media::Remote { mime: None, uri: value.name_of("file_id")?, owner })
        }),
        _ => None,
    }
}

/// Reads inline media from a `data:` URL.
fn from_data_url(url: Node<'_>) -> Option<Media> {
    let bytes: Bytes = url.text_bytes()?;
    let rest = bytes.strip_prefix(b"data:")?;
    let comma = memchr::memchr(b',', rest)?;
    let kind = std::str::from_utf8(rest.get(..comma)?).ok()?.strip_suffix(";base64")?;
    let mime = Name::from(kind.split(';').next().unwrap_or(kind));
    Some(Media::Inline { mime, base64: bytes.slice(b"data:".len() + comma + 1..) })
}

/// Reads an image of Ollama's native API, which is bare base64. The first characters reveal the
/// media type.
pub(super) fn from_base64(node: Node<'_>) -> Option<Media> {
    let base64 = node.text_bytes()?;
    let mime = match base64.get(..4) {
        Some(b"/9j/") => "image/jpeg",
        Some(b"R0lG") => "image/gif",
        Some(b"UklG") => "image/webp",
        Some(_) | None => "image/png",
    };
    Some(Media::Inline { mime: Name::from(mime), base64 })
}
