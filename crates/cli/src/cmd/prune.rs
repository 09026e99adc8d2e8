//! `throughline prune`: erases the content of expired threads.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::Cell;
use serde_json::{Value, json};
use throughline_core::LogHead;
use throughline_store::{ErasureReport, Retention};

use crate::args::Prune;
use crate::clock;
use crate::cmd::forget::{confirm, report_unreached, sentence};
use crate::print::failure::Failure;
use crate::print::listing::{self, Column};
use crate::print::progress::Progress;
use crate::print::text::{self, count, plain, stored_size};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Prune) -> Result<ExitCode, Failure> {
    const DAY: u64 = 24 * 60 * 60;
    let retention = Retention {
        older_than: options.days.map(|days| Duration::from_secs(u64::from(days) * DAY)),
        at_most_bytes: options.bytes,
    };
    let now = clock::now();
    store::with(&options.at, IfMissing::Fails, |opened| {
        let mut threads = opened.run(opened.journal.expiring(&opened.tenant, retention, now))?;
        let destroyed = if options.dry_run || threads.is_empty() {
            None
        } else {
            // Without a terminal, as in a nightly job, no confirmation is requested.
            let is_asked = !options.yes && std::io::stdin().is_terminal();
            if is_asked && !confirm(&question(&threads))? {
                return Err(Failure::Interrupted("nothing was erased".to_owned()));
            }
            let progress = Progress::new("pruning", &options.printing);
            let share = |done| progress.set_fraction(done);
            let work = opened.journal.prune(&opened.tenant, retention, now, &share);
            let destroyed = opened.run_uninterrupted("pruning", work)?;
            Some(destroyed.map_err(|error| opened.to_failure(error))?)
        };
        if let Some(destroyed) = &destroyed {
            // Threads that were written to meanwhile are kept.
            threads.retain(|(head, _)| destroyed.logs.contains(&head.log));
        }
        text::answer(
            &options.printing,
            || told(options, &threads, destroyed.as_ref()),
            || json_of(options, &threads, destroyed.as_ref()),
        )
        .or_else(Failure::ignore_closed_pipe)?;
        Ok(destroyed.as_ref().map_or(ExitCode::SUCCESS, report_unreached))
    })
}

fn question(threads: &[(LogHead, u64)]) -> String {
    let bytes = stored_size(threads.iter().map(|(_, bytes)| bytes).sum());
    format!("Erase the content of {} ({bytes}) permanently?", count(threads.len(), "thread"))
}

fn told(options: &Prune, threads: &[(LogHead, u64)], destroyed: Option<&ErasureReport>) -> String {
    if threads.is_empty() {
        return "nothing expires: no thread is old enough, and the store is within the size limit\n".to_owned();
    }
    let mut out = listing::table(vec![
        Column::new("thread", threads.iter().map(|(head, _)| Cell::new(plain(&head.log.0)))),
        Column::numbers("size", threads.iter().map(|(_, bytes)| stored_size(*bytes))),
        Column::new(
            "last written",
            threads.iter().map(|(head, _)| Cell::new(text::minute(head.updated))),
        ),
    ]);
    let bytes: u64 = threads.iter().map(|(_, bytes)| bytes).sum();
    let all = count(threads.len(), "thread");
    let end = match destroyed {
        Some(destroyed) => format!("{} {all} expired: {}", text::mark(true), sentence(destroyed)),
        None if options.dry_run => {
            format!("{all} would expire, {}; nothing was erased", stored_size(bytes))
        }
        None => String::new(),
    };
    text::push_line(&mut out, &format!("\n{end}"));
    out
}

fn json_of(
    options: &Prune,
    threads: &[(LogHead, u64)],
    destroyed: Option<&ErasureReport>,
) -> Value {
    let bytes = threads.iter().map(|(_, bytes)| bytes).sum();
    let records = destroyed.map_or(0, |destroyed| destroyed.records);
    let threads = threads.iter().map(|(head, bytes)| {
        json!({ "id": head.log.0, "bytes": bytes, "updated": head.updated.to_string() })
    });
    json!({
        "dry_run": options.dry_run,
        "threads": threads.collect::<Vec<_>>(),
        "records": (!options.dry_run).then_some(records),
        "bytes": destroyed.map_or(bytes, |destroyed| destroyed.bytes),
        "unreached": destroyed.map(|destroyed| &*destroyed.unreached).unwrap_or_default(),
    })
}
