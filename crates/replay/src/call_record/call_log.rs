//! Stores and looks up call records.

use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{
    Append, Batch, Content, ElisionReason, ErasureEpoch, LogId, LogOpening, NewRecord, Record,
    Store, StoreError, Tenant, TurnId, VaultKey, VaultTurn, kind,
};
use throughline_json::{Json, Name, Node, Tree};

use crate::byte_lru::ByteLru;
use crate::call_record::bodies::{DeltaSource, EncodedBodies};
use crate::call_record::disconnect::DisconnectLimiter;
use crate::call_record::{Bodies, CallRecord, DeltaBase};
use crate::turn::{CALL_RECORD, ParentTurn, TURN, read_range, unanswered_log};

/// Maximum number of records per read from the store.
const PAGE: u64 = 256;

/// Stores call records, and reads them from the store.
pub struct CallLog {
    store: Arc<dyn Store>,
    tails: DeltaCache,
    left: DisconnectLimiter,
}

/// A call record, read from the store.
pub struct StoredCall {
    /// The turn that contains the reply; `None` for a call without a reply.
    pub turn: Option<VaultTurn>,
    pub at: String,
    /// The record as JSON, without the bodies.
    pub account: Json,
    /// The bodies; if they are not available, the reason why they were erased, if known.
    pub texts: Result<Bodies, Option<ElisionReason>>,
}

/// Where the bodies of the previous call are stored.
#[derive(Clone, Copy)]
pub enum BaseLocation<'p> {
    /// In the log to which this call's record is written, or in the log from which that log was
    /// forked.
    Here,
    /// In the log of the given turn.
    From(&'p ParentTurn),
    /// Not in the store, so the bodies are stored in full.
    Nowhere,
}

impl CallRecord {
    /// Returns the record that stores the bodies as a copy of content in `thread`, and the delta
    /// base for encoding the next call.
    pub fn bodies_record(
        &self,
        thread: &LogId,
        location: BaseLocation<'_>,
    ) -> (NewRecord, DeltaBase) {
        let other_log = match location {
            BaseLocation::From(parent) => Some((&parent.log, parent.last)),
            BaseLocation::Here | BaseLocation::Nowhere => None,
        };
        let base = self.base.as_deref().map(|tail| DeltaSource { tail, other_log });
        let base = base.filter(|_| !matches!(location, BaseLocation::Nowhere));
        let EncodedBodies { json, tail } = self.texts.write(base);
        (NewRecord::copy(thread, json.bytes().clone()), tail)
    }

    /// Returns the two records that are stored for a call without a reply.
    fn records(&self, thread: &LogId, location: BaseLocation<'_>) -> Vec<NewRecord> {
        let record = NewRecord::new(CALL_RECORD, self.account().bytes().clone());
        vec![record, self.bodies_record(thread, location).0]
    }
}

impl CallLog {
    /// Creates a call log with an empty cache, which is limited to `most` bytes.
    pub fn new(store: Arc<dyn Store>, most: usize) -> Self {
        let tails = DeltaCache(Mutex::new(ByteLru::new(most)));
        Self { store, tails, left: DisconnectLimiter::default() }
    }

    /// Returns the limiter that delays new connections after clients disconnect.
    pub fn disconnects(&self) -> &DisconnectLimiter {
        &self.left
    }

    /// Returns the bodies of the call that produced `parent`, as the delta base for the next call;
    /// `None` if they were erased. `era` is the epoch of the latest store lookup, if there was one.
    pub async fn tail(
        &self,
        tenant: &Tenant,
        parent: &ParentTurn,
        era: Option<ErasureEpoch>,
    ) -> Option<Arc<DeltaBase>> {
        if let Some((tail, valid_in)) = self.tails.get(tenant, &parent.node) {
            if era == Some(valid_in) {
                return Some(tail);
            }
            // Forgetting an Item erases the bodies in its Thread, which then cannot be used as a
            // base.
            let last = self.store.read(tenant, &parent.log, parent.last.saturating_sub(1), 1).await;
            let exists = last.ok()?.first().is_some_and(|record| record.content.bytes().is_some());
            return exists.then_some(tail);
        }
        // Without a base, the next bodies are stored in full.
        let tail = self.read_base(tenant, &parent.log, parent.last).await.ok()?.ok()?;
        Some(Arc::new(tail))
    }

    /// Caches a call's bodies. `last` is the sequence number of the call's last record, and `era`
    /// an epoch in which the bodies were not erased.
    pub fn remember(
        &self,
        node: &TurnId,
        record: &CallRecord,
        tail: DeltaBase,
        last: u64,
        era: ErasureEpoch,
    ) {
        let parent = record.parent.as_ref().map(|parent| &parent.node);
        let tail = DeltaBase { full: tail.full.or(Some(last)), ..tail };
        self.tails.put(&record.tenant, node, parent, (Arc::new(tail), era));
    }

    /// Stores the record of a call without a reply. Does nothing if the request did not call a
    /// model.
    pub async fn keep(&self, record: &CallRecord) -> Result<(), StoreError> {
        let Some(node) = &record.node else { return Ok(()) };
        let (tenant, parent) = (&record.tenant, record.parent.as_ref());
        let log = unanswered_log(node);
        let commit = |opening, records| {
            let append = Append { records, ..Append::new(log.clone()).opening(opening) };
            self.store.commit(Batch::new(tenant.clone()).append(append))
        };
        if let Some(parent) = parent {
            let records = record.records(&parent.log, BaseLocation::From(parent));
            match commit(LogOpening::run(parent.log.clone()), records).await {
                // The parent was forgotten in the meantime.
                Err(StoreError::NotFound { .. } | StoreError::Invalid(_)) => {}
                done => return done.map(drop),
            }
        }
        let records = record.records(&log, BaseLocation::Nowhere);
        commit(LogOpening::thread(), records).await.map(drop)
    }

