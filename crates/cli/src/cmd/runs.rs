//! `throughline runs`: lists the runs of a store.

use comfy_table::Cell;
use serde_json::{Value, json};
use throughline_core::{LogHead, LogId};

use crate::args::Runs;
use crate::print::failure::Failure;
use crate::print::listing::{self, Column};
use crate::print::text::{self, plain};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Runs) -> Result<(), Failure> {
    store::with(&options.at, IfMissing::FailsReadOnly, |opened| {
        let thread = options.thread.as_deref().map(LogId::from);
        if let Some(thread) = &thread {
            opened.thread(thread)?;
        }
        let page = listing::page(&options.paging);
        if let Some(after) = &page.after {
            opened.log(after)?;
        }
        let mut runs = opened.runs(thread.as_ref(), page)?;
        let next = listing::cut(&mut runs, options.paging.limit).map(|head| head.log.0.clone());
        let none = match (runs.is_empty(), &options.paging.after, &thread) {
            (false, _, _) => None,
            (true, Some(after), _) => Some(format!("there are no runs after {}\n", plain(after))),
            (true, None, Some(thread)) => {
                Some(format!("the thread {} has no runs\n", plain(&thread.0)))
            }
            (true, None, None) => Some(opened.empty_message("runs")?),
        };
        text::answer(
            &options.printing,
            || none.unwrap_or_else(|| page_of(&runs, next.as_deref())),
            || json_of(&runs, next.as_deref()),
        )
    })
}

fn page_of(runs: &[LogHead], next: Option<&str>) -> String {
    let thread = |head: &LogHead| head.of.as_ref().map(|of| plain(&of.0)).unwrap_or_default();
    let mut columns = vec![
        Column::new("run", runs.iter().map(|head| Cell::new(plain(&head.log.0)))),
        Column::new("thread", runs.iter().map(|head| Cell::new(thread(head)))),
        Column::numbers("records", runs.iter().map(|head| head.last.to_string())),
        Column::numbers("events", runs.iter().map(|head| head.events.to_string())),
        listing::size_column(runs),
    ];
    columns.extend(listing::status_column(runs));
    columns.extend(listing::time_columns(runs));
    let mut out = listing::table(columns);
    out.extend(next.map(listing::next_page_hint));
    out
}

fn json_of(runs: &[LogHead], next: Option<&str>) -> Value {
    let runs = runs.iter().map(|head| {
        json!({
            "id": head.log.0,
            "thread": head.of.as_ref().map(|of| &*of.0),
            "records": head.last,
            "events": head.events,
            "bytes": head.bytes,
            "status": head.status,
            "gone": head.gone.map(|reason| reason.to_string()),
            "created": head.created.to_string(),
            "updated": head.updated.to_string(),
        })
    });
    json!({ "runs": runs.collect::<Vec<_>>(), "next": next })
}
