//! The gateway as a process of its own, and a plain way to speak with it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::without_keys;

/// A gateway that runs.
pub(crate) struct Serving {
    child: Child,
    pub(crate) address: String,
    /// What it said on standard output, until it listened.
    pub(crate) welcome: String,
    /// Whoever closes it takes the gateway's word away.
    _out: Lines<BufReader<ChildStdout>>,
    errors: PathBuf,
}

impl Serving {
    /// Starts it on any free port, in that folder, which holds its store and its configuration.
    pub(crate) fn start(folder: &Path, environment: &[(&str, &str)], options: &[&str]) -> Self {
        let errors = folder.join("errors");
        let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
        let mut child = without_keys(&mut command)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .env("THROUGHLINE_STORE", format!("sqlite://{}", folder.join("a.db").display()))
            .env("RUST_BACKTRACE", "1")
            .env("RUST_LOG", "trace")
            .envs(environment.iter().copied())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut welcome = String::new();
        while let Some(Ok(line)) = lines.next() {
            welcome.push_str(&line);
            welcome.push('\n');
            // The last of the snippets.
            if line.contains("generateContent") {
                break;
            }
        }
        let address = welcome.split_once("http://").map_or("", |(_, rest)| rest);
        let address = address.split_whitespace().next().unwrap_or_default().to_owned();
        Self { child, address, welcome, _out: lines, errors }
    }

    /// What it wrote to standard error so far.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    /// All that is said to a request.
    pub(crate) fn said(&self, method: &str, target: &str, headers: &str, body: &str) -> String {
        said_at(&self.address, method, target, headers, body)
    }

    /// How many kilobytes of memory it has, now and at most.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (number("VmRSS:"), number("VmHWM:"))
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and gives its exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap().code().expect("it was not killed")
    }
}

/// All that is said to a request at that address.
pub(crate) fn said_at(
    address: &str,
    method: &str,
    target: &str,
    headers: &str,
    body: &str,
) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have stopped already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
