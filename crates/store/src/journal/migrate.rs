//! Moves a store between SQLite and PostgreSQL, with proof before and after.
//!
//! Both databases have the same tables, so a migration copies all rows unchanged, from one snapshot
//! of the source. The ids, links, MACs, salts and manifests stay the same, and so does the store's
//! secret. The chain heads and row sums of both stores must therefore be equal. Leases are copied
//! as expired leases. The list of backups is copied too, so the target removes forgotten content
//! from the key files of earlier backups.

use std::path::{Path, PathBuf};

use throughline_core::StoreError;
use throughline_json::Name;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::backend::SnapshotWork;
use crate::chain::Head;
use crate::files::{TemporaryFile, failed, part_of};
use crate::hex::hex;
use crate::journal::Journal;
use crate::journal::open::{open_without_cleanup, sqlite_path, without_password};
use crate::journal::verify::VerifyReport;
use crate::options::Options;
use crate::postgres::{PostgresTarget, has_store};
use crate::query::Stats;
use crate::rejection::{Result, corrupt, invalid, target_has_store};
use crate::row_mac::RowState;
use crate::sql::values;
use crate::sqlite::{Reserve, SCHEMA_VERSION, copy_to_file, lease_owner};

/// Number of rows held in memory at a time. It is small, because each row may be large.
const PAGE: i32 = 64;

/// A step of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationStep {
    /// Verifies every record and index row of the source.
    VerifySource,
    /// Copies all rows to the target.
    Copy,
    /// Verifies every record and index row of the target.
    VerifyTarget,
}

/// A callback that receives the current step and its completed fraction, from 0 to 1.
pub type MigrationProgress<'a> = &'a (dyn Fn(MigrationStep, f64) + Send + Sync);

/// What a store proves: equal proofs mean equal content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreProof {
    /// Public key that verifies the store's manifests, in hexadecimal digits.
    pub public_key: String,
    /// The end of each chain.
    pub heads: Vec<Head>,
    /// The sums of the MACs of each chain's index rows.
    pub rows: Vec<RowState>,
    /// Number of records whose link is valid.
    pub records: u64,
    /// Number of records whose content was destroyed.
    pub gone: u64,
    /// Number of signed manifests.
    pub manifests: u64,
}

impl StoreProof {
    /// Returns a digest of the whole proof, in hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut lines = vec![format!(
            "{}\t{}\t{}\t{}",
            self.public_key, self.records, self.gone, self.manifests
        )];
        for Head { tenant, writer, position, link } in &self.heads {
            lines.push(format!("head\t{tenant}\t{writer}\t{position}\t{}", hex(link)));
        }
        for RowState { segment, changes, digest } in &self.rows {
            let (tenant, writer) = segment.clone().unzip();
            let (tenant, writer) = (tenant.map(|tenant| tenant.0), writer);
            lines.push(format!("rows\t{tenant:?}\t{writer:?}\t{changes}\t{}", hex(digest)));
        }
        hex(blake3::hash(lines.join("\n").as_bytes()).as_bytes())
    }
}

/// The result of a migration.
#[derive(Clone, Debug)]
pub struct MigrationReport {
    /// URL of the source, without a password.
    pub source: Name,
    /// URL of the target, without a password.
    pub target: Name,
    /// The proof of both stores, which is equal.
    pub proof: StoreProof,
    /// Number and size of the rows in the target.
    pub stats: Stats,
    /// Whether this call copied the rows. False if an earlier call ended after the copy.
    pub was_copied: bool,
}

/// Copies the store at `source` to the empty database or new file `target`, and verifies both.
///
/// The source is opened read-only. `options` must contain the master key of an encrypted source,
/// which is also the master key of the target. If this call is interrupted, the target stays empty
/// or holds a complete copy that is not verified yet; repeat the call before the target is used.
/// Fails if another process writes to the source at the same time.
pub async fn migrate(
    source: &str,
    target: &str,
    options: &Options,
    progress: MigrationProgress<'_>,
) -> Result<MigrationReport> {
    let kinds = (sqlite_path(source).is_some(), sqlite_path(target).is_some());
    let advice = match kinds {
        (true, false) | (false, true) => None,
        (true, true) => Some("SQLite; to copy the store, use `throughline backup` and `restore`"),
        (false, false) => Some("PostgreSQL; to copy the store, use pg_dump and pg_restore"),
    };
    if let Some(advice) = advice {
        return Err(invalid!("both stores of a migration are on {advice}"));
    }
    let to = Options { listen_url: None, create: false, ..options.clone() };
    let from = Options { read_only: true, ..to.clone() };
    let journal = open_without_cleanup(source, &from, Reserve::Without).await?;
    let migrated = migrate_from(&journal, target, &to, progress).await;
    let closed = journal.close().await;
    let report = migrated?;
    closed.map(|()| report)
}

