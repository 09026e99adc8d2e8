//! Handlers that list, return and follow runs.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::Phase;
use throughline_core::{LogFollower, LogHead, LogId};
use throughline_json::{Name, Node};

use crate::access::Permission;
use crate::api::{ApiRequest, ApiResult, RunNote, is_run, json_response};
use crate::letta::message::{LettaMessage, format_date};
use crate::letta::message_list::Paging;
use crate::letta::messages::load_run;
use crate::letta::projector::{Projector, RunContext, Step, stop_for_status};
use crate::letta::run_stream::{RunStreamOptions, StreamPosition};
use crate::records::{StoreResult, run_events};

/// Number of logs to fetch per requested run. It is larger than 1 because a run also has an inbox
/// log.
const LOGS: u32 = 4;

/// Returns whether a run is active or waiting.
pub(crate) fn is_open(head: &LogHead) -> bool {
    matches!(head.status.as_deref(), Some("running" | "waiting"))
}

/// Returns the runs of a Thread, newest first: at most `most`, all older than `before`.
pub(crate) async fn run_heads(
    request: &ApiRequest<'_>,
    thread: &LogId,
    before: Option<&LogId>,
    most: usize,
) -> ApiResult<Vec<LogHead>> {
    let (tenant, mut before) = (&request.caller.tenant, before.cloned());
    let limit = u32::try_from(most).unwrap_or(u32::MAX / LOGS).saturating_mul(LOGS).max(16);
    let mut found = Vec::new();
    while found.len() < most {
        let page = request.api.store().runs_of(tenant, thread, before.as_ref(), limit).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.log.clone());
        found.extend(page.into_iter().filter(is_run));
    }
    found.truncate(most);
    Ok(found)
}

/// Returns Letta's stop reason for a run; `None` while the run is active.
pub(crate) async fn stop_reason(
    request: &ApiRequest<'_>,
    head: &LogHead,
) -> ApiResult<Option<&'static str>> {
    let (_, progress) = request.progress(&head.log).await?;
    Ok(stop_reason_of(head, &progress.phase))
}

fn stop_reason_of(head: &LogHead, phase: &Phase) -> Option<&'static str> {
    let reason = match phase {
        Phase::Ended { reason, .. } => &**reason,
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => "",
    };
    stop_for_status(head.status.as_deref()?, reason)
}

/// A run. As in Letta, a waiting run has the status `completed`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub(crate) struct RunState {
    id: Name,
    agent_id: Name,
    status: &'static str,
    background: bool,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation_id: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    metadata: RunMetadata,
}

/// The status of a run in Throughline's terms.
#[derive(Serialize, JsonSchema)]
struct RunMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    throughline_status: Option<Name>,
}

async fn run_state(request: &ApiRequest<'_>, head: &LogHead) -> ApiResult<RunState> {
    let (casting, progress) = request.progress(&head.log).await?;
    let note = RunNote::parse(&casting);
    let status = match head.status.as_deref() {
        Some("waiting" | "completed") => "completed",
        Some("failed") => "failed",
        Some("cancelled") => "cancelled",
        _ => "running",
    };
    let thread = head.of.as_ref().map(|of| of.0.clone()).filter(|of| *of != note.agent);
    let is_over = !matches!(head.status.as_deref(), Some("running"));
    Ok(RunState {
        id: head.log.0.clone(),
        agent_id: note.agent,
        status,
        background: note.background,
        created_at: format_date(head.created),
        conversation_id: thread,
        stop_reason: stop_reason_of(head, &progress.phase),
        completed_at: is_over.then(|| format_date(head.updated)),
        metadata: RunMetadata { throughline_status: head.status.clone() },
    })
}

pub(crate) async fn run_response(request: &ApiRequest<'_>, run: &LogId) -> ApiResult {
    Ok(json_response(&run_state(request, &request.head_of_run(run).await?).await?))
}

/// Loads the run that the path names.
pub(crate) async fn path_run(request: &ApiRequest<'_>) -> ApiResult<RunContext> {
    load_run(request, &LogId(request.id(0))).await
}

pub(crate) async fn retrieve(request: &ApiRequest<'_>) -> ApiResult {
    run_response(request, &path_run(request).await?.run).await
}

/// Lists the runs of an agent, of a conversation, or of all agents.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&request.query, 50)?;
    let query = &request.query;
    let mut agents = query.all("agent_ids");
    agents.extend(query.get("agent_id").cloned());
    if agents.is_empty() {
        agents = request.agent_store().agents().await?;
    }
    let conversation = query.get("conversation_id");
    let mut threads = Vec::new();
    for id in &agents {
        let Some(agent) = request.agent_store().agent(id).await? else { continue };
        threads.extend(agent.threads());
    }
    threads.retain(|thread| conversation.is_none_or(|id| thread.0 == *id));
    let mut all = Vec::new();
    for thread in &threads {
        all.extend(run_heads(request, thread, None, usize::MAX).await?);
    }
    // The declaration of an erased run, which `run_state` reads, was erased too.
    all.retain(|head| head.gone.is_none());
    all.sort_by(|one, other| (one.created, &one.log).cmp(&(other.created, &other.log)));
    let statuses = query.all("statuses");
    let is_active = query.bool("active") == Some(true);
    let (stop_reason, background) = (query.get("stop_reason"), query.bool("background"));
    let mut listed = Vec::with_capacity(all.len());
    for head in all {
        let state = run_state(request, &head).await?;
        listed.push((head, state));
    }
    let fits = |(head, state): &(LogHead, RunState)| {
        let is_on = !is_active || head.status.as_deref() == Some("running");
        let is_status = statuses.is_empty() || statuses.iter().any(|one| **one == *state.status);
        let is_reason = stop_reason.is_none_or(|reason| state.stop_reason == Some(&**reason));
        let is_background = background.is_none_or(|background| state.background == background);
        is_on && is_status && is_reason && is_background
    };
    let page = paging.cut_page(listed, |(head, _), id| *head.log.0 == *id, fits)?;
    Ok(json_response(&page.into_iter().map(|(_, state)| state).collect::<Vec<_>>()))
}

