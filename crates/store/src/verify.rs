//! Proving: every link, every commitment, every manifest. The first thing that is wrong is named.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use throughline_core::{
    Digest, LogHead, LogId, Name, Node, Rewind, StoreError, Tenant, Tree, kind,
};

use crate::backend::{ChainRow, Erased, Listing, Order, Progress, Span};
use crate::chain::{GENESIS, Link, nature};
use crate::cipher;
use crate::journal::Journal;
use crate::manifest::{Manifest, hex};

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
    /// The first thing that is wrong; the journal is intact without.
    pub broken: Option<Broken>,
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
    /// Contents that are no more, and must be said to be.
    missing: BTreeMap<(Tenant, LogId), Vec<Missing>>,
    /// What was said to be destroyed: some records of a log, all before that one, or all checkpoints before it.
    said: HashMap<(Tenant, LogId), Said>,
}

/// What the records of a log say about it: its row must say the same.
struct Summary {
    /// What the row says that the log is, which each record proves.
    nature: String,
    last: u64,
    events: u64,
    bytes: u64,
    /// The records that rewound, and to where; that is not known where the content is no more.
    rewinds: Vec<(u64, Option<u64>)>,
}

#[derive(Default)]
struct Counts {
    records: u64,
    gone: u64,
    manifests: u64,
}

/// A record whose content is no more.
struct Missing {
    /// Its number among the records of all tenants.
    id: i64,
    seq: u64,
    why: Erased,
    is_checkpoint: bool,
}

#[derive(Default)]
struct Said {
    /// Everything before that record, and why.
    all_before: HashMap<Erased, u64>,
    checkpoints_before: HashMap<Erased, u64>,
    seqs: HashSet<(u64, Erased)>,
}

impl Journal {
    /// Proves the whole store. `witness` is a manifest that was exported earlier: with it, what was cut off is noticed too.
    pub async fn verify(
        &self,
        witness: Option<&Manifest>,
        progress: Progress<'_>,
    ) -> Result<Proof, StoreError> {
        let mut ledger = Ledger::default();
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
        let segments = u64::try_from(ledger.chains.len()).unwrap_or(u64::MAX);
        let Counts { records, gone, manifests } = ledger.proof;
        Ok(Proof { records, gone, segments, manifests, broken })
    }

    async fn prove(
        &self,
        ledger: &mut Ledger,
        witness: Option<&Manifest>,
        progress: Progress<'_>,
    ) -> Result<(), Fault> {
        self.prove_manifests(ledger, witness).await?;
        ledger.expect(self.backend.heads().await?);
        // Others may write meanwhile, and faster than this can read, so it does not read on until nothing new comes. It proves
        // what there is now; and then what came meanwhile, which tells what was destroyed meanwhile.
        let total = self.backend.stats().await?.records.max(1);
        #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
        let progress = |records: u64| progress((records as f64 / total as f64).min(1.0));
        let begun = self.backend.last_record().await?;
        self.prove_records(ledger, i64::MIN, begun, &progress).await?;
        let ended = self.backend.last_record().await?;
        self.prove_records(ledger, begun, ended, &progress).await?;
        // Of what came meanwhile, some may be destroyed by what comes now.
        let quiet = self.backend.last_record().await? == ended;
        ledger.prove_missing(if quiet { ended } else { begun })?;
        self.prove_heads(ledger).await?;
        self.prove_logs(ledger).await
    }

