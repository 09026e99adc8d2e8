//! Open, half open, closed, by a clock that the tests hold.

use std::time::Duration;

use throughline_core::Name;
use tokio::time::Instant;

use super::{Breaker, BreakerPolicy, Breakers, MOST_MODELS, WHILE_PROBED};

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
fn it_opens_after_failures_in_a_row_and_says_how_long_it_rests() {
    let (breaker, now) = (breaker(3), Instant::now());
    fail(&breaker, now);
    fail(&breaker, now);
    breaker.admit(now).unwrap().settle(false, now);
    fail(&breaker, now);
    fail(&breaker, now);
    assert!(!breaker.is_open(), "a success in between begins the count again");
    fail(&breaker, now);
    assert!(breaker.is_open());
    assert_eq!(breaker.admit(now + TICK).err(), Some(REST));
}

#[test]
fn after_the_pause_one_request_sees_whether_it_is_back() {
    let (breaker, now) = (breaker(1), Instant::now());
    fail(&breaker, now);
    let later = now + PAUSE;
    let probe = breaker.admit(later).unwrap();
    assert_eq!(breaker.admit(later).err(), Some(WHILE_PROBED), "one at a time");
    probe.settle(true, later);
    assert_eq!(breaker.admit(later + TICK).err(), Some(REST), "the pause begins again");
    breaker.admit(later + PAUSE).unwrap().settle(false, later + PAUSE);
    assert!(!breaker.is_open());
    breaker.admit(later + PAUSE).unwrap().settle(false, later + PAUSE);
}

#[test]
fn a_probe_that_was_given_up_lets_the_next_one_see() {
    let (breaker, now) = (breaker(1), Instant::now());
    fail(&breaker, now);
    let later = now + PAUSE;
    drop(breaker.admit(later).unwrap());
    let next = breaker.admit(later).unwrap();
    assert_eq!(breaker.admit(later).err(), Some(WHILE_PROBED));
    next.settle(false, later);
    assert!(!breaker.is_open());
}

#[test]
fn a_failure_from_before_the_pause_does_not_end_the_probe() {
    let (breaker, now) = (breaker(1), Instant::now());
    let old = breaker.admit(now).unwrap();
    fail(&breaker, now);
    let probe = breaker.admit(now + PAUSE).unwrap();
    old.settle(true, now + PAUSE);
    assert_eq!(breaker.admit(now + PAUSE).err(), Some(WHILE_PROBED));
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
    assert!(breakers.model(Some(&named(0))).is_open(), "what rests is not forgotten");
    for number in 0..10 * MOST_MODELS {
        if let Ok(permit) = breakers.model(Some(&named(number))).admit(now) {
            permit.settle(true, now);
        }
    }
    assert!(breakers.models.lock().unwrap().len() <= MOST_MODELS + 1);
}

#[test]
fn without_a_number_it_never_opens() {
    let (breaker, now) = (breaker(0), Instant::now());
    for _ in 0..100 {
        fail(&breaker, now);
    }
    assert!(!breaker.is_open());
}
