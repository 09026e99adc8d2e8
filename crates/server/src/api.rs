//! State and types shared by the handlers of the agent API and the console.
//!
//! | file | contents |
//! |---|---|
//! | `error.rs` | errors in Letta's format |
//! | `call_figures.rs` | cached numbers of gateway calls |
//! | `log_cache.rs` | cached data that is computed from the records of a log |
//! | `responses.rs` | responses from serialized types and from channels; types for schemas |
//! | `drives.rs`, `sweep.rs` | tasks that drive runs; recovery of runs without a driver |
//! | `permits.rs` | limits of a run's key, checked and reserved before every model call |
//! | `run_note.rs` | the note that the API stores with each run it starts |
//! | `summary.rs` | cached summaries of runs |
//! | `proofs.rs` | limits on concurrent proofs of the Journal |

mod call_figures;
mod drives;
mod error;
mod log_cache;
mod permits;
mod proofs;
mod responses;
mod run_note;
mod summary;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{Progress, RunSpec, Runner, State};
use throughline_core::{LogHead, LogId, LogKind, Store, StoreFuture, Tenant};
use throughline_json::{Json, Name, Tree};
use throughline_spec::{Archive, KeyManager, RedactionPolicy};

use crate::access::Caller;
pub(crate) use crate::api::call_figures::{
    CallFigureCache, CallFigures, is_failed, restored_items,
};
pub use crate::api::drives::RunCaps;
pub(crate) use crate::api::drives::RunPool;
pub(crate) use crate::api::error::{ApiError, ErrorBody};
pub(crate) use crate::api::permits::Accounts;
pub(crate) use crate::api::proofs::Verifications;
pub(crate) use crate::api::responses::{
    AnyObject, AnyValue, ChunkSender, ReflectionRef, RunEventRef, SchemaDocument, SmartStateRef,
    SnapshotDocument, StopReasonRef, UsageRef, json_response, schema_ref, stream_response,
};
pub(crate) use crate::api::run_note::RunNote;
pub use crate::api::summary::Summary;
pub(crate) use crate::api::summary::{SummaryCache, first_words, parse_counted_event};
use crate::gateway::Gateway;
use crate::response::GatewayResponse;
use crate::url::Query;

/// Default interval between pings on an idle stream.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The agent API, with the state that its handlers share.
pub struct AgentApi {
    pub(crate) runner: Runner,
    pub(crate) drives: Arc<RunPool>,
    pub(crate) caps: RunCaps,
    pub(crate) ping: Duration,
    /// Read access to the store for the console; `None` disables the views that need it.
    pub(crate) archive: Option<Arc<dyn Archive>>,
    /// Exports run traces for the console; `None` disables the trace view.
    pub(crate) traces: Option<Arc<dyn RunTraces>>,
    /// Manages the keys of tenants; `None` disables the routes that need it.
    pub(crate) keys: Option<Arc<dyn KeyManager>>,
    /// The configuration in effect; `None` hides it.
    pub(crate) settings: Option<Arc<dyn SettingsReport>>,
    /// The built-in simulators; `None` if the server has none.
    pub(crate) simulators: Option<Arc<dyn SimulatorLedger>>,
    pub(crate) summaries: SummaryCache,
    pub(crate) call_figures: CallFigureCache,
    pub(crate) proofs: Arc<Verifications>,
    /// Redaction policy for responses; `None` returns them unredacted.
    pub(crate) policy: Option<Arc<RedactionPolicy>>,
}

impl AgentApi {
    /// Creates an API with default caps, whose agents run on `runner`.
    pub fn new(runner: Runner) -> Self {
        let caps = RunCaps::default();
        Self {
            drives: Arc::new(RunPool::new(runner.clone(), caps)),
            runner,
            caps,
            ping: PING_INTERVAL,
            archive: None,
            traces: None,
            keys: None,
            settings: None,
            simulators: None,
            summaries: SummaryCache::default(),
            call_figures: CallFigureCache::default(),
            proofs: Arc::default(),
            policy: None,
        }
    }

    /// Sets the operator's caps, which agents and requests cannot exceed.
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

