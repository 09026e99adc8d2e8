//! Delays a group of relaxed batches while further batches arrive.
//!
//! Batches share many of the pages that they change, and a transaction writes each page to the WAL
//! once. A transaction of 16 turns writes a quarter of the pages per turn that a transaction of one
//! turn writes.

use std::time::Duration;

/// Interval at which the writer checks whether further batches have arrived.
const STEP: Duration = Duration::from_millis(1);
/// Maximum number of intervals before a group is written.
const MAX_STEPS: usize = 5;

/// Sleeps in steps of [`STEP`] while the number of free permits changes, because each batch that
/// arrives takes a permit. Ends after [`MAX_STEPS`] steps.
pub(super) fn wait_for_arrivals(mut free: impl FnMut() -> usize, mut sleep: impl FnMut(Duration)) {
    let mut before = free();
    for _ in 0..MAX_STEPS {
        sleep(STEP);
        let now = free();
        if now == before {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often the writer sleeps if the numbers of free permits are `free`, one per
    /// check.
    fn steps(free: impl IntoIterator<Item = usize>) -> usize {
        let (mut free, mut steps) = (free.into_iter(), 0);
        let sleep = |time: Duration| {
            assert_eq!(time, STEP);
            steps += 1;
        };
        wait_for_arrivals(|| free.next().unwrap(), sleep);
        steps
    }

    #[test]
    fn relaxed_batches_wait_while_further_batches_arrive() {
        assert_eq!(steps([1023, 1023]), 1);
        assert_eq!(steps([1023, 1020, 1019, 1019]), 3);
    }

    #[test]
    fn relaxed_batches_do_not_wait_for_an_endless_queue() {
        assert_eq!(steps((0..1024).rev()), MAX_STEPS);
    }
}
