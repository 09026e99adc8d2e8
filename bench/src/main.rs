//! What the gateway costs: the same load sent straight to a mock provider, through a bare reverse proxy that parses nothing,
//! and through Throughline, in one run. Every server is a process of its own, so that its time and memory are its own.
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs` | what is measured, in which order |
//! | `load.rs` | the load: connections, conversations that grow, and how long each answer took |
//! | `talk.rs` | a conversation as an agent sends it, in two dialects |
//! | `upstream.rs`, `reply.rs` | the mock provider, and what it says |
//! | `proxy.rs` | the bare reverse proxy |
//! | `process.rs`, `gateway.rs`, `peers.rs` | processes, their time and memory; Throughline's and the other gateways' |
//! | `streams.rs` | a thousand streams at once |
//! | `abuse.rs` | how a probe fares while somebody misbehaves |
//! | `commit.rs` | what a bare commit to the same disk takes |
//! | `table.rs` | the figures, and the targets beside them |

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
mod gateway;
mod load;
mod peers;
mod plan;
mod process;
mod proxy;
mod reply;
mod streams;
mod table;
mod talk;
mod upstream;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// What the gateway costs, beside a bare reverse proxy in the same run.
#[derive(Debug, Parser)]
#[command(name = "throughline-bench")]
pub(crate) struct Options {
    /// Measure less, in under three minutes
    #[arg(long)]
    quick: bool,
    /// Measure `LiteLLM` and Portkey too; scripts/peers installs them
    #[arg(long)]
    peers: bool,
    /// Measure only the rows whose names hold this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Measure only how a probe fares while somebody misbehaves
    #[arg(long)]
    abuse: bool,
    #[command(subcommand)]
    serve: Option<Serve>,
}

/// The parties of a run, each started as a process of its own.
#[derive(Debug, Subcommand)]
enum Serve {
    /// The mock provider
    #[command(hide = true)]
    Upstream,
    /// The bare reverse proxy
    #[command(hide = true)]
    Proxy {
        /// Where it passes everything on to
        to: String,
    },
    /// Callers who misbehave
    #[command(hide = true)]
    Misbehave {
        /// In which way
        abuse: abuse::Abuse,
        /// To whom
        address: std::net::SocketAddr,
    },
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("no runtime")?.block_on(async {
        match &options.serve {
            Some(Serve::Upstream) => upstream::serve().await,
            Some(Serve::Proxy { to }) => proxy::serve(to).await,
            Some(Serve::Misbehave { abuse, address }) => abuse.go_on(*address).await,
            None if options.abuse => abuse::run(options.only.as_deref()).await,
            None => plan::run(&options).await,
        }
    })
}
