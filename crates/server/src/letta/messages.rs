//! Saying something to an agent, and what was said.

use std::time::Duration;

use throughline_agent::{AgentConfig, Casting, RunError, Start, Word};
use throughline_core::{Append, Batch, Json, LogHead, LogId, Name, Node, StoreError, json};

use crate::gateway::Answered;
use crate::letta::decisions;
use crate::letta::declared;
use crate::letta::denied::Denied;
use crate::letta::kept::{House, Kept};
use crate::letta::listing::{Listing, Paging};
use crate::letta::project::Known;
use crate::letta::request::{RunNote, SayRequest};
use crate::letta::stream::{From, Telling};
use crate::letta::{Asked, Told, runs, shapes};

/// How long a cancellation waits for the process that drives the run.
const CANCEL_WAIT: Duration = Duration::from_secs(1);

/// How an answer is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Whole, unless the request says otherwise.
    Whole,
    /// As a stream.
    Stream,
    /// As a stream, unless the request says otherwise.
    Conversation,
    /// Not at all: only the run is told.
    Later,
}

/// An agent, and the conversation with it that is meant.
pub(crate) struct Place {
    pub(crate) agent: Kept,
    pub(crate) conversation: Option<Kept>,
    pub(crate) thread: LogId,
}

impl Asked<'_> {
    pub(crate) fn house(&self) -> House<'_> {
        House { store: self.api.store(), tenant: &self.caller.tenant }
    }

    pub(crate) async fn agent(&self, id: &str) -> Result<Kept, Denied> {
        let found = self.house().agent(id).await?;
        found.ok_or_else(|| Denied::missing("agent", id))
    }

    /// Where a path points to: an agent's own Thread, or a conversation's. `default` is the agent's that is named beside it.
    pub(crate) async fn place(&self, id: &str) -> Result<Place, Denied> {
        let named = self.body.root().name_of("agent_id");
        let named = named.or_else(|| self.query.get("agent_id").cloned());
        let id = match (id, named) {
            ("default", Some(agent)) => agent,
            ("default", None) => {
                return Err(Denied::new(422, "agent_id: say whose default conversation is meant"));
            }
            (id, _) => Name::from(id),
        };
        if let Some(agent) = self.house().agent(&id).await? {
            let other = self.query.get("conversation_id").filter(|other| &***other != "default");
            let Some(other) = other else {
                let thread = agent.thread();
                return Ok(Place { agent, conversation: None, thread });
            };
            return self.conversation(&other.clone()).await;
        }
        self.conversation(&id).await
    }

    /// Whether the agent of a run is still there, and its conversation. What was deleted takes its runs with it.
    pub(crate) async fn is_there(&self, casting: &Casting, thread: &LogId) -> Result<bool, Denied> {
        let note = RunNote::of(casting);
        if note.adopted || !RunNote::is_in(casting) {
            return Ok(true);
        }
        let Some(agent) = self.house().agent(&note.agent).await? else { return Ok(false) };
        let is_own = agent.thread() == *thread;
        Ok(is_own || self.house().conversation(&thread.0).await?.is_some())
    }

    pub(crate) async fn conversation(&self, id: &str) -> Result<Place, Denied> {
        let missing = || Denied::missing("conversation", id);
        let conversation = self.house().conversation(id).await?.ok_or_else(missing)?;
        let agent = conversation.agent.clone().unwrap_or_default();
        let agent = self.house().agent(&agent).await?.ok_or_else(missing)?;
        let thread = conversation.thread();
        Ok(Place { agent, conversation: Some(conversation), thread })
    }
}

/// Says something, or decides what a run waits for.
pub(crate) async fn say(asked: &Asked<'_>, how: How) -> Told {
    let request = SayRequest::parse(asked.body.root())?;
    let place = asked.place(&asked.id(0)).await?;
    let tenant = &asked.caller.tenant;
    // A new run has a place in its tenant's share from here on, and a run that waited takes its turn.
    let (run, event, starting) = if request.decisions.is_empty() {
        let starting = asked.api.drives.start_run(tenant)?;
        (begin(asked, &place, &request).await?, 0, Some(starting))
    } else {
        let (run, event) = decide(asked, &place, &request).await?;
        (run, event, None)
    };
    let head = asked.api.store().log(tenant, &run).await?;
    // Where something else is still to be decided, nothing goes on.
    if head.is_some_and(|head| head.status.as_deref() != Some("waiting")) {
        asked.api.drives.drive(tenant, &run);
    }
    drop(starting);
    if how == How::Later {
        return runs::told(asked, &run).await;
    }
    let known = known(asked, &run).await?;
    let wishes = request.wishes;
    let from = From { seq_id: 0, event };
    let telling = Telling { known, from, pings: wishes.pings, types: wishes.types };
    let streams = match how {
        How::Stream => true,
        How::Conversation => wishes.streaming.unwrap_or(true),
        How::Whole | How::Later => wishes.streaming.unwrap_or(false),
    };
    if streams {
        return Ok(asked.api.stream(telling));
    }
    Ok(Answered::json(200, &asked.api.whole(telling).await?))
}

