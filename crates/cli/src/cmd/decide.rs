//! `throughline answer`, `approve`, `reject` and `cancel`: send a command to a run, even if another
//! process owns the run.

use throughline_agent::{RunCommand, State, sentence};
use throughline_core::{LogId, PendingStatus, Store as _};
use throughline_json::{Json, Name};
use throughline_spec::{
    RunEvent, ToolApprovalEventStatus, ToolApprovalResolution, UserQuestionEventStatus,
    UserQuestionResolution,
};

use crate::agent::{
    self, AgentContext, CommandHints, ModelAccess, last_event, parse_answers, questions,
};
use crate::args::{Answer, Approve, Cancel, DecisionArgs, StoreArgs};
use crate::print::failure::{Failure, Result};
use crate::print::text::{self, mark, plain};

pub(crate) fn approve(options: &Approve) -> Result<()> {
    let args = options.args.clone().map(Json::parse).transpose();
    let args =
        args.map_err(|error| Failure::Usage(format!("--args is not valid JSON: {error}")))?;
    decide(&options.deciding, true, args)
}

pub(crate) fn reject(options: &DecisionArgs) -> Result<()> {
    decide(options, false, None)
}

fn decide(options: &DecisionArgs, approved: bool, args: Option<Json>) -> Result<()> {
    let id = options.id.as_str();
    send_decision(&options.at, id, "approval", |_, _| {
        let mut resolution = ToolApprovalResolution::new(id.into(), approved);
        resolution.approved_args = args;
        resolution.comment = options.comment.as_deref().map(Name::from);
        resolution.decided_by = options.by.as_deref().map(Name::from);
        Ok(RunCommand::Decide(resolution))
    })
}

pub(crate) fn answer(options: &Answer) -> Result<()> {
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

pub(crate) fn cancel(options: &Cancel) -> Result<()> {
    agent::with(&options.at, ModelAccess::NoModels, async |context| {
        let run = LogId::from(options.run.as_str());
        let reason = options.reason.as_deref().map(Name::from);
        context.send(&run, RunCommand::Cancel(reason)).await?;
        text::write_styled(&format!("{} {} is cancelled\n", mark(true), plain(&run.0)))
    })
}

/// Finds a pending request by id and sends a command about the request to its run.
fn send_decision(
    at: &StoreArgs,
    id: &str,
    kind: &str,
    make: impl FnOnce(&State, &Name) -> Result<RunCommand>,
) -> Result<()> {
    agent::with(at, ModelAccess::NoModels, async |context| {
        let run = run_of_pending(context, id, kind).await?;
        let state = context.state(&run).await?;
        let command = make(&state, &Name::from(id))?;
        context.send(&run, command).await?;
        let tools = &state.cast.casting.tools;
        let hint = CommandHints::new(at, None).resume_with_tools(&run.0, tools);
        text::write_styled(&format!("{} sent to {}; {hint}\n", mark(true), plain(&run.0)))
    })
}

/// Returns the run that owns the pending request `id`, or an error if `kind` does not match.
async fn run_of_pending(context: &AgentContext, id: &str, kind: &str) -> Result<LogId> {
    let pending = context.run(context.journal.pending(&context.tenant, None)).await?;
    let shown = plain(id);
    let inbox = "`throughline inbox` lists the pending requests";
    Err(Failure::Usage(match pending.into_iter().find(|pending| *pending.id == *id) {
        None => match decided(context, id).await? {
            Some(decision) => format!("{shown} is already decided: {}", plain(&decision)),
            None => format!("there is no pending request {shown}; {inbox}"),
        },
        Some(request) if *request.kind != *kind => {
            let (is, command) = match &*request.kind {
                "approval" => ("an approval", "`throughline approve` or `throughline reject`"),
                "question" => ("a question", "`throughline answer`"),
                _ => ("a call of a client tool", "a result from the client that runs the tool"),
            };
            format!("{shown} is {is}; it needs {command}")
        }
        Some(request) => match request.status {
            PendingStatus::Open => return Ok(request.log),
            PendingStatus::Taken => format!("{shown} is already decided; {inbox}"),
            PendingStatus::Expired => format!("{shown} has expired and can no longer be decided"),
        },
    }))
}

/// Describes how a closed request was decided. The run is found through the request id, which
/// starts with the id of the run.
async fn decided(context: &AgentContext, id: &str) -> Result<Option<String>> {
    let Some((run, _)) = id.rsplit_once('.') else { return Ok(None) };
    let run = LogId::from(run);
    let head = context.run(context.journal.log(&context.tenant, &run)).await?;
    let Some(head) = head else { return Ok(None) };
    if head.gone.is_some() {
        // Fails with an error that names the erased run.
        context.run(context.runner.status(&context.tenant, &run)).await?;
    }
    let is_decision = |event: &RunEvent| match event {
        RunEvent::ToolApproval(event) => {
            *event.id == *id && event.status != ToolApprovalEventStatus::Pending
        }
        RunEvent::UserQuestion(event) => {
            *event.id == *id && event.status != UserQuestionEventStatus::Pending
        }
        _ => false,
    };
    let event = last_event(context, &run, is_decision).await?;
    Ok(event.and_then(|event| sentence(&event, &context.policy)))
}
