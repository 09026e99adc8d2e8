//! Tests of retry conditions and delays, without sleeping.

use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{TimeoutPhase, UpstreamError, UpstreamResponse};

use super::{RetryPolicy, RetryState};

type Outcome = Result<UpstreamResponse, UpstreamError>;

#[expect(clippy::unnecessary_wraps, reason = "a response is one of the outcomes")]
fn response(status: u16, headers: &[(&str, &str)]) -> Outcome {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Ok(UpstreamResponse { status, headers, body: Box::pin(futures_util::stream::empty()) })
}

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn first_wait(outcome: &Outcome) -> Option<Duration> {
    RetryState::new(RetryPolicy::default()).wait_after(outcome, now())
}

#[test]
fn only_retryable_statuses_are_retried() {
    for status in [408, 429, 500, 502, 503, 504, 529] {
        assert!(first_wait(&response(status, &[])).is_some(), "{status}");
    }
    for status in [200, 301, 400, 401, 403, 404, 409, 413, 422, 501] {
        assert_eq!(first_wait(&response(status, &[])), None, "{status}");
    }
    assert_eq!(first_wait(&response(429, &[("x-should-retry", "false")])), None);
}

#[test]
fn only_unsent_requests_are_retried_by_default() {
    let endpoint = || "e".into();
    let timed_out = |waiting| {
        Err(UpstreamError::TimedOut { endpoint: endpoint(), waiting, limit: Duration::ZERO })
    };
    let cut = || Err(UpstreamError::Cut { endpoint: endpoint(), cause: "reset".into() });
    let unreachable =
        Err(UpstreamError::Unreachable { endpoint: endpoint(), cause: "refused".into() });
    assert!(first_wait(&unreachable).is_some());
    assert!(first_wait(&timed_out(TimeoutPhase::Connecting)).is_some());
    assert_eq!(first_wait(&timed_out(TimeoutPhase::FirstByte)), None);
    assert_eq!(first_wait(&cut()), None);
    let policy = RetryPolicy { resend_when_cut: true, ..RetryPolicy::default() };
    assert!(RetryState::new(policy).wait_after(&cut(), now()).is_some());
    let refused = Err(UpstreamError::Refused { endpoint: endpoint(), address: "::".into() });
    assert_eq!(first_wait(&refused), None);
}

#[test]
fn backoff_doubles_with_jitter_and_ends() {
    let policy = RetryPolicy { retries: 4, ..RetryPolicy::default() };
    let policy = RetryPolicy { longest_wait: Duration::from_secs(2), ..policy };
    let mut tries = RetryState::new(policy);
    for full in [500, 1000, 2000, 2000] {
        let wait = tries.wait_after(&response(503, &[]), now()).unwrap();
        let full = Duration::from_millis(full);
        assert!(full / 2 <= wait && wait <= full, "{wait:?} of {full:?}");
    }
    assert_eq!(tries.wait_after(&response(503, &[]), now()), None);
}

#[test]
fn requested_delay_is_used() {
    let date = "Sun, 15 Nov 2026 12:00:05 GMT";
    for (headers, requested) in [
        (vec![("retry-after", "3")], 3000),
        (vec![("Retry-After", "1.5")], 1500),
        (vec![("retry-after", "9"), ("retry-after-ms", "40")], 40),
        (vec![("retry-after", date)], 5000),
        (vec![("retry-after", date), ("date", "Sun, 15 Nov 2026 12:00:03 GMT")], 2000),
        (vec![("retry-after", "Sun, 15 Nov 2026 11:00:00 GMT")], 0),
        (vec![("retry-after", "0")], 0),
    ] {
        let wait = first_wait(&response(429, &headers)).unwrap();
        let requested = Duration::from_millis(requested);
        assert!(requested <= wait && wait <= requested.mul_f64(1.1), "{headers:?}: {wait:?}");
    }
    for nonsense in ["-1", "soon", "NaN", "1e300"] {
        let wait = first_wait(&response(429, &[("retry-after", nonsense)])).unwrap();
        assert!(wait <= Duration::from_millis(500), "{nonsense}: {wait:?}");
    }
}

#[test]
fn too_long_delay_is_not_retried() {
    assert_eq!(first_wait(&response(429, &[("retry-after", "21")])), None);
    let mut tries = RetryState::new(RetryPolicy { retries: 9, ..RetryPolicy::default() });
    let slow = response(429, &[("retry-after", "9")]);
    assert!(tries.wait_after(&slow, now()).is_some());
    assert!(tries.wait_after(&slow, now()).is_some());
    assert_eq!(tries.wait_after(&slow, now()), None, "all waits count together");
}
