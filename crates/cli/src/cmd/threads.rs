//! `throughline threads`: lists the threads of a store.

use comfy_table::Cell;
use serde_json::{Value, json};
use throughline_core::LogHead;
use throughline_store::Page;

use crate::args::Threads;
use crate::print::failure::Failure;
use crate::print::listing::{self, Column};
use crate::print::text::{self, plain};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Threads) -> Result<(), Failure> {
    store::with(&options.at, IfMissing::FailsReadOnly, |opened| {
        let page = listing::page(&options.paging);
        if let Some(after) = &page.after {
            opened.thread(after)?;
        }
        let mut threads = opened.run(opened.journal.threads(&opened.tenant, page))?;
        let next = listing::cut(&mut threads, options.paging.limit).map(|head| head.log.0.clone());
        let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
        let mut runs = Vec::with_capacity(threads.len());
        for thread in &threads {
            runs.push(opened.runs(Some(&thread.log), everything.clone())?.len());
        }
        let none = match (threads.is_empty(), &options.paging.after) {
            (false, _) => None,
            (true, None) => Some(opened.empty_message("threads")?),
            (true, Some(after)) => Some(format!("there are no threads after {}\n", plain(after))),
        };
        text::answer(
            &options.printing,
            || none.unwrap_or_else(|| page_of(&threads, &runs, next.as_deref())),
            || json_of(&threads, &runs, next.as_deref()),
        )
    })
}

fn page_of(threads: &[LogHead], runs: &[usize], next: Option<&str>) -> String {
    let names = threads.iter().map(|head| match &head.fork {
        None => Cell::new(plain(&head.log.0)),
        Some(fork) => {
            let (log, parent) = (plain(&head.log.0), plain(&fork.log.0));
            Cell::new(format!("{log}\n└ {parent} up to {}", fork.at))
        }
    });
    let mut columns = vec![
        Column::new("thread", names),
        Column::numbers("records", threads.iter().map(|head| head.last.to_string())),
        Column::numbers("runs", runs.iter().map(usize::to_string)),
        listing::size_column(threads),
    ];
    columns.extend(listing::status_column(threads));
    columns.extend(listing::time_columns(threads));
    let mut out = listing::table(columns);
    out.extend(next.map(listing::next_page_hint));
    out
}

fn json_of(threads: &[LogHead], runs: &[usize], next: Option<&str>) -> Value {
    let threads = threads.iter().zip(runs).map(|(head, runs)| {
        let fork = head.fork.as_ref();
        json!({
            "id": head.log.0,
            "records": head.last,
            "runs": runs,
            "forked_from": fork.map(|fork| json!({ "thread": fork.log.0, "at": fork.at })),
            "bytes": head.bytes,
            "status": head.status,
            "gone": head.gone.map(|reason| reason.to_string()),
            "created": head.created.to_string(),
            "updated": head.updated.to_string(),
        })
    });
    json!({ "threads": threads.collect::<Vec<_>>(), "next": next })
}
