//! Lists the approvals and questions that wait for a person, and takes decisions on approvals.

use std::collections::BTreeMap;

use throughline_agent::{RunCommand, State};
use throughline_core::{ErasureEpoch, LogId, PendingEntry, PendingStatus};
use throughline_json::{self as json, Name, Node};
use throughline_spec::{PendingToolApproval, RedactionPolicy, ToolApprovalResolution};

use crate::api::{ApiError, ApiRequest, ApiResult};
use crate::console::{erasure_epoch, redact, runs};
use crate::response::GatewayResponse;

/// Lists everything that waits for a person, oldest first.
pub(crate) async fn list(asked: &ApiRequest<'_>) -> ApiResult {
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let run = asked.query.get("run").cloned().map(LogId);
    let pending = store.pending(tenant, run.as_ref()).await?;
    let mut pending: Vec<PendingEntry> =
        pending.into_iter().filter(|one| one.status == PendingStatus::Open).collect();
    pending.sort_by_key(|one| one.opened);
    let policy = asked.policy();
    let mut states: BTreeMap<LogId, Option<State>> = BTreeMap::new();
    let (mut waiting, era) = (Vec::new(), erasure_epoch(asked).await?);
    for one in &pending {
        if !states.contains_key(&one.log) {
            // A log that is not a run of an agent has no state, so only its name is shown.
            let state = asked.api.runner.state(tenant, &one.log).await.ok();
            states.insert(one.log.clone(), state);
        }
        let state = states.get(&one.log).and_then(Option::as_ref);
        let (casting, title) = run_details(asked, &one.log, era).await?;
        waiting.push(json::object(|o| {
            o.string("id", &one.id).string("kind", &one.kind).string("run", &one.log.0);
            o.maybe_string("title", title.as_deref()).string("opened", &one.opened.to_string());
            o.maybe_string("expires", one.expires.map(|at| at.to_string()).as_deref());
            o.array("missing_tools", |list| {
                for tool in &casting {
                    list.string(tool);
                }
            });
            if let Some(state) = state {
                write_request(o, one, state, &policy);
            }
        }));
    }
    let told = json::object(|o| {
        o.raw("waiting", &json::array_of(&waiting));
    });
    Ok(GatewayResponse::json(200, &told))
}

/// The tools of a run that this process lacks, and the title of the run.
async fn run_details(
    asked: &ApiRequest<'_>,
    run: &LogId,
    era: ErasureEpoch,
) -> Result<(Vec<String>, Option<Name>), ApiError> {
    let tenant = &asked.caller.tenant;
    let Some(head) = asked.api.store().log(tenant, run).await? else {
        return Ok((Vec::new(), None));
    };
    let summary = runs::summary(asked, &head, era).await?;
    let missing = match asked.api.runner.progress(tenant, run).await {
        Ok((casting, _)) => asked.missing_tools(&casting).into_iter().map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    };
    Ok((missing, summary.title.clone()))
}

/// Writes the tool call to approve, or the questions.
fn write_request(
    o: &mut json::Object<'_>,
    one: &PendingEntry,
    state: &State,
    policy: &RedactionPolicy,
) {
    let approval = state.smart.pending_approvals.iter().flatten().find(|known| known.id == one.id);
    if let Some(PendingToolApproval { tool_name, args, .. }) = approval {
        let told = redact(policy, args);
        // Redacted arguments cannot be edited, because the redacted parts would be lost.
        o.string("tool", tool_name).raw("args", &told).bool("redacted", told != *args);
        if state.is_lost(&one.id) {
            o.string("outcome", "unknown");
        }
    }
    let questions = state.smart.pending_user_questions.iter().flatten();
    for question in questions.filter(|known| known.id == one.id) {
        let document = redact(policy, &question.json());
        let tree = document.tree();
        for key in ["questions", "allowFreeText", "message"] {
            if let Some(value) = tree.root().get(key) {
                o.node(key, value);
            }
        }
    }
}

/// Approves or rejects a tool call, optionally with other arguments, and resumes its run if this
/// process has the tools.
pub(crate) async fn decide(asked: &ApiRequest<'_>) -> ApiResult {
    let (id, tenant) = (asked.id(0), &asked.caller.tenant);
    let pending = asked.api.store().pending(tenant, None).await?;
    let found = pending.into_iter().find(|one| one.id == id && &*one.kind == "approval");
    let pending = found.ok_or_else(|| ApiError::not_found("approval", &id))?;
    let body = asked.body.root();
    let approved = body.present("approved").and_then(Node::bool);
    let approved = approved.ok_or_else(|| ApiError::new(422, "approved: must be true or false"))?;
    let mut resolution = ToolApprovalResolution::new(id.clone(), approved);
    resolution.approved_args = body.present("args").map(Node::json);
    resolution.comment = body.name_of("comment").filter(|comment| !comment.is_empty());
    resolution.decided_by = body.name_of("decided_by").filter(|name| !name.is_empty());
    let word = RunCommand::Decide(resolution);
    asked.api.drives.runner_with_new_owner().send_command(tenant, &pending.log, word).await?;
    let goes_on = asked.drive(&pending.log).await?;
    let told = json::object(|o| {
        o.string("id", &id).string("run", &pending.log.0).bool("approved", approved);
        o.bool("goes_on", goes_on);
    });
    Ok(GatewayResponse::json(200, &told))
}
