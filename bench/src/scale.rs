//! Load test of several gateways that share one PostgreSQL server. Clients keep thousands of slow
//! streams open and run conversations while the server is stopped and started again.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use throughline_testkit::Cluster;
use tokio::task::JoinSet;

use crate::Options;
use crate::gateway::{self, Gateway};
use crate::load::{Connection, LoadResult};
use crate::postgres::PostgresServer;
use crate::process::Server;
use crate::reply::Model;
use crate::scale_clients::{LoadKeys, LoadStage, ScaleLoad};
use crate::scale_table;

/// Number of conversations at full speed.
const FAST_CONVERSATIONS: usize = 16;
/// File descriptors of a process for other purposes than client connections.
const OTHER_FILES: usize = 500;
const POLL: Duration = Duration::from_millis(50);

/// The size of a load test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSize {
    pub(crate) streams: usize,
    pub(crate) conversations: usize,
    /// Time between the pieces of a stream. A stream has nine pieces.
    pub(crate) pace: Duration,
    /// Time between two turns of a conversation.
    pub(crate) think: Duration,
    steady: Duration,
    outage: Duration,
    recovered: Duration,
    turns: Duration,
}

impl LoadSize {
    /// Returns how many files a process may open: the load generator has a connection per stream
    /// and a connection per conversation and node. A gateway has two connections per call.
    fn files(&self, nodes: usize) -> usize {
        let generator = self.streams + self.conversations * nodes;
        let gateway = 2 * (self.streams.div_ceil(nodes) + self.conversations);
        generator.max(gateway) + OTHER_FILES
    }
}

const FULL: LoadSize = LoadSize {
    streams: 10_000,
    conversations: 1_000,
    pace: Duration::from_secs(10),
    think: Duration::from_secs(10),
    steady: Duration::from_secs(45),
    outage: Duration::from_mins(1),
    recovered: Duration::from_secs(30),
    turns: Duration::from_secs(30),
};
const QUICK: LoadSize = LoadSize {
    streams: 1_000,
    conversations: 100,
    pace: Duration::from_secs(2),
    think: Duration::from_secs(2),
    steady: Duration::from_secs(10),
    outage: Duration::from_secs(10),
    recovered: Duration::from_secs(5),
    turns: Duration::from_secs(10),
};

/// CPU times that the processes have used so far.
#[derive(Clone, Copy, Debug, Default)]
struct CpuUse {
    gateways: Duration,
    /// `None` while the server is stopped.
    postgres: Option<Duration>,
}

/// What was measured in a stage.
pub(crate) struct StageResult {
    pub(crate) stage: LoadStage,
    pub(crate) load: LoadResult,
    /// Number of streams that ended.
    pub(crate) streams: usize,
    pub(crate) failed: usize,
    pub(crate) gateway_cpu: Duration,
    pub(crate) postgres_cpu: Option<Duration>,
    /// Memory of the largest gateway in bytes, at the end of the stage.
    pub(crate) memory: u64,
    /// Growth of the database's tables and indexes in bytes.
    pub(crate) growth: u64,
}

/// What a load test measured.
pub(crate) struct ScaleResult {
    pub(crate) size: LoadSize,
    pub(crate) nodes: usize,
    pub(crate) stages: Vec<StageResult>,
    /// Time until all streams were open.
    pub(crate) opened: Duration,
    /// Memory of the largest gateway before the first stream, in bytes.
    pub(crate) idle_memory: u64,
    /// Time from the start of PostgreSQL until all gateways were ready.
    pub(crate) ready: Duration,
    /// Number of gateways that reported during the outage that they were not ready.
    pub(crate) unready_nodes: usize,
    /// Replies that the gateways captured, and replies that they could not capture.
    pub(crate) captures: (u64, u64),
    /// Number of model calls that succeeded for a client.
    pub(crate) calls: usize,
    /// Number of requests that the provider received for the model of the requests that need the
    /// store.
    pub(crate) probes_received: usize,
}

/// The processes of a load test.
struct Deployment {
    upstream: Server,
    gateways: Vec<Gateway>,
    cluster: Arc<Cluster>,
}

pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let (size, nodes) = (if options.quick { QUICK } else { FULL }, usize::from(options.nodes));
    check_file_limit(size.files(nodes))?;
    let (deployment, load) = Deployment::start(size, nodes).await?;
    let result = deployment.measure(&load, size).await?;
    scale_table::print(&result, &load);
    for gateway in deployment.gateways {
        gateway.stop().await?;
    }
    scale_table::check(&result, &load)
}

impl Deployment {
    async fn start(size: LoadSize, nodes: usize) -> anyhow::Result<(Self, Arc<ScaleLoad>)> {
        eprintln!("PostgreSQL, {nodes} gateways …");
        let cluster = tokio::task::spawn_blocking(Cluster::start).await?;
        let store = cluster.url.clone();
        let pace = size.pace.as_millis().to_string();
        let upstream = Server::start_self(&["upstream", "--pace", &pace]).await?;
        // A tenant may use seven eighths of the streams.
        let max_streams = (size.streams + size.conversations).div_ceil(nodes) * 2;
        let mut gateways = Vec::new();
        for _ in 0..nodes {
            gateways.push(gateway::start_node(upstream.address, &store, max_streams).await?);
        }
        let keys = LoadKeys {
            plain: gateway::create_key(&store, &[]).await?,
            budget: gateway::create_key(&store, &["--budget-tokens", "1000000000000"]).await?,
            unconfirmed: gateway::create_key(&store, &[]).await?,
        };
        let addresses = gateways.iter().map(|gateway| gateway.server.address).collect();
        let deployment = Self { upstream, gateways, cluster: Arc::new(cluster) };
        Ok((deployment, ScaleLoad::new(addresses, keys)))
    }

    async fn measure(&self, load: &Arc<ScaleLoad>, size: LoadSize) -> anyhow::Result<ScaleResult> {
        let idle_memory = self.memory()?;
        let mut running = JoinSet::new();
        let began = Instant::now();
        eprintln!("{} streams …", size.streams);
        load.open_streams(size.streams, &mut running);
        while load.open_streams.load(Ordering::SeqCst) < size.streams {
            anyhow::ensure!(load.problems().is_empty(), "{}", load.problems().join("\n"));
            tokio::time::sleep(POLL).await;
        }
        let opened = began.elapsed();
        load.run_conversations(size.conversations, size.think, &mut running);
        load.probe_store(&mut running);
        // Wait until each conversation has begun.
        tokio::time::sleep(size.think).await;

        let mut stages = vec![self.run_stage(load, LoadStage::Steady, size.steady).await?];
        load.set_sticky(true);
        while load.is_switching() {
            tokio::time::sleep(POLL).await;
        }
        self.control(Cluster::crash).await?;
        load.set_down(true);
        stages.push(self.run_stage(load, LoadStage::Outage, size.outage).await?);
        let unready_nodes = self.gateways.len() - self.count_ready().await?;
        load.set_down(false);
        self.control(Cluster::resume).await?;
        let resumed = Instant::now();
        while self.count_ready().await? < self.gateways.len() {
            tokio::time::sleep(POLL).await;
        }
        load.set_sticky(false);
        let ready = resumed.elapsed();
        stages.push(self.run_stage(load, LoadStage::Recovered, size.recovered).await?);

        eprintln!("the end of all streams …");
        load.set_ending(true);
        Connection::open(self.upstream.address).await?.post_whole("/release", Bytes::new()).await?;
        running.join_all().await;
        load.set_ending(false);
        let mut running = JoinSet::new();
        load.run_conversations(FAST_CONVERSATIONS, Duration::ZERO, &mut running);
        stages.push(self.run_stage(load, LoadStage::Turns, size.turns).await?);
        load.set_ending(true);
        running.join_all().await;

        Ok(ScaleResult {
            size,
            nodes: self.gateways.len(),
            opened,
            idle_memory,
            ready,
            unready_nodes,
            captures: self.captures(&load.keys.plain).await?,
            calls: scale_table::completed_calls(load),
            probes_received: self.probes_received().await?,
            stages,
        })
    }

