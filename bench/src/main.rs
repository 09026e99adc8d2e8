//! Benchmark of the gateway. In one run, the same load goes directly to a mock provider, through a
//! bare reverse proxy that parses nothing, and through Throughline. Every server is a separate
//! process, so that its CPU time and memory can be measured.
//!
//! | file | content |
//! |---|---|
//! | `plan.rs` | the measurements and their order |
//! | `measure.rs` | the measurements of one server |
//! | `load.rs` | the load: connections, growing conversations, latencies |
//! | `conversation.rs` | a conversation as an agent sends it, in two dialects |
//! | `upstream.rs`, `reply.rs` | the mock provider and its replies |
//! | `proxy.rs` | the bare reverse proxy |
//! | `process.rs`, `gateway.rs`, `peers.rs` | server processes: Throughline and peers |
//! | `procfs.rs` | CPU times, memory and disk writes of processes |
//! | `continuation.rs` | conversations that another gateway process continues |
//! | `storage.rs` | WAL pages, written bytes and growth of the store |
//! | `postgres.rs` | the gateway with its store on PostgreSQL |
//! | `scale.rs`, `scale_clients.rs`, `scale_table.rs` | several gateways on one PostgreSQL server, with thousands of streams and an outage |
//! | `streams.rs` | a thousand concurrent streams |
//! | `profile.rs` | CPU time of a request by mode and by stage |
//! | `fidelity.rs`, `fidelity_table.rs`, `fidelity_evidence.rs` | how well gateways preserve reasoning, and why |
//! | `abuse.rs` | latency of a probe during abuse |
//! | `commit.rs` | time of a bare commit to the same disk |
//! | `table.rs` | the table of results |
//! | `targets.rs` | the targets and whether the results meet them |
//! | `units.rs` | formats of durations and sizes |

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench is a program that measures and prints"
)]

mod abuse;
mod commit;
mod continuation;
mod conversation;
mod fidelity;
mod fidelity_evidence;
mod fidelity_table;
mod gateway;
mod load;
mod measure;
mod peers;
mod plan;
mod postgres;
mod process;
mod procfs;
mod profile;
mod proxy;
mod reply;
mod scale;
mod scale_clients;
mod scale_table;
mod storage;
mod streams;
mod table;
mod targets;
mod units;
mod upstream;

use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Measure the gateway against a bare reverse proxy in the same run
#[derive(Debug, Parser)]
#[command(name = "throughline-bench")]
#[expect(clippy::struct_excessive_bools, reason = "independent options of the command")]
pub(crate) struct Options {
    /// Measure less, in about three minutes
    #[arg(long)]
    quick: bool,
    /// Measure `LiteLLM`, Portkey and SMG too; scripts/peers installs them
    #[arg(long)]
    peers: bool,
    /// Measure only the rows and measurements whose names contain this text
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Executable of Throughline to measure [default: `throughline` in the directory of this
    /// benchmark]
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// Measure only the latency of a probe during abuse
    #[arg(long)]
    abuse: bool,
    /// Measure only where the CPU time of a request is spent; the time of each stage needs a
    /// gateway that was built with the cargo feature `profile`
    #[arg(long, conflicts_with = "abuse")]
    profile: bool,
    /// Measure only how well the gateways preserve reasoning
    #[arg(long, conflicts_with_all = ["abuse", "profile"])]
    fidelity: bool,
    /// Measure only several gateways on one PostgreSQL server, with thousands of open streams and
    /// an outage of the server
    #[arg(long, conflicts_with_all = ["abuse", "profile", "fidelity"])]
    load: bool,
    /// Number of gateways for --load
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Also measure stores on this PostgreSQL server, which scripts/postgres started
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    #[command(subcommand)]
    serve: Option<Serve>,
}

impl Options {
    /// Returns whether a row or a measurement with this name is selected.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// Processes that a run starts.
#[derive(Debug, Subcommand)]
enum Serve {
    /// The mock provider
    #[command(hide = true)]
    Upstream {
        /// Time between the events of paced streams, in milliseconds
        #[arg(long, default_value_t = 1000)]
        pace: u64,
    },
    /// The bare reverse proxy
    #[command(hide = true)]
    Proxy {
        /// Address to forward to
        to: String,
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: std::net::SocketAddr,
    },
    /// Abusive clients
    #[command(hide = true)]
    Misbehave {
        /// Kind of abuse
        abuse: abuse::Abuse,
        /// Address to abuse
        address: std::net::SocketAddr,
    },
}

fn main() -> anyhow::Result<()> {
    let mut options = Options::parse();
    if let Some(program) = options.program.take() {
        gateway::set_program(program);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        match &options.serve {
            Some(Serve::Upstream { pace }) => upstream::serve(Duration::from_millis(*pace)).await,
            Some(Serve::Proxy { to, listen }) => proxy::serve(to, *listen).await,
            Some(Serve::Misbehave { abuse, address }) => abuse.repeat(*address).await,
            None if options.abuse => abuse::run(options.only.as_deref()).await,
            None if options.load => scale::run(&options).await,
            None if options.fidelity => fidelity::run(&options).await,
            None if options.profile => profile::run(&options).await,
            None => plan::run(&options).await,
        }
    })
}
