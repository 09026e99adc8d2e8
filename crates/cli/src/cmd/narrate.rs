//! `throughline narrate`: prints the events of a run as sentences with timestamps.

use throughline_agent::{Narrator, RunError};
use throughline_core::{LogId, LogKind, Store as _};
use throughline_spec::RedactionPolicy;

use crate::agent::events_of;
use crate::args::Narrate;
use crate::cmd::record;
use crate::print::failure::{Failure, Result};
use crate::print::text::{self, plain, push_line};
use crate::store::{self, IfMissing};

/// Number of records that are read from the store at a time.
const PAGE: u32 = 512;

pub(crate) fn run(options: &Narrate) -> Result<()> {
    let policy = if options.no_redaction {
        RedactionPolicy::nothing()
    } else {
        record::policy(options.redaction.as_ref(), options.at.config.as_deref())?
    };
    store::with(&options.at, IfMissing::FailsReadOnly, |store| {
        let run = LogId::from(options.run.as_str());
        let head = store.log(&run)?;
        if head.kind != LogKind::Run {
            let name = plain(&run.0);
            return Err(Failure::Usage(format!(
                "{name} is a thread, not a run; `throughline runs --thread {name}` lists its runs"
            )));
        }
        if let Some(reason) = head.gone {
            let erased = RunError::Erased { run: run.0, reason };
            return Err(Failure::Usage(erased.to_string()));
        }
        let mut narrator = Narrator::new(&policy);
        let mut after = 0;
        loop {
            let records = store.run(store.journal.read(&store.tenant, &run, after, PAGE))?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.seq;
            let mut out = String::new();
            for record in &records {
                // The time when the record was committed, in UTC.
                let at = record.at.strftime("%Y-%m-%d %H:%M:%SZ");
                for sentence in events_of(record).iter().filter_map(|event| narrator.push(event)) {
                    push_line(&mut out, &format!("{at}  {}", plain(&sentence)));
                }
            }
            text::write_out(out.as_bytes())?;
        }
    })
}
