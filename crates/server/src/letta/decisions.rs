//! Validates all decisions in a request, then sends them to the waiting run.

use std::collections::HashSet;

use throughline_agent::{OpenCall, Progress, RunCommand, Stage, State, ToolAnswer, ToolCompletion};
use throughline_core::{Body, LogHead, LogId, Outcome};
use throughline_json::{self as json, Json, Name};
use throughline_spec::{ToolApprovalResolution, UserQuestionResolution};
use tokio::time::timeout;

use crate::access::Permission;
use crate::api::{ApiError, ApiRequest, ApiResult};
use crate::letta::message::MESSAGE;
use crate::letta::message_request::Decision;
use crate::letta::projector::needs_decision;
use crate::object::put_members;

/// Sends the decisions to the waiting run. Returns the number of events in the run before the
/// decisions.
pub(crate) async fn send(
    request: &ApiRequest<'_>,
    head: &LogHead,
    decisions: &[Decision],
) -> ApiResult<u64> {
    let (api, tenant, run) = (request.api, &request.caller.tenant, &head.log);
    let (_, progress) = request.progress(run).await?;
    let commands = to_commands(&progress, run, decisions)?;
    if commands.iter().any(|command| matches!(command, RunCommand::Answer(_))) {
        request.caller.require(Permission::Approve)?;
    }
    for command in commands {
        api.drives.runner_with_new_owner().send_command(tenant, run, command).await?;
    }
    let is_for_all = decisions.iter().any(|one| one.call().is_none());
    let is_meant = |call: &OpenCall| {
        let is_named = decisions.iter().any(|one| one.call() == Some(&call.id));
        is_named || (is_for_all && is_approval(call))
    };
    let calls: Vec<&Name> =
        progress.calls.iter().filter(|call| is_meant(call)).map(|call| &call.id).collect();
    wait_until_done(request, run, &calls).await?;
    Ok(head.events)
}

/// Maximum number of attempts to drive a run until it has processed its commands.
const TRIES: u32 = 8;

/// Waits until the run has processed the decisions. Drives the run again if necessary, because the
/// lease holder may have released the run without reading its inbox.
async fn wait_until_done(request: &ApiRequest<'_>, run: &LogId, calls: &[&Name]) -> ApiResult<()> {
    let (api, tenant) = (request.api, &request.caller.tenant);
    for _ in 0..TRIES {
        let last = api.store().log(tenant, run).await?.map_or(0, |head| head.last);
        let (_, progress) = request.progress(run).await?;
        let waits = |call: &OpenCall| call.stage.pending().is_some() && calls.contains(&&call.id);
        if !progress.calls.iter().any(waits) {
            return Ok(());
        }
        api.drives.drive(tenant, run);
        // On timeout, the next iteration checks again.
        drop(timeout(api.runner.lease, api.store().wait(tenant, run, last)).await);
    }
    Err(ApiError::new(503, format!("run {run} has not processed the decision yet; try again")))
}

/// Converts decisions to commands for the run.
fn to_commands(
    progress: &Progress,
    run: &LogId,
    decisions: &[Decision],
) -> ApiResult<Vec<RunCommand>> {
    let mut seen = HashSet::new();
    let mut commands = Vec::new();
    let mut returned = Vec::new();
    for decision in decisions {
        match decision {
            Decision::Approval { call: None, approve, reason } => {
                let waiting = progress.calls.iter().filter(|call| is_approval(call));
                let all: Vec<Name> = waiting.map(|call| call.id.clone()).collect();
                if all.is_empty() {
                    let message = format!("no call of run {run} is waiting for approval");
                    return Err(ApiError::new(409, message));
                }
                let command = |call| approval_command(call, *approve, reason.clone());
                commands.extend(all.into_iter().map(command));
            }
            Decision::Approval { call: Some(call), approve, reason } => {
                let open = find_pending_call(progress, run, call, &mut seen)?;
                if !is_approval(open) {
                    let wait = describe_wait(open);
                    let message = format!("call {call} is not waiting for approval: {wait}");
                    return Err(ApiError::new(409, message));
                }
                commands.push(approval_command(call.clone(), *approve, reason.clone()));
            }
            Decision::Return { call, parts, is_error } => {
                let outcome = if *is_error { Outcome::Error } else { Outcome::Ok };
                let answer = ToolAnswer { outcome, parts: parts.clone() };
                match &find_pending_call(progress, run, call, &mut seen)?.stage {
                    Stage::Client { .. } => {
                        returned.push(ToolCompletion { call: call.clone(), answer });
                    }
                    Stage::Question { id } => {
                        commands.push(RunCommand::Answer(parse_answer(id, &answer.to_text())?));
                    }
                    _ => {
                        let message = "is not waiting for a result from the client";
                        return Err(ApiError::new(409, format!("call {call} {message}")));
                    }
                }
            }
        }
    }
    if !returned.is_empty() {
        commands.push(RunCommand::Return(returned));
    }
    Ok(commands)
}

