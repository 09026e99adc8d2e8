//! Verifies every link, commitment, manifest, log and index row, and reports the first failure.
//!
//! Other processes may write and erase during the verification, faster than this code reads.
//! Therefore no loop waits until all new data is read. All data written before the start is
//! verified. Later data is read only where a log's row requires it.

mod index_rows;
mod logs;

use std::collections::HashMap;

use throughline_core::{Digest, LogId, StoreError, Tenant};
use throughline_json::Name;

use crate::chain::{GENESIS, Head, Link};
use crate::cipher;
use crate::hex::hex;
use crate::journal::Journal;
use crate::journal::verify::logs::LogSummary;
use crate::manifest::{Manifest, Statement};
use crate::query::{Progress, share};
use crate::rejection::Result;
use crate::row::ChainRow;
use crate::row_mac::{RowState, STORE_TABLES, TENANT_TABLES};

/// Counts and the first failure of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of records whose link is valid.
    pub records: u64,
    /// How many of the `records` had their content destroyed, with a matching erasure record.
    pub gone: u64,
    /// Number of verified chain segments.
    pub segments: u64,
    /// Number of manifests with valid signatures.
    pub manifests: u64,
    /// The first failure; `None` if the store is intact.
    pub broken: Option<VerifyFailure>,
    /// Names of the tables whose rows are verified. Leases, creation times and the last change of a
    /// log are not covered.
    pub tables: Vec<&'static str>,
    /// The reasons why this verification proves less than usual.
    pub warnings: Vec<Warning>,
}

/// A reason why a verification proves less than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The store has no master key, so its signing key is stored beside the data.
    KeyBesideData,
    /// The store has no signed manifest.
    NoManifest,
    /// The store has schema version 1, whose index rows have no MACs.
    RowsWithoutMacs,
}

impl Warning {
    /// Returns the machine-readable name of the warning.
    pub fn code(self) -> &'static str {
        self.code_and_text().0
    }

    fn code_and_text(self) -> (&'static str, &'static str) {
        match self {
            Warning::KeyBesideData => (
                "key-beside-data",
                "the signing key is stored beside the data: anyone who can write to the store can \
                 sign changes. Use a master key, or keep a manifest elsewhere",
            ),
            Warning::NoManifest => (
                "no-manifest",
                "there is no signed manifest: truncation at the end is not detected. Keep a \
                 manifest elsewhere, with --write-manifest",
            ),
            Warning::RowsWithoutMacs => (
                "rows-without-macs",
                "the store has schema version 1: only records and what they prove are covered. \
                 Open it once for writing, which adds the MACs of the other tables",
            ),
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code_and_text().1)
    }
}

/// A failed check: its location and the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFailure {
    /// The location, for example `record 7 of thread_1 (tenant default)`.
    pub place: String,
    /// The problem, phrased as a predicate that follows `place`.
    pub problem: String,
}

impl std::fmt::Display for VerifyFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.place, self.problem)
    }
}

fn tables(has_macs: bool) -> Vec<&'static str> {
    let by_records = ["records", "salts", "blobs", "segments"];
    let by_macs = TENANT_TABLES.iter().chain(&STORE_TABLES).filter(|_| has_macs);
    let by_macs = by_macs.map(|table| table.name).filter(|name| !by_records.contains(name));
    by_records.into_iter().chain(by_macs).collect()
}

/// The tenant and writer of a chain segment.
type ChainKey = (Tenant, Name);

/// The findings of a running verification, and the data for its remaining checks.
#[derive(Default)]
struct Ledger {
    report: VerifyReport,
    chains: HashMap<ChainKey, (u64, Link)>,
    /// The end of each chain when the verification began.
    heads: HashMap<(ChainKey, u64), Link>,
    /// Links that are confirmed by signed manifests.
    confirmed: HashMap<(ChainKey, u64), Link>,
    /// The state of each log, computed from its records.
    logs: HashMap<(Tenant, LogId), LogSummary>,
    /// The tenant whose data is verified; `None` for all tenants.
    scope: Option<Tenant>,
    /// The oldest acceptable state of each row sum, according to the manifests.
    rows: HashMap<Option<ChainKey>, (i64, Digest)>,
}

