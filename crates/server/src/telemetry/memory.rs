//! Reserves the estimated memory of one request from the memory that all requests share.

use std::sync::Arc;
use std::time::Duration;

use throughline_core::Tenant;

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::telemetry::RETRY_DELAY;
use crate::telemetry::fair_pool::{FairPool, PoolPermit};

/// Number of copies of the request text in memory: as received, as sent, as stored, and one during
/// conversion.
const COPIES: u64 = 4;

/// Number of copies of a WebSocket's message: as received, and as part of its conversation. The
/// request that the message starts reserves its own memory.
const MESSAGE_COPIES: u64 = 2;

/// Memory in bytes for the index entry and the decoded form of one JSON value, in addition to the
/// value's text.
const BYTES_PER_ENTRY: u64 = 64;

/// The memory reserved for one request.
pub(crate) struct MemoryReservation {
    pool: Arc<FairPool>,
    tenant: Tenant,
    is_shared: bool,
    patience: Duration,
    share: Option<PoolPermit>,
    /// Number of bytes of the request text that have arrived so far.
    length: u64,
}

impl MemoryReservation {
    /// Creates an empty reservation for a request from the caller.
    pub(super) fn new(pool: &Arc<FairPool>, caller: &Caller, patience: Duration) -> Self {
        let (tenant, is_shared) = (caller.tenant.clone(), caller.admission.is_key());
        Self { pool: Arc::clone(pool), tenant, is_shared, patience, share: None, length: 0 }
    }

    /// Reserves memory for a text whose first `length` bytes have arrived.
    pub(crate) async fn reserve_text(&mut self, length: usize) -> GatewayResult<()> {
        let length = length as u64;
        self.length = self.length.max(length);
        let held = self.share.as_ref().map_or(0, PoolPermit::amount);
        let needed = COPIES * length;
        if needed <= held {
            return Ok(());
        }
        self.reserve(needed - held).await
    }

    /// Adjusts the reservation to a WebSocket's message whose first `length` bytes have arrived.
    pub(crate) async fn resize_message(&mut self, length: usize) -> GatewayResult<()> {
        let needed = MESSAGE_COPIES * length as u64;
        let held = self.share.as_ref().map_or(0, PoolPermit::amount);
        match &mut self.share {
            Some(share) if needed <= held => {
                share.shrink_to(needed);
                Ok(())
            }
            _ => self.reserve(needed - held).await,
        }
    }

    /// Releases all memory beyond that of a WebSocket's message with this many JSON values.
    pub(crate) fn shrink_to_message(&mut self, length: usize, entries: usize) {
        if let Some(share) = &mut self.share {
            share.shrink_to(MESSAGE_COPIES * length as u64 + BYTES_PER_ENTRY * entries as u64);
        }
    }

    /// Reserves memory for further bytes.
    pub(crate) async fn reserve_bytes(&mut self, bytes: usize) -> GatewayResult<()> {
        self.reserve(bytes as u64).await
    }

    /// Reserves memory for further bytes without waiting. Returns false if there is none.
    pub(crate) async fn try_reserve_bytes(&mut self, bytes: usize) -> bool {
        let patience = std::mem::replace(&mut self.patience, Duration::ZERO);
        let reserved = self.reserve(bytes as u64).await;
        self.patience = patience;
        reserved.is_ok()
    }

    /// Reserves memory for the JSON values decoded from the text.
    pub(crate) async fn reserve_entries(&mut self, entries: usize) -> GatewayResult<()> {
        self.reserve(BYTES_PER_ENTRY * entries as u64).await
    }

    async fn reserve(&mut self, amount: u64) -> GatewayResult<()> {
        if amount == 0 {
            return Ok(());
        }
        let share = self.pool.acquire(&self.tenant, self.is_shared, amount, self.patience).await;
        let share = share.map_err(|_| {
            let message = "the requests in progress use all of the memory for requests \
                           (max_request_memory): retry in a moment";
            GatewayError::new(503, message).after(RETRY_DELAY)
        })?;
        match &mut self.share {
            Some(held) => held.join(share),
            None => self.share = Some(share),
        }
        Ok(())
    }

    /// Releases the memory that was needed only to prepare the request. The received and the sent
    /// text stay reserved until the reply is captured.
    pub(super) fn release_decoded(&mut self) {
        if let Some(share) = &mut self.share {
            share.shrink_to(2 * self.length);
        }
    }
}
