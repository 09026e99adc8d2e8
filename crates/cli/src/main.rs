//! The `throughline` binary. No other crate reads environment variables or prints.

mod agent;
mod amount;
mod args;
mod catalog_watch;
mod clients;
mod clock;
mod cmd;
mod config;
mod credentials;
mod file_watch;
mod input;
mod listen_address;
mod parser;
mod print;
mod retention;
mod router;
mod store;
mod tracing;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::{CatalogCommand, Command, ConfigCommand, Options, Traces};
use crate::print::failure::{Failure, Result};
use crate::print::text;

/// A call makes hundreds of small allocations. With the allocator of glibc, a call takes about a
/// fifth more CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = Options::from_arg_matches(&parser::new().get_matches());
    match dispatch(&options.unwrap_or_else(|error| error.exit())) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn dispatch(options: &Options) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match &options.command {
        Command::Demo(options) => cmd::demo::run(options).map(done),
        Command::Show(show) => cmd::show::run(show).map(done),
        Command::Translate(translate) => cmd::translate::run(translate).map(done),
        // `audit` uses exit code 1 for its verdict, so other failures exit with 2, like grep and
        // diff.
        Command::Audit(audit) => cmd::audit::run(audit).map_err(Failure::into_usage),
        Command::Repair(repair) => cmd::repair::run(repair).map_err(Failure::into_usage),
        Command::Rules(rules) => cmd::rules::run(rules).map(done),
        Command::Explain(explain) => cmd::explain::run(explain).map(done),
        Command::Sim(sim) => cmd::sim::run(sim).map(done),
        // Exit code 1 is the verdict that the gateway lost something.
        Command::Fidelity(options) => cmd::fidelity::run(options).map_err(Failure::into_usage),
        Command::Serve(serve) => cmd::serve::run(serve).map(done),
        Command::Connect(options) => cmd::connect::run(options).map(done),
        Command::Run(options) => cmd::run::run(options).map(done),
        Command::Resume(options) => cmd::run::resume(options).map(done),
        Command::Snapshot(snapshot) => cmd::snapshot::run(snapshot).map(done),
        Command::Inbox(inbox) => cmd::inbox::run(inbox).map(done),
        Command::Answer(answer) => cmd::decide::answer(answer).map(done),
        Command::Approve(approve) => cmd::decide::approve(approve).map(done),
        Command::Reject(reject) => cmd::decide::reject(reject).map(done),
        Command::Cancel(cancel) => cmd::decide::cancel(cancel).map(done),
        Command::Narrate(narrate) => cmd::narrate::run(narrate).map(done),
        Command::Threads(threads) => cmd::logs::threads(threads).map(done),
        Command::Runs(runs) => cmd::logs::runs(runs).map(done),
        Command::Items(items) => cmd::items::run(items).map(done),
        Command::Export(export) => cmd::export::run(export).map(done),
        Command::Import(import) => cmd::import::run(import).map(done),
        Command::Fork(fork) => cmd::fork::run(fork).map(done),
        Command::Verify(verify) => cmd::verify::run(verify).map_err(Failure::into_usage),
        Command::Forget(forget) => cmd::erase::forget(forget).map_err(Failure::into_usage),
        Command::Prune(prune) => cmd::erase::prune(prune).map_err(Failure::into_usage),
        Command::Backup(backup) => cmd::backup::backup(backup).map(done),
        Command::Restore(restore) => cmd::backup::restore(restore).map_err(Failure::into_usage),
        Command::Migrate(migrate) => cmd::migrate::run(migrate).map(done),
        Command::Stats(stats) => cmd::stats::run(stats).map(done),
        Command::Rotate(rotate) => cmd::rotate::run(rotate).map_err(Failure::into_usage),
        Command::Config(ConfigCommand::Check(check)) => {
            cmd::config_check::run(check).map_err(Failure::into_usage)
        }
        Command::Config(ConfigCommand::Show(show)) => cmd::config_show::run(show).map(done),
        Command::Catalog(CatalogCommand::Show(show)) => cmd::catalog::show(show).map(done),
        Command::Catalog(CatalogCommand::Check(check)) => {
            cmd::catalog::check(check).map_err(Failure::into_usage)
        }
        Command::Catalog(CatalogCommand::Update(update)) => cmd::catalog::update(update).map(done),
        Command::Catalog(CatalogCommand::Sign(sign)) => cmd::catalog::sign(sign).map(done),
        Command::Keys(keys) => cmd::keys::run(keys).map(done),
        Command::Usage(usage) => cmd::usage::run(usage).map(done),
        Command::Traces(Traces::Export(export)) => cmd::traces::export(export).map(done),
        // Exit code 1 is the verdict that a check failed.
        Command::Check(options) => cmd::check::run(options).map_err(Failure::into_usage),
        Command::Env(options) => cmd::env::run(options).map(done),
        Command::Man(options) => cmd::man::run(options).map(done),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut parser::new(), "throughline", &mut script);
            text::write_out(&script).map(done)
        }
    }
}
