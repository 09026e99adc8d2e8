//! Proving: every link, every commitment, every manifest, every log, every index row. The first thing that is wrong is named.
//!
//! Others may write and destroy meanwhile, and faster than this reads; so nothing here reads on until nothing new comes. What
//! was written before it began is proven. What was written after that is only read where a log's row tells of it.

mod logs;
mod rows;

use std::collections::HashMap;

use throughline_core::{Digest, LogId, Name, StoreError, Tenant};

use crate::backend::{ChainRow, Progress};
use crate::chain::{GENESIS, Link};
use crate::cipher;
use crate::journal::Journal;
use crate::manifest::{Manifest, hex};
use crate::row_mac::{OF_STORE, OF_TENANTS, RowState};
use crate::verify::logs::Summary;

pub(crate) use crate::verify::rows::{FIRST_COUNT, RowsRead, SegmentRead, report_migration};

/// What was proven, or the first thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Records whose links hold.
    pub records: u64,
    /// Of these, records whose content is no more, and whose log says so.
    pub gone: u64,
    /// Segments of chains.
    pub segments: u64,
    /// Manifests whose signatures hold.
    pub manifests: u64,
    /// The first thing that is wrong; the store is intact without.
    pub broken: Option<Broken>,
    /// The tables whose rows are proven. Leases, and columns with times of creation and of the last change of a log, are not.
    pub tables: Vec<&'static str>,
    /// What limits the proof.
    pub warnings: Vec<Warning>,
}

/// What limits a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// There is no master key, so the key that signs is stored beside the data.
    KeyBesideData,
    /// There is no signed manifest.
    NoManifest,
    /// The store has schema version 1, whose index rows have no MACs.
    RowsWithoutMacs,
}

impl Warning {
    /// Its name, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Warning::KeyBesideData => "key-beside-data",
            Warning::NoManifest => "no-manifest",
            Warning::RowsWithoutMacs => "rows-without-macs",
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Warning::KeyBesideData => {
                "the signing key is stored beside the data: a person who can write to the store can \
                 sign changes. Use a master key, or keep a manifest elsewhere"
            }
            Warning::NoManifest => {
                "there is no signed manifest: records that were cut off at the end are not noticed. \
                 Keep a manifest elsewhere, with --write-manifest"
            }
            Warning::RowsWithoutMacs => {
                "the store has schema version 1: only records and what they prove are covered. Open \
                 it once for writing, which adds the MACs of the other tables"
            }
        })
    }
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Where, as `record 7 of thread_1 (tenant default)`.
    pub place: String,
    /// What is wrong there, as the end of a sentence.
    pub problem: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.place, self.problem)
    }
}

/// The tables whose rows are proven.
fn tables(has_macs: bool) -> Vec<&'static str> {
    let by_records = ["records", "salts", "blobs", "segments"];
    let by_macs = OF_TENANTS.iter().chain(&OF_STORE).filter(|_| has_macs);
    let by_macs = by_macs.map(|table| table.name).filter(|name| !by_records.contains(name));
    by_records.into_iter().chain(by_macs).collect()
}

/// A segment of a chain.
type Chain = (Tenant, Name);

/// What is known so far.
#[derive(Default)]
struct Ledger {
    proof: Counts,
    chains: HashMap<Chain, (u64, Link)>,
    /// Where the chains ended when it began.
    heads: HashMap<(Chain, u64), Link>,
    /// Links that manifests vouch for.
    vouched: HashMap<(Chain, u64), Link>,
    /// What each log's records say about it.
    logs: HashMap<(Tenant, LogId), Summary>,
    /// The tenant whose chains are proven; all without.
    scope: Option<Tenant>,
    /// Where manifests say that the sums of index rows stood at least.
    rows: HashMap<Option<Chain>, (i64, Digest)>,
}

#[derive(Default)]
struct Counts {
    records: u64,
    gone: u64,
    manifests: u64,
}

