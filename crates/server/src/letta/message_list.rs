//! Lists the messages of a Thread, page by page.

use std::collections::HashMap;

use jiff::Timestamp;
use throughline_agent::{AgentConfig, RunSpec, Runner};
use throughline_core::{Body, Item, LogId, Role, Store, Tenant};
use throughline_json::{Json, Name};
use throughline_spec::{ReflectionEvent, RunEvent, ToolApprovalEvent, ToolApprovalEventStatus};

use crate::api::{ApiError, ApiResult, RunNote};
use crate::letta::item_reader::{StoredItem, stored_items};
use crate::letta::message::{self, LettaMessage, MESSAGE};
use crate::letta::projector::{named, needs_decision};
use crate::records::{RecordPages, StoreResult, run_events};
use crate::url::Query;

/// Number of records per store read.
const PAGE: u64 = 512;
const MOST: usize = 1000;

/// The paging parameters of a list request.
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    pub(crate) after: Option<Name>,
    pub(crate) before: Option<Name>,
    pub(crate) limit: usize,
    pub(crate) is_ascending: bool,
    pub(crate) types: Vec<Name>,
}

impl Paging {
    /// Parses the query. The default order is newest first.
    pub(crate) fn parse(query: &Query, limit: usize) -> ApiResult<Self> {
        let requested = query.get("limit").map(|text| {
            let number = text.parse::<usize>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| ApiError::new(422, "limit: must be a whole number greater than 0"))
        });
        let order = query.get("order").map(|order| &**order);
        if order.is_some_and(|order| !matches!(order, "asc" | "desc")) {
            return Err(ApiError::new(422, "order: must be asc or desc"));
        }
        let is_ascending =
            order.map_or(query.bool("ascending") == Some(true), |order| order == "asc");
        Ok(Self {
            after: query.get("after").cloned(),
            before: query.get("before").cloned(),
            limit: requested.transpose()?.unwrap_or(limit).min(MOST),
            is_ascending,
            types: query.all("include_return_message_types"),
        })
    }

    /// Parses the query for a list with a fixed order. By default, the list starts at its first
    /// entry.
    pub(crate) fn parse_fixed_order(query: &Query, limit: usize) -> ApiResult<Self> {
        let is_ascending = query.get("order").is_none_or(|order| &**order == "asc");
        Ok(Self { is_ascending, ..Self::parse(query, limit)? })
    }

    /// Returns whether these Items are certain to contain a full page of the newest messages.
    /// Requires more Items than the page needs, because the first Item may be in the middle of a
    /// reply.
    fn may_contain_page(&self, items: &[StoredItem]) -> bool {
        if self.is_ascending || self.before.is_some() {
            return false;
        }
        let older = match &self.after {
            Some(id) => items.iter().position(|stored| is_of(stored, id)).unwrap_or(0),
            None => items.len(),
        };
        older > self.limit.saturating_mul(2)
    }

    /// Cuts a page from a list that is sorted from oldest to newest or has a fixed order.
    ///
    /// Cursors refer to the requested order. An unknown cursor is an error, so paging never
    /// silently restarts. Cursors are resolved before the filter, because an object may stop
    /// matching between pages.
    pub(crate) fn cut_page<T>(
        &self,
        mut all: Vec<T>,
        is_it: impl Fn(&T, &str) -> bool,
        fits: impl Fn(&T) -> bool,
    ) -> ApiResult<Vec<T>> {
        if !self.is_ascending {
            all.reverse();
        }
        let unknown = |name: &str, id: &str| {
            let message =
                format!("{name}: {id} is not in this list; use the id of a listed object");
            ApiError::new(404, message)
        };
        let end = self.before.as_ref().map(|id| {
            let index = all.iter().position(|one| is_it(one, id));
            index.ok_or_else(|| unknown("before", id))
        });
        let start = self.after.as_ref().map(|id| {
            let index = all.iter().rposition(|one| is_it(one, id));
            index.map(|index| index + 1).ok_or_else(|| unknown("after", id))
        });
        let (end, start) = (end.transpose()?.unwrap_or(all.len()), start.transpose()?.unwrap_or(0));
        all.truncate(end);
        all.drain(..start.min(end));
        all.retain(fits);
        if self.before.is_some() && self.after.is_none() {
            // Keep the entries next to the cursor.
            all.drain(..all.len().saturating_sub(self.limit));
        }
        all.truncate(self.limit);
        Ok(all)
    }
}

