//! Tests of migrations between SQLite and PostgreSQL. They need a server: `scripts/postgres run
//! cargo test -p throughline-store`.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_core::{
    Append, Batch, LogOpening, NewRecord, NewVaultTurn, PendingRequest, Receipt, Record,
    Store as _, StoreError, Tenant, VaultKey,
};
use throughline_json::Name;
use throughline_testkit::{Folder, postgres_database};

use super::{MigrationReport, MigrationStep, migrate};
use crate::journal::{Journal, KeyLimits, about_item};
use crate::key_file_of;
use crate::master_key::MasterKey;
use crate::open;
use crate::options::Options;

fn acme() -> Tenant {
    Tenant::from("acme")
}

fn with_key(digit: &str) -> Options {
    let master_key = Some(MasterKey::parse(&digit.repeat(64)).unwrap());
    // A small batch, so that the keys of some turns are in the table and others are not.
    Options { master_key, index_batch: 4, ..Options::default() }
}

fn url(file: &Path) -> String {
    format!("sqlite://{}", file.display())
}

async fn database() -> String {
    tokio::task::spawn_blocking(postgres_database).await.unwrap()
}

fn item(thread: &str, id: &str, bytes: usize) -> NewRecord {
    let content = format!("{{\"id\":\"{id}\",\"text\":\"{}\"}}", "x".repeat(bytes));
    NewRecord::new("item", content.into_bytes()).about(about_item(&thread.into(), id))
}

async fn capture(journal: &Journal, number: usize) -> Receipt {
    let name = format!("turn {number}");
    let append =
        Append::new("talk").record(item("talk", &name, 50)).record(item("talk", "reply", 90));
    let mut batch = Batch::new("acme").append(append);
    batch.vault.push(NewVaultTurn {
        id: name.as_str().into(),
        parent: None,
        keys: vec![VaultKey::Claim(name.as_str().into()), VaultKey::Chain([7; 32])],
        log: "talk".into(),
        prefix: Some([9; 32]),
    });
    journal.commit(batch).await.unwrap()
}

/// Writes a store with everything that a gateway and agents leave, and returns the secret of an API
/// key.
async fn fill(journal: &Journal) -> String {
    for name in ["talk", "notes", "doomed"] {
        let append =
            Append::new(name).opening(LogOpening::thread()).record(item(name, "first", 20));
        let batch = Batch::new("acme").append(append);
        let batch = batch.with_idempotency_key(format!("make {name}"));
        journal.commit(batch).await.unwrap();
    }
    for number in 0..11 {
        capture(journal, number).await;
    }
    let run = Append::new("run").opening(LogOpening::run("talk"));
    let run = run.record(NewRecord::new("state", b"{}".to_vec())).status("waiting");
    let mut batch = Batch::new("acme").append(run);
    let (id, kind) = ("ask".into(), "approval".into());
    batch.asks.push(PendingRequest { id, kind, log: "run".into(), expires_in: None });
    journal.commit(batch).await.unwrap();
    let large = Append::new("notes").record(item("notes", "large", 300_000));
    journal.commit(Batch::new("acme").append(large)).await.unwrap();
    journal.fork(&acme(), &"talk".into(), Some(3), &"branch".into()).await.unwrap();
    let other =
        Append::new("talk").opening(LogOpening::thread()).record(item("talk", "theirs", 10));
    journal.commit(Batch::new("other").append(other)).await.unwrap();
    journal.forget(&acme(), &"doomed".into(), None).await.unwrap();
    journal.forget(&acme(), &"talk".into(), Some("turn 3")).await.unwrap();
    let revoked = journal.create_api_key(&acme(), "old", &KeyLimits::default()).await.unwrap();
    journal.revoke_api_key(&acme(), &revoked.id).await.unwrap();
    let lease = journal.lease(&acme(), &"run".into(), "node 1", Duration::from_mins(5)).await;
    journal.release(&acme(), &"run".into(), lease.unwrap().fence).await.unwrap();
    journal.create_api_key(&acme(), "laptop", &KeyLimits::default()).await.unwrap().secret
}

/// Everything that callers can read.
#[derive(Debug, PartialEq)]
struct Contents {
    threads: Vec<(String, Vec<Record>)>,
    turns: Vec<Option<throughline_core::VaultMatch>>,
    keys: Vec<String>,
    pending: Vec<throughline_core::PendingEntry>,
    has_key: bool,
}

async fn contents(journal: &Journal, secret: &str) -> Contents {
    let mut threads = Vec::new();
    for name in ["talk", "notes", "doomed", "branch", "run"] {
        let records = journal.read(&acme(), &name.into(), 0, u32::MAX).await.unwrap();
        threads.push((name.to_owned(), records));
    }
    let claims: Vec<_> =
        (0..11).map(|number| VaultKey::Claim(format!("turn {number}").into())).collect();
    let keys = journal.api_keys(&acme()).await.unwrap();
    Contents {
        threads,
        turns: journal.find(&acme(), &claims).await.unwrap().found,
        keys: keys.iter().map(|key| format!("{key:?}")).collect(),
        pending: journal.pending(&acme(), None).await.unwrap(),
        has_key: journal.api_key(secret).await.unwrap().is_some(),
    }
}