    /// Finds a call record by id; `None` if the tenant has no such call.
    pub async fn find(
        &self,
        tenant: &Tenant,
        node: &TurnId,
    ) -> Result<Option<StoredCall>, StoreError> {
        let key = VaultKey::Claim(node.0.clone());
        let turn = self.store.find(tenant, &[key]).await?.found.into_iter().next().flatten();
        let turn = turn.map(|found| found.turn);
        let (log, first, last) = match &turn {
            Some(turn) => (turn.log.clone(), turn.first, turn.last),
            None => (unanswered_log(node), 1, 2),
        };
        let records = match read_range(&*self.store, tenant, &log, first..=last).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            records => records?,
        };
        let has_call_record = |record: &&Record| matches!(&*record.kind, CALL_RECORD | TURN);
        let Some(record) = records.iter().find(has_call_record) else { return Ok(None) };
        let Content::Here(account) = &record.content else { return Ok(None) };
        let account = Tree::parse(account.clone()).map_err(|_| damaged(record))?;
        let account = match &*record.kind {
            TURN => account.root().get(CALL_RECORD),
            _ => Some(account.root()),
        };
        let Some(account) = account.map(Node::json) else { return Ok(None) };
        let texts = self.read_base(tenant, &log, last).await?.map(|tail| tail.texts);
        Ok(Some(StoredCall { turn, at: record.at.to_string(), account, texts }))
    }

    /// Reads the bodies in record `last`, or returns the reason why they were erased.
    async fn read_base(
        &self,
        tenant: &Tenant,
        log: &LogId,
        last: u64,
    ) -> Result<Result<DeltaBase, Option<ElisionReason>>, StoreError> {
        let base_record = self.store.read(tenant, log, last.saturating_sub(1), 1).await?;
        let Some(base_record) = base_record.first().filter(|record| *record.kind == *kind::COPY)
        else {
            return Ok(Err(None));
        };
        let tree = match &base_record.content {
            Content::Here(content) => {
                Tree::parse(content.clone()).map_err(|_| damaged(base_record))?
            }
            Content::Gone(reason) => return Ok(Err(Some(*reason))),
        };
        let number = |name: &str| tree.root().get(name).and_then(Node::u64);
        let since = number("since").map_or(0, |since| since + tree.bytes().len() as u64);
        let full = number("full").unwrap_or(last);
        let other_log = tree.root().name_of("log").map(LogId).zip(number("last"));
        let texts = match &other_log {
            Some((log, last)) => match self.decode_since(tenant, log, full, *last).await? {
                Ok(before) => decode_bodies(&before, base_record)?,
                gone => gone,
            },
            None => self.decode_since(tenant, log, full, last).await?,
        };
        Ok(texts.map(|texts| DeltaBase { texts, full: Some(full), since }).map_err(Some))
    }

    /// Decodes the bodies in record `last` by applying all differences since record `full`. All
    /// records between the two belong to the same conversation, because each branch has its own
    /// log.
    async fn decode_since(
        &self,
        tenant: &Tenant,
        log: &LogId,
        full: u64,
        last: u64,
    ) -> Result<Result<Bodies, ElisionReason>, StoreError> {
        let mut texts = Bodies::default();
        let mut after = full.saturating_sub(1);
        while after < last {
            let limit = u32::try_from(PAGE.min(last - after)).unwrap_or(u32::MAX);
            let records = self.store.read(tenant, log, after, limit).await?;
            let Some(end) = records.last().map(|record| record.seq) else { break };
            after = end;
            for record in records.iter().filter(|record| *record.kind == *kind::COPY) {
                match decode_bodies(&texts, record)? {
                    Ok(next) => texts = next,
                    gone => return Ok(gone),
                }
            }
        }
        Ok(Ok(texts))
    }
}

/// Decodes a record. `before` are the bodies of the previous call.
fn decode_bodies(
    before: &Bodies,
    record: &Record,
) -> Result<Result<Bodies, ElisionReason>, StoreError> {
    let content = match &record.content {
        Content::Here(content) => content.clone(),
        Content::Gone(reason) => return Ok(Err(*reason)),
    };
    let tree = Tree::parse(content).map_err(|_| damaged(record))?;
    Bodies::read(before, tree.root()).map(Ok).ok_or_else(|| damaged(record))
}

fn damaged(record: &Record) -> StoreError {
    StoreError::Corrupt(Name::from(format!("record {} is not a valid call record", record.seq)))
}

type CallKey = (Tenant, TurnId);
/// The bodies of a call, and an epoch when they were valid.
type CachedBase = (Arc<DeltaBase>, ErasureEpoch);

/// Caches the bodies of recent calls.
struct DeltaCache(Mutex<ByteLru<CallKey, CachedBase>>);

impl DeltaCache {
    fn get(&self, tenant: &Tenant, node: &TurnId) -> Option<CachedBase> {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.get(&(tenant.clone(), node.clone())).cloned()
    }

    /// Caches a call's bodies and removes those of the previous call, which is rarely continued
    /// again.
    fn put(&self, tenant: &Tenant, node: &TurnId, parent: Option<&TurnId>, base: CachedBase) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parent) = parent {
            recent.take(&(tenant.clone(), parent.clone()));
        }
        let size = base.0.texts.size();
        recent.put((tenant.clone(), node.clone()), base, size);
    }
}
