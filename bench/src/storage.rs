//! Measures what a turn costs the SQLite store of a relaxed gateway: pages in the WAL, bytes
//! written, and growth of the database file.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::Options;
use crate::gateway::{self, Capture, Gateway};
use crate::load::{self, LoadSpec};
use crate::measure::MANY;
use crate::process::{self, Server};

const NAME: &str = "store pages and growth";

/// Number of turns over which WAL pages are counted, unless `MAX_FRAMES` is reached before.
const WAL_TURNS: usize = 480;
/// The count stops at this number of frames in the WAL, because the store starts a checkpoint at
/// 4096.
const MAX_FRAMES: usize = 2048;
/// Time without writes after which all replies are stored. The store signs and flushes replies at
/// most one second after they arrive.
const QUIET: Duration = Duration::from_millis(1500);

/// Averages per turn.
pub(crate) struct StorageResult {
    /// `None` if a checkpoint interrupted the count.
    pub(crate) wal_pages: Option<f64>,
    /// Bytes that the gateway's process wrote to the disk.
    written: f64,
    /// Growth of the database file in bytes, after a checkpoint.
    pub(crate) growth: f64,
    /// Bytes of the reply, and bytes that the request added to the conversation.
    content: f64,
    turns: usize,
}

impl StorageResult {
    /// Returns the maximum growth of the file in bytes per turn.
    pub(crate) fn growth_target(&self) -> f64 {
        2.5 * self.content + 600.0
    }

    pub(crate) fn print(&self) {
        println!("\nSQLite store per turn, relaxed, 2 KB over {MANY} connections");
        if let Some(pages) = self.wal_pages {
            println!("{:<34} {pages:>8.2}", "pages in the WAL");
        }
        println!("{:<34} {:>8.0} B", "written to the disk", self.written);
        println!(
            "{:<34} {:>8.0} B, after {} turns; new content {:.0} B",
            "growth of the database file", self.growth, self.turns, self.content
        );
    }
}

/// Measures the store, if it is selected.
pub(crate) async fn run(
    options: &Options,
    upstream: SocketAddr,
) -> anyhow::Result<Option<StorageResult>> {
    if !options.selects(NAME) {
        return Ok(None);
    }
    eprintln!("{NAME} …");
    let wal_pages = count_wal_pages(upstream).await?;
    // 2,016 or 10,080 turns.
    let conversations = if options.quick { 21 } else { 105 };
    let store = GatewayWithStore::start(upstream).await?;
    checkpoint(&store.file)?;
    let (length, written) = (fs::metadata(&store.file)?.len(), store.server().written_bytes()?);
    let load = store.run_load(conversations).await?;
    wait_until_quiet(store.server()).await?;
    let written = store.server().written_bytes()?.saturating_sub(written);
    checkpoint(&store.file)?;
    let growth = fs::metadata(&store.file)?.len().saturating_sub(length);
    let per_turn = |bytes: u64| bytes as f64 / load.requests.max(1) as f64;
    Ok(Some(StorageResult {
        wal_pages,
        written: per_turn(written),
        growth: per_turn(growth),
        content: per_turn(load.content_bytes),
        turns: load.requests,
    }))
}

/// A gateway and its store. The gateway is dropped before the store's directory is deleted.
struct GatewayWithStore {
    gateway: Gateway,
    file: PathBuf,
    _folder: TempDir,
}

impl GatewayWithStore {
    async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let folder = process::temporary_folder()?;
        let file = folder.path().join("store.db");
        let url = gateway::sqlite_url(&file);
        let gateway = gateway::start_on(upstream, Capture::Relaxed, &url).await?;
        Ok(Self { gateway, file, _folder: folder })
    }

    fn server(&self) -> &Server {
        &self.gateway.server
    }

    async fn run_load(&self, conversations: usize) -> anyhow::Result<load::LoadResult> {
        load::run(self.server().address, LoadSpec::small(MANY, conversations)).await
    }
}

/// Returns the average number of pages that a turn appends to the WAL, or `None` if a checkpoint
/// resets the WAL. The load is short, so that no checkpoint is necessary.
async fn count_wal_pages(upstream: SocketAddr) -> anyhow::Result<Option<f64>> {
    let store = GatewayWithStore::start(upstream).await?;
    let wal = store.file.with_extension("db-wal");
    // Warm up, so that the tables have their first pages.
    store.run_load(1).await?;
    wait_until_quiet(store.server()).await?;
    let before = Wal::read(&wal)?;
    let mut turns = 0;
    while turns < WAL_TURNS && Wal::read(&wal)?.frames < MAX_FRAMES {
        turns += store.run_load(1).await?.requests;
    }
    wait_until_quiet(store.server()).await?;
    let after = Wal::read(&wal)?;
    if turns == 0 || before.salts != after.salts {
        eprintln!("the WAL pages are not measured, because the turns write too many of them");
        return Ok(None);
    }
    Ok(Some(after.frames.saturating_sub(before.frames) as f64 / turns as f64))
}

/// The part of a WAL that is in use. After a reset, SQLite overwrites the file from its start with
/// new salts, so the remaining frames of the previous use have other salts.
struct Wal {
    salts: Vec<u8>,
    frames: usize,
}

impl Wal {
    /// Sizes of the file's header and of a frame's header in bytes.
    const HEADERS: (usize, usize) = (32, 24);

    fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{} is not a WAL", path.display()))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let page = u32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        let salts = bytes.get(16..24)?;
        let frames = bytes.get(Self::HEADERS.0..)?.chunks_exact(page + Self::HEADERS.1);
        let frames = frames.take_while(|frame| frame.get(8..16) == Some(salts)).count();
        Some(Self { salts: salts.to_vec(), frames })
    }
}

/// Moves all pages from the WAL to the database file.
fn checkpoint(file: &Path) -> anyhow::Result<()> {
    let database = Connection::open(file)?;
    database.busy_timeout(Duration::from_secs(10))?;
    let query = "PRAGMA wal_checkpoint(TRUNCATE)";
    let is_busy: bool = database.query_row(query, [], |row| row.get(0))?;
    anyhow::ensure!(!is_busy, "the gateway prevented a checkpoint for ten seconds");
    Ok(())
}

/// Waits until the server has written nothing for the time `QUIET`.
async fn wait_until_quiet(server: &Server) -> anyhow::Result<()> {
    let mut written = server.written_bytes()?;
    for _ in 0..20 {
        tokio::time::sleep(QUIET).await;
        let now = server.written_bytes()?;
        if now == written {
            return Ok(());
        }
        written = now;
    }
    anyhow::bail!("the gateway still writes to the disk 30 seconds after the load")
}
