//! Handlers that list, show, read and follow runs.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::Phase;
use throughline_core::{LogFollower, LogHead, LogId, StoreError, unpack_events};
use throughline_json::{Json, Name, Node};
use throughline_spec::RunEvent;

use crate::api::{ApiError, ApiRequest, ApiResult, RunNote, json_response};
use crate::letta::message::{LettaMessage, UsageTotals, format_date};
use crate::letta::message_list::Paging;
use crate::letta::messages::load_run;
use crate::letta::projector::{Projector, RunContext, Step, stop_for_status};
use crate::letta::run_stream::{RunStreamOptions, StreamPosition};

/// Logs fetched per requested run: a run also has an inbox log.
const LOGS: u32 = 4;

/// Whether a log belongs to a run.
pub(crate) fn is_run(head: &LogHead) -> bool {
    head.status.is_some() && head.of.is_some()
}

/// Whether a run is active or waiting.
pub(crate) fn is_open(head: &LogHead) -> bool {
    matches!(head.status.as_deref(), Some("running" | "waiting"))
}

/// The runs of a Thread, newest first: at most `most`, all older than `before`.
pub(crate) async fn run_heads(
    asked: &ApiRequest<'_>,
    thread: &LogId,
    before: Option<&LogId>,
    most: usize,
) -> Result<Vec<LogHead>, ApiError> {
    let (tenant, mut before) = (&asked.caller.tenant, before.cloned());
    let limit = u32::try_from(most).unwrap_or(u32::MAX / LOGS).saturating_mul(LOGS).max(16);
    let mut found = Vec::new();
    while found.len() < most {
        let page = asked.api.store().runs_of(tenant, thread, before.as_ref(), limit).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.log.clone());
        found.extend(page.into_iter().filter(is_run));
    }
    found.truncate(most);
    Ok(found)
}

/// Letta's stop reason of a run; `None` while the run is active.
pub(crate) async fn stop_reason(
    asked: &ApiRequest<'_>,
    head: &LogHead,
) -> Result<Option<&'static str>, ApiError> {
    let (_, progress) = asked.api.runner.progress(&asked.caller.tenant, &head.log).await?;
    Ok(stop_reason_of(head, &progress.phase))
}

fn stop_reason_of(head: &LogHead, phase: &Phase) -> Option<&'static str> {
    let reason = match phase {
        Phase::Ended { reason, .. } => &**reason,
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => "",
    };
    stop_for_status(head.status.as_deref()?, reason).map(|rest| rest.reason)
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

async fn run_state(asked: &ApiRequest<'_>, head: &LogHead) -> Result<RunState, ApiError> {
    let (casting, progress) = asked.api.runner.progress(&asked.caller.tenant, &head.log).await?;
    let note = RunNote::of(&casting);
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

/// The response that describes a run.
pub(crate) async fn run_response(asked: &ApiRequest<'_>, run: &LogId) -> ApiResult {
    let head = asked.api.store().log(&asked.caller.tenant, run).await?.filter(is_run);
    let head = head.ok_or_else(|| ApiError::not_found("run", &run.0))?;
    Ok(json_response(&run_state(asked, &head).await?))
}

pub(crate) async fn retrieve(asked: &ApiRequest<'_>) -> ApiResult {
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    run_response(asked, &known.run).await
}

/// Lists the runs of an agent, of a conversation, or of all agents.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&asked.query, 50)?;
    let query = &asked.query;
    let mut agents = query.all("agent_ids");
    agents.extend(query.get("agent_id").cloned());
    if agents.is_empty() {
        agents = asked.agent_store().agents().await?;
    }
    let conversation = query.get("conversation_id");
    let mut threads = Vec::new();
    for id in &agents {
        let Some(agent) = asked.agent_store().agent(id).await? else { continue };
        threads.push(agent.thread());
        threads.extend(agent.conversations.into_iter().map(LogId));
    }
    threads.retain(|thread| conversation.is_none_or(|wanted| thread.0 == *wanted));
    let mut all = Vec::new();
    for thread in &threads {
        all.extend(run_heads(asked, thread, None, usize::MAX).await?);
    }
    all.sort_by(|one, other| (one.created, &one.log).cmp(&(other.created, &other.log)));
    let statuses = query.all("statuses");
    let is_active = query.bool("active") == Some(true);
    let (wanted, background) = (query.get("stop_reason"), query.bool("background"));
    let mut shown = Vec::with_capacity(all.len());
    for head in all {
        let state = run_state(asked, &head).await?;
        shown.push((head, state));
    }
    let fits = |(head, state): &(LogHead, RunState)| {
        let is_on = !is_active || head.status.as_deref() == Some("running");
        let is_status = statuses.is_empty() || statuses.iter().any(|one| **one == *state.status);
        let is_reason = wanted.is_none_or(|wanted| state.stop_reason == Some(&**wanted));
        let is_background = background.is_none_or(|wanted| state.background == wanted);
        is_on && is_status && is_reason && is_background
    };
    let page = paging.cut_page(shown, |(head, _), id| *head.log.0 == *id, fits)?;
    Ok(json_response(&page.into_iter().map(|(_, state)| state).collect::<Vec<_>>()))
}

