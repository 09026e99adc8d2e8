//! Encodes images, audio and documents.

use throughline_core::{Media, Target};
use throughline_json::{self as json, Json};

use crate::draft;

/// Encodes media as a `content` part; `None` if this wire cannot represent the media.
pub(super) fn part(media: &Media, target: &Target) -> Option<Json> {
    match media {
        Media::Inline { mime, base64 } => {
            let data = std::str::from_utf8(base64).ok()?;
            let address = || format!("data:{mime};base64,{data}");
            match &**mime {
                "audio/wav" | "audio/x-wav" | "audio/mp3" | "audio/mpeg" => {
                    let format = if mime.ends_with("wav") { "wav" } else { "mp3" };
                    Some(object! {
                        "type": "input_audio", "input_audio": { "data": data, "format": format },
                    })
                }
                "application/pdf" => Some(object! {
                    "type": "file", "file": { "filename": "document.pdf", "file_data": address() },
                }),
                other if other.starts_with("image/") => Some(image(&address())),
                _ => None,
            }
        }
        Media::Remote { mime, uri, owner: None } => {
            let is_image = mime.as_deref().is_none_or(|mime| mime.starts_with("image/"));
            is_image.then(|| image(uri))
        }
        Media::Remote { uri, owner: Some(owner), .. } => {
            let is_own = draft::is_same_endpoint(owner, &target.origin);
            is_own.then(|| object! { "type": "file", "file": { "file_id": uri } })
        }
    }
}

/// Encodes an image for Ollama's native API as bare base64.
pub(super) fn bare_image(media: &Media) -> Option<Json> {
    match media {
        Media::Inline { mime, base64 } if mime.starts_with("image/") => {
            Some(json::string(std::str::from_utf8(base64).ok()?))
        }
        Media::Inline { .. } | Media::Remote { .. } => None,
    }
}

fn image(url: &str) -> Json {
    object! { "type": "image_url", "image_url": { "url": url } }
}
