//! Exports runs as snapshots and restores them.

use std::collections::HashSet;

use throughline_core::{
    Append, Batch, Item, LogId, LogOpening, NewRecord, Pack, PendingRequest, Tenant, kind,
};
use throughline_json::{self as json, Json, Name};
use throughline_spec::{StateChange, ToolApprovalStatus, UserQuestionStatus};

use crate::action::{Action, HumanRequestKind, Refusal};
use crate::input::{Input, OpenCalls, RunInput};
use crate::progress::{Progress, Stage};
use crate::roster::{ResolvedRun, RunSpec};
use crate::run::commit::item_records;
use crate::run::load::{self, ThreadSource};
use crate::run::{RUN, RunError, Runner, StartedRun, opening_appends};
use crate::snapshot::{Snapshot, strip_runtime};
use crate::state::State;
use crate::step::step;
use crate::tool::ToolSpec;
use crate::window::Window;

impl Runner {
    /// Exports a run so that it can continue elsewhere.
    pub async fn snapshot(&self, tenant: &Tenant, run: &LogId) -> Result<Snapshot, RunError> {
        let (held, state) = load::load_run(self, tenant, run, ThreadSource::Store).await?;
        let mut archived = Vec::new();
        for execution in state.smart.tool_history_archived.iter().flatten() {
            let Some(name) = &execution.archive_id else { continue };
            let found = load::read_item(&*self.store, tenant, &held.thread, name).await?;
            archived.extend(found.map(|item| (name.clone(), item)));
        }
        Ok(Snapshot::capture(&state, held.thread.0.clone(), archived))
    }

    /// Restores a run from a snapshot. The run keeps its ids if they have the form of generated ids
    /// and are free in this store; otherwise it gets new ones. Call [drive](Runner::drive) to
    /// continue it.
    ///
    /// The document is untrusted input. Tools come from this runner, limited to those that the
    /// document names. Approvals are not carried over: every open call is decided again.
    pub async fn restore(
        &self,
        tenant: &Tenant,
        snapshot: Snapshot,
    ) -> Result<StartedRun, RunError> {
        let (names, open_calls) = (RestoredIds::KeepIfFree, OpenCalls::ByRules);
        self.restore_under(tenant, snapshot, names, open_calls).await
    }

    /// Restores a run from a snapshot under new ids, for documents whose sender may not choose ids.
    /// The approval rules are part of the document. Pass [`OpenCalls::NeedApproval`] if the caller
    /// cannot verify them.
    pub async fn restore_as_new(
        &self,
        tenant: &Tenant,
        snapshot: Snapshot,
        open_calls: OpenCalls,
    ) -> Result<StartedRun, RunError> {
        self.restore_under(tenant, snapshot, RestoredIds::New, open_calls).await
    }

