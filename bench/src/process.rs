//! Starts server processes, finds their addresses, and measures their CPU time and memory.

use std::future::Future;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::procfs::{self, ProcessStat};

/// Prefix of the output line that contains a server's address.
const LISTENS: &str = "http://";

/// Name of the thread that writes to the store. The kernel keeps the first 15 bytes of a name.
const WRITER: &str = "throughline-wri";

const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves requests in this process on a free port. Prints the address on the first line of output.
pub(crate) async fn listen<A, F, B>(handler: A) -> anyhow::Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<Response<B>>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    listen_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), handler).await
}

/// Serves requests in this process. Prints the address on the first line of output.
pub(crate) async fn listen_at<A, F, B>(address: SocketAddr, handler: A) -> anyhow::Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<Response<B>>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind(address).await?;
    println!("{LISTENS}{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let handler = handler.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = handler(request);
                async move { response.await.map_err(std::io::Error::other) }
            });
            let connection = TokioIo::new(connection);
            // Connection errors are ignored here, because the client reports them.
            hyper::server::conn::http1::Builder::new()
                .serve_connection(connection, service)
                .await
                .ok();
        });
    }
}

/// Returns the directory of this executable, which is on the build disk.
pub(crate) fn program_folder() -> anyhow::Result<PathBuf> {
    let executable = std::env::current_exe()?;
    let folder = executable.parent();
    Ok(folder
        .with_context(|| format!("{} has no parent directory", executable.display()))?
        .to_owned())
}

/// Creates a temporary directory on the build disk.
pub(crate) fn temporary_folder() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("bench-").tempdir_in(program_folder()?)?)
}

/// A server process that is killed on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    id: u32,
    child: Child,
}

/// CPU times of a server, or of one request to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTimes {
    pub(crate) all: Duration,
    /// The part that the kernel used.
    pub(crate) system: Duration,
    /// The part that the thread that writes to the store used.
    pub(crate) writer: Duration,
}

impl CpuTimes {
    /// Returns the CPU times per request since an earlier measurement.
    pub(crate) fn per_request(self, earlier: Self, requests: usize) -> Self {
        let requests = requests.max(1) as u32;
        Self {
            all: self.all.saturating_sub(earlier.all) / requests,
            system: self.system.saturating_sub(earlier.system) / requests,
            writer: self.writer.saturating_sub(earlier.writer) / requests,
        }
    }
}

impl Server {
    /// Starts a second process of this executable that runs one of the servers.
    pub(crate) async fn start_self(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Self::start(command).await
    }

    /// Starts a server that prints its address in its first lines of output.
    pub(crate) async fn start(mut command: Command) -> anyhow::Result<Self> {
        command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let id = child.id().with_context(|| format!("{command:?} exited immediately"))?;
        let output = child.stdout.take().context("cannot capture the server's output")?;
        let mut lines = BufReader::new(output).lines();
        let address = loop {
            let line = lines
                .next_line()
                .await?
                .context("the server exited without printing an address")?;
            if let Some((_, address)) = line.split_once(LISTENS) {
                break address.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse()?;
            }
        };
        // Read the remaining output, so that the server does not block on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { address, id, child })
    }

    /// Starts a server at a known address, and waits until it accepts connections.
    pub(crate) async fn start_at(
        mut command: Command,
        address: SocketAddr,
    ) -> anyhow::Result<Self> {
        command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        let id = child.id().with_context(|| format!("{command:?} exited immediately"))?;
        for _ in 0..1_800 {
            if tokio::net::TcpStream::connect(address).await.is_ok() {
                return Ok(Self { address, id, child });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("the server at {address} did not accept connections within three minutes")
    }

    /// Sends SIGTERM to the server and waits until the server exits.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let id = self.id.to_string();
        let kill = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &id]).status().await?;
        anyhow::ensure!(kill.success(), "cannot send SIGTERM to the process {id}");
        let exit = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        exit.with_context(|| format!("the process {id} did not exit after SIGTERM"))??;
        Ok(())
    }

    /// Returns the CPU time that the server has used, in steps of 10 milliseconds.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        Ok(ProcessStat::read(self.id)?.cpu_time)
    }

    /// Returns the CPU time of the server's parts, in steps of 10 milliseconds.
    pub(crate) fn cpu_times(&self) -> anyhow::Result<CpuTimes> {
        let ProcessStat { cpu_time, system_time, .. } = ProcessStat::read(self.id)?;
        let threads = procfs::threads(self.id)?;
        let writers = threads.iter().filter(|thread| thread.name == WRITER);
        let writer = writers.map(|thread| thread.cpu_time).sum();
        Ok(CpuTimes { all: cpu_time, system: system_time, writer })
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        procfs::resident_memory(self.id)
    }

    /// Returns the number of bytes that the server has written to disks.
    pub(crate) fn written_bytes(&self) -> anyhow::Result<u64> {
        procfs::written_bytes(self.id)
    }
}
