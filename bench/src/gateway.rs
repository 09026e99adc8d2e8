//! Starts the release build of Throughline with a temporary store. The `throughline` executable
//! must be in the same directory as this benchmark.

use std::fs::File;
use std::net::SocketAddr;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::process::Command;

use crate::load::Connection;
use crate::process::{self, Server};

/// How durably the gateway stores each reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Durable,
    Relaxed,
    /// Replies are not stored. Requests are parsed and forwarded, but the gateway neither audits
    /// them nor restores missing reasoning.
    Off,
}

impl Capture {
    /// Returns the lines of the gateway's configuration file.
    fn settings(self) -> &'static str {
        match self {
            Capture::Durable => "replay = \"repair\"\ncapture = \"durable\"",
            Capture::Relaxed => "replay = \"repair\"\ncapture = \"relaxed\"",
            Capture::Off => "replay = \"off\"",
        }
    }
}

/// Size of the disk that the gateway writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Whole,
    /// Simulates a disk that soon fills up, by limiting file sizes to 24 MiB.
    Small,
}

/// A gateway process and its temporary directory.
pub(crate) struct Gateway {
    pub(crate) server: Server,
    _folder: TempDir,
}

impl Gateway {
    /// Returns whether the gateway reports replies that were not stored.
    pub(crate) async fn has_lost_replies(&self) -> anyhow::Result<bool> {
        let metrics = Connection::open(self.server.address).await?.get("/metrics").await?;
        let metrics = String::from_utf8_lossy(&metrics);
        let mut lines = metrics.lines();
        let lost = lines.find_map(|line| line.strip_prefix("throughline_capture_failures_total "));
        let lost = lost.context("/metrics does not report throughline_capture_failures_total")?;
        Ok(lost.trim() != "0")
    }
}

/// Starts a gateway in front of a provider. The gateway's files are in a temporary directory on the
/// build disk.
pub(crate) async fn start(
    upstream: SocketAddr,
    capture: Capture,
    disk: Disk,
) -> anyhow::Result<Gateway> {
    let program =
        process::program_folder()?.join(format!("throughline{}", std::env::consts::EXE_SUFFIX));
    anyhow::ensure!(program.exists(), "{} does not exist; run scripts/bench", program.display());
    let folder = process::temporary_folder()?;
    let config = folder.path().join("throughline.toml");
    let text = format!(
        "[gateway]\n{}\n\n[providers.mock]\nkind = \"anthropic\"\n\
         base_url = \"http://{upstream}\"\napi_key = \"none\"\nmodels = [\"claude-*\"]\n",
        capture.settings()
    );
    std::fs::write(&config, text)?;
    let mut command = match disk {
        Disk::Whole => Command::new(program),
        Disk::Small => {
            let mut shell = Command::new("sh");
            // `ulimit` counts blocks of 512 bytes. A write beyond the limit fails, and the process
            // continues.
            shell.args(["-c", "trap '' XFSZ; ulimit -f 49152; exec \"$0\" \"$@\""]).arg(program);
            shell
        }
    };
    // The log goes to a file and contains only warnings, so that the results stay readable.
    command.stderr(File::create(folder.path().join("log"))?);
    command.arg("serve").args(["--log", "warn"]).arg("--config").arg(&config);
    command.args(["--listen", "127.0.0.1:0"]);
    command.arg("--store").arg(format!("sqlite://{}", folder.path().join("store.db").display()));
    Ok(Gateway { server: Server::start(command).await?, _folder: folder })
}
