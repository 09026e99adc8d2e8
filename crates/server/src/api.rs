//! State and types that the handlers of the agent API and the console share.
//!
//! | file | contents |
//! |---|---|
//! | `denied.rs` | errors in Letta's format |
//! | `responses.rs` | responses from serialized types and from channels; types for schemas |
//! | `drives.rs`, `sweep.rs` | tasks that drive runs; recovery of runs without a driver |
//! | `permits.rs` | check of a run's key before every model call |
//! | `run_note.rs` | the note that the API stores with each run it starts |
//! | `summary.rs` | cached summaries of runs |
//! | `proofs.rs` | limits on concurrent proofs of the Journal |

mod denied;
mod drives;
mod permits;
mod proofs;
mod responses;
mod run_note;
mod summary;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{RunSpec, Runner};
use throughline_core::{LogId, Store, StoreFuture, Tenant};
use throughline_json::{Json, Name, Tree};
use throughline_spec::{Archive, RedactionPolicy};

use crate::access::Caller;
pub(crate) use crate::api::denied::{ApiError, ErrorBody};
pub use crate::api::drives::RunCaps;
pub(crate) use crate::api::drives::RunPool;
pub(crate) use crate::api::permits::Accounts;
pub(crate) use crate::api::proofs::Verifications;
pub(crate) use crate::api::responses::{
    AnyObject, AnyValue, ReflectionRef, RunEventRef, SchemaDocument, SmartStateRef,
    SnapshotDocument, StopReasonRef, UsageRef, json_response, schema_ref, stream_response, to_json,
};
pub(crate) use crate::api::run_note::RunNote;
pub(crate) use crate::api::summary::{Summary, SummaryCache, first_words, parse_event};
use crate::gateway::Gateway;
use crate::response::GatewayResponse;
use crate::url::Query;

/// Interval of the pings on an idle stream.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The agent API and the state that its handlers share.
pub struct AgentApi {
    pub(crate) runner: Runner,
    pub(crate) drives: Arc<RunPool>,
    pub(crate) caps: RunCaps,
    pub(crate) ping: Duration,
    /// The store as the console reads it.
    pub(crate) archive: Option<Arc<dyn Archive>>,
    /// Exports run traces for the console.
    pub(crate) traces: Option<Arc<dyn RunTraces>>,
    pub(crate) summaries: SummaryCache,
    /// Journal verifications in progress.
    pub(crate) proofs: Verifications,
    /// Redaction of everything that callers see.
    pub(crate) policy: Option<Arc<RedactionPolicy>>,
}

impl AgentApi {
    /// Creates the API for the agents of this runner.
    pub fn new(runner: Runner) -> Self {
        let caps = RunCaps::default();
        let drives = Arc::new(RunPool::new(runner.clone(), caps));
        let (summaries, proofs) = (SummaryCache::default(), Verifications::default());
        let (archive, traces, policy) = (None, None, None);
        Self {
            runner,
            drives,
            caps,
            ping: PING_INTERVAL,
            archive,
            traces,
            summaries,
            proofs,
            policy,
        }
    }

    /// Sets the operator's caps on runs.
    #[must_use]
    pub fn with_caps(mut self, caps: RunCaps) -> Self {
        self.drives = Arc::new(RunPool::new(self.runner.clone(), caps));
        self.caps = caps;
        self
    }

    /// Enables the console views that read this archive.
    #[must_use]
    pub fn with_archive(mut self, archive: Arc<dyn Archive>) -> Self {
        self.archive = Some(archive);
        self
    }

    /// Enables the console's trace view with this exporter.
    #[must_use]
    pub fn with_traces(mut self, traces: Arc<dyn RunTraces>) -> Self {
        self.traces = Some(traces);
        self
    }

    /// Redacts all responses with this policy. Replayed content and snapshots are not redacted.
    #[must_use]
    pub fn with_redaction(mut self, policy: RedactionPolicy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Sets the interval of the pings on idle streams.
    #[must_use]
    pub fn with_ping(mut self, ping: Duration) -> Self {
        self.ping = ping;
        self
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.runner.store
    }

    /// Creates an id in Letta's form, for example `agent-…`.
    pub(crate) fn fresh(&self, what: &str) -> Name {
        let id = self.runner.ids.generate(what);
        let bare = id.strip_prefix(what).unwrap_or(&id);
        Name::from(format!("{what}-{}", bare.trim_start_matches(['_', '-'])))
    }

    /// Charges the usage of runs to these accounts and checks run keys against them.
    pub(crate) fn charge_to(&self, accounts: Accounts) {
        self.drives.charge_to(Arc::new(accounts));
    }

    /// Takes over runs without a driver until the future is dropped.
    pub(crate) async fn reclaim_stale_runs(self: Arc<Self>) {
        Arc::clone(&self.drives).sweep().await;
    }

    /// Waits up to `patience` for the runs of this process to stop. Interrupted runs resume in
    /// another process or after a restart.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.drives.stop(patience).await;
    }
}

/// One request to the agent API.
pub(crate) struct ApiRequest<'a> {
    pub(crate) api: &'a AgentApi,
    pub(crate) gateway: &'a Gateway,
    pub(crate) caller: &'a Caller,
    /// The ids in the path, in path order.
    pub(crate) ids: Vec<Name>,
    pub(crate) query: Query,
    /// The body; an empty object if the request has none.
    pub(crate) body: Tree,
}

/// The result of a handler.
pub(crate) type ApiResult = Result<GatewayResponse, ApiError>;

impl ApiRequest<'_> {
    /// The configured redaction policy, or the default one, which removes common secrets.
    pub(crate) fn policy(&self) -> RedactionPolicy {
        self.api.policy.as_deref().cloned().unwrap_or_default()
    }

    /// The id at this position of the path.
    pub(crate) fn id(&self, place: usize) -> Name {
        self.ids.get(place).cloned().unwrap_or_default()
    }

    /// The tools that the run needs and this process lacks. Such a run cannot continue here.
    pub(crate) fn missing_tools<'c>(&self, casting: &'c RunSpec) -> Vec<&'c str> {
        let known = &self.api.runner.tools;
        let own = casting.tools.iter().filter(|tool| !tool.client);
        own.map(|tool| &*tool.name).filter(|name| !known.contains_key(*name)).collect()
    }

    /// Resumes a run here, unless it needs tools that this process lacks.
    pub(crate) async fn drive(&self, run: &LogId) -> Result<bool, ApiError> {
        let tenant = &self.caller.tenant;
        let (casting, _) = self.api.runner.progress(tenant, run).await?;
        let can_continue = self.missing_tools(&casting).is_empty();
        if can_continue {
            self.api.drives.drive(tenant, run);
        }
        Ok(can_continue)
    }
}

/// Creates the traces of runs.
pub trait RunTraces: Send + Sync {
    /// Returns the trace of a run so far as one document, redacted by the policy.
    fn trace<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: &'a LogId,
        policy: RedactionPolicy,
    ) -> StoreFuture<'a, Json>;
}
