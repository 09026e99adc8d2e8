//! Lists runs, and shows a single run with its trace.

use std::sync::Arc;

use throughline_agent::{AgentConfig, Phase, Progress, is_inbox};
use throughline_core::{ErasureEpoch, LogHead, LogKind};
use throughline_json::{Json, Object};

use crate::api::{ApiError, ApiRequest, ApiResult, Summary, is_run, json_response};
use crate::console::{LogList, decimal, erasure_epoch, matches_search, row_limit};
use crate::object::{object, to_json};
use crate::response::GatewayResponse;

/// Maximum number of logs to read for one page.
const MOST_LOOKED: usize = 2000;

/// Lists the tenant's runs, newest first. A search matches titles, ids and models.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let (limit, era) = (row_limit(request, 50), erasure_epoch(request).await?);
    let mut logs = LogList::new(request, LogKind::Run);
    let (mut found, mut looked) = (Vec::new(), 0);
    while let Some(head) = logs.next().await? {
        if let Some(row) = matching_row(request, &head, era).await? {
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
) -> ApiResult<Option<Json>> {
    let status = request.query.get("status");
    let is_status = status.is_none_or(|status| head.status.as_ref() == Some(status));
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
    Ok(matches.then(|| row_json(head, &summary)))
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
pub(crate) fn row_json(head: &LogHead, summary: &Summary) -> Json {
    throughline_json::object(|o| {
        put_head(o, head);
        o.maybe_string("title", summary.title.as_deref());
        o.raw("models", &to_json(&summary.models()));
        summary.put(o);
    })
}

fn put_head(o: &mut Object<'_>, head: &LogHead) {
    o.string("id", &head.log.0).maybe_string("thread", head.of.as_ref().map(|of| &*of.0));
    o.maybe_string("status", head.status.as_deref()).number("events", head.events);
    o.string("created", &head.created.to_string()).string("updated", &head.updated.to_string());
    o.maybe_string("gone", head.gone.map(|why| why.to_string()).as_deref());
}

/// Shows one run: its status, agent and counts, and the used part of each limit.
pub(crate) async fn show(request: &ApiRequest<'_>) -> ApiResult {
    let head = request.run_head().await?;
    if head.gone.is_some() {
        // The agents of an erased run were erased, too.
        let body = throughline_json::object(|o| put_head(o, &head));
        return Ok(GatewayResponse::json(200, &body));
    }
    let (casting, progress) = request.progress(&head.log).await?;
    let counts = summary(request, &head, erasure_epoch(request).await?).await?.counts();
    let agent = casting.agents.get(&progress.agent);
    let reason = match &progress.phase {
        Phase::Ended { reason, .. } => Some(&**reason),
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => None,
    };
    let spent = &progress.spent;
    let tokens = object! {
        "inputTokens": spent.input, "cachedInputTokens": spent.cached,
        "outputTokens": spent.output, "reasoningTokens": spent.thought,
    };
    let body = throughline_json::object(|o| {
        put_head(o, &head);
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
