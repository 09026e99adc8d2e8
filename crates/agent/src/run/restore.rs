//! A run is taken elsewhere, as a snapshot, and goes on from one.

use std::collections::HashSet;

use throughline_core::{
    Append, Asked, Batch, Item, Json, LogId, LogOpening, Name, NewRecord, Pack, StateChange,
    Tenant, ToolApprovalStatus, UserQuestionStatus, json, kind, store_items,
};

use crate::action::{Action, AskingKind, Refusal};
use crate::cast::{Cast, Casting};
use crate::input::{Input, OpenCalls, What};
use crate::progress::{Progress, Stage};
use crate::run::{Begun, RUN, RunError, Runner, load, openings};
use crate::snapshot::{Snapshot, strip_runtime};
use crate::state::State;
use crate::step::step;
use crate::tool::ToolSpec;
use crate::window::{Kept, Window, readable};

impl Runner {
    /// A run as it stands, to go on from elsewhere.
    pub async fn snapshot(&self, tenant: &Tenant, run: &LogId) -> Result<Snapshot, RunError> {
        let (held, state) = load::read_run(self, tenant, run).await?;
        let mut archived = Vec::new();
        for execution in state.smart.tool_history_archived.iter().flatten() {
            let Some(name) = &execution.archive_id else { continue };
            let found = load::item_at(&*self.store, tenant, &held.thread, name).await?;
            archived.extend(found.map(|item| (name.clone(), item)));
        }
        Ok(Snapshot::of(&state, held.thread.0.clone(), archived))
    }

    /// Restores a run from a snapshot. The run keeps its names if they have the form of names that a runner makes and are
    /// free in this store; otherwise it gets new ones. Call [drive](Runner::drive) to continue it.
    ///
    /// The document is untrusted input. Tools come from this runner, limited to those that the document names; approvals
    /// are not carried over: every open call is decided again.
    pub async fn restore(&self, tenant: &Tenant, snapshot: Snapshot) -> Result<Begun, RunError> {
        let (names, open_calls) = (RestoredNames::KeepIfFree, OpenCalls::ByRules);
        self.restore_under(tenant, snapshot, names, open_calls).await
    }

    /// Restores a run from a snapshot under new names: for documents whose sender may not choose names. The rules for
    /// approvals are part of the document. Pass [`OpenCalls::NeedApproval`] if the caller cannot check them.
    pub async fn restore_as_new(
        &self,
        tenant: &Tenant,
        snapshot: Snapshot,
        open_calls: OpenCalls,
    ) -> Result<Begun, RunError> {
        self.restore_under(tenant, snapshot, RestoredNames::New, open_calls).await
    }

