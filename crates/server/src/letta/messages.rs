//! Handlers that send messages to an agent, and handlers that list messages.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use throughline_agent::{AgentConfig, RunCommand, RunError, RunRequest, RunSpec, Runner};
use throughline_core::{Append, Batch, LogId, StoreError};
use throughline_json::{self as json, Name, Node};

use crate::access::Permission;
use crate::api::{ApiError, ApiRequest, ApiResult, RunNote, json_response};
use crate::letta::agent_config::{self, Overrides};
use crate::letta::agent_store::{AgentRecord, AgentStore};
use crate::letta::message_list::{MessageList, Paging};
use crate::letta::message_request::{Decision, MessageRequest};
use crate::letta::projector::RunContext;
use crate::letta::run_stream::{RunStreamOptions, StreamPosition};
use crate::letta::{decisions, history};
use crate::letta::{resource_json, runs, stored_objects};
use crate::object::object;
use crate::response::GatewayResponse;

/// How long to wait for the driving process to confirm a cancellation.
const CANCEL_WAIT: Duration = Duration::from_secs(1);

/// The form of the response to a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    /// One JSON response, unless the request enables streaming.
    Whole,
    Stream,
    /// A stream, unless the request turns streaming off.
    Conversation,
    /// Only the run, returned immediately.
    Later,
}

/// An agent, optionally one of its conversations, and the Thread that contains the messages.
pub(crate) struct ResolvedConversation {
    pub(crate) agent: AgentRecord,
    pub(crate) conversation: Option<AgentRecord>,
    pub(crate) thread: LogId,
}

impl ApiRequest<'_> {
    pub(crate) fn agent_store(&self) -> AgentStore<'_> {
        AgentStore { store: self.api.store(), tenant: &self.caller.tenant }
    }

    pub(crate) async fn agent(&self, id: &str) -> ApiResult<AgentRecord> {
        let found = self.agent_store().agent(id).await?;
        found.ok_or_else(|| ApiError::not_found("agent", id))
    }

    /// Resolves a path id to an agent's main Thread or to a conversation. `default` is the main
    /// Thread of the agent named by `agent_id`.
    pub(crate) async fn resolve_conversation(&self, id: &str) -> ApiResult<ResolvedConversation> {
        let named = self.body.root().name_of("agent_id");
        let named = named.or_else(|| self.query.get("agent_id").cloned());
        let id = match (id, named) {
            ("default", Some(agent)) => agent,
            ("default", None) => {
                let message = "agent_id: is missing; specify the agent of the default conversation";
                return Err(ApiError::new(422, message));
            }
            (id, _) => Name::from(id),
        };
        if let Some(agent) = self.agent_store().agent(&id).await? {
            let other = self.query.get("conversation_id").filter(|other| &***other != "default");
            let Some(other) = other else {
                let thread = agent.thread();
                return Ok(ResolvedConversation { agent, conversation: None, thread });
            };
            return self.conversation(&other.clone()).await;
        }
        self.conversation(&id).await
    }

    /// Returns whether the agent and the conversation of a run still exist. Runs of a deleted agent
    /// or conversation are hidden.
    pub(crate) async fn is_visible(&self, casting: &RunSpec, thread: &LogId) -> ApiResult<bool> {
        let note = RunNote::parse(casting);
        if note.adopted || !RunNote::is_present(casting) {
            return Ok(true);
        }
        let Some(agent) = self.agent_store().agent(&note.agent).await? else { return Ok(false) };
        let is_own = agent.thread() == *thread;
        Ok(is_own || self.agent_store().conversation(&thread.0).await?.is_some())
    }

    pub(crate) async fn conversation(&self, id: &str) -> ApiResult<ResolvedConversation> {
        let missing = || ApiError::not_found("conversation", id);
        let conversation = self.agent_store().conversation(id).await?.ok_or_else(missing)?;
        let agent = conversation.agent.clone().unwrap_or_default();
        let agent = self.agent_store().agent(&agent).await?.ok_or_else(missing)?;
        let thread = conversation.thread();
        Ok(ResolvedConversation { agent, conversation: Some(conversation), thread })
    }
}