async fn moved(source: &str, target: &str, options: &Options) -> MigrationReport {
    migrate(source, target, options, &|_, _| {}).await.unwrap()
}

async fn refused(source: &str, target: &str, options: &Options) -> String {
    migrate(source, target, options, &|_, _| {}).await.unwrap_err().to_string()
}

/// Returns the content of the store's file, and whether SQLite left files beside it.
fn bytes_of(file: &Path) -> (Vec<u8>, bool) {
    let wal = file.with_extension("db-wal");
    (std::fs::read(file).unwrap(), wal.exists())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_to_postgres_and_back_with_equal_proofs() {
    for options in [with_key("a"), Options { index_batch: 4, ..Options::default() }] {
        let folder = Folder::new("migrate");
        let (file, database) = (folder.join("store.db"), database().await);
        let journal = open(&url(&file), &options).await.unwrap();
        let secret = fill(&journal).await;
        journal.backup(&folder.join("backup.db"), &|_| {}).await.unwrap();
        let before = contents(&journal, &secret).await;
        assert!(before.has_key && before.turns.iter().all(Option::is_some), "{before:?}");
        journal.close().await.unwrap();
        let unchanged = bytes_of(&file);

        let steps = Mutex::new(Vec::new());
        let progress = |step, share: f64| {
            let mut steps = steps.lock().unwrap();
            steps.push(step);
            steps.dedup();
            assert!((0.0..=1.0).contains(&share));
        };
        let there = migrate(&url(&file), &database, &options, &progress).await.unwrap();
        let all = [MigrationStep::VerifySource, MigrationStep::Copy, MigrationStep::VerifyTarget];
        assert_eq!(*steps.lock().unwrap(), all);
        assert!(there.was_copied && there.proof.gone > 1 && there.stats.turns == 11, "{there:?}");
        assert_eq!(bytes_of(&file), unchanged, "the source is not changed");

        // A repeated migration only verifies.
        let again = moved(&url(&file), &database, &options).await;
        assert_eq!((again.was_copied, &again.proof), (false, &there.proof));

        let back = folder.join("back.db");
        let returned = moved(&database, &url(&back), &options).await;
        assert_eq!(returned.proof, there.proof);
        assert_eq!(returned.proof.digest(), there.proof.digest());

        // Both copies have the same contents, and continue all chains and sequences.
        for target in [database, url(&back)] {
            let journal = open(&target, &options).await.unwrap();
            assert_eq!(contents(&journal, &secret).await, before, "{target}");
            let owners = journal.backend.query("SELECT owner FROM leases", &[]).await.unwrap();
            assert_eq!(owners[0].get::<Name>(0).unwrap(), Name::from("node 1"), "{target}");
            capture(&journal, 99).await;
            let found = journal.find(&acme(), &[VaultKey::Claim("turn 99".into())]).await.unwrap();
            assert!(found.found[0].is_some());
            let lease = journal.lease(&acme(), &"run".into(), "me", Duration::from_mins(1)).await;
            assert!(lease.unwrap().fence.0.get() > 1, "fences continue");
            // Erasures in the copy also rewrite the key file of the earlier backup.
            let keys = std::fs::read(key_file_of(&folder.join("backup.db"))).unwrap();
            let erased = journal.forget(&acme(), &"notes".into(), None).await.unwrap();
            assert!(erased.unreached.is_empty(), "{erased:?}");
            if target.starts_with("postgres") {
                assert_ne!(std::fs::read(key_file_of(&folder.join("backup.db"))).unwrap(), keys);
            }
            let report = journal.verify(None, &|_| {}).await.unwrap();
            assert_eq!(report.broken, None, "{target}");
            journal.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_migration_leaves_nothing_and_can_be_repeated() {
    let folder = Folder::new("migrate-interrupted");
    let mut source = url(&folder.join("store.db"));
    let options = with_key("b");
    let journal = open(&source, &options).await.unwrap();
    fill(&journal).await;
    let many = (0..2000).map(|number| item("notes", &number.to_string(), 10));
    let append = many.fold(Append::new("notes"), Append::record);
    journal.commit(Batch::new("acme").append(append)).await.unwrap();
    journal.close().await.unwrap();
    for to_postgres in [true, false] {
        // The copy may end before the abort, so try until an abort comes first.
        for attempt in 0.. {
            let file = folder.join(format!("back-{attempt}.db"));
            let target = if to_postgres { self::database().await } else { url(&file) };
            abort_at(MigrationStep::Copy, &source, &target, &options).await;
            let part = folder.join(format!("back-{attempt}.db.part"));
            while part.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // A killed process leaves an unfinished file.
            std::fs::write(&part, b"unfinished").unwrap();
            let report = moved(&source, &target, &options).await;
            assert_eq!(part.exists(), to_postgres, "an unfinished file is replaced");
            if report.was_copied {
                source = target;
                break;
            }
        }
    }
    // The rows are committed before the copy is verified.
    let target = self::database().await;
    abort_at(MigrationStep::VerifyTarget, &source, &target, &options).await;
    assert!(!moved(&source, &target, &options).await.was_copied, "the copy is only verified");
}

/// Drops the future of a migration during a step, as Ctrl-C does.
async fn abort_at(at: MigrationStep, source: &str, target: &str, options: &Options) {
    let begun = std::sync::Arc::new(tokio::sync::Notify::new());
    let notify = std::sync::Arc::clone(&begun);
    let progress = move |step, _: f64| {
        if step == at {
            notify.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = begun.notified() => {}
        ended = migrate(source, target, options, &progress) => panic!("{ended:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_refuses_what_it_cannot_prove() {
    let folder = Folder::new("migrate-refused");
    let (file, database) = (folder.join("store.db"), database().await);
    let (options, to) = (with_key("c"), folder.join("to.db"));
    let journal = open(&url(&file), &options).await.unwrap();
    fill(&journal).await;

    // A process that executes a run, and one that writes during the copy.
    let time = Duration::from_mins(5);
    let lease = journal.lease(&acme(), &"run".into(), "node 1", time).await.unwrap();
    let error = refused(&url(&file), &database, &options).await;
    assert!(error.contains("is in use: node 1 executes the run run; stop all gateways"), "{error}");
    journal.release(&acme(), &"run".into(), lease.fence).await.unwrap();
    for writes_at in [MigrationStep::VerifySource, MigrationStep::Copy] {
        // If the write comes last, the target is not empty any more.
        let target = self::database().await;
        let was_written = AtomicBool::new(false);
        let (writer, runtime) = (journal.clone(), tokio::runtime::Handle::current());
        let number = if writes_at == MigrationStep::Copy { 51 } else { 50 };
        let writing = |step, _: f64| {
            if step == writes_at && !was_written.swap(true, Ordering::Relaxed) {
                let (writer, (sender, written)) = (writer.clone(), std::sync::mpsc::channel());
                runtime.spawn(async move {
                    capture(&writer, number).await;
                    sender.send(()).ok();
                });
                tokio::task::block_in_place(|| written.recv().unwrap());
            }
        };
        let outcome = migrate(&url(&file), &target, &options, &writing).await;
        let error = outcome.unwrap_err().to_string();
        let expected = "was written to during the migration; stop all gateways and agents";
        assert!(error.contains(expected), "{writes_at:?}: {error}");
    }
    journal.close().await.unwrap();

    // A wrong or missing key, and a source that does not exist.
    let wrong = migrate(&url(&file), &database, &with_key("d"), &|_, _| {}).await;
    assert!(matches!(wrong, Err(StoreError::WrongKey)), "{wrong:?}");
    let missing = migrate(&url(&file), &database, &Options::default(), &|_, _| {}).await;
    assert!(matches!(missing, Err(StoreError::KeyMissing)), "{missing:?}");
    let absent = migrate(&url(&to), &database, &options, &|_, _| {}).await;
    assert!(matches!(absent, Err(StoreError::NotFound { .. })), "{absent:?}");
    let same = refused(&url(&file), &url(&to), &options).await;
    assert!(same.contains("both stores of a migration are on SQLite; to copy"), "{same}");

    // All refusals above left the target empty.
    let no_create = Options { create: false, ..options.clone() };
    assert!(open(&database, &no_create).await.is_err());

    // A damaged source.
    let damaged = folder.join("damaged.db");
    std::fs::copy(&file, &damaged).unwrap();
    let db = rusqlite::Connection::open(&damaged).unwrap();
    db.execute("UPDATE records SET at = at + 1 WHERE seq = 1", []).unwrap();
    drop(db);
    let error = refused(&url(&damaged), &database, &options).await;
    assert!(error.contains("is damaged: "), "{error}");

    // A target that contains another store, or a store that was used since.
    open(&database, &options).await.unwrap().close().await.unwrap();
    let error = refused(&url(&file), &database, &options).await;
    assert!(error.contains("already contains a store; a migration needs an empty"), "{error}");
    let used = self::database().await;
    moved(&url(&file), &used, &options).await;
    let journal = open(&used, &options).await.unwrap();
    journal.fork(&acme(), &"talk".into(), Some(3), &"later".into()).await.unwrap();
    journal.close().await.unwrap();
    let error = refused(&url(&file), &used, &options).await;
    assert!(error.contains("already contains a store; a migration needs an empty"), "{error}");
    std::fs::write(&to, b"").unwrap();
    let error = refused(&database, &url(&to), &options).await;
    assert!(error.contains("to.db already contains a store"), "{error}");
}
