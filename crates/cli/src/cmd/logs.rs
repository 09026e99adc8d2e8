//! `throughline threads` and `throughline runs`: list the threads and runs of a store.

use std::collections::HashSet;
use std::time::Duration;

use owo_colors::Style;
use serde_json::{Value, json};
use throughline_core::{Body, LogHead, LogId, RUNNING, Role, Store as _, kind, restore_items};
use throughline_json::Name;
use throughline_server::RunSummary;
use throughline_spec::RedactionPolicy;
use throughline_store::Page;

use crate::amount::{dollars, micro_dollars};
use crate::args::{CommonArgs, Format, Runs, Threads};
use crate::clock;
use crate::cmd::record;
use crate::print::failure::Result;
use crate::print::listing::{self, Cell, Column};
use crate::print::text::{day, elapsed, minute, one_line, plain, stored_size};
use crate::store::{self, IfMissing, OpenStore};

/// Status that is shown for a run that is marked as running although no process drives it.
const INTERRUPTED: &str = "interrupted";

/// Number of stale runs per store query.
const STALE_PAGE: u32 = 256;

/// Number of records at the start of a thread to read for its title.
const FIRST: u32 = 24;

/// Maximum width of a title in a table.
const LONGEST_TITLE: usize = 60;

/// A page of threads or runs.
struct LogPage {
    /// JSON field that holds the listed threads or runs.
    name: &'static str,
    heads: Vec<LogHead>,
    /// Runs that are marked as running although no process drives them.
    interrupted: HashSet<LogId>,
    /// Value of `--after` for the next page; `None` on the last page.
    next: Option<String>,
    /// Message that is printed instead of an empty table.
    empty: Option<String>,
}

/// Title, models and cost of a thread or run.
#[derive(Default)]
struct LogSummary {
    title: Option<String>,
    models: Vec<Name>,
    cost_usd: Option<f64>,
}

pub(crate) fn threads(options: &Threads) -> Result<()> {
    let policy = redaction_policy(&options.common)?;
    store::with(&options.common.at, IfMissing::FailsReadOnly, |store| {
        let page = listing::page(&options.paging);
        if let Some(after) = &page.after {
            store.thread(after)?;
        }
        let mut heads = store.run(store.journal.threads(&store.tenant, page))?;
        let next = listing::cut(&mut heads, options.paging.limit).map(|head| head.log.to_string());
        let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
        let (mut counts, mut summaries) = (Vec::new(), Vec::new());
        for head in &heads {
            let runs = store.runs(Some(&head.log), everything.clone())?;
            counts.push(runs.len());
            summaries.push(LogSummary::for_thread(store, head, &runs, &policy)?);
        }
        let empty = match (heads.is_empty(), &options.paging.after) {
            (false, _) => None,
            (true, None) => Some(store.empty_message("threads")?),
            (true, Some(after)) => Some(format!("there are no threads after {}\n", plain(after))),
        };
        let name = |head: &LogHead| match &head.fork {
            None => plain(&head.log.0),
            Some(fork) => {
                let (log, parent) = (plain(&head.log.0), plain(&fork.log.0));
                format!("{log}\n└ {parent} up to {}", fork.at)
            }
        };
        let mut columns = vec![Column::new("thread", heads.iter().map(name))];
        columns.extend(title_column(&summaries));
        columns.push(Column::numbers("runs", counts.iter().map(usize::to_string)).unwrapped());
        columns.extend(model_column(&summaries));
        columns.extend(cost_column(&summaries));
        let records = heads.iter().map(|head| head.last.to_string());
        let details = vec![Column::numbers("records", records).unwrapped().droppable()];
        let entry = |((head, runs), summary): ((&LogHead, usize), &LogSummary)| {
            let fork = head.fork.as_ref().map(|at| json!({ "thread": at.log.0, "at": at.at }));
            let mut entry = json!({ "id": head.log.0, "records": head.last, "runs": runs, "forked_from": fork });
            summary.put(&mut entry);
            entry
        };
        let rows = heads.iter().zip(counts).zip(&summaries).map(entry).collect();
        let page = LogPage { name: "threads", heads, interrupted: HashSet::new(), next, empty };
        page.print(options.common.format, columns, details, rows)
    })
}

