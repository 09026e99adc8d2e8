//! What can be asked of traces: `traces export`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::store::{At, Printing};

#[derive(Debug, Subcommand)]
pub(crate) enum Traces {
    /// Write a run's trace, or send it to the configured sinks
    Export(TracesExport),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline traces export run_01k8 > trace.json\n  \
    throughline traces export run_01k8 --as otlp --output trace.pb\n  \
    throughline traces export run_01k8 --send\n\n\
    A trace is a view of the run's own log, so that it can be made again at any time. The usual\n\
    secrets are left out, unless the configuration says otherwise. With --send and --format json:\n\
    `session`, `status` (running, success, error or partial) and `errors`.")]
pub(crate) struct TracesExport {
    /// What to write: the session as one JSON document, or OpenTelemetry's protobuf
    #[arg(long = "as", value_name = "WHAT", value_enum, default_value_t)]
    pub(crate) trace_format: TraceFormat,
    /// Where to write it; `-` for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "send")]
    pub(crate) output: Option<PathBuf>,
    /// Send it to the sinks of throughline.toml instead
    #[arg(long)]
    pub(crate) send: bool,
    /// Tell that something was said, and not what
    #[arg(long)]
    pub(crate) no_data: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The run
    #[arg(value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) at: At,
}

/// What a trace is written as.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum TraceFormat {
    /// One JSON document
    #[default]
    Session,
    /// OpenTelemetry's protobuf
    Otlp,
}
