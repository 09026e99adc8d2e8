//! Handlers under `/v1/throughline/` for features that Letta does not have.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::{OpenCalls, RunCommand, Snapshot, State, narrate};
use throughline_core::{ForkPoint, LogId, LogKind, PendingStatus, unpack_events};
use throughline_json::{self as json, Json, Name, Node};
use throughline_spec::{
    PendingUserQuestion, RunEvent, SmartState, UserQuestionResolution, UserQuestionStatus,
};

use crate::api::{AnyValue, ApiError, ApiRequest, ApiResult, RunEventRef, RunNote, json_response};
use crate::letta::agent_config::{self, Overrides};
use crate::letta::agent_store::Members;
use crate::letta::messages::{
    check_model_allowed, check_models_allowed, load_run, rewind as rewind_thread,
};
use crate::letta::runs;
use crate::response::GatewayResponse;

/// Maximum page size of a journal.
const MOST: usize = 1000;

async fn load_state(asked: &ApiRequest<'_>) -> Result<State, ApiError> {
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    Ok(asked.api.runner.state(&known.tenant, &known.run).await?)
}

/// Returns the documented state, with the conversation as the model sees it.
pub(crate) async fn state(asked: &ApiRequest<'_>) -> ApiResult {
    let state = load_state(asked).await?;
    Ok(GatewayResponse::json(200, &state.smart_state().json()))
}

/// Returns a run as one document from which it can continue elsewhere.
pub(crate) async fn snapshot(asked: &ApiRequest<'_>) -> ApiResult {
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    let runner = &asked.api.runner;
    let snapshot = runner.snapshot(&known.tenant, &known.run).await?;
    let tag = asked.query.get("tag").map(|tag| &**tag);
    let told = snapshot.to_json(runner.clock.now(), tag);
    let told = told.map_err(|error| ApiError::new(500, error.to_string()))?;
    Ok(GatewayResponse::json(200, &told))
}

/// Restores a run from a snapshot as a new run of this store.
///
/// The document is untrusted: the run gets new ids and only the tools of its agent, and open calls
/// are approved again. If the agent does not belong to this tenant, every open call needs approval.
pub(crate) async fn restore(asked: &ApiRequest<'_>) -> ApiResult {
    let snapshot = Snapshot::parse(&asked.body.root().json());
    let mut snapshot = snapshot.map_err(|error| ApiError::new(422, error.to_string()))?;
    let agent = asked.agent_store().agent(&RunNote::of(&snapshot.casting).agent).await?;
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
            (
                agent_config::runner_with_tools(&asked.api.runner, &agent.members)?,
                OpenCalls::ByRules,
            )
        }
        // The document chooses its agent, so an unknown agent must not bypass the rules of a known
        // one.
        None => (asked.api.runner.clone(), OpenCalls::NeedApproval),
    };
    let key = asked.caller.admission.key_id();
    snapshot.casting.note = Some(RunNote::for_restored_run(&snapshot.casting, key));
    for agent in snapshot.casting.agents.values_mut() {
        asked.api.caps.apply_to(agent);
        check_models_allowed(asked, agent).await?;
    }
    if let Some(model) = &snapshot.progress.model {
        check_model_allowed(asked, model).await?;
    }
    let tenant = &asked.caller.tenant;
    let starting = asked.api.drives.reserve_run(tenant)?;
    let begun = runner.restore_as_new(tenant, snapshot, open_calls).await?;
    asked.api.drives.drive(tenant, &begun.run);
    drop(starting);
    runs::run_response(asked, &begun.run).await
}

/// Resumes a run whose process stopped, or that has an unprocessed decision.
pub(crate) async fn resume(asked: &ApiRequest<'_>) -> ApiResult {
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    let head = asked.api.store().log(&known.tenant, &known.run).await?;
    if !head.as_ref().is_some_and(runs::is_open) {
        return Err(ApiError::new(409, format!("run {} is over", known.run)));
    }
    asked.api.drives.drive(&known.tenant, &known.run);
    runs::run_response(asked, &known.run).await
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

pub(crate) async fn plan(asked: &ApiRequest<'_>) -> ApiResult {
    let state = load_state(asked).await?.smart_state().json();
    let tree = state.tree();
    let member = |name: &str| tree.root().get(name).map(Node::json);
    let (plan, plan_version) = (member("plan"), member("planVersion"));
    Ok(json_response(&RunPlan { plan, plan_version }))
}

pub(crate) async fn reflections(asked: &ApiRequest<'_>) -> ApiResult {
    let state = load_state(asked).await?;
    let all =
        state.smart.reflections.iter().flatten().map(throughline_spec::ReflectionRecord::json);
    Ok(GatewayResponse::json(200, &json::array_of(&all.collect::<Vec<_>>())))
}

/// An event of a run and its number.
#[derive(Serialize, JsonSchema)]
pub(crate) struct JournalEntry {
    event: u64,
    #[schemars(with = "RunEventRef")]
    said: Json,
}

/// The events of a run with their numbers.
async fn events(asked: &ApiRequest<'_>) -> Result<Vec<JournalEntry>, ApiError> {
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    let query = &asked.query;
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<u64>().ok());
    let after = number("after").unwrap_or(0);
    let limit = number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MOST);
    let (store, tenant, run) = (asked.api.store(), &known.tenant, &known.run);
    let mut place = store.seq_before_event(tenant, run, after).await?;
    let mut found = Vec::new();
    while found.len() < limit.min(MOST) {
        let records = store.read(tenant, run, place, 64).await?;
        let Some(last) = records.last() else { break };
        place = last.seq;
        for record in &records {
            let events = unpack_events(record).unwrap_or_default();
            let events = events.into_iter().filter(|(number, _)| *number > after);
            let read = events.filter_map(|(event, said)| {
                let mut said = Json::parse(said).ok()?;
                if let Some(policy) = &asked.api.policy {
                    said = policy.redact_run_event(&RunEvent::parse(&said).ok()?);
                }
                Some(JournalEntry { event, said })
            });
            found.extend(read);
        }
    }
    found.truncate(limit.min(MOST));
    Ok(found)
}

