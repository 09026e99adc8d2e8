//! Tests of keys that are replaced while requests are sent.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{Upstream as _, UpstreamError};
use throughline_provider::{
    CommandSettings, CredentialSettings, CredentialSource, DynamicCredential, Http,
};

use crate::server::{Server, endpoint, outgoing, response};

/// A provider that accepts only some keys, and a client whose clock the test sets.
struct Rotation {
    server: Server,
    accepted: Arc<Mutex<HashSet<String>>>,
    http: Arc<Http>,
    seconds: Arc<AtomicI64>,
}

impl Rotation {
    async fn start(settings: &CredentialSettings) -> Self {
        let accepted: Arc<Mutex<HashSet<String>>> = Arc::default();
        let known = Arc::clone(&accepted);
        let server = Server::with_reaction(move |_, request| {
            let [key] = request.all("x-api-key")[..] else { panic!("one key") };
            let is_accepted = known.lock().unwrap().contains(key);
            // Providers differ in the status for a key that is not valid.
            let rejection = if key.starts_with("forbidden") { 403 } else { 401 };
            if is_accepted { response(200, "", "ok") } else { response(rejection, "", "no") }
        })
        .await;
        let seconds = Arc::new(AtomicI64::new(1_800_000_000));
        let time = Arc::clone(&seconds);
        let clock = move || Timestamp::from_second(time.load(Ordering::SeqCst)).unwrap();
        let source = CredentialSource::Dynamic(Arc::new(DynamicCredential::new(settings, None)));
        let endpoint = endpoint("anthropic", &server.address, source);
        let http = Arc::new(Http::new([endpoint], Arc::new(clock)).unwrap());
        Self { server, accepted, http, seconds }
    }

    fn accept(&self, keys: &[&str]) {
        *self.accepted.lock().unwrap() = keys.iter().map(|key| (*key).to_owned()).collect();
    }

    async fn status(&self) -> u16 {
        self.http.send(outgoing("/v1/messages")).await.unwrap().status
    }

    /// Returns the keys of all requests, without consecutive repetitions.
    fn keys(&self) -> Vec<String> {
        let requests = self.server.requests();
        let keys = requests.iter().map(|request| request.all("x-api-key")[0].to_owned());
        let mut keys: Vec<String> = keys.collect();
        keys.dedup();
        keys
    }
}

#[tokio::test]
async fn both_statuses_of_rejections_replace_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    for old in ["unauthorized", "forbidden"] {
        write_key(&path, old);
        let rotation = Rotation::start(&print_file(&path)).await;
        rotation.accept(&[old]);
        assert_eq!(rotation.status().await, 200);
        write_key(&path, "new");
        rotation.accept(&["new"]);
        assert_eq!(rotation.status().await, 200);
        assert_eq!(rotation.keys(), [old, "new"]);
        assert_eq!(rotation.server.requests().len(), 3, "one request was repeated once");
        assert_eq!(rotation.http.retries(), 1);
    }
}

/// Replaces a file in one step, as secret managers do.
fn write_key(path: &Path, key: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, format!("{key}\n")).unwrap();
    std::fs::rename(&new, path).unwrap();
}

fn command(words: &[&str]) -> CommandSettings {
    CommandSettings {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        timeout: Duration::from_secs(30),
        interval: Duration::from_mins(5),
    }
}

fn print_file(path: &Path) -> CredentialSettings {
    CredentialSettings::Command(command(&["cat", path.to_str().unwrap()]))
}

async fn rotate_under_load(settings: CredentialSettings, path: &Path, rotations: usize) {
    const WORKERS: usize = 8;
    write_key(path, "key-0");
    let rotation = Arc::new(Rotation::start(&settings).await);
    rotation.accept(&["key-0"]);
    let done: Arc<Vec<AtomicUsize>> = Arc::new((0..WORKERS).map(|_| AtomicUsize::new(0)).collect());
    let is_stopped = Arc::new(AtomicUsize::new(0));
    let workers = (0..WORKERS).map(|worker| {
        let (rotation, done) = (Arc::clone(&rotation), Arc::clone(&done));
        let is_stopped = Arc::clone(&is_stopped);
        tokio::spawn(async move {
            let mut failed = 0;
            while is_stopped.load(Ordering::SeqCst) == 0 {
                failed += usize::from(rotation.status().await != 200);
                done[worker].fetch_add(1, Ordering::SeqCst);
            }
            failed
        })
    });
    let workers: Vec<_> = workers.collect();
    for number in 1..=rotations {
        // A request may be repeated once, so it must not see two rotations.
        let before: Vec<usize> = done.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        let is_behind = |worker: usize| done[worker].load(Ordering::SeqCst) < before[worker] + 2;
        while (0..WORKERS).any(is_behind) {
            tokio::task::yield_now().await;
        }
        let key = format!("key-{number}");
        write_key(path, &key);
        rotation.accept(&[&key]);
    }
    is_stopped.store(1, Ordering::SeqCst);
    for worker in workers {
        assert_eq!(worker.await.unwrap(), 0, "no call may fail");
    }
    assert_eq!(rotation.status().await, 200);
    assert_eq!(rotation.keys().last(), Some(&format!("key-{rotations}")));
}

