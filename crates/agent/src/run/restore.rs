//! A run is taken elsewhere, as a snapshot, and goes on from one.

use throughline_core::{
    Append, Asked, Batch, Item, Json, LogId, LogOpening, Name, NewRecord, StateChange, Tenant,
    ToolApprovalStatus, UserQuestionStatus, json, kind, store_items,
};

use crate::action::{AskingKind, Refusal};
use crate::cast::Cast;
use crate::progress::{Progress, Stage};
use crate::run::{Begun, RUN, RunError, Runner, load, openings};
use crate::snapshot::Snapshot;

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

    /// Goes on from a snapshot: the run is kept in this store, under its own names where they are free. Somebody has to
    /// [drive](Runner::drive) it on.
    pub async fn restore(&self, tenant: &Tenant, snapshot: Snapshot) -> Result<Begun, RunError> {
        let Snapshot { mut smart, items, archived, casting, mut progress, thread } = snapshot;
        let cast = self.cast(casting)?;
        self.check_costs(&cast)?;
        must_hold_together(&cast, &progress, &items)?;
        let (mut thread, mut run) = (LogId(thread), LogId(progress.run.clone()));
        let is_taken = self.store.log(tenant, &thread).await?.is_some()
            || self.store.log(tenant, &run).await?.is_some();
        if is_taken {
            (thread, run) = (LogId(self.ids.fresh("thread")), LogId(self.ids.fresh("run")));
            // What is made up from now on is of the new run; what waits for a person keeps its name.
            progress.run = run.0.clone();
        }
        (progress.heard, progress.from) = (0, 0);
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
        let kept: Vec<Item> = archived.into_iter().map(|(_, item)| item).chain(items).collect();
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
        let own = own
            .record(NewRecord::new(RUN, serde_json::to_vec(&cast.casting).map_err(written)?))
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
}

/// Whether the run can go on from there: its agent takes part, and what it calls stands in the conversation.
fn must_hold_together(cast: &Cast, progress: &Progress, items: &[Item]) -> Result<(), Refusal> {
    if cast.part(&progress.agent).is_none() {
        let problem = format!("progress.agent: {} does not take part", progress.agent);
        return Err(Refusal::invalid(problem));
    }
    let has = |id: &Name| items.iter().filter_map(Item::call).any(|call| call.id.0 == *id);
    match progress.calls.iter().find(|open| !has(&open.id)) {
        Some(open) => {
            let problem = format!("progress.calls: no item calls a tool as {}", open.id);
            Err(Refusal::invalid(problem))
        }
        None => Ok(()),
    }
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
