//! `throughline fork`: creates a thread that shares the history of another thread.

use serde_json::json;
use throughline_core::{LogId, Store as _, StoreError};

use crate::args::Fork;
use crate::print::failure::{Failure, Result};
use crate::print::text::{self, plain};
use crate::store::{self, IfMissing, OpenStore};

pub(crate) fn run(options: &Fork) -> Result<()> {
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let thread = LogId::from(options.thread.as_str());
        let head = store.thread(&thread)?;
        let at = options.up_to.unwrap_or(head.last);
        let new = match &options.name {
            Some(name) => LogId::from(name.as_str()),
            None => free_name(store, &thread)?,
        };
        let forked = store.journal.fork(&store.tenant, &thread, Some(at), &new);
        store.run_uninterrupted("the fork", forked, |error| match error {
            StoreError::Conflict { log, .. } => Failure::Usage(format!(
                "a thread or run with the id {log} already exists; choose another id with --as"
            )),
            error => store.to_failure()(error),
        })?;
        let text = || {
            let (new, thread) = (plain(&new.0), plain(&thread.0));
            format!("{} {new} continues from record {at} of {thread}\n", text::mark(true))
        };
        let json = || json!({ "id": new.0, "forked_from": { "thread": thread.0, "at": at }, "records": at });
        options.common.format.print(text, json)
    })
}

/// Returns the first unused id for a fork of the thread, such as `THREAD-fork-1`.
fn free_name(store: &OpenStore, thread: &LogId) -> Result<LogId> {
    let mut number = 1;
    loop {
        let name = LogId::from(format!("{thread}-fork-{number}"));
        if store.run(store.journal.log(&store.tenant, &name))?.is_none() {
            return Ok(name);
        }
        number += 1;
    }
}
