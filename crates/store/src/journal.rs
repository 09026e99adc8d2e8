//! The Journal: seals what is written, opens what is read, and reads through forks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{
    Append, Batch, Boxed, Content, EventWriter, Fence, Lease, LogHead, LogId, Name, NewRecord,
    Pending, Receipt, Record, Sight, Store, StoreError, Tenant, Unattended, VaultKey, json, kind,
};

use crate::backend::{
    Backend, Erase, Erased, Guard, Order, Row, SealedAppend, SealedBatch, SealedBlob, SealedNode,
    SealedRecord, Span,
};
use crate::cipher::{self, SaltBytes};
use crate::events::RunEvents;
use crate::keys::Keys;
use crate::listing::Page;
use crate::manifest::{Signer, hex};
use crate::options::Options;
use crate::postgres::Postgres;
use crate::refusal;
use crate::sqlite::{Reserve, Sqlite};

/// Contents from this size on are kept once per tenant, however often they are written.
const LARGE: usize = 16 << 10;

/// Sealing more than this at once is left to a thread of its own.
const LONG_WORK: usize = 256 << 10;

/// Everything durable: the port [`Store`], and the acts of an operator.
#[derive(Clone)]
pub struct Journal {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) signer: Arc<Signer>,
    /// Whether a task waits to finish what deleted runs left in files.
    pub(crate) finishes: Arc<AtomicBool>,
    pub(crate) url: Name,
}

/// Opens a store: `sqlite://file.db`, `sqlite:///folder/file.db` or `postgres://user@host/database`.
pub async fn open(url: &str, options: &Options) -> Result<Journal, StoreError> {
    let journal = open_unfinished(url, options, Reserve::Beside).await?;
    // A process may have ended while it destroyed something. What cannot be finished now is left to who comes next.
    if !options.read_only {
        drop(journal.finish_destroying().await);
    }
    Ok(journal)
}

/// Opens a store, and leaves unfinished what an earlier process began to destroy.
pub(crate) async fn open_unfinished(
    url: &str,
    options: &Options,
    reserve: Reserve,
) -> Result<Journal, StoreError> {
    let writer = Name::from(hex(&cipher::random::<8>()?));
    let (backend, shown): (Arc<dyn Backend>, Name) = if let Some(path) = sqlite_path(url) {
        if path.is_empty() {
            return Err(StoreError::invalid("the store has no file name: write sqlite://file.db"));
        }
        (Arc::new(Sqlite::open(Path::new(path), options, writer, reserve).await?), url.into())
    } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        (Arc::new(Postgres::open(url, options, writer).await?), without_password(url).into())
    } else {
        let shown = url.split(':').next().unwrap_or_default();
        let problem = format!(
            "{shown:?} is not a kind of store: write sqlite://file.db or postgres://user@host/database"
        );
        return Err(StoreError::invalid(problem));
    };
    let keys = Keys::open(&*backend, options).await?;
    let signer = Arc::new(Signer::new(&keys.signing_seed()));
    backend.sign_with(Arc::clone(&signer));
    let (keys, finishes) = (Arc::new(keys), Arc::default());
    Ok(Journal { backend, keys, signer, finishes, url: shown })
}

fn sqlite_path(url: &str) -> Option<&str> {
    url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"))
}

/// The address of a store as it may be shown: a password may stand before the host, and among the options.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|_| sqlite_path(url).is_none()) else {
        return url.to_owned();
    };
    let (rest, options) = match rest.rsplit_once('?') {
        Some((rest, _)) => (rest, "?…"),
        None => (rest, ""),
    };
    let Some((user, host)) = rest.rsplit_once('@') else {
        return format!("{scheme}://{rest}{options}");
    };
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{host}{options}")
}

impl Journal {
    /// Where it is, without any password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The public key that verifies its manifests, in hexadecimal digits.
    pub fn public_key(&self) -> String {
        self.signer.store()
    }

