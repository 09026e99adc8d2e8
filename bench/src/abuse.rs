//! How a probe fares while somebody misbehaves: the time that 99 of 100 of its answers take, before and during each abuse.

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

use crate::gateway::{self, Capture, Disk};
use crate::load::{self, Line, Measured, Work};
use crate::process::Server;
use crate::reply::Model;
use crate::talk::{Dialect, Size, Talk};

/// How many times slower the probe may become.
const MOST: f64 = 3.0;
/// How many misbehave at once where each needs a connection only.
const CROWD: usize = 1000;
/// How many misbehave at once where each keeps the gateway busy.
const FEW: usize = 2;

/// A way to misbehave.
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
            Abuse::SlowReaders => "1,000 streams that nobody reads",
            Abuse::StalledProvider => "1,000 streams that do not go on",
            Abuse::BrokenOff => "streams whose caller goes away",
            Abuse::Garbage => "bodies that are no JSON",
            Abuse::BrokenProvider => "streams that break, at every byte",
            Abuse::BabblingProvider => "streams of no events",
            Abuse::MistypedProvider => "streams of another type",
            Abuse::ProviderElsewhere => "a provider that points elsewhere",
            Abuse::FullDisk => "streams, and the disk is full",
        }
    }

    fn crowd(self) -> usize {
        match self {
            Abuse::SlowHeaders | Abuse::SlowReaders | Abuse::StalledProvider => CROWD,
            Abuse::DeepJson
            | Abuse::HugeBody
            | Abuse::BrokenOff
            | Abuse::Garbage
            | Abuse::BrokenProvider
            | Abuse::BabblingProvider
            | Abuse::MistypedProvider
            | Abuse::ProviderElsewhere
            | Abuse::FullDisk => FEW,
        }
    }

    /// Misbehaves for as long as it is let, in this process.
    pub(crate) async fn go_on(self, address: SocketAddr) -> anyhow::Result<()> {
        let mut abusers = JoinSet::new();
        for _ in 0..self.crowd() {
            abusers.spawn(async move {
                loop {
                    // Whether it is let in or shown the door, it comes again.
                    self.act(address).await.ok();
                    tokio::task::yield_now().await;
                }
            });
        }
        std::future::pending().await
    }

    /// Misbehaves for as long as the process lives: one of its own, so that it keeps nobody from telling the time.
    fn begin(self, address: SocketAddr) -> anyhow::Result<Child> {
        let value = self.to_possible_value().context("an abuse without a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["misbehave", value.get_name(), &address.to_string()]);
        Ok(command.kill_on_drop(true).spawn()?)
    }

    /// Misbehaves once. What comes back is of no interest, nor is how it ends.
    async fn act(self, address: SocketAddr) -> anyhow::Result<()> {
        match self {
            Abuse::DeepJson => {
                let body = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
                Line::open(address).await?.whole("/v1/messages", body.into()).await?;
            }
            Abuse::Garbage => {
                let body = Bytes::from(vec![b'{'; 64 << 10]);
                Line::open(address).await?.whole("/v1/messages", body).await?;
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
                let body = talk(Model::Long).request(true);
                connection
                    .write_all(head(&format!("content-length: {}", body.len())).as_bytes())
                    .await?;
                connection.write_all(&body).await?;
                std::future::pending::<()>().await;
            }
            Abuse::StalledProvider => streamed(address, Model::Held).await?,
            Abuse::BrokenProvider => streamed(address, Model::Broken).await?,
            Abuse::BabblingProvider => streamed(address, Model::Babbling).await?,
            Abuse::MistypedProvider => streamed(address, Model::Mistyped).await?,
            Abuse::ProviderElsewhere => streamed(address, Model::Elsewhere).await?,
            Abuse::FullDisk => streamed(address, Model::Long).await?,
            Abuse::BrokenOff => {
                let mut line = Line::open(address).await?;
                let body = talk(Model::Held).request(true);
                let mut body = line.post("/v1/messages", body).await?.into_body();
                body.frame().await.context("a stream without a piece")??;
            }
        }
        Ok(())
    }
}

fn talk(model: Model) -> Talk {
    Talk::new(Dialect::Messages, model, Size::Small, false)
}

fn head(length: &str) -> String {
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
    )
}

/// Reads a stream to its end.
async fn streamed(address: SocketAddr, model: Model) -> anyhow::Result<()> {
    let mut line = Line::open(address).await?;
    let response = line.post("/v1/messages", talk(model).request(true)).await?;
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
    let upstream = Server::of_ours(&["upstream"]).await?;
    println!("a probe's p99 with one connection, before and during each abuse");
    println!("{:<34} {:>10} {:>10} {:>7} {:>9}", "", "before", "during", "ratio", "MiB");
    let is_meant = |abuse: &Abuse| only.is_none_or(|only| abuse.name().contains(only));
    for abuse in Abuse::value_variants().iter().copied().filter(is_meant) {
        let disk = if abuse == Abuse::FullDisk { Disk::Small } else { Disk::Whole };
        let gateway = gateway::start(upstream.address, Capture::Durable, disk).await?;
        let address = gateway.server.address;
        probe(address).await?;
        let before = probe(address).await?.within(0.99);
        let mut abusers = abuse.begin(address)?;
        // The crowd is there before it is measured, and the disk is full.
        probe(address).await?;
        while abuse == Abuse::FullDisk && !gateway.has_lost().await? {
            probe(address).await?;
        }
        let during = probe(address).await?.within(0.99);
        let memory = gateway.server.memory()?;
        anyhow::ensure!(abusers.try_wait()?.is_none(), "nobody misbehaved to the end");
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

async fn probe(address: SocketAddr) -> anyhow::Result<Measured> {
    let work = Work {
        dialect: Dialect::Messages,
        size: Size::Small,
        lossy: false,
        connections: 1,
        conversations: 500,
        told: None,
    };
    load::run(address, work).await
}