    /// The records after that one, up to that one.
    async fn prove_records(
        &self,
        ledger: &mut Ledger,
        mut after: i64,
        up_to: i64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Fault> {
        const PAGE: u32 = 500;
        loop {
            let rows = self.backend.chain(after, up_to, PAGE).await?;
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
        let ChainRow { tenant, log, row, .. } = chain;
        let key = (tenant.clone(), log.clone());
        if ledger.logs.contains_key(&key) {
            return Ok(());
        }
        let Some(head) = self.backend.log(tenant, log).await? else {
            return Err(broken(&place(chain), "is of a log that the tenant does not have").into());
        };
        let nature = nature(head.kind, head.of.as_ref(), head.fork.as_ref());
        let before = head.fork.map_or(0, |fork| fork.at);
        if row.seq != before + 1 {
            let problem = format!("stands where record {} should be", before + 1);
            return Err(broken(&place(chain), &problem).into());
        }
        let summary = Summary { nature, last: before, events: 0, bytes: 0, rewinds: Vec::new() };
        ledger.logs.insert(key, summary);
        Ok(())
    }

    /// Every manifest is signed and follows the one before it. What it vouches for is looked at later.
    async fn prove_manifests(
        &self,
        ledger: &mut Ledger,
        witness: Option<&Manifest>,
    ) -> Result<(), Fault> {
        let store = self.signer.store();
        let mut series: HashMap<Name, (u64, Digest)> = HashMap::new();
        let mut after = i64::MIN;
        loop {
            let manifests = self.backend.manifests(after, 500).await?;
            let Some((last, _)) = manifests.last() else { break };
            after = *last;
            for (id, manifest) in &manifests {
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
                ledger.vouch(said.heads);
                ledger.proof.manifests += 1;
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
            let missing = ledger.missing.entry((tenant.clone(), log.clone())).or_default();
            let is_checkpoint = *row.kind == *kind::CHECKPOINT;
            missing.push(Missing { id: chain.id, seq: row.seq, why, is_checkpoint });
            ledger.proof.gone += 1;
            if let Some(summary) = ledger.logs.get_mut(&(tenant.clone(), log.clone())) {
                summary.bytes = summary.bytes.saturating_sub(row.size);
            }
            ledger.rewound(chain, None);
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
                let problem = "is sealed under a master key that nobody knows";
                return Err(broken(&place(chain), problem).into());
            }
            Err(error) => return Err(error.into()),
        };
        if u64::try_from(content.len()).ok() != Some(row.size) {
            return Err(broken(&place(chain), "has another length than it says").into());
        }
        let why = match &*row.kind {
            kind::FORGOTTEN => Some(Erased::Forgotten),
            kind::EXPIRED => Some(Erased::Expired),
            _ => None,
        };
        if let Some(why) = why {
            let said = ledger.said.entry((tenant.clone(), log.clone())).or_default();
            said.read(row.seq, why, &content);
        }
        ledger.rewound(chain, Some(&content));
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
        let heads = self.backend.heads().await?;
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

    /// Every log's row says what the log's records say.
    async fn prove_logs(&self, ledger: &Ledger) -> Result<(), Fault> {
        let mut seen = 0;
        for tenant in self.backend.tenants().await? {
            let everything = Listing {
                kind: None,
                of: None,
                forks_of: None,
                order: Order::Oldest,
                after: None,
                limit: u32::MAX >> 1,
            };
            for head in self.backend.logs(&tenant, everything).await? {
                let key = (tenant.clone(), head.log.clone());
                seen += usize::from(ledger.logs.contains_key(&key));
                let parent = match &head.fork {
                    None => None,
                    Some(fork) => self.backend.log(&tenant, &fork.log).await?,
                };
                // Others may write meanwhile.
                let before = head.fork.as_ref().map_or(0, |fork| fork.at);
                let last = ledger.logs.get(&key).map_or(before, |log| log.last);
                if head.last > last && self.goes_on(&tenant, &head.log, last, &head).await? {
                    continue;
                }
                if let Some(problem) = ledger.differs(&key, &head, parent.as_ref()) {
                    let (tenant, log) = key;
                    return Err(broken(&format!("{log} (tenant {tenant})"), &problem).into());
                }
            }
        }
        if seen != ledger.logs.len() {
            return Err(broken("some log", "has records and no row").into());
        }
        let problems = self.backend.check().await?;
        match problems.first() {
            None => Ok(()),
            Some(problem) => Err(broken("the database:", problem).into()),
        }
    }
}

impl Journal {
    /// Whether the log ends there, or went on while it was proven.
    async fn goes_on(
        &self,
        tenant: &Tenant,
        log: &LogId,
        last: u64,
        head: &LogHead,
    ) -> Result<bool, StoreError> {
        if head.last == last {
            return Ok(true);
        }
        let span = Span { after: last, up_to: last.saturating_add(1), limit: 1 };
        Ok(!self.backend.rows(tenant, log, span).await?.is_empty())
    }
}

impl Ledger {
    /// What the chains must reach.
    fn expect(&mut self, heads: Vec<crate::chain::Head>) {
        for head in heads.into_iter().filter(|head| head.position > 0) {
            self.heads.insert(((head.tenant, head.writer), head.position), head.link);
        }
    }

    fn vouch(&mut self, heads: Vec<crate::chain::Head>) {
        for head in heads.into_iter().filter(|head| head.position > 0) {
            self.vouched.insert(((head.tenant, head.writer), head.position), head.link);
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
        if row.seq != summary.last + 1 {
            let problem = format!("stands where record {} should be", summary.last + 1);
            return Err(broken(&place(chain), &problem).into());
        }
        summary.last = row.seq;
        summary.events = row.last_event.unwrap_or(summary.events);
        summary.bytes += row.size;
        Ok(())
    }

    /// Notes a rewind.
    fn rewound(&mut self, chain: &ChainRow, content: Option<&Bytes>) {
        let ChainRow { tenant, log, row, .. } = chain;
        if *row.kind != *kind::REWIND {
            return;
        }
        let to = content.and_then(|content| Tree::parse(content.clone()).ok());
        let to = to.and_then(|tree| tree.root().present("to").and_then(Node::u64));
        if let Some(summary) = self.logs.get_mut(&(tenant.clone(), log.clone())) {
            summary.rewinds.push((row.seq, to));
        }
    }

    /// In what a log's row differs from what its records say. A log without records of its own proves nothing yet.
    fn differs(
        &self,
        key: &(Tenant, LogId),
        head: &LogHead,
        parent: Option<&LogHead>,
    ) -> Option<String> {
        let before = head.fork.as_ref().map_or(0, |fork| fork.at);
        let (last, events, bytes, rewinds) = match self.logs.get(key) {
            None => (before, 0, 0, [].as_slice()),
            Some(log) => (log.last, log.events, log.bytes, log.rewinds.as_slice()),
        };
        for (what, found, said) in [
            ("ends at", last, head.last),
            ("has as last event", events, head.events),
            ("has in bytes", bytes, head.bytes),
        ] {
            if found != said {
                return Some(format!("{what} {found}, and its row says {said}"));
            }
        }
        let (shared, own): (Vec<Rewind>, Vec<Rewind>) =
            head.rewinds.iter().partition(|rewind| rewind.at <= before);
        let inherited = parent.map(|parent| parent.rewinds.as_slice()).unwrap_or_default();
        let inherited = inherited.iter().filter(|rewind| rewind.at <= before);
        let is_same = |(rewind, (at, to)): (&Rewind, &(u64, Option<u64>))| {
            rewind.at == *at && to.is_none_or(|to| rewind.to == to)
        };
        if !shared.iter().eq(inherited)
            || own.len() != rewinds.len()
            || !own.iter().zip(rewinds).all(is_same)
        {
            return Some("was rewound otherwise than its row says".to_owned());
        }
        // Whoever destroyed last is who the row tells of.
        let said = self.said.get(key);
        let said = said.and_then(|said| said.all_before.iter().max_by_key(|(_, before)| **before));
        if head.gone != said.map(|(why, _)| why.why()) {
            return Some("is not gone as its row says".to_owned());
        }
        None
    }

    /// Everything that is missing up to that record was said to be destroyed.
    fn prove_missing(&self, up_to: i64) -> Result<(), Fault> {
        for (log, seqs) in &self.missing {
            let said = self.said.get(log);
            let is_said = |Missing { seq, why, is_checkpoint, .. }: &Missing| {
                let before = |places: &HashMap<Erased, u64>| {
                    places.get(why).is_some_and(|place| seq < place)
                };
                said.is_some_and(|said| {
                    before(&said.all_before)
                        || (*is_checkpoint && before(&said.checkpoints_before))
                        || said.seqs.contains(&(*seq, *why))
                })
            };
            let mut due = seqs.iter().filter(|missing| missing.id <= up_to);
            if let Some(Missing { seq, .. }) = due.find(|missing| !is_said(missing)) {
                let (tenant, log) = log;
                let place = format!("record {seq} of {log} (tenant {tenant})");
                let problem = "has no content, and nothing says that it was destroyed so";
                return Err(broken(&place, problem).into());
            }
        }
        Ok(())
    }
}

impl Said {
    fn read(&mut self, at: u64, why: Erased, content: &Bytes) {
        let Ok(entry) = Tree::parse(content.clone()) else { return };
        if entry.root().present("all").and_then(Node::bool) == Some(true) {
            self.all_before.insert(why, at);
        }
        if entry.root().present("checkpoints").and_then(Node::bool) == Some(true) {
            self.checkpoints_before.insert(why, at);
        }
        if let Some(seqs) = entry.root().present("seqs") {
            self.seqs.extend(seqs.elements().filter_map(Node::u64).map(|seq| (seq, why)));
        }
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
