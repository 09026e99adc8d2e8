//! The messages of a Thread, page by page.

use std::collections::HashMap;

use throughline_agent::{Casting, Runner};
use throughline_core::{
    Json, LogId, Name, RunEvent, Store, StoreError, Tenant, ToolApprovalEvent,
    ToolApprovalEventStatus, ToolCall, unpack,
};

use crate::letta::denied::Denied;
use crate::letta::project::{asks, named};
use crate::letta::query::Query;
use crate::letta::reader::{Seen, seen};
use crate::letta::request::RunNote;
use crate::letta::union::{self, Decided, Letter, MESSAGE};

/// How many records are read at a time.
const PAGE: u64 = 512;
/// The largest page.
const MOST: usize = 1000;

/// Which messages are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    pub(crate) after: Option<Name>,
    pub(crate) before: Option<Name>,
    pub(crate) limit: usize,
    pub(crate) is_ascending: bool,
    pub(crate) types: Vec<Name>,
}

impl Paging {
    /// As a query says it. The newest come first, unless it says otherwise.
    pub(crate) fn of(query: &Query, limit: usize) -> Result<Self, Denied> {
        let wanted = query.get("limit").map(|text| {
            let number = text.parse::<usize>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| Denied::new(422, "limit: must be a number above 0"))
        });
        let order = query.get("order").map(|order| &**order);
        if order.is_some_and(|order| !matches!(order, "asc" | "desc")) {
            return Err(Denied::new(422, "order: must be asc or desc"));
        }
        let is_ascending =
            order.map_or(query.is("ascending") == Some(true), |order| order == "asc");
        Ok(Self {
            after: query.get("after").cloned(),
            before: query.get("before").cloned(),
            limit: wanted.transpose()?.unwrap_or(limit).min(MOST),
            is_ascending,
            types: query.all("include_return_message_types"),
        })
    }

    /// As a query says it, for a list that stands in an order of its own and is read from its beginning.
    pub(crate) fn in_order(query: &Query, limit: usize) -> Result<Self, Denied> {
        let is_ascending = query.get("order").is_none_or(|order| &**order == "asc");
        Ok(Self { is_ascending, ..Self::of(query, limit)? })
    }

    /// Whether a page of the newest messages lies in these Items, with some to spare: the first of them may begin in the midst
    /// of an answer.
    fn may_be_in(&self, items: &[Seen]) -> bool {
        if self.is_ascending || self.before.is_some() {
            return false;
        }
        let older = match &self.after {
            Some(id) => items.iter().position(|seen| is_of(seen, id)).unwrap_or(0),
            None => items.len(),
        };
        older > self.limit.saturating_mul(2)
    }

    /// The page of a list that stands from the oldest to the newest, or in its own order. The cursors speak of the order
    /// that is asked for; an id that is not in the list is an error, so that paging never begins again. The cursors are
    /// looked up before the filter, because an object may stop fitting between two pages.
    pub(crate) fn cut<T>(
        &self,
        mut all: Vec<T>,
        is_it: impl Fn(&T, &str) -> bool,
        fits: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, Denied> {
        if !self.is_ascending {
            all.reverse();
        }
        let unknown = |name: &str, id: &str| {
            Denied::new(
                404,
                format!("{name}: there is no {id} in this list: use the id of an object in it"),
            )
        };
        let end = match &self.before {
            Some(id) => {
                let place = all.iter().position(|one| is_it(one, id));
                place.ok_or_else(|| unknown("before", id))?
            }
            None => all.len(),
        };
        let start = match &self.after {
            Some(id) => {
                let place = all.iter().rposition(|one| is_it(one, id));
                place.ok_or_else(|| unknown("after", id))? + 1
            }
            None => 0,
        };
        all.truncate(end);
        all.drain(..start.min(end));
        all.retain(fits);
        if self.before.is_some() && self.after.is_none() {
            // The ones next to the cursor.
            all.drain(..all.len().saturating_sub(self.limit));
        }
        all.truncate(self.limit);
        Ok(all)
    }
}

