//! Decisions for a run that waits: each is checked against what waits before any of them is told.

use std::collections::HashSet;

use throughline_agent::{Ended, OpenCall, Progress, Stage, State, ToolAnswer, Word};
use throughline_core::{
    Body, Json, LogHead, LogId, Name, Outcome, ToolApprovalResolution, UserQuestionResolution, json,
};
use tokio::time::timeout;

use crate::letta::Asked;
use crate::letta::denied::Denied;
use crate::letta::project::asks;
use crate::letta::request::Decision;
use crate::letta::union::MESSAGE;

/// Tells the run that waits what was decided. Gives its number of events before that.
pub(crate) async fn tell(
    asked: &Asked<'_>,
    head: &LogHead,
    decisions: &[Decision],
) -> Result<u64, Denied> {
    let (api, tenant, run) = (asked.api, &asked.caller.tenant, &head.log);
    let (_, progress) = api.runner.progress(tenant, run).await?;
    let words = words(&progress, run, decisions)?;
    for word in words {
        api.drives.hand().tell(tenant, run, word).await?;
    }
    let is_for_all = decisions.iter().any(|one| one.call().is_none());
    let is_meant = |call: &OpenCall| {
        let is_named = decisions.iter().any(|one| one.call() == Some(&call.id));
        is_named || (is_for_all && is_approval(call))
    };
    let calls: Vec<&Name> =
        progress.calls.iter().filter(|call| is_meant(call)).map(|call| &call.id).collect();
    are_heard(asked, run, &calls).await?;
    Ok(head.events)
}

/// How often a run is driven for a word that was left for it, before that is given up.
const TRIES: u32 = 8;

/// Waits until what was decided is settled. Who held the run at that moment may have left it without a look at what was left for it.
async fn are_heard(asked: &Asked<'_>, run: &LogId, calls: &[&Name]) -> Result<(), Denied> {
    let (api, tenant) = (asked.api, &asked.caller.tenant);
    for _ in 0..TRIES {
        let last = api.store().log(tenant, run).await?.map_or(0, |head| head.last);
        let (_, progress) = api.runner.progress(tenant, run).await?;
        let waits = |call: &OpenCall| call.stage.pending().is_some() && calls.contains(&&call.id);
        if !progress.calls.iter().any(waits) {
            return Ok(());
        }
        api.drives.drive(tenant, run);
        // If nothing happens in that time, somebody looks again.
        drop(timeout(api.runner.lease, api.store().wait(tenant, run, last)).await);
    }
    Err(Denied::new(503, format!("run {run} does not hear what was decided: try again")))
}

/// What the decisions are to the run.
fn words(progress: &Progress, run: &LogId, decisions: &[Decision]) -> Result<Vec<Word>, Denied> {
    let mut seen = HashSet::new();
    let mut words = Vec::new();
    let mut returned = Vec::new();
    for decision in decisions {
        match decision {
            Decision::Approval { call: None, approve, reason } => {
                let waiting = progress.calls.iter().filter(|call| is_approval(call));
                let all: Vec<Name> = waiting.map(|call| call.id.clone()).collect();
                if all.is_empty() {
                    return Err(Denied::new(
                        409,
                        format!("no call of run {run} waits for an approval"),
                    ));
                }
                words.extend(all.into_iter().map(|call| decide(call, *approve, reason.clone())));
            }
            Decision::Approval { call: Some(call), approve, reason } => {
                let open = open(progress, run, call, &mut seen)?;
                if !is_approval(open) {
                    let problem = format!("call {call} waits for no approval: {}", waits(open));
                    return Err(Denied::new(409, problem));
                }
                words.push(decide(call.clone(), *approve, reason.clone()));
            }
            Decision::Return { call, parts, is_error } => {
                let outcome = if *is_error { Outcome::Error } else { Outcome::Ok };
                let answer = ToolAnswer { outcome, parts: parts.clone() };
                match &open(progress, run, call, &mut seen)?.stage {
                    Stage::Client { .. } => returned.push(Ended { call: call.clone(), answer }),
                    Stage::Question { id } => {
                        words.push(Word::Answer(answered(id, &answer.said())?));
                    }
                    _ => {
                        let problem = format!("call {call} waits for no answer of the caller's");
                        return Err(Denied::new(409, problem));
                    }
                }
            }
        }
    }
    if !returned.is_empty() {
        words.push(Word::Return(returned));
    }
    Ok(words)
}

/// The call that waits, if it is one and was not decided in the same request.
fn open<'p>(
    progress: &'p Progress,
    run: &LogId,
    call: &Name,
    seen: &mut HashSet<Name>,
) -> Result<&'p OpenCall, Denied> {
    if !seen.insert(call.clone()) {
        return Err(Denied::new(422, format!("call {call} is decided twice")));
    }
    let found = progress.calls.iter().find(|open| open.id == *call);
    let found = found.filter(|open| open.stage.pending().is_some());
    found.ok_or_else(|| {
        let waiting: Vec<&str> = progress
            .calls
            .iter()
            .filter(|open| open.stage.pending().is_some())
            .map(|open| &*open.id)
            .collect();
        let waiting = if waiting.is_empty() { "none".to_owned() } else { waiting.join(", ") };
        let message = format!("no call {call} waits in run {run}; those that wait: {waiting}");
        Denied::new(409, message)
    })
}

fn is_approval(call: &OpenCall) -> bool {
    matches!(call.stage, Stage::Approval { .. })
}

fn waits(call: &OpenCall) -> &'static str {
    match call.stage {
        Stage::Client { .. } => "it waits for what the caller's tool returns",
        Stage::Question { .. } => "it waits for the answer to a question",
        _ => "it waits for nothing",
    }
}

fn decide(call: Name, approve: bool, reason: Option<Name>) -> Word {
    let mut resolution = ToolApprovalResolution::new(call, approve);
    resolution.comment = reason;
    Word::Decide(resolution)
}

/// An answer to a question that came as a tool's: the documented resolution, or plain words for the only question.
fn answered(id: &Name, text: &str) -> Result<UserQuestionResolution, Denied> {
    let tree = Json::parse(text.to_owned()).ok().map(|json| json.tree());
    let members = tree.as_ref().filter(|tree| tree.root().is_object());
    let Some(members) = members else {
        return Err(Denied::new(
            422,
            format!(
                "question {id}: answer with an object that has answers, as docs/agent-api.md says"
            ),
        ));
    };
    let resolution = json::object(|o| {
        o.string("id", id);
        for (name, value) in members.root().members().filter(|(name, _)| !name.is("id")) {
            o.node(&name.text().unwrap_or_default(), value);
        }
    });
    UserQuestionResolution::parse(&resolution).map_err(|error| Denied::new(422, error.to_string()))
}

/// The message in which a run that waits asks: the first of the calls that somebody must decide on.
pub(crate) fn request_id(state: &State) -> Name {
    let waiting = |id: &Name| {
        let calls = state.progress.calls.iter();
        calls.filter(|call| call.stage.pending().is_some()).any(|call| call.id == *id)
    };
    let items = state.window.items.iter().map(|kept| &kept.item);
    let step = items.clone().find(|item| item.call().is_some_and(|call| waiting(&call.id.0)));
    let message = step.map(|item| item.place.message);
    // The request names all calls of that answer that somebody has a say in, and has the first one's id.
    let mut asking = items.filter(|item| Some(item.place.message) == message);
    let first = asking.find(|item| match &item.body {
        Body::Call(call) => asks(&state.cast.casting, call),
        _ => false,
    });
    let id = first.or(step).map_or("", |item| &*item.id.0);
    Name::from(format!("{MESSAGE}{id}"))
}
