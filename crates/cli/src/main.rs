//! The one binary `throughline`: the only reader of the environment, and the only printer.

mod audit;
mod excerpt;
mod explain;
mod failure;
mod headers;
mod input;
mod mask;
mod options;
mod past;
mod recording;
mod repair;
mod report;
mod rows;
mod rules;
mod session;
mod show;
mod sim;
mod subject;
mod text;
mod translate;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::failure::Failure;
use crate::options::{Command, Options};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match &options.command {
        Command::Show(show) => show::run(show).map(done),
        Command::Translate(translate) => translate::run(translate).map(done),
        // Here 1 is a verdict, so that what failed outside is 2, as it is for grep and diff.
        Command::Audit(audit) => audit::run(audit).map_err(Failure::into_usage),
        Command::Repair(repair) => repair::run(repair).map_err(Failure::into_usage),
        Command::Rules(rules) => rules::run(rules).map(done),
        Command::Explain(explain) => explain::run(explain).map(done),
        Command::Sim(sim) => sim::run(sim).map(done),
        Command::Completions { shell } => {
            let mut command = Options::command();
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "throughline", &mut script);
            text::write_out(&script).map(done)
        }
    }
}