impl Journal {
    /// Proves all that was written before now; others may go on. `witness` is a manifest that was exported earlier: with it,
    /// what was cut off is noticed too.
    pub async fn verify(
        &self,
        witness: Option<&Manifest>,
        progress: Progress<'_>,
    ) -> Result<Proof, StoreError> {
        self.verify_within(Ledger::default(), witness, progress).await
    }

    /// The same for the chains, logs and index rows of one tenant. What is wrong elsewhere is neither looked for nor named.
    pub async fn verify_tenant(&self, tenant: &Tenant) -> Result<Proof, StoreError> {
        let ledger = Ledger { scope: Some(tenant.clone()), ..Ledger::default() };
        self.verify_within(ledger, None, &|_| {}).await
    }

    async fn verify_within(
        &self,
        mut ledger: Ledger,
        witness: Option<&Manifest>,
        progress: Progress<'_>,
    ) -> Result<Proof, StoreError> {
        let outcome = self.prove(&mut ledger, witness, progress).await;
        let broken = match outcome {
            Ok(()) => None,
            Err(Fault::Broken(broken)) => Some(broken),
            Err(Fault::Store(StoreError::Corrupt(problem))) => Some(broken("the store", &problem)),
            Err(Fault::Store(StoreError::Database(error))) => {
                Some(broken("the store", &format!("cannot be read: {error}")))
            }
            Err(Fault::Store(error)) => return Err(error),
        };
        if !self.backend.is_stable() {
            return Err(StoreError::Locked(self.url().into()));
        }
        let segments = u64::try_from(ledger.chains.len()).unwrap_or(u64::MAX);
        let Counts { records, gone, manifests } = ledger.proof;
        let has_macs = self.backend.version().await? > 1;
        let (tables, warnings) = (tables(has_macs), self.warnings(manifests, has_macs));
        Ok(Proof { records, gone, segments, manifests, broken, tables, warnings })
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
    ) -> Result<(), Fault> {
        self.prove_manifests(ledger, witness).await?;
        ledger.expect(self.backend.heads(ledger.scope.as_ref()).await?);
        let total = match ledger.scope {
            None => self.backend.stats().await?.records.max(1),
            // A tenant's proof reports no progress, and does not count the records of others.
            Some(_) => 1,
        };
        #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
        let progress = |records: u64| progress((records as f64 / total as f64).min(1.0));
        let last = self.backend.last_record().await?;
        self.prove_records(ledger, last, &progress).await?;
        self.prove_missing(ledger).await?;
        self.prove_heads(ledger).await?;
        self.prove_logs(ledger).await?;
        match self.backend.version().await? {
            0 | 1 => Ok(()),
            2.. => self.prove_rows(ledger).await,
        }
    }

