//! Runs a program that prints a key.
//!
//! The program is started directly, without a shell. Its standard error is discarded, because it
//! may contain secrets.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::credential::{FetchFuture, FetchedSecret, SecretSource, parse_key};

/// Maximum size of the output in bytes.
const LARGEST_OUTPUT: u64 = 64 << 10;

/// A program that prints a key to standard output.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandSettings {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Time after which the program is stopped.
    pub timeout: Duration,
    /// Time after which the program is run again.
    pub interval: Duration,
}

impl CommandSettings {
    /// Returns the name of the program. The arguments may contain secrets.
    pub(super) fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }
}

impl fmt::Debug for CommandSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSettings")
            .field("program", &self.program())
            .field("timeout", &self.timeout)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

pub(super) struct KeyCommand {
    settings: CommandSettings,
}

impl KeyCommand {
    pub(super) fn new(settings: CommandSettings) -> Self {
        Self { settings }
    }

    async fn output(&self) -> Result<Vec<u8>, String> {
        let (program, arguments) =
            self.settings.command.split_first().ok_or("the command is empty")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start it: {error}"))?;
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let read = stdout.take(LARGEST_OUTPUT).read_to_end(&mut output).await;
            read.map_err(|error| format!("cannot read its output: {error}"))?;
        }
        let status = child.wait().await.map_err(|error| format!("cannot wait for it: {error}"))?;
        if !status.success() {
            return Err(format!("it ended with {status}"));
        }
        Ok(output)
    }
}

impl SecretSource for KeyCommand {
    fn fetch(&self, now: Timestamp) -> FetchFuture<'_> {
        Box::pin(async move {
            let limit = self.settings.timeout;
            let output = timeout(limit, self.output()).await.map_err(|_| {
                let limit = limit.as_secs_f64();
                format!("it did not end within {limit} s")
            })??;
            let secret = parse_key(&output).map_err(|problem| format!("output: {problem}"))?;
            Ok(FetchedSecret::lasting(secret, now, self.settings.interval))
        })
    }

    fn advice(&self) -> &'static str {
        "run it in a terminal: it must print only the API key, within `key_command_timeout`"
    }
}
