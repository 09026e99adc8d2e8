//! Reads the `history` of a message request: an earlier conversation in a documented format.

use throughline_codec::{HistoryFormat, HistoryOwner, codec, read_history};
use throughline_core::{Body, Item, ItemPosition, Role};
use throughline_json::{Json, Node, join_variants};

use crate::api::{ApiError, ApiRequest, ApiResult};
use crate::letta::message_request::MessageRequest;
use crate::letta::stored_objects::has_stored_media;

/// Returns the Items of the history and of the ephemeral messages. The owner of the history's
/// reasoning is the model named by `owner`.
pub(crate) fn read(request: &ApiRequest<'_>, input: &MessageRequest) -> ApiResult<Vec<Item>> {
    let mut items = match &input.history {
        Some(document) => read_document(request, document)?,
        None => Vec::new(),
    };
    if request.caller.admission.is_key() && items.iter().any(has_stored_media) {
        let problem = "history: refers to a file at a provider; send the content of the file";
        return Err(ApiError::new(422, problem));
    }
    let next = items.iter().map(|item| item.place.message + 1).max().unwrap_or(0);
    for (message, text) in (next..).zip(&input.ephemeral) {
        let place = ItemPosition { message, part: 0 };
        let id = format!("ephemeral-{message}");
        let mut item = Item::new(id, place, Role::User, Body::Text(text.clone()));
        item.ephemeral = true;
        items.push(item);
    }
    Ok(items)
}

fn read_document(request: &ApiRequest<'_>, document: &Json) -> ApiResult<Vec<Item>> {
    let invalid = |problem: String| ApiError::new(422, format!("history{problem}"));
    let tree = document.tree();
    let root = tree.root();
    let format = root.text_of("format");
    let format = format.as_deref().and_then(HistoryFormat::parse).ok_or_else(|| {
        invalid(format!(".format: must be one of {}", join_variants::<HistoryFormat>()))
    })?;
    let entries = root.present("messages").or_else(|| root.present("thoughts"));
    let entries = entries.map(Node::json);
    let entries = entries.ok_or_else(|| invalid(".messages: is missing".to_owned()))?;
    // Without an owner, the reasoning is kept, but no provider receives it.
    let Some(owner) = root.name_of("owner") else {
        let history = read_history(&entries, format, None);
        return Ok(history.map_err(|error| invalid(format!(": {error}")))?.items);
    };
    let model = request.api.runner.models.model(&owner);
    let model = model.map_err(|error| invalid(format!(".owner: {error}")))?;
    let target = model.target();
    let wire = &target.origin.wire;
    let codec = codec(wire).ok_or_else(|| {
        invalid(format!(".owner: no codec registered for wire `{wire}` of {owner}"))
    })?;
    let history = read_history(&entries, format, Some(HistoryOwner::new(target, codec)));
    Ok(history.map_err(|error| invalid(format!(": {error}")))?.items)
}