/// Finds the open tool call with this id. Fails if the call is not pending or was already decided
/// in this request.
fn find_pending_call<'p>(
    progress: &'p Progress,
    run: &LogId,
    call: &Name,
    seen: &mut HashSet<Name>,
) -> ApiResult<&'p OpenCall> {
    if !seen.insert(call.clone()) {
        return Err(ApiError::new(
            422,
            format!("the request contains two decisions for call {call}"),
        ));
    }
    let found = progress.calls.iter().find(|open| open.id == *call);
    let found = found.filter(|open| open.stage.pending().is_some());
    found.ok_or_else(|| {
        let waiting = progress.calls.iter().filter(|open| open.stage.pending().is_some());
        let waiting: Vec<&str> = waiting.map(|open| &*open.id).collect();
        let waiting = if waiting.is_empty() { "none".to_owned() } else { waiting.join(", ") };
        let message = format!("call {call} is not waiting in run {run}; waiting calls: {waiting}");
        ApiError::new(409, message)
    })
}

fn is_approval(call: &OpenCall) -> bool {
    matches!(call.stage, Stage::Approval { .. })
}

fn describe_wait(call: &OpenCall) -> &'static str {
    match call.stage {
        Stage::Client { .. } => "it is waiting for the result of the client's tool",
        Stage::Question { .. } => "it is waiting for the answer to a question",
        _ => "it is not waiting",
    }
}

fn approval_command(call: Name, approve: bool, reason: Option<Name>) -> RunCommand {
    let mut resolution = ToolApprovalResolution::new(call, approve);
    resolution.comment = reason;
    RunCommand::Decide(resolution)
}

/// Parses a person's answer to a question. The client sends the answer as a tool result.
fn parse_answer(id: &Name, text: &str) -> ApiResult<UserQuestionResolution> {
    let tree = Json::parse(text.to_owned()).ok().map(|json| json.tree());
    let members = tree.as_ref().filter(|tree| tree.root().is_object());
    let Some(members) = members else {
        let message =
            format!("question {id}: send an object with the field answers (see docs/agent-api.md)");
        return Err(ApiError::new(422, message));
    };
    let resolution = json::object(|o| {
        o.string("id", id);
        put_members(o, members.root().members().filter(|(name, _)| !name.is("id")));
    });
    Ok(UserQuestionResolution::parse(&resolution)?)
}

/// Returns the id of the message that requests the pending decisions. One message lists all tool
/// calls of a model reply. The message has the id of the first call that needs a decision.
pub(crate) fn request_id(state: &State) -> Name {
    let waiting = |id: &Name| {
        let calls = state.progress.calls.iter();
        calls.filter(|call| call.stage.pending().is_some()).any(|call| call.id == *id)
    };
    let items = state.window.items.iter().map(|known| &known.item);
    let step = items.clone().find(|item| item.call().is_some_and(|call| waiting(&call.id.0)));
    let message = step.map(|item| item.place.message);
    let mut asking = items.filter(|item| Some(item.place.message) == message);
    let first = asking.find(|item| match &item.body {
        Body::Call(call) => needs_decision(&state.cast.casting, call),
        _ => false,
    });
    let id = first.or(step).map_or("", |item| &*item.id.0);
    Name::from(format!("{MESSAGE}{id}"))
}