/// All output of a run so far.
struct RunOutput {
    letters: Vec<LettaMessage>,
    steps: Vec<Step>,
    usage: UsageTotals,
}

async fn read_run_output(
    asked: &ApiRequest<'_>,
    known: RunContext,
) -> Result<RunOutput, StoreError> {
    let (tenant, run) = (known.tenant.clone(), known.run.clone());
    let last = asked.api.store().log(&tenant, &run).await?.map_or(0, |head| head.events);
    let mut projector = Projector::new(asked.api.store(), known, false).with_user_messages();
    let mut follow = LogFollower::new(asked.api.store(), tenant, run, 0);
    let (mut letters, mut read) = (Vec::new(), 0);
    while read < last {
        for record in &follow.next().await? {
            for (number, event) in unpack_events(record).unwrap_or_default() {
                read = number;
                let event = Json::parse(event).ok().and_then(|event| RunEvent::parse(&event).ok());
                let Some(event) = event else { continue };
                letters.extend(projector.tell(&event, record.at).await?.letters);
            }
        }
    }
    let (steps, usage) = (projector.steps().to_vec(), projector.used());
    Ok(RunOutput { letters, steps, usage })
}

pub(crate) async fn messages(asked: &ApiRequest<'_>) -> ApiResult {
    // By default a run is listed from its start.
    let paging = Paging::parse_fixed_order(&asked.query, 100)?;
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    let mut letters = read_run_output(asked, known).await?.letters;
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

pub(crate) async fn steps(asked: &ApiRequest<'_>) -> ApiResult {
    let paging = Paging::parse(&asked.query, 100)?;
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    let (agent_id, run_id) = (known.note.agent.clone(), known.run.0.clone());
    let steps = read_run_output(asked, known).await?.steps;
    let page = paging.cut_page(steps, |step, id| *step.id == *id, |_| true)?;
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

pub(crate) async fn usage(asked: &ApiRequest<'_>) -> ApiResult {
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    let usage = read_run_output(asked, known).await?.usage;
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
pub(crate) async fn stream(asked: &ApiRequest<'_>) -> ApiResult {
    follow(asked, LogId(asked.id(0))).await
}

/// Streams a run with the options in the body or the query.
pub(crate) async fn follow(asked: &ApiRequest<'_>, run: LogId) -> ApiResult {
    let known = load_run(asked, &run).await?;
    let root = asked.body.root();
    let after = root.present("starting_after").and_then(Node::u64);
    let after = after.or_else(|| asked.query.get("starting_after")?.parse().ok());
    let pings = root.present("include_pings").and_then(Node::bool);
    let pings = pings.or_else(|| asked.query.bool("include_pings")).unwrap_or(true);
    let from = StreamPosition { seq_id: after.unwrap_or(0), event: 0 };
    Ok(asked.api.stream(RunStreamOptions { known, from, pings, types: Vec::<Name>::new() }))
}
