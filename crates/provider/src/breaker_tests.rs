//! Tests of circuit breaker states with a manual clock.

use std::time::Duration;

use throughline_json::Name;
use tokio::time::Instant;

use super::{Breaker, BreakerPolicy, Breakers, MOST_MODELS, PROBE_RETRY_DELAY};

const PAUSE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(9);

fn breaker(failures: u32) -> Breaker {
    Breaker::new(BreakerPolicy { failures, pause: PAUSE })
}

fn fail(breaker: &Breaker, now: Instant) {
    breaker.admit(now).unwrap().settle(true, now);
}

#[test]
fn opens_after_consecutive_failures_and_reports_the_pause() {
    let (breaker, now) = (breaker(3), Instant::now());
    fail(&breaker, now);
    fail(&breaker, now);
    breaker.admit(now).unwrap().settle(false, now);
    fail(&breaker, now);
    fail(&breaker, now);
    assert!(!breaker.is_open(), "a success resets the count");
    fail(&breaker, now);
    assert!(breaker.is_open());
    assert_eq!(breaker.admit(now + TICK).err(), Some(REST));
}

#[test]
fn one_probe_is_admitted_after_the_pause() {
    let (breaker, now) = (breaker(1), Instant::now());
    fail(&breaker, now);
    let later = now + PAUSE;
    let probe = breaker.admit(later).unwrap();
    assert_eq!(breaker.admit(later).err(), Some(PROBE_RETRY_DELAY), "only one probe at a time");
    probe.settle(true, later);
    assert_eq!(breaker.admit(later + TICK).err(), Some(REST), "the pause restarts");
    breaker.admit(later + PAUSE).unwrap().settle(false, later + PAUSE);
    assert!(!breaker.is_open());
    breaker.admit(later + PAUSE).unwrap().settle(false, later + PAUSE);
}

#[test]
fn dropped_probe_lets_the_next_request_probe() {
    let (breaker, now) = (breaker(1), Instant::now());
    fail(&breaker, now);
    let later = now + PAUSE;
    drop(breaker.admit(later).unwrap());
    let next = breaker.admit(later).unwrap();
    assert_eq!(breaker.admit(later).err(), Some(PROBE_RETRY_DELAY));
    next.settle(false, later);
    assert!(!breaker.is_open());
}

#[test]
fn earlier_failure_does_not_end_the_probe() {
    let (breaker, now) = (breaker(1), Instant::now());
    let old = breaker.admit(now).unwrap();
    fail(&breaker, now);
    let probe = breaker.admit(now + PAUSE).unwrap();
    old.settle(true, now + PAUSE);
    assert_eq!(breaker.admit(now + PAUSE).err(), Some(PROBE_RETRY_DELAY));
    probe.settle(false, now + PAUSE);
    assert!(!breaker.is_open());
}

#[test]
fn each_model_has_a_breaker_and_their_number_is_bounded() {
    let (breakers, now) =
        (Breakers::new(BreakerPolicy { failures: 1, pause: PAUSE }), Instant::now());
    let named = |number: usize| Name::from(format!("model-{number}"));
    fail(&breakers.model(Some(&named(0))), now);
    assert!(breakers.model(Some(&named(0))).is_open());
    assert!(!breakers.model(Some(&named(1))).is_open());
    for number in 0..10 * MOST_MODELS {
        breakers.model(Some(&named(number)));
    }
    assert!(breakers.model(Some(&named(0))).is_open(), "open breakers are kept");
    for number in 0..10 * MOST_MODELS {
        if let Ok(permit) = breakers.model(Some(&named(number))).admit(now) {
            permit.settle(true, now);
        }
    }
    assert!(breakers.models.lock().unwrap().len() <= MOST_MODELS + 1);
}

#[test]
fn zero_failures_disables_the_breaker() {
    let (breaker, now) = (breaker(0), Instant::now());
    for _ in 0..100 {
        fail(&breaker, now);
    }
    assert!(!breaker.is_open());
}
