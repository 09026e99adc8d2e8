//! Runs: listed, shown, read, followed.

use throughline_agent::Phase;
use throughline_core::{
    Follow, Json, LogHead, LogId, Name, Node, ReflectionUsage, RunEvent, StoreError, json, unpack,
};

use crate::gateway::Answered;
use crate::letta::denied::Denied;
use crate::letta::listing::Paging;
use crate::letta::messages::known;
use crate::letta::project::{Known, Projector, Step, rest};
use crate::letta::request::RunNote;
use crate::letta::stream::{From, Telling};
use crate::letta::union::{Letter, date};
use crate::letta::{Asked, Told, shapes};

/// How many logs are looked at for each run that is wanted: a run has an inbox beside it.
const LOGS: u32 = 4;

/// Whether a log is a run's own.
pub(crate) fn is_run(head: &LogHead) -> bool {
    head.status.is_some() && head.of.is_some()
}

/// Whether a run is not over.
pub(crate) fn is_open(head: &LogHead) -> bool {
    matches!(head.status.as_deref(), Some("running" | "waiting"))
}

/// The runs of a Thread, the newest first: no more than that many, older than that one.
pub(crate) async fn heads(
    asked: &Asked<'_>,
    thread: &LogId,
    before: Option<&LogId>,
    most: usize,
) -> Result<Vec<LogHead>, Denied> {
    let (tenant, mut before) = (&asked.caller.tenant, before.cloned());
    let limit = u32::try_from(most).unwrap_or(u32::MAX / LOGS).saturating_mul(LOGS).max(16);
    let mut found = Vec::new();
    while found.len() < most {
        let page = asked.api.store().runs_of(tenant, thread, before.as_ref(), limit).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.log.clone());
        found.extend(page.into_iter().filter(is_run));
    }
    found.truncate(most);
    Ok(found)
}

/// Why a run stopped, in Letta's words; nothing while it is at work.
pub(crate) async fn stop_reason(
    asked: &Asked<'_>,
    head: &LogHead,
) -> Result<Option<&'static str>, Denied> {
    let (_, progress) = asked.api.runner.progress(&asked.caller.tenant, &head.log).await?;
    Ok(reason_of(head, &progress.phase))
}

fn reason_of(head: &LogHead, phase: &Phase) -> Option<&'static str> {
    let reason = match phase {
        Phase::Ended { reason, .. } => &**reason,
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => "",
    };
    rest(head.status.as_deref()?, reason).map(|rest| rest.reason)
}

/// A run, as Letta shows it. One that waits has completed what it could, as in Letta.
async fn run_json(asked: &Asked<'_>, head: &LogHead) -> Result<Json, Denied> {
    let (casting, progress) = asked.api.runner.progress(&asked.caller.tenant, &head.log).await?;
    let note = RunNote::of(&casting);
    let status = match head.status.as_deref() {
        Some("waiting" | "completed") => "completed",
        Some("failed") => "failed",
        Some("cancelled") => "cancelled",
        _ => "running",
    };
    let reason = reason_of(head, &progress.phase);
    let thread = head.of.as_ref().map(|of| &*of.0).filter(|of| **of != *note.agent);
    let is_over = !matches!(head.status.as_deref(), Some("running"));
    Ok(json::object(|o| {
        o.string("id", &head.log.0).string("agent_id", &note.agent).string("status", status);
        o.bool("background", note.background).string("created_at", &date(head.created));
        o.maybe_string("conversation_id", thread).maybe_string("stop_reason", reason);
        if is_over {
            o.string("completed_at", &date(head.updated));
        }
        o.object("metadata", |o| {
            o.maybe_string("throughline_status", head.status.as_deref());
        });
    }))
}

/// The run, told.
pub(crate) async fn told(asked: &Asked<'_>, run: &LogId) -> Told {
    let head = asked.api.store().log(&asked.caller.tenant, run).await?.filter(is_run);
    let head = head.ok_or_else(|| Denied::missing("run", &run.0))?;
    Ok(Answered::json(200, &run_json(asked, &head).await?))
}

pub(crate) async fn retrieve(asked: &Asked<'_>) -> Told {
    let known = known(asked, &LogId(asked.id(0))).await?;
    told(asked, &known.run).await
}

/// The runs of an agent, a conversation, or all agents.
pub(crate) async fn list(asked: &Asked<'_>) -> Told {
    let paging = Paging::of(&asked.query, 50)?;
    let query = &asked.query;
    let mut agents = query.all("agent_ids");
    agents.extend(query.get("agent_id").cloned());
    if agents.is_empty() {
        agents = asked.house().agents().await?;
    }
    let conversation = query.get("conversation_id");
    let mut threads = Vec::new();
    for id in &agents {
        let Some(agent) = asked.house().agent(id).await? else { continue };
        threads.push(agent.thread());
        threads.extend(agent.conversations.into_iter().map(LogId));
    }
    threads.retain(|thread| conversation.is_none_or(|wanted| thread.0 == *wanted));
    let mut all = Vec::new();
    for thread in &threads {
        all.extend(heads(asked, thread, None, usize::MAX).await?);
    }
    all.sort_by(|one, other| (one.created, &one.log).cmp(&(other.created, &other.log)));
    let statuses = query.all("statuses");
    let is_active = query.is("active") == Some(true);
    let (wanted, background) = (query.get("stop_reason"), query.is("background"));
    let mut shown = Vec::with_capacity(all.len());
    for head in all {
        let told = run_json(asked, &head).await?;
        shown.push((head, told));
    }
    let fits = |(head, told): &(LogHead, Json)| {
        let tree = told.tree();
        let has =
            |key: &str, wanted: &str| tree.root().get(key).is_some_and(|value| value.is(wanted));
        let is_on = !is_active || head.status.as_deref() == Some("running");
        let is_status = statuses.is_empty() || statuses.iter().any(|wanted| has("status", wanted));
        let is_reason = wanted.is_none_or(|wanted| has("stop_reason", wanted));
        let is_background = background.is_none_or(|wanted| {
            tree.root().get("background").and_then(Node::bool) == Some(wanted)
        });
        is_on && is_status && is_reason && is_background
    };
    let page = paging.cut(shown, |(head, _), id| *head.log.0 == *id, fits)?;
    Ok(shapes::list(200, &page.into_iter().map(|(_, told)| told).collect::<Vec<_>>()))
}

