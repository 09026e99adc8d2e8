//! Handlers under `/v1/throughline/` for features that Letta does not have.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::{OpenCalls, RunCommand, Snapshot, State, narrate};
use throughline_core::{
    Append, Batch, ForkPoint, LogHead, LogId, LogOpening, PendingStatus, unpack_events,
};
use throughline_json::{self as json, Json, Name, Node};
use throughline_spec::{
    PendingUserQuestion, ReflectionRecord, RunEvent, SmartState, UserQuestionResolution,
    UserQuestionStatus,
};

use crate::api::{
    AnyValue, ApiError, ApiRequest, ApiResult, RunEventRef, RunNote, is_run, json_response,
};
use crate::letta::agent_config::{self, Overrides};
use crate::letta::agent_store::Members;
use crate::letta::messages::{
    check_model_allowed, check_models_allowed, rewind as rewind_thread, send_cancel,
};
use crate::letta::runs::{self, path_run};
use crate::letta::stored_objects;
use crate::object::put_members;
use crate::records::{RecordPages, run_events};
use crate::response::GatewayResponse;

/// Maximum number of Journal entries per page.
const MOST: usize = 1000;

async fn load_state(request: &ApiRequest<'_>) -> ApiResult<State> {
    let known = path_run(request).await?;
    Ok(request.api.runner.state(&known.tenant, &known.run).await?)
}

/// Returns a run's `SmartState` document, with the conversation as the model sees it.
pub(crate) async fn state(request: &ApiRequest<'_>) -> ApiResult {
    Ok(GatewayResponse::json(200, &load_state(request).await?.smart_state().json()))
}

/// Returns a snapshot of a run, from which the run can continue in another store.
pub(crate) async fn snapshot(request: &ApiRequest<'_>) -> ApiResult {
    let known = path_run(request).await?;
    let runner = &request.api.runner;
    let snapshot = runner.snapshot(&known.tenant, &known.run).await?;
    let tag = request.query.get("tag").map(|tag| &**tag);
    let document = snapshot.to_json(runner.clock.now(), tag);
    let document = document.map_err(|error| ApiError::new(500, error.to_string()))?;
    Ok(GatewayResponse::json(200, &document))
}

/// Restores a run from a snapshot as a new run in this store.
///
/// The document is untrusted: the run gets new ids and only its agent's tools. Open tool calls need
/// approval again if the tool or the agent's rules require it. If the agent does not belong to this
/// tenant, every open call needs approval. With a gateway key, the run cannot refer to objects that
/// a provider stores.
pub(crate) async fn restore(request: &ApiRequest<'_>) -> ApiResult {
    let mut snapshot = Snapshot::parse(&request.body.root().json())?;
    if request.caller.admission.is_key() {
        stored_objects::drop_references(&mut snapshot)?;
    }
    let agent = request.agent_store().agent(&RunNote::parse(&snapshot.casting).agent).await?;
    let (runner, open_calls) = match &agent {
        Some(agent) => {
            // An agent of this tenant keeps its approval rules; the document cannot remove them.
            let declared = agent_config::to_agent_config(agent, None, &Overrides::default())?;
            for config in snapshot.casting.agents.values_mut() {
                let rules = &mut config.human_in_the_loop.approve;
                let declared = declared.human_in_the_loop.approve.iter();
                let missing: Vec<Name> =
                    declared.filter(|rule| !rules.contains(rule)).cloned().collect();
                rules.extend(missing);
            }
            let runner = agent_config::runner_with_tools(&request.api.runner, &agent.members)?;
            (runner, OpenCalls::ByRules)
        }
        // The document chooses its agent, so naming an unknown agent must not bypass a known
        // agent's rules.
        None => (request.api.runner.clone(), OpenCalls::NeedApproval),
    };
    let key = request.caller.admission.key_id();
    snapshot.casting.note = Some(RunNote::for_restored_run(&snapshot.casting, key));
    agent_config::restrict_tracing(&mut snapshot.casting.tracing)?;
    for agent in snapshot.casting.agents.values_mut() {
        agent_config::restrict_tracing(&mut agent.tracing)?;
        request.api.caps.apply_to(agent);
        check_models_allowed(request, agent).await?;
    }
    if let Some(model) = &snapshot.progress.model {
        check_model_allowed(request, model).await?;
    }
    let tenant = &request.caller.tenant;
    let starting = request.api.drives.reserve_run(tenant)?;
    let begun = runner.restore_as_new(tenant, snapshot, open_calls).await?;
    request.api.drives.drive(tenant, &begun.run);
    drop(starting);
    runs::run_response(request, &begun.run).await
}

