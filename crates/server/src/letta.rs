//! The agent API: durable agents over HTTP, in Letta's shapes and under Letta's paths, so that Letta's own clients work as they are.
//!
//! An agent's messages are one Thread, which has the agent's id; each conversation is a further Thread, which has the
//! conversation's. Beside each Thread lies a log that says what it is ([`kept`]). A run is driven by a task of this process
//! and read from the store, so a reader at any process follows any run.
//!
//! | file | holds |
//! |---|---|
//! | `routes.rs` | which paths there are, and which of them another dialect has too |
//! | `kept.rs` | agents and conversations as they are kept |
//! | `agents.rs`, `conversations.rs`, `messages.rs`, `runs.rs` | what can be asked of each |
//! | `own.rs` | what Letta has no word for, under `/v1/throughline/` |
//! | `request.rs`, `decisions.rs` | messages that come in: words for the model, and decisions for a run that waits |
//! | `declared.rs` | an agent as Letta declares it, as ours |
//! | `shapes.rs` | what goes out: agents, conversations, runs, steps, pages |
//! | `project.rs`, `union.rs`, `reader.rs` | a run's events as Letta's messages; each message; Items as the events name them |
//! | `listing.rs` | the messages of a Thread, page by page |
//! | `stream.rs` | a run, followed: as server-sent events, or to its end |
//! | `drives.rs`, `sweep.rs` | the tasks that drive runs; those that nobody is at are taken up |
//! | `permits.rs` | the check of a run's key before every model call |
//! | `redact.rs` | what a policy leaves out of all that is shown |
//! | `denied.rs` | why there is no answer, in Letta's shape |
//! | `openapi.rs`, `takes.rs`, `gives.rs` | all of that as an `OpenAPI` document |

mod agents;
mod conversations;
mod decisions;
mod declared;
mod denied;
mod drives;
mod gives;
#[cfg(test)]
#[path = "letta/growth_tests.rs"]
mod growth_tests;
mod kept;
mod listing;
mod messages;
mod openapi;
mod own;
mod permits;
mod project;
mod query;
pub(crate) mod reader;
pub(crate) mod redact;
mod request;
mod routes;
pub(crate) mod runs;
mod shapes;
mod stream;
mod sweep;
mod takes;
mod union;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_agent::Runner;
use throughline_core::{Archive, LogHead, LogId, Name, RedactionPolicy, Store, Tree};

use crate::console::journal::Proofs;
use crate::console::{self, RunTraces, Summaries};
use crate::exchange::Caller;
use crate::gateway::{Answered, Gateway};

pub(crate) use crate::letta::denied::Denied;
use crate::letta::drives::Drives;
pub use crate::letta::drives::RunCaps;
pub use crate::letta::openapi::document as openapi;
pub(crate) use crate::letta::openapi::page;
pub(crate) use crate::letta::permits::Accounts;
use crate::letta::query::Query;
pub(crate) use crate::letta::query::{decode_query, decode_segment};
use crate::letta::routes::Op;
pub(crate) use crate::letta::routes::{Found, find};
pub use crate::letta::routes::{Route, routes};

/// How often a stream on which nothing happens says that it is still there.
const PING: Duration = Duration::from_secs(5);

/// Agents over HTTP.
pub struct AgentApi {
    pub(crate) runner: Runner,
    pub(crate) drives: Arc<Drives>,
    pub(crate) caps: RunCaps,
    pub(crate) ping: Duration,
    /// What is kept, for the console to look at.
    pub(crate) archive: Option<Arc<dyn Archive>>,
    /// Who makes traces, for the console to show.
    pub(crate) traces: Option<Arc<dyn RunTraces>>,
    pub(crate) summaries: Summaries,
    /// Proofs of the journal that are under way.
    pub(crate) proofs: Proofs,
    /// What whoever asks is not shown.
    pub(crate) policy: Option<Arc<RedactionPolicy>>,
}

