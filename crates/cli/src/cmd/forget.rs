//! `throughline forget`: erases content permanently.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use owo_colors::{OwoColorize as _, Style};
use serde_json::json;
use throughline_core::{LogHead, LogId};
use throughline_store::{ErasureReport, Page};

use crate::args::Forget;
use crate::print::failure::Failure;
use crate::print::text::{self, count, plain, stored_size};
use crate::store::{self, IfMissing, OpenStore};

pub(crate) fn run(options: &Forget) -> Result<ExitCode, Failure> {
    if !options.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "forgotten content cannot be recovered, and standard input is not a terminal: add --yes \
             to confirm"
                .to_owned(),
        ));
    }
    store::with(&options.at, IfMissing::Fails, |opened| {
        let thread = LogId::from(options.thread.as_str());
        let head = opened.thread(&thread)?;
        if !options.yes && !confirm_forget(opened, options, &head)? {
            return Err(Failure::Interrupted("nothing was forgotten".to_owned()));
        }
        let item = options.item.as_deref();
        let work = opened.journal.forget(&opened.tenant, &thread, item);
        let destroyed = opened.run_uninterrupted("forgetting", work)?;
        let destroyed = destroyed.map_err(|error| opened.to_failure(error))?;
        text::answer(
            &options.printing,
            || format!("{} forgotten: {}\n", text::mark(true), sentence(&destroyed)),
            || {
                json!({
                    "logs": destroyed.logs.iter().map(|log| &*log.0).collect::<Vec<_>>(),
                    "records": destroyed.records,
                    "bytes": destroyed.bytes,
                    "unreached": destroyed.unreached,
                })
            },
        )
        .or_else(Failure::ignore_closed_pipe)?;
        Ok(report_unreached(&destroyed))
    })
}

/// Asks the user to confirm.
fn confirm_forget(opened: &OpenStore, options: &Forget, head: &LogHead) -> Result<bool, Failure> {
    let thread = plain(&options.thread);
    let what = match &options.item {
        Some(item) => format!("the item {} of {thread}", plain(item)),
        None => {
            let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
            let runs = opened.journal.runs(&opened.tenant, Some(&head.log), everything);
            let runs = count(opened.run(runs)?.len(), "run");
            let (records, bytes) = (head.last, stored_size(head.bytes));
            format!("{thread}, with all its {records} records ({bytes}) and {runs}")
        }
    };
    confirm(&format!("Erase the content of {what} permanently?"))
}

/// Asks the user to type `yes`.
pub(crate) fn confirm(question: &str) -> Result<bool, Failure> {
    let mut out = anstream::stderr();
    let asked = write!(out, "{} Type {} to continue: ", question.bold(), "yes".bold());
    asked.and_then(|()| out.flush()).context("the question cannot be printed")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("the answer cannot be read")?;
    Ok(answer.trim().eq_ignore_ascii_case("yes"))
}

/// Summarises the erased content.
pub(crate) fn sentence(destroyed: &ErasureReport) -> String {
    let (records, logs) = (count(destroyed.records, "record"), count(destroyed.logs.len(), "log"));
    format!("{records} in {logs}, {}", stored_size(destroyed.bytes))
}

/// Reports key files and records that may still hold the content; the exit code is then 1.
pub(crate) fn report_unreached(destroyed: &ErasureReport) -> ExitCode {
    for backup in &destroyed.unreached {
        let message = format!(
            "{backup} was unreachable and may still hold the content: put it back in place and run \
             any command on this store; if it was moved, run `throughline backup --register KEYS` with its \
             new path; if it was deleted, run `throughline backup --unregister {backup}`"
        );
        text::notice("unreachable:", Style::new().red(), &message);
    }
    if destroyed.damaged > 0 {
        let records = count(destroyed.damaged, "record");
        let message = format!(
            "{records} of the thread cannot be decrypted and may hold it too: `throughline verify` \
             locates them; forget the whole thread to be certain"
        );
        text::notice("unknown:", Style::new().red(), &message);
    }
    let is_certain = destroyed.unreached.is_empty() && destroyed.damaged == 0;
    if is_certain { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