/// Resumes a run whose driving process stopped, or a run with an unprocessed decision.
pub(crate) async fn resume(request: &ApiRequest<'_>) -> ApiResult {
    let known = path_run(request).await?;
    if !request.log(&known.run).await?.as_ref().is_some_and(runs::is_open) {
        return Err(ApiError::new(409, format!("run {} has already ended", known.run)));
    }
    request.api.drives.drive(&known.tenant, &known.run);
    runs::run_response(request, &known.run).await
}

/// Cancels a run that has not ended.
pub(crate) async fn cancel(request: &ApiRequest<'_>) -> ApiResult {
    let known = path_run(request).await?;
    if !request.log(&known.run).await?.as_ref().is_some_and(runs::is_open) {
        return Err(ApiError::new(409, format!("run {} has already ended", known.run)));
    }
    let reason = request.body.root().name_of("reason").filter(|reason| !reason.is_empty());
    send_cancel(request, &known.run, reason).await?;
    runs::run_response(request, &known.run).await
}

/// The plan of a run; null if the run has none.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunPlan {
    #[schemars(with = "AnyValue")]
    plan: Option<Json>,
    #[schemars(with = "AnyValue")]
    plan_version: Option<Json>,
}

pub(crate) async fn plan(request: &ApiRequest<'_>) -> ApiResult {
    let state = load_state(request).await?.smart_state().json();
    let tree = state.tree();
    let member = |name: &str| tree.root().get(name).map(Node::json);
    let (plan, plan_version) = (member("plan"), member("planVersion"));
    Ok(json_response(&RunPlan { plan, plan_version }))
}

pub(crate) async fn reflections(request: &ApiRequest<'_>) -> ApiResult {
    let state = load_state(request).await?;
    let all = state.smart.reflections.iter().flatten().map(ReflectionRecord::json);
    Ok(json_response(&all.collect::<Vec<_>>()))
}

/// An event of a run and its number.
#[derive(Serialize, JsonSchema)]
pub(crate) struct JournalEntry {
    event: u64,
    #[schemars(with = "RunEventRef")]
    data: Json,
}

/// Reads a run's events with their numbers.
async fn events(request: &ApiRequest<'_>) -> ApiResult<Vec<JournalEntry>> {
    let known = path_run(request).await?;
    let after = request.query_number("after").unwrap_or(0);
    let limit = request.query_number("limit").and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(MOST).min(MOST);
    let (store, tenant, run) = (request.api.store(), &known.tenant, &known.run);
    let position = store.seq_before_event(tenant, run, after).await?;
    let mut pages = RecordPages::new(store, tenant, run, position);
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(records) = pages.next().await?
    {
        for record in &records {
            let events = unpack_events(record).unwrap_or_default();
            let events = events.into_iter().filter(|(number, _)| *number > after);
            let read = events.filter_map(|(event, data)| {
                let mut data = Json::parse(data).ok()?;
                if let Some(policy) = &request.api.policy {
                    data = policy.redact_run_event(&RunEvent::parse(&data).ok()?);
                }
                Some(JournalEntry { event, data })
            });
            found.extend(read);
        }
    }
    found.truncate(limit);
    Ok(found)
}

pub(crate) async fn journal(request: &ApiRequest<'_>) -> ApiResult {
    Ok(json_response(&events(request).await?))
}

/// Returns the events that report the Fates of Items and Seals.
pub(crate) async fn fates(request: &ApiRequest<'_>) -> ApiResult {
    let mut events = events(request).await?;
    events.retain(|entry| matches!(RunEvent::parse(&entry.data), Ok(RunEvent::Replay(_))));
    Ok(json_response(&events))
}

/// A run in sentences.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Narrative {
    run_id: Name,
    narrative: String,
}