impl Journal {
    /// Verifies everything written before the call, while other processes may continue to write.
    /// `witness` is a manifest that was exported earlier, which makes truncation since then
    /// detectable.
    pub async fn verify(
        &self,
        witness: Option<&Manifest>,
        progress: Progress<'_>,
    ) -> Result<VerifyReport> {
        self.verify_within(Ledger::default(), witness, progress).await
    }

    /// Verifies the chains, logs and index rows of one tenant. Other tenants' data is not checked.
    pub async fn verify_tenant(&self, tenant: &Tenant) -> Result<VerifyReport> {
        let ledger = Ledger { scope: Some(tenant.clone()), ..Ledger::default() };
        self.verify_within(ledger, None, &|_| {}).await
    }

    async fn verify_within(
        &self,
        mut ledger: Ledger,
        witness: Option<&Manifest>,
        progress: Progress<'_>,
    ) -> Result<VerifyReport> {
        let broken = match self.prove(&mut ledger, witness, progress).await {
            Ok(()) => None,
            Err(VerifyError::Broken(broken)) => Some(broken),
            Err(VerifyError::Store(StoreError::Corrupt(problem))) => {
                Some(broken("the store", &*problem))
            }
            Err(VerifyError::Store(StoreError::Database(error))) => {
                Some(broken("the store", format!("cannot be read: {error}")))
            }
            Err(VerifyError::Store(error)) => return Err(error),
        };
        if !self.backend.is_stable() {
            return Err(StoreError::Locked(self.url().into()));
        }
        let segments = u64::try_from(ledger.chains.len()).unwrap_or(u64::MAX);
        let has_macs = self.backend.version().await? > 1;
        let warnings = self.warnings(ledger.report.manifests, has_macs);
        Ok(VerifyReport { segments, broken, tables: tables(has_macs), warnings, ..ledger.report })
    }

    fn warnings(&self, manifests: u64, has_macs: bool) -> Vec<Warning> {
        let warnings = [
            (self.keys.epoch() == 0, Warning::KeyBesideData),
            (manifests == 0, Warning::NoManifest),
            (!has_macs, Warning::RowsWithoutMacs),
        ];
        warnings.into_iter().filter(|(applies, _)| *applies).map(|(_, warning)| warning).collect()
    }

    async fn prove(
        &self,
        ledger: &mut Ledger,
        witness: Option<&Manifest>,
        progress: Progress<'_>,
    ) -> Result<(), VerifyError> {
        self.verify_manifests(ledger, witness).await?;
        let heads = self.backend.heads(ledger.scope.as_ref()).await?;
        ledger.heads = ledger.links(heads).collect();
        let total = match ledger.scope {
            None => self.backend.stats().await?.records,
            // The verification of one tenant reports no progress, because it does not count other
            // tenants' records.
            Some(_) => 1,
        };
        let last = self.backend.last_record().await?;
        let progress = |records: u64| progress(share(records, total));
        self.verify_records(ledger, last, &progress).await?;
        self.verify_missing(ledger).await?;
        self.verify_heads(ledger).await?;
        self.verify_logs(ledger).await?;
        if self.backend.version().await? > 1 { self.verify_rows(ledger).await } else { Ok(()) }
    }

    /// Verifies the records up to `up_to`, in commit order.
    async fn verify_records(
        &self,
        ledger: &mut Ledger,
        up_to: i64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), VerifyError> {
        const PAGE: u32 = 500;
        let mut after = i64::MIN;
        loop {
            let rows = self.backend.chain(ledger.scope.as_ref(), after, up_to, PAGE).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.id;
            for row in &rows {
                self.load_log(ledger, row).await?;
                ledger.link(row)?;
                self.verify_content(ledger, row).await?;
                ledger.report.records += 1;
            }
            progress(ledger.report.records);
        }
    }

    /// Loads the kind and lineage of a record's log, unless they are already loaded.
    async fn load_log(&self, ledger: &mut Ledger, chain: &ChainRow) -> Result<(), VerifyError> {
        let ChainRow { tenant, log, .. } = chain;
        let key = (tenant.clone(), log.clone());
        if ledger.logs.contains_key(&key) {
            return Ok(());
        }
        let Some(head) = self.backend.log(tenant, log).await? else {
            return fail(place(chain), "belongs to a log that the tenant does not have");
        };
        ledger.logs.insert(key, LogSummary::before(&head));
        Ok(())
    }