    /// The records up to that one, in the order in which they were written.
    async fn prove_records(
        &self,
        ledger: &mut Ledger,
        up_to: i64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Fault> {
        const PAGE: u32 = 500;
        let mut after = i64::MIN;
        loop {
            let rows = self.backend.chain(ledger.scope.as_ref(), after, up_to, PAGE).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.id;
            for row in &rows {
                self.know_log(ledger, row).await?;
                ledger.link(row)?;
                self.prove_content(ledger, row).await?;
                ledger.proof.records += 1;
            }
            progress(ledger.proof.records);
        }
    }

    /// What the row of the record's log says that the log is.
    async fn know_log(&self, ledger: &mut Ledger, chain: &ChainRow) -> Result<(), Fault> {
        let ChainRow { tenant, log, .. } = chain;
        let key = (tenant.clone(), log.clone());
        if ledger.logs.contains_key(&key) {
            return Ok(());
        }
        let Some(head) = self.backend.log(tenant, log).await? else {
            return Err(broken(&place(chain), "is of a log that the tenant does not have").into());
        };
        ledger.logs.insert(key, Summary::before(&head));
        Ok(())
    }

    /// Every manifest is signed and follows the one before it. What it vouches for is looked at later.
    async fn prove_manifests(
        &self,
        ledger: &mut Ledger,
        witness: Option<&Manifest>,
    ) -> Result<(), Fault> {
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
                    return Err(broken(&place, "has a wrong signature").into());
                }
                let Some(said) = manifest.statement() else {
                    return Err(broken(&place, "cannot be read").into());
                };
                let (number, digest) = series.entry(said.writer.clone()).or_insert((0, [0; 32]));
                if said.number != *number + 1 || said.previous != *digest {
                    let problem = format!("does not follow manifest {number} of {}", said.writer);
                    return Err(broken(&place, &problem).into());
                }
                (*number, *digest) = (said.number, manifest.digest());
                let concerns = said.heads.iter().any(|head| ledger.concerns(&head.tenant));
                ledger.proof.manifests += u64::from(concerns);
                ledger.vouch_for_rows(said.rows);
                ledger.vouch(said.heads);
            }
            // Others sign meanwhile.
            let was_all = u32::try_from(manifests.len()).is_ok_and(|count| count < PAGE);
            if was_all {
                break;
            }
        }
        if let Some(witness) = witness {
            if !witness.is_signed_by(&store) {
                let problem = "was not signed by this store";
                return Err(broken("the given manifest", problem).into());
            }
            let Some(said) = witness.statement() else {
                return Err(broken("the given manifest", "cannot be read").into());
            };
            ledger.vouch_for_rows(said.rows);
            ledger.vouch(said.heads);
        }
        Ok(())
    }

    /// The content is the one that was committed to; or it is no more, and that is noted.
    async fn prove_content(&self, ledger: &mut Ledger, chain: &ChainRow) -> Result<(), Fault> {
        let ChainRow { tenant, log, row, .. } = chain;
        let content = self.content_or_gone(tenant, log, row).await;
        let gone = match &content {
            Ok(Err(why)) => Some(*why),
            Ok(Ok(_)) | Err(_) => row.erased,
        };
        if let Some(why) = gone {
            let is_there = row.content.is_some() || row.salt.is_some() || row.blob.is_some();
            if row.erased.is_some() && is_there {
                let problem = "is marked as destroyed, and its content is there";
                return Err(broken(&place(chain), problem).into());
            }
            ledger.proof.gone += 1;
            if let Some(summary) = ledger.logs.get_mut(&(tenant.clone(), log.clone())) {
                summary.lose(row, why);
            }
            return Ok(());
        }
        let content = match content {
            Ok(Ok((content, salt))) if cipher::commitment(&salt, &content) == row.commitment => {
                content
            }
            Ok(_) => {
                let problem = "has another content than was committed to";
                return Err(broken(&place(chain), problem).into());
            }
            Err(StoreError::Corrupt(problem)) => {
                return Err(broken(&place(chain), &format!("is damaged: {problem}")).into());
            }
            Err(StoreError::WrongKey) => {
                let problem = "is sealed under a master key that was not given";
                return Err(broken(&place(chain), problem).into());
            }
            Err(error) => return Err(error.into()),
        };
        if u64::try_from(content.len()).ok() != Some(row.size) {
            return Err(broken(&place(chain), "has another length than it says").into());
        }
        if let Some(summary) = ledger.logs.get_mut(&(tenant.clone(), log.clone())) {
            summary.hear(row, &content);
        }
        Ok(())
    }

    /// The chains end where the store says that they end, or went on while they were proven.
    async fn prove_heads(&self, ledger: &mut Ledger) -> Result<(), Fault> {
        let unseen = ledger.heads.iter().min_by_key(|((_, position), _)| *position);
        if let Some((((tenant, writer), position), _)) = unseen {
            let end = ledger.chains.get(&(tenant.clone(), writer.clone()));
            let place = format!("the chain of {writer} (tenant {tenant})");
            let end = end.map_or(0, |(end, _)| *end);
            let problem = format!("ends at {end} and should end at {position}");
            return Err(broken(&place, &problem).into());
        }
        let heads = self.backend.heads(ledger.scope.as_ref()).await?;
        let known: HashMap<Chain, (u64, Link)> = heads
            .into_iter()
            .map(|head| ((head.tenant, head.writer), (head.position, head.link)))
            .collect();
        for (chain, (end, link)) in &ledger.chains {
            let (tenant, writer) = chain;
            let place = format!("the chain of {writer} (tenant {tenant})");
            match known.get(chain) {
                None => return Err(broken(&place, "is not known to the store").into()),
                Some((position, head)) if position < end || (position == end && head != link) => {
                    let problem = format!("ends at {end} and should end at {position}");
                    return Err(broken(&place, &problem).into());
                }
                Some(_) => {}
            }
        }
        let unseen = ledger.vouched.iter().min_by_key(|((_, position), _)| *position);
        if let Some((((tenant, writer), position), link)) = unseen {
            let place = format!("the chain of {writer} (tenant {tenant})");
            let problem = format!(
                "was cut off: a signed manifest names link {position}, {}…",
                hex(link).get(..16).unwrap_or_default()
            );
            return Err(broken(&place, &problem).into());
        }
        Ok(())
    }
}

