//! Handlers for conversations: further Threads of one agent.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::{RunRequest, RunSpec};
use throughline_core::{Body, ForkPoint, LogId};
use throughline_json::{self as json, Json, Name, Node};

use crate::api::{ApiError, ApiRequest, ApiResult, RunNote, json_response};
use crate::letta::agent_config::{self, Overrides};
use crate::letta::agent_store::{AgentRecord, Members};
use crate::letta::message_list::{MessageList, Paging};
use crate::letta::messages::{
    ResolvedConversation, cancel_active_run, check_models_allowed, load_run,
};
use crate::letta::run_stream::{FollowStep, RunFollower, StreamPosition};
use crate::letta::{resource_json, runs};
use crate::response::GatewayResponse;

/// Creates a conversation with an agent.
pub(crate) async fn create(asked: &ApiRequest<'_>) -> ApiResult {
    let mut members = Members::of(asked.body.root());
    let agent = members.text("agent_id").or_else(|| asked.query.get("agent_id").cloned());
    let agent = agent.ok_or_else(|| ApiError::new(422, "agent_id: is missing"))?;
    let agent = asked.agent(&agent).await?;
    members.set("agent_id", json::string(&agent.id));
    let id = asked.api.fresh("conv");
    validate(asked, &agent, &members).await?;
    asked.agent_store().create_conversation(&agent.id, &id, &members, None).await?;
    conversation_response(asked, &id).await
}

/// Checks that a conversation can have these members.
async fn validate(
    asked: &ApiRequest<'_>,
    agent: &AgentRecord,
    members: &Members,
) -> Result<(), ApiError> {
    let now = asked.api.runner.clock.now();
    let draft = AgentRecord::draft(Name::from(""), members.clone(), now);
    let config = agent_config::to_agent_config(agent, Some(&draft), &Overrides::default())?;
    check_models_allowed(asked, &config).await?;
    let model = asked.api.runner.models.model(&config.model);
    model.map_err(|error| ApiError::new(422, format!("model: {error}"))).map(drop)
}

async fn conversation_response(asked: &ApiRequest<'_>, id: &str) -> ApiResult {
    let place = asked.conversation(id).await?;
    Ok(GatewayResponse::json(200, &conversation_json(&place)))
}

fn conversation_json(place: &ResolvedConversation) -> Json {
    match &place.conversation {
        Some(kept) => resource_json::conversation(kept, &place.agent.id),
        None => {
            let draft =
                AgentRecord::draft(place.agent.id.clone(), Members::default(), place.agent.created);
            resource_json::conversation(&draft, &place.agent.id)
        }
    }
}

/// Lists the conversations of one agent or of all agents.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&asked.query, 50)?;
    let agents = match asked.query.get("agent_id") {
        Some(agent) => vec![asked.agent(agent).await?.id],
        None => asked.agent_store().agents().await?,
    };
    let mut all = Vec::new();
    for agent in &agents {
        let Some(agent) = asked.agent_store().agent(agent).await? else { continue };
        for id in &agent.conversations {
            let kept = asked.agent_store().conversation(id).await?;
            all.extend(kept.map(|kept| {
                let told = resource_json::conversation(&kept, &agent.id);
                (kept, told)
            }));
        }
    }
    all.sort_by_key(|(kept, _)| kept.created);
    let fits = |(kept, _): &(AgentRecord, Json)| matches_query(asked, kept);
    let page = paging.cut_page(all, |(kept, _), id| *kept.id == *id, fits)?;
    Ok(json_response(&page.into_iter().map(|(_, told)| told).collect::<Vec<_>>()))
}

fn matches_query(asked: &ApiRequest<'_>, kept: &AgentRecord) -> bool {
    let is_archived = kept.members.bool("archived") == Some(true);
    let is_status = match asked.query.get("archive_status").map(|status| &**status) {
        Some("all") => true,
        Some("archived") => is_archived,
        _ => !is_archived,
    };
    let summary = kept.members.text("summary").unwrap_or_default().to_lowercase();
    let search = asked.query.get("summary_search");
    let has_text = search.is_none_or(|text| summary.contains(&text.to_lowercase()));
    is_status && has_text && kept.members.bool("hidden") != Some(true)
}

pub(crate) async fn retrieve(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.resolve_conversation(&asked.id(0)).await?;
    Ok(GatewayResponse::json(200, &conversation_json(&place)))
}

/// Changes the members of a conversation.
pub(crate) async fn update(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.conversation(&asked.id(0)).await?;
    let Some(kept) = &place.conversation else {
        return Err(ApiError::not_found("conversation", &asked.id(0)));
    };
    let mut members = kept.members.clone();
    let is_changed = |name: Node<'_>| !name.is("agent_id") && !name.is("id");
    members.merge(asked.body.root().members().filter(|(name, _)| is_changed(*name)));
    validate(asked, &place.agent, &members).await?;
    asked.agent_store().change(kept, &members).await?;
    conversation_response(asked, &kept.id).await
}