/// Reads the messages of a Thread.
pub(crate) struct Listing<'s> {
    pub(crate) runner: &'s Runner,
    pub(crate) tenant: &'s Tenant,
    pub(crate) thread: &'s LogId,
    /// What is known of the runs whose Items were read.
    runs: HashMap<Name, Lore>,
}

/// What the Items of a run do not say themselves.
#[derive(Default)]
struct Lore {
    casting: Option<Casting>,
    note: RunNote,
    /// What people decided, by the call.
    decided: HashMap<Name, (ToolApprovalEvent, jiff::Timestamp)>,
}

impl<'s> Listing<'s> {
    pub(crate) fn new(runner: &'s Runner, tenant: &'s Tenant, thread: &'s LogId) -> Self {
        Self { runner, tenant, thread, runs: HashMap::new() }
    }

    /// A page. A Thread is read backwards from its end, as far as the page needs it.
    pub(crate) async fn page(&mut self, paging: &Paging) -> Result<Vec<Json>, Denied> {
        let head = self.runner.store.log(self.tenant, self.thread).await?;
        let Some(head) = head else { return Ok(Vec::new()) };
        let mut items: Vec<Seen> = Vec::new();
        for span in head.spans(head.last).into_iter().rev() {
            let mut end = *span.end();
            while end >= *span.start() {
                let start = end.saturating_sub(PAGE - 1).max(*span.start());
                let mut page = self.between(start, end).await?;
                page.append(&mut items);
                items = page;
                end = start.saturating_sub(1);
                if paging.may_be_in(&items) {
                    let page = self.cut(paging, &items).await?;
                    if page.len() >= paging.limit {
                        return Ok(page);
                    }
                }
            }
        }
        self.cut(paging, &items).await
    }

    async fn cut(&mut self, paging: &Paging, items: &[Seen]) -> Result<Vec<Json>, Denied> {
        let letters = self.letters(items).await?;
        let is_wanted = |letter: &Letter| {
            paging.types.is_empty() || paging.types.iter().any(|kind| **kind == *letter.kind)
        };
        let page = paging.cut(letters, |letter, id| *letter.id == *id, is_wanted)?;
        Ok(page.iter().map(|letter| letter.json(None)).collect())
    }

    async fn between(&self, start: u64, end: u64) -> Result<Vec<Seen>, StoreError> {
        let mut records = Vec::new();
        let mut after = start.saturating_sub(1);
        while after < end {
            let left = u32::try_from(end - after).unwrap_or(u32::MAX);
            let page = self.runner.store.read(self.tenant, self.thread, after, left).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            records.extend(page);
        }
        seen(&records)
    }

