//! Work on large bodies, kept off the threads that answer everybody else.
//!
//! To decode, audit and repair a body of some megabytes takes a good part of a second without a pause. Such work leaves
//! the asynchronous workers: the runtime replaces the worker for as long as the work lasts. No more of it runs at once than
//! there are processors, and tenants take turns.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::exchange::{Caller, Problem};
use crate::operations::COME_BACK;
use crate::operations::shares::{OverShare, Shares};

/// From this length on, a body is large.
pub(crate) const LARGE: usize = 256 << 10;

/// Runs work on large bodies.
pub(crate) struct Heavy {
    processors: Arc<Shares>,
    patience: Duration,
}

impl Heavy {
    pub(super) fn new(patience: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Self { processors: Shares::new(processors, OverShare::Wait), patience }
    }

    /// Does work on a body of that length, in place where it is not large.
    pub(crate) async fn run<T>(
        &self,
        caller: &Caller,
        length: usize,
        work: impl Future<Output = T>,
    ) -> Result<T, Problem> {
        if length < LARGE {
            return Ok(work.await);
        }
        let is_shared = caller.admission.key_id().is_some();
        let turn = self.processors.acquire(&caller.tenant, is_shared, 1, self.patience).await;
        let _turn = turn.map_err(|_| {
            let message = "other large requests are being read: ask again in a moment";
            Problem::new(503, message).after(COME_BACK)
        })?;
        match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => Ok(block_in_place(|| Handle::current().block_on(work))),
            // A runtime of one thread has no other that could take over.
            _ => Ok(work.await),
        }
    }
}
