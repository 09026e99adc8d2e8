//! `throughline fork`: a thread that shares another one's history.

use throughline_core::{LogId, Store as _, StoreError, json};

use crate::failure::Failure;
use crate::options::Fork;
use crate::store::{self, Missing, Opened};
use crate::text::{self, plain};

pub(crate) fn run(options: &Fork) -> Result<(), Failure> {
    store::with(&options.at, Missing::Fails, |opened| {
        let thread = LogId::from(options.thread.as_str());
        let head = opened.thread(&thread)?;
        let at = options.up_to.unwrap_or(head.last);
        let new = match &options.name {
            Some(name) => LogId::from(name.as_str()),
            None => free_name(opened, &thread)?,
        };
        let forked = opened.journal.fork(&opened.tenant, &thread, Some(at), &new);
        let forked = opened.run_to_the_end("the fork", forked)?;
        forked.map_err(|error| match error {
            StoreError::Conflict { log, .. } => Failure::Usage(format!(
                "there is a thread or run {log} already: choose another name with --as"
            )),
            error => opened.failed(error),
        })?;
        text::answer(
            &options.printing,
            || {
                let (new, thread) = (plain(&new.0), plain(&thread.0));
                format!("{} {new} goes on from record {at} of {thread}\n", text::mark(true))
            },
            || {
                json::object(|o| {
                    o.string("id", &new.0);
                    o.object("forked_from", |o| {
                        o.string("thread", &thread.0).number("at", at);
                    });
                    o.number("records", at);
                })
            },
        )
    })
}

/// The first name of its kind that is free.
fn free_name(opened: &Opened, thread: &LogId) -> Result<LogId, Failure> {
    for number in 1_u32.. {
        let name = LogId::from(format!("{thread}-fork-{number}"));
        if opened.run(opened.journal.log(&opened.tenant, &name))?.is_none() {
            return Ok(name);
        }
    }
    Err(Failure::Usage("name the new thread with --as".to_owned()))
}
