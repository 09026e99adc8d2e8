//! Handlers that send messages to an agent and list them.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use throughline_agent::{AgentConfig, RunCommand, RunError, RunRequest, RunSpec};
use throughline_core::{Append, Batch, LogHead, LogId, StoreError};
use throughline_json::{self as json, Name, Node};

use crate::api::{ApiError, ApiRequest, ApiResult, RunNote, json_response};
use crate::letta::agent_config;
use crate::letta::agent_store::{AgentRecord, AgentStore};
use crate::letta::decisions;
use crate::letta::message_list::{MessageList, Paging};
use crate::letta::message_request::MessageRequest;
use crate::letta::projector::RunContext;
use crate::letta::run_stream::{RunStreamOptions, StreamPosition};
use crate::letta::{resource_json, runs};
use crate::response::GatewayResponse;

/// Time to wait for the driving process to confirm a cancellation.
const CANCEL_WAIT: Duration = Duration::from_secs(1);

/// The form of the response to a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    /// One JSON response, unless the request asks for a stream.
    Whole,
    Stream,
    /// A stream, unless the request turns streaming off.
    Conversation,
    /// Only the run, immediately.
    Later,
}

/// An agent, optionally one of its conversations, and the Thread of either.
pub(crate) struct ResolvedConversation {
    pub(crate) agent: AgentRecord,
    pub(crate) conversation: Option<AgentRecord>,
    pub(crate) thread: LogId,
}

