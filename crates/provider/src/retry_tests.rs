//! What is sent again, and how long each wait is. Nothing here waits.

use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{Answer, UpstreamError, Waiting};

use super::{RetryPolicy, Tries};

type Outcome = Result<Answer, UpstreamError>;

#[expect(clippy::unnecessary_wraps, reason = "an answer is one of the outcomes")]
fn answered(status: u16, headers: &[(&str, &str)]) -> Outcome {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Ok(Answer { status, headers, body: Box::pin(futures_util::stream::empty()) })
}

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn first_wait(outcome: &Outcome) -> Option<Duration> {
    Tries::new(RetryPolicy::default()).wait_after(outcome, now())
}

#[test]
fn statuses_that_mean_later_are_sent_again_and_others_are_not() {
    for status in [408, 429, 500, 502, 503, 504, 529] {
        assert!(first_wait(&answered(status, &[])).is_some(), "{status}");
    }
    for status in [200, 301, 400, 401, 403, 404, 409, 413, 422, 501] {
        assert_eq!(first_wait(&answered(status, &[])), None, "{status}");
    }
    assert_eq!(first_wait(&answered(429, &[("x-should-retry", "false")])), None);
}

#[test]
fn only_what_was_certainly_not_sent_is_sent_again_without_asking() {
    let endpoint = || "e".into();
    let late = |waiting| {
        Err(UpstreamError::TimedOut { endpoint: endpoint(), waiting, limit: Duration::ZERO })
    };
    let cut = || Err(UpstreamError::Cut { endpoint: endpoint(), cause: "reset".into() });
    let unreachable =
        Err(UpstreamError::Unreachable { endpoint: endpoint(), cause: "refused".into() });
    assert!(first_wait(&unreachable).is_some());
    assert!(first_wait(&late(Waiting::Connecting)).is_some());
    assert_eq!(first_wait(&late(Waiting::FirstByte)), None);
    assert_eq!(first_wait(&cut()), None);
    let policy = RetryPolicy { resend_when_cut: true, ..RetryPolicy::default() };
    assert!(Tries::new(policy).wait_after(&cut(), now()).is_some());
    let refused = Err(UpstreamError::Refused { endpoint: endpoint(), address: "::".into() });
    assert_eq!(first_wait(&refused), None);
}

#[test]
fn waits_double_with_jitter_and_end() {
    let policy = RetryPolicy { retries: 4, ..RetryPolicy::default() };
    let policy = RetryPolicy { longest_wait: Duration::from_secs(2), ..policy };
    let mut tries = Tries::new(policy);
    for full in [500, 1000, 2000, 2000] {
        let wait = tries.wait_after(&answered(503, &[]), now()).unwrap();
        let full = Duration::from_millis(full);
        assert!(full / 2 <= wait && wait <= full, "{wait:?} of {full:?}");
    }
    assert_eq!(tries.wait_after(&answered(503, &[]), now()), None);
}

#[test]
fn the_provider_says_how_long_to_wait() {
    let date = "Sun, 15 Nov 2026 12:00:05 GMT";
    for (headers, asked) in [
        (vec![("retry-after", "3")], 3000),
        (vec![("Retry-After", "1.5")], 1500),
        (vec![("retry-after", "9"), ("retry-after-ms", "40")], 40),
        (vec![("retry-after", date)], 5000),
        (vec![("retry-after", date), ("date", "Sun, 15 Nov 2026 12:00:03 GMT")], 2000),
        (vec![("retry-after", "Sun, 15 Nov 2026 11:00:00 GMT")], 0),
        (vec![("retry-after", "0")], 0),
    ] {
        let wait = first_wait(&answered(429, &headers)).unwrap();
        let asked = Duration::from_millis(asked);
        assert!(asked <= wait && wait <= asked.mul_f64(1.1), "{headers:?}: {wait:?}");
    }
    for nonsense in ["-1", "soon", "NaN", "1e300"] {
        let wait = first_wait(&answered(429, &[("retry-after", nonsense)])).unwrap();
        assert!(wait <= Duration::from_millis(500), "{nonsense}: {wait:?}");
    }
}

#[test]
fn a_wait_that_is_too_long_is_the_callers_to_wait() {
    assert_eq!(first_wait(&answered(429, &[("retry-after", "21")])), None);
    let mut tries = Tries::new(RetryPolicy { retries: 9, ..RetryPolicy::default() });
    let slow = answered(429, &[("retry-after", "9")]);
    assert!(tries.wait_after(&slow, now()).is_some());
    assert!(tries.wait_after(&slow, now()).is_some());
    assert_eq!(tries.wait_after(&slow, now()), None, "all waits count together");
}
