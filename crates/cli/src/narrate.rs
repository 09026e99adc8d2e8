//! `throughline narrate`: a plain account of what happened in a run, and why.

use throughline_agent::narrate;
use throughline_core::{LogId, LogKind, RedactionPolicy, RunEvent, Store as _};

use crate::agent::events_of;
use crate::config;
use crate::failure::Failure;
use crate::options::Narrate;
use crate::record;
use crate::store::{self, Missing, Opened};
use crate::text::{self, plain};

/// How many records are read at a time.
const PAGE: u32 = 512;

pub(crate) fn run(options: &Narrate) -> Result<(), Failure> {
    let policy = match &options.redaction {
        Some(file) => record::policy(file)?,
        None if options.no_redaction => RedactionPolicy::nothing(),
        None => config::redaction(options.at.config.as_deref())?,
    };
    store::with(&options.at, Missing::FailsReadOnly, |opened| {
        let run = LogId::from(options.run.as_str());
        let head = opened.log(&run)?;
        if head.kind != LogKind::Run {
            let name = plain(&run.0);
            return Err(Failure::Usage(format!(
                "{name} is a thread: name a run; `throughline runs --thread {name}` shows them"
            )));
        }
        let told = narrate(&events(opened, &run)?, &policy);
        text::write_out(plain(&told).as_bytes())
    })
}

fn events(opened: &Opened, run: &LogId) -> Result<Vec<RunEvent>, Failure> {
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let records = opened.run(opened.journal.read(&opened.tenant, run, after, PAGE))?;
        let Some(last) = records.last() else { return Ok(events) };
        after = last.seq;
        events.extend(records.iter().flat_map(events_of));
    }
}