/// Tells the run that waits what was decided: the run, and its number of events before that. What was decided before under
/// the same names is not told again.
async fn decide(
    asked: &Asked<'_>,
    place: &Place,
    request: &SayRequest,
) -> Result<(LogId, u64), Denied> {
    let (runner, tenant) = (&asked.api.runner, &asked.caller.tenant);
    let names = request.decided_once(&place.thread.0);
    if let Some((run, note)) = runner.noted(tenant, &names).await? {
        let tree = note.tree();
        must_be_same(tree.root().name_of("digest").as_ref(), request, &run)?;
        let event = tree.root().get("event").and_then(Node::u64);
        return Ok((run, event.unwrap_or(0)));
    }
    let head = waiting(asked, place).await?;
    let event = decisions::tell(asked, &head, &request.decisions).await?;
    if !names.is_empty() {
        let note = json::object(|o| {
            o.number("event", event).string("digest", &request.digest());
        });
        runner.note(tenant, &head.log, &names, &note).await?;
    }
    Ok((head.log, event))
}

/// Begins a run, or finds the one that the same request began.
async fn begin(asked: &Asked<'_>, place: &Place, request: &SayRequest) -> Result<LogId, Denied> {
    let most = asked.api.caps.max_steps;
    if let Some(steps) = request.overrides.steps.filter(|steps| *steps > most) {
        let message =
            format!("max_steps: {steps} is more than this server allows: send at most {most}");
        return Err(Denied::new(422, message));
    }
    let mut config =
        declared::config(&place.agent, place.conversation.as_ref(), &request.overrides)?;
    asked.api.caps.lower(&mut config);
    may_be(asked, &config).await?;
    let runner = declared::equipped(&asked.api.runner, &place.agent.members)?;
    let key = asked.caller.admission.key_id();
    let mut casting = Casting::solo(config, request.client_tools.clone());
    casting.note = Some(request.note(&place.agent.id, key));
    let start = Start {
        tenant: asked.caller.tenant.clone(),
        thread: Some(place.thread.clone()),
        casting,
        said: request.said.clone(),
        once: request.once(&place.thread.0),
    };
    match runner.begin(start).await {
        Ok(begun) => {
            if begun.repeated {
                let (casting, _) =
                    asked.api.runner.progress(&asked.caller.tenant, &begun.run).await?;
                must_be_same(RunNote::of(&casting).digest.as_ref(), request, &begun.run)?;
            }
            Ok(begun.run)
        }
        Err(RunError::Busy { run, status }) => Err(busy(asked, place, &LogId(run), &status).await?),
        // Somebody else began a run on the same Thread at the same moment.
        Err(RunError::Store(StoreError::Conflict { .. })) => {
            let newest = asked.newest_run(&place.thread).await?;
            let run = newest.map_or_else(|| LogId::from(""), |head| head.log);
            Err(busy(asked, place, &run, "running").await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that a request under otids that were used before says the same as then. Older runs do not know what that was.
fn must_be_same(before: Option<&Name>, request: &SayRequest, run: &LogId) -> Result<(), Denied> {
    if before.is_none_or(|before| *before == request.digest()) {
        return Ok(());
    }
    let otids: Vec<&str> = request.otids.iter().flatten().map(|otid| &**otid).collect();
    let message = format!(
        "otid {} was used before with other content, for run {run}: send new content under a new otid",
        otids.join(", ")
    );
    Err(Denied::new(409, message))
}

/// A run is in the way, and is named.
async fn busy(
    asked: &Asked<'_>,
    place: &Place,
    run: &LogId,
    status: &str,
) -> Result<Denied, Denied> {
    let (tenant, runner) = (&asked.caller.tenant, &asked.api.runner);
    if status == "waiting" {
        let state = runner.state(tenant, run).await?;
        let pending = decisions::request_id(&state);
        let message = format!(
            "run {run} waits for a decision on {pending}: approve or deny it, return what its tool returned, or cancel the run"
        );
        return Ok(Denied::pending(&run.0, &pending, &message));
    }
    let message = format!("run {run} is at work in this conversation: wait for it, or cancel it");
    Ok(Denied::busy(&place.thread.0, &run.0, &message))
}

/// Whether the caller's key may have an agent like that: it must be allowed every model that the agent may ask.
pub(crate) async fn may_be(asked: &Asked<'_>, config: &AgentConfig) -> Result<(), Denied> {
    for model in config.models() {
        may_ask(asked, model).await?;
    }
    Ok(())
}

/// Whether the caller's key may ask for a model, and has something left for it.
pub(crate) async fn may_ask(asked: &Asked<'_>, model: &str) -> Result<(), Denied> {
    let admission = &asked.caller.admission;
    if !admission.allows(model) {
        return Err(Denied::new(403, format!("this key may not ask for the model {model}")));
    }
    if !admission.has_budget() {
        return Ok(());
    }
    let reached = asked.gateway.directory.reach(model).map_err(|error| Denied::new(422, error))?;
    Ok(asked.gateway.operations.meter.allow(admission, &reached).await?)
}

/// The run that waits for somebody.
async fn waiting(asked: &Asked<'_>, place: &Place) -> Result<LogHead, Denied> {
    let newest = asked.newest_run(&place.thread).await?;
    newest.ok_or_else(|| {
        let message = format!("nothing in {} waits for a decision", place.thread);
        Denied::new(409, message)
    })
}

/// What is known of a run before its events are read.
pub(crate) async fn known(asked: &Asked<'_>, run: &LogId) -> Result<Known, Denied> {
    let tenant = asked.caller.tenant.clone();
    let missing = || Denied::missing("run", &run.0);
    let head = asked.api.store().log(&tenant, run).await?.filter(runs::is_run);
    let head = head.ok_or_else(missing)?;
    let (casting, progress) = asked.api.runner.progress(&tenant, run).await?;
    let thread = head.of.ok_or_else(missing)?;
    if !asked.is_there(&casting, &thread).await? {
        return Err(missing());
    }
    Ok(Known {
        tenant,
        run: run.clone(),
        thread,
        note: RunNote::of(&casting),
        casting,
        from: progress.from,
    })
}

/// The messages of an agent or a conversation, page by page.
pub(crate) async fn list(asked: &Asked<'_>) -> Told {
    let place = asked.place(&asked.id(0)).await?;
    let paging = Paging::of(&asked.query, 100)?;
    let mut listing = Listing::new(&asked.api.runner, &asked.caller.tenant, &place.thread);
    let page = listing.page(&paging).await?;
    Ok(Answered::json(200, &json::array_of(&page)))
}

/// Stops the runs of an agent or a conversation: those that are named, or the one that is on.
pub(crate) async fn cancel(asked: &Asked<'_>) -> Told {
    let place = asked.place(&asked.id(0)).await?;
    let named = asked.body.root().present("run_ids");
    let named: Vec<Name> =
        named.into_iter().flat_map(Node::elements).filter_map(Node::name).collect();
    let mut threads = vec![place.thread.clone()];
    if place.conversation.is_none() {
        threads.extend(place.agent.conversations.iter().cloned().map(LogId));
    }
    let mut ended: Vec<(Name, Name)> = Vec::new();
    if named.is_empty() {
        for thread in &threads {
            let newest = asked.newest_run(thread).await?.filter(runs::is_open);
            if let Some(head) = newest {
                ended.push((head.log.0.clone(), stop(asked, &head.log).await));
            }
        }
    } else {
        for run in named {
            let known = known(asked, &LogId(run.clone())).await?;
            if !threads.contains(&known.thread) {
                return Err(Denied::missing("run", &run));
            }
            ended.push((run, stop(asked, &known.run).await));
        }
    }
    let said: Vec<(Name, Json)> =
        ended.into_iter().map(|(run, how)| (run, json::string(&how))).collect();
    let said = json::object_of(said.iter().map(|(run, how)| (&**run, how)));
    Ok(Answered::json(200, &said))
}

/// Stops what is on in a Thread.
pub(crate) async fn stop_all(asked: &Asked<'_>, thread: &LogId) -> Result<(), Denied> {
    if let Some(head) = asked.newest_run(thread).await?.filter(runs::is_open) {
        stop(asked, &head.log).await;
    }
    Ok(())
}

/// Stops a run, and says what came of it.
async fn stop(asked: &Asked<'_>, run: &LogId) -> Name {
    let tenant = &asked.caller.tenant;
    let hand = asked.api.drives.hand();
    // A holder that is gone does not answer: the next holder of the run cancels it.
    match hand.tell_within(tenant, run, Word::Cancel(None), CANCEL_WAIT).await {
        Ok(()) => Name::from("cancelled"),
        Err(error) => Name::from(format!("failed: {error}")),
    }
}

/// Lets an agent begin again: its Thread goes on from before its first message.
pub(crate) async fn reset(asked: &Asked<'_>) -> Told {
    let agent = asked.agent(&asked.id(0)).await?;
    rewind(asked, &agent.thread(), 0).await?;
    shapes::agent(asked, &agent).await
}

/// Lets a Thread go on from an earlier record, if no run is on it.
pub(crate) async fn rewind(asked: &Asked<'_>, thread: &LogId, to: u64) -> Result<u64, Denied> {
    if let Some(head) = asked.newest_run(thread).await?.filter(runs::is_open) {
        let message = format!("run {} is on in this conversation: cancel it first", head.log);
        return Err(Denied::busy(&thread.0, &head.log.0, &message));
    }
    let tenant = &asked.caller.tenant;
    let head = asked.api.store().log(tenant, thread).await?;
    let head = head.ok_or_else(|| Denied::missing("thread", &thread.0))?;
    if to > head.last {
        return Err(Denied::new(
            422,
            format!("{thread} ends at {}: rewind it to there or before", head.last),
        ));
    }
    let mut append = Append::to(thread.clone()).expecting(head.last);
    append.rewind_to = Some(to);
    let receipt = asked.api.store().commit(Batch::of(tenant.clone()).append(append)).await?;
    Ok(receipt.written.first().map_or(head.last, |written| written.last))
}