#[tokio::test]
async fn key_file_is_rotated_under_load_without_failed_calls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    rotate_under_load(CredentialSettings::File(path.clone()), &path, 20).await;
}

#[tokio::test]
async fn key_command_is_rotated_under_load_without_failed_calls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    rotate_under_load(print_file(&path), &path, 5).await;
}

#[tokio::test]
async fn changed_source_is_read_again_without_a_rejection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    for (settings, interval) in
        [(CredentialSettings::File(path.clone()), 1), (print_file(&path), 300)]
    {
        write_key(&path, "old");
        let rotation = Rotation::start(&settings).await;
        rotation.accept(&["old", "new"]);
        assert_eq!(rotation.status().await, 200);
        write_key(&path, "new");
        rotation.seconds.fetch_add(interval - 1, Ordering::SeqCst);
        assert_eq!(rotation.status().await, 200);
        assert_eq!(rotation.keys(), ["old"], "the source is not read before its interval");
        rotation.seconds.fetch_add(1, Ordering::SeqCst);
        // The source is read in the background, and calls use the old key until then.
        while rotation.keys() != ["old", "new"] {
            assert_eq!(rotation.status().await, 200);
        }
        assert_eq!(rotation.http.retries(), 0);
    }
}

#[tokio::test]
async fn rejected_key_without_a_replacement_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    write_key(&path, "revoked");
    let rotation = Rotation::start(&CredentialSettings::File(path.clone())).await;
    assert_eq!(rotation.status().await, 401);
    assert_eq!(rotation.server.requests().len(), 1, "the same key is not sent again");
    // A second key that is rejected too is not followed by a third attempt.
    write_key(&path, "also-revoked");
    assert_eq!(rotation.status().await, 401);
    assert_eq!(rotation.keys(), ["revoked", "also-revoked"]);
    assert_eq!(rotation.server.requests().len(), 3);
}

#[tokio::test]
async fn missing_file_keeps_the_key_that_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    write_key(&path, "old");
    let rotation = Rotation::start(&CredentialSettings::File(path.clone())).await;
    rotation.accept(&["old"]);
    assert_eq!(rotation.status().await, 200);
    std::fs::remove_file(&path).unwrap();
    for _ in 0..30 {
        rotation.seconds.fetch_add(20, Ordering::SeqCst);
        assert_eq!(rotation.status().await, 200);
    }
}

#[tokio::test]
async fn unusable_sources_are_named_without_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, "two canaries").unwrap();
    let missing = folder.path().join("missing");
    let timeout = Duration::from_millis(50);
    for (settings, expected) in [
        (CredentialSettings::File(missing), "missing: the file does not exist"),
        (CredentialSettings::File(path.clone()), "key: it contains more than one word"),
        (print_file(&path), "the command cat: output: it contains more than one word"),
        (CredentialSettings::Command(command(&["false", "canary"])), "ended with exit status: 1"),
        (CredentialSettings::Command(command(&["true"])), "output: it is empty"),
        (CredentialSettings::Command(command(&["/missing", "canary"])), "cannot start it"),
        (
            CredentialSettings::Command(CommandSettings { timeout, ..command(&["sleep", "1000"]) }),
            "it did not end within 0.05 s",
        ),
    ] {
        let rotation = Rotation::start(&settings).await;
        let error = rotation.http.send(outgoing("/v1/messages")).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, UpstreamError::CredentialUnavailable { .. }), "{text}");
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("canar"), "{text}");
        assert!(!format!("{settings:?}{:?}", rotation.http).contains("canar"));
        assert_eq!(rotation.server.requests().len(), 0);
    }
}
