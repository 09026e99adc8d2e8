//! `throughline answer`, `approve`, `reject` and `cancel`: a word for a run, wherever it is.

use throughline_agent::{State, Word, sentence};
use throughline_core::{
    Json, LogId, Name, PendingStatus, RunEvent, Store as _, ToolApprovalEventStatus,
    ToolApprovalResolution, UserQuestionEventStatus, UserQuestionResolution,
};

use crate::agent::{self, Asks, Hint, House, Tools, answers, last_event, questions};
use crate::failure::Failure;
use crate::options::{Answer, Approve, At, Cancel, Deciding, Reject};
use crate::text::{self, mark, plain};

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

fn decide(options: &Deciding, approved: bool, args: Option<Json>) -> Result<(), Failure> {
    let id = options.id.as_str();
    word_for(&options.at, id, "approval", |_, _| {
        let mut resolution = ToolApprovalResolution::new(id.into(), approved);
        resolution.approved_args = args;
        resolution.comment = options.comment.as_deref().map(Name::from);
        resolution.decided_by = options.by.as_deref().map(Name::from);
        Ok(Word::Decide(resolution))
    })
}

pub(crate) fn answer(options: &Answer) -> Result<(), Failure> {
    let id = options.id.as_str();
    word_for(&options.at, id, "question", |state, id| {
        let mut resolution = UserQuestionResolution::new(id.clone());
        resolution.answered_by = options.by.as_deref().map(Name::from);
        resolution.notes = options.notes.as_deref().map(Name::from);
        if options.cancel {
            resolution.cancelled = Some(true);
        } else if let Some(question) = questions(state).find(|one| one.id == *id) {
            resolution.answers = Some(answers(question, &options.answers)?);
        }
        Ok(Word::Answer(resolution))
    })
}

pub(crate) fn cancel(options: &Cancel) -> Result<(), Failure> {
    agent::with(&options.at, Asks::Nobody, Tools::default(), async |house| {
        let run = LogId::from(options.run.as_str());
        let word = Word::Cancel(options.reason.as_deref().map(Name::from));
        let told = house.runner.tell(&house.tenant, &run, word).await;
        told.map_err(|error| house.failed(error))?;
        text::write_styled(&format!("{} {} is cancelled\n", mark(true), plain(&run.0)))
    })
}

/// Finds what waits, and tells its run a word about it.
fn word_for(
    at: &At,
    id: &str,
    kind: &str,
    make: impl FnOnce(&State, &Name) -> Result<Word, Failure>,
) -> Result<(), Failure> {
    agent::with(at, Asks::Nobody, Tools::default(), async |house| {
        let run = waiting(house, id, kind).await?;
        let state = house.runner.state(&house.tenant, &run).await;
        let state = state.map_err(|error| house.failed(error))?;
        let word = make(&state, &Name::from(id))?;
        let told = house.runner.tell(&house.tenant, &run, word).await;
        told.map_err(|error| house.failed(error))?;
        let hint = Hint::new(at, None).resume(&run.0);
        text::write_styled(&format!(
            "{} {} knows; `{hint}` goes on with it\n",
            mark(true),
            plain(&run.0)
        ))
    })
}

/// The run that waits for it.
async fn waiting(house: &House, id: &str, kind: &str) -> Result<LogId, Failure> {
    let pending = house.journal.pending(&house.tenant, None).await;
    let pending = pending.map_err(|error| house.failed(error.into()))?;
    let found = pending.into_iter().find(|pending| *pending.id == *id);
    let before = if found.is_none() { decided(house, id).await? } else { None };
    let id = plain(id);
    let inbox = "`throughline inbox` shows what waits";
    match found {
        None => Err(Failure::Usage(match before {
            Some(told) => format!("{id} was decided before: {}", plain(&told)),
            None => format!("nothing of the name {id} waits: {inbox}"),
        })),
        Some(found) if *found.kind != *kind => {
            let (is, command) = match &*found.kind {
                "approval" => ("an approval", "`throughline approve` or `throughline reject`"),
                "question" => ("a question", "`throughline answer`"),
                _ => ("a tool of its caller's", "whoever runs the tool"),
            };
            Err(Failure::Usage(format!("{id} is {is}: it takes {command}")))
        }
        Some(found) => match found.status {
            PendingStatus::Open => Ok(found.log),
            PendingStatus::Taken => {
                Err(Failure::Usage(format!("{id} was decided before: {inbox}")))
            }
            PendingStatus::Expired => {
                Err(Failure::Usage(format!("{id} has expired, and nobody can decide it any more")))
            }
        },
    }
}

/// What was said to something that waits no longer. Its name begins with its run's.
async fn decided(house: &House, id: &str) -> Result<Option<String>, Failure> {
    let Some((run, _)) = id.rsplit_once('.') else { return Ok(None) };
    let run = LogId::from(run);
    let head = house.journal.log(&house.tenant, &run).await;
    if head.map_err(|error| house.failed(error.into()))?.is_none() {
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