/// All that a run told so far.
struct Heard {
    letters: Vec<Letter>,
    steps: Vec<Step>,
    usage: Json,
}

async fn heard(asked: &Asked<'_>, known: Known) -> Result<Heard, StoreError> {
    let (tenant, run) = (known.tenant.clone(), known.run.clone());
    let last = asked.api.store().log(&tenant, &run).await?.map_or(0, |head| head.events);
    let mut projector = Projector::new(asked.api.store(), known, false).with_users();
    let mut follow = Follow::new(asked.api.store(), tenant, run, 0);
    let (mut letters, mut read) = (Vec::new(), 0);
    while read < last {
        for record in &follow.next().await? {
            for (number, event) in unpack(record).unwrap_or_default() {
                read = number;
                let event = Json::parse(event).ok().and_then(|event| RunEvent::parse(&event).ok());
                let Some(event) = event else { continue };
                letters.extend(projector.tell(&event, record.at).await?.letters);
            }
        }
    }
    let (steps, usage) = (projector.steps().to_vec(), projector.used());
    Ok(Heard { letters, steps, usage })
}

pub(crate) async fn messages(asked: &Asked<'_>) -> Told {
    // A run is read from its beginning, unless the query says otherwise.
    let paging = Paging::in_order(&asked.query, 100)?;
    let known = known(asked, &LogId(asked.id(0))).await?;
    let mut letters = heard(asked, known).await?.letters;
    letters.retain(|letter| letter.kind.ends_with("_message") && letter.kind != "error_message");
    let page = paging.cut(letters, |letter, id| *letter.id == *id, |_| true)?;
    Ok(shapes::list(200, &page.iter().map(|letter| letter.json(None)).collect::<Vec<_>>()))
}

pub(crate) async fn steps(asked: &Asked<'_>) -> Told {
    let paging = Paging::of(&asked.query, 100)?;
    let known = known(asked, &LogId(asked.id(0))).await?;
    let (agent, run) = (known.note.agent.clone(), known.run.0.clone());
    let steps = heard(asked, known).await?.steps;
    let page = paging.cut(steps, |step, id| *step.id == *id, |_| true)?;
    let told: Vec<Json> = page.iter().map(|step| step_json(step, &agent, &run)).collect();
    Ok(shapes::list(200, &told))
}

fn step_json(step: &Step, agent: &str, run: &str) -> Json {
    let ReflectionUsage { input_tokens, output_tokens, total_tokens, reasoning_tokens, .. } =
        &step.usage;
    json::object(|o| {
        o.string("id", &step.id).string("agent_id", agent).string("run_id", run);
        o.maybe_string("model", step.model.as_deref());
        o.maybe_string("model_handle", step.model.as_deref());
        o.string("status", step.status);
        o.number("prompt_tokens", input_tokens.unwrap_or(0));
        o.number("completion_tokens", output_tokens.unwrap_or(0));
        o.number("total_tokens", total_tokens.unwrap_or(0));
        if let Some(thought) = reasoning_tokens {
            o.number("reasoning_tokens", *thought);
        }
        o.maybe_string(
            "stop_reason",
            (step.reason.as_deref() == Some("done")).then_some("end_turn"),
        );
        o.array("tags", |_| {}).array("messages", |_| {});
    })
}

/// What a run used, as OpenAI counts it.
pub(crate) async fn usage(asked: &Asked<'_>) -> Told {
    let known = known(asked, &LogId(asked.id(0))).await?;
    let usage = heard(asked, known).await?.usage;
    let tree = usage.tree();
    let number = |key: &str| tree.root().get(key).and_then(Node::u64).unwrap_or(0);
    let told = json::object(|o| {
        for key in ["completion_tokens", "prompt_tokens", "total_tokens"] {
            o.number(key, number(key));
        }
        o.object("prompt_tokens_details", |o| {
            o.number("cached_tokens", number("cached_input_tokens"));
        });
        o.object("completion_tokens_details", |o| {
            o.number("reasoning_tokens", number("reasoning_tokens"));
        });
    });
    Ok(Answered::json(200, &told))
}

/// Follows a run from any message on.
pub(crate) async fn stream(asked: &Asked<'_>) -> Told {
    follow(asked, LogId(asked.id(0))).await
}

/// Follows a run, as the body or the query says.
pub(crate) async fn follow(asked: &Asked<'_>, run: LogId) -> Told {
    let known = known(asked, &run).await?;
    let root = asked.body.root();
    let after = root.present("starting_after").and_then(Node::u64);
    let after = after.or_else(|| asked.query.get("starting_after")?.parse().ok());
    let pings = root.present("include_pings").and_then(Node::bool);
    let pings = pings.or_else(|| asked.query.is("include_pings")).unwrap_or(true);
    let from = From { seq_id: after.unwrap_or(0), event: 0 };
    Ok(asked.api.stream(Telling { known, from, pings, types: Vec::<Name>::new() }))
}
