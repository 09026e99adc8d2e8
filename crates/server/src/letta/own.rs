//! What Letta has no word for, under `/v1/throughline/`.

use throughline_agent::{OpenCalls, Snapshot, State, Word, narrate};
use throughline_core::{
    ForkPoint, Json, LogId, LogKind, Name, Node, PendingStatus, PendingUserQuestion, RunEvent,
    SmartState, UserQuestionResolution, UserQuestionStatus, json, unpack,
};

use crate::console::inbox;
use crate::gateway::Answered;
use crate::letta::declared::{self, Overrides};
use crate::letta::denied::Denied;
use crate::letta::messages::{known, may_ask, may_be, rewind as rewind_thread};
use crate::letta::request::RunNote;
use crate::letta::{Asked, Told, runs};

/// The largest page of a journal.
const MOST: usize = 1000;

async fn state_of(asked: &Asked<'_>) -> Result<State, Denied> {
    let known = known(asked, &LogId(asked.id(0))).await?;
    Ok(asked.api.runner.state(&known.tenant, &known.run).await?)
}

/// The documented state, with the conversation as the model is shown it.
pub(crate) async fn state(asked: &Asked<'_>) -> Told {
    let state = state_of(asked).await?;
    Ok(Answered::json(200, &state.smart_state().json()))
}

/// A run as one document, to go on from elsewhere.
pub(crate) async fn snapshot(asked: &Asked<'_>) -> Told {
    let known = known(asked, &LogId(asked.id(0))).await?;
    let runner = &asked.api.runner;
    let snapshot = runner.snapshot(&known.tenant, &known.run).await?;
    let tag = asked.query.get("tag").map(|tag| &**tag);
    let told = snapshot.json(runner.clock.now(), tag);
    let told = told.map_err(|error| Denied::new(500, error.to_string()))?;
    Ok(Answered::json(200, &told))
}

/// Restores a run from a snapshot, as a new run of this store. The document is untrusted input: it gets new names, the tools
/// that its agent was given and no others, and its open calls are approved again. If it names no agent of this tenant, every
/// open call needs an approval.
pub(crate) async fn restore(asked: &Asked<'_>) -> Told {
    let snapshot = Snapshot::parse(&asked.body.root().json());
    let mut snapshot = snapshot.map_err(|error| Denied::new(422, error.to_string()))?;
    let agent = asked.house().agent(&RunNote::of(&snapshot.casting).agent).await?;
    let (runner, open_calls) = match &agent {
        Some(agent) => {
            // An agent of this tenant keeps its own rules; those of the document are ignored.
            let declared = declared::config(agent, None, &Overrides::default())?;
            for config in snapshot.casting.agents.values_mut() {
                let rules = &mut config.human_in_the_loop.approve;
                let declared = declared.human_in_the_loop.approve.iter();
                let missing: Vec<Name> =
                    declared.filter(|rule| !rules.contains(rule)).cloned().collect();
                rules.extend(missing);
            }
            (declared::equipped(&asked.api.runner, &agent.members)?, OpenCalls::ByRules)
        }
        // The document chooses the agent that it names, so an unknown agent must not be a way around the rules of a known one.
        None => (asked.api.runner.clone(), OpenCalls::NeedApproval),
    };
    let key = asked.caller.admission.key_id();
    snapshot.casting.note = Some(RunNote::adopted(&snapshot.casting, key));
    for agent in snapshot.casting.agents.values_mut() {
        asked.api.caps.lower(agent);
        may_be(asked, agent).await?;
    }
    if let Some(model) = &snapshot.progress.model {
        may_ask(asked, model).await?;
    }
    let tenant = &asked.caller.tenant;
    let starting = asked.api.drives.start_run(tenant)?;
    let begun = runner.restore_as_new(tenant, snapshot, open_calls).await?;
    asked.api.drives.drive(tenant, &begun.run);
    drop(starting);
    runs::told(asked, &begun.run).await
}

