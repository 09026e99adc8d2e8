//! Command failures: an error message on stderr and an exit code per kind of failure.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use owo_colors::Style;

use crate::print::text;

/// Result of a command or of one of its steps.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Reason for a command's failure. It determines the exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An external failure, such as a full disk.
    #[error("{0:#}")]
    Outside(#[from] anyhow::Error),
    /// The command line is invalid, or names a file that cannot be read.
    #[error("{0}")]
    Usage(String),
    /// The input data is invalid.
    #[error("{0}")]
    BadData(String),
    /// The store cannot be opened or reached.
    #[error("{0}")]
    NoStore(String),
    /// The user interrupted the command or did not confirm it.
    #[error("{0}")]
    Interrupted(String),
    /// The reader of standard output closed the pipe.
    #[error("the reader of the output closed the pipe")]
    ReaderGone,
}

impl Failure {
    /// Creates the failure for an address that the process cannot listen on.
    pub(crate) fn from_listen(address: SocketAddr, error: &io::Error) -> Self {
        let message = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "{address} is in use; stop the program that listens on it, choose another address \
                 with --listen, or use port 0 to get a free port"
            ),
            io::ErrorKind::AddrNotAvailable => format!(
                "cannot listen on {address}, because this machine does not have that IP address; \
                 choose another address with --listen, such as 127.0.0.1:{}",
                address.port()
            ),
            io::ErrorKind::PermissionDenied => format!(
                "this user may not listen on {address}; choose a port above 1023 with --listen"
            ),
            _ => format!("cannot listen on {address}: {error}"),
        };
        Self::Outside(anyhow::anyhow!(message))
    }

    /// Creates the failure for an input that cannot be read. `what` starts with `cannot`.
    pub(crate) fn unreadable(what: &str, error: &io::Error) -> Self {
        Self::Usage(format!("{what}: {error}"))
    }

    /// Changes exit code 1 to 2, for commands that use exit code 1 as a verdict.
    pub(crate) fn into_usage(self) -> Self {
        match self {
            Self::Outside(error) => Self::Usage(format!("{error:#}")),
            other => other,
        }
    }

    /// Ignores a closed output pipe, for commands that report their verdict as the exit code.
    pub(crate) fn ignore_closed_pipe(self) -> Result<()> {
        if matches!(self, Self::ReaderGone) { Ok(()) } else { Err(self) }
    }

    /// Prints the message and returns the exit code: 1 for external failures, 2 for usage errors
    /// and unreadable files, 65 for bad data, 69 for store errors, 130 for interruption.
    pub(crate) fn report(self) -> ExitCode {
        let code = match &self {
            Failure::ReaderGone => return ExitCode::SUCCESS,
            Failure::Outside(_) => 1,
            Failure::Usage(_) => 2,
            Failure::BadData(_) => 65,
            Failure::NoStore(_) => 69,
            Failure::Interrupted(_) => 130,
        };
        match &self {
            // The user stopped the command, so nothing failed.
            Failure::Interrupted(_) => {
                text::notice("stopped:", Style::new().yellow(), &self.to_string());
            }
            _ => text::notice("error:", Style::new().red(), &self.to_string()),
        }
        ExitCode::from(code)
    }
}