pub(crate) async fn journal(asked: &ApiRequest<'_>) -> ApiResult {
    Ok(json_response(&events(asked).await?))
}

/// The events that report the Fates of Items and Seals.
pub(crate) async fn fates(asked: &ApiRequest<'_>) -> ApiResult {
    let mut events = events(asked).await?;
    events.retain(|entry| matches!(RunEvent::parse(&entry.said), Ok(RunEvent::Replay(_))));
    Ok(json_response(&events))
}

/// A run in sentences.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Narrative {
    run_id: Name,
    narrative: String,
}

/// Describes a run in sentences: what happened and why.
pub(crate) async fn narrative(asked: &ApiRequest<'_>) -> ApiResult {
    let known = load_run(asked, &LogId(asked.id(0))).await?;
    let (store, mut after) = (asked.api.store(), 0);
    let mut events = Vec::new();
    loop {
        let records = store.read(&known.tenant, &known.run, after, 256).await?;
        let Some(last) = records.last() else { break };
        after = last.seq;
        let packed = records.iter().flat_map(|record| unpack_events(record).unwrap_or_default());
        let read = packed.filter_map(|(_, event)| Json::parse(event).ok());
        events.extend(read.filter_map(|event| RunEvent::parse(&event).ok()));
    }
    let policy = asked.api.policy.as_deref().cloned().unwrap_or_default();
    let narrative = narrate(&events, &policy);
    Ok(json_response(&Narrative { run_id: known.run.0, narrative }))
}

/// The open questions of one run or of all runs.
pub(crate) async fn questions(asked: &ApiRequest<'_>) -> ApiResult {
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let run = asked.query.get("run_id").cloned().map(LogId);
    let pending = store.pending(tenant, run.as_ref()).await?;
    let open = |status| status == PendingStatus::Open;
    let mut told = Vec::new();
    for pending in pending.iter().filter(|one| &*one.kind == "question" && open(one.status)) {
        let state = asked.api.runner.state(tenant, &pending.log).await?;
        let questions = state.smart.pending_user_questions.iter().flatten();
        for question in questions.filter(|question| question.id == pending.id) {
            told.push(Question::new(question, &pending.log));
        }
    }
    Ok(json_response(&told))
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
        let document = Members::of(question.json().tree().root());
        Self { run_id: Some(run.0.clone()), document }
    }
}

/// Answers a question and resumes its run.
pub(crate) async fn answer(asked: &ApiRequest<'_>) -> ApiResult {
    let (id, tenant) = (asked.id(0), &asked.caller.tenant);
    let otid = asked.body.root().name_of("otid");
    let names = otid.map(|otid| Name::from(format!("letta/{id}/answered/{otid}")));
    let names: Vec<Name> = names.into_iter().collect();
    if let Some((run, _)) = asked.api.runner.find_annotation(tenant, &names).await? {
        return answered(asked, &run, &id).await;
    }
    let pending = asked.api.store().pending(tenant, None).await?;
    let found = pending.into_iter().find(|one| one.id == id && &*one.kind == "question");
    let Some(pending) = found else { return Err(question_error(asked, &id).await?) };
    let is_own = |name: Node<'_>| name.is("id") || name.is("otid");
    let resolution = json::object(|o| {
        o.string("id", &id);
        for (name, value) in asked.body.root().members().filter(|(name, _)| !is_own(*name)) {
            o.node(&name.text().unwrap_or_default(), value);
        }
    });
    let resolution = UserQuestionResolution::parse(&resolution);
    let resolution = resolution.map_err(|error| ApiError::new(422, error.to_string()))?;
    asked
        .api
        .drives
        .runner_with_new_owner()
        .send_command(tenant, &pending.log, RunCommand::Answer(resolution))
        .await?;
    if !names.is_empty() {
        asked.api.runner.annotate(tenant, &pending.log, &names, &json::object(|_| {})).await?;
    }
    asked.drive(&pending.log).await?;
    if has_expired(asked, &pending.log, &id).await? {
        // The run expired the question before it read the answer.
        return Err(question_error(asked, &id).await?);
    }
    answered(asked, &pending.log, &id).await
}

