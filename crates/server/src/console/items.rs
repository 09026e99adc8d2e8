//! Lists the Items of a Thread as a conversation: messages, Thoughts, tool calls and results.

use throughline_core::kind;
use throughline_json::Json;

use crate::api::{ApiRequest, ApiResult, json_response};
use crate::console::reply::item_json;
use crate::letta::item_reader::stored_items;
use crate::object::{join_objects, object};

/// Maximum number of records to read for one page.
const PAGE: u64 = 400;

/// Lists the Items in the newest records of a Thread, or in the records before `before`, oldest
/// first. Records that a rewind discarded are left out.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let thread = request.thread_head(&request.id(0)).await?;
    let until = request.query_number("before").unwrap_or(u64::MAX).saturating_sub(1);
    let until = until.min(thread.last);
    let limit = request.query_number("limit").unwrap_or(PAGE).clamp(1, PAGE);
    let after = until.saturating_sub(limit);
    let count = u32::try_from(until - after).unwrap_or(u32::MAX);
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let mut records = match count {
        0 => Vec::new(),
        count => store.read(tenant, &thread.log, after, count).await?,
    };
    let valid = thread.valid_ranges(thread.last);
    records.retain(|record| valid.iter().any(|range| range.contains(&record.seq)));
    let items = records.iter().filter(|record| &*record.kind == kind::ITEM);
    let erased = items.filter(|record| record.content.bytes().is_none()).count();
    let policy = request.policy();
    let items = stored_items(&records)?.into_iter().map(|stored| {
        let head = object! {
            "id": stored.item.id.0, "seq": stored.seq, "at": stored.at.to_string(),
            "role": stored.item.role.as_str(),
            "model"? stored.item.origin.as_ref().map(|origin| &origin.asked),
        };
        join_objects(&head, &item_json(&stored.item, &policy))
    });
    let items: Vec<Json> = items.collect();
    let before = (after > 0).then_some(after + 1);
    Ok(json_response(&object! { "items": items, "erased": erased, "before"? before }))
}