/// Sees to it that a run goes on: after a stop of the process that had it, or after a decision that was left elsewhere.
pub(crate) async fn resume(asked: &Asked<'_>) -> Told {
    let known = known(asked, &LogId(asked.id(0))).await?;
    let head = asked.api.store().log(&known.tenant, &known.run).await?;
    if !head.as_ref().is_some_and(runs::is_open) {
        return Err(Denied::new(409, format!("run {} is over", known.run)));
    }
    asked.api.drives.drive(&known.tenant, &known.run);
    runs::told(asked, &known.run).await
}

pub(crate) async fn plan(asked: &Asked<'_>) -> Told {
    let state = state_of(asked).await?.smart_state().json();
    let tree = state.tree();
    let plan = tree.root().get("plan").map_or_else(Json::null, Node::json);
    let version = tree.root().get("planVersion").map_or_else(Json::null, Node::json);
    let told = json::object(|o| {
        o.raw("plan", &plan).raw("planVersion", &version);
    });
    Ok(Answered::json(200, &told))
}

pub(crate) async fn reflections(asked: &Asked<'_>) -> Told {
    let state = state_of(asked).await?;
    let all =
        state.smart.reflections.iter().flatten().map(throughline_core::ReflectionRecord::json);
    Ok(Answered::json(200, &json::array_of(&all.collect::<Vec<_>>())))
}

/// The events of a run, each with its number.
async fn events(asked: &Asked<'_>) -> Result<Vec<(u64, Json)>, Denied> {
    let known = known(asked, &LogId(asked.id(0))).await?;
    let query = &asked.query;
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<u64>().ok());
    let after = number("after").unwrap_or(0);
    let limit = number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MOST);
    let (store, tenant, run) = (asked.api.store(), &known.tenant, &known.run);
    let mut place = store.place_of_event(tenant, run, after).await?;
    let mut found = Vec::new();
    while found.len() < limit.min(MOST) {
        let records = store.read(tenant, run, place, 64).await?;
        let Some(last) = records.last() else { break };
        place = last.seq;
        for record in &records {
            let events = unpack(record).unwrap_or_default();
            let events = events.into_iter().filter(|(number, _)| *number > after);
            let read = events.filter_map(|(number, event)| {
                let event = Json::parse(event).ok()?;
                let Some(policy) = &asked.api.policy else { return Some((number, event)) };
                Some((number, policy.redact_run_event(&RunEvent::parse(&event).ok()?)))
            });
            found.extend(read);
        }
    }
    found.truncate(limit.min(MOST));
    Ok(found)
}

pub(crate) async fn journal(asked: &Asked<'_>) -> Told {
    let events = events(asked).await?;
    Ok(Answered::json(200, &numbered(&events)))
}

/// What became of thoughts and seals: the events that tell it.
pub(crate) async fn fates(asked: &Asked<'_>) -> Told {
    let mut events = events(asked).await?;
    events.retain(|(_, event)| matches!(RunEvent::parse(event), Ok(RunEvent::Replay(_))));
    Ok(Answered::json(200, &numbered(&events)))
}

/// What happened in a run and why, in sentences.
pub(crate) async fn narrative(asked: &Asked<'_>) -> Told {
    let known = known(asked, &LogId(asked.id(0))).await?;
    let (store, mut after) = (asked.api.store(), 0);
    let mut events = Vec::new();
    loop {
        let records = store.read(&known.tenant, &known.run, after, 256).await?;
        let Some(last) = records.last() else { break };
        after = last.seq;
        let packed = records.iter().flat_map(|record| unpack(record).unwrap_or_default());
        let read = packed.filter_map(|(_, event)| Json::parse(event).ok());
        events.extend(read.filter_map(|event| RunEvent::parse(&event).ok()));
    }
    let policy = asked.api.policy.as_deref().cloned().unwrap_or_default();
    let told = narrate(&events, &policy);
    let told = json::object(|o| {
        o.string("runId", &known.run.0).string("narrative", &told);
    });
    Ok(Answered::json(200, &told))
}

