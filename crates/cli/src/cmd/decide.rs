//! `throughline answer`, `approve`, `reject` and `cancel`: send a command to a run, in any process.

use throughline_agent::{RunCommand, State, sentence};
use throughline_core::{LogId, PendingStatus, Store as _};
use throughline_json::{Json, Name};
use throughline_spec::{
    RunEvent, ToolApprovalEventStatus, ToolApprovalResolution, UserQuestionEventStatus,
    UserQuestionResolution,
};

use crate::agent::{
    self, AgentContext, CommandHints, ModelAccess, Tools, last_event, parse_answers, questions,
};
use crate::args::{Answer, Approve, Cancel, DecisionArgs, Reject, StoreArgs};
use crate::print::failure::Failure;
use crate::print::text::{self, mark, plain};

pub(crate) fn approve(options: &Approve) -> Result<(), Failure> {
    let args = match &options.args {
        None => None,
        Some(text) => Some(
            Json::parse(text.clone())
                .map_err(|error| Failure::Usage(format!("--args is not JSON: {error}")))?,
        ),
    };
    decide(&options.deciding, true, args)
}

pub(crate) fn reject(options: &Reject) -> Result<(), Failure> {
    decide(&options.deciding, false, None)
}

fn decide(options: &DecisionArgs, approved: bool, args: Option<Json>) -> Result<(), Failure> {
    let id = options.id.as_str();
    send_decision(&options.at, id, "approval", |_, _| {
        let mut resolution = ToolApprovalResolution::new(id.into(), approved);
        resolution.approved_args = args;
        resolution.comment = options.comment.as_deref().map(Name::from);
        resolution.decided_by = options.by.as_deref().map(Name::from);
        Ok(RunCommand::Decide(resolution))
    })
}

pub(crate) fn answer(options: &Answer) -> Result<(), Failure> {
    let id = options.id.as_str();
    send_decision(&options.at, id, "question", |state, id| {
        let mut resolution = UserQuestionResolution::new(id.clone());
        resolution.answered_by = options.by.as_deref().map(Name::from);
        resolution.notes = options.notes.as_deref().map(Name::from);
        if options.cancel {
            resolution.cancelled = Some(true);
        } else if let Some(question) = questions(state).find(|one| one.id == *id) {
            resolution.answers = Some(parse_answers(question, &options.answers)?);
        }
        Ok(RunCommand::Answer(resolution))
    })
}

pub(crate) fn cancel(options: &Cancel) -> Result<(), Failure> {
    agent::with(&options.at, ModelAccess::NoModels, Tools::default(), async |house| {
        let run = LogId::from(options.run.as_str());
        let word = RunCommand::Cancel(options.reason.as_deref().map(Name::from));
        let told = house.runner.send_command(&house.tenant, &run, word).await;
        told.map_err(|error| house.to_failure(error))?;
        text::write_styled(&format!("{} {} is cancelled\n", mark(true), plain(&run.0)))
    })
}

/// Finds a pending request and sends a command for it to its run.
fn send_decision(
    at: &StoreArgs,
    id: &str,
    kind: &str,
    make: impl FnOnce(&State, &Name) -> Result<RunCommand, Failure>,
) -> Result<(), Failure> {
    agent::with(at, ModelAccess::NoModels, Tools::default(), async |house| {
        let run = waiting(house, id, kind).await?;
        let state = house.runner.state(&house.tenant, &run).await;
        let state = state.map_err(|error| house.to_failure(error))?;
        let word = make(&state, &Name::from(id))?;
        let told = house.runner.send_command(&house.tenant, &run, word).await;
        told.map_err(|error| house.to_failure(error))?;
        let hint = CommandHints::new(at, None).resume(&run.0);
        text::write_styled(&format!(
            "{} sent to {}; `{hint}` continues the run\n",
            mark(true),
            plain(&run.0)
        ))
    })
}

/// Returns the run that owns the pending request `id`, or an error if `kind` does not match.
async fn waiting(house: &AgentContext, id: &str, kind: &str) -> Result<LogId, Failure> {
    let pending = house.journal.pending(&house.tenant, None).await;
    let pending = pending.map_err(|error| house.to_failure(error.into()))?;
    let found = pending.into_iter().find(|pending| *pending.id == *id);
    let before = if found.is_none() { decided(house, id).await? } else { None };
    let id = plain(id);
    let inbox = "`throughline inbox` lists the pending requests";
    match found {
        None => Err(Failure::Usage(match before {
            Some(told) => format!("{id} is already decided: {}", plain(&told)),
            None => format!("there is no pending request {id}; {inbox}"),
        })),
        Some(found) if *found.kind != *kind => {
            let (is, command) = match &*found.kind {
                "approval" => ("an approval", "`throughline approve` or `throughline reject`"),
                "question" => ("a question", "`throughline answer`"),
                _ => ("a call of a client tool", "a result from the client that runs the tool"),
            };
            Err(Failure::Usage(format!("{id} is {is}; it needs {command}")))
        }
        Some(found) => match found.status {
            PendingStatus::Open => Ok(found.log),
            PendingStatus::Taken => {
                Err(Failure::Usage(format!("{id} is already decided; {inbox}")))
            }
            PendingStatus::Expired => {
                Err(Failure::Usage(format!("{id} has expired and can no longer be decided")))
            }
        },
    }
}

/// Describes the decision on a closed request. Request ids start with the id of their run.
async fn decided(house: &AgentContext, id: &str) -> Result<Option<String>, Failure> {
    let Some((run, _)) = id.rsplit_once('.') else { return Ok(None) };
    let run = LogId::from(run);
    let head = house.journal.log(&house.tenant, &run).await;
    if head.map_err(|error| house.to_failure(error.into()))?.is_none() {
        return Ok(None);
    }
    let is_it = |event: &RunEvent| match event {
        RunEvent::ToolApproval(event) => {
            *event.id == *id && event.status != ToolApprovalEventStatus::Pending
        }
        RunEvent::UserQuestion(event) => {
            *event.id == *id && event.status != UserQuestionEventStatus::Pending
        }
        _ => false,
    };
    let event = last_event(house, &run, is_it).await?;
    Ok(event.and_then(|event| sentence(&event, &house.policy)))
}
