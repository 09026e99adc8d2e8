//! Encodes the parts of a message's content.

use throughline_core::{Media, Role, Target};
use throughline_json::{self as json, Json, Node};

use crate::draft;
use crate::message_groups::role_name;
use crate::responses::wire::CONTENT;

/// Builds a message. A single text becomes string content, as most clients send it.
pub(super) fn message(role: Role, parts: &[Json]) -> Json {
    let role = if role == Role::Tool { Role::User } else { role };
    let only = match parts {
        [only] => only.tree().root().get("text").map(Node::json),
        [] | [_, _, ..] => None,
    };
    let content = only.unwrap_or_else(|| json::array_of(parts));
    object! { "role": role_name(role), (CONTENT): content }
}

/// Builds a text part. Assistant text has the type `output_text`, other text `input_text`.
pub(super) fn text(role: Role, text: &str) -> Json {
    let kind = if role == Role::Assistant { "output_text" } else { "input_text" };
    object! { "type": kind, "text": text }
}

/// Returns whether the target can resolve a media reference.
pub(super) fn can_resolve(media: &Media, target: &Target) -> bool {
    match media {
        Media::Inline { .. } | Media::Remote { owner: None, .. } => true,
        Media::Remote { owner: Some(owner), .. } => {
            draft::is_same_endpoint(owner, &target.origin) && owner.account == target.origin.account
        }
    }
}

/// Encodes an image or document; `None` if this wire cannot represent it. Assistant messages cannot
/// contain media.
pub(super) fn media(role: Role, media: &Media, target: &Target) -> Option<Json> {
    if role == Role::Assistant || !can_resolve(media, target) {
        return None;
    }
    let is_image = |mime: &str| mime.starts_with("image/");
    match media {
        Media::Inline { mime, base64 } => {
            let uri = format!("data:{mime};base64,{}", std::str::from_utf8(base64).ok()?);
            if is_image(mime) {
                return Some(image("image_url", &uri));
            }
            let extension = match &**mime {
                "application/pdf" => "pdf",
                "text/plain" => "txt",
                "text/csv" => "csv",
                "text/markdown" => "md",
                "text/html" => "html",
                "application/json" => "json",
                _ => return None,
            };
            Some(object! {
                "type": "input_file", "filename": format!("file.{extension}"), "file_data": uri,
            })
        }
        Media::Remote { mime, uri, owner: None } => match mime.as_deref() {
            Some(mime) if !is_image(mime) => Some(file("file_url", uri)),
            Some(_) | None => Some(image("image_url", uri)),
        },
        Media::Remote { mime, uri, owner: Some(_) } => match mime.as_deref() {
            Some(mime) if is_image(mime) => Some(image("file_id", uri)),
            Some(_) | None => Some(file("file_id", uri)),
        },
    }
}

fn image(key: &str, value: &str) -> Json {
    object! { "type": "input_image", (key): value }
}

fn file(key: &str, value: &str) -> Json {
    object! { "type": "input_file", (key): value }
}