    /// Measures the load for this time.
    async fn run_stage(
        &self,
        load: &ScaleLoad,
        stage: LoadStage,
        time: Duration,
    ) -> anyhow::Result<StageResult> {
        eprintln!("{stage:?}, {} s …", time.as_secs());
        load.begin(stage);
        let tally = load.tally(stage);
        // Before the first stage, clients have already sent requests.
        tally.take_sample();
        let (streams, size) = (tally.streams(), self.database_size()?);
        let (before, began) = (self.cpu_use()?, Instant::now());
        tokio::time::sleep(time).await;
        let after = self.cpu_use()?;
        let used = before.postgres.zip(after.postgres);
        Ok(StageResult {
            stage,
            load: LoadResult::new(tally.take_sample(), began.elapsed()),
            streams: tally.streams() - streams,
            failed: tally.failed.load(Ordering::SeqCst),
            gateway_cpu: after.gateways.saturating_sub(before.gateways),
            postgres_cpu: used.map(|(before, after)| after.saturating_sub(before)),
            memory: self.memory()?,
            growth: self.database_size()?.saturating_sub(size),
        })
    }

    /// Stops or starts PostgreSQL.
    async fn control(&self, act: fn(&Cluster)) -> anyhow::Result<()> {
        let cluster = Arc::clone(&self.cluster);
        Ok(tokio::task::spawn_blocking(move || act(&cluster)).await?)
    }

    fn cpu_use(&self) -> anyhow::Result<CpuUse> {
        let times = self.gateways.iter().map(|gateway| gateway.server.cpu_time());
        let gateways = times.sum::<anyhow::Result<Duration>>()?;
        let server = PostgresServer::find(&self.cluster.url)?;
        let postgres = server.map(|server| server.cpu_time()).transpose()?;
        Ok(CpuUse { gateways, postgres })
    }

    /// Returns the memory of the largest gateway in bytes.
    fn memory(&self) -> anyhow::Result<u64> {
        let memory = self.gateways.iter().map(|gateway| gateway.server.memory());
        Ok(memory.collect::<anyhow::Result<Vec<_>>>()?.into_iter().max().unwrap_or_default())
    }

    fn database_size(&self) -> anyhow::Result<u64> {
        folder_size(&self.cluster.table_folder())
    }

    async fn count_ready(&self) -> anyhow::Result<usize> {
        let mut ready = 0;
        for gateway in &self.gateways {
            let mut connection = Connection::open(gateway.server.address).await?;
            ready += usize::from(connection.get_response("/readyz").await?.status().is_success());
        }
        Ok(ready)
    }

    /// Returns how many replies all gateways captured, and how many they could not capture.
    async fn captures(&self, key: &str) -> anyhow::Result<(u64, u64)> {
        let (mut kept, mut lost) = (0, 0);
        for gateway in &self.gateways {
            let metrics = gateway.metrics_with_key(key).await?;
            kept += counter(&metrics, "throughline_captures_total")?;
            lost += counter(&metrics, "throughline_capture_failures_total")?;
        }
        Ok((kept, lost))
    }

    async fn probes_received(&self) -> anyhow::Result<usize> {
        let path = format!("/received/{}", Model::Probed.name());
        let count = connection_text(self.upstream.address, &path).await?;
        count.parse().with_context(|| format!("unexpected response of the mock provider: {count}"))
    }
}

async fn connection_text(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let body = Connection::open(address).await?.get(path).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Returns the value of a counter without labels.
fn counter(metrics: &str, name: &str) -> anyhow::Result<u64> {
    let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let value = lines.find_map(|line| line.strip_prefix(' '));
    let value = value.with_context(|| format!("/metrics does not report {name}"))?;
    Ok(value.trim().parse()?)
}

/// Returns the total size of the files in a folder and its subfolders, in bytes.
fn folder_size(folder: &Path) -> anyhow::Result<u64> {
    let (mut folders, mut size) = (vec![folder.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            // The server may delete a file at any time.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                size += metadata.len();
            }
        }
    }
    Ok(size)
}

/// Checks that each process can open enough files.
fn check_file_limit(needed: usize) -> anyhow::Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let limit = line.and_then(|line| line.split_whitespace().next());
    let limit = limit.context("/proc/self/limits does not report the limit of open files")?;
    let is_enough = limit == "unlimited" || limit.parse::<usize>()? >= needed;
    anyhow::ensure!(
        is_enough,
        "the load test opens up to {needed} files per process, but the limit is {limit}; raise it \
         with `ulimit -n {needed}`, or use --quick"
    );
    Ok(())
}
