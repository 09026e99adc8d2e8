//! Lists Threads, and shows a single Thread with its runs and calls.

use throughline_agent::is_inbox;
use throughline_core::{Body, LogHead, LogKind};
use throughline_json::Json;
use throughline_replay::is_conversation;

use crate::api::{ApiRequest, ApiResult, first_words, json_response};
use crate::console::{
    LogList, MAX_PAGE, MOST_LOOKED, archive, calls, erasure_epoch, matches_search, row_limit,
    runs as run_rows,
};
use crate::letta::item_reader::stored_items;
use crate::letta::runs;
use crate::object::{join_objects, object};

/// Maximum number of forks to list.
const MAX_FORKS: u32 = 50;
/// Number of records at the start of a Thread to read for its title.
const FIRST: u32 = 24;

/// Derives a Thread's purpose from its name: `gateway`, `agent`, or `kept` if the purpose is
/// unknown. Returns `None` for an internal log.
fn thread_use(id: &str) -> Option<&'static str> {
    if id.starts_with("letta.") || id.starts_with(throughline_replay::OBJECT_LOG) {
        return None;
    }
    let is_agents = ["agent-", "conv-", "thread_"].iter().any(|begins| id.starts_with(begins));
    Some(if is_conversation(id) {
        "gateway"
    } else if is_agents {
        "agent"
    } else {
        "kept"
    })
}

/// Lists the tenant's Threads, newest first.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let limit = row_limit(request, 50);
    let mut logs = LogList::new(request, LogKind::Thread);
    let (mut found, mut looked) = (Vec::new(), 0);
    while found.len() < limit && looked < MOST_LOOKED {
        let Some(head) = logs.next().await? else { break };
        looked += 1;
        let Some(kind) = thread_use(&head.log.0) else { continue };
        let title = title(request, &head).await?;
        let haystack = format!("{} {}", head.log.0, title.as_deref().unwrap_or_default());
        if matches_search(request, [&*haystack]) {
            found.push(row(&head, kind, title.as_deref()));
        }
    }
    Ok(json_response(&object! { "threads": found, "next"? logs.next.map(|next| next.0) }))
}

fn row(head: &LogHead, kind: &str, title: Option<&str>) -> Json {
    object! {
        "id": head.log.0, "kind": kind, "title"? title, "records": head.last, "bytes": head.bytes,
        "created": head.created.to_string(), "updated": head.updated.to_string(),
        "forked_from"? head.fork.as_ref().map(|fork| &fork.log.0),
        "gone"? head.gone.map(|why| why.to_string()),
    }
}

/// Builds a Thread's title from the first words of the first message that contains text.
async fn title(request: &ApiRequest<'_>, head: &LogHead) -> ApiResult<Option<String>> {
    if let Some(title) = calls::title(request, &head.log).await? {
        return Ok(Some(title));
    }
    let shorten = |text: &str| first_words(&request.policy().redact_text(text), 140);
    let store = request.api.store();
    let records = store.read(&request.caller.tenant, &head.log, 0, FIRST).await?;
    // Records that are not Items have no text to show.
    let items = stored_items(&records).unwrap_or_default();
    let first_text = items.into_iter().find_map(|stored| match stored.item.body {
        Body::Text(text) if !text.trim().is_empty() => Some(text),
        _ => None,
    });
    Ok(first_text.map(|text| shorten(&text)))
}

/// Shows one Thread with its newest runs, calls and forks.
pub(crate) async fn show(request: &ApiRequest<'_>) -> ApiResult {
    let thread = request.thread_head(&request.id(0)).await?;
    let heads = runs::run_heads(request, &thread.log, None, MAX_PAGE).await?;
    let (mut rows, era) = (Vec::new(), erasure_epoch(request).await?);
    let interrupted = run_rows::interrupted(request).await?;
    for head in heads.iter().filter(|head| !is_inbox(&head.log)) {
        let summary = run_rows::summary(request, head, era).await?;
        rows.push(run_rows::row_json(head, &summary, interrupted.contains(&head.log)));
    }
    let calls = calls::calls_of_thread(request, &thread, MAX_PAGE).await?;
    let calls: Vec<Json> = calls.iter().map(calls::RecordedCall::row).collect();
    let title = title(request, &thread).await?;
    let head = row(&thread, thread_use(&thread.log.0).unwrap_or("kept"), title.as_deref());
    let tenant = &request.caller.tenant;
    let forks = archive(request)?.forks(tenant, &thread.log, MAX_FORKS).await?;
    let forks = forks.iter().map(|fork| {
        let at = fork.fork.as_ref().map(|fork| fork.at);
        object! {
            "id": fork.log.0, "at"? at, "created": fork.created.to_string(),
            "updated": fork.updated.to_string(),
        }
    });
    let forks: Vec<Json> = forks.collect();
    let more = object! { "runs": rows, "calls": calls, "forks": forks };
    Ok(json_response(&join_objects(&head, &more)))
}
