//! `throughline prune`: content that is destroyed because its time is up.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::Cell;
use jiff::Timestamp;
use throughline_core::{Json, LogHead, json};
use throughline_store::{Destroyed, Retention};

use crate::failure::Failure;
use crate::forget::{put_unreached, said_yes, sentence, unreached};
use crate::listing::{self, Column};
use crate::options::Prune;
use crate::progress::Progress;
use crate::store::{self, Missing};
use crate::text::{self, count, plain, stored_size};

pub(crate) fn run(options: &Prune) -> Result<ExitCode, Failure> {
    const DAY: u64 = 24 * 60 * 60;
    let retention = Retention {
        older_than: options.days.map(|days| Duration::from_secs(u64::from(days) * DAY)),
        at_most_bytes: options.bytes,
    };
    let now = now();
    store::with(&options.at, Missing::Fails, |opened| {
        let mut threads = opened.run(opened.journal.expiring(&opened.tenant, retention, now))?;
        let destroyed = if options.dry_run || threads.is_empty() {
            None
        } else {
            // Where nobody sits there, as in a nightly job, there is nobody to ask.
            let is_asked = !options.yes && std::io::stdin().is_terminal();
            if is_asked && !said_yes(&question(&threads))? {
                return Err(Failure::Interrupted("nothing was destroyed".to_owned()));
            }
            let progress = Progress::of("pruning", &options.printing);
            let share = |done| progress.share(done);
            let work = opened.journal.prune(&opened.tenant, retention, now, &share);
            let destroyed = opened.run_to_the_end("pruning", work)?;
            Some(destroyed.map_err(|error| opened.failed(error))?)
        };
        if let Some(destroyed) = &destroyed {
            // What somebody used meanwhile stayed.
            threads.retain(|(head, _)| destroyed.logs.contains(&head.log));
        }
        text::answer(
            &options.printing,
            || told(options, &threads, destroyed.as_ref()),
            || json_of(options, &threads, destroyed.as_ref()),
        )
        .or_else(Failure::unless_reader_gone)?;
        Ok(destroyed.as_ref().map_or(ExitCode::SUCCESS, unreached))
    })
}

fn question(threads: &[(LogHead, u64)]) -> String {
    let bytes = stored_size(threads.iter().map(|(_, bytes)| bytes).sum());
    format!("Destroy the content of {} ({bytes}), for good?", count(threads.len(), "thread"))
}

#[expect(clippy::disallowed_methods, reason = "how old threads are is asked now, at a terminal")]
fn now() -> Timestamp {
    Timestamp::now()
}

fn told(options: &Prune, threads: &[(LogHead, u64)], destroyed: Option<&Destroyed>) -> String {
    if threads.is_empty() {
        return "nothing expires: no thread is that old, and there is not that much\n".to_owned();
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
            format!("{all} would expire, {}; nothing was destroyed", stored_size(bytes))
        }
        None => String::new(),
    };
    text::push_line(&mut out, &format!("\n{end}"));
    out
}

fn json_of(options: &Prune, threads: &[(LogHead, u64)], destroyed: Option<&Destroyed>) -> Json {
    json::object(|o| {
        o.bool("dry_run", options.dry_run);
        o.array("threads", |list| {
            for (head, bytes) in threads {
                list.object(|o| {
                    o.string("id", &head.log.0).number("bytes", *bytes);
                    o.string("updated", &head.updated.to_string());
                });
            }
        });
        let none = Destroyed::default();
        match (options.dry_run, destroyed.unwrap_or(&none)) {
            (true, _) => o.null("records"),
            (false, destroyed) => o.number("records", destroyed.records),
        };
        let bytes = threads.iter().map(|(_, bytes)| bytes).sum();
        o.number("bytes", destroyed.map_or(bytes, |destroyed| destroyed.bytes));
        put_unreached(o, &destroyed.unwrap_or(&none).unreached);
    })
}