/// Starts a run for a message, or sends decisions to a waiting run.
pub(crate) async fn send_messages(request: &ApiRequest<'_>, how: ResponseMode) -> ApiResult {
    let input = MessageRequest::parse(request.body.root())?;
    if request.caller.admission.is_key() {
        stored_objects::check_images(&input)?;
    }
    let resolved = request.resolve_conversation(&request.id(0)).await?;
    let tenant = &request.caller.tenant;
    // The guard reserves a slot in the tenant's share for a new run; a resumed run queues for its
    // slot.
    let (run, event, starting) = if input.decisions.is_empty() {
        let starting = request.api.drives.reserve_run(tenant)?;
        (start_run(request, &resolved, &input).await?, 0, Some(starting))
    } else {
        let (run, event) = send_decisions(request, &resolved, &input).await?;
        (run, event, None)
    };
    // A run with other pending decisions stays waiting.
    if request.log(&run).await?.is_some_and(|head| head.status.as_deref() != Some("waiting")) {
        request.api.drives.drive(tenant, &run);
    }
    drop(starting);
    if how == ResponseMode::Later {
        return runs::run_response(request, &run).await;
    }
    let known = load_run(request, &run).await?;
    let wishes = input.wishes;
    let from = StreamPosition { seq_id: 0, event };
    let (pings, types) = (wishes.pings, wishes.types);
    let options = RunStreamOptions { known, from, pings, types, may_drive: true };
    let streams = match how {
        ResponseMode::Stream => true,
        ResponseMode::Conversation => wishes.streaming.unwrap_or(true),
        ResponseMode::Whole | ResponseMode::Later => wishes.streaming.unwrap_or(false),
    };
    if streams {
        return Ok(request.api.stream(options));
    }
    Ok(json_response(&request.api.collect_answer(options).await?))
}

/// Sends the decisions to the waiting run. Returns the run and the number of its events before the
/// decisions. Decisions already recorded under the same otids are not sent again.
async fn send_decisions(
    request: &ApiRequest<'_>,
    resolved: &ResolvedConversation,
    input: &MessageRequest,
) -> ApiResult<(LogId, u64)> {
    if input.decisions.iter().any(|decision| matches!(decision, Decision::Approval { .. })) {
        request.caller.require(Permission::Approve)?;
    }
    let (runner, tenant) = (&request.api.runner, &request.caller.tenant);
    let names = input.idempotency_keys(&resolved.thread.0);
    if let Some((run, note)) = runner.find_annotation(tenant, &names).await? {
        let tree = note.tree();
        check_same_content(tree.root().name_of("digest").as_ref(), input, &run)?;
        let event = tree.root().get("event").and_then(Node::u64);
        return Ok((run, event.unwrap_or(0)));
    }
    let newest = request.newest_run(&resolved.thread).await?;
    let head = newest.ok_or_else(|| {
        ApiError::new(409, format!("no run in {} is waiting for a decision", resolved.thread))
    })?;
    let event = decisions::send(request, &head, &input.decisions).await?;
    if !names.is_empty() {
        let note = object! { "event": event, "digest": input.digest() };
        runner.annotate(tenant, &head.log, &names, &note).await?;
    }
    Ok((head.log, event))
}

/// Builds the runner and the configuration for a run of an agent.
pub(crate) async fn configure_run(
    request: &ApiRequest<'_>,
    resolved: &ResolvedConversation,
    overrides: &Overrides,
) -> ApiResult<(Runner, AgentConfig)> {
    let conversation = resolved.conversation.as_ref();
    let mut config = agent_config::to_agent_config(&resolved.agent, conversation, overrides)?;
    request.api.caps.apply_to(&mut config);
    check_models_allowed(request, &config).await?;
    let runner = agent_config::runner_with_tools(&request.api.runner, &resolved.agent.members)?;
    Ok((runner, config))
}