    /// Verifies the signatures and the order of all manifests. The links that the manifests confirm
    /// are checked later.
    async fn verify_manifests(
        &self,
        ledger: &mut Ledger,
        witness: Option<&Manifest>,
    ) -> Result<(), VerifyError> {
        const PAGE: u32 = 500;
        let store = self.signer.store();
        let mut series: HashMap<Name, (u64, Digest)> = HashMap::new();
        let mut after = i64::MIN;
        loop {
            let manifests = self.backend.manifests(after, PAGE).await?;
            for (id, manifest) in &manifests {
                after = *id;
                let place = format!("manifest {id}");
                if !manifest.is_signed_by(&store) {
                    return fail(place, "has an invalid signature");
                }
                let Some(statement) = manifest.statement() else {
                    return fail(place, "cannot be read");
                };
                let writer = statement.writer.clone();
                let (number, digest) = series.entry(writer).or_insert((0, [0; 32]));
                if statement.number != *number + 1 || statement.previous != *digest {
                    let writer = &statement.writer;
                    return fail(place, format!("does not follow manifest {number} of {writer}"));
                }
                (*number, *digest) = (statement.number, manifest.digest());
                let concerns = statement.heads.iter().any(|head| ledger.concerns(&head.tenant));
                ledger.report.manifests += u64::from(concerns);
                ledger.confirm(statement);
            }
            // Stop at the first short page, because other processes keep adding manifests.
            if u32::try_from(manifests.len()).is_ok_and(|count| count < PAGE) {
                break;
            }
        }
        if let Some(witness) = witness {
            if !witness.is_signed_by(&store) {
                return fail("the given manifest", "was not signed by this store");
            }
            let Some(statement) = witness.statement() else {
                return fail("the given manifest", "cannot be read");
            };
            ledger.confirm(statement);
        }
        Ok(())
    }

    /// Verifies a record's content against its commitment, or notes that the content was destroyed.
    async fn verify_content(
        &self,
        ledger: &mut Ledger,
        chain: &ChainRow,
    ) -> Result<(), VerifyError> {
        let ChainRow { tenant, log, row, .. } = chain;
        let content = self.content_or_erasure(tenant, log, row).await;
        let erased = match &content {
            Ok(Err(reason)) => Some(*reason),
            Ok(Ok(_)) | Err(_) => row.erased,
        };
        if let Some(reason) = erased {
            let has_content = row.content.is_some() || row.salt.is_some() || row.blob.is_some();
            if row.erased.is_some() && has_content {
                let problem = "is marked as destroyed, but its content still exists";
                return fail(place(chain), problem);
            }
            ledger.report.gone += 1;
            if let Some(summary) = ledger.logs.get_mut(&(tenant.clone(), log.clone())) {
                summary.lose(row, reason);
            }
            return Ok(());
        }
        let content = match content {
            Ok(Ok((content, salt))) if cipher::commitment(&salt, &content) == row.commitment => {
                content
            }
            Ok(_) => return fail(place(chain), "has content that does not match its commitment"),
            Err(StoreError::Corrupt(problem)) => {
                return fail(place(chain), format!("is damaged: {problem}"));
            }
            Err(StoreError::WrongKey) => {
                let problem = "is sealed under a master key that was not provided";
                return fail(place(chain), problem);
            }
            Err(error) => return Err(error.into()),
        };
        if u64::try_from(content.len()).ok() != Some(row.size) {
            return fail(place(chain), "does not have its recorded length");
        }
        if let Some(summary) = ledger.logs.get_mut(&(tenant.clone(), log.clone())) {
            summary.apply_content(row, &content);
        }
        Ok(())
    }

