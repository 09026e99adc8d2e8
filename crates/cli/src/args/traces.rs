//! Options of `traces export`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::store::{OutputArgs, StoreArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum Traces {
    /// Write the trace of a run, or send it to the configured sinks
    Export(TracesExport),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline traces export run_01k8 > trace.json\n  \
    throughline traces export run_01k8 --as otlp --output trace.pb\n  \
    throughline traces export run_01k8 --send\n\n\
    A trace is derived from the run's log, so it can be exported again at any time. Common secrets\n\
    are redacted unless configured otherwise. With --send and --format json:\n\
    `session`, `status` (running, success, error or partial) and `errors`.")]
pub(crate) struct TracesExport {
    /// Trace format: the session as one JSON document, or OpenTelemetry protobuf
    #[arg(long = "as", value_name = "WHAT", value_enum, default_value_t)]
    pub(crate) trace_format: TraceFormat,
    /// Output file; `-` for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "send")]
    pub(crate) output: Option<PathBuf>,
    /// Send the trace to the sinks of throughline.toml instead
    #[arg(long)]
    pub(crate) send: bool,
    /// Omit message contents; record only that a message was sent
    #[arg(long)]
    pub(crate) no_data: bool,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Run to export
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

/// Output format of a trace.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum TraceFormat {
    /// One JSON document
    #[default]
    Session,
    /// OpenTelemetry protobuf
    Otlp,
}
