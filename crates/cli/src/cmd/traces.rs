//! `throughline traces export`: exports the trace of a run, which is derived from its log.

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::json;
use throughline_core::LogId;
use throughline_json::Name;
use throughline_trace::{DeliveryReport, Status, TraceBatch, load_session, otlp_spans, send};

use crate::agent::{self, ModelAccess, Tools};
use crate::args::{Format, TraceFormat, TracesExport};
use crate::clock::SystemClock;
use crate::config;
use crate::print::failure::Failure;
use crate::print::text;
use crate::tracing;

pub(crate) fn export(options: &TracesExport) -> Result<(), Failure> {
    let config = config::load(options.at.config.as_deref())?;
    let (settings, policy) = (config.tracing, config.redaction.unwrap_or_default());
    let sinks = if options.send { tracing::sinks(&settings)? } else { Vec::new() };
    if options.send && sinks.is_empty() {
        return Err(Failure::Usage(
            "no trace sink is configured; add one to throughline.toml, under [tracing.sinks.NAME]"
                .to_owned(),
        ));
    }
    let mut telling = tracing::trace_options(&settings, policy);
    telling.log_data = telling.log_data && !options.no_data;
    agent::with(&options.at, ModelAccess::NoModels, Tools::default(), async |house| {
        let run = LogId::from(options.run.as_str());
        // Threads and other logs have no trace.
        house.runner.status(&house.tenant, &run).await.map_err(|error| house.to_failure(error))?;
        let parcel = load_session(&house.journal, &house.tenant, &run, telling, &SystemClock).await;
        let mut parcel = parcel.map_err(|error| house.to_failure(error.into()))?;
        if !options.send {
            return write(options, &parcel);
        }
        let session = Arc::make_mut(&mut parcel.session);
        session.sinks = sinks.iter().map(|sink| Name::from(sink.name())).collect();
        told(options, &send(&sinks, parcel, settings.patience).await)
    })
}

/// Writes the trace to the requested output.
fn write(options: &TracesExport, parcel: &TraceBatch) -> Result<(), Failure> {
    let bytes = match options.trace_format {
        TraceFormat::Session => format!("{}\n", parcel.to_json().as_str()).into_bytes(),
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

/// Prints the result of sending a trace.
fn told(options: &TracesExport, delivered: &DeliveryReport) -> Result<(), Failure> {
    let DeliveryReport { session, status, errors, .. } = delivered;
    if matches!(options.printing.format, Format::Json) {
        let status = status.as_str();
        text::write_json(&json!({ "session": session, "status": status, "errors": errors }))?;
    }
    if errors.is_empty() {
        text::note(&format!("the trace {session} was sent: {}", status.as_str()));
        return Ok(());
    }
    let errors: Vec<&str> = errors.iter().map(|error| &**error).collect();
    let status =
        if *status == Status::Partial { "is partial" } else { "was not sent to all sinks" };
    let message = format!("the trace {session} {status}: {}", errors.join("; "));
    Err(Failure::Outside(anyhow::anyhow!(message)))
}
