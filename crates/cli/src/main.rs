//! The one binary `throughline`: the only reader of the environment, and the only printer.

mod agent;
mod amount;
mod audit;
mod backup;
mod config;
mod decide;
mod demo;
mod doctor;
mod environment;
mod excerpt;
mod explain;
mod export;
mod failure;
mod forget;
mod fork;
mod headers;
mod import;
mod inbox;
mod input;
mod items;
mod keys;
mod listing;
mod man;
mod mask;
mod narrate;
mod options;
mod past;
mod prices;
mod progress;
mod prune;
mod record;
mod recording;
mod repair;
mod report;
mod restore;
mod rotate;
mod rows;
mod rules;
mod run;
mod runs;
mod serve;
mod session;
mod show;
mod sim;
mod stats;
mod store;
mod subject;
mod text;
mod threads;
mod traces;
mod tracing;
mod translate;
mod usage;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::failure::Failure;
use crate::options::{Command, Config, Options, Traces};

fn main() -> ExitCode {
    match obey(&Options::parse()) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn obey(options: &Options) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match &options.command {
        Command::Demo(options) => demo::run(options).map(done),
        Command::Show(show) => show::run(show).map(done),
        Command::Translate(translate) => translate::run(translate).map(done),
        // Here 1 is a verdict, so that what failed outside is 2, as it is for grep and diff.
        Command::Audit(audit) => audit::run(audit).map_err(Failure::into_usage),
        Command::Repair(repair) => repair::run(repair).map_err(Failure::into_usage),
        Command::Rules(rules) => rules::run(rules).map(done),
        Command::Explain(explain) => explain::run(explain).map(done),
        Command::Sim(sim) => sim::run(sim).map(done),
        Command::Serve(serve) => serve::run(serve).map(done),
        Command::Run(options) => run::run(options).map(done),
        Command::Resume(options) => run::resume(options).map(done),
        Command::Inbox(inbox) => inbox::run(inbox).map(done),
        Command::Answer(answer) => decide::answer(answer).map(done),
        Command::Approve(approve) => decide::approve(approve).map(done),
        Command::Reject(reject) => decide::reject(reject).map(done),
        Command::Cancel(cancel) => decide::cancel(cancel).map(done),
        Command::Narrate(narrate) => narrate::run(narrate).map(done),
        Command::Threads(threads) => threads::run(threads).map(done),
        Command::Runs(runs) => runs::run(runs).map(done),
        Command::Items(items) => items::run(items).map(done),
        Command::Export(export) => export::run(export).map(done),
        Command::Import(import) => import::run(import).map(done),
        Command::Fork(fork) => fork::run(fork).map(done),
        Command::Verify(verify) => verify::run(verify).map_err(Failure::into_usage),
        Command::Forget(forget) => forget::run(forget).map_err(Failure::into_usage),
        Command::Prune(prune) => prune::run(prune).map_err(Failure::into_usage),
        Command::Backup(backup) => backup::run(backup).map(done),
        Command::Restore(restore) => restore::run(restore).map_err(Failure::into_usage),
        Command::Stats(stats) => stats::run(stats).map(done),
        Command::Rotate(rotate) => rotate::run(rotate).map_err(Failure::into_usage),
        Command::Config(Config::Check(check)) => config::check(check).map_err(Failure::into_usage),
        Command::Config(Config::Show(show)) => config::show(show).map(done),
        Command::Keys(keys) => keys::run(keys).map(done),
        Command::Usage(usage) => usage::run(usage).map(done),
        Command::Traces(Traces::Export(export)) => traces::export(export).map(done),
        Command::Doctor(options) => doctor::run(options).map(done),
        Command::Man(options) => man::run(options).map(done),
        Command::Completions { shell } => {
            let mut command = Options::command();
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "throughline", &mut script);
            text::write_out(&script).map(done)
        }
    }
}