    /// The Item of a message, if the Thread has it.
    pub(crate) async fn find(&mut self, message: &str) -> Result<Option<Seen>, StoreError> {
        let Some(head) = self.runner.store.log(self.tenant, self.thread).await? else {
            return Ok(None);
        };
        for span in head.spans(head.last).into_iter().rev() {
            let found = self.between(*span.start(), *span.end()).await?;
            if let Some(seen) = found.into_iter().rev().find(|seen| is_of(seen, message)) {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    /// The messages that Items are, in their order.
    async fn letters(&mut self, items: &[Seen]) -> Result<Vec<Letter>, Denied> {
        let mut letters = Vec::new();
        let mut calls: Vec<&Seen> = Vec::new();
        for seen in items {
            let run = union::run_of(&seen.item.id.0).unwrap_or_default();
            self.know(&run).await?;
            let step = union::step_of(&seen.item);
            let is_same = calls.last().is_none_or(|last| union::step_of(&last.item) == step);
            if !is_same || seen.item.call().is_none() {
                letters.extend(self.calls(&std::mem::take(&mut calls)));
            }
            if seen.item.call().is_some() {
                calls.push(seen);
                continue;
            }
            let lore = self.runs.get(&run);
            if let throughline_core::Body::Result(result) = &seen.item.body {
                letters.extend(lore.and_then(|lore| lore.decision(&result.call.0)));
            }
            let letter = union::of_item(seen);
            let is_users = seen.item.role == throughline_core::Role::User;
            letters.extend(letter.map(|letter| match lore.filter(|_| is_users) {
                Some(lore) => named(letter, &seen.item, &lore.note),
                None => letter,
            }));
        }
        letters.extend(self.calls(&calls));
        Ok(letters)
    }

    /// The calls of one answer.
    fn calls(&self, items: &[&Seen]) -> Vec<Letter> {
        let calls: Vec<(&Seen, &ToolCall)> =
            items.iter().filter_map(|seen| Some((*seen, seen.item.call()?))).collect();
        let asks = |call: &ToolCall, seen: &Seen| {
            let run = union::run_of(&seen.item.id.0).unwrap_or_default();
            let casting = self.runs.get(&run).and_then(|lore| lore.casting.as_ref());
            casting.is_some_and(|casting| asks(casting, call))
        };
        let of = |wanted: bool| {
            let these: Vec<_> =
                calls.iter().filter(|(seen, call)| asks(call, seen) == wanted).copied().collect();
            union::calls(&these, wanted)
        };
        [of(false), of(true)].into_iter().flatten().collect()
    }

    /// Reads what is known of a run, once.
    async fn know(&mut self, run: &Name) -> Result<(), Denied> {
        if self.runs.contains_key(run) {
            return Ok(());
        }
        let log = LogId(run.clone());
        let mut lore = Lore::default();
        // An Item that came from elsewhere has no run here.
        if self.runner.store.log(self.tenant, &log).await?.is_some()
            && let Ok((casting, _)) = self.runner.progress(self.tenant, &log).await
        {
            lore.note = RunNote::of(&casting);
            if needs_people(&casting) {
                lore.decided = decisions(&*self.runner.store, self.tenant, &log).await?;
            }
            lore.casting = Some(casting);
        }
        self.runs.insert(run.clone(), lore);
        Ok(())
    }
}

impl Lore {
    fn decision(&self, call: &str) -> Option<Letter> {
        let (event, at) = self.decided.get(call)?;
        let decided = Decided {
            approval: &event.id,
            call,
            approve: event.status == ToolApprovalEventStatus::Approved,
            reason: event.comment.as_deref(),
        };
        Some(union::decided(&decided, *at))
    }
}

fn needs_people(casting: &Casting) -> bool {
    let has_patterns =
        |agent: &throughline_agent::AgentConfig| !agent.human_in_the_loop.approve.is_empty();
    casting.agents.values().any(has_patterns)
        || casting.tools.iter().any(|spec| spec.needs_approval)
}

/// What people decided in a run, by the call.
async fn decisions(
    store: &dyn Store,
    tenant: &Tenant,
    run: &LogId,
) -> Result<HashMap<Name, (ToolApprovalEvent, jiff::Timestamp)>, StoreError> {
    let mut found = HashMap::new();
    let mut after = 0;
    loop {
        let records = store.read(tenant, run, after, 256).await?;
        let Some(last) = records.last() else { return Ok(found) };
        after = last.seq;
        for record in &records {
            for (_, event) in unpack(record).unwrap_or_default() {
                let event = Json::parse(event).ok().and_then(|event| RunEvent::parse(&event).ok());
                let Some(RunEvent::ToolApproval(event)) = event else { continue };
                let is_decided = event.status != ToolApprovalEventStatus::Pending;
                if let Some(call) = event.tool_call_id.clone().filter(|_| is_decided) {
                    found.insert(call, (event, record.at));
                }
            }
        }
    }
}

/// Whether an Item is the message of that id.
fn is_of(seen: &Seen, message: &str) -> bool {
    message.strip_prefix(MESSAGE) == Some(&*seen.item.id.0)
}
