//! Lists runs, and shows a single run with its trace.

use std::collections::HashSet;
use std::sync::Arc;

use throughline_agent::{AgentConfig, Phase, Progress, is_inbox};
use throughline_core::{ErasureEpoch, LogHead, LogId, LogKind};
use throughline_json::{Json, Object};

use crate::api::{ApiError, ApiRequest, ApiResult, Summary, is_run, json_response};
use crate::console::time_range::TimeRange;
use crate::console::{LogList, MOST_LOOKED, decimal, erasure_epoch, matches_search, row_limit};
use crate::object::{object, to_json};
use crate::response::GatewayResponse;

/// The member that marks an interrupted run, and the value of the filter for such runs.
const INTERRUPTED: &str = "interrupted";
/// Number of stale runs per store query.
const STALE_PAGE: u32 = 256;

/// Returns the tenant's runs whose status is `running` although no process drives them: their lease
/// expired, and they have had no writes since.
pub(crate) async fn interrupted(request: &ApiRequest<'_>) -> ApiResult<HashSet<LogId>> {
    let (store, lease) = (request.api.store(), request.api.runner.lease);
    let (mut found, mut after) = (HashSet::new(), 0);
    loop {
        let page = store.stale_runs(lease, after, STALE_PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.place;
        for stale in page.into_iter().filter(|stale| stale.tenant == request.caller.tenant) {
            let head = store.log(&stale.tenant, &stale.run).await?;
            let status = head.and_then(|head| head.status);
            if status.as_deref() == Some("running") {
                found.insert(stale.run);
            }
        }
    }
}

/// Lists the tenant's runs, newest first. A search matches titles, ids and models.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let (limit, era) = (row_limit(request, 50), erasure_epoch(request).await?);
    let (range, interrupted) = (TimeRange::from_query(request)?, interrupted(request).await?);
    let mut logs = LogList::new(request, LogKind::Run);
    let (mut found, mut looked) = (Vec::new(), 0);
    while let Some(head) = logs.next().await? {
        // The runs are sorted by their last write, so all further runs are older, too.
        if range.is_before(head.updated) {
            logs.next = None;
            break;
        }
        let row = matching_row(request, &head, era, &interrupted).await?;
        if let Some(row) = row.filter(|_| range.contains(head.updated)) {
            found.push(row);
        }
        looked += 1;
        if found.len() >= limit || looked >= MOST_LOOKED {
            break;
        }
    }
    Ok(json_response(&object! { "runs": found, "next"? logs.next.map(|next| next.0) }))
}

/// Builds the list entry of a run; `None` if the run does not match the query.
async fn matching_row(
    request: &ApiRequest<'_>,
    head: &LogHead,
    era: ErasureEpoch,
    interrupted: &HashSet<LogId>,
) -> ApiResult<Option<Json>> {
    let is_interrupted = interrupted.contains(&head.log);
    let is_status = request.query.get("status").is_none_or(|status| match &**status {
        INTERRUPTED => is_interrupted,
        status => !is_interrupted && head.status.as_deref() == Some(status),
    });
    if !is_run(head) || is_inbox(&head.log) || !is_status {
        return Ok(None);
    }
    let summary = summary(request, head, era).await?;
    let model = request.query.get("model");
    let thread = head.of.as_ref().map_or("", |of| &*of.0);
    let texts = [summary.title.as_deref().unwrap_or_default(), &*head.log.0, thread];
    let texts = texts.into_iter().chain(summary.models().iter().map(|model| &**model));
    let matches = model.is_none_or(|model| summary.models().contains(model))
        && matches_search(request, texts);
    Ok(matches.then(|| row_json(head, &summary, is_interrupted)))
}

/// Returns the summary of a run, with its title redacted by the server's policy.
pub(crate) async fn summary(
    request: &ApiRequest<'_>,
    head: &LogHead,
    era: ErasureEpoch,
) -> ApiResult<Arc<Summary>> {
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    Ok(request.api.summaries.get(store, tenant, head, era, &request.policy()).await?)
}

