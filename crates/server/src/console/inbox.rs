//! Lists pending approvals and questions, and records decisions on approvals.

use std::collections::BTreeMap;

use throughline_agent::{RunCommand, State};
use throughline_core::{ErasureEpoch, LogId, PendingEntry, PendingStatus};
use throughline_json::{self as json, Name, Node};
use throughline_spec::{PendingToolApproval, RedactionPolicy, ToolApprovalResolution};

use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::console::{erasure_epoch, runs};
use crate::object::{join_objects, object};
use crate::redact::redact_json;

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
        let (missing_tools, title) = run_details(request, &one.log, era).await?;
        let head = object! {
            "id": one.id, "kind": one.kind, "run": one.log.0, "title"? title,
            "opened": one.opened.to_string(), "expires"? one.expires.map(|at| at.to_string()),
            "missing_tools": missing_tools,
        };
        let details = json::object(|o| {
            if let Some(state) = state {
                write_request(o, one, state, &policy);
            }
        });
        waiting.push(join_objects(&head, &details));
    }
    Ok(json_response(&object! { "waiting": waiting }))
}

/// Returns the run's tools that this process lacks, and the run's title.
async fn run_details(
    request: &ApiRequest<'_>,
    run: &LogId,
    era: ErasureEpoch,
) -> ApiResult<(Vec<String>, Option<Name>)> {
    let Some(head) = request.log(run).await? else { return Ok((Vec::new(), None)) };
    let summary = runs::summary(request, &head, era).await?;
    let missing = match request.progress(run).await {
        Ok((casting, _)) => {
            request.missing_tools(&casting).into_iter().map(str::to_owned).collect()
        }
        Err(_) => Vec::new(),
    };
    Ok((missing, summary.title.clone()))
}

/// Writes the tool call that needs approval, or the questions to answer.
fn write_request(
    o: &mut json::Object<'_>,
    one: &PendingEntry,
    state: &State,
    policy: &RedactionPolicy,
) {
    let approval = state.smart.pending_approvals.iter().flatten().find(|known| known.id == one.id);
    if let Some(PendingToolApproval { tool_name, args, .. }) = approval {
        let redacted = redact_json(policy, args);
        // Redacted arguments cannot be edited, because the redacted parts would be lost.
        o.string("tool", tool_name).raw("args", &redacted).bool("redacted", redacted != *args);
        if state.is_lost(&one.id) {
            o.string("outcome", "unknown");
        }
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
