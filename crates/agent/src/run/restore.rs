//! Exports runs as snapshots and restores them.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{ErasureEpoch, Item, LogId, Tenant};
use throughline_json::{self as json, Json, Name};
use throughline_spec::{StateChange, ToolApprovalStatus, TracingConfig, UserQuestionStatus};

use crate::action::{HumanRequest, HumanRequestKind, Refusal};
use crate::input::{Input, OpenCalls, RunInput};
use crate::progress::{Progress, Stage};
use crate::roster::{ResolvedRun, RunSpec};
use crate::run::commit::{LeasedRun, LogCreation, StepEffects, item_records};
use crate::run::load::{self, OpenThread, ThreadSource};
use crate::run::{RunResult, Runner, StartedRun};
use crate::snapshot::{Snapshot, strip_runtime};
use crate::state::State;
use crate::step::{expiry, step};
use crate::tool::ToolSpec;
use crate::window::Window;

impl Runner {
    /// Exports a run as a snapshot that another store can restore.
    pub async fn snapshot(&self, tenant: &Tenant, run: &LogId) -> RunResult<Snapshot> {
        let (held, state) = self.load_run(tenant, run, ThreadSource::Store).await?;
        let mut archived = Vec::new();
        for execution in state.smart.tool_history_archived.iter().flatten() {
            let Some(name) = &execution.archive_id else { continue };
            let found = load::read_item(&*self.store, tenant, &held.thread, name).await?;
            archived.extend(found.map(|item| (name.clone(), item)));
        }
        Ok(Snapshot::capture(&state, held.thread.0.clone(), archived))
    }

    /// Restores a run from a snapshot. The run keeps its ids if they look like generated ids and
    /// are unused in this store; otherwise the run gets new ids. Call [drive](Runner::drive) to
    /// continue the run.
    ///
    /// The snapshot is untrusted input. Tools come from this runner, limited to the tools named in
    /// the snapshot. Approvals are not carried over: every open call is reviewed again.
    pub async fn restore(&self, tenant: &Tenant, snapshot: Snapshot) -> RunResult<StartedRun> {
        let (thread, run) = (LogId(snapshot.thread.clone()), LogId(snapshot.progress.run.clone()));
        let may_keep = is_generated_id(&thread.0, "thread_")
            && is_generated_id(&run.0, "run_")
            && self.store.log(tenant, &thread).await?.is_none()
            && self.store.log(tenant, &run).await?.is_none();
        let ids = may_keep.then_some((thread, run));
        self.restore_under(tenant, snapshot, ids, OpenCalls::ByRules).await
    }

    /// Restores a run from a snapshot under new ids, so that the sender of the snapshot cannot
    /// choose ids. The approval rules are part of the snapshot. Pass [`OpenCalls::NeedApproval`] if
    /// these rules cannot be verified.
    pub async fn restore_as_new(
        &self,
        tenant: &Tenant,
        snapshot: Snapshot,
        open_calls: OpenCalls,
    ) -> RunResult<StartedRun> {
        self.restore_under(tenant, snapshot, None, open_calls).await
    }

    /// Restores a run under the given Thread id and run id, or under new ids.
    async fn restore_under(
        &self,
        tenant: &Tenant,
        snapshot: Snapshot,
        ids: Option<(LogId, LogId)>,
        open_calls: OpenCalls,
    ) -> RunResult<StartedRun> {
        let Snapshot { mut smart, items, archived, mut casting, mut progress, .. } = snapshot;
        strip_runtime(&mut smart);
        let agents = casting.agents.values_mut().map(|agent| &mut agent.tracing);
        for tracing in agents.chain([&mut casting.tracing]) {
            *tracing = tracing.take().map(|tracing| without_own_sink(&tracing)).transpose()?;
        }
        casting.tools = self.tool_specs(&casting)?;
        let cast = self.resolve(casting)?;
        self.check_costs(&cast)?;
        check_consistency(&cast, &progress, &items)?;
        let new_ids = || (LogId(self.ids.generate("thread")), LogId(self.ids.generate("run")));
        let (thread, run) = ids.unwrap_or_else(new_ids);
        (progress.run, progress.heard, progress.from) = (run.0.clone(), 0, 0);
        let window = Window::from_items(items.iter().map(|item| (0, item.clone())), &*self.counter);
        let state = State::resume(cast, smart, window, progress);
        state.check_context_size()?;
        let event = RunInput::Restored(open_calls);
        let at = self.clock.now();
        let (mut state, actions) = step(state, Input { at, event });
        let mut effects = StepEffects::new(actions)?;
        // The archived results are written first, so the other records of the Thread follow them.
        for execution in state.smart.tool_history_archived.iter_mut().flatten() {
            let mut names = archived.iter().map(|(name, _)| Some(name));
            let index = names.position(|name| name == execution.archive_id.as_ref());
            execution.archive_id = index.map(|index| Name::from((index + 1).to_string()));
        }
        let from = archived.len() as u64 + 1;
        let ctx = state.smart.ctx.get_or_insert_default();
        ctx.push(("__contextFrom".into(), Json::from(from)));
        ctx.push(("__run".into(), json::string(&run.0)));
        let all_items =
            archived.into_iter().map(|(_, item)| item).chain(items).chain(effects.items);
        let mut records = item_records(&thread, &all_items.collect::<Vec<Item>>());
        records.push(state_change(&state.smart.json()).record());
        // The new Thread already contains the whole state, and the store has none of its requests
        // yet.
        (effects.items, effects.takes) = (Vec::new(), Vec::new());
        (effects.status, effects.asks) = (Some(state.status()), pending_requests(&state, at));
        let opened = OpenThread::new(thread.clone(), ErasureEpoch::default());
        let (mut held, _) = LeasedRun::new(self, tenant.clone(), run.clone(), opened);
        held.opening = Some(LogCreation::new(&state.cast, true, Vec::new())?);
        self.store.commit(held.batch(&state, &effects, records)?).await?;
        Ok(StartedRun { run, thread, repeated: false })
    }

