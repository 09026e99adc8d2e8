//! Helpers for blocking work and mutexes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use throughline_core::StoreError;

/// Runs `work` on a blocking thread. Fails with [`StoreError::Closed`] if the work panics or the
/// runtime shuts down.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?
}

/// Locks a mutex, even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
