//! Starts the release build of Throughline with a temporary store. The executable is `throughline`
//! in the directory of this benchmark, or the file of the option `--program`.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::process::Command;

use crate::load::{Connection, NO_KEY};
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
    /// Returns the metrics of a gateway without API keys as text.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        self.metrics_with_key(NO_KEY).await
    }

    /// Returns the gateway's metrics as text.
    pub(crate) async fn metrics_with_key(&self, key: &str) -> anyhow::Result<String> {
        let mut connection = Connection::open_with_key(self.server.address, key).await?;
        Ok(String::from_utf8_lossy(&connection.get("/metrics").await?).into_owned())
    }

    /// Returns whether the gateway reports replies that were not stored.
    pub(crate) async fn has_lost_replies(&self) -> anyhow::Result<bool> {
        let metrics = self.metrics().await?;
        let mut lines = metrics.lines();
        let lost = lines.find_map(|line| line.strip_prefix("throughline_capture_failures_total "));
        let lost = lost.context("/metrics does not report throughline_capture_failures_total")?;
        Ok(lost.trim() != "0")
    }

    /// Stops the gateway and waits until it has stored all replies and exited.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.server.stop().await
    }
}

/// Starts a gateway in front of a provider. The gateway's files, including its store, are in a
/// temporary directory on the build disk.
pub(crate) async fn start(
    upstream: SocketAddr,
    capture: Capture,
    disk: Disk,
) -> anyhow::Result<Gateway> {
    let folder = process::temporary_folder()?;
    let store = sqlite_url(&folder.path().join("store.db"));
    launch(upstream, capture.settings(), disk, &store, folder).await
}

/// Starts a gateway with a store that may already exist. Several gateways can share a store.
pub(crate) async fn start_on(
    upstream: SocketAddr,
    capture: Capture,
    store: &str,
) -> anyhow::Result<Gateway> {
    launch(upstream, capture.settings(), Disk::Whole, store, process::temporary_folder()?).await
}

/// Starts one of several gateways that share a store, with a limit on open streams.
pub(crate) async fn start_node(
    upstream: SocketAddr,
    store: &str,
    max_streams: usize,
) -> anyhow::Result<Gateway> {
    let settings = format!("{}\nmax_streams = {max_streams}", Capture::Durable.settings());
    launch(upstream, &settings, Disk::Whole, store, process::temporary_folder()?).await
}

/// Creates an API key in a store.
pub(crate) async fn create_key(store: &str, limits: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program()?);
    command.args(["keys", "create", "--store", store]).args(limits).stdin(Stdio::null());
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "throughline keys create failed: {errors}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

pub(crate) fn sqlite_url(file: &Path) -> String {
    format!("sqlite://{}", file.display())
}

/// The executable to measure, if the option `--program` names one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the executable to measure. Only the first call has an effect.
pub(crate) fn set_program(program: PathBuf) {
    drop(PROGRAM.set(program));
}

/// Returns the path of the `throughline` executable.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    if let Some(program) = PROGRAM.get() {
        return Ok(program.clone());
    }
    let program =
        process::program_folder()?.join(format!("throughline{}", std::env::consts::EXE_SUFFIX));
    anyhow::ensure!(program.exists(), "{} does not exist; run scripts/bench", program.display());
    Ok(program)
}

async fn launch(
    upstream: SocketAddr,
    settings: &str,
    disk: Disk,
    store: &str,
    folder: TempDir,
) -> anyhow::Result<Gateway> {
    let program = program()?;
    let config = folder.path().join("throughline.toml");
    let text = format!(
        "[gateway]\n{settings}\n\n[providers.mock]\nkind = \"anthropic\"\n\
         base_url = \"http://{upstream}\"\napi_key = \"none\"\nmodels = [\"claude-*\"]\n"
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
    command.args(["--listen", "127.0.0.1:0", "--store", store]);
    Ok(Gateway { server: Server::start(command).await?, _folder: folder })
}