    /// Enables the routes that create, change and revoke keys.
    #[must_use]
    pub fn with_keys(mut self, keys: Arc<dyn KeyManager>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Shows this configuration in the console.
    #[must_use]
    pub fn with_settings(mut self, settings: Arc<dyn SettingsReport>) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Enables the console's trace view with this exporter.
    #[must_use]
    pub fn with_traces(mut self, traces: Arc<dyn RunTraces>) -> Self {
        self.traces = Some(traces);
        self
    }

    /// Serves the ledger of these simulators.
    #[must_use]
    pub fn with_simulators(mut self, simulators: Arc<dyn SimulatorLedger>) -> Self {
        self.simulators = Some(simulators);
        self
    }

    /// Redacts all responses with this policy. Replayed content and snapshots are not redacted.
    #[must_use]
    pub fn with_redaction(mut self, policy: RedactionPolicy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Returns an API with another redaction policy, which drives the same runs. Requests in
    /// progress keep the policy of the API that received them.
    #[must_use]
    pub fn with_new_redaction(&self, policy: Option<RedactionPolicy>) -> Self {
        Self {
            runner: self.runner.clone(),
            drives: Arc::clone(&self.drives),
            caps: self.caps,
            ping: self.ping,
            archive: self.archive.clone(),
            keys: self.keys.clone(),
            settings: self.settings.clone(),
            traces: self.traces.clone(),
            simulators: self.simulators.clone(),
            // The cached summaries were redacted with the earlier policy.
            summaries: SummaryCache::default(),
            call_figures: CallFigureCache::default(),
            proofs: Arc::clone(&self.proofs),
            policy: policy.map(Arc::new),
        }
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
    pub(crate) fn fresh(&self, prefix: &str) -> Name {
        let id = self.runner.ids.generate(prefix);
        let bare = id.strip_prefix(prefix).unwrap_or(&id);
        Name::from(format!("{prefix}-{}", bare.trim_start_matches(['_', '-'])))
    }
}

/// A request to the agent API, with its path ids, query and body parsed.
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

pub(crate) type ApiResult<T = GatewayResponse> = Result<T, ApiError>;

impl ApiRequest<'_> {
    /// Returns the configured redaction policy, or the default policy, which removes common
    /// secrets.
    pub(crate) fn policy(&self) -> RedactionPolicy {
        self.api.policy.as_deref().cloned().unwrap_or_default()
    }

    /// Returns the id at this position in the path; empty if the path has fewer ids.
    pub(crate) fn id(&self, index: usize) -> Name {
        self.ids.get(index).cloned().unwrap_or_default()
    }

    /// Loads the head of one of the tenant's logs; `None` if the log does not exist.
    pub(crate) async fn log(&self, log: &LogId) -> ApiResult<Option<LogHead>> {
        Ok(self.api.store().log(&self.caller.tenant, log).await?)
    }

    /// Loads the head of the run named by the first id in the path.
    pub(crate) async fn run_head(&self) -> ApiResult<LogHead> {
        self.head_of_run(&LogId(self.id(0))).await
    }

    /// Loads a run's head. Returns 404 if no run has this id.
    pub(crate) async fn head_of_run(&self, run: &LogId) -> ApiResult<LogHead> {
        let head = self.log(run).await?.filter(is_run);
        head.ok_or_else(|| ApiError::not_found("run", &run.0))
    }

    /// Loads a Thread's head. Returns 404 if no Thread has this id.
    pub(crate) async fn thread_head(&self, id: &Name) -> ApiResult<LogHead> {
        let head = self.log(&LogId(id.clone())).await?;
        let head = head.filter(|head| head.kind == LogKind::Thread);
        head.ok_or_else(|| ApiError::not_found("thread", id))
    }

    /// Loads a run's configuration and progress from the caller's tenant.
    pub(crate) async fn progress(&self, run: &LogId) -> ApiResult<(RunSpec, Progress)> {
        Ok(self.api.runner.progress(&self.caller.tenant, run).await?)
    }

    pub(crate) async fn state(&self, run: &LogId) -> ApiResult<State> {
        Ok(self.api.runner.state(&self.caller.tenant, run).await?)
    }

    /// Parses a numeric query parameter; `None` if it is absent or not a number.
    pub(crate) fn query_number(&self, name: &str) -> Option<u64> {
        self.query.get(name)?.parse().ok()
    }

    /// Lists the tools of a run that are not registered in this process. The process cannot
    /// continue a run with missing tools.
    pub(crate) fn missing_tools<'c>(&self, casting: &'c RunSpec) -> Vec<&'c str> {
        let known = &self.api.runner.tools;
        let own = casting.tools.iter().filter(|tool| !tool.client);
        own.map(|tool| &*tool.name).filter(|name| !known.contains_key(*name)).collect()
    }

    /// Resumes a run in this process. Returns `false` if the run needs tools that this process
    /// lacks.
    pub(crate) async fn drive(&self, run: &LogId) -> ApiResult<bool> {
        let (casting, _) = self.progress(run).await?;
        let can_continue = self.missing_tools(&casting).is_empty();
        if can_continue {
            self.api.drives.drive(&self.caller.tenant, run);
        }
        Ok(can_continue)
    }
}

/// Returns whether a log belongs to a run.
pub(crate) fn is_run(head: &LogHead) -> bool {
    head.status.is_some() && head.of.is_some()
}

/// Exports run traces for the console.
pub trait RunTraces: Send + Sync {
    /// Returns a run's trace so far as one document, redacted according to the policy.
    fn trace<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: &'a LogId,
        policy: RedactionPolicy,
    ) -> StoreFuture<'a, Json>;
}

/// Describes the configuration in effect.
pub trait SettingsReport: Send + Sync {
    /// Returns the configuration as one JSON object. All callers of the gateway may read it, so it
    /// contains no secrets, file paths or addresses.
    fn settings(&self) -> Json;
}

/// Reads the ledger of the built-in simulators.
pub trait SimulatorLedger: Send + Sync {
    /// Returns the ledger entries after a request number as one JSON object.
    fn ledger(&self, after: u64) -> Json;
}
