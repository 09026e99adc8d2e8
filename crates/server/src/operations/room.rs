//! The memory of one request: how much it is expected to take, and what it holds of the memory that all share.

use std::sync::Arc;
use std::time::Duration;

use throughline_core::Tenant;

use crate::exchange::Problem;
use crate::operations::COME_BACK;
use crate::operations::shares::{Share, Shares};

/// How many copies of its text a request takes: what came, what is sent, what is kept, and one while one is made.
const COPIES: u64 = 4;

/// How many bytes a JSON value takes besides its text: its entry in the index, and its part of what is read from it.
const ENTRY: u64 = 64;

/// The memory of one request.
pub(crate) struct Room {
    pool: Arc<Shares>,
    tenant: Tenant,
    is_shared: bool,
    patience: Duration,
    share: Option<Share>,
    /// The length of its text, as far as it is known.
    length: u64,
}

impl Room {
    pub(super) fn new(
        pool: Arc<Shares>,
        tenant: Tenant,
        is_shared: bool,
        patience: Duration,
    ) -> Self {
        Self { pool, tenant, is_shared, patience, share: None, length: 0 }
    }

    /// Makes room for a text that has this length so far.
    pub(crate) async fn reserve_text(&mut self, length: usize) -> Result<(), Problem> {
        let length = length as u64;
        self.length = self.length.max(length);
        let held = self.share.as_ref().map_or(0, Share::amount);
        let needed = COPIES * length;
        if needed <= held {
            return Ok(());
        }
        self.reserve(needed - held).await
    }

    /// Makes room for what is read from the text.
    pub(crate) async fn reserve_entries(&mut self, entries: usize) -> Result<(), Problem> {
        self.reserve(ENTRY * entries as u64).await
    }

    async fn reserve(&mut self, amount: u64) -> Result<(), Problem> {
        let share = self.pool.acquire(&self.tenant, self.is_shared, amount, self.patience).await;
        let share = share.map_err(|_| {
            let message = "the requests under way take all of the memory that they may \
                           (max_request_memory): ask again in a moment";
            Problem::new(503, message).after(COME_BACK)
        })?;
        match &mut self.share {
            Some(held) => held.join(share),
            None => self.share = Some(share),
        }
        Ok(())
    }

    /// Gives back what the request no longer takes once it is ready to be sent. What came and what is sent are held until
    /// the answer is kept.
    pub(super) fn keep_texts_only(&mut self) {
        if let Some(share) = &mut self.share {
            share.shrink_to(2 * self.length);
        }
    }
}