    /// Verifies that each chain ends at its stored head, or was continued during the verification.
    async fn verify_heads(&self, ledger: &mut Ledger) -> Result<(), VerifyError> {
        let place =
            |(tenant, writer): &ChainKey| format!("the chain of {writer} (tenant {tenant})");
        let unseen = ledger.heads.iter().min_by_key(|((_, position), _)| *position);
        if let Some(((chain, position), _)) = unseen {
            let end = ledger.chains.get(chain).map_or(0, |(end, _)| *end);
            return fail(place(chain), format!("ends at {end} but should end at {position}"));
        }
        let heads = self.backend.heads(ledger.scope.as_ref()).await?.into_iter();
        let heads = heads.map(|head| ((head.tenant, head.writer), (head.position, head.link)));
        let known: HashMap<ChainKey, (u64, Link)> = heads.collect();
        for (chain, (end, link)) in &ledger.chains {
            match known.get(chain) {
                None => return fail(place(chain), "is not registered in the store"),
                Some((position, head)) if position < end || (position == end && head != link) => {
                    let problem = format!("ends at {end} but should end at {position}");
                    return fail(place(chain), problem);
                }
                Some(_) => {}
            }
        }
        let unseen = ledger.confirmed.iter().min_by_key(|((_, position), _)| *position);
        if let Some(((chain, position), link)) = unseen {
            let link = hex(link);
            let link = link.get(..16).unwrap_or_default();
            let problem =
                format!("was truncated: a signed manifest lists link {position}, {link}…");
            return fail(place(chain), problem);
        }
        Ok(())
    }
}

impl Ledger {
    /// Returns whether the tenant's data is in the scope of this verification.
    fn concerns(&self, tenant: &Tenant) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope == tenant)
    }

    /// Returns the link of each head within scope, keyed by chain and position.
    fn links(&self, heads: Vec<Head>) -> impl Iterator<Item = ((ChainKey, u64), Link)> {
        heads
            .into_iter()
            .filter(|head| head.position > 0 && self.concerns(&head.tenant))
            .map(|head| (((head.tenant, head.writer), head.position), head.link))
    }

    /// Adds the links and row sums that a manifest confirms. For each row sum, only the newest
    /// confirmed state is kept, and the stored sum must not be older.
    fn confirm(&mut self, statement: Statement) {
        let links: Vec<_> = self.links(statement.heads).collect();
        self.confirmed.extend(links);
        for RowState { segment, changes, digest } in statement.rows {
            let concerns = match &segment {
                Some((tenant, _)) => self.concerns(tenant),
                None => self.scope.is_none(),
            };
            if !concerns {
                continue;
            }
            let known = self.rows.entry(segment).or_insert((changes, digest));
            if known.0 < changes {
                *known = (changes, digest);
            }
        }
    }

    /// Verifies that the record is the next in its chain and in its log, and that its link is
    /// valid.
    fn link(&mut self, chain: &ChainRow) -> Result<(), VerifyError> {
        let ChainRow { tenant, log, row, .. } = chain;
        if chain.id < 1 {
            return fail(place(chain), "has a number that the database never assigns");
        }
        let nature = self.logs.get(&(tenant.clone(), log.clone())).map(|log| log.nature.as_str());
        let key = (tenant.clone(), row.writer.clone());
        let (position, link) = self.chains.entry(key.clone()).or_insert((0, GENESIS));
        if row.position != *position + 1 {
            let (found, writer, next) = (row.position, &row.writer, *position + 1);
            let problem =
                format!("is link {found} of the chain of {writer} where {next} should be");
            return fail(place(chain), problem);
        }
        let header = row.header(tenant, log, nature.unwrap_or_default());
        if header.link(link, &row.commitment) != row.link {
            let problem = format!("breaks the chain of {} at link {}", row.writer, row.position);
            return fail(place(chain), problem);
        }
        (*position, *link) = (row.position, row.link);
        let key = (key, row.position);
        if self.heads.remove(&key).is_some_and(|head| head != row.link) {
            return fail(place(chain), "has a link that differs from the end of its chain");
        }
        if self.confirmed.remove(&key).is_some_and(|link| link != row.link) {
            return fail(place(chain), "has a link that differs from a signed manifest");
        }
        let Some(summary) = self.logs.get_mut(&(tenant.clone(), log.clone())) else {
            return Ok(());
        };
        summary.add(row).or_else(|problem| fail(place(chain), problem))
    }
}

#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error("{0}")]
    Broken(VerifyFailure),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn place(chain: &ChainRow) -> String {
    format!("record {} of {} (tenant {})", chain.row.seq, chain.log, chain.tenant)
}

fn broken(place: impl Into<String>, problem: impl Into<String>) -> VerifyFailure {
    VerifyFailure { place: place.into(), problem: problem.into() }
}

fn fail<T>(place: impl Into<String>, problem: impl Into<String>) -> Result<T, VerifyError> {
    Err(VerifyError::Broken(broken(place, problem)))
}