    /// A secret of this store for some purpose: the same whenever it is opened, and told to nobody else.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.keys.derived(purpose)
    }

    /// Writes what is still to be written, and closes. Every other use ends in [`StoreError::Closed`].
    pub async fn close(&self) -> Result<(), StoreError> {
        self.backend.close().await
    }

    /// Commits a batch that an operator's act makes.
    pub(crate) async fn commit_act(
        &self,
        batch: Batch,
        erases: Vec<Erase>,
    ) -> Result<Receipt, StoreError> {
        let _sealing = self.keys.sealing().await;
        let mut sealed = seal(&self.keys, batch)?;
        sealed.erases = erases;
        for append in &mut sealed.appends {
            append.guard = Guard::Operator;
        }
        self.backend.commit(sealed).await
    }

    /// The records of a log in that span, read through the forks where it has some.
    pub(crate) async fn rows(
        &self,
        tenant: &Tenant,
        log: &LogId,
        span: Span,
    ) -> Result<Vec<Row>, StoreError> {
        let own = self.backend.rows(tenant, log, span).await?;
        if own.first().is_some_and(|row| row.seq.checked_sub(1) == Some(span.after)) {
            return Ok(own);
        }
        // The first that is asked for is not the log's own: it is a parent's, or there is none.
        let mut places = self.lineage(tenant, log, span.after).await?;
        if places.len() == 1 {
            return Ok(own);
        }
        let mut rows: Vec<Row> = Vec::new();
        while let Some((log, end)) = places.pop() {
            let read = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            let after = rows.last().map_or(span.after, |row| row.seq);
            let (up_to, limit) = (span.up_to.min(end), span.limit.saturating_sub(read));
            if limit == 0 || after >= span.up_to {
                break;
            }
            rows.extend(self.backend.rows(tenant, &log, Span { after, up_to, limit }).await?);
        }
        Ok(rows)
    }

    /// The log, the one that it forks off, and so on, as far as they have records after that one: each with the last of
    /// its records that counts.
    async fn lineage(
        &self,
        tenant: &Tenant,
        log: &LogId,
        after: u64,
    ) -> Result<Vec<(LogId, u64)>, StoreError> {
        let mut places = Vec::new();
        let mut next = Some((log.clone(), u64::MAX));
        while let Some((log, end)) = next {
            let Some(head) = self.backend.log(tenant, &log).await? else {
                return Err(StoreError::NotFound { what: "log", name: log.0 });
            };
            places.push((log, end));
            let fork = head.fork.filter(|fork| fork.at > after);
            next = fork.map(|fork| (fork.log, end.min(fork.at)));
        }
        Ok(places)
    }

    /// What a row says.
    pub(crate) async fn open_row(
        &self,
        tenant: &Tenant,
        log: &LogId,
        row: &Row,
    ) -> Result<Record, StoreError> {
        let content = match self.content_or_gone(tenant, log, row).await? {
            Ok((content, _)) => Content::Here(content),
            Err(erased) => Content::Gone(erased.why()),
        };
        let events = row
            .last_event
            .map(|last| (last.saturating_sub(u64::from(row.events)).saturating_add(1), last));
        Ok(Record {
            seq: row.seq,
            kind: row.kind.clone(),
            at: Timestamp::from_millisecond(row.at).unwrap_or(Timestamp::MIN),
            events,
            content,
        })
    }

    /// The content of a row with its salt, or why it is no more. It may be destroyed after the row was read.
    pub(crate) async fn content_or_gone(
        &self,
        tenant: &Tenant,
        log: &LogId,
        row: &Row,
    ) -> Result<Result<(Bytes, SaltBytes), Erased>, StoreError> {
        if let Some(erased) = row.erased {
            return Ok(Err(erased));
        }
        match self.content(tenant, row).await {
            Ok(content) => Ok(Ok(content)),
            Err(StoreError::Corrupt(problem)) => {
                let after = row.seq.saturating_sub(1);
                let span = Span { after, up_to: row.seq, limit: 1 };
                let again = self.rows(tenant, log, span).await?;
                match again.first().and_then(|row| row.erased) {
                    Some(erased) => Ok(Err(erased)),
                    None => Err(StoreError::Corrupt(problem)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The content of a row, and the salt that opens it.
    pub(crate) async fn content(
        &self,
        tenant: &Tenant,
        row: &Row,
    ) -> Result<(Bytes, SaltBytes), StoreError> {
        let missing =
            |what: &str| StoreError::Corrupt(format!("record {} has no {what}", row.seq).into());
        let salt = row.salt.as_ref().ok_or_else(|| missing("salt"))?;
        let sealed = row.content.as_ref().ok_or_else(|| missing("content"))?;
        let salt = self.keys.unwrap(salt)?;
        let opened = cipher::open(&salt, sealed)?;
        let Some(blob) = row.blob else { return Ok((opened, salt)) };
        let key = <[u8; 32]>::try_from(&*opened).map_err(|_| missing("key of its content"))?;
        let (name, blob) =
            self.backend.blob(tenant, blob).await?.ok_or_else(|| missing("large content"))?;
        let content = cipher::open_under(&cipher::Secret::new(key), &blob)?;
        // Under another's name it would be taken for that other's content by whoever writes it next.
        if self.keys.blob(tenant, &content).0 != name {
            return Err(StoreError::Corrupt("a large content is kept under another's name".into()));
        }
        Ok((content, salt))
    }
}

impl Store for Journal {
    fn commit(&self, batch: Batch) -> Boxed<'_, Receipt> {
        Box::pin(async move {
            let size: usize = batch
                .appends
                .iter()
                .flat_map(|append| &append.records)
                .map(|record| record.content.len())
                .sum();
            let _sealing = self.keys.sealing().await;
            let sealed = if size > LONG_WORK {
                let keys = Arc::clone(&self.keys);
                let sealing = tokio::task::spawn_blocking(move || seal(&keys, batch));
                sealing.await.map_err(|_| StoreError::Closed)??
            } else {
                seal(&self.keys, batch)?
            };
            self.backend.commit(sealed).await
        })
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> Boxed<'a, Vec<Record>> {
        Box::pin(async move {
            let span = Span { after, up_to: u64::MAX, limit };
            let rows = self.rows(tenant, log, span).await?;
            let mut records = Vec::with_capacity(rows.len());
            for row in &rows {
                records.push(self.open_row(tenant, log, row).await?);
            }
            Ok(records)
        })
    }

    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> Boxed<'a, u64> {
        self.backend.place_of_event(tenant, log, event)
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> Boxed<'a, ()> {
        self.backend.wait(tenant, log, after)
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> Boxed<'a, Option<LogHead>> {
        self.backend.log(tenant, log)
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> Boxed<'a, Option<Record>> {
        Box::pin(async move {
            let Some(head) = self.backend.log(tenant, log).await? else { return Ok(None) };
            for span in head.spans(at_most.min(head.last)).into_iter().rev() {
                for (place, end) in self.lineage(tenant, log, span.start() - 1).await? {
                    // What a parent wrote after the fork is not this log's.
                    let end = end.min(*span.end());
                    let row = self.backend.checkpoint(tenant, &place, end).await?;
                    if let Some(row) = row.filter(|row| span.contains(&row.seq)) {
                        return self.open_row(tenant, &place, &row).await.map(Some);
                    }
                }
            }
            Ok(None)
        })
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        Box::pin(async move {
            [&*tenant.0, &*log.0, owner].into_iter().try_for_each(refusal::check_name)?;
            self.backend.lease(tenant, log, owner, time).await
        })
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        self.backend.renew(tenant, log, fence, time)
    }

    fn release<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, fence: Fence) -> Boxed<'a, ()> {
        self.backend.release(tenant, log, fence)
    }

    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [VaultKey]) -> Boxed<'a, Sight> {
        Box::pin(async move {
            let keys: Vec<_> = keys.iter().map(|key| self.keys.vault(tenant, key)).collect();
            self.backend.find(tenant, &keys).await
        })
    }

    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> Boxed<'a, ()> {
        Box::pin(Journal::forget_run(self, tenant, run))
    }

    fn events(&self, tenant: &Tenant, run: &LogId, fence: Option<Fence>) -> Box<dyn EventWriter> {
        Box::new(RunEvents::new(self.clone(), tenant.clone(), run.clone(), fence))
    }

    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> Boxed<'_, Vec<Unattended>> {
        self.backend.unattended(idle, after, limit)
    }

    fn runs_of<'a>(
        &'a self,
        tenant: &'a Tenant,
        thread: &'a LogId,
        before: Option<&'a LogId>,
        limit: u32,
    ) -> Boxed<'a, Vec<LogHead>> {
        let page = Page { after: before.cloned(), limit, order: Order::Newest };
        Box::pin(Journal::runs(self, tenant, Some(thread), page))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> Boxed<'a, Vec<Pending>> {
        self.backend.pending(tenant, log)
    }

    fn probe(&self) -> Boxed<'_, ()> {
        // A batch of a few bytes fits on a disk that is too full for most answers.
        const PROBE: usize = 64 << 10;
        Box::pin(async {
            self.backend.replace("probe", Bytes::from(vec![0; PROBE])).await?;
            self.backend.discard("probe").await
        })
    }
}