/// Describes in plain sentences what a run did and why.
pub(crate) async fn narrative(request: &ApiRequest<'_>) -> ApiResult {
    let known = path_run(request).await?;
    let mut pages = RecordPages::new(request.api.store(), &known.tenant, &known.run, 0);
    let mut events = Vec::new();
    while let Some(records) = pages.next().await? {
        events.extend(records.iter().flat_map(run_events).map(|(_, event)| event));
    }
    let narrative = narrate(&events, &request.policy());
    Ok(json_response(&Narrative { run_id: known.run.0, narrative }))
}

/// Returns the open questions of one run or of all runs.
pub(crate) async fn questions(request: &ApiRequest<'_>) -> ApiResult {
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let run = request.query.get("run_id").cloned().map(LogId);
    let pending = store.pending(tenant, run.as_ref()).await?;
    let open = |status| status == PendingStatus::Open;
    let mut questions = Vec::new();
    for pending in pending.iter().filter(|one| &*one.kind == "question" && open(one.status)) {
        let question = find_question(request, &pending.log, &pending.id).await?;
        questions.extend(question.map(|question| Question::new(&question, &pending.log)));
    }
    Ok(json_response(&questions))
}

/// A question for a person: its documented form, and its run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Question {
    #[serde(rename = "runId", skip_serializing_if = "Option::is_none")]
    run_id: Option<Name>,
    #[serde(flatten)]
    #[schemars(with = "QuestionStatus")]
    document: Members,
}

#[derive(Serialize, JsonSchema)]
struct QuestionStatus {
    id: Name,
    status: &'static str,
}

impl Question {
    fn new(question: &PendingUserQuestion, run: &LogId) -> Self {
        let document = Members::new(question.json().tree().root());
        Self { run_id: Some(run.0.clone()), document }
    }
}

/// Answers a question and resumes its run.
pub(crate) async fn answer(request: &ApiRequest<'_>) -> ApiResult {
    let (id, tenant) = (request.id(0), &request.caller.tenant);
    let otid = request.body.root().name_of("otid");
    let names = otid.map(|otid| Name::from(format!("letta/{id}/answered/{otid}")));
    let names: Vec<Name> = names.into_iter().collect();
    if let Some((run, _)) = request.api.runner.find_annotation(tenant, &names).await? {
        return answered(request, &run, &id).await;
    }
    let pending = request.api.store().pending(tenant, None).await?;
    let found = pending.into_iter().find(|one| one.id == id && &*one.kind == "question");
    let Some(pending) = found else { return Err(question_error(request, &id).await?) };
    let is_own = |name: Node<'_>| name.is("id") || name.is("otid");
    let resolution = json::object(|o| {
        o.string("id", &id);
        put_members(o, request.body.root().members().filter(|(name, _)| !is_own(*name)));
    });
    let answer = RunCommand::Answer(UserQuestionResolution::parse(&resolution)?);
    request.api.drives.runner_with_new_owner().send_command(tenant, &pending.log, answer).await?;
    if !names.is_empty() {
        request.api.runner.annotate(tenant, &pending.log, &names, &json::object(|_| {})).await?;
    }
    request.drive(&pending.log).await?;
    if has_expired(request, &pending.log, &id).await? {
        // The run expired the question before it read the answer.
        return Err(question_error(request, &id).await?);
    }
    answered(request, &pending.log, &id).await
}

/// Returns whether a run continued because a question was not answered in time.
async fn has_expired(request: &ApiRequest<'_>, run: &LogId, id: &Name) -> ApiResult<bool> {
    let question = find_question(request, run, id).await?;
    Ok(question.is_some_and(|question| {
        question.status == UserQuestionStatus::Cancelled
            && question.notes.as_deref() == Some("expired")
    }))
}

/// Finds the question with this id in the state of a run.
async fn find_question(
    request: &ApiRequest<'_>,
    run: &LogId,
    id: &Name,
) -> ApiResult<Option<PendingUserQuestion>> {
    let state = request.state(run).await?;
    let mut questions = state.smart.pending_user_questions.into_iter().flatten();
    Ok(questions.find(|question| question.id == *id))
}

