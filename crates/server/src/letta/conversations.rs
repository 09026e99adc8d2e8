//! Handlers for conversations: further Threads of one agent.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::{RunRequest, RunSpec};
use throughline_core::{Body, ForkPoint, LogId};
use throughline_json::{self as json, Json, Name, Node};

use crate::api::{ApiError, ApiRequest, ApiResult, RunNote, json_response};
use crate::letta::agent_config::{self, Overrides};
use crate::letta::agent_store::{AgentRecord, Members};
use crate::letta::agents::check_models;
use crate::letta::message_list::{MessageList, Paging};
use crate::letta::messages::{ResolvedConversation, cancel_active_run, configure_run, load_run};
use crate::letta::run_stream::{RunStreamOptions, StreamPosition};
use crate::letta::{resource_json, runs};
use crate::response::GatewayResponse;

pub(crate) async fn create(request: &ApiRequest<'_>) -> ApiResult {
    let mut members = Members::new(request.body.root());
    let agent = members.text("agent_id").or_else(|| request.query.get("agent_id").cloned());
    let agent = agent.ok_or_else(|| ApiError::new(422, "agent_id: is missing"))?;
    let agent = request.agent(&agent).await?;
    members.set("agent_id", json::string(&agent.id));
    let id = request.api.fresh("conv");
    check(request, &agent, &members).await?;
    request.agent_store().create_conversation(&agent.id, &id, &members, None).await?;
    conversation_response(request, &id).await
}

/// Checks that the agent's configuration is valid with the conversation's fields applied.
async fn check(request: &ApiRequest<'_>, agent: &AgentRecord, members: &Members) -> ApiResult<()> {
    let now = request.api.runner.clock.now();
    let draft = AgentRecord::draft(Name::from(""), members.clone(), now);
    let config = agent_config::to_agent_config(agent, Some(&draft), &Overrides::default())?;
    check_models(request, &config).await
}

async fn conversation_response(request: &ApiRequest<'_>, id: &str) -> ApiResult {
    Ok(GatewayResponse::json(200, &conversation_json(&request.conversation(id).await?)))
}

fn conversation_json(resolved: &ResolvedConversation) -> Json {
    match &resolved.conversation {
        Some(record) => resource_json::conversation(record, &resolved.agent.id),
        None => {
            let draft = AgentRecord::draft(
                resolved.agent.id.clone(),
                Members::default(),
                resolved.agent.created,
            );
            resource_json::conversation(&draft, &resolved.agent.id)
        }
    }
}

/// Lists the conversations of one agent or of all agents.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&request.query, 50)?;
    let agents = match request.query.get("agent_id") {
        Some(agent) => vec![request.agent(agent).await?.id],
        None => request.agent_store().agents().await?,
    };
    let mut all = Vec::new();
    for agent in &agents {
        let Some(agent) = request.agent_store().agent(agent).await? else { continue };
        for id in &agent.conversations {
            let record = request.agent_store().conversation(id).await?;
            all.extend(record.map(|record| {
                let json = resource_json::conversation(&record, &agent.id);
                (record, json)
            }));
        }
    }
    all.sort_by_key(|(record, _)| record.created);
    let fits = |(record, _): &(AgentRecord, Json)| matches_query(request, record);
    let page = paging.cut_page(all, |(record, _), id| *record.id == *id, fits)?;
    Ok(json_response(&page.into_iter().map(|(_, json)| json).collect::<Vec<_>>()))
}

fn matches_query(request: &ApiRequest<'_>, record: &AgentRecord) -> bool {
    let is_archived = record.members.bool("archived") == Some(true);
    let is_status = match request.query.get("archive_status").map(|status| &**status) {
        Some("all") => true,
        Some("archived") => is_archived,
        _ => !is_archived,
    };
    let summary = record.members.text("summary").unwrap_or_default().to_lowercase();
    let search = request.query.get("summary_search");
    let has_text = search.is_none_or(|text| summary.contains(&text.to_lowercase()));
    is_status && has_text && record.members.bool("hidden") != Some(true)
}

pub(crate) async fn retrieve(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.resolve_conversation(&request.id(0)).await?;
    Ok(GatewayResponse::json(200, &conversation_json(&resolved)))
}

pub(crate) async fn update(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.conversation(&request.id(0)).await?;
    let Some(record) = &resolved.conversation else {
        return Err(ApiError::not_found("conversation", &request.id(0)));
    };
    let mut members = record.members.clone();
    let is_changed = |name: Node<'_>| !name.is("agent_id") && !name.is("id");
    members.merge(request.body.root().members().filter(|(name, _)| is_changed(*name)));
    check(request, &resolved.agent, &members).await?;
    request.agent_store().change(record, &members).await?;
    conversation_response(request, &record.id).await
}