/// Encodes a run as a list entry.
pub(crate) fn row_json(head: &LogHead, summary: &Summary, is_interrupted: bool) -> Json {
    throughline_json::object(|o| {
        put_head(o, head, is_interrupted);
        o.maybe_string("title", summary.title.as_deref());
        o.raw("models", &to_json(&summary.models()));
        summary.put(o);
    })
}

fn put_head(o: &mut Object<'_>, head: &LogHead, is_interrupted: bool) {
    o.string("id", &head.log.0).maybe_string("thread", head.of.as_ref().map(|of| &*of.0));
    o.maybe_string("status", head.status.as_deref()).number("events", head.events);
    o.flag(INTERRUPTED, is_interrupted);
    o.string("created", &head.created.to_string()).string("updated", &head.updated.to_string());
    o.maybe_string("gone", head.gone.map(|why| why.to_string()).as_deref());
}

/// Shows one run: its status, agent and counts, and the used part of each limit.
pub(crate) async fn show(request: &ApiRequest<'_>) -> ApiResult {
    let head = request.run_head().await?;
    if head.gone.is_some() {
        // The agents of an erased run were erased, too.
        let body = throughline_json::object(|o| put_head(o, &head, false));
        return Ok(GatewayResponse::json(200, &body));
    }
    let (casting, progress) = request.progress(&head.log).await?;
    let counts = summary(request, &head, erasure_epoch(request).await?).await?.counts();
    let agent = casting.agents.get(&progress.agent);
    let reason = match &progress.phase {
        Phase::Ended { reason, .. } => Some(&**reason),
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => None,
    };
    let is_interrupted = interrupted(request).await?.contains(&head.log);
    let spent = &progress.spent;
    let tokens = object! {
        "inputTokens": spent.input, "cachedInputTokens": spent.cached,
        "outputTokens": spent.output, "reasoningTokens": spent.thought,
    };
    let body = throughline_json::object(|o| {
        put_head(o, &head, is_interrupted);
        o.string("agent", &progress.agent).maybe_string("reason", reason);
        let model = progress.model.as_ref().or(agent.map(|agent| &agent.model));
        o.maybe_string("model", model.map(|model| &**model));
        counts.write_members(o);
        o.raw("tokens", &tokens).raw("cost_usd", &decimal(spent.cost_usd));
        o.raw("limits", &to_json(&limits(agent, &progress)));
        o.raw("missing_tools", &to_json(&request.missing_tools(&casting)));
    });
    Ok(GatewayResponse::json(200, &body))
}

/// Returns the run's limits, each with the amount used so far.
fn limits(agent: Option<&AgentConfig>, progress: &Progress) -> Vec<Json> {
    let Some(agent) = agent else { return Vec::new() };
    let limits = agent.limits.with_defaults_from(agent.profile);
    let spent = &progress.spent;
    let rows = [
        ("maxToolCalls", progress.tool_calls.into(), limits.max_tool_calls.map(Json::from)),
        (
            "maxTotalOutputTokens",
            spent.output.into(),
            limits.max_total_output_tokens.map(Json::from),
        ),
        ("maxCostUsd", decimal(spent.cost_usd), limits.max_cost_usd.map(decimal)),
    ];
    let row = |(name, used, allowed): (&str, Json, Option<Json>)| {
        Some(object! { "name": name, "used": used, "allowed": allowed? })
    };
    rows.into_iter().filter_map(row).collect()
}

/// Returns a run's trace in the format that trace sinks receive. The gateway has no sinks, so the
/// configured exporter creates the trace.
pub(crate) async fn trace(request: &ApiRequest<'_>) -> ApiResult {
    let head = request.run_head().await?;
    let traces = request.api.traces.as_deref();
    let traces = traces.ok_or_else(|| ApiError::new(501, "this server has no trace exporter"))?;
    let trace = traces.trace(&request.caller.tenant, &head.log, request.policy()).await?;
    Ok(GatewayResponse::json(200, &trace))
}