impl ApiRequest<'_> {
    pub(crate) fn agent_store(&self) -> AgentStore<'_> {
        AgentStore { store: self.api.store(), tenant: &self.caller.tenant }
    }

    pub(crate) async fn agent(&self, id: &str) -> Result<AgentRecord, ApiError> {
        let found = self.agent_store().agent(id).await?;
        found.ok_or_else(|| ApiError::not_found("agent", id))
    }

    /// Resolves a path id to an agent's main Thread or to a conversation. `default` is the main
    /// Thread of the agent named by `agent_id`.
    pub(crate) async fn resolve_conversation(
        &self,
        id: &str,
    ) -> Result<ResolvedConversation, ApiError> {
        let named = self.body.root().name_of("agent_id");
        let named = named.or_else(|| self.query.get("agent_id").cloned());
        let id = match (id, named) {
            ("default", Some(agent)) => agent,
            ("default", None) => {
                return Err(ApiError::new(
                    422,
                    "agent_id: is missing: name the agent of the default conversation",
                ));
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

    /// Whether the agent and the conversation of a run still exist. Deleting either hides its runs.
    pub(crate) async fn has_agent_and_thread(
        &self,
        casting: &RunSpec,
        thread: &LogId,
    ) -> Result<bool, ApiError> {
        let note = RunNote::of(casting);
        if note.adopted || !RunNote::is_present(casting) {
            return Ok(true);
        }
        let Some(agent) = self.agent_store().agent(&note.agent).await? else { return Ok(false) };
        let is_own = agent.thread() == *thread;
        Ok(is_own || self.agent_store().conversation(&thread.0).await?.is_some())
    }

    pub(crate) async fn conversation(&self, id: &str) -> Result<ResolvedConversation, ApiError> {
        let missing = || ApiError::not_found("conversation", id);
        let conversation = self.agent_store().conversation(id).await?.ok_or_else(missing)?;
        let agent = conversation.agent.clone().unwrap_or_default();
        let agent = self.agent_store().agent(&agent).await?.ok_or_else(missing)?;
        let thread = conversation.thread();
        Ok(ResolvedConversation { agent, conversation: Some(conversation), thread })
    }
}

/// Starts a run with a message, or sends decisions to a waiting run.
pub(crate) async fn send_messages(asked: &ApiRequest<'_>, how: ResponseMode) -> ApiResult {
    let request = MessageRequest::parse(asked.body.root())?;
    let place = asked.resolve_conversation(&asked.id(0)).await?;
    let tenant = &asked.caller.tenant;
    // The guard reserves a slot in the tenant's share for a new run; a resumed run queues for its
    // slot.
    let (run, event, starting) = if request.decisions.is_empty() {
        let starting = asked.api.drives.reserve_run(tenant)?;
        (start_run(asked, &place, &request).await?, 0, Some(starting))
    } else {
        let (run, event) = send_decisions(asked, &place, &request).await?;
        (run, event, None)
    };
    let head = asked.api.store().log(tenant, &run).await?;
    // A run with other pending decisions stays waiting.
    if head.is_some_and(|head| head.status.as_deref() != Some("waiting")) {
        asked.api.drives.drive(tenant, &run);
    }
    drop(starting);
    if how == ResponseMode::Later {
        return runs::run_response(asked, &run).await;
    }
    let known = load_run(asked, &run).await?;
    let wishes = request.wishes;
    let from = StreamPosition { seq_id: 0, event };
    let telling = RunStreamOptions { known, from, pings: wishes.pings, types: wishes.types };
    let streams = match how {
        ResponseMode::Stream => true,
        ResponseMode::Conversation => wishes.streaming.unwrap_or(true),
        ResponseMode::Whole | ResponseMode::Later => wishes.streaming.unwrap_or(false),
    };
    if streams {
        return Ok(asked.api.stream(telling));
    }
    Ok(json_response(&asked.api.whole(telling).await?))
}

/// Sends the decisions to the waiting run. Returns the run and its number of events before them.
/// Decisions already recorded under the same otids are not sent again.
async fn send_decisions(
    asked: &ApiRequest<'_>,
    place: &ResolvedConversation,
    request: &MessageRequest,
) -> Result<(LogId, u64), ApiError> {
    let (runner, tenant) = (&asked.api.runner, &asked.caller.tenant);
    let names = request.decision_keys(&place.thread.0);
    if let Some((run, note)) = runner.find_annotation(tenant, &names).await? {
        let tree = note.tree();
        check_same_content(tree.root().name_of("digest").as_ref(), request, &run)?;
        let event = tree.root().get("event").and_then(Node::u64);
        return Ok((run, event.unwrap_or(0)));
    }
    let head = run_to_decide(asked, place).await?;
    let event = decisions::send(asked, &head, &request.decisions).await?;
    if !names.is_empty() {
        let note = json::object(|o| {
            o.number("event", event).string("digest", &request.digest());
        });
        runner.annotate(tenant, &head.log, &names, &note).await?;
    }
    Ok((head.log, event))
}

/// Starts a run, or returns the run that the same request started before.
async fn start_run(
    asked: &ApiRequest<'_>,
    place: &ResolvedConversation,
    request: &MessageRequest,
) -> Result<LogId, ApiError> {
    let most = asked.api.caps.max_steps;
    if let Some(steps) = request.overrides.steps.filter(|steps| *steps > most) {
        let message =
            format!("max_steps: {steps} is more than this server allows: send at most {most}");
        return Err(ApiError::new(422, message));
    }
    let mut config = agent_config::to_agent_config(
        &place.agent,
        place.conversation.as_ref(),
        &request.overrides,
    )?;
    asked.api.caps.apply_to(&mut config);
    check_models_allowed(asked, &config).await?;
    let runner = agent_config::runner_with_tools(&asked.api.runner, &place.agent.members)?;
    let key = asked.caller.admission.key_id();
    let mut casting = RunSpec::single_agent(config, request.client_tools.clone());
    casting.note = Some(request.note(&place.agent.id, key));
    let start = RunRequest {
        tenant: asked.caller.tenant.clone(),
        thread: Some(place.thread.clone()),
        casting,
        said: request.said.clone(),
        once: request.idempotency_keys(&place.thread.0),
    };
    match runner.start(start).await {
        Ok(begun) => {
            if begun.repeated {
                let (casting, _) =
                    asked.api.runner.progress(&asked.caller.tenant, &begun.run).await?;
                check_same_content(RunNote::of(&casting).digest.as_ref(), request, &begun.run)?;
            }
            Ok(begun.run)
        }
        Err(RunError::Busy { run, status }) => {
            Err(busy_error(asked, place, &LogId(run), &status).await?)
        }
        // A concurrent request started a run on the same Thread.
        Err(RunError::Store(StoreError::Conflict { .. })) => {
            let newest = asked.newest_run(&place.thread).await?;
            let run = newest.map_or_else(|| LogId::from(""), |head| head.log);
            Err(busy_error(asked, place, &run, "running").await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that a retry under the same otids has the same content. Runs of older versions have no
/// digest.
fn check_same_content(
    before: Option<&Name>,
    request: &MessageRequest,
    run: &LogId,
) -> Result<(), ApiError> {
    if before.is_none_or(|before| *before == request.digest()) {
        return Ok(());
    }
    let otids: Vec<&str> = request.otids.iter().flatten().map(|otid| &**otid).collect();
    let message = format!(
        "otid {} was used before with other content, for run {run}: send new content under a new otid",
        otids.join(", ")
    );
    Err(ApiError::new(409, message))
}

/// The error for a conversation whose run blocks the request.
async fn busy_error(
    asked: &ApiRequest<'_>,
    place: &ResolvedConversation,
    run: &LogId,
    status: &str,
) -> Result<ApiError, ApiError> {
    let (tenant, runner) = (&asked.caller.tenant, &asked.api.runner);
    if status == "waiting" {
        let state = runner.state(tenant, run).await?;
        let pending = decisions::request_id(&state);
        let message = format!(
            "run {run} waits for a decision on {pending}: approve or deny it, return its tool result, or cancel the run"
        );
        return Ok(ApiError::pending_approval(&run.0, &pending, &message));
    }
    let message = format!("run {run} is active in this conversation: wait for it, or cancel it");
    Ok(ApiError::busy(&place.thread.0, &run.0, &message))
}

/// Checks that the caller's key may use every model that the agent can call.
pub(crate) async fn check_models_allowed(
    asked: &ApiRequest<'_>,
    config: &AgentConfig,
) -> Result<(), ApiError> {
    for model in config.models() {
        check_model_allowed(asked, model).await?;
    }
    Ok(())
}

/// Checks that the caller's key may use this model and has budget left.
pub(crate) async fn check_model_allowed(
    asked: &ApiRequest<'_>,
    model: &str,
) -> Result<(), ApiError> {
    let admission = &asked.caller.admission;
    if !admission.allows(model) {
        return Err(ApiError::new(403, format!("this key may not use the model {model}")));
    }
    if !admission.has_budget() {
        return Ok(());
    }
    let reached =
        asked.gateway.directory.reach(model).map_err(|error| ApiError::new(422, error))?;
    Ok(asked.gateway.operations.meter.check_allowance(admission, &reached).await?)
}

/// The newest run of the Thread, for which the decisions are meant.
async fn run_to_decide(
    asked: &ApiRequest<'_>,
    place: &ResolvedConversation,
) -> Result<LogHead, ApiError> {
    let newest = asked.newest_run(&place.thread).await?;
    newest.ok_or_else(|| {
        let message = format!("no run in {} waits for a decision", place.thread);
        ApiError::new(409, message)
    })
}

/// Loads a run's identity and configuration, or returns 404.
pub(crate) async fn load_run(asked: &ApiRequest<'_>, run: &LogId) -> Result<RunContext, ApiError> {
    let tenant = asked.caller.tenant.clone();
    let missing = || ApiError::not_found("run", &run.0);
    let head = asked.api.store().log(&tenant, run).await?.filter(runs::is_run);
    let head = head.ok_or_else(missing)?;
    let (casting, progress) = asked.api.runner.progress(&tenant, run).await?;
    let thread = head.of.ok_or_else(missing)?;
    if !asked.has_agent_and_thread(&casting, &thread).await? {
        return Err(missing());
    }
    Ok(RunContext {
        tenant,
        run: run.clone(),
        thread,
        note: RunNote::of(&casting),
        casting,
        from: progress.from,
    })
}

/// Lists the messages of an agent or a conversation, page by page.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.resolve_conversation(&asked.id(0)).await?;
    let paging = Paging::parse(&asked.query, 100)?;
    let mut listing = MessageList::new(&asked.api.runner, &asked.caller.tenant, &place.thread);
    let page = listing.page(&paging).await?;
    Ok(GatewayResponse::json(200, &json::array_of(&page)))
}

/// The outcome of each run, by run id.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub(crate) struct CancelledRuns(#[schemars(with = "BTreeMap<String, String>")] Map<String, Value>);

/// Cancels runs of an agent or a conversation: the listed ones, or the active ones.
pub(crate) async fn cancel(asked: &ApiRequest<'_>) -> ApiResult {
    let place = asked.resolve_conversation(&asked.id(0)).await?;
    let named = asked.body.root().present("run_ids");
    let named: Vec<Name> =
        named.into_iter().flat_map(Node::elements).filter_map(Node::name).collect();
    let mut threads = vec![place.thread.clone()];
    if place.conversation.is_none() {
        threads.extend(place.agent.conversations.iter().cloned().map(LogId));
    }
    let mut ended = CancelledRuns::default();
    if named.is_empty() {
        for thread in &threads {
            let newest = asked.newest_run(thread).await?.filter(runs::is_open);
            if let Some(head) = newest {
                ended.0.insert(head.log.to_string(), cancel_run(asked, &head.log).await);
            }
        }
    } else {
        for run in named {
            let known = load_run(asked, &LogId(run.clone())).await?;
            if !threads.contains(&known.thread) {
                return Err(ApiError::not_found("run", &run));
            }
            ended.0.insert(run.to_string(), cancel_run(asked, &known.run).await);
        }
    }
    Ok(json_response(&ended))
}

/// Cancels the active run of a Thread.
pub(crate) async fn cancel_active_run(
    asked: &ApiRequest<'_>,
    thread: &LogId,
) -> Result<(), ApiError> {
    if let Some(head) = asked.newest_run(thread).await?.filter(runs::is_open) {
        cancel_run(asked, &head.log).await;
    }
    Ok(())
}

/// Cancels a run and returns the outcome.
async fn cancel_run(asked: &ApiRequest<'_>, run: &LogId) -> Value {
    let tenant = &asked.caller.tenant;
    let hand = asked.api.drives.runner_with_new_owner();
    // If the lease holder is gone, the next holder of the run processes the cancellation.
    match hand.send_command_within(tenant, run, RunCommand::Cancel(None), CANCEL_WAIT).await {
        Ok(()) => "cancelled".into(),
        Err(error) => format!("failed: {error}").into(),
    }
}

/// Rewinds an agent's Thread to before its first message.
pub(crate) async fn reset(asked: &ApiRequest<'_>) -> ApiResult {
    let agent = asked.agent(&asked.id(0)).await?;
    rewind(asked, &agent.thread(), 0).await?;
    resource_json::agent(asked, &agent).await
}

/// Rewinds a Thread to an earlier record. Fails if a run is active.
pub(crate) async fn rewind(
    asked: &ApiRequest<'_>,
    thread: &LogId,
    to: u64,
) -> Result<u64, ApiError> {
    if let Some(head) = asked.newest_run(thread).await?.filter(runs::is_open) {
        let message = format!("run {} is active in this conversation: cancel it first", head.log);
        return Err(ApiError::busy(&thread.0, &head.log.0, &message));
    }
    let tenant = &asked.caller.tenant;
    let head = asked.api.store().log(tenant, thread).await?;
    let head = head.ok_or_else(|| ApiError::not_found("thread", &thread.0))?;
    if to > head.last {
        return Err(ApiError::new(
            422,
            format!("{thread} ends at record {}: rewind to that record or earlier", head.last),
        ));
    }
    let mut append = Append::new(thread.clone()).expect_last(head.last);
    append.rewind_to = Some(to);
    let receipt = asked.api.store().commit(Batch::new(tenant.clone()).append(append)).await?;
    Ok(receipt.written.first().map_or(head.last, |written| written.last))
}
