//! `throughline inbox`: lists pending questions and approvals.

use std::collections::BTreeMap;

use owo_colors::OwoColorize as _;
use throughline_agent::State;
use throughline_core::{LogId, PendingEntry, PendingStatus, Store as _};
use throughline_json::{self as json, Json, Name};
use throughline_spec::{RedactionPolicy, ThoughtRedaction};

use crate::agent::{
    self, AgentContext, CommandHints, ModelAccess, REJECT_EFFECT, Tools, UNKNOWN_OUTCOME,
    approvals, questions,
};
use crate::args::{Inbox, StoreArgs};
use crate::print::failure::Failure;
use crate::print::text::{self, minute, one_line, plain, push_line, width};

pub(crate) fn run(options: &Inbox) -> Result<(), Failure> {
    agent::with(&options.at, ModelAccess::NoModels, Tools::default(), async |house| {
        let run = options.run.as_deref().map(LogId::from);
        let waiting = waiting(house, run.as_ref()).await?;
        text::answer(
            &options.printing,
            || page_of(&waiting, &options.at),
            || {
                json::object(|o| {
                    o.array("waiting", |list| {
                        for one in &waiting {
                            list.object(|o| one.put(o));
                        }
                    });
                })
            },
        )
    })
}

/// A pending request with its details.
struct InboxEntry {
    pending: PendingEntry,
    /// The tool and its arguments.
    call: Option<(Name, Json)>,
    /// Whether the call was started before and its outcome is unknown.
    is_lost: bool,
    questions: Vec<Json>,
}

async fn waiting(house: &AgentContext, run: Option<&LogId>) -> Result<Vec<InboxEntry>, Failure> {
    if let Some(run) = run {
        house.runner.status(&house.tenant, run).await.map_err(|error| house.to_failure(error))?;
    }
    let pending = house.journal.pending(&house.tenant, run).await;
    let pending = pending.map_err(|error| house.to_failure(error.into()))?;
    let mut states: BTreeMap<LogId, Option<State>> = BTreeMap::new();
    let mut waiting = Vec::new();
    for pending in pending.into_iter().filter(|one| one.status == PendingStatus::Open) {
        let log = pending.log.clone();
        let state = match states.remove(&log) {
            Some(state) => state,
            // A log that is not a run is listed by name only.
            None => house.runner.state(&house.tenant, &log).await.ok(),
        };
        waiting.push(InboxEntry::of(pending, state.as_ref(), &house.policy));
        states.insert(log, state);
    }
    Ok(waiting)
}

impl InboxEntry {
    fn of(pending: PendingEntry, state: Option<&State>, policy: &RedactionPolicy) -> Self {
        let shown = |value: &Json| policy.redact_json(value, ThoughtRedaction::Redact).into_owned();
        let approval = state.and_then(|state| approvals(state).find(|one| one.id == pending.id));
        let call = approval.map(|one| (one.tool_name.clone(), shown(&one.args)));
        let question = state.and_then(|state| questions(state).find(|one| one.id == pending.id));
        let asked = question.into_iter().flat_map(|one| &one.questions);
        let questions = asked.map(|asked| shown(&asked.json())).collect();
        let is_lost = state.is_some_and(|state| state.is_lost(&pending.id));
        Self { pending, call, is_lost, questions }
    }

    fn put(&self, o: &mut json::Object<'_>) {
        let PendingEntry { id, kind, log, opened, expires, .. } = &self.pending;
        o.string("id", id).string("kind", kind).string("run", &log.0);
        o.string("opened", &opened.to_string());
        match expires {
            Some(at) => o.string("expires", &at.to_string()),
            None => o.null("expires"),
        };
        if let Some((tool, args)) = &self.call {
            o.string("tool", tool).raw("args", args);
        }
        if self.is_lost {
            o.string("outcome", "unknown");
        }
        if !self.questions.is_empty() {
            o.array("questions", |list| {
                for question in &self.questions {
                    list.raw(question);
                }
            });
        }
    }

    /// Describes the request for people.
    fn describe(&self) -> String {
        if let Some((tool, args)) = &self.call {
            return format!("{tool} {}", args.as_str());
        }
        let asked = self.questions.iter().filter_map(|one| one.tree().root().name_of("question"));
        asked.map(|asked| asked.to_string()).collect::<Vec<_>>().join(" ")
    }
}

fn page_of(waiting: &[InboxEntry], at: &StoreArgs) -> String {
    if waiting.is_empty() {
        return "there are no pending requests\n".to_owned();
    }
    let (hint, wide) = (CommandHints::new(at, None), width(std::io::stdout()));
    let mut page = String::new();
    for one in waiting {
        let PendingEntry { id, kind, log, opened, expires, .. } = &one.pending;
        let until = expires.map(|at| format!(", until {}", minute(at))).unwrap_or_default();
        let head =
            format!("{} of {}, since {}{until}", plain(kind), plain(&log.0), minute(*opened));
        push_line(&mut page, &format!("{}  {head}", plain(id).bold()));
        push_line(&mut page, &format!("  {}", one_line(&plain(&one.describe()), wide - 2)));
        if one.is_lost {
            push_line(
                &mut page,
                &format!("  {UNKNOWN_OUTCOME}: approving runs it again, {REJECT_EFFECT}"),
            );
        }
        let command = match &**kind {
            "approval" => format!("{} or reject", hint.command("approve", id)),
            "question" => format!("{} ANSWER", hint.command("answer", id)),
            _ => "the client that runs the tool returns its result".to_owned(),
        };
        push_line(&mut page, &format!("  {}", command.dimmed()));
    }
    page
}