pub(crate) fn runs(options: &Runs) -> Result<()> {
    let policy = redaction_policy(&options.common)?;
    store::with(&options.common.at, IfMissing::FailsReadOnly, |store| {
        let thread = options.thread.as_deref().map(LogId::from);
        if let Some(thread) = &thread {
            store.thread(thread)?;
        }
        let page = listing::page(&options.paging);
        if let Some(after) = &page.after {
            store.log(after)?;
        }
        let mut heads = store.runs(thread.as_ref(), page)?;
        let next = listing::cut(&mut heads, options.paging.limit).map(|head| head.log.to_string());
        let empty = match (heads.is_empty(), &options.paging.after, &thread) {
            (false, _, _) => None,
            (true, Some(after), _) => Some(format!("there are no runs after {}\n", plain(after))),
            (true, None, Some(thread)) => {
                Some(format!("the thread {} has no runs\n", plain(&thread.0)))
            }
            (true, None, None) => Some(store.empty_message("runs")?),
        };
        let interrupted = interrupted(store)?;
        let summaries = heads.iter().map(|head| LogSummary::for_run(store, head, &policy));
        let summaries: Vec<LogSummary> = summaries.collect::<Result<_>>()?;
        let durations: Vec<Duration> =
            heads.iter().map(|head| duration(head, interrupted.contains(&head.log))).collect();
        let mut columns = vec![Column::new("run", heads.iter().map(|head| plain(&head.log.0)))];
        columns.extend(title_column(&summaries));
        columns.extend(status_column(&heads, &interrupted));
        columns.extend(model_column(&summaries));
        let shown = durations.iter().map(|duration| elapsed(*duration));
        columns.push(Column::numbers("duration", shown).unwrapped().droppable());
        columns.extend(cost_column(&summaries));
        let thread = |head: &LogHead| head.of.as_ref().map(|of| plain(&of.0)).unwrap_or_default();
        let records = heads.iter().map(|head| head.last.to_string());
        let events = heads.iter().map(|head| head.events.to_string());
        let details = vec![
            Column::new("thread", heads.iter().map(thread)).unwrapped().droppable(),
            Column::numbers("records", records).unwrapped().droppable(),
            Column::numbers("events", events).unwrapped().droppable(),
        ];
        let entry = |((head, summary), duration): ((&LogHead, &LogSummary), &Duration)| {
            let (id, thread) = (&head.log.0, head.of.as_ref().map(|of| &*of.0));
            let mut entry =
                json!({ "id": id, "thread": thread, "records": head.last, "events": head.events });
            summary.put(&mut entry);
            if let Some(entry) = entry.as_object_mut() {
                let duration = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
                entry.insert("duration_ms".to_owned(), json!(duration));
                entry.insert("interrupted".to_owned(), json!(interrupted.contains(&head.log)));
            }
            entry
        };
        let rows = heads.iter().zip(&summaries).zip(&durations).map(entry).collect();
        let page = LogPage { name: "runs", heads, interrupted, next, empty };
        page.print(options.common.format, columns, details, rows)
    })
}

fn redaction_policy(common: &CommonArgs) -> Result<RedactionPolicy> {
    record::policy(None, common.at.config.as_deref())
}

/// Returns the tenant's runs that are marked as running although no process has a lease on them.
fn interrupted(store: &OpenStore) -> Result<HashSet<LogId>> {
    let (mut found, mut after) = (HashSet::new(), 0);
    loop {
        let page = store.run(store.journal.stale_runs(Duration::ZERO, after, STALE_PAGE))?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.place;
        for stale in page.into_iter().filter(|stale| stale.tenant == store.tenant) {
            // The list also contains waiting runs whose pending request has expired.
            let head = store.run(store.journal.log(&store.tenant, &stale.run))?;
            if head.and_then(|head| head.status).as_deref() == Some(RUNNING) {
                found.insert(stale.run);
            }
        }
    }
}

/// Returns the time from the start of a run to its last write, or to now while a process drives it.
fn duration(head: &LogHead, is_interrupted: bool) -> Duration {
    let is_driven = head.status.as_deref() == Some(RUNNING) && !is_interrupted;
    let end = if is_driven { clock::now().max(head.updated) } else { head.updated };
    Duration::try_from(end.duration_since(head.created)).unwrap_or_default()
}

impl LogSummary {
    /// Reads the summary of a run; empty if the run was erased.
    fn for_run(store: &OpenStore, head: &LogHead, policy: &RedactionPolicy) -> Result<Self> {
        if head.gone.is_some() {
            return Ok(Self::default());
        }
        let read = RunSummary::read(&store.journal, &store.tenant, &head.log, policy);
        let summary = store.run(read)?;
        Ok(Self {
            title: summary.title.as_ref().map(ToString::to_string),
            models: summary.models().to_vec(),
            cost_usd: summary.cost_usd(),
        })
    }

    /// Combines the summaries of a thread's runs, which are listed newest first. A thread without
    /// runs gets its title from its first user message.
    fn for_thread(
        store: &OpenStore,
        head: &LogHead,
        runs: &[LogHead],
        policy: &RedactionPolicy,
    ) -> Result<Self> {
        if head.gone.is_some() {
            return Ok(Self::default());
        }
        let mut combined = Self::default();
        for run in runs.iter().rev() {
            let Self { title, models, cost_usd } = Self::for_run(store, run, policy)?;
            combined.title = combined.title.or(title);
            for model in models {
                if !combined.models.contains(&model) {
                    combined.models.push(model);
                }
            }
            combined.cost_usd =
                combined.cost_usd.map_or(cost_usd, |sum| Some(sum + cost_usd.unwrap_or_default()));
        }
        if combined.title.is_none() {
            combined.title = first_message(store, head, policy)?;
        }
        Ok(combined)
    }