    async fn restore_under(
        &self,
        tenant: &Tenant,
        snapshot: Snapshot,
        names: RestoredNames,
        open_calls: OpenCalls,
    ) -> Result<Begun, RunError> {
        let Snapshot { mut smart, items, archived, mut casting, mut progress, thread } = snapshot;
        strip_runtime(&mut smart);
        casting.tools = self.given_tools(&casting)?;
        let cast = self.resolve(casting)?;
        self.check_costs(&cast)?;
        must_hold_together(&cast, &progress, &items)?;
        let (thread, run) = self.names_for(tenant, thread, &progress.run, names).await?;
        progress.run = run.0.clone();
        (progress.heard, progress.from) = (0, 0);
        let mut window = Window::default();
        for item in &items {
            let tokens = self.counter.count(&readable(item));
            window.push(Kept { item: item.clone(), tokens, seq: 0 });
        }
        let state = State::resumed(cast, smart, window, progress);
        let what = What::Restored(open_calls);
        let (state, actions) = step(state, Input { at: self.clock.now(), what });
        let (mut added, mut pack) = (Vec::new(), Pack::default());
        for action in actions {
            match action {
                Action::Keep(items) => added.extend(items),
                Action::Tell(event) => pack.push(event.json().bytes()),
                Action::Refuse(refusal) => return Err(refusal.into()),
                // The whole state is written below, and the driver of the run decides the next step from it.
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
        // The archived answers come first, so the rest of the Thread begins behind them.
        let mut moved = Vec::new();
        for (place, (name, _)) in (1_u64..).zip(&archived) {
            moved.push((name.clone(), Name::from(place.to_string())));
        }
        for execution in smart.tool_history_archived.iter_mut().flatten() {
            let to = moved.iter().find(|(from, _)| Some(from) == execution.archive_id.as_ref());
            execution.archive_id = to.map(|(_, to)| to.clone());
        }
        let from = moved.len() as u64 + 1;
        let ctx = smart.ctx.get_or_insert_default();
        ctx.push(("__contextFrom".into(), Json::from(from)));
        ctx.push(("__run".into(), json::string(&run.0)));
        let kept = archived.into_iter().map(|(_, item)| item).chain(items).chain(added);
        let kept: Vec<Item> = kept.collect();
        let mut records = Vec::with_capacity(kept.len() + 1);
        for (item, stored) in kept.iter().zip(store_items(&kept)) {
            let about = format!("{thread}/{}", item.id);
            records.push(NewRecord::new(kind::ITEM, stored.json.bytes().clone()).about(about));
        }
        records.push(change(&smart.json()).record());
        let mut batch = Batch::of(tenant.clone());
        let mut opened = Append::to(thread.clone()).opening(LogOpening::thread());
        opened.records = records;
        let [own, inbox] = openings(&run, &thread);
        let written = |error: serde_json::Error| RunError::Damaged {
            run: run.0.clone(),
            problem: error.to_string().into(),
        };
        let status = progress.status().as_str();
        let mut own =
            own.record(NewRecord::new(RUN, serde_json::to_vec(&cast.casting).map_err(written)?));
        own.records.extend((!pack.is_empty()).then(|| pack.record()));
        let own = own
            .record(NewRecord::new(
                kind::CHECKPOINT,
                serde_json::to_vec(&progress).map_err(written)?,
            ))
            .status(status);
        batch.appends = vec![opened, own, inbox];
        batch.asks = asks(&progress, &smart, &run, self.clock.now());
        self.store.commit(batch).await?;
        Ok(Begun { run, thread, repeated: false })
    }

    /// The specifications of the tools that a document names: this runner's own, except for tools that the caller runs.
    fn given_tools(&self, casting: &Casting) -> Result<Vec<ToolSpec>, Refusal> {
        let given = casting.tools.iter().map(|named| match self.tools.get(&named.name) {
            Some(tool) => Ok(tool.spec()),
            None if named.client => Ok(named.clone()),
            None => Err(Refusal::invalid(format!(
                "casting.tools: there is no tool {} here for this agent: give it the tool, and restore the snapshot again",
                named.name
            ))),
        });
        given.collect()
    }

    async fn names_for(
        &self,
        tenant: &Tenant,
        thread: Name,
        run: &Name,
        names: RestoredNames,
    ) -> Result<(LogId, LogId), RunError> {
        let (named_thread, named_run) = (LogId(thread), LogId(run.clone()));
        let may_keep = names == RestoredNames::KeepIfFree
            && has_our_form(&named_thread.0, "thread_")
            && has_our_form(&named_run.0, "run_")
            && self.store.log(tenant, &named_thread).await?.is_none()
            && self.store.log(tenant, &named_run).await?.is_none();
        Ok(if may_keep {
            (named_thread, named_run)
        } else {
            (LogId(self.ids.fresh("thread")), LogId(self.ids.fresh("run")))
        })
    }
}

/// The names that a restored run gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestoredNames {
    /// Its own, if they have our form and are free.
    KeepIfFree,
    /// New ones.
    New,
}

/// Whether a name is a prefix and 1 to 64 lower-case letters and digits, as the usual ids are.
fn has_our_form(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix).unwrap_or_default();
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=64).contains(&rest.len()) && rest.bytes().all(is_letter)
}

/// The largest count that a snapshot may hold. Counts grow from there, and must not overflow.
const MOST_COUNTED: u64 = 1 << 53;

/// Checks that the run can continue: its agent takes part, its counts are plausible, and each call is in the conversation.
fn must_hold_together(cast: &Cast, progress: &Progress, items: &[Item]) -> Result<(), Refusal> {
    if cast.part(&progress.agent).is_none() {
        let problem = format!("progress.agent: {} does not take part", progress.agent);
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
    if let Some((name, count)) = counts.into_iter().find(|(_, count)| *count > MOST_COUNTED) {
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
            let problem = format!("progress.calls: no item calls a tool as {}", open.id);
            return Err(Refusal::invalid(problem));
        }
        if !seen.insert(&open.id) {
            let problem = format!("progress.calls: the call {} is listed twice", open.id);
            return Err(Refusal::invalid(problem));
        }
    }
    Ok(())
}

/// The documented state as one change: all of it but the messages.
fn change(smart: &Json) -> StateChange {
    let tree = smart.tree();
    let mut change = StateChange::new();
    for (name, value) in tree.root().members() {
        if let Some(name) = name.name().filter(|name| &**name != "messages") {
            change.set.push((name, value.json()));
        }
    }
    change
}

/// What waits for somebody waits here, too.
fn asks(
    progress: &Progress,
    smart: &throughline_core::SmartState,
    run: &LogId,
    now: jiff::Timestamp,
) -> Vec<Asked> {
    let expires = |metadata: &Option<Vec<(Name, Json)>>| {
        let at = metadata.iter().flatten().find(|(name, _)| &**name == "expiresAt");
        let at: jiff::Timestamp = at.and_then(|(_, at)| at.tree().root().text()?.parse().ok())?;
        Some(std::time::Duration::try_from(at.duration_since(now)).unwrap_or_default())
    };
    let asked = |id: &Name, kind: AskingKind, expires_in| Asked {
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
            Some(asked(id, AskingKind::Approval, entry.and_then(|entry| expires(&entry.metadata))))
        }
        Stage::Question { id } => {
            let mut entries = smart.pending_user_questions.iter().flatten();
            let entry = entries
                .find(|entry| entry.id == *id && entry.status == UserQuestionStatus::Pending);
            Some(asked(id, AskingKind::Question, entry.and_then(|entry| expires(&entry.metadata))))
        }
        Stage::Client { id } => Some(asked(id, AskingKind::Client, None)),
        Stage::Queued | Stage::Begun | Stage::Done => None,
    });
    open.collect()
}