    /// Returns the specifications of the tools named in a declaration, as registered with this
    /// runner. If the runner lacks a tool that the caller executes, the specification in the
    /// declaration is used.
    fn tool_specs(&self, casting: &RunSpec) -> Result<Vec<ToolSpec>, Refusal> {
        let specs = casting.tools.iter().map(|named| match self.tools.get(&named.name) {
            Some(tool) => Ok(tool.spec()),
            None if named.client => Ok(named.clone()),
            None => Err(Refusal::invalid(format!(
                "casting.tools: the tool {} is not available here; add the tool and restore the snapshot again",
                named.name
            ))),
        });
        specs.collect()
    }
}

/// Removes a sink that the snapshot declares by path or URL, so that a snapshot cannot choose where
/// traces are sent.
fn without_own_sink(tracing: &Json) -> Result<Json, Refusal> {
    let config = TracingConfig::parse(tracing);
    let mut config = config.map_err(|error| Refusal::invalid(format!("casting: {error}")))?;
    config.sink = config.sink.filter(|sink| sink.name.is_some());
    Ok(config.json())
}

/// Returns whether an id looks generated: the prefix, followed by 1 to 64 lower-case letters or
/// digits.
fn is_generated_id(name: &str, prefix: &str) -> bool {
    let suffix = name.strip_prefix(prefix).unwrap_or_default();
    let is_id_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=64).contains(&suffix.len()) && suffix.bytes().all(is_id_byte)
}

/// Maximum value of a counter in a snapshot. Restored counters keep growing and must not overflow.
const MAX_COUNT: u64 = 1 << 53;

/// Checks that the run can continue: its agent is declared, its counters are plausible, and each
/// open call is part of the conversation.
fn check_consistency(
    cast: &ResolvedRun,
    progress: &Progress,
    items: &[Item],
) -> Result<(), Refusal> {
    let invalid = |problem: String| Err(Refusal::invalid(format!("progress.{problem}")));
    if cast.agent(&progress.agent).is_none() {
        return invalid(format!("agent: {} is not a declared agent", progress.agent));
    }
    let counts = [
        ("ids", progress.ids),
        ("turn", progress.turn),
        ("toolCalls", progress.tool_calls),
        ("broughtBack", progress.brought_back),
        ("discarded", progress.discarded),
        ("reflected.count", progress.reflected.count),
        ("reflected.toolTurns", progress.reflected.tool_turns),
    ];
    if let Some((name, count)) = counts.into_iter().find(|(_, count)| *count > MAX_COUNT) {
        return invalid(format!("{name}: {count} exceeds the maximum of {MAX_COUNT}"));
    }
    if !progress.spent.cost_usd.is_finite() || progress.spent.cost_usd < 0.0 {
        return invalid("spent.costUsd: must be a finite number and not negative".to_owned());
    }
    let calls = items.iter().filter_map(Item::call);
    let called: HashSet<&Name> = calls.map(|call| &call.id.0).collect();
    let mut unique = HashSet::new();
    for id in progress.calls.iter().map(|open| &open.id) {
        if !called.contains(id) {
            return invalid(format!("calls: no item contains the tool call {id}"));
        }
        if !unique.insert(id) {
            return invalid(format!("calls: the call {id} is listed twice"));
        }
    }
    Ok(())
}

/// Builds one state change that sets every field of `SmartState` except the messages.
fn state_change(smart: &Json) -> StateChange {
    let tree = smart.tree();
    let mut change = StateChange::new();
    for (name, value) in tree.root().members() {
        if let Some(name) = name.name().filter(|name| &**name != "messages") {
            change.set.push((name, value.json()));
        }
    }
    change
}

/// Returns the pending requests of a restored run's open calls.
fn pending_requests(state: &State, now: Timestamp) -> Vec<HumanRequest> {
    let time_left = |metadata: &Option<Vec<(Name, Json)>>| {
        let time_left = expiry(metadata.as_deref())?.duration_since(now);
        Some(Duration::try_from(time_left).unwrap_or_default())
    };
    let requests = state.progress.calls.iter().filter_map(|call| {
        let (id, kind, expires_in) = match &call.stage {
            Stage::Approval { id, .. } => {
                let mut open = state.smart.pending_approvals.iter().flatten();
                let open = open
                    .find(|entry| entry.id == *id && entry.status == ToolApprovalStatus::Pending);
                (id, HumanRequestKind::Approval, open.and_then(|entry| time_left(&entry.metadata)))
            }
            Stage::Question { id } => {
                let mut open = state.smart.pending_user_questions.iter().flatten();
                let open = open
                    .find(|entry| entry.id == *id && entry.status == UserQuestionStatus::Pending);
                (id, HumanRequestKind::Question, open.and_then(|entry| time_left(&entry.metadata)))
            }
            Stage::Client { id } => (id, HumanRequestKind::Client, None),
            Stage::Queued | Stage::Begun | Stage::Done => return None,
        };
        Some(HumanRequest { id: id.clone(), kind, expires_in })
    });
    requests.collect()
}
