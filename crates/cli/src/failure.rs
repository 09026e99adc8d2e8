//! How a command fails: a sentence on stderr, and an exit code that says whose fault it was.

use std::process::ExitCode;

use owo_colors::Style;

use crate::text;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Something outside failed: a file that is not there, a disk that is full.
    #[error("{0:#}")]
    Outside(#[from] anyhow::Error),
    /// The command was called wrongly.
    #[error("{0}")]
    Usage(String),
    /// The input is not what it should be.
    #[error("{0}")]
    BadData(String),
    /// The store cannot be opened or reached.
    #[error("{0}")]
    NoStore(String),
    /// Somebody asked it to stop, or did not want to go on.
    #[error("{0}")]
    Interrupted(String),
    /// Whoever read our output has gone.
    #[error("the reader went away")]
    ReaderGone,
}

impl Failure {
    /// The same for a command whose exit code 1 is a verdict.
    pub(crate) fn into_usage(self) -> Self {
        match self {
            Failure::Outside(error) => Failure::Usage(format!("{error:#}")),
            Failure::Usage(_)
            | Failure::BadData(_)
            | Failure::NoStore(_)
            | Failure::Interrupted(_)
            | Failure::ReaderGone => self,
        }
    }

    /// Whether there is nobody to read on, for commands whose verdict is their exit code.
    pub(crate) fn unless_reader_gone(self) -> Result<(), Self> {
        match self {
            Failure::ReaderGone => Ok(()),
            Failure::Outside(_)
            | Failure::Usage(_)
            | Failure::BadData(_)
            | Failure::NoStore(_)
            | Failure::Interrupted(_) => Err(self),
        }
    }

    /// Says what happened and answers the exit code: 1, 2 for usage, 65 for bad data, 69 for no store, 130 when interrupted.
    pub(crate) fn report(self) -> ExitCode {
        let code = match &self {
            Failure::ReaderGone => return ExitCode::SUCCESS,
            Failure::Outside(_) => 1,
            Failure::Usage(_) => 2,
            Failure::BadData(_) => 65,
            Failure::NoStore(_) => 69,
            Failure::Interrupted(_) => 130,
        };
        text::notice("error:", Style::new().red(), &self.to_string());
        ExitCode::from(code)
    }
}