impl AgentApi {
    /// Agents that this runner runs.
    pub fn new(runner: Runner) -> Self {
        let caps = RunCaps::default();
        let drives = Arc::new(Drives::new(runner.clone(), caps));
        let (summaries, proofs) = (Summaries::default(), Proofs::default());
        let (archive, traces, policy) = (None, None, None);
        Self { runner, drives, caps, ping: PING, archive, traces, summaries, proofs, policy }
    }

    /// The same, with these caps on runs.
    #[must_use]
    pub fn with_caps(mut self, caps: RunCaps) -> Self {
        self.drives = Arc::new(Drives::new(self.runner.clone(), caps));
        self.caps = caps;
        self
    }

    /// The same, with a console that looks into that archive.
    #[must_use]
    pub fn with_archive(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archive = Some(archive);
        self
    }

    /// The same, with a console that shows the traces which that one makes.
    #[must_use]
    pub fn with_traces(mut self, traces: Arc<dyn RunTraces>) -> Self {
        self.traces = Some(traces);
        self
    }

    /// The same, and nobody is shown what the policy leaves out. What is replayed stays as it is, and so does a snapshot.
    #[must_use]
    pub fn with_redaction(mut self, policy: RedactionPolicy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// The same, with a sign of life that often on streams on which nothing happens.
    #[must_use]
    pub fn with_ping(mut self, ping: Duration) -> Self {
        self.ping = ping;
        self
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.runner.store
    }

    /// A new id in Letta's form, as `agent-…`.
    fn fresh(&self, what: &str) -> Name {
        let id = self.runner.ids.fresh(what);
        let bare = id.strip_prefix(what).unwrap_or(&id);
        Name::from(format!("{what}-{}", bare.trim_start_matches(['_', '-'])))
    }

    /// Charges what runs use to these accounts, and checks the keys of runs there.
    pub(crate) fn charge_to(&self, accounts: Accounts) {
        self.drives.charge_to(Arc::new(accounts));
    }

    /// Takes up the runs that nobody is at, for as long as it is asked.
    pub(crate) async fn sweep(self: Arc<Self>) {
        Arc::clone(&self.drives).sweep().await;
    }

    /// Lets the runs of this process come to rest for a while. What is still at work then goes on elsewhere, or later.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.drives.stop(patience).await;
    }
}

/// One request to the agent API.
pub(crate) struct Asked<'a> {
    pub(crate) api: &'a AgentApi,
    pub(crate) gateway: &'a Gateway,
    pub(crate) caller: &'a Caller,
    /// The ids in the path, in their order.
    pub(crate) ids: Vec<Name>,
    pub(crate) query: Query,
    /// The body; an empty object where there was none.
    pub(crate) body: Tree,
}

/// What comes of a request.
pub(crate) type Told = Result<Answered, Denied>;

/// Answers a request that a route was found for.
pub(crate) async fn answer(
    gateway: &Gateway,
    api: &AgentApi,
    caller: &Caller,
    found: Found,
    (body, parsed): (Bytes, Option<Tree>),
) -> Told {
    let body = match parsed {
        Some(tree) => tree,
        None => {
            let body = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
            Tree::parse(body)
                .map_err(|error| Denied::new(422, format!("the body is not JSON: {error}")))?
        }
    };
    let Found { op, ids, query } = found;
    let asked = Asked { api, gateway, caller, ids, query, body };
    let told = perform(&asked, op).await?;
    Ok(match &api.policy {
        // Whoever goes on from a snapshot gives each provider what it issued.
        Some(policy) if op != Op::Snapshot => redact::answered(policy, told),
        Some(_) | None => told,
    })
}