async fn migrate_from(
    source: &Journal,
    target: &str,
    options: &Options,
    progress: MigrationProgress<'_>,
) -> Result<MigrationReport> {
    let shown: Name = without_password(target).into();
    let version = source.backend.version().await?;
    if version < SCHEMA_VERSION {
        return Err(invalid!(
            "{} has schema version {version}; open it once for writing, for example with \
             `throughline serve`, which upgrades it to version {SCHEMA_VERSION}",
            source.url()
        ));
    }
    let file = sqlite_path(target).map(PathBuf::from);
    let is_there = match &file {
        Some(file) => file.exists(),
        None => has_store(target, options).await?,
    };
    if is_there && !is_same_store(source, target, options).await {
        return Err(target_has_store(&shown));
    }
    source.refuse_active_leases().await?;
    let before = source.prove_whole(&|share| progress(MigrationStep::VerifySource, share)).await?;
    let copying = |share| progress(MigrationStep::Copy, share);
    let verifying = |share| progress(MigrationStep::VerifyTarget, share);
    let (after, stats) = match file {
        _ if is_there => prove_target(target, options, &verifying).await?,
        Some(file) => {
            let part = copy_to_sqlite(source, &file, &copying).await?;
            let url = format!("sqlite://{}", part.path.display());
            let proof = prove_target(&url, options, &verifying).await?;
            check_equal(source.url(), &before, &shown, &proof.0)?;
            source.check_unchanged(&before).await?;
            publish(part, &file)?;
            proof
        }
        None => {
            copy_to_postgres(source, target, options, &before, &copying).await?;
            prove_target(target, options, &verifying).await?
        }
    };
    check_equal(source.url(), &before, &shown, &after)?;
    source.check_unchanged(&before).await?;
    let (source, was_copied) = (Name::from(source.url()), !is_there);
    Ok(MigrationReport { source, target: shown, proof: after, stats, was_copied })
}

/// Returns whether the target is a copy of the source, left by a migration that ended before it
/// verified the copy. A change without a record, such as a fork, changes only the row sums.
async fn is_same_store(source: &Journal, target: &str, options: &Options) -> bool {
    let options = Options { read_only: true, ..options.clone() };
    let Ok(target) = open_without_cleanup(target, &options, Reserve::Without).await else {
        return false;
    };
    let is_same = target.public_key() == source.public_key()
        && matches!(
            (source.ends().await, target.ends().await),
            (Ok(source), Ok(target)) if source == target
        );
    // The target was only read.
    drop(target.close().await);
    is_same
}

fn publish(part: TemporaryFile, file: &Path) -> Result<()> {
    part.publish(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => target_has_store(&file.display().to_string()),
        _ => failed(file, &error),
    })
}

fn check_equal(source: &str, before: &StoreProof, target: &str, after: &StoreProof) -> Result<()> {
    if before == after {
        return Ok(());
    }
    Err(corrupt!(
        "the copy differs from its source: {source} has the proof {}, but {target} has the proof \
         {}; delete the target and migrate again",
        before.digest(),
        after.digest()
    ))
}

/// Verifies the target and counts its rows.
async fn prove_target(
    url: &str,
    options: &Options,
    progress: &(dyn Fn(f64) + Send + Sync),
) -> Result<(StoreProof, Stats)> {
    let options = Options { read_only: true, ..options.clone() };
    let journal = open_without_cleanup(url, &options, Reserve::Without).await?;
    let proven = async {
        let proof = journal.prove_whole(progress).await?;
        Ok((proof, journal.backend.stats().await?))
    };
    let proven = proven.await;
    let closed = journal.close().await;
    let proof = proven?;
    closed.map(|()| proof)
}

