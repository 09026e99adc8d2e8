//! `throughline forget` and `throughline prune`: erase content permanently.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use owo_colors::{OwoColorize as _, Style};
use serde_json::{Value, json};
use throughline_core::{LogHead, LogId};
use throughline_store::{ErasureReport, LogClassifier as _, Page, Retention};

use crate::args::{Forget, Prune};
use crate::clock;
use crate::print::failure::{Failure, Result};
use crate::print::listing::{self, Column};
use crate::print::progress::Progress;
use crate::print::text::{self, count, plain, stored_size};
use crate::retention::TenantLogs;
use crate::store::{self, IfMissing, OpenStore};

pub(crate) fn forget(options: &Forget) -> Result<ExitCode> {
    require_confirmation(options.yes, "forgotten")?;
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let thread = LogId::from(options.thread.as_str());
        let head = store.thread(&thread)?;
        if !options.yes && !confirm_forget(store, options, &head)? {
            return Err(Failure::Interrupted("nothing was forgotten".to_owned()));
        }
        let item = options.item.as_deref();
        let work = store.journal.forget(&store.tenant, &thread, item);
        let erased = store.run_uninterrupted("the erasure", work, store.to_failure())?;
        let text = || format!("{} forgotten: {}\n", text::mark(true), sentence(&erased));
        let json = || {
            json!({
                "logs": erased.logs.iter().map(|log| &*log.0).collect::<Vec<_>>(),
                "records": erased.records,
                "bytes": erased.bytes,
                "unreached": erased.unreached,
            })
        };
        options.common.format.print(text, json).or_else(Failure::ignore_closed_pipe)?;
        Ok(report_unreached(&erased))
    })
}

/// Prompts the user to confirm an erasure.
fn confirm_forget(store: &OpenStore, options: &Forget, head: &LogHead) -> Result<bool> {
    let thread = plain(&options.thread);
    let subject = match &options.item {
        Some(item) => format!("the item {} of {thread}", plain(item)),
        None => {
            let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
            let runs = count(store.runs(Some(&head.log), everything)?.len(), "run");
            let (records, bytes) = (head.last, stored_size(head.bytes));
            format!("{thread}, with all its {records} records ({bytes}) and {runs}")
        }
    };
    confirm(&format!("Erase the content of {subject} permanently?"))
}

pub(crate) fn prune(options: &Prune) -> Result<ExitCode> {
    const DAY: u64 = 24 * 60 * 60;
    require_confirmation(options.yes || options.dry_run, "pruned")?;
    let retention = Retention {
        older_than: options.days.map(|days| Duration::from_secs(u64::from(days) * DAY)),
        at_most_bytes: options.bytes,
    };
    let now = clock::now();
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let logs = store.run(TenantLogs::load(&store.journal, &store.tenant))?;
        let is_permanent = |log: &LogId| logs.is_permanent(log);
        let expiring = store.journal.expiring(&store.tenant, (retention, &is_permanent), now);
        let mut threads = store.run(expiring)?;
        let erased = if options.dry_run || threads.is_empty() {
            None
        } else {
            let bytes = stored_size(threads.iter().map(|(_, bytes)| bytes).sum());
            let all = count(threads.len(), "thread");
            let question = format!("Erase the content of {all} ({bytes}) permanently?");
            if !options.yes && !confirm(&question)? {
                return Err(Failure::Interrupted("nothing was erased".to_owned()));
            }
            let progress = Progress::new("pruning", options.common.format);
            let share = |fraction| progress.set_fraction(fraction);
            let work = store.journal.prune(&store.tenant, (retention, &is_permanent), now, &share);
            Some(store.run_uninterrupted("the erasure", work, store.to_failure())?)
        };
        let erased = erased.as_ref();
        if let Some(erased) = erased {
            // Threads that received new records in the meantime are not erased.
            threads.retain(|(head, _)| erased.logs.contains(&head.log));
        }
        let (text, json) =
            (|| text_of(options, &threads, erased), || json_of(options, &threads, erased));
        options.common.format.print(text, json).or_else(Failure::ignore_closed_pipe)?;
        Ok(erased.map_or(ExitCode::SUCCESS, report_unreached))
    })
}

