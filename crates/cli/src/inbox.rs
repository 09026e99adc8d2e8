//! `throughline inbox`: what waits for a person.

use std::collections::BTreeMap;

use owo_colors::OwoColorize as _;
use throughline_agent::State;
use throughline_core::{
    Json, LogId, Name, Pending, PendingStatus, RedactionPolicy, Store as _, Thoughts, json,
};

use crate::agent::{self, Asks, Hint, House, LOST, Tools, UNTOLD, approvals, questions};
use crate::failure::Failure;
use crate::listing::put_maybe;
use crate::options::{At, Inbox};
use crate::text::{self, minute, one_line, plain, push_line, width};

pub(crate) fn run(options: &Inbox) -> Result<(), Failure> {
    agent::with(&options.at, Asks::Nobody, Tools::default(), async |house| {
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

/// Something that waits for a person, with what is known of it.
struct Waiting {
    pending: Pending,
    /// The tool and its arguments.
    call: Option<(Name, Json)>,
    /// Whether that was begun before, and nobody saw its end.
    is_lost: bool,
    /// What is asked.
    questions: Vec<Json>,
}

async fn waiting(house: &House, run: Option<&LogId>) -> Result<Vec<Waiting>, Failure> {
    if let Some(run) = run {
        house.runner.status(&house.tenant, run).await.map_err(|error| house.failed(error))?;
    }
    let pending = house.journal.pending(&house.tenant, run).await;
    let pending = pending.map_err(|error| house.failed(error.into()))?;
    let mut states: BTreeMap<LogId, Option<State>> = BTreeMap::new();
    let mut waiting = Vec::new();
    for pending in pending.into_iter().filter(|one| one.status == PendingStatus::Open) {
        let log = pending.log.clone();
        let state = match states.remove(&log) {
            Some(state) => state,
            // What waits in a log that is no run of an agent is told by its name alone.
            None => house.runner.state(&house.tenant, &log).await.ok(),
        };
        waiting.push(Waiting::of(pending, state.as_ref(), &house.policy));
        states.insert(log, state);
    }
    Ok(waiting)
}

impl Waiting {
    fn of(pending: Pending, state: Option<&State>, policy: &RedactionPolicy) -> Self {
        let shown = |value: &Json| policy.redact_json(value, Thoughts::Redact).into_owned();
        let approval = state.and_then(|state| approvals(state).find(|one| one.id == pending.id));
        let call = approval.map(|one| (one.tool_name.clone(), shown(&one.args)));
        let question = state.and_then(|state| questions(state).find(|one| one.id == pending.id));
        let asked = question.into_iter().flat_map(|one| &one.questions);
        let questions = asked.map(|asked| shown(&asked.json())).collect();
        let is_lost = state.is_some_and(|state| state.is_lost(&pending.id));
        Self { pending, call, is_lost, questions }
    }

    fn put(&self, o: &mut json::Object<'_>) {
        let Pending { id, kind, log, opened, expires, .. } = &self.pending;
        o.string("id", id).string("kind", kind).string("run", &log.0);
        o.string("opened", &opened.to_string());
        put_maybe(o, "expires", expires.map(|at| at.to_string()).as_deref());
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

    /// What is asked, for people.
    fn words(&self) -> String {
        if let Some((tool, args)) = &self.call {
            return format!("{tool} {}", args.as_str());
        }
        let asked = self.questions.iter().filter_map(|one| one.tree().root().name_of("question"));
        asked.map(|asked| asked.to_string()).collect::<Vec<_>>().join(" ")
    }
}

fn page_of(waiting: &[Waiting], at: &At) -> String {
    if waiting.is_empty() {
        return "nothing waits for anybody\n".to_owned();
    }
    let (hint, wide) = (Hint::new(at, None), width(std::io::stdout()));
    let mut page = String::new();
    for one in waiting {
        let Pending { id, kind, log, opened, expires, .. } = &one.pending;
        let until = expires.map(|at| format!(", until {}", minute(at))).unwrap_or_default();
        let head =
            format!("{} of {}, since {}{until}", plain(kind), plain(&log.0), minute(*opened));
        push_line(&mut page, &format!("{}  {head}", plain(id).bold()));
        push_line(&mut page, &format!("  {}", one_line(&plain(&one.words()), wide - 2)));
        if one.is_lost {
            push_line(&mut page, &format!("  {LOST}: approve runs it again, {UNTOLD}"));
        }
        let command = match &**kind {
            "approval" => format!("{} or reject", hint.command("approve", id)),
            "question" => format!("{} ANSWER", hint.command("answer", id)),
            _ => "its caller returns what the tool says".to_owned(),
        };
        push_line(&mut page, &format!("  {}", command.dimmed()));
    }
    page
}