pub(crate) async fn delete(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.conversation(&request.id(0)).await?;
    if let Some(record) = &resolved.conversation {
        cancel_active_run(request, &resolved.thread).await?;
        request.agent_store().delete(record).await?;
    }
    Ok(json_response(&()))
}

/// Follows a run of the conversation: the run with the id `run_id`, the run started with `otid`, or
/// the active run.
pub(crate) async fn stream(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.resolve_conversation(&request.id(0)).await?;
    let root = request.body.root();
    if let Some(run) = root.name_of("run_id") {
        let known = load_run(request, &LogId(run.clone())).await?;
        if known.thread != resolved.thread {
            return Err(ApiError::not_found("run", &run));
        }
        return runs::follow(request, known.run).await;
    }
    if let Some(otid) = root.name_of("otid") {
        for head in runs::run_heads(request, &resolved.thread, None, 64).await? {
            let known = load_run(request, &head.log).await?;
            if known.note.otids.contains(&Some(otid.clone())) {
                return runs::follow(request, head.log).await;
            }
        }
        return Err(ApiError::new(404, format!("no run was started with the otid {otid}")));
    }
    let newest = request.newest_run(&resolved.thread).await?.filter(runs::is_open);
    let newest = newest.ok_or_else(|| {
        ApiError::new(
            404,
            format!("no run is active in {}; specify a run in run_id", resolved.thread),
        )
    })?;
    runs::follow(request, newest.log).await
}

/// Creates a conversation that shares another conversation's history, in full or up to a message.
pub(crate) async fn fork(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.resolve_conversation(&request.id(0)).await?;
    let tenant = &request.caller.tenant;
    let named = request.query.get("message_id").cloned();
    let named = named.or_else(|| request.body.root().name_of("message_id"));
    let at = match named {
        Some(message) => {
            let mut listing = MessageList::new(&request.api.runner, tenant, &resolved.thread);
            let found = listing.find(&message).await?;
            found.ok_or_else(|| ApiError::not_found("message", &message))?.seq
        }
        None => request.log(&resolved.thread).await?.map_or(0, |head| head.last),
    };
    let mut members = resolved.conversation.map(|record| record.members).unwrap_or_default();
    members.set("hidden", Json::from(request.query.bool("hidden") == Some(true)));
    let id = request.api.fresh("conv");
    let fork = ForkPoint { log: resolved.thread, at };
    request
        .agent_store()
        .create_conversation(&resolved.agent.id, &id, &members, Some(fork))
        .await?;
    conversation_response(request, &id).await
}

/// The summary of the older messages of a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Summary")]
pub(crate) struct Compaction {
    summary: Name,
    num_messages_before: u64,
    num_messages_after: u64,
}

/// Summarises the older messages of a conversation immediately.
pub(crate) async fn compact(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.resolve_conversation(&request.id(0)).await?;
    let (runner, config) = configure_run(request, &resolved, &Overrides::default()).await?;
    let tenant = request.caller.tenant.clone();
    let starting = request.api.drives.reserve_run(&tenant)?;
    let before = count_context_messages(request, &resolved.thread).await?;
    let mut casting = RunSpec::single_agent(config, Vec::new());
    casting.note =
        Some(RunNote::without_message(&resolved.agent.id, request.caller.admission.key_id()));
    let start = RunRequest {
        tenant: tenant.clone(),
        thread: Some(resolved.thread.clone()),
        casting,
        said: Vec::new(),
        once: Vec::new(),
    };
    let begun = runner.start_compaction(start).await?;
    request.api.drives.drive(&tenant, &begun.run);
    drop(starting);
    let known = load_run(request, &begun.run).await?;
    let from = StreamPosition::default();
    let (pings, types) = (false, Vec::new());
    let options = RunStreamOptions { known, from, pings, types, may_drive: true };
    request.api.collect_answer(options).await?;
    let state = request.state(&begun.run).await?;
    let summary = state.smart.summaries.iter().flatten().last().cloned().unwrap_or_default();
    let after = count_context_messages(request, &resolved.thread).await?;
    Ok(json_response(&Compaction {
        summary,
        num_messages_before: before,
        num_messages_after: after,
    }))
}

/// Returns the number of messages in the model's context; 0 before the first run.
async fn count_context_messages(request: &ApiRequest<'_>, thread: &LogId) -> ApiResult<u64> {
    let Some(head) = request.newest_run(thread).await? else { return Ok(0) };
    let state = request.state(&head.log).await?;
    let shown = state.window.visible_items().filter(|item| !matches!(item.body, Body::Unknown));
    Ok(u64::try_from(shown.count()).unwrap_or(u64::MAX))
}
