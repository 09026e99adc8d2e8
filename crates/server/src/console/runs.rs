//! Lists runs, and shows one.

use std::sync::Arc;

use throughline_agent::{AgentConfig, Phase, Progress};
use throughline_core::{ErasureEpoch, LogHead, LogId, LogKind};
use throughline_json::{self as json, Json};

use crate::api::{ApiError, ApiRequest, ApiResult, Summary};
use crate::console::{archive, decimal, erasure_epoch};
use crate::letta::runs::is_run;
use crate::response::GatewayResponse;

/// How many logs are read for one page.
const MOST_LOOKED: usize = 2000;
/// The largest page.
const MOST: usize = 200;

/// Lists the tenant's runs, newest first. A search matches titles, ids and models.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let query = &asked.query;
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(50);
    let sought = query.get("search").map(|sought| sought.to_lowercase());
    let (status, model) = (query.get("status"), query.get("model"));
    let mut after = query.get("after").cloned().map(LogId);
    let era = erasure_epoch(asked).await?;
    let (mut found, mut looked) = (Vec::new(), 0);
    let next = loop {
        let tenant = &asked.caller.tenant;
        let page = archive(asked)?.logs(tenant, LogKind::Run, after.as_ref(), 128).await?;
        let Some(last) = page.last().map(|head| head.log.clone()) else { break None };
        let mut place = None;
        for head in page.iter().filter(|head| is_run(head) && !is_inbox(head)) {
            place = Some(head.log.clone());
            if status.is_some_and(|wanted| head.status.as_ref() != Some(wanted)) {
                continue;
            }
            let summary = summary(asked, head, era).await?;
            let is_model = |wanted: &str| summary.models().iter().any(|model| **model == *wanted);
            if model.is_some_and(|model| !is_model(model)) {
                continue;
            }
            let thread = head.of.as_ref().map_or("", |of| &*of.0);
            let words = [summary.title.as_deref().unwrap_or_default(), &*head.log.0, thread];
            let words = words.into_iter().chain(summary.models().iter().map(|model| &**model));
            let has = |sought: &str| words.clone().any(|word| word.to_lowercase().contains(sought));
            if sought.as_ref().is_some_and(|sought| !has(sought)) {
                continue;
            }
            found.push(row_json(head, &summary));
            if found.len() >= limit.min(MOST) {
                break;
            }
        }
        looked += page.len();
        if found.len() >= limit.min(MOST) || looked >= MOST_LOOKED {
            break place.or(Some(last));
        }
        after = Some(last);
    };
    let told = json::object(|o| {
        o.raw("runs", &json::array_of(&found));
        o.maybe_string("next", next.as_ref().map(|next| &*next.0));
    });
    Ok(GatewayResponse::json(200, &told))
}

fn is_inbox(head: &LogHead) -> bool {
    throughline_agent::is_inbox(&head.log)
}

/// The summary of a run, with its title redacted by the policy of the server.
pub(crate) async fn summary(
    asked: &ApiRequest<'_>,
    head: &LogHead,
    era: ErasureEpoch,
) -> Result<Arc<Summary>, ApiError> {
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    Ok(asked.api.summaries.get(store, tenant, head, era, &asked.policy()).await?)
}

/// A run as a row of a list.
pub(crate) async fn row(
    asked: &ApiRequest<'_>,
    head: &LogHead,
    era: ErasureEpoch,
) -> Result<Json, ApiError> {
    Ok(row_json(head, &*summary(asked, head, era).await?))
}

fn row_json(head: &LogHead, summary: &Summary) -> Json {
    json::object(|o| {
        put_head(o, head);
        o.maybe_string("title", summary.title.as_deref()).array("models", |list| {
            for model in summary.models() {
                list.string(model);
            }
        });
        summary.put(o);
    })
}

fn put_head(o: &mut json::Object<'_>, head: &LogHead) {
    o.string("id", &head.log.0).maybe_string("thread", head.of.as_ref().map(|of| &*of.0));
    o.maybe_string("status", head.status.as_deref()).number("events", head.events);
    o.string("created", &head.created.to_string()).string("updated", &head.updated.to_string());
    o.maybe_string("gone", head.gone.map(|why| why.to_string()).as_deref());
}

/// Shows one run: its status, its agent, its counts, and how much of its limits it has used.
pub(crate) async fn show(asked: &ApiRequest<'_>) -> ApiResult {
    let (tenant, run) = (&asked.caller.tenant, LogId(asked.id(0)));
    let head = asked.api.store().log(tenant, &run).await?.filter(is_run);
    let head = head.ok_or_else(|| ApiError::not_found("run", &run.0))?;
    if head.gone.is_some() {
        // The agents of an erased run were erased, too.
        return Ok(GatewayResponse::json(200, &json::object(|o| put_head(o, &head))));
    }
    let (casting, progress) = asked.api.runner.progress(tenant, &run).await?;
    let counts = summary(asked, &head, erasure_epoch(asked).await?).await?.counts();
    let agent = casting.agents.get(&progress.agent);
    let reason = match &progress.phase {
        Phase::Ended { reason, .. } => Some(&**reason),
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => None,
    };
    let told = json::object(|o| {
        put_head(o, &head);
        o.string("agent", &progress.agent).maybe_string("reason", reason);
        let model = progress.model.as_ref().or(agent.map(|agent| &agent.model));
        o.maybe_string("model", model.map(|model| &**model));
        counts.write_members(o);
        o.object("tokens", |o| {
            let spent = &progress.spent;
            o.number("inputTokens", spent.input).number("cachedInputTokens", spent.cached);
            o.number("outputTokens", spent.output).number("reasoningTokens", spent.thought);
        });
        o.raw("cost_usd", &decimal(progress.spent.cost_usd));
        o.raw("limits", &limits(agent, &progress));
        o.array("missing_tools", |list| {
            for tool in asked.missing_tools(&casting) {
                list.string(tool);
            }
        });
    });
    Ok(GatewayResponse::json(200, &told))
}

/// Each limit of the run, and how much of it is used.
fn limits(agent: Option<&AgentConfig>, progress: &Progress) -> Json {
    json::array(|list| {
        let Some(agent) = agent else { return };
        let limits = agent.limits.with_defaults_from(agent.profile);
        let mut limit = |name: &str, used: &Json, allowed: Option<Json>| {
            let Some(allowed) = allowed else { return };
            list.object(|o| {
                o.string("name", name).raw("used", used).raw("allowed", &allowed);
            });
        };
        let spent = &progress.spent;
        limit("maxToolCalls", &progress.tool_calls.into(), limits.max_tool_calls.map(Json::from));
        let tokens = limits.max_total_output_tokens.map(Json::from);
        limit("maxTotalOutputTokens", &spent.output.into(), tokens);
        limit("maxCostUsd", &decimal(spent.cost_usd), limits.max_cost_usd.map(decimal));
    })
}