    async fn restore_under(
        &self,
        tenant: &Tenant,
        snapshot: Snapshot,
        names: RestoredIds,
        open_calls: OpenCalls,
    ) -> Result<StartedRun, RunError> {
        let Snapshot { mut smart, items, archived, mut casting, mut progress, thread } = snapshot;
        strip_runtime(&mut smart);
        casting.tools = self.tool_specs(&casting)?;
        let cast = self.resolve(casting)?;
        self.check_costs(&cast)?;
        check_consistency(&cast, &progress, &items)?;
        let (thread, run) = self.choose_ids(tenant, thread, &progress.run, names).await?;
        progress.run = run.0.clone();
        (progress.heard, progress.from) = (0, 0);
        let window = Window::from_items(items.iter().map(|item| (0, item.clone())), &*self.counter);
        let state = State::resume(cast, smart, window, progress);
        let what = RunInput::Restored(open_calls);
        let (state, actions) = step(state, Input { at: self.clock.now(), what });
        let (mut added, mut pack) = (Vec::new(), Pack::default());
        for action in actions {
            match action {
                Action::Keep(items) => added.extend(items),
                Action::Tell(event) => pack.push(event.json().bytes()),
                Action::Refuse(refusal) => return Err(refusal.into()),
                // The whole state is written below, and the driver of the run decides the next step
                // from it.
                Action::Change(_)
                | Action::Ask(_)
                | Action::Take(_)
                | Action::Stand(_)
                | Action::Call(_)
                | Action::Begin(_)
                | Action::Run(_)
                | Action::Rest => {}
            }
        }
        let State { cast, mut smart, progress, .. } = state;
        // The archived results come first, so the rest of the Thread starts after them.
        for execution in smart.tool_history_archived.iter_mut().flatten() {
            let mut names = archived.iter().map(|(name, _)| Some(name));
            let place = names.position(|name| name == execution.archive_id.as_ref());
            execution.archive_id = place.map(|place| Name::from((place + 1).to_string()));
        }
        let from = archived.len() as u64 + 1;
        let ctx = smart.ctx.get_or_insert_default();
        ctx.push(("__contextFrom".into(), Json::from(from)));
        ctx.push(("__run".into(), json::string(&run.0)));
        let kept = archived.into_iter().map(|(_, item)| item).chain(items).chain(added);
        let kept: Vec<Item> = kept.collect();
        let mut records = item_records(&thread, &kept);
        records.push(state_change(&smart.json()).record());
        let mut opened = Append::new(thread.clone()).opening(LogOpening::thread());
        opened.records = records;
        let [own, inbox] = opening_appends(&run, &thread);
        let unwritable = |error: serde_json::Error| {
            let problem = error.to_string().into();
            RunError::Damaged { run: run.0.clone(), problem }
        };
        let casting = serde_json::to_vec(&cast.casting).map_err(unwritable)?;
        let checkpoint = serde_json::to_vec(&progress).map_err(unwritable)?;
        let mut own = own.record(NewRecord::new(RUN, casting)).status(progress.status().as_str());
        own.records.extend((!pack.is_empty()).then(|| pack.record()));
        own.records.push(NewRecord::new(kind::CHECKPOINT, checkpoint));
        let mut batch = Batch::new(tenant.clone());
        batch.appends = vec![opened, own, inbox];
        batch.asks = pending_requests(&progress, &smart, &run, self.clock.now());
        self.store.commit(batch).await?;
        Ok(StartedRun { run, thread, repeated: false })
    }

    /// Returns the specifications of the tools that a document names. They come from this runner,
    /// except for tools that the caller executes.
    fn tool_specs(&self, casting: &RunSpec) -> Result<Vec<ToolSpec>, Refusal> {
        let given = casting.tools.iter().map(|named| match self.tools.get(&named.name) {
            Some(tool) => Ok(tool.spec()),
            None if named.client => Ok(named.clone()),
            None => Err(Refusal::invalid(format!(
                "casting.tools: there is no tool {} here for this agent; add the tool and restore the snapshot again",
                named.name
            ))),
        });
        given.collect()
    }

    async fn choose_ids(
        &self,
        tenant: &Tenant,
        thread: Name,
        run: &Name,
        names: RestoredIds,
    ) -> Result<(LogId, LogId), RunError> {
        let (named_thread, named_run) = (LogId(thread), LogId(run.clone()));
        let may_keep = names == RestoredIds::KeepIfFree
            && is_generated_id(&named_thread.0, "thread_")
            && is_generated_id(&named_run.0, "run_")
            && self.store.log(tenant, &named_thread).await?.is_none()
            && self.store.log(tenant, &named_run).await?.is_none();
        Ok(if may_keep {
            (named_thread, named_run)
        } else {
            (LogId(self.ids.generate("thread")), LogId(self.ids.generate("run")))
        })
    }
}

/// Policy for the ids of a restored run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestoredIds {
    /// Keep the ids if they are valid and free.
    KeepIfFree,
    /// Generate new ids.
    New,
}

