//! `throughline narrate`: prints the events of a run as sentences with timestamps.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::json;
use throughline_agent::{Narrator, RunError};
use throughline_core::{LogId, LogKind, Store as _};
use throughline_spec::RedactionPolicy;

use crate::agent::events_of;
use crate::args::{Format, Narrate};
use crate::cmd::record;
use crate::print::failure::{Failure, Result};
use crate::print::text::{self, plain, push_line, wrapped};
use crate::store::{self, IfMissing};

/// Number of records that are read from the store at a time.
const PAGE: u32 = 512;

/// Width of the terminal in columns below which times have their own line.
const NARROW: usize = 72;

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
                for event in events_of(record) {
                    let Some(sentence) = narrator.push(&event) else { continue };
                    let narrated = NarratedEvent { at: record.at, kind: event.name(), sentence };
                    push_line(&mut out, &narrated.format(options.format));
                }
            }
            text::write_out(out.as_bytes())?;
        }
    })
}

/// An event of a run, described in a sentence.
struct NarratedEvent {
    /// Time when the event was committed.
    at: Timestamp,
    kind: Cow<'static, str>,
    sentence: String,
}

impl NarratedEvent {
    fn format(&self, format: Format) -> String {
        let Self { at, kind, sentence } = self;
        if matches!(format, Format::Json) {
            return json!({ "at": at.to_string(), "type": kind, "sentence": sentence }).to_string();
        }
        let (at, sentence) = (at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(), plain(sentence));
        let Some(width) = text::terminal_width(std::io::stdout()) else {
            return format!("{at}  {sentence}");
        };
        // On a narrow terminal, the sentence starts on its own line.
        let is_narrow = width < NARROW;
        let indent = if is_narrow { 2 } else { at.len() + 2 };
        let lines = wrapped(&sentence, width.saturating_sub(indent));
        let gap = if is_narrow { "\n  " } else { "  " };
        format!("{at}{gap}{}", lines.join(&format!("\n{:indent$}", "")))
    }
}