impl Ledger {
    /// Whether what is that tenant's is proven.
    fn concerns(&self, tenant: &Tenant) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope == tenant)
    }

    /// What the chains must reach.
    fn expect(&mut self, heads: Vec<crate::chain::Head>) {
        for head in heads.into_iter().filter(|head| head.position > 0) {
            if !self.concerns(&head.tenant) {
                continue;
            }
            self.heads.insert(((head.tenant, head.writer), head.position), head.link);
        }
    }

    fn vouch(&mut self, heads: Vec<crate::chain::Head>) {
        for head in heads.into_iter().filter(|head| head.position > 0) {
            if !self.concerns(&head.tenant) {
                continue;
            }
            self.vouched.insert(((head.tenant, head.writer), head.position), head.link);
        }
    }

    /// Sums of rows are never older than the latest that a manifest names.
    fn vouch_for_rows(&mut self, states: Vec<RowState>) {
        for RowState { segment, changes, digest } in states {
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

    /// The record is the next of its chain and of its log, and its link holds.
    fn link(&mut self, chain: &ChainRow) -> Result<(), Fault> {
        let ChainRow { tenant, log, row, .. } = chain;
        if chain.id < 1 {
            return Err(broken(&place(chain), "has a number that no database gives").into());
        }
        let nature = self.logs.get(&(tenant.clone(), log.clone())).map(|log| log.nature.as_str());
        let key = (tenant.clone(), row.writer.clone());
        let (position, link) = self.chains.entry(key.clone()).or_insert((0, GENESIS));
        if row.position != *position + 1 {
            let problem = format!(
                "is link {} of the chain of {} where {} should be",
                row.position,
                row.writer,
                *position + 1
            );
            return Err(broken(&place(chain), &problem).into());
        }
        let header = row.header(tenant, log, nature.unwrap_or_default());
        if header.link(link, &row.commitment) != row.link {
            let problem = format!("breaks the chain of {} at link {}", row.writer, row.position);
            return Err(broken(&place(chain), &problem).into());
        }
        (*position, *link) = (row.position, row.link);
        let key = (key, row.position);
        match self.heads.remove(&key) {
            Some(head) if head != row.link => {
                let problem = "has another link than the end of its chain";
                return Err(broken(&place(chain), problem).into());
            }
            Some(_) | None => {}
        }
        match self.vouched.remove(&key) {
            Some(vouched) if vouched != row.link => {
                let problem = "has another link than a signed manifest names";
                return Err(broken(&place(chain), problem).into());
            }
            Some(_) | None => {}
        }
        let Some(summary) = self.logs.get_mut(&(tenant.clone(), log.clone())) else {
            return Ok(());
        };
        summary.add(row).map_err(|problem| broken(&place(chain), &problem).into())
    }
}

enum Fault {
    Broken(Broken),
    Store(StoreError),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Fault::Broken(broken)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error)
    }
}

fn place(chain: &ChainRow) -> String {
    format!("record {} of {} (tenant {})", chain.row.seq, chain.log, chain.tenant)
}

fn broken(place: &str, problem: &str) -> Broken {
    Broken { place: place.to_owned(), problem: problem.to_owned() }
}
