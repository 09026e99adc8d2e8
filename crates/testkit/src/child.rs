//! A test that runs in a process of its own, so that it can be killed.
//!
//! The test binary is started again and told to run one test, which finds its task in the environment. Without a task
//! that test returns at once.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};

const TASK: &str = "THROUGHLINE_CHILD";

/// What this process was started for, if it is such a child.
#[expect(clippy::disallowed_methods, reason = "it is how a parent tells its child what to do")]
pub fn child_task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// A process that runs one test of this binary.
pub struct Child {
    process: std::process::Child,
    lines: BufReader<ChildStdout>,
}

impl Child {
    /// Starts the test of that name with a task.
    ///
    /// # Panics
    ///
    /// Where the system starts no processes.
    pub fn start(test: &str, task: &str) -> Self {
        let binary = match std::env::current_exe() {
            Ok(binary) => binary,
            Err(error) => panic!("the test binary is not known: {error}"),
        };
        let mut command = Command::new(binary);
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(TASK, task);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) => panic!("the test binary cannot be started again: {error}"),
        };
        match process.stdout.take() {
            Some(stdout) => Self { process, lines: BufReader::new(stdout) },
            None => panic!("the child has no output"),
        }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line that the child printed whole; nothing when it has ended.
    pub fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        // Whatever a dying process wrote halfway was not said.
        self.lines.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\n")?;
        Some(String::from_utf8_lossy(line).into_owned())
    }

    /// Kills it as `kill -9` does: it has no chance to do anything more.
    ///
    /// # Panics
    ///
    /// Where that is not allowed.
    pub fn kill(&mut self) {
        if let Err(error) = self.process.kill() {
            panic!("the child cannot be killed: {error}");
        }
    }

    /// Stops it where it stands, until [`Child::resume`].
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Whether it has not ended yet.
    pub fn runs(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_none())
    }

    fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}")).arg(self.process.id().to_string());
        // One that has ended meanwhile hears nothing.
        drop(kill.stderr(Stdio::null()).status());
    }

    /// Waits until it has ended; whether it ended well.
    pub fn ended(&mut self) -> bool {
        self.process.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
