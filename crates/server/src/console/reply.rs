//! Shows the Items of a reply or a Thread: text, Thoughts, tool calls, results and media.

use throughline_core::{Body, Item, Media, Seal, StoreError, Tenant, ThoughtKind, VaultTurn};
use throughline_json::Json;
use throughline_spec::RedactionPolicy;

use crate::api::{ApiRequest, ApiResult};
use crate::letta::item_reader::stored_items;
use crate::letta::message::result_text;
use crate::object::object;
use crate::redact::redact_json;

/// Maximum size of the base64 text of an image that the view contains. The view of a larger image
/// contains only its size.
const MAX_IMAGE: usize = 4 * 1024 * 1024;

/// Media types of images that a browser displays without interpreting markup.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the Items of a captured reply in their order, with secrets redacted. Erased Items are
/// left out.
pub(crate) async fn reply_items(
    request: &ApiRequest<'_>,
    tenant: &Tenant,
    turn: &VaultTurn,
) -> ApiResult<Vec<Json>> {
    let count = u32::try_from(turn.last.saturating_sub(turn.first) + 1).unwrap_or(u32::MAX);
    let after = turn.first.saturating_sub(1);
    let records = match request.api.store().read(tenant, &turn.log, after, count).await {
        Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
        records => records?,
    };
    let policy = request.policy();
    let items = stored_items(&records)?;
    Ok(items.iter().map(|stored| item_json(&stored.item, &policy)).collect())
}

/// Encodes an Item with secrets redacted.
pub(crate) fn item_json(item: &Item, policy: &RedactionPolicy) -> Json {
    let text = |text: &str| policy.redact_text(text).into_owned();
    let sealed: usize = item.seals.iter().map(Seal::len).sum();
    let sealed = Some(sealed).filter(|bytes| *bytes > 0);
    match &item.body {
        Body::Text(content) => {
            object! { "kind": "text", "text": text(content), "sealed_bytes"? sealed }
        }
        Body::Thought(thought) => object! {
            "kind": "thought", "text": policy.redact_thought(&thought.content),
            "summary"? (thought.kind == ThoughtKind::Summary).then_some(true),
            "sealed_bytes"? sealed,
        },
        Body::Call(call) => object! {
            "kind": "tool_call", "name": call.name, "id"? call.wire_id,
            "args": redact_json(policy, &call.args), "sealed_bytes"? sealed,
        },
        Body::Hosted(step) => object! {
            "kind": "hosted", "name": step.name, "text": text(&step.visible),
            "result"? step.is_result.then_some(true), "sealed_bytes"? sealed,
        },
        Body::Media(media) => media_json(media),
        Body::Compaction => object! { "kind": "compaction", "sealed_bytes"? sealed },
        Body::Summary { text: content, .. } => object! { "kind": "text", "text": text(content) },
        Body::Result(result) => object! {
            "kind": "tool_result", "name"? result.name, "outcome": result.outcome.as_str(),
            "text": text(&result_text(result)), "sealed_bytes"? sealed,
        },
        Body::Unknown => object! { "kind": "other", "sealed_bytes"? sealed },
    }
}

fn media_json(media: &Media) -> Json {
    match media {
        Media::Inline { mime, base64 } => {
            let is_image = IMAGES.contains(&&**mime) && base64.len() <= MAX_IMAGE;
            let data = std::str::from_utf8(base64).ok().filter(|_| is_image);
            object! {
                "kind": "media", "mime": mime, "bytes": base64.len() as u64 * 3 / 4, "base64"? data,
            }
        }
        Media::Remote { mime, uri, .. } => object! { "kind": "media", "mime"? mime, "uri": uri },
    }
}
