//! `throughline traces export`: derives the trace of a run from the run's log and exports it.

use std::sync::Arc;

use serde_json::json;
use throughline_core::LogId;
use throughline_json::Name;
use throughline_trace::{
    DeliveryReport, Resource, Status, TraceBatch, load_session, otlp_spans, run_tracing, send,
};

use crate::agent::{self, AgentContext, ModelAccess};
use crate::args::{Format, TraceFormat, TracesExport};
use crate::clock::SystemClock;
use crate::config;
use crate::print::failure::{Failure, Result};
use crate::print::text;
use crate::tracing;

pub(crate) fn export(options: &TracesExport) -> Result<()> {
    let config = config::load(options.common.at.config.as_deref())?;
    let (settings, policy) = (config.tracing, config.redaction.unwrap_or_default());
    let sinks = if options.send { tracing::sinks(&settings)? } else { Vec::new() };
    if options.send && sinks.is_empty() {
        let message =
            "no trace sink is configured; add one to throughline.toml, under [tracing.sinks.NAME]";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut content = tracing::trace_options(&settings, policy);
    content.log_data &= !options.no_data;
    agent::with(&options.common.at, ModelAccess::NoModels, async |context| {
        let run = LogId::from(options.run.as_str());
        // Fails for logs that are not runs, because only runs have traces.
        let AgentContext { runner, journal, tenant, .. } = &*context;
        context.run(runner.status(tenant, &run)).await?;
        let config = context.run(run_tracing(journal, tenant, &run)).await?;
        if let Some(config) = config {
            content = content.with_run_settings(&config);
        }
        let batch = load_session(journal, tenant, &run, content, &SystemClock);
        let mut batch = context.run(batch).await?;
        if !options.send {
            return write(options, &batch, &settings.resource);
        }
        let session = Arc::make_mut(&mut batch.session);
        session.sinks = sinks.iter().map(|sink| Name::from(sink.name())).collect();
        print_delivery(options.common.format, &send(&sinks, batch, settings.patience).await)
    })
}

/// Writes the trace to a file or to standard output.
fn write(options: &TracesExport, batch: &TraceBatch, resource: &Resource) -> Result<()> {
    let bytes = match options.trace_format {
        TraceFormat::Session => format!("{}\n", batch.to_json().as_str()).into_bytes(),
        TraceFormat::Otlp => otlp_spans(batch.all(), resource),
    };
    match options.output.as_deref().filter(|file| file.as_os_str() != "-") {
        None => text::write_out(&bytes),
        Some(file) => text::write_file(file, &bytes),
    }
}

/// Prints whether the configured sinks accepted a trace.
fn print_delivery(format: Format, report: &DeliveryReport) -> Result<()> {
    let DeliveryReport { session, status, errors, .. } = report;
    if matches!(format, Format::Json) {
        let status = status.as_str();
        text::write_json(&json!({ "session": session, "status": status, "errors": errors }))?;
    }
    if errors.is_empty() {
        text::note(&format!("the trace {session} was sent: {}", status.as_str()));
        return Ok(());
    }
    let status =
        if *status == Status::Partial { "is partial" } else { "was not sent to all sinks" };
    let errors = errors.join("; ");
    Err(Failure::Outside(anyhow::anyhow!("the trace {session} {status}: {errors}")))
}