/// Returns the error for a question that does not exist or is closed.
async fn question_error(request: &ApiRequest<'_>, id: &Name) -> ApiResult<ApiError> {
    let run = id.rsplit_once(".q").map(|(run, _)| LogId::from(run));
    let missing = ApiError::not_found("question", id);
    let Some(run) = run.filter(|run| !run.0.is_empty()) else { return Ok(missing) };
    if !request.log(&run).await?.is_some_and(|head| is_run(&head)) {
        return Ok(missing);
    }
    let Some(question) = find_question(request, &run, id).await? else { return Ok(missing) };
    let status = question.status.as_str();
    let message = format!("question {id} can no longer be answered; its status is {status}");
    Ok(ApiError::new(409, message))
}

/// Returns the current state of a question.
async fn answered(request: &ApiRequest<'_>, run: &LogId, id: &Name) -> ApiResult {
    Ok(match find_question(request, run, id).await? {
        Some(question) => json_response(&Question::new(&question, run)),
        None => {
            let status = UserQuestionStatus::Executed.as_str();
            json_response(&QuestionStatus { id: id.clone(), status })
        }
    })
}

/// Returns the JSON Schema of the document that the path names.
pub(crate) fn schema(request: &ApiRequest<'_>) -> ApiResult {
    let schema = match &*request.id(0) {
        "run-event" => RunEvent::schema(),
        "smart-state" => SmartState::schema(),
        other => return Err(ApiError::not_found("schema", other)),
    };
    Ok(GatewayResponse::json(200, &schema))
}

/// Reads a record number from a body field; `None` if the field is absent or not a number.
fn record_number(request: &ApiRequest<'_>, name: &str) -> Option<u64> {
    request.body.root().present(name).and_then(Node::u64)
}

/// A new Thread and the record after which it differs.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Forked")]
pub(crate) struct ForkedThread {
    id: Name,
    forked_from: ForkOrigin,
}

#[derive(Serialize, JsonSchema)]
struct ForkOrigin {
    thread: Name,
    at: u64,
}

/// Creates a conversation that shares a Thread's history up to a record. The fork of a Thread that
/// belongs to no agent is a Thread without an agent.
pub(crate) async fn fork(request: &ApiRequest<'_>) -> ApiResult {
    let LogHead { log: thread, last, .. } = request.thread_head(&request.id(0)).await?;
    let at = record_number(request, "at").unwrap_or(last);
    let point = ForkPoint { log: thread.clone(), at };
    let has_agent = ["agent-", "conv-"].iter().any(|prefix| thread.0.starts_with(prefix));
    let resolved =
        if has_agent { Some(request.resolve_conversation(&thread.0).await?) } else { None };
    if at > last {
        let message =
            format!("{thread} ends at record {last}; fork at that record or an earlier one");
        return Err(ApiError::new(422, message));
    }
    let id = match resolved {
        Some(resolved) => {
            let id = request.api.fresh("conv");
            let members = resolved.conversation.map(|record| record.members).unwrap_or_default();
            let (store, agent) = (request.agent_store(), &resolved.agent.id);
            store.create_conversation(agent, &id, &members, Some(point)).await?;
            id
        }
        // The Thread of a run that a command started belongs to no agent.
        None => {
            let id = request.api.runner.ids.generate("thread");
            let opening = LogOpening { fork: Some(point), ..LogOpening::thread() };
            let append = Append::new(LogId(id.clone())).opening(opening);
            let batch = Batch::new(request.caller.tenant.clone()).append(append);
            request.api.store().commit(batch).await?;
            id
        }
    };
    Ok(json_response(&ForkedThread { id, forked_from: ForkOrigin { thread: thread.0, at } }))
}

/// A Thread, the record of its rewind, and the last record that stays valid.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Rewound")]
pub(crate) struct RewoundThread {
    id: Name,
    rewound: RewindRange,
}

#[derive(Serialize, JsonSchema)]
struct RewindRange {
    at: u64,
    to: u64,
}

/// Rewinds a Thread to an earlier record. Later records stay in the history, and the rewind itself
/// is recorded.
pub(crate) async fn rewind(request: &ApiRequest<'_>) -> ApiResult {
    let thread = request.thread_head(&request.id(0)).await?.log;
    let to = record_number(request, "to").ok_or_else(|| {
        ApiError::new(422, "to: is missing; specify a record number of the thread")
    })?;
    // Fails for a Thread that belongs to no agent.
    request.resolve_conversation(&thread.0).await?;
    let at = rewind_thread(request, &thread, to).await?;
    Ok(json_response(&RewoundThread { id: thread.0, rewound: RewindRange { at, to } }))
}
