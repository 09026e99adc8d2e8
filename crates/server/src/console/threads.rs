//! Lists threads, and shows one with its runs and calls.

use throughline_core::{Body, LogHead, LogId, LogKind, Store, Tenant};
use throughline_json::{self as json, Json};

use crate::api::{ApiError, ApiRequest, ApiResult, first_words};
use crate::console::{archive, calls, erasure_epoch, runs};
use crate::letta::item_reader::seen;
use crate::response::GatewayResponse;

/// How many of a thread's first records are read for its title.
const FIRST: u32 = 24;
/// How many runs and calls of a thread are shown.
const MOST: usize = 200;

/// The use of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadUse {
    /// Agents ran on the thread.
    Agent,
    /// A client's conversation through the gateway.
    Gateway,
    /// A stored thread whose use is unknown.
    Kept,
}

/// The use of a thread by its name; `None` for an internal log.
fn thread_use(id: &str) -> Option<ThreadUse> {
    if id.starts_with("letta.") || id.starts_with(throughline_replay::OBJECT_LOG) {
        return None;
    }
    if calls::is_conversation(id) {
        return Some(ThreadUse::Gateway);
    }
    let is_agents = ["agent-", "conv-", "thread_"].iter().any(|begins| id.starts_with(begins));
    Some(if is_agents { ThreadUse::Agent } else { ThreadUse::Kept })
}

/// Lists the tenant's threads, newest first.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let query = &asked.query;
    let limit: usize = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(50);
    let sought = query.get("search").map(|sought| sought.to_lowercase());
    let mut after = query.get("after").cloned().map(LogId);
    let mut found = Vec::new();
    let next = loop {
        let tenant = &asked.caller.tenant;
        let page = archive(asked)?.logs(tenant, LogKind::Thread, after.as_ref(), 64).await?;
        let Some(last) = page.last().map(|head| head.log.clone()) else { break None };
        let mut place = last.clone();
        for head in &page {
            place = head.log.clone();
            let Some(purpose) = thread_use(&head.log.0) else { continue };
            let title = title(asked.api.store(), tenant, head, purpose, asked).await?;
            let words = format!("{} {}", head.log.0, title.as_deref().unwrap_or_default());
            if sought.as_ref().is_some_and(|sought| !words.to_lowercase().contains(sought)) {
                continue;
            }
            found.push(row(head, purpose, title.as_deref()));
            if found.len() >= limit.min(MOST) {
                break;
            }
        }
        if found.len() >= limit.min(MOST) {
            break Some(place);
        }
        after = Some(last);
    };
    let told = json::object(|o| {
        o.raw("threads", &json::array_of(&found));
        o.maybe_string("next", next.as_ref().map(|next| &*next.0));
    });
    Ok(GatewayResponse::json(200, &told))
}

fn row(head: &LogHead, purpose: ThreadUse, title: Option<&str>) -> Json {
    json::object(|o| {
        o.string("id", &head.log.0).string(
            "kind",
            match purpose {
                ThreadUse::Agent => "agent",
                ThreadUse::Gateway => "gateway",
                ThreadUse::Kept => "kept",
            },
        );
        o.maybe_string("title", title).number("records", head.last).number("bytes", head.bytes);
        o.string("created", &head.created.to_string()).string("updated", &head.updated.to_string());
        o.maybe_string("forked_from", head.fork.as_ref().map(|fork| &*fork.log.0));
        o.maybe_string("gone", head.gone.map(|why| why.to_string()).as_deref());
    })
}

/// The title of a thread: its first words.
async fn title(
    store: &dyn Store,
    tenant: &Tenant,
    head: &LogHead,
    purpose: ThreadUse,
    asked: &ApiRequest<'_>,
) -> Result<Option<String>, ApiError> {
    let policy = asked.policy();
    if purpose == ThreadUse::Gateway
        && let Some(words) = calls::first_question(asked, &head.log).await?
    {
        return Ok(Some(first_words(&policy.redact_text(&words), 140)));
    }
    let records = store.read(tenant, &head.log, 0, FIRST).await?;
    // Records that are not Items have no text to show.
    let items = seen(&records).unwrap_or_default();
    let words = items.into_iter().find_map(|seen| match seen.item.body {
        Body::Text(text) if !text.trim().is_empty() => Some(text),
        _ => None,
    });
    Ok(words.map(|words| first_words(&policy.redact_text(&words), 140)))
}

/// Shows one thread with its newest runs and calls.
pub(crate) async fn show(asked: &ApiRequest<'_>) -> ApiResult {
    let thread = requested_thread(asked).await?;
    let runs = crate::letta::runs::run_heads(asked, &thread.log, None, MOST).await?;
    let (mut rows, era) = (Vec::new(), erasure_epoch(asked).await?);
    for head in runs.iter().filter(|head| !throughline_agent::is_inbox(&head.log)) {
        rows.push(runs::row(asked, head, era).await?);
    }
    let calls = calls::calls_of_thread(asked, &thread, MOST).await?;
    let purpose = thread_use(&thread.log.0).unwrap_or(ThreadUse::Kept);
    let title = title(asked.api.store(), &asked.caller.tenant, &thread, purpose, asked).await?;
    let head = row(&thread, purpose, title.as_deref());
    let told = json::object(|o| {
        for (name, value) in head.tree().root().members() {
            o.node(&name.text().unwrap_or_default(), value);
        }
        o.raw("runs", &json::array_of(&rows));
        o.array("calls", |list| {
            for call in &calls {
                list.raw(&call.row());
            }
        });
    });
    Ok(GatewayResponse::json(200, &told))
}

/// The thread that the path names.
pub(crate) async fn requested_thread(asked: &ApiRequest<'_>) -> Result<LogHead, ApiError> {
    let id = asked.id(0);
    let head = asked.api.store().log(&asked.caller.tenant, &LogId(id.clone())).await?;
    let head = head.filter(|head| head.kind == LogKind::Thread);
    head.ok_or_else(|| ApiError::not_found("thread", &id))
}