fn numbered(events: &[(u64, Json)]) -> Json {
    json::array(|list| {
        for (number, event) in events {
            list.object(|o| {
                o.number("event", *number).raw("said", event);
            });
        }
    })
}

/// The questions that wait for a person, of all runs or of one.
pub(crate) async fn questions(asked: &Asked<'_>) -> Told {
    let (store, tenant) = (asked.api.store(), &asked.caller.tenant);
    let run = asked.query.get("run_id").cloned().map(LogId);
    let pending = store.pending(tenant, run.as_ref()).await?;
    let open = |status| status == PendingStatus::Open;
    let mut told = Vec::new();
    for pending in pending.iter().filter(|one| &*one.kind == "question" && open(one.status)) {
        let state = asked.api.runner.state(tenant, &pending.log).await?;
        let questions = state.smart.pending_user_questions.iter().flatten();
        for question in questions.filter(|question| question.id == pending.id) {
            told.push(question_json(question, &pending.log));
        }
    }
    Ok(Answered::json(200, &json::array_of(&told)))
}

fn question_json(question: &PendingUserQuestion, run: &LogId) -> Json {
    let document = question.json();
    let tree = document.tree();
    json::object(|o| {
        o.string("runId", &run.0);
        for (name, value) in tree.root().members() {
            o.node(&name.text().unwrap_or_default(), value);
        }
    })
}

/// Answers a question, and lets its run go on.
pub(crate) async fn answer(asked: &Asked<'_>) -> Told {
    let (id, tenant) = (asked.id(0), &asked.caller.tenant);
    let otid = asked.body.root().name_of("otid");
    let names = otid.map(|otid| Name::from(format!("letta/{id}/answered/{otid}")));
    let names: Vec<Name> = names.into_iter().collect();
    if let Some((run, _)) = asked.api.runner.noted(tenant, &names).await? {
        return answered(asked, &run, &id).await;
    }
    let pending = asked.api.store().pending(tenant, None).await?;
    let found = pending.into_iter().find(|one| one.id == id && &*one.kind == "question");
    let Some(pending) = found else { return Err(no_question(asked, &id).await?) };
    let is_own = |name: Node<'_>| name.is("id") || name.is("otid");
    let resolution = json::object(|o| {
        o.string("id", &id);
        for (name, value) in asked.body.root().members().filter(|(name, _)| !is_own(*name)) {
            o.node(&name.text().unwrap_or_default(), value);
        }
    });
    let resolution = UserQuestionResolution::parse(&resolution);
    let resolution = resolution.map_err(|error| Denied::new(422, error.to_string()))?;
    asked.api.drives.hand().tell(tenant, &pending.log, Word::Answer(resolution)).await?;
    if !names.is_empty() {
        asked.api.runner.note(tenant, &pending.log, &names, &json::object(|_| {})).await?;
    }
    inbox::drive(asked, &pending.log).await?;
    if has_expired(asked, &pending.log, &id).await? {
        // The run expired the question before it read the answer.
        return Err(no_question(asked, &id).await?);
    }
    answered(asked, &pending.log, &id).await
}

/// Whether a run went on because a question was not answered in time.
async fn has_expired(asked: &Asked<'_>, run: &LogId, id: &Name) -> Result<bool, Denied> {
    let state = asked.api.runner.state(&asked.caller.tenant, run).await?;
    let mut questions = state.smart.pending_user_questions.iter().flatten();
    Ok(questions.any(|question| {
        question.id == *id
            && question.status == UserQuestionStatus::Cancelled
            && question.notes.as_deref() == Some("expired")
    }))
}

