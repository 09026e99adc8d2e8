//! The one binary `throughline`: the only reader of the environment, and the only printer.

mod failure;
mod input;
mod options;
mod show;
mod text;
mod translate;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::failure::Failure;
use crate::options::{Command, Options};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    match &options.command {
        Command::Show(show) => show::run(show),
        Command::Translate(translate) => translate::run(translate),
        Command::Completions { shell } => {
            let mut command = Options::command();
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "throughline", &mut script);
            text::write_out(&script)
        }
    }
}