/// Reads all events of a run so far. Returns the run's messages, and the projector, which contains
/// the steps and usage.
async fn read_run<'a>(
    request: &'a ApiRequest<'_>,
    known: RunContext,
) -> StoreResult<(Vec<LettaMessage>, Projector<'a>)> {
    let (tenant, run) = (known.tenant.clone(), known.run.clone());
    let last = request.api.store().log(&tenant, &run).await?.map_or(0, |head| head.events);
    let mut projector = Projector::new(request.api.store(), known, false, true);
    let mut follow = LogFollower::new(request.api.store(), tenant, run, 0);
    let (mut letters, mut read) = (Vec::new(), 0);
    while read < last {
        for record in &follow.next().await? {
            read = record.events.map_or(read, |(_, last)| last);
            for (_, event) in run_events(record) {
                letters.extend(projector.convert(&event, record.at).await?.letters);
            }
        }
    }
    Ok((letters, projector))
}

pub(crate) async fn messages(request: &ApiRequest<'_>) -> ApiResult {
    // By default a run is listed from its start.
    let paging = Paging::parse_fixed_order(&request.query, 100)?;
    let known = path_run(request).await?;
    let (mut letters, _) = read_run(request, known).await?;
    letters.retain(|letter| !letter.content.is_frame());
    let page = paging.cut_page(letters, |letter, id| *letter.head.id == *id, |_| true)?;
    Ok(json_response(&page.iter().map(|letter| letter.json(None)).collect::<Vec<_>>()))
}

/// A step of a run: one model call and its answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Step")]
pub(crate) struct StepState {
    id: Name,
    agent_id: Name,
    run_id: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_handle: Option<Name>,
    status: &'static str,
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'static str>,
    tags: [Name; 0],
    messages: [Name; 0],
}

pub(crate) async fn steps(request: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&request.query, 100)?;
    let known = path_run(request).await?;
    let (agent_id, run_id) = (known.note.agent.clone(), known.run.0.clone());
    let (_, projector) = read_run(request, known).await?;
    let page = paging.cut_page(projector.steps, |step, id| *step.id == *id, |_| true)?;
    let state = |step: Step| StepState {
        id: step.id,
        agent_id: agent_id.clone(),
        run_id: run_id.clone(),
        model: step.model.clone(),
        model_handle: step.model,
        status: step.status,
        prompt_tokens: step.usage.input_tokens.unwrap_or(0),
        completion_tokens: step.usage.output_tokens.unwrap_or(0),
        total_tokens: step.usage.total_tokens.unwrap_or(0),
        reasoning_tokens: step.usage.reasoning_tokens,
        stop_reason: (step.reason.as_deref() == Some("done")).then_some("end_turn"),
        tags: [],
        messages: [],
    };
    Ok(json_response(&page.into_iter().map(state).collect::<Vec<_>>()))
}

/// The usage of a run in OpenAI's format.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunUsage {
    completion_tokens: u64,
    prompt_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: CachedTokens,
    completion_tokens_details: ReasoningTokens,
}

#[derive(Serialize, JsonSchema)]
struct CachedTokens {
    cached_tokens: u64,
}

#[derive(Serialize, JsonSchema)]
struct ReasoningTokens {
    reasoning_tokens: u64,
}

pub(crate) async fn usage(request: &ApiRequest<'_>) -> ApiResult {
    let known = path_run(request).await?;
    let usage = read_run(request, known).await?.1.used();
    Ok(json_response(&RunUsage {
        completion_tokens: usage.completion_tokens,
        prompt_tokens: usage.prompt_tokens,
        total_tokens: usage.total_tokens,
        prompt_tokens_details: CachedTokens {
            cached_tokens: usage.cached_input_tokens.unwrap_or(0),
        },
        completion_tokens_details: ReasoningTokens {
            reasoning_tokens: usage.reasoning_tokens.unwrap_or(0),
        },
    }))
}

/// Streams a run, starting after any message.
pub(crate) async fn stream(request: &ApiRequest<'_>) -> ApiResult {
    follow(request, LogId(request.id(0))).await
}

/// Streams a run with the options in the body or the query.
pub(crate) async fn follow(request: &ApiRequest<'_>, run: LogId) -> ApiResult {
    let known = load_run(request, &run).await?;
    let root = request.body.root();
    let after = root.present("starting_after").and_then(Node::u64);
    let after = after.or_else(|| request.query.get("starting_after")?.parse().ok());
    let pings = root.present("include_pings").and_then(Node::bool);
    let pings = pings.or_else(|| request.query.bool("include_pings")).unwrap_or(true);
    let from = StreamPosition { seq_id: after.unwrap_or(0), event: 0 };
    // A viewer only reads: its stream must not continue a run that no process drives.
    let may_drive = request.caller.admission.has(Permission::Use);
    let options = RunStreamOptions { known, from, pings, types: Vec::new(), may_drive };
    Ok(request.api.stream(options))
}
