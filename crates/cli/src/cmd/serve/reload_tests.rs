//! Tests of the schedule of repeated reloads.

use tokio::time::Instant;

use super::{
    FIRST_RETRY_DELAY, FileWatch, LONGEST_RETRY_DELAY, ReloadFailure, ReloadResult, ReloadRetry,
};
use crate::print::failure::Failure;

fn outage() -> ReloadResult {
    Err(Failure::Outside(anyhow::anyhow!("the store does not respond")).into())
}

fn invalid_file() -> ReloadResult {
    Err(Failure::BadData("the file is invalid".to_owned()).into())
}

#[test]
fn failure_outside_of_the_file_is_retried_with_growing_delays() {
    let (watch, mut now) = (FileWatch::new(Vec::new()), Instant::now());
    let mut retry = ReloadRetry::default();
    assert_eq!(retry.trigger(false, &watch, now), None);
    assert_eq!(retry.trigger(true, &watch, now), Some("file"));
    retry.record("file", &outage(), now);
    let mut delay = FIRST_RETRY_DELAY;
    for _ in 0..10 {
        assert_eq!(retry.trigger(false, &watch, now), None, "{delay:?}");
        now += delay;
        assert_eq!(retry.trigger(false, &watch, now), Some("retry"), "{delay:?}");
        retry.record("retry", &outage(), now);
        delay = (delay * 2).min(LONGEST_RETRY_DELAY);
    }
    // A new file starts with the first delay.
    retry.record("file", &outage(), now);
    assert_eq!(retry.trigger(false, &watch, now + FIRST_RETRY_DELAY), Some("retry"));
    retry.record("retry", &Ok(Vec::new()), now);
    assert_eq!(retry.trigger(false, &watch, now + LONGEST_RETRY_DELAY), None);
}

#[test]
fn invalid_file_is_not_retried() {
    let (watch, now) = (FileWatch::new(Vec::new()), Instant::now());
    let mut retry = ReloadRetry::default();
    let missing_key = Err(ReloadFailure::retried(Failure::Usage("no API keys".to_owned())));
    for (result, is_retried) in [(outage(), true), (invalid_file(), false), (missing_key, true)] {
        retry.record("file", &result, now);
        let trigger = retry.trigger(false, &watch, now + LONGEST_RETRY_DELAY);
        assert_eq!(trigger.is_some(), is_retried, "{result:?}");
    }
}
