//! Runs work on large bodies without blocking other requests.
//!
//! Decoding, auditing and repairing a body of several megabytes can take a large part of a second
//! without yielding. The runtime replaces the worker thread while such work blocks it. At most one
//! job runs per processor, and tenants take turns.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::telemetry::RETRY_DELAY;
use crate::telemetry::fair_pool::{FairPool, OverSharePolicy};

/// Minimum size in bytes of a body that counts as large.
pub(crate) const LARGE: usize = 256 << 10;

/// Limits concurrent work on large bodies to one job per processor.
pub(crate) struct CpuPool {
    processors: Arc<FairPool>,
    patience: Duration,
}

impl CpuPool {
    pub(super) fn new(patience: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Self { processors: FairPool::new(processors, OverSharePolicy::Wait), patience }
    }

    /// Runs work on a body of this length. If the body is large, waits for a free processor first.
    pub(crate) async fn run<T>(
        &self,
        caller: &Caller,
        length: usize,
        work: impl Future<Output = T>,
    ) -> GatewayResult<T> {
        if length < LARGE {
            return Ok(work.await);
        }
        let is_shared = caller.admission.is_key();
        let turn = self.processors.acquire(&caller.tenant, is_shared, 1, self.patience).await;
        let _turn = turn.map_err(|_| {
            let message = "the server is busy reading other large requests; retry in a moment";
            GatewayError::new(503, message).after(RETRY_DELAY)
        })?;
        match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => Ok(block_in_place(|| Handle::current().block_on(work))),
            // A runtime with one thread has no other thread that could take over.
            _ => Ok(work.await),
        }
    }
}
