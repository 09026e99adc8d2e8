//! `throughline threads` and `throughline runs`: list the threads and runs of a store.

use owo_colors::Style;
use serde_json::{Value, json};
use throughline_core::{LogHead, LogId};
use throughline_store::Page;

use crate::args::{Format, Runs, Threads};
use crate::print::failure::Result;
use crate::print::listing::{self, Cell, Column};
use crate::print::text::{day, minute, plain, stored_size};
use crate::store::{self, IfMissing};

/// A page of threads or runs.
struct LogPage {
    /// JSON field that holds the listed threads or runs.
    name: &'static str,
    heads: Vec<LogHead>,
    /// Value of `--after` for the next page; `None` on the last page.
    next: Option<String>,
    /// Message that is printed instead of an empty table.
    empty: Option<String>,
}

pub(crate) fn threads(options: &Threads) -> Result<()> {
    store::with(&options.common.at, IfMissing::FailsReadOnly, |store| {
        let page = listing::page(&options.paging);
        if let Some(after) = &page.after {
            store.thread(after)?;
        }
        let mut heads = store.run(store.journal.threads(&store.tenant, page))?;
        let next = listing::cut(&mut heads, options.paging.limit).map(|head| head.log.to_string());
        let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
        let count = |head: &LogHead| Ok(store.runs(Some(&head.log), everything.clone())?.len());
        let runs: Vec<usize> = heads.iter().map(count).collect::<Result<_>>()?;
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
        let columns = vec![
            Column::new("thread", heads.iter().map(name)),
            Column::numbers("records", heads.iter().map(|head| head.last.to_string())),
            Column::numbers("runs", runs.iter().map(usize::to_string)),
        ];
        let entry = |(head, runs): (&LogHead, usize)| {
            let fork = head.fork.as_ref().map(|at| json!({ "thread": at.log.0, "at": at.at }));
            json!({ "id": head.log.0, "records": head.last, "runs": runs, "forked_from": fork })
        };
        let rows = heads.iter().zip(runs).map(entry).collect();
        LogPage { name: "threads", heads, next, empty }.print(options.common.format, columns, rows)
    })
}

pub(crate) fn runs(options: &Runs) -> Result<()> {
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
        let thread = |head: &LogHead| head.of.as_ref().map(|of| plain(&of.0)).unwrap_or_default();
        let columns = vec![
            Column::new("run", heads.iter().map(|head| plain(&head.log.0))),
            Column::new("thread", heads.iter().map(thread)),
            Column::numbers("records", heads.iter().map(|head| head.last.to_string())),
            Column::numbers("events", heads.iter().map(|head| head.events.to_string())),
        ];
        let entry = |head: &LogHead| {
            let (id, thread) = (&head.log.0, head.of.as_ref().map(|of| &*of.0));
            json!({ "id": id, "thread": thread, "records": head.last, "events": head.events })
        };
        let rows = heads.iter().map(entry).collect();
        LogPage { name: "runs", heads, next, empty }.print(options.common.format, columns, rows)
    })
}

impl LogPage {
    /// Prints threads or runs as a table of `columns` or as JSON `rows`. Adds the size, status and
    /// times of each log.
    fn print(self, format: Format, mut columns: Vec<Column>, mut rows: Vec<Value>) -> Result<()> {
        let Self { name, heads, next, empty } = self;
        let text = || {
            let size = heads.iter().map(|head| stored_size(head.bytes));
            columns.push(Column::numbers("size", size));
            let status = |head: &LogHead| match (&head.gone, &head.status) {
                (Some(gone), _) => Cell::styled(gone.to_string(), Style::new().red()),
                (None, Some(status)) => plain(status).into(),
                (None, None) => "".into(),
            };
            if heads.iter().any(|head| head.status.is_some() || head.gone.is_some()) {
                columns.push(Column::new("status", heads.iter().map(status)));
            }
            let written = heads.iter().map(|head| minute(head.updated));
            columns.push(Column::new("last written", written));
            let created = heads.iter().map(|head| day(head.created));
            columns.push(Column::new("created", created).droppable().dimmed());
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