/// Reads the messages of a Thread.
pub(crate) struct MessageList<'s> {
    pub(crate) runner: &'s Runner,
    pub(crate) tenant: &'s Tenant,
    pub(crate) thread: &'s LogId,
    /// Data of the runs whose Items were read, by run id.
    runs: HashMap<Name, DecisionIndex>,
}

/// Approval decisions and their times, by tool call.
type Decisions = HashMap<Name, (ToolApprovalEvent, Timestamp)>;

/// Run data that the Items do not contain.
#[derive(Default)]
struct DecisionIndex {
    casting: Option<RunSpec>,
    note: RunNote,
    decided: Decisions,
    /// Reflections and their times, by the last tool call that each of them covers.
    reflections: HashMap<Name, (ReflectionEvent, Timestamp)>,
}

impl<'s> MessageList<'s> {
    pub(crate) fn new(runner: &'s Runner, tenant: &'s Tenant, thread: &'s LogId) -> Self {
        Self { runner, tenant, thread, runs: HashMap::new() }
    }

    /// Returns a page of messages. Reads the Thread backwards from its end, as far as the page
    /// requires.
    pub(crate) async fn page(&mut self, paging: &Paging) -> ApiResult<Vec<Json>> {
        let head = self.runner.store.log(self.tenant, self.thread).await?;
        let Some(head) = head else { return Ok(Vec::new()) };
        let mut items: Vec<StoredItem> = Vec::new();
        for span in head.valid_ranges(head.last).into_iter().rev() {
            let mut end = *span.end();
            while end >= *span.start() {
                let start = end.saturating_sub(PAGE - 1).max(*span.start());
                let mut page = self.read_range(start, end).await?;
                page.append(&mut items);
                items = page;
                end = start.saturating_sub(1);
                if paging.may_contain_page(&items) {
                    let page = self.cut_page(paging, &items).await?;
                    if page.len() >= paging.limit {
                        return Ok(page);
                    }
                }
            }
        }
        self.cut_page(paging, &items).await
    }

    async fn cut_page(&mut self, paging: &Paging, items: &[StoredItem]) -> ApiResult<Vec<Json>> {
        let letters = self.convert_items(items).await?;
        let is_wanted = |letter: &LettaMessage| letter.content.is_one_of(&paging.types);
        let page = paging.cut_page(letters, |letter, id| *letter.head.id == *id, is_wanted)?;
        Ok(page.iter().map(|letter| letter.json(None)).collect())
    }

    async fn read_range(&self, start: u64, end: u64) -> StoreResult<Vec<StoredItem>> {
        let (store, after) = (&*self.runner.store, start.saturating_sub(1));
        let mut pages = RecordPages::new(store, self.tenant, self.thread, after);
        let mut records = Vec::new();
        while pages.after < end
            && let Some(page) = pages.next().await?
        {
            records.extend(page.into_iter().filter(|record| record.seq <= end));
        }
        stored_items(&records)
    }

    /// Finds the Item of a message; `None` if the Thread does not contain the message.
    pub(crate) async fn find(&mut self, message: &str) -> StoreResult<Option<StoredItem>> {
        let Some(head) = self.runner.store.log(self.tenant, self.thread).await? else {
            return Ok(None);
        };
        for span in head.valid_ranges(head.last).into_iter().rev() {
            let found = self.read_range(*span.start(), *span.end()).await?;
            if let Some(stored) = found.into_iter().rev().find(|stored| is_of(stored, message)) {
                return Ok(Some(stored));
            }
        }
        Ok(None)
    }

    async fn convert_items(&mut self, items: &[StoredItem]) -> ApiResult<Vec<LettaMessage>> {
        let mut letters = Vec::new();
        let mut calls: Vec<&StoredItem> = Vec::new();
        for stored in items {
            let run = message::run_of(&stored.item.id.0).unwrap_or_default();
            self.load_run(&run).await?;
            let step = message::step_of(&stored.item);
            let is_same = calls.last().is_none_or(|last| message::step_of(&last.item) == step);
            if !is_same || stored.item.call().is_none() {
                letters.extend(self.tool_call_messages(&std::mem::take(&mut calls)));
            }
            if stored.item.call().is_some() {
                calls.push(stored);
                continue;
            }
            let lore = self.runs.get(&run);
            if let Body::Result(result) = &stored.item.body {
                let decided = lore.and_then(|lore| lore.decided.get(&result.call.0));
                letters
                    .extend(decided.and_then(|(event, at)| message::approval_response(event, *at)));
            }
            let reflection = lore.and_then(|lore| match &stored.item.body {
                Body::Result(result) => lore.reflection(&result.call.0, &stored.item),
                _ => None,
            });
            let letter = message::from_item(stored);
            // The messages of an imported history have no otid of the request.
            let is_users = stored.item.role == Role::User && stored.item.native.is_none();
            letters.extend(letter.map(|letter| match lore.filter(|_| is_users) {
                Some(lore) => named(letter, &stored.item, &lore.note),
                None => letter,
            }));
            letters.extend(reflection);
        }
        letters.extend(self.tool_call_messages(&calls));
        Ok(letters)
    }

