//! Numbers of gateway calls for the overview. A process reads each call record once and caches its
//! numbers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use throughline_core::{ErasureEpoch, LogHead, Record, Store, Tenant, TurnId};
use throughline_json::{Node, Tree};
use throughline_replay::{CALL_RECORD, TURN};

use crate::api::log_cache::DerivedLogCache;
use crate::records::StoreResult;
use crate::sync::lock;

/// Maximum number of cached logs and of cached audits. It exceeds the number of logs that an
/// overview covers.
const MOST: usize = 65_536;

/// The numbers of one call.
#[derive(Clone, Debug)]
pub(crate) struct CallFigures {
    /// The id of the call; `None` if the call has no reply.
    pub(crate) id: Option<TurnId>,
    pub(crate) at: Timestamp,
    pub(crate) is_failed: bool,
    /// Number of Items that the gateway restored, in part or completely.
    pub(crate) restored: u64,
    /// Time to the first byte of the response, in microseconds.
    pub(crate) first_byte: Option<u64>,
    /// Duration of the call, in microseconds.
    pub(crate) end: Option<u64>,
}

/// Returns whether a call record describes a failed call: an error, a status of 400 or above, or a
/// reply that ended early.
pub(crate) fn is_failed(account: Node<'_>) -> bool {
    account.get("error").is_some()
        || account.get("status").and_then(Node::u64).is_some_and(|status| status >= 400)
        || account.at("/answer/stop").is_some_and(|stop| stop.is("cut"))
}

/// Returns the number of Items that the gateway restored in a call. Call records of earlier
/// versions do not contain the number.
pub(crate) fn restored_items(account: Node<'_>) -> u64 {
    account.at("/fate_counts/restored_items").and_then(Node::u64).unwrap_or(0)
}

impl CallFigures {
    /// Reads the numbers in a record; `None` if the record contains no call or was erased.
    fn from_record(record: &Record) -> Option<Self> {
        if !matches!(&*record.kind, TURN | CALL_RECORD) {
            return None;
        }
        let tree = Tree::parse(record.content.bytes()?.clone()).ok()?;
        let account = match &*record.kind {
            TURN => tree.root().get(CALL_RECORD)?,
            _ => tree.root(),
        };
        let micros = |path: &str| account.at(path).and_then(Node::u64);
        Some(Self {
            id: tree.root().name_of("call").map(TurnId),
            at: record.at,
            is_failed: is_failed(account),
            restored: restored_items(account),
            first_byte: micros("/microseconds/first_byte"),
            end: micros("/microseconds/end"),
        })
    }
}

/// Caches the numbers of calls by tenant and log, and the results of audits.
pub(crate) struct CallFigureCache {
    logs: DerivedLogCache<Vec<CallFigures>>,
    /// Whether the provider would have rejected the request as the client sent it, by call.
    rejections: Mutex<HashMap<(Tenant, TurnId), bool>>,
}

impl Default for CallFigureCache {
    fn default() -> Self {
        Self { logs: DerivedLogCache::without_text(MOST), rejections: Mutex::default() }
    }
}

impl CallFigureCache {
    /// Returns the cached calls of a log; `None` if the log has unread records.
    pub(crate) fn cached(
        &self,
        tenant: &Tenant,
        head: &LogHead,
        era: ErasureEpoch,
    ) -> Option<Arc<Vec<CallFigures>>> {
        self.logs.cached(tenant, head, era)
    }

    /// Returns the calls in a log, as of this erasure epoch. The calls that a fork shares belong to
    /// its origin.
    pub(crate) async fn get(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        head: &LogHead,
        era: ErasureEpoch,
    ) -> StoreResult<Arc<Vec<CallFigures>>> {
        let shared = head.fork.as_ref().map_or(0, |fork| fork.at);
        let add = |calls: &mut Vec<CallFigures>, record: &Record| {
            calls.extend(CallFigures::from_record(record).filter(|_| record.seq > shared));
        };
        self.logs.get(store, tenant, head, era, add).await
    }

    /// Returns whether the provider would have rejected a call's request as the client sent it;
    /// `None` if the request was not audited yet.
    pub(crate) fn rejection(&self, tenant: &Tenant, call: &TurnId) -> Option<bool> {
        lock(&self.rejections).get(&(tenant.clone(), call.clone())).copied()
    }

    pub(crate) fn set_rejection(&self, tenant: &Tenant, call: &TurnId, is_rejected: bool) {
        let mut all = lock(&self.rejections);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert((tenant.clone(), call.clone()), is_rejected);
    }
}
