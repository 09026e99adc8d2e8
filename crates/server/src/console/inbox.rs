//! Lists pending approvals and questions, and records decisions on approvals.

use std::collections::BTreeMap;

use throughline_agent::{RunCommand, State, ToolSpec};
use throughline_core::{
    Body, ErasureEpoch, Item, LogId, PendingEntry, PendingStatus, Role, StoreError,
};
use throughline_json::{self as json, Json, Name, Node};
use throughline_spec::{PendingToolApproval, RedactionPolicy, ToolApprovalResolution};

use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::console::{erasure_epoch, runs};
use crate::letta::item_reader::stored_items;
use crate::object::{join_objects, object};
use crate::redact::redact_json;

/// Number of records at the end of a Thread in which the reply with a tool call is searched.
const REPLY_RECORDS: u32 = 64;

/// Maximum length of each Thought and text before a tool call, in characters.
const MAX_EXCERPT: usize = 2_000;

/// The details of a run that a person needs to decide its requests.
#[derive(Default)]
struct RunDetails {
    title: Option<Name>,
    /// The Thread with the replies of the model.
    thread: Option<LogId>,
    /// The run's tools that this process lacks.
    missing_tools: Vec<String>,
    tools: Vec<ToolSpec>,
}

/// Lists all pending approvals and questions, oldest first.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let run = request.query.get("run").cloned().map(LogId);
    let pending = store.pending(tenant, run.as_ref()).await?;
    let mut pending: Vec<PendingEntry> =
        pending.into_iter().filter(|one| one.status == PendingStatus::Open).collect();
    pending.sort_by_key(|one| one.opened);
    let policy = request.policy();
    let mut states: BTreeMap<LogId, Option<State>> = BTreeMap::new();
    let (mut waiting, era) = (Vec::new(), erasure_epoch(request).await?);
    for one in &pending {
        if !states.contains_key(&one.log) {
            // A log that is not a run of an agent has no state, so only its name is shown.
            let state = request.state(&one.log).await.ok();
            states.insert(one.log.clone(), state);
        }
        let state = states.get(&one.log).and_then(Option::as_ref);
        let run = run_details(request, &one.log, era).await?;
        let head = object! {
            "id": one.id, "kind": one.kind, "run": one.log.0, "title"? run.title,
            "opened": one.opened.to_string(), "expires"? one.expires.map(|at| at.to_string()),
            "missing_tools": run.missing_tools,
        };
        let approval = state.and_then(|state| approval_of(state, one));
        let reply = match (&run.thread, approval) {
            (Some(thread), Some(approval)) => {
                reply_before_call(request, thread, &approval.tool_call_id, &policy).await?
            }
            _ => Vec::new(),
        };
        let details = json::object(|o| {
            if let Some(approval) = approval {
                write_approval(o, approval, &run.tools, &policy);
                o.list("reply", &reply);
            }
            if let Some(state) = state {
                write_request(o, one, state, &policy);
            }
        });
        waiting.push(join_objects(&head, &details));
    }
    Ok(json_response(&object! { "waiting": waiting }))
}

async fn run_details(
    request: &ApiRequest<'_>,
    run: &LogId,
    era: ErasureEpoch,
) -> ApiResult<RunDetails> {
    let Some(head) = request.log(run).await? else { return Ok(RunDetails::default()) };
    let title = runs::summary(request, &head, era).await?.title.clone();
    let (missing_tools, tools) = match request.progress(run).await {
        Ok((spec, _)) => {
            let missing = request.missing_tools(&spec).into_iter().map(str::to_owned);
            (missing.collect(), spec.tools)
        }
        Err(_) => (Vec::new(), Vec::new()),
    };
    Ok(RunDetails { title, thread: head.of, missing_tools, tools })
}

fn approval_of<'s>(state: &'s State, one: &PendingEntry) -> Option<&'s PendingToolApproval> {
    state.smart.pending_approvals.iter().flatten().find(|known| known.id == one.id)
}

