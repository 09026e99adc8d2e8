//! Runs a test in a separate process, so that it can be killed.
//!
//! The test binary starts itself again to run a single test. That test reads its task from the
//! environment, and returns at once if no task is set.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};

const TASK: &str = "THROUGHLINE_CHILD";

/// Returns the task if [`Child::start`] started this process, else `None`.
#[expect(clippy::disallowed_methods, reason = "a parent passes the task by environment variable")]
pub fn child_task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// A child process that runs one test of this binary. It is killed on drop.
pub struct Child {
    process: std::process::Child,
    lines: BufReader<ChildStdout>,
}

impl Child {
    /// Starts the test with the full name `test`. The test reads `task` with [`child_task`].
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub fn start(test: &str, task: &str) -> Self {
        let binary = match std::env::current_exe() {
            Ok(binary) => binary,
            Err(error) => panic!("the path of the test binary is unknown: {error}"),
        };
        let mut command = Command::new(binary);
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(TASK, task);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) => panic!("cannot start the test binary: {error}"),
        };
        match process.stdout.take() {
            Some(stdout) => Self { process, lines: BufReader::new(stdout) },
            None => panic!("the child has no output"),
        }
    }

    /// Returns the process id, as used for signals.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the next complete line of the child's standard output, or `None` after the child
    /// ended.
    pub fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        // Drop the incomplete line of a killed process.
        self.lines.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\n")?;
        Some(String::from_utf8_lossy(line).into_owned())
    }

    /// Kills the process with SIGKILL, like `kill -9`.
    ///
    /// # Panics
    ///
    /// If the signal cannot be sent.
    pub fn kill(&mut self) {
        if let Err(error) = self.process.kill() {
            panic!("cannot kill the child: {error}");
        }
    }

    /// Suspends the process with SIGSTOP until [`Child::resume`] is called.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Resumes the process after [`Child::pause`].
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Returns whether the process is still running.
    pub fn runs(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_none())
    }

    fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}")).arg(self.process.id().to_string());
        // Ignore errors, because the process may have ended already.
        drop(kill.stderr(Stdio::null()).status());
    }

    /// Waits for the process to end. Returns whether its exit status is zero.
    pub fn wait_for_success(&mut self) -> bool {
        self.process.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Ignore errors, because the process may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