pub(crate) fn seal(keys: &Keys, batch: Batch) -> Result<SealedBatch, StoreError> {
    refusal::check(&batch)?;
    let Batch { tenant, once, appends, vault, asks, takes } = batch;
    let appends = appends.into_iter().map(|append| seal_append(keys, &tenant, append));
    let appends = appends.collect::<Result<_, _>>()?;
    let vault = vault.into_iter().map(|node| SealedNode {
        id: node.id,
        parent: node.parent,
        keys: node.keys.iter().map(|key| keys.vault(&tenant, key)).collect(),
        log: node.log,
        prefix: node.prefix,
    });
    let vault = vault.collect();
    let once = once.into_iter().map(|name| (keys.once(&tenant, &name), name)).collect();
    let (erases, keys) = (Vec::new(), Vec::new());
    Ok(SealedBatch { tenant, once, appends, vault, asks, takes, erases, keys })
}

fn seal_append(keys: &Keys, tenant: &Tenant, append: Append) -> Result<SealedAppend, StoreError> {
    let Append { log, opening, expect, fence, records, rewind_to, status } = append;
    let rewind = rewind_to.map(|to| {
        let content = json::object(|rewind| {
            rewind.number("to", to);
        });
        NewRecord::new(kind::REWIND, content.bytes().clone())
    });
    let records: Vec<_> = rewind.into_iter().chain(records).collect();
    let salts = cipher::salts(records.len())?;
    let records = records.into_iter().zip(&*salts);
    let records = records.map(|(record, salt)| seal_record(keys, tenant, record, salt));
    let records = records.collect::<Result<_, _>>()?;
    let guard = fence.map_or(Guard::Free, Guard::Behind);
    Ok(SealedAppend { log, opening, expect, guard, records, rewind_to, status })
}

fn seal_record(
    keys: &Keys,
    tenant: &Tenant,
    record: NewRecord,
    salt: &SaltBytes,
) -> Result<SealedRecord, StoreError> {
    let commitment = cipher::commitment(salt, &record.content);
    let (content, blob) = if record.content.len() < LARGE {
        (cipher::seal(salt, &record.content)?, None)
    } else {
        let (id, key) = keys.blob(tenant, &record.content);
        let content = cipher::seal_under(&key, &record.content)?;
        (cipher::seal(salt, &*key)?, Some(SealedBlob { id, content }))
    };
    Ok(SealedRecord {
        about: record.about.map(|about| keys.about(tenant, &about)),
        kind: record.kind,
        at: record.at.map(Timestamp::as_millisecond),
        events: record.events,
        size: u64::try_from(record.content.len()).unwrap_or(u64::MAX),
        commitment,
        content,
        salt: keys.wrap(salt)?,
        blob,
    })
}