/// Returns whether an id is the prefix and 1 to 64 lower-case letters or digits, as generated ids
/// are.
fn is_generated_id(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix).unwrap_or_default();
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=64).contains(&rest.len()) && rest.bytes().all(is_letter)
}

/// Maximum count in a snapshot. Counts grow from there and must not overflow.
const MAX_COUNT: u64 = 1 << 53;

/// Checks that the run can continue: its agent is declared, its counts are plausible, and each open
/// call is in the conversation.
fn check_consistency(
    cast: &ResolvedRun,
    progress: &Progress,
    items: &[Item],
) -> Result<(), Refusal> {
    if cast.agent(&progress.agent).is_none() {
        let problem = format!("progress.agent: {} is not a declared agent", progress.agent);
        return Err(Refusal::invalid(problem));
    }
    let counts = [
        ("ids", progress.ids),
        ("turn", progress.turn),
        ("toolCalls", progress.tool_calls),
        ("broughtBack", progress.brought_back),
        ("reflected.count", progress.reflected.count),
        ("reflected.toolTurns", progress.reflected.tool_turns),
    ];
    if let Some((name, count)) = counts.into_iter().find(|(_, count)| *count > MAX_COUNT) {
        return Err(Refusal::invalid(format!("progress.{name}: {count} is out of range")));
    }
    if !progress.spent.cost_usd.is_finite() || progress.spent.cost_usd < 0.0 {
        return Err(Refusal::invalid("progress.spent.costUsd: must be an amount of dollars"));
    }
    let called: HashSet<&Name> =
        items.iter().filter_map(Item::call).map(|call| &call.id.0).collect();
    let mut seen = HashSet::new();
    for open in &progress.calls {
        if !called.contains(&open.id) {
            let problem = format!("progress.calls: no item contains the tool call {}", open.id);
            return Err(Refusal::invalid(problem));
        }
        if !seen.insert(&open.id) {
            let problem = format!("progress.calls: the call {} is listed twice", open.id);
            return Err(Refusal::invalid(problem));
        }
    }
    Ok(())
}

/// Builds one change that sets the whole documented state except the messages.
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

/// Lists the pending requests that the restored run must register.
fn pending_requests(
    progress: &Progress,
    smart: &throughline_spec::SmartState,
    run: &LogId,
    now: jiff::Timestamp,
) -> Vec<PendingRequest> {
    let expires = |metadata: &Option<Vec<(Name, Json)>>| {
        let at = metadata.iter().flatten().find(|(name, _)| &**name == "expiresAt");
        let at: jiff::Timestamp = at.and_then(|(_, at)| at.tree().root().text()?.parse().ok())?;
        Some(std::time::Duration::try_from(at.duration_since(now)).unwrap_or_default())
    };
    let request = |id: &Name, kind: HumanRequestKind, expires_in| PendingRequest {
        id: id.clone(),
        kind: kind.as_str().into(),
        log: run.clone(),
        expires_in,
    };
    let open = progress.calls.iter().filter_map(|call| match &call.stage {
        Stage::Approval { id, .. } => {
            let mut entries = smart.pending_approvals.iter().flatten();
            let entry = entries
                .find(|entry| entry.id == *id && entry.status == ToolApprovalStatus::Pending);
            let expires_in = entry.and_then(|entry| expires(&entry.metadata));
            Some(request(id, HumanRequestKind::Approval, expires_in))
        }
        Stage::Question { id } => {
            let mut entries = smart.pending_user_questions.iter().flatten();
            let entry = entries
                .find(|entry| entry.id == *id && entry.status == UserQuestionStatus::Pending);
            let expires_in = entry.and_then(|entry| expires(&entry.metadata));
            Some(request(id, HumanRequestKind::Question, expires_in))
        }
        Stage::Client { id } => Some(request(id, HumanRequestKind::Client, None)),
        Stage::Queued | Stage::Begun | Stage::Done => None,
    });
    open.collect()
}
