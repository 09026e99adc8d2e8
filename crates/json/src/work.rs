//! Counts units of work in debug builds, so that tests can assert how work grows with the size of a
//! request.
//!
//! Unlike time, a count does not depend on the machine and its load. JSON iterators count each
//! visited value, and lookups count each examined candidate. A scan inside a loop therefore shows
//! up as a count that grows quadratically with the input. Release builds count nothing.

#[cfg(debug_assertions)]
mod counter {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Number of steps that a thread counts locally before it adds them to the total.
    const BATCH: u64 = 1024;

    static TOTAL: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }

    #[inline]
    pub(super) fn add(count: u64) {
        // A thread that is ending has no counter; its last steps are not counted.
        let _ended = OWN.try_with(|own| {
            let sum = own.get().saturating_add(count);
            if sum < BATCH {
                own.set(sum);
            } else {
                own.set(0);
                TOTAL.fetch_add(sum, Ordering::Relaxed);
            }
        });
    }

    pub(super) fn total() -> u64 {
        TOTAL.load(Ordering::Relaxed).saturating_add(OWN.with(Cell::get))
    }
}

/// Counts one step of work, such as visiting a value.
#[inline]
pub fn step() {
    steps(1);
}

/// Counts `count` steps of work.
#[inline]
pub fn steps(count: usize) {
    #[cfg(debug_assertions)]
    counter::add(u64::try_from(count).unwrap_or(u64::MAX));
    #[cfg(not(debug_assertions))]
    let _ = count;
}

/// Returns the number of steps counted in all threads. For each other thread, up to 1,023 recent
/// steps may be missing. Always 0 in release builds.
pub fn total() -> u64 {
    #[cfg(debug_assertions)]
    return counter::total();
    #[cfg(not(debug_assertions))]
    return 0;
}