async fn perform(asked: &Asked<'_>, op: Op) -> Told {
    match op {
        Op::Health => Ok(shapes::health()),
        Op::Models => {
            let names = asked.gateway.directory.models().into_iter();
            let names = names.filter(|name| asked.caller.admission.allows(name));
            Ok(shapes::models(&names.collect::<Vec<Name>>()))
        }
        Op::Tools => agents::all_tools(asked),
        Op::CreateAgent => agents::create(asked).await,
        Op::ListAgents => agents::list(asked).await,
        Op::CountAgents => agents::count(asked).await,
        Op::Agent => agents::retrieve(asked).await,
        Op::UpdateAgent => agents::update(asked).await,
        Op::DeleteAgent => agents::delete(asked).await,
        Op::AgentTools => agents::tools(asked).await,
        Op::ToolApproval => agents::tool_approval(asked).await,
        Op::AgentBlocks => agents::blocks(asked).await,
        Op::AgentBlock => agents::block(asked).await,
        Op::UpdateBlock => agents::update_block(asked).await,
        Op::Say => messages::say(asked, messages::How::Whole).await,
        Op::SayStream => messages::say(asked, messages::How::Stream).await,
        Op::SayAsync => messages::say(asked, messages::How::Later).await,
        Op::Messages | Op::ConversationMessages => messages::list(asked).await,
        Op::Cancel | Op::CancelConversation => messages::cancel(asked).await,
        Op::Reset => messages::reset(asked).await,
        Op::Summarize | Op::Compact => conversations::compact(asked).await,
        Op::Runs => runs::list(asked).await,
        Op::Run => runs::retrieve(asked).await,
        Op::RunMessages => runs::messages(asked).await,
        Op::RunSteps => runs::steps(asked).await,
        Op::RunUsage => runs::usage(asked).await,
        Op::RunStream => runs::stream(asked).await,
        Op::CreateConversation => conversations::create(asked).await,
        Op::ListConversations => conversations::list(asked).await,
        Op::Conversation => conversations::retrieve(asked).await,
        Op::UpdateConversation => conversations::update(asked).await,
        Op::DeleteConversation => conversations::delete(asked).await,
        Op::SayInConversation => messages::say(asked, messages::How::Conversation).await,
        Op::ConversationStream => conversations::stream(asked).await,
        Op::Fork => conversations::fork(asked).await,
        Op::State => own::state(asked).await,
        Op::Snapshot => own::snapshot(asked).await,
        Op::Restore => own::restore(asked).await,
        Op::Resume => own::resume(asked).await,
        Op::Plan => own::plan(asked).await,
        Op::Reflections => own::reflections(asked).await,
        Op::Journal => own::journal(asked).await,
        Op::Fates => own::fates(asked).await,
        Op::Narrative => own::narrative(asked).await,
        Op::Questions => own::questions(asked).await,
        Op::AnswerQuestion => own::answer(asked).await,
        Op::Schema => own::schema(asked),
        Op::ForkThread => own::fork(asked).await,
        Op::Rewind => own::rewind(asked).await,
        Op::ShowRuns => console::runs::list(asked).await,
        Op::ShowRun => console::runs::one(asked).await,
        Op::FollowRun => console::events::follow(asked).await,
        Op::ShowTrace => console::trace::one(asked).await,
        Op::ShowThreads => console::threads::list(asked).await,
        Op::ShowThread => console::threads::one(asked).await,
        Op::ThoughtMap => console::map::map(asked).await,
        Op::ShowCalls => console::calls::list(asked).await,
        Op::ShowCall => console::calls::view(asked).await,
        Op::Inbox => console::inbox::list(asked).await,
        Op::Decide => console::inbox::decide(asked).await,
        Op::ShowJournal => console::journal::head(asked).await,
        Op::VerifyJournal => console::journal::verify(asked).await,
        Op::ExportJournal => console::journal::export(asked).await,
        Op::ShowKeys => console::journal::keys(asked).await,
        Op::UsedByHour => console::journal::usage(asked).await,
        Op::DoctorRows => Ok(console::doctor::rows(asked)),
        Op::Doctor => console::doctor::look(asked).await,
    }
}

impl Asked<'_> {
    /// What whoever asks is not shown: the usual secrets, where nobody says.
    pub(crate) fn policy(&self) -> RedactionPolicy {
        self.api.policy.as_deref().cloned().unwrap_or_default()
    }

    /// An id of the path.
    pub(crate) fn id(&self, place: usize) -> Name {
        self.ids.get(place).cloned().unwrap_or_default()
    }

    /// The newest run of a Thread.
    async fn newest_run(&self, thread: &LogId) -> Result<Option<LogHead>, Denied> {
        let found = runs::heads(self, thread, None, 1).await?;
        Ok(found.into_iter().next())
    }
}
