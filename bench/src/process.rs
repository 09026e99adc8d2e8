//! Servers as processes of their own: how they say where they listen, and what time and memory they took.

use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// What a server's first line begins with; its address follows.
const LISTENS: &str = "http://";

/// Serves in this process, and says on the first line where.
pub(crate) async fn listen<A, F, B>(answer: A) -> anyhow::Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<Response<B>>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{LISTENS}{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { answered.await.map_err(std::io::Error::other) }
            });
            let connection = TokioIo::new(connection);
            // A connection that breaks is its client's affair.
            hyper::server::conn::http1::Builder::new()
                .serve_connection(connection, service)
                .await
                .ok();
        });
    }
}

/// A server in a process of its own. It ends with this value.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    id: u32,
    _child: Child,
}

/// What a process took so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) time: Duration,
}

impl Server {
    /// This program again, as one of the servers.
    pub(crate) async fn of_ours(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Self::start(command).await
    }

    /// A program that says its address on its first lines.
    pub(crate) async fn start(mut command: Command) -> anyhow::Result<Self> {
        command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let id = child.id().context("the server ended at once")?;
        let output = child.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(output).lines();
        let address = loop {
            let line = lines.next_line().await?.context("the server ended without an address")?;
            if let Some((_, address)) = line.split_once(LISTENS) {
                break address.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse()?;
            }
        };
        // What it says later is read, so that it can go on saying it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { address, id, _child: child })
    }

    /// A program that says nothing, at an address that is known; it is waited for until it answers.
    pub(crate) async fn at(mut command: Command, address: SocketAddr) -> anyhow::Result<Self> {
        command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        let id = child.id().context("the server ended at once")?;
        for _ in 0..600 {
            if tokio::net::TcpStream::connect(address).await.is_ok() {
                return Ok(Self { address, id, _child: child });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("nothing listens at {address} after a minute")
    }

    /// The time that it computed so far. The kernel counts it in hundredths of a second.
    pub(crate) fn taken(&self) -> anyhow::Result<Taken> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id))?;
        let (_, rest) = stat.rsplit_once(')').context("the kernel's account has another form")?;
        let ticks: u64 = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|word| word.parse::<u64>().ok())
            .sum();
        Ok(Taken { time: Duration::from_millis(ticks * 10) })
    }

    /// How many bytes it holds in memory.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        let kib: u64 = kib.context("the kernel's account has another form")?.parse()?;
        Ok(kib << 10)
    }
}