pub(crate) async fn delete(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.conversation(&asked.id(0)).await?;
    if let Some(kept) = &place.conversation {
        cancel_active_run(asked, &place.thread).await?;
        asked.agent_store().delete(kept).await?;
    }
    Ok(json_response(&()))
}

/// Follows a run of the conversation: the one named by `run_id`, the one started with `otid`, or
/// the active one.
pub(crate) async fn stream(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.resolve_conversation(&asked.id(0)).await?;
    let root = asked.body.root();
    if let Some(run) = root.name_of("run_id") {
        let known = load_run(asked, &LogId(run.clone())).await?;
        if known.thread != place.thread {
            return Err(ApiError::not_found("run", &run));
        }
        return runs::follow(asked, known.run).await;
    }
    if let Some(otid) = root.name_of("otid") {
        for head in runs::run_heads(asked, &place.thread, None, 64).await? {
            let known = load_run(asked, &head.log).await?;
            if known.note.otids.contains(&Some(otid.clone())) {
                return runs::follow(asked, head.log).await;
            }
        }
        return Err(ApiError::new(404, format!("no run was started with the otid {otid}")));
    }
    let newest = asked.newest_run(&place.thread).await?.filter(runs::is_open);
    let newest = newest.ok_or_else(|| {
        ApiError::new(404, format!("no run is active in {}: name one in run_id", place.thread))
    })?;
    runs::follow(asked, newest.log).await
}

/// Creates a conversation that shares another one's history, whole or up to a message.
pub(crate) async fn fork(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.resolve_conversation(&asked.id(0)).await?;
    let tenant = &asked.caller.tenant;
    let named = asked.query.get("message_id").cloned();
    let named = named.or_else(|| asked.body.root().name_of("message_id"));
    let at = match named {
        Some(message) => {
            let mut listing = MessageList::new(&asked.api.runner, tenant, &place.thread);
            let found = listing.find(&message).await?;
            found.ok_or_else(|| ApiError::not_found("message", &message))?.seq
        }
        None => {
            let head = asked.api.store().log(tenant, &place.thread).await?;
            head.map_or(0, |head| head.last)
        }
    };
    let mut members = place.conversation.as_ref().map(|kept| kept.members.clone());
    let members = members.get_or_insert_default();
    let hidden = asked.query.bool("hidden") == Some(true);
    members.set("hidden", Json::from(&serde_json::Value::Bool(hidden)));
    let id = asked.api.fresh("conv");
    let fork = ForkPoint { log: place.thread.clone(), at };
    asked.agent_store().create_conversation(&place.agent.id, &id, members, Some(fork)).await?;
    conversation_response(asked, &id).await
}

/// The summary of the older messages of a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Summary")]
pub(crate) struct Compaction {
    summary: Name,
    num_messages_before: u64,
    num_messages_after: u64,
}

/// Summarises the older messages of a conversation now.
pub(crate) async fn compact(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.resolve_conversation(&asked.id(0)).await?;
    let mut config = agent_config::to_agent_config(
        &place.agent,
        place.conversation.as_ref(),
        &Overrides::default(),
    )?;
    asked.api.caps.apply_to(&mut config);
    check_models_allowed(asked, &config).await?;
    let tenant = asked.caller.tenant.clone();
    let starting = asked.api.drives.reserve_run(&tenant)?;
    let before = count_context_messages(asked, &place.thread).await?;
    let mut casting = RunSpec::single_agent(config, Vec::new());
    casting.note = Some(RunNote::without_message(&place.agent.id, asked.caller.admission.key_id()));
    let start = RunRequest {
        tenant: tenant.clone(),
        thread: Some(place.thread.clone()),
        casting,
        said: Vec::new(),
        once: Vec::new(),
    };
    let runner = agent_config::runner_with_tools(&asked.api.runner, &place.agent.members)?;
    let begun = runner.start_compaction(start).await?;
    asked.api.drives.drive(&tenant, &begun.run);
    drop(starting);
    let known = load_run(asked, &begun.run).await?;
    let mut follower = RunFollower::new(asked.api.store(), known, StreamPosition::default());
    loop {
        match follower.next(asked.api.ping).await? {
            FollowStep::Letter(_) => {}
            FollowStep::Quiet => asked.api.drives.drive(&tenant, &begun.run),
            FollowStep::Rest(_) => break,
        }
    }
    let state = asked.api.runner.state(&tenant, &begun.run).await?;
    let summary = state.smart.summaries.iter().flatten().last().cloned().unwrap_or_default();
    let after = count_context_messages(asked, &place.thread).await?;
    Ok(json_response(&Compaction {
        summary,
        num_messages_before: before,
        num_messages_after: after,
    }))
}

/// The number of messages in the model's context.
async fn count_context_messages(asked: &ApiRequest<'_>, thread: &LogId) -> Result<u64, ApiError> {
    let Some(head) = asked.newest_run(thread).await? else { return Ok(0) };
    let state = asked.api.runner.state(&asked.caller.tenant, &head.log).await?;
    let shown = state.window.visible_items().filter(|item| !matches!(item.body, Body::Unknown));
    Ok(u64::try_from(shown.count()).unwrap_or(u64::MAX))
}