    /// Returns the messages for the tool calls of one model reply.
    fn tool_call_messages(&self, items: &[&StoredItem]) -> Vec<LettaMessage> {
        let run = items.first().and_then(|first| message::run_of(&first.item.id.0));
        let casting = run.and_then(|run| self.runs.get(&run)?.casting.as_ref());
        let asks = |call: &_| casting.is_some_and(|casting| needs_decision(casting, call));
        message::call_messages(&items.iter().copied(), asks)
    }

    /// Loads a run's data, unless it is already loaded.
    async fn load_run(&mut self, run: &Name) -> ApiResult<()> {
        if self.runs.contains_key(run) {
            return Ok(());
        }
        let log = LogId(run.clone());
        let mut lore = DecisionIndex::default();
        // An imported Item has no run in this store.
        if self.runner.store.log(self.tenant, &log).await?.is_some()
            && let Ok((casting, _)) = self.runner.progress(self.tenant, &log).await
        {
            lore.note = RunNote::parse(&casting);
            if may_need_approval(&casting) || may_reflect(&casting) {
                lore.read_events(&*self.runner.store, self.tenant, &log).await?;
            }
            lore.casting = Some(casting);
        }
        self.runs.insert(run.clone(), lore);
        Ok(())
    }
}

fn may_need_approval(casting: &RunSpec) -> bool {
    let has_patterns = |agent: &AgentConfig| !agent.human_in_the_loop.approve.is_empty();
    casting.agents.values().any(has_patterns)
        || casting.tools.iter().any(|spec| spec.needs_approval)
}

fn may_reflect(casting: &RunSpec) -> bool {
    let reflects = |agent: &AgentConfig| {
        agent.resolved_reasoning().is_ok_and(|reasoning| reasoning.reflection.is_some())
    };
    casting.agents.values().any(reflects)
}

impl DecisionIndex {
    /// Reads a run's approval decisions and reflections.
    async fn read_events(
        &mut self,
        store: &dyn Store,
        tenant: &Tenant,
        run: &LogId,
    ) -> StoreResult<()> {
        let mut pages = RecordPages::new(store, tenant, run, 0);
        while let Some(records) = pages.next().await? {
            for record in &records {
                for (_, event) in run_events(record) {
                    self.add_event(event, record.at);
                }
            }
        }
        Ok(())
    }

    fn add_event(&mut self, event: RunEvent, at: Timestamp) {
        match event {
            RunEvent::ToolApproval(event) => {
                let is_decided = event.status != ToolApprovalEventStatus::Pending;
                if let Some(call) = event.tool_call_id.clone().filter(|_| is_decided) {
                    self.decided.insert(call, (event, at));
                }
            }
            RunEvent::Reflection(event) => {
                if let Some(call) = event.tool_call_ids.iter().flatten().next_back().cloned() {
                    self.reflections.insert(call, (event, at));
                }
            }
            _ => {}
        }
    }

    /// Returns the message for the reflection that was written after this tool result.
    fn reflection(&self, call: &Name, result: &Item) -> Option<LettaMessage> {
        let (event, at) = self.reflections.get(call)?;
        let casting = self.casting.as_ref()?;
        let mut letter = message::reflection(event, *at);
        if let Some(agent) = casting.agents.get(&casting.first) {
            letter = letter.sent_by(&agent.identity());
        }
        letter.place.step_id = message::step_of(result);
        Some(letter)
    }
}

/// Returns whether a message id refers to this Item.
fn is_of(stored: &StoredItem, message: &str) -> bool {
    message.strip_prefix(MESSAGE) == Some(&*stored.item.id.0)
}