    fn put(&self, entry: &mut Value) {
        entry["title"] = json!(self.title);
        entry["models"] = json!(self.models.iter().map(|model| &**model).collect::<Vec<_>>());
        entry["cost_usd"] = json!(self.cost_usd);
    }
}

/// Returns the first user message of a thread, redacted; `None` if the thread has no such Item.
fn first_message(
    store: &OpenStore,
    head: &LogHead,
    policy: &RedactionPolicy,
) -> Result<Option<String>> {
    let records = store.run(store.journal.read(&store.tenant, &head.log, 0, FIRST))?;
    let items = records.iter().filter(|record| &*record.kind == kind::ITEM);
    // Programs can store other documents than Items, which have no title.
    let items = restore_items(items.map(|record| record.content.bytes().cloned()));
    let text = items.unwrap_or_default().into_iter().find_map(|item| match item.body {
        Body::Text(text) if item.role == Role::User && !text.trim().is_empty() => Some(text),
        _ => None,
    });
    Ok(text.map(|text| policy.redact_text(&text).into_owned()))
}

/// Returns the column of titles; `None` if no log has a title.
fn title_column(summaries: &[LogSummary]) -> Option<Column> {
    let title = |summary: &LogSummary| {
        one_line(&plain(summary.title.as_deref().unwrap_or_default()), LONGEST_TITLE)
    };
    let is_shown = summaries.iter().any(|summary| summary.title.is_some());
    is_shown.then(|| Column::new("title", summaries.iter().map(title)).truncated())
}

/// Returns the column of models; `None` if no model was called.
fn model_column(summaries: &[LogSummary]) -> Option<Column> {
    let models = |summary: &LogSummary| plain(&summary.models.join(", "));
    let is_shown = summaries.iter().any(|summary| !summary.models.is_empty());
    is_shown.then(|| Column::new("model", summaries.iter().map(models)).truncated().droppable())
}

/// Returns the column of costs; `None` if no cost is known.
fn cost_column(summaries: &[LogSummary]) -> Option<Column> {
    let cost = |summary: &LogSummary| {
        summary.cost_usd.and_then(micro_dollars).map(dollars).unwrap_or_default()
    };
    let is_shown = summaries.iter().any(|summary| summary.cost_usd.is_some());
    is_shown.then(|| Column::numbers("cost", summaries.iter().map(cost)).unwrapped().droppable())
}

/// Returns the column of statuses; `None` if no log has a status.
fn status_column(heads: &[LogHead], interrupted: &HashSet<LogId>) -> Option<Column> {
    let status = |head: &LogHead| match (&head.gone, &head.status) {
        (Some(gone), _) => Cell::styled(gone.to_string(), Style::new().red()),
        (None, Some(_)) if interrupted.contains(&head.log) => {
            Cell::styled(INTERRUPTED, Style::new().yellow())
        }
        (None, Some(status)) => plain(status).into(),
        (None, None) => "".into(),
    };
    let is_shown = heads.iter().any(|head| head.status.is_some() || head.gone.is_some());
    is_shown.then(|| Column::new("status", heads.iter().map(status)).unwrapped())
}

impl LogPage {
    /// Prints threads or runs as a table or as JSON `rows`. The table has the given columns, the
    /// time of the last write, the details, the size and the creation date. Columns on the right
    /// are dropped on narrow terminals.
    fn print(
        self,
        format: Format,
        mut columns: Vec<Column>,
        details: Vec<Column>,
        mut rows: Vec<Value>,
    ) -> Result<()> {
        let Self { name, heads, interrupted, next, empty } = self;
        let text = || {
            if name == "threads" {
                columns.extend(status_column(&heads, &interrupted));
            }
            let written = heads.iter().map(|head| minute(head.updated));
            columns.push(Column::new("last written", written).unwrapped().droppable());
            columns.extend(details);
            let size = heads.iter().map(|head| stored_size(head.bytes));
            columns.push(Column::numbers("size", size).unwrapped().droppable());
            let created = heads.iter().map(|head| day(head.created));
            columns.push(Column::new("created", created).unwrapped().droppable().dimmed());
            let hint = next.as_deref().map(listing::next_page_hint);
            empty.unwrap_or_else(|| listing::table(columns) + &hint.unwrap_or_default())
        };
        let json = || {
            for (entry, head) in rows.iter_mut().zip(&heads) {
                entry["bytes"] = json!(head.bytes);
                entry["status"] = json!(head.status);
                entry["gone"] = json!(head.gone.map(|reason| reason.to_string()));
                entry["created"] = json!(head.created.to_string());
                entry["updated"] = json!(head.updated.to_string());
            }
            json!({ name: rows, "next": next })
        };
        format.print(text, json)
    }
}