/// Runs `work` with a snapshot of the source, and passes the completed fractions to `progress`.
/// `work` receives a function that reports a fraction, and that returns false once this future was
/// dropped.
async fn with_snapshot<T: Send + 'static>(
    source: &Journal,
    progress: &(dyn Fn(f64) + Send + Sync),
    work: impl FnOnce(&dyn crate::sql::Transaction, &dyn Fn(f64) -> bool) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (shares, mut received) = mpsc::unbounded_channel();
    let (sender, result) = oneshot::channel();
    let work: SnapshotWork = Box::new(move |db| {
        // Sending fails only if the caller was cancelled.
        drop(sender.send(work(db, &|share| shares.send(share).is_ok())?));
        Ok(())
    });
    let copying = source.backend.snapshot(PAGE, work);
    let reporting = async {
        while let Some(share) = received.recv().await {
            progress(share);
        }
    };
    tokio::join!(copying, reporting).0?;
    result.await.map_err(|_| StoreError::Closed)
}

async fn copy_to_sqlite(
    source: &Journal,
    file: &Path,
    progress: &(dyn Fn(f64) + Send + Sync),
) -> Result<TemporaryFile> {
    let part = part_of(file);
    with_snapshot(source, progress, move |db, report| copy_to_file(db, part, report)).await
}

async fn copy_to_postgres(
    source: &Journal,
    target: &str,
    options: &Options,
    before: &StoreProof,
    progress: &(dyn Fn(f64) + Send + Sync),
) -> Result<()> {
    let target = PostgresTarget::connect(target, options).await?;
    let (runtime, key) = (Handle::current(), source.keys.row_key());
    let (journal, before) = (source.clone(), before.clone());
    with_snapshot(source, progress, move |db, report| {
        let is_current = || runtime.block_on(journal.check_unchanged(&before));
        target.fill(&runtime, db, &key, report, &is_current)
    })
    .await
}

impl Journal {
    /// Verifies everything and returns the proof. Fails if the store is damaged or changes.
    async fn prove_whole(&self, progress: &(dyn Fn(f64) + Send + Sync)) -> Result<StoreProof> {
        let (heads, rows) = self.ends().await?;
        let VerifyReport { records, gone, manifests, broken, .. } =
            self.verify(None, progress).await?;
        if let Some(broken) = broken {
            return Err(corrupt!("{} is damaged: {broken}", self.url()));
        }
        let public_key = self.public_key();
        let proof = StoreProof { public_key, heads, rows, records, gone, manifests };
        self.check_unchanged(&proof).await?;
        Ok(proof)
    }

    /// Returns the ends of all chains and the sums of their index rows. The sums of the store-wide
    /// tables are left out, because SQLite and PostgreSQL have different internal values.
    async fn ends(&self) -> Result<(Vec<Head>, Vec<RowState>)> {
        let heads = self.backend.heads(None).await?;
        let mut rows = self.backend.row_states().await?;
        rows.retain(|state| state.segment.is_some());
        Ok((heads, rows))
    }

    /// Fails if the store was written to since the proof was made.
    async fn check_unchanged(&self, proof: &StoreProof) -> Result<()> {
        let (heads, rows) = self.ends().await?;
        if heads == proof.heads && rows == proof.rows && self.backend.is_stable() {
            return Ok(());
        }
        Err(invalid!(
            "{} was written to during the migration; stop all gateways and agents that use it, and \
             migrate again to an empty target",
            self.url()
        ))
    }

    /// Fails if a process executes a run of this store.
    async fn refuse_active_leases(&self) -> Result<()> {
        let sql = format!(
            "SELECT log, owner FROM leases h WHERE {} ORDER BY log LIMIT $1",
            self.backend.dialect().lease_is_active
        );
        let rows = self.backend.query(&sql, &values![1]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (log, owner): (Name, Name) = (row.get(0)?, row.get(1)?);
        Err(invalid!(
            "{} is in use: {} executes the run {log}; stop all gateways and agents that use it, \
             and migrate again",
            self.url(),
            lease_owner(&owner)
        ))
    }
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod migrate_tests;