/// Starts a run, or returns the run that an earlier copy of the same request started.
async fn start_run(
    request: &ApiRequest<'_>,
    resolved: &ResolvedConversation,
    input: &MessageRequest,
) -> ApiResult<LogId> {
    let most = request.api.caps.max_steps;
    if let Some(steps) = input.overrides.steps.filter(|steps| *steps > most) {
        let message =
            format!("max_steps: {steps} is more than this server allows; use at most {most}");
        return Err(ApiError::new(422, message));
    }
    let (runner, config) = configure_run(request, resolved, &input.overrides).await?;
    let key = request.caller.admission.key_id();
    let mut casting = RunSpec::single_agent(config, input.client_tools.clone());
    casting.note = Some(input.note(&resolved.agent.id, key));
    agent_config::check_tracing(input.tracing.as_ref())?;
    (casting.ctx, casting.tracing) = (input.ctx.clone(), input.tracing.clone());
    let start = RunRequest {
        tenant: request.caller.tenant.clone(),
        thread: Some(resolved.thread.clone()),
        casting,
        said: input.parts.clone(),
        once: input.idempotency_keys(&resolved.thread.0),
    };
    let history = history::read(request, input)?;
    let started = if history.is_empty() {
        runner.start(start).await
    } else {
        runner.start_with_history(start, history).await
    };
    match started {
        Ok(begun) => {
            if begun.repeated {
                let (casting, _) = request.progress(&begun.run).await?;
                check_same_content(RunNote::parse(&casting).digest.as_ref(), input, &begun.run)?;
            }
            Ok(begun.run)
        }
        Err(RunError::Busy { run, status }) => {
            Err(busy_error(request, resolved, &LogId(run), &status).await?)
        }
        // A concurrent request started a run on the same Thread.
        Err(RunError::Store(StoreError::Conflict { .. })) => {
            let newest = request.newest_run(&resolved.thread).await?;
            let run = newest.map_or_else(|| LogId::from(""), |head| head.log);
            Err(busy_error(request, resolved, &run, "running").await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that a retry with the same otids has the same content. Runs started by older versions
/// have no digest.
fn check_same_content(before: Option<&Name>, input: &MessageRequest, run: &LogId) -> ApiResult<()> {
    if before.is_none_or(|before| *before == input.digest()) {
        return Ok(());
    }
    let otids: Vec<&str> = input.otids.iter().flatten().map(|otid| &**otid).collect();
    let message = format!(
        "otid {} was used before with other content in run {run}; use a new otid for new content",
        otids.join(", ")
    );
    Err(ApiError::new(409, message))
}

/// Returns the error for a conversation whose active run blocks the request.
async fn busy_error(
    request: &ApiRequest<'_>,
    resolved: &ResolvedConversation,
    run: &LogId,
    status: &str,
) -> ApiResult<ApiError> {
    if status == "waiting" {
        let pending = decisions::request_id(&request.state(run).await?);
        let message = format!(
            "run {run} is waiting for a decision on {pending}; approve or deny it, return its tool \
             result, or cancel the run"
        );
        return Ok(ApiError::pending_approval(&run.0, &pending, &message));
    }
    let message =
        format!("run {run} is active in this conversation; wait until it ends, or cancel it");
    Ok(ApiError::busy(&resolved.thread.0, &run.0, &message))
}

/// Checks that the caller's key may use every model that the agent can call.
pub(crate) async fn check_models_allowed(
    request: &ApiRequest<'_>,
    config: &AgentConfig,
) -> ApiResult<()> {
    for model in config.models() {
        check_model_allowed(request, model).await?;
    }
    Ok(())
}

/// Checks that the caller's key may use this model and has budget left.
pub(crate) async fn check_model_allowed(request: &ApiRequest<'_>, model: &str) -> ApiResult<()> {
    let admission = &request.caller.admission;
    if !admission.allows(model) {
        return Err(ApiError::new(403, format!("this key may not use the model {model}")));
    }
    if !admission.has_budget() {
        return Ok(());
    }
    let reached = request.gateway.directory.reach(model);
    let reached = reached.map_err(|error| ApiError::new(422, error))?;
    Ok(request.gateway.operations.meter.check_allowance(admission, &reached).await?)
}

/// Loads a run's identity and configuration, or returns 404.
pub(crate) async fn load_run(request: &ApiRequest<'_>, run: &LogId) -> ApiResult<RunContext> {
    let tenant = request.caller.tenant.clone();
    let missing = || ApiError::not_found("run", &run.0);
    let head = request.head_of_run(run).await?;
    let (casting, progress) = request.progress(run).await?;
    let thread = head.of.ok_or_else(missing)?;
    if !request.is_visible(&casting, &thread).await? {
        return Err(missing());
    }
    Ok(RunContext {
        tenant,
        run: run.clone(),
        thread,
        note: RunNote::parse(&casting),
        casting,
        from: progress.from,
    })
}

/// Lists the messages of an agent or a conversation, page by page.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.resolve_conversation(&request.id(0)).await?;
    let paging = Paging::parse(&request.query, 100)?;
    let mut listing =
        MessageList::new(&request.api.runner, &request.caller.tenant, &resolved.thread);
    let page = listing.page(&paging).await?;
    Ok(GatewayResponse::json(200, &json::array_of(&page)))
}

/// The outcome of each run, by run id.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub(crate) struct CancelledRuns(#[schemars(with = "BTreeMap<String, String>")] Map<String, Value>);

/// Cancels runs of an agent or a conversation: the listed runs, or the newest active run of each
/// Thread.
pub(crate) async fn cancel(request: &ApiRequest<'_>) -> ApiResult {
    let resolved = request.resolve_conversation(&request.id(0)).await?;
    let named = request.body.root().present("run_ids");
    let named: Vec<Name> =
        named.into_iter().flat_map(Node::elements).filter_map(Node::name).collect();
    let threads = match resolved.conversation {
        Some(_) => vec![resolved.thread],
        None => resolved.agent.threads().collect(),
    };
    let mut ended = CancelledRuns::default();
    if named.is_empty() {
        for thread in &threads {
            let newest = request.newest_run(thread).await?.filter(runs::is_open);
            if let Some(head) = newest {
                ended.0.insert(head.log.to_string(), cancel_run(request, &head.log).await);
            }
        }
    } else {
        for run in named {
            let known = load_run(request, &LogId(run.clone())).await?;
            if !threads.contains(&known.thread) {
                return Err(ApiError::not_found("run", &run));
            }
            ended.0.insert(run.to_string(), cancel_run(request, &known.run).await);
        }
    }
    Ok(json_response(&ended))
}

/// Cancels the newest run of a Thread, if that run is active.
pub(crate) async fn cancel_active_run(request: &ApiRequest<'_>, thread: &LogId) -> ApiResult<()> {
    if let Some(head) = request.newest_run(thread).await?.filter(runs::is_open) {
        cancel_run(request, &head.log).await;
    }
    Ok(())
}

/// Cancels a run and returns the outcome.
async fn cancel_run(request: &ApiRequest<'_>, run: &LogId) -> Value {
    match send_cancel(request, run, None).await {
        Ok(()) => "cancelled".into(),
        Err(error) => format!("failed: {error}").into(),
    }
}

/// Sends a cancellation to the process that drives a run. If that process is gone, the next process
/// that drives the run handles the cancellation.
pub(crate) async fn send_cancel(
    request: &ApiRequest<'_>,
    run: &LogId,
    reason: Option<Name>,
) -> Result<(), RunError> {
    let hand = request.api.drives.runner_with_new_owner();
    let command = RunCommand::Cancel(reason);
    hand.send_command_within(&request.caller.tenant, run, command, CANCEL_WAIT).await
}

/// Rewinds an agent's Thread to before its first message.
pub(crate) async fn reset(request: &ApiRequest<'_>) -> ApiResult {
    let agent = request.agent(&request.id(0)).await?;
    rewind(request, &agent.thread(), 0).await?;
    resource_json::agent(request, &agent).await
}

/// Rewinds a Thread to an earlier record. Fails if a run is active.
pub(crate) async fn rewind(request: &ApiRequest<'_>, thread: &LogId, to: u64) -> ApiResult<u64> {
    if let Some(head) = request.newest_run(thread).await?.filter(runs::is_open) {
        let message = format!("run {} is active in this conversation; cancel it first", head.log);
        return Err(ApiError::busy(&thread.0, &head.log.0, &message));
    }
    let last = request.thread_head(&thread.0).await?.last;
    if to > last {
        let message =
            format!("{thread} ends at record {last}; rewind to that record or an earlier one");
        return Err(ApiError::new(422, message));
    }
    let mut append = Append::new(thread.clone()).expect_last(last);
    append.rewind_to = Some(to);
    let batch = Batch::new(request.caller.tenant.clone()).append(append);
    let receipt = request.api.store().commit(batch).await?;
    Ok(receipt.written.first().map_or(last, |written| written.last))
}
