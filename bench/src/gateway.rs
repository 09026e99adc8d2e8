//! Throughline itself: the release binary that lies beside this program, with a store of its own.

use std::fs::File;
use std::net::SocketAddr;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::process::Command;

use crate::load::Line;
use crate::process::Server;

/// When an answer counts as captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Durable,
    Relaxed,
    /// None is: requests are read and passed on, and nothing is looked for, audited or kept.
    Off,
}

impl Capture {
    /// As the configuration says it.
    fn settings(self) -> &'static str {
        match self {
            Capture::Durable => "replay = \"repair\"\ncapture = \"durable\"",
            Capture::Relaxed => "replay = \"repair\"\ncapture = \"relaxed\"",
            Capture::Off => "replay = \"off\"",
        }
    }
}

/// What it writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Whole,
    /// No file can grow beyond 24 MiB.
    Small,
}

/// Throughline, with its folder.
pub(crate) struct Gateway {
    pub(crate) server: Server,
    _folder: TempDir,
}

impl Gateway {
    /// Whether it tells of answers that could not be kept.
    pub(crate) async fn has_lost(&self) -> anyhow::Result<bool> {
        let told = Line::open(self.server.address).await?.get("/metrics").await?;
        let told = String::from_utf8_lossy(&told);
        let lost =
            told.lines().find_map(|line| line.strip_prefix("throughline_capture_failures_total "));
        Ok(lost.context("the gateway does not tell what it lost")?.trim() != "0")
    }
}

/// Starts it before that provider. The folder lies beside the binary, on the disk that is built on.
pub(crate) async fn start(
    upstream: SocketAddr,
    capture: Capture,
    disk: Disk,
) -> anyhow::Result<Gateway> {
    let own = std::env::current_exe()?;
    let home = own.parent().context("this program lies nowhere")?;
    let program = home.join(format!("throughline{}", std::env::consts::EXE_SUFFIX));
    anyhow::ensure!(program.exists(), "there is no {}: run scripts/bench", program.display());
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(home)?;
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
            // In blocks of 512 bytes. Who writes more is told so, and goes on.
            shell.args(["-c", "trap '' XFSZ; ulimit -f 49152; exec \"$0\" \"$@\""]).arg(program);
            shell
        }
    };
    // A line for every call would fill the terminal that the table is to be read on. What is worth a warning goes to a file.
    command.stderr(File::create(folder.path().join("log"))?);
    command.arg("serve").args(["--log", "warn"]).arg("--config").arg(&config);
    command.args(["--listen", "127.0.0.1:0"]);
    command.arg("--store").arg(format!("sqlite://{}", folder.path().join("store.db").display()));
    Ok(Gateway { server: Server::start(command).await?, _folder: folder })
}
