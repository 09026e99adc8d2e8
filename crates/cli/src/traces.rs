//! `throughline traces export`: the trace of a run, made from its own log whenever somebody wants it.

use std::sync::Arc;

use anyhow::Context as _;
use throughline_core::{LogId, Name, json};
use throughline_trace::{Delivered, Parcel, Status, otlp_spans, send, session_of};

use crate::agent::{self, Asks, Now, Tools};
use crate::config;
use crate::failure::Failure;
use crate::options::{Format, TraceFormat, TracesExport};
use crate::text;
use crate::tracing;

pub(crate) fn export(options: &TracesExport) -> Result<(), Failure> {
    let config = config::load(options.at.config.as_deref())?;
    let (settings, policy) = (config.tracing, config.redaction.unwrap_or_default());
    let sinks = if options.send { tracing::sinks(&settings)? } else { Vec::new() };
    if options.send && sinks.is_empty() {
        return Err(Failure::Usage(
            "there is nobody to send it to: write a sink into throughline.toml, under [tracing.sinks.NAME]"
                .to_owned(),
        ));
    }
    let mut telling = tracing::telling(&settings, policy);
    telling.log_data = telling.log_data && !options.no_data;
    agent::with(&options.at, Asks::Nobody, Tools::default(), async |house| {
        let run = LogId::from(options.run.as_str());
        // A thread or another log has no trace.
        house.runner.status(&house.tenant, &run).await.map_err(|error| house.failed(error))?;
        let parcel = session_of(&house.journal, &house.tenant, &run, telling, &Now).await;
        let mut parcel = parcel.map_err(|error| house.failed(error.into()))?;
        if !options.send {
            return write(options, &parcel);
        }
        let session = Arc::make_mut(&mut parcel.session);
        session.sinks = sinks.iter().map(|sink| Name::from(sink.name())).collect();
        told(options, &send(&sinks, parcel, settings.patience).await)
    })
}

/// Writes the trace where it is wanted.
fn write(options: &TracesExport, parcel: &Parcel) -> Result<(), Failure> {
    let bytes = match options.trace_format {
        TraceFormat::Session => format!("{}\n", parcel.json().as_str()).into_bytes(),
        TraceFormat::Otlp => otlp_spans(parcel.all()),
    };
    match options.output.as_deref().filter(|file| file.as_os_str() != "-") {
        None => text::write_out(&bytes),
        Some(file) => {
            let shown = file.display();
            Ok(std::fs::write(file, bytes).with_context(|| format!("{shown} cannot be written"))?)
        }
    }
}

/// Says what came of sending it.
fn told(options: &TracesExport, delivered: &Delivered) -> Result<(), Failure> {
    let Delivered { session, status, errors, .. } = delivered;
    if matches!(options.printing.format, Format::Json) {
        let told = json::object(|o| {
            o.string("session", session).string("status", status.as_str());
            o.array("errors", |list| {
                for error in errors {
                    list.string(error);
                }
            });
        });
        text::write_out(format!("{}\n", told.as_str()).as_bytes())?;
    }
    if errors.is_empty() {
        text::note(&format!("the trace {session} was told: {}", status.as_str()));
        return Ok(());
    }
    let errors: Vec<&str> = errors.iter().map(|error| &**error).collect();
    let status = if *status == Status::Partial { "is partial" } else { "was not told to all" };
    let message = format!("the trace {session} {status}: {}", errors.join("; "));
    Err(Failure::Outside(anyhow::anyhow!(message)))
}