/// Why a question cannot be answered: it was decided before, or there never was one.
async fn no_question(asked: &Asked<'_>, id: &Name) -> Result<Denied, Denied> {
    let run = id.rsplit_once(".q").map(|(run, _)| LogId::from(run));
    let tenant = &asked.caller.tenant;
    let Some(run) = run.filter(|run| !run.0.is_empty()) else {
        return Ok(Denied::missing("question", id));
    };
    if asked.api.store().log(tenant, &run).await?.is_none_or(|head| !runs::is_run(&head)) {
        return Ok(Denied::missing("question", id));
    }
    let state = asked.api.runner.state(tenant, &run).await?;
    let mut questions = state.smart.pending_user_questions.iter().flatten();
    let known = questions.find(|question| question.id == *id);
    Ok(known.map_or_else(
        || Denied::missing("question", id),
        |question| {
            let status = question.status.as_str();
            Denied::new(409, format!("question {id} no longer waits for an answer: it is {status}"))
        },
    ))
}

/// A question as it stands.
async fn answered(asked: &Asked<'_>, run: &LogId, id: &Name) -> Told {
    let state = asked.api.runner.state(&asked.caller.tenant, run).await?;
    let questions = state.smart.pending_user_questions.iter().flatten();
    let told = questions.into_iter().find(|question| question.id == *id);
    let told = told.map_or_else(
        || {
            json::object(|o| {
                o.string("id", id).string("status", UserQuestionStatus::Executed.as_str());
            })
        },
        |question| question_json(question, run),
    );
    Ok(Answered::json(200, &told))
}

/// The JSON Schema of a document.
pub(crate) fn schema(asked: &Asked<'_>) -> Told {
    let schema = match &*asked.id(0) {
        "run-event" => RunEvent::schema(),
        "smart-state" => SmartState::schema(),
        other => return Err(Denied::missing("schema", other)),
    };
    Ok(Answered::json(200, &schema))
}

/// The record that a body names.
fn record_of(asked: &Asked<'_>, name: &str) -> Option<u64> {
    asked.body.root().present(name).and_then(Node::u64)
}

/// A Thread of this API: an agent's, or a conversation's.
async fn thread_of(asked: &Asked<'_>, id: &Name) -> Result<LogId, Denied> {
    let thread = LogId(id.clone());
    let head = asked.api.store().log(&asked.caller.tenant, &thread).await?;
    let is_thread = head.is_some_and(|head| head.kind == LogKind::Thread);
    if is_thread { Ok(thread) } else { Err(Denied::missing("thread", id)) }
}

/// A conversation that shares a Thread's history up to a record.
pub(crate) async fn fork(asked: &Asked<'_>) -> Told {
    let thread = thread_of(asked, &asked.id(0)).await?;
    let place = asked.place(&thread.0).await?;
    let head = asked.api.store().log(&asked.caller.tenant, &thread).await?;
    let last = head.map_or(0, |head| head.last);
    let at = record_of(asked, "at").unwrap_or(last);
    if at > last {
        return Err(Denied::new(422, format!("{thread} ends at {last}: fork it there or before")));
    }
    let members = place.conversation.map(|kept| kept.members).unwrap_or_default();
    let id = asked.api.fresh("conv");
    let point = ForkPoint { log: thread.clone(), at };
    asked.house().create_conversation(&place.agent.id, &id, &members, Some(point)).await?;
    let told = json::object(|o| {
        o.string("id", &id).object("forked_from", |o| {
            o.string("thread", &thread.0).number("at", at);
        });
    });
    Ok(Answered::json(200, &told))
}

/// Lets a Thread go on from an earlier record. What was said after it stays in the history, and the rewind is a record of its own.
pub(crate) async fn rewind(asked: &Asked<'_>) -> Told {
    let thread = thread_of(asked, &asked.id(0)).await?;
    let to = record_of(asked, "to").ok_or_else(|| Denied::new(422, "to: name a record"))?;
    // Somebody else's log is no Thread of an agent's.
    asked.place(&thread.0).await?;
    let at = rewind_thread(asked, &thread, to).await?;
    let told = json::object(|o| {
        o.string("id", &thread.0).object("rewound", |o| {
            o.number("at", at).number("to", to);
        });
    });
    Ok(Answered::json(200, &told))
}