fn text_of(options: &Prune, threads: &[(LogHead, u64)], erased: Option<&ErasureReport>) -> String {
    if threads.is_empty() {
        return "nothing expires: no thread is old enough, and the store is within the size limit\n".to_owned();
    }
    let minute = |head: &LogHead| text::minute(head.updated);
    let mut out = listing::table(vec![
        Column::new("thread", threads.iter().map(|(head, _)| plain(&head.log.0))),
        Column::numbers("size", threads.iter().map(|(_, bytes)| stored_size(*bytes))),
        Column::new("last written", threads.iter().map(|(head, _)| minute(head))),
    ]);
    let bytes: u64 = threads.iter().map(|(_, bytes)| bytes).sum();
    let all = count(threads.len(), "thread");
    let end = match erased {
        Some(erased) => format!("{} {all} expired: {}", text::mark(true), sentence(erased)),
        None if options.dry_run => {
            format!("{all} would expire, {}; nothing was erased", stored_size(bytes))
        }
        None => String::new(),
    };
    text::push_line(&mut out, &format!("\n{end}"));
    out
}

fn json_of(options: &Prune, threads: &[(LogHead, u64)], erased: Option<&ErasureReport>) -> Value {
    let bytes = threads.iter().map(|(_, bytes)| bytes).sum();
    let records = erased.map_or(0, |erased| erased.records);
    let threads = threads.iter().map(|(head, bytes)| {
        json!({ "id": head.log.0, "bytes": bytes, "updated": head.updated.to_string() })
    });
    json!({
        "dry_run": options.dry_run,
        "threads": threads.collect::<Vec<_>>(),
        "records": (!options.dry_run).then_some(records),
        "bytes": erased.map_or(bytes, |erased| erased.bytes),
        "unreached": erased.map(|erased| &*erased.unreached).unwrap_or_default(),
    })
}

/// Fails if an erasure is not confirmed yet and the command cannot prompt for the confirmation.
fn require_confirmation(is_confirmed: bool, erased: &str) -> Result<()> {
    if is_confirmed || std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{erased} content cannot be recovered, and standard input is not a terminal: add --yes to \
         confirm"
    )))
}

/// Prompts the user to type `yes`. Any other input means no.
fn confirm(question: &str) -> Result<bool> {
    let prompt = format!("{} Type {} to continue: ", question.bold(), "yes".bold());
    Ok(text::prompt(&prompt)?.is_some_and(|answer| answer.eq_ignore_ascii_case("yes")))
}

fn sentence(erased: &ErasureReport) -> String {
    let (records, logs) = (count(erased.records, "record"), count(erased.logs.len(), "log"));
    format!("{records} in {logs}, {}", stored_size(erased.bytes))
}

/// Reports backup key files and records that may still hold erased content. Returns exit code 1 if
/// there are any.
fn report_unreached(erased: &ErasureReport) -> ExitCode {
    for backup in &erased.unreached {
        let message = format!(
            "{backup} was unreachable and may still hold the content: put it back in place and run \
             any command on this store; if it was moved, run `throughline backup --register KEYS` with its \
             new path; if it was deleted, run `throughline backup --unregister {backup}`"
        );
        text::notice("unreachable:", Style::new().red(), &message);
    }
    if erased.damaged > 0 {
        let records = count(erased.damaged, "record");
        let message = format!(
            "{records} of the thread cannot be decrypted and may also contain the item: \
             `throughline verify` locates them; forget the whole thread to be certain"
        );
        text::notice("unknown:", Style::new().red(), &message);
    }
    let is_certain = erased.unreached.is_empty() && erased.damaged == 0;
    if is_certain { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
