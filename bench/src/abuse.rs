//! Measures the p99 latency of a probe before and during each kind of abuse by clients or
//! providers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::ValueEnum;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::conversation::{Conversation, Dialect, Size};
use crate::gateway::{self, Capture, Disk};
use crate::load::{self, Connection, LoadResult, LoadSpec};
use crate::process::Server;
use crate::reply::Model;

/// Maximum factor by which abuse may increase the p99 latency of the probe.
const MOST: f64 = 3.0;
/// Number of concurrent abusers that each only hold a connection open.
const CROWD: usize = 1000;
/// Number of concurrent abusers that each keep the gateway busy.
const FEW: usize = 2;

/// A way in which clients or the provider misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Abuse {
    DeepJson,
    HugeBody,
    SlowHeaders,
    SlowReaders,
    StalledProvider,
    BrokenOff,
    Garbage,
    BrokenProvider,
    BabblingProvider,
    MistypedProvider,
    ProviderElsewhere,
    FullDisk,
}

impl Abuse {
    fn name(self) -> &'static str {
        match self {
            Abuse::DeepJson => "JSON nested 10,000 deep",
            Abuse::HugeBody => "a chunked body of 1 GB",
            Abuse::SlowHeaders => "1,000 headers, a byte at a time",
            Abuse::SlowReaders => "1,000 streams that are not read",
            Abuse::StalledProvider => "1,000 stalled streams",
            Abuse::BrokenOff => "streams whose client disconnects",
            Abuse::Garbage => "bodies that are not JSON",
            Abuse::BrokenProvider => "streams that break at every byte",
            Abuse::BabblingProvider => "streams without valid events",
            Abuse::MistypedProvider => "streams with a wrong content type",
            Abuse::ProviderElsewhere => "a provider that redirects",
            Abuse::FullDisk => "streams on a full disk",
        }
    }

    fn crowd(self) -> usize {
        let is_idle = matches!(self, Self::SlowHeaders | Self::SlowReaders | Self::StalledProvider);
        if is_idle { CROWD } else { FEW }
    }

    /// Repeats the abuse until this process is killed.
    pub(crate) async fn repeat(self, address: SocketAddr) -> anyhow::Result<()> {
        let mut abusers = JoinSet::new();
        for _ in 0..self.crowd() {
            abusers.spawn(async move {
                loop {
                    // An abuser that the gateway refuses tries again.
                    self.perform_once(address).await.ok();
                    tokio::task::yield_now().await;
                }
            });
        }
        std::future::pending().await
    }

    /// Runs the abuser in a separate process, so that the abuser's CPU time does not disturb the
    /// measurement.
    fn spawn(self, address: SocketAddr) -> anyhow::Result<Child> {
        let value =
            self.to_possible_value().context("this kind of abuse has no command-line name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["misbehave", value.get_name(), &address.to_string()]);
        Ok(command.kill_on_drop(true).spawn()?)
    }

    /// Performs the abuse once. Errors are expected, because the gateway may refuse the request.
    async fn perform_once(self, address: SocketAddr) -> anyhow::Result<()> {
        match self {
            Abuse::DeepJson => {
                let body = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
                Connection::open(address).await?.post_whole("/v1/messages", body.into()).await?;
            }
            Abuse::Garbage => {
                let body = Bytes::from(vec![b'{'; 64 << 10]);
                Connection::open(address).await?.post_whole("/v1/messages", body).await?;
            }
            Abuse::HugeBody => huge_body(address).await?,
            Abuse::SlowHeaders => {
                let mut connection = TcpStream::connect(address).await?;
                connection.write_all(b"POST /v1/messages HTTP/1.1\r\nx-slow: ").await?;
                loop {
                    connection.write_all(b"a").await?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Abuse::SlowReaders => {
                let mut connection = TcpStream::connect(address).await?;
                let body = conversation(Model::Long).request(true);
                let head = head(&format!("content-length: {}", body.len()));
                connection.write_all(&[head.as_bytes(), &body].concat()).await?;
                std::future::pending::<()>().await;
            }
            Abuse::StalledProvider => read_stream(address, Model::Held).await?,
            Abuse::BrokenProvider => read_stream(address, Model::Broken).await?,
            Abuse::BabblingProvider => read_stream(address, Model::Babbling).await?,
            Abuse::MistypedProvider => read_stream(address, Model::Mistyped).await?,
            Abuse::ProviderElsewhere => read_stream(address, Model::Elsewhere).await?,
            Abuse::FullDisk => read_stream(address, Model::Long).await?,
            Abuse::BrokenOff => {
                let mut connection = Connection::open(address).await?;
                let body = conversation(Model::Held).request(true);
                let mut body = connection.post("/v1/messages", body).await?.into_body();
                body.frame().await.context("the response body is empty")??;
            }
        }
        Ok(())
    }
}

fn conversation(model: Model) -> Conversation {
    Conversation::new(Dialect::Messages, model, Size::Small, false)
}

fn head(length: &str) -> String {
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
    )
}

async fn read_stream(address: SocketAddr, model: Model) -> anyhow::Result<()> {
    let mut connection = Connection::open(address).await?;
    let response = connection.post("/v1/messages", conversation(model).request(true)).await?;
    response.into_body().collect().await?;
    Ok(())
}

async fn huge_body(address: SocketAddr) -> anyhow::Result<()> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(head("transfer-encoding: chunked").as_bytes()).await?;
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..1024 {
        connection.write_all(&chunk).await?;
    }
    connection.read_u8().await?;
    Ok(())
}

pub(crate) async fn run(only: Option<&str>) -> anyhow::Result<()> {
    let upstream = Server::start_self(&["upstream"]).await?;
    println!("p99 of a probe with one connection, before and during each abuse");
    println!("{:<34} {:>10} {:>10} {:>7} {:>9}", "", "before", "during", "ratio", "MiB");
    let is_selected = |abuse: &Abuse| only.is_none_or(|only| abuse.name().contains(only));
    for abuse in Abuse::value_variants().iter().copied().filter(is_selected) {
        let disk = if abuse == Abuse::FullDisk { Disk::Small } else { Disk::Whole };
        let gateway = gateway::start(upstream.address, Capture::Durable, disk).await?;
        let address = gateway.server.address;
        probe(address).await?;
        let before = probe(address).await?.quantile(0.99);
        let mut abusers = abuse.spawn(address)?;
        // Warm up, so that all abusers are connected and the disk is full before the measurement.
        probe(address).await?;
        while abuse == Abuse::FullDisk && !gateway.has_lost_replies().await? {
            probe(address).await?;
        }
        let during = probe(address).await?.quantile(0.99);
        let memory = gateway.server.memory()?;
        anyhow::ensure!(abusers.try_wait()?.is_none(), "the abusers exited early");
        abusers.kill().await?;
        let ratio = during.as_secs_f64() / before.as_secs_f64();
        println!(
            "{:<34} {:>7} µs {:>7} µs {:>7.2} {:>9.1}  {}",
            abuse.name(),
            before.as_micros(),
            during.as_micros(),
            ratio,
            memory as f64 / 1_048_576.0,
            if ratio <= MOST { "yes" } else { "NO: at most 3" }
        );
    }
    Ok(())
}

async fn probe(address: SocketAddr) -> anyhow::Result<LoadResult> {
    load::run(address, LoadSpec::small(1, 500)).await
}
