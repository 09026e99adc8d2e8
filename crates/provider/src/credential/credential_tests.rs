//! Tests of the cache: one fetch at a time, refreshes before the expiry, and failures.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use throughline_core::Credential;
use tokio::sync::Semaphore;

use super::{DynamicCredential, FailureLog, FetchFuture, FetchedSecret, Secret, SecretSource};

const MINUTE: i64 = 60;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A source with scripted results: a token and the second of its expiry, or a problem.
struct Script {
    results: Mutex<VecDeque<Result<(&'static str, i64), &'static str>>>,
    /// Each fetch waits for a permit.
    permits: Semaphore,
    /// The problems that were logged.
    failures: Mutex<Vec<String>>,
}

impl SecretSource for Script {
    fn fetch(&self, now: Timestamp) -> FetchFuture<'_> {
        Box::pin(async move {
            self.permits.acquire().await.unwrap().forget();
            let result = self.results.lock().unwrap().pop_front().unwrap();
            let (token, expiry) = result.map_err(str::to_owned)?;
            let secret = Secret::Token(Credential::new(token));
            Ok(FetchedSecret::expiring(secret, now, at(expiry)))
        })
    }

    fn advice(&self) -> &'static str {
        "try again"
    }
}

fn credential(
    results: &[Result<(&'static str, i64), &'static str>],
    permits: usize,
) -> (Arc<DynamicCredential>, Arc<Script>) {
    let results = Mutex::new(results.iter().copied().collect());
    let script =
        Arc::new(Script { results, permits: Semaphore::new(permits), failures: Mutex::default() });
    let (source, log) = (Arc::clone(&script), Arc::clone(&script));
    let on_failure: FailureLog =
        Arc::new(move |error| log.failures.lock().unwrap().push(error.problem.to_string()));
    let credential = DynamicCredential::from_source("a test".into(), source, Some(on_failure));
    (Arc::new(credential), script)
}

fn text(secret: &FetchedSecret) -> &str {
    let Secret::Token(token) = &secret.secret else { panic!("a token") };
    token.reveal()
}

/// Returns the number of results that were not fetched yet.
fn left(script: &Script) -> usize {
    script.results.lock().unwrap().len()
}

#[tokio::test]
async fn concurrent_requests_share_one_fetch() {
    let (credential, script) = credential(&[Ok(("one", 60 * MINUTE))], 0);
    let requests = (0..50).map(|_| {
        let credential = Arc::clone(&credential);
        tokio::spawn(async move { text(&credential.current(at(0)).await.unwrap()).to_owned() })
    });
    let requests: Vec<_> = requests.collect();
    script.permits.add_permits(50);
    for request in requests {
        assert_eq!(request.await.unwrap(), "one");
    }
    assert_eq!(left(&script), 0);
}

#[tokio::test]
async fn cancelled_request_does_not_cancel_the_fetch() {
    let (credential, script) = credential(&[Ok(("one", 60 * MINUTE))], 0);
    let request = tokio::spawn({
        let credential = Arc::clone(&credential);
        async move { credential.current(at(0)).await.map(drop) }
    });
    while super::lock(&credential.cache).pending.is_none() {
        tokio::task::yield_now().await;
    }
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    script.permits.add_permits(1);
    while super::lock(&credential.cache).current.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(text(&credential.current(at(1)).await.unwrap()), "one");
}

#[tokio::test]
async fn token_is_refreshed_in_the_background_before_it_expires() {
    let results = [Ok(("one", 60 * MINUTE)), Ok(("two", 120 * MINUTE))];
    let (credential, script) = credential(&results, 1);
    assert_eq!(text(&credential.current(at(0)).await.unwrap()), "one");
    assert_eq!(text(&credential.current(at(55 * MINUTE - 1)).await.unwrap()), "one");
    assert!(super::lock(&credential.cache).pending.is_none(), "it is too early for a refresh");
    // The request does not wait for the refresh, which has no permit yet.
    assert_eq!(text(&credential.current(at(55 * MINUTE)).await.unwrap()), "one");
    script.permits.add_permits(1);
    while text(&credential.current(at(55 * MINUTE)).await.unwrap()) != "two" {
        tokio::task::yield_now().await;
    }
    assert_eq!(left(&script), 0);
}

#[tokio::test]
async fn failed_refresh_keeps_the_token_until_it_expires() {
    let results =
        [Ok(("one", 60 * MINUTE)), Err("the service is down"), Err("still"), Ok(("two", 9999))];
    let (credential, script) = credential(&results, 4);
    credential.current(at(0)).await.unwrap();
    assert_eq!(text(&credential.current(at(56 * MINUTE)).await.unwrap()), "one");
    while left(&script) > 2 {
        tokio::task::yield_now().await;
    }
    // The next attempt follows after a pause.
    assert_eq!(text(&credential.current(at(56 * MINUTE + 9)).await.unwrap()), "one");
    assert!(super::lock(&credential.cache).pending.is_none());
    let error = credential.current(at(60 * MINUTE)).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot get the credential from a test: still; try again");
    // The failure is returned for a second without another fetch.
    credential.current(at(60 * MINUTE)).await.unwrap_err();
    assert_eq!(left(&script), 1);
    assert_eq!(text(&credential.current(at(60 * MINUTE + 1)).await.unwrap()), "two");
    assert_eq!(*script.failures.lock().unwrap(), ["the service is down", "still"]);
}

/// A script without results panics.
#[tokio::test]
async fn panic_in_a_source_is_a_failed_fetch() {
    let (credential, script) = credential(&[], 2);
    let error = credential.current(at(0)).await.unwrap_err();
    assert_eq!(&*error.problem, "the fetch panicked");
    script.results.lock().unwrap_or_else(PoisonError::into_inner).push_back(Ok(("one", 3600)));
    script.results.clear_poison();
    assert_eq!(text(&credential.current(at(1)).await.unwrap()), "one");
}

/// A request without a permission gets 403 with each token.
#[tokio::test]
async fn missing_permission_does_not_delay_the_replacement_of_a_rejected_token() {
    let results = [Ok(("one", 3600)), Ok(("two", 3600)), Ok(("three", 3600))];
    let (credential, script) = credential(&results, 3);
    let one = credential.current(at(0)).await.unwrap();
    let two = credential.replace(&one, 403, at(1)).await.unwrap();
    credential.ignore_rejections(403, at(1));
    assert!(credential.replace(&two, 403, at(2)).await.is_none());
    assert_eq!(left(&script), 1);
    assert_eq!(text(&credential.replace(&two, 401, at(2)).await.unwrap()), "three");
}

#[tokio::test]
async fn rejected_token_is_replaced_once() {
    let results = [Ok(("one", 3600)), Ok(("two", 3600)), Ok(("two", 3600)), Ok(("three", 3600))];
    let (credential, script) = credential(&results, 4);
    let one = credential.current(at(0)).await.unwrap();
    let two = credential.replace(&one, 401, at(1)).await.unwrap();
    assert_eq!(text(&two), "two");
    // Another request with the old token uses the new token without a fetch.
    assert_eq!(text(&credential.replace(&one, 401, at(1)).await.unwrap()), "two");
    assert_eq!(left(&script), 2);
    // The source has no other token, so further rejections cause no fetch for some seconds.
    assert!(credential.replace(&two, 401, at(2)).await.is_none());
    assert!(credential.replace(&two, 401, at(6)).await.is_none());
    assert_eq!(left(&script), 1);
    assert_eq!(text(&credential.replace(&two, 401, at(7)).await.unwrap()), "three");
}

#[test]
fn short_lived_tokens_are_refreshed_after_half_of_their_lifetime() {
    let secret = || Secret::Token(Credential::new("canary"));
    let short = FetchedSecret::expiring(secret(), at(0), at(4 * MINUTE));
    assert_eq!(short.refresh_at, at(2 * MINUTE));
    let expired = FetchedSecret::expiring(secret(), at(0), at(-MINUTE));
    assert!(!expired.is_valid(at(0)));
    let late = Timestamp::MAX - SignedDuration::from_secs(1);
    assert!(FetchedSecret::expiring(secret(), late, Timestamp::MAX).is_valid(late));
    assert!(!format!("{short:?}").contains("canary"));
}