/// Returns the Thoughts and texts of the reply that contains a tool call, up to that call, with
/// secrets redacted.
async fn reply_before_call(
    request: &ApiRequest<'_>,
    thread: &LogId,
    call: &str,
    policy: &RedactionPolicy,
) -> ApiResult<Vec<Json>> {
    let Some(head) = request.log(thread).await? else { return Ok(Vec::new()) };
    let after = head.last.saturating_sub(REPLY_RECORDS.into());
    let (store, tenant) = (request.api.store(), &request.caller.tenant);
    let records = match store.read(tenant, thread, after, REPLY_RECORDS).await {
        Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
        records => records?,
    };
    let items = stored_items(&records)?;
    let is_call = |item: &Item| matches!(&item.body, Body::Call(found) if *found.id.0 == *call);
    let Some(place) = items.iter().rposition(|stored| is_call(&stored.item)) else {
        return Ok(Vec::new());
    };
    let before = items.iter().take(place).rev().map(|stored| &stored.item);
    let reply = before.take_while(|item| item.role == Role::Assistant);
    let mut shown: Vec<Json> = reply.filter_map(|item| excerpt(item, policy)).collect();
    shown.reverse();
    Ok(shown)
}

/// Returns the start of a Thought or text; `None` for an Item without readable text.
fn excerpt(item: &Item, policy: &RedactionPolicy) -> Option<Json> {
    let (kind, text) = match &item.body {
        Body::Thought(thought) => ("thought", policy.redact_thought(&thought.content)),
        Body::Text(text) => ("text", policy.redact_text(text)),
        _ => return None,
    };
    let start: String = text.chars().take(MAX_EXCERPT).collect();
    let is_cut = start.len() < text.len();
    (!start.trim().is_empty()).then(|| object! { "kind": kind, "text": start, "cut": is_cut })
}

/// Writes the tool call that needs approval. If the run's tools contain the tool, its description
/// and whether it can safely run twice are included.
fn write_approval(
    o: &mut json::Object<'_>,
    approval: &PendingToolApproval,
    tools: &[ToolSpec],
    policy: &RedactionPolicy,
) {
    let PendingToolApproval { tool_name, args, .. } = approval;
    let redacted = redact_json(policy, args);
    // Redacted arguments cannot be edited, because the redacted parts would be lost.
    o.string("tool", tool_name).raw("args", &redacted).bool("redacted", redacted != *args);
    if let Some(tool) = tools.iter().find(|tool| tool.name == *tool_name) {
        o.maybe_string("description", tool.description.as_deref());
        o.bool("idempotent", tool.idempotent);
    }
}

/// Writes whether the outcome of a tool call is unknown, and the questions to answer.
fn write_request(
    o: &mut json::Object<'_>,
    one: &PendingEntry,
    state: &State,
    policy: &RedactionPolicy,
) {
    if state.is_lost(&one.id) {
        o.string("outcome", "unknown");
    }
    let questions = state.smart.pending_user_questions.iter().flatten();
    for question in questions.filter(|known| known.id == one.id) {
        let document = redact_json(policy, &question.json());
        let tree = document.tree();
        for key in ["questions", "allowFreeText", "message"] {
            tree.root().get(key).map(|value| o.node(key, value));
        }
    }
}

/// Approves or rejects a tool call, optionally with other arguments, and resumes its run if this
/// process has the tools.
pub(crate) async fn decide(request: &ApiRequest<'_>) -> ApiResult {
    let (id, tenant) = (request.id(0), &request.caller.tenant);
    let pending = request.api.store().pending(tenant, None).await?;
    let found = pending.into_iter().find(|one| one.id == id && &*one.kind == "approval");
    let pending = found.ok_or_else(|| ApiError::not_found("approval", &id))?;
    let body = request.body.root();
    let approved = body.present("approved").and_then(Node::bool);
    let approved = approved.ok_or_else(|| ApiError::new(422, "approved: must be true or false"))?;
    let mut resolution = ToolApprovalResolution::new(id.clone(), approved);
    resolution.approved_args = body.present("args").map(Node::json);
    resolution.comment = body.name_of("comment").filter(|comment| !comment.is_empty());
    resolution.decided_by = body.name_of("decided_by").filter(|name| !name.is_empty());
    let decision = RunCommand::Decide(resolution);
    request.api.drives.runner_with_new_owner().send_command(tenant, &pending.log, decision).await?;
    let goes_on = request.drive(&pending.log).await?;
    Ok(json_response(&object! {
        "id": id, "run": pending.log.0, "approved": approved, "goes_on": goes_on,
    }))
}