/// Whether a run continued because the question was not answered in time.
async fn has_expired(asked: &ApiRequest<'_>, run: &LogId, id: &Name) -> Result<bool, ApiError> {
    let state = asked.api.runner.state(&asked.caller.tenant, run).await?;
    let mut questions = state.smart.pending_user_questions.iter().flatten();
    Ok(questions.any(|question| {
        question.id == *id
            && question.status == UserQuestionStatus::Cancelled
            && question.notes.as_deref() == Some("expired")
    }))
}

/// The error for a question that does not exist or is closed.
async fn question_error(asked: &ApiRequest<'_>, id: &Name) -> Result<ApiError, ApiError> {
    let run = id.rsplit_once(".q").map(|(run, _)| LogId::from(run));
    let tenant = &asked.caller.tenant;
    let Some(run) = run.filter(|run| !run.0.is_empty()) else {
        return Ok(ApiError::not_found("question", id));
    };
    if asked.api.store().log(tenant, &run).await?.is_none_or(|head| !runs::is_run(&head)) {
        return Ok(ApiError::not_found("question", id));
    }
    let state = asked.api.runner.state(tenant, &run).await?;
    let mut questions = state.smart.pending_user_questions.iter().flatten();
    let known = questions.find(|question| question.id == *id);
    Ok(known.map_or_else(
        || ApiError::not_found("question", id),
        |question| {
            let status = question.status.as_str();
            ApiError::new(
                409,
                format!("question {id} no longer waits for an answer: its status is {status}"),
            )
        },
    ))
}

/// The current state of a question.
async fn answered(asked: &ApiRequest<'_>, run: &LogId, id: &Name) -> ApiResult {
    let state = asked.api.runner.state(&asked.caller.tenant, run).await?;
    let questions = state.smart.pending_user_questions.iter().flatten();
    let known = questions.into_iter().find(|question| question.id == *id);
    Ok(known.map_or_else(
        || {
            let status = UserQuestionStatus::Executed.as_str();
            json_response(&QuestionStatus { id: id.clone(), status })
        },
        |question| json_response(&Question::new(question, run)),
    ))
}

/// The JSON Schema of a document.
pub(crate) fn schema(asked: &ApiRequest<'_>) -> ApiResult {
    let schema = match &*asked.id(0) {
        "run-event" => RunEvent::schema(),
        "smart-state" => SmartState::schema(),
        other => return Err(ApiError::not_found("schema", other)),
    };
    Ok(GatewayResponse::json(200, &schema))
}

/// The record number in this member of the body.
fn record_number(asked: &ApiRequest<'_>, name: &str) -> Option<u64> {
    asked.body.root().present(name).and_then(Node::u64)
}

/// The Thread of an agent or conversation; 404 for other logs.
async fn resolve_thread(asked: &ApiRequest<'_>, id: &Name) -> Result<LogId, ApiError> {
    let thread = LogId(id.clone());
    let head = asked.api.store().log(&asked.caller.tenant, &thread).await?;
    let is_thread = head.is_some_and(|head| head.kind == LogKind::Thread);
    if is_thread { Ok(thread) } else { Err(ApiError::not_found("thread", id)) }
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

/// Creates a conversation that shares a Thread's history up to a record.
pub(crate) async fn fork(asked: &ApiRequest<'_>) -> ApiResult {
    let thread = resolve_thread(asked, &asked.id(0)).await?;
    let place = asked.resolve_conversation(&thread.0).await?;
    let head = asked.api.store().log(&asked.caller.tenant, &thread).await?;
    let last = head.map_or(0, |head| head.last);
    let at = record_number(asked, "at").unwrap_or(last);
    if at > last {
        return Err(ApiError::new(
            422,
            format!("{thread} ends at record {last}: fork at that record or earlier"),
        ));
    }
    let members = place.conversation.map(|kept| kept.members).unwrap_or_default();
    let id = asked.api.fresh("conv");
    let point = ForkPoint { log: thread.clone(), at };
    asked.agent_store().create_conversation(&place.agent.id, &id, &members, Some(point)).await?;
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
pub(crate) async fn rewind(asked: &ApiRequest<'_>) -> ApiResult {
    let thread = resolve_thread(asked, &asked.id(0)).await?;
    let to = record_number(asked, "to")
        .ok_or_else(|| ApiError::new(422, "to: is missing: name a record of the thread"))?;
    // Fails for a Thread that belongs to no agent.
    asked.resolve_conversation(&thread.0).await?;
    let at = rewind_thread(asked, &thread, to).await?;
    Ok(json_response(&RewoundThread { id: thread.0, rewound: RewindRange { at, to } }))
}
