//! Tests of file system and database faults. Each error states what failed, where, and what to do,
//! and no acknowledged write is lost.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use throughline_core::{
    Append, Batch, Content, LogId, LogOpening, NewRecord, Record, Store, StoreError, Tenant,
};
use throughline_store::{Journal, KeyLimits, MasterKey, Options, open};
use throughline_testkit::{figure, on_small_disk};

const LOOK: Duration = Duration::from_millis(10);

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(name);
    // Ignore errors, because the folder does not exist before the first run.
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("store.db")
}

async fn store(path: &Path, options: &Options) -> Result<Journal, StoreError> {
    open(&format!("sqlite://{}", path.display()), options).await
}

async fn new_store(path: &Path) -> Journal {
    store(path, &Options::default()).await.unwrap()
}

/// Returns the error message of a store that fails to open.
async fn refusal(path: &Path, options: &Options) -> String {
    match store(path, options).await {
        Ok(_) => panic!("it opens"),
        Err(error) => error.to_string(),
    }
}

fn with_key(digit: &str) -> Options {
    let master_key = Some(MasterKey::parse(&digit.repeat(64)).unwrap());
    Options { master_key, ..Options::default() }
}

fn impatient() -> Options {
    Options { patience: Duration::from_millis(30), ..Options::default() }
}

async fn begin(journal: &Journal, name: &str) {
    let append = Append::new(name).opening(LogOpening::thread());
    journal.commit(Batch::new("us").append(append)).await.unwrap();
}

/// Adds an Item and returns its sequence number.
async fn add(journal: &Journal, name: &str, content: Vec<u8>) -> Result<u64, StoreError> {
    let append = Append::new(name).record(NewRecord::new("item", content));
    Ok(journal.commit(Batch::new("us").append(append)).await?.written[0].last)
}

async fn read(journal: &Journal, name: &str) -> Result<Vec<Record>, StoreError> {
    journal.read(&Tenant::from("us"), &LogId::from(name), 0, u32::MAX).await
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// Returns the content that the tests write as Item `number`.
fn content(number: u64) -> Vec<u8> {
    format!("item {number} ").into_bytes().repeat(300)
}

/// Asserts that exactly the acknowledged Items exist, in order.
async fn assert_kept(journal: &Journal, acknowledged: u64) {
    let records = read(journal, "thread").await.unwrap();
    assert_eq!(records.len() as u64, acknowledged);
    for (number, record) in (1..).zip(records) {
        assert_eq!((record.seq, record.content), (number, Content::Here(content(number).into())));
    }
}

#[test]
fn a_full_disk_loses_nothing_and_recovers() {
    on_small_disk("a_full_disk_loses_nothing_and_recovers", 4096, |disk| {
        block_on(async {
            let ballast = disk.join("ballast");
            std::fs::write(&ballast, vec![0; 1 << 20]).unwrap();
            let journal = new_store(&disk.join("store.db")).await;
            begin(&journal, "thread").await;
            let (mut acknowledged, mut before) = (0, 0);
            for round in 0..2 {
                let problem = loop {
                    match add(&journal, "thread", content(acknowledged + 1)).await {
                        Ok(number) => {
                            acknowledged += 1;
                            assert_eq!(number, acknowledged);
                        }
                        Err(error) => break error,
                    }
                };
                assert_eq!(
                    problem.to_string(),
                    "the store is full; free some disk space (no restart is needed)"
                );
                figure(
                    &format!("items acknowledged when the disk is full, round {round}"),
                    acknowledged,
                );
                assert!(acknowledged > before + 20, "{acknowledged} after {before}");
                before = acknowledged;
                // While the disk is full, all records can be read, and all concurrent writers
                // receive the error.
                assert_kept(&journal, acknowledged).await;
                let mut writers = tokio::task::JoinSet::new();
                for _ in 0..8 {
                    let journal = journal.clone();
                    writers.spawn(async move { add(&journal, "thread", vec![7; 3 << 20]).await });
                }
                for outcome in writers.join_all().await {
                    assert!(matches!(outcome, Err(StoreError::Full)), "{outcome:?}");
                }
                assert_kept(&journal, acknowledged).await;
                if round == 0 {
                    std::fs::remove_file(&ballast).unwrap();
                    // Retry, because the store rejects a batch that recently did not fit without
                    // trying it.
                    let number = loop {
                        match add(&journal, "thread", content(acknowledged + 1)).await {
                            Err(StoreError::Full) => tokio::time::sleep(LOOK).await,
                            outcome => break outcome.unwrap(),
                        }
                    };
                    acknowledged += 1;
                    assert_eq!(number, acknowledged);
                }
            }
            assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
            // Ignore the error if the disk is too full to sign on close.
            drop(journal.close().await);
            let other = disk.with_extension("db");
            drop(std::fs::remove_file(&other));
            std::fs::copy(disk.join("store.db"), &other).unwrap();
            if disk.join("store.db-wal").exists() {
                let wal = disk.with_extension("db-wal");
                std::fs::copy(disk.join("store.db-wal"), wal).unwrap();
            }
            let journal = new_store(&other).await;
            assert_kept(&journal, acknowledged).await;
            assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
            journal.close().await.unwrap();
            for extension in ["db", "db-wal", "db-shm"] {
                drop(std::fs::remove_file(disk.with_extension(extension)));
            }
        });
    });
}

/// Fills the disk to the last byte.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        while file.write(&vec![1; size]).is_ok_and(|written| written > 0) {}
    }
}

/// Forgetting works on a full disk, whether the process opened the store before or after the disk
/// filled up.
#[test]
fn forgetting_works_on_a_full_disk() {
    on_small_disk("forgetting_works_on_a_full_disk", 12288, |disk| {
        block_on(async {
            let path = disk.join("store.db");
            let mut journal = new_store(&path).await;
            for thread in ["doomed", "large", "thread"] {
                begin(&journal, thread).await;
                for number in 1..=50 {
                    add(&journal, thread, content(number)).await.unwrap();
                }
            }
            journal.close().await.unwrap();
            journal = new_store(&path).await;
            for (round, thread) in ["doomed", "large"].into_iter().enumerate() {
                fill(&disk.join(format!("ballast-{round}")));
                let problem = loop {
                    match add(&journal, "thread", vec![7; 40_000]).await {
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                };
                assert!(matches!(problem, StoreError::Full), "{problem:?}");
                if round == 1 {
                    drop(journal.close().await);
                    fill(&disk.join("ballast-again"));
                    journal = new_store(&path).await;
                }
                let us = Tenant::from("us");
                let destroyed = journal.forget(&us, &thread.into(), None).await.unwrap();
                assert_eq!(destroyed.records, 50, "{thread}");
                let records = read(&journal, thread).await.unwrap();
                let is_gone = |record: &&Record| record.content.bytes().is_none();
                assert_eq!(records.iter().filter(is_gone).count(), 50, "{thread}");
                assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
                figure(
                    &format!("records that say what was forgotten on a full disk, {thread}"),
                    records.len() - 50,
                );
            }
            let kept = read(&journal, "thread").await.unwrap();
            for (number, record) in (1..=50).zip(kept) {
                assert_eq!(record.content, Content::Here(content(number).into()));
            }
            drop(journal.close().await);
        });
    });
}

#[test]
fn read_only_disk_is_reported() {
    on_small_disk("read_only_disk_is_reported", 8192, |disk| {
        block_on(async {
            let (path, new) = (disk.join("store.db"), disk.join("new.db"));
            let journal = new_store(&path).await;
            begin(&journal, "thread").await;
            journal.close().await.unwrap();
            drop(journal);
            // The writer and the readers close their files now or shortly after, so retry.
            let remount = || {
                let mut mount = std::process::Command::new("mount");
                mount.args(["-o", "remount,ro"]).arg(disk).status().unwrap().success()
            };
            while !remount() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for path in [path, new] {
                assert_eq!(
                    refusal(&path, &Options::default()).await,
                    format!(
                        "{} is read-only; change its permissions or choose another store",
                        path.display()
                    )
                );
            }
        });
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_file_is_reported_and_recovers() {
    let path = file("locked");
    let journal = store(&path, &impatient()).await.unwrap();
    begin(&journal, "thread").await;
    add(&journal, "thread", content(1)).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let expected =
        format!("{} is locked by another program; close that program or try again", path.display());
    assert_eq!(add(&journal, "thread", content(2)).await.unwrap_err().to_string(), expected);
    let time = Duration::from_secs(1);
    let lease = journal.lease(&"us".into(), &"thread".into(), "we", time).await;
    assert_eq!(lease.unwrap_err().to_string(), expected);
    assert_eq!(refusal(&path, &impatient()).await, expected);
    // Reads do not wait for the lock.
    assert_kept(&journal, 1).await;
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(add(&journal, "thread", content(2)).await.unwrap(), 2);
    assert_kept(&journal, 2).await;
}

/// The verification of one tenant covers the tenant's own chains and index rows, and reports
/// nothing about other tenants.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_verification_covers_only_its_chains_and_rows() {
    let path = file("tenants");
    let journal = new_store(&path).await;
    for (tenant, count) in [("us", 3), ("them", 5)] {
        let mut append = Append::new("thread").opening(LogOpening::thread());
        for number in 1..=count {
            append = append.record(NewRecord::new("item", content(number)));
        }
        journal.commit(Batch::new(tenant).append(append)).await.unwrap();
        journal.create_api_key(&tenant.into(), "key", &KeyLimits::default()).await.unwrap();
    }
    let (tenant_a, tenant_b) = (Tenant::from("us"), Tenant::from("them"));
    let proof = journal.verify_tenant(&tenant_a).await.unwrap();
    assert_eq!((proof.records, proof.segments, proof.broken), (4, 1, None));
    assert_eq!(journal.verify_tenant(&"missing".into()).await.unwrap().records, 0);
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().records, 10);
    // Each change is undone before the next. Internal values belong to no tenant.
    for (change, back, place) in [
        ("UPDATE api_keys SET label = 'x'", "UPDATE api_keys SET label = 'key'", "api_keys"),
        ("UPDATE logs SET status = 'x'", "UPDATE logs SET status = NULL", "logs"),
    ] {
        let of_tenant_b = "WHERE tenant = (SELECT id FROM tenants WHERE name = 'them')";
        let db = Connection::open(&path).unwrap();
        assert!(db.execute(&format!("{change} {of_tenant_b}"), []).unwrap() > 0, "{change}");
        assert_eq!(journal.verify_tenant(&tenant_a).await.unwrap().broken, None, "{change}");
        for proof in [journal.verify_tenant(&tenant_b).await, journal.verify(None, &|_| {}).await] {
            let broken = proof.unwrap().broken.unwrap();
            assert_eq!(broken.place, format!("the rows of {place} (tenant them)"));
        }
        db.execute(&format!("{back} {of_tenant_b}"), []).unwrap();
    }
    let small = Connection::open(&path).unwrap();
    small.execute("INSERT INTO kept (name, value) VALUES ('extra', x'00')", []).unwrap();
    assert_eq!(journal.verify_tenant(&tenant_a).await.unwrap().broken, None);
    let broken = journal.verify(None, &|_| {}).await.unwrap().broken.unwrap();
    assert_eq!(broken.place, "the rows of kept");
    small.execute("DELETE FROM kept WHERE name = 'extra'", []).unwrap();
    let damage = "UPDATE records SET content = x'00' WHERE tenant =
                  (SELECT id FROM tenants WHERE name = 'them') AND seq = 2";
    assert_eq!(Connection::open(&path).unwrap().execute(damage, []).unwrap(), 1);
    assert_eq!(journal.verify_tenant(&tenant_a).await.unwrap().broken, None);
    for proof in [journal.verify_tenant(&tenant_b).await, journal.verify(None, &|_| {}).await] {
        let place = proof.unwrap().broken.unwrap().place;
        assert_eq!(place, "record 2 of thread (tenant them)");
    }
}

/// A lease lasts no longer than its duration, even if it was taken while the clock was an hour
/// ahead.
#[tokio::test(flavor = "multi_thread")]
async fn lease_from_a_fast_clock_expires() {
    let path = file("clock");
    let journal = new_store(&path).await;
    let (tenant, time) = (Tenant::from("us"), Duration::from_secs(15));
    let run = Append::new("run").opening(LogOpening::run("thread")).status("running");
    let thread = Append::new("thread").opening(LogOpening::thread());
    journal.commit(Batch::new("us").append(thread).append(run)).await.unwrap();
    for log in ["thread", "run"] {
        journal.lease(&tenant, &log.into(), "holder", time).await.unwrap();
        let renewed = journal.lease(&tenant, &log.into(), "holder", time).await.unwrap();
        journal.renew(&tenant, &log.into(), renewed.fence, time).await.unwrap();
    }
    let held = |outcome: Result<u64, StoreError>| match outcome {
        Err(StoreError::Held { owner, left_ms, .. }) => {
            assert!(left_ms <= 15_000, "{left_ms}");
            owner.to_string()
        }
        outcome => panic!("{outcome:?}"),
    };
    assert_eq!(held(add(&journal, "thread", content(1)).await), "holder");
    assert_eq!(journal.stale_runs(Duration::ZERO, 0, 9).await.unwrap(), []);

    let set = |until: &str| {
        let other = Connection::open(&path).unwrap();
        other.execute(&format!("UPDATE leases SET until = {until}"), []).unwrap();
    };
    set("until + 3600000");
    assert_eq!(add(&journal, "thread", content(1)).await.unwrap(), 1);
    let found = journal.stale_runs(Duration::ZERO, 0, 9).await.unwrap();
    assert_eq!(found.iter().map(|found| &*found.run.0).collect::<Vec<_>>(), ["run"]);
    let taken = journal.lease(&tenant, &"thread".into(), "next", time).await.unwrap();
    assert_eq!(held(add(&journal, "thread", content(2)).await), "next");
    journal.release(&tenant, &"thread".into(), taken.fence).await.unwrap();

    // A long lease keeps its duration. The lease of an earlier version has no stored duration.
    let hour = Duration::from_hours(1);
    journal.lease(&tenant, &"thread".into(), "holder", hour).await.unwrap();
    let refused = journal.lease(&tenant, &"thread".into(), "next", time).await;
    assert!(matches!(refused, Err(StoreError::Held { .. })), "{refused:?}");
    let other = Connection::open(&path).unwrap();
    other.execute("UPDATE leases SET owner = 'holder', until = until + 9000", []).unwrap();
    let refused = journal.lease(&tenant, &"thread".into(), "next", time).await;
    assert!(matches!(refused, Err(StoreError::Held { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_or_missing_key_is_rejected_unchanged() {
    let path = file("keys");
    let journal = store(&path, &with_key("a")).await.unwrap();
    begin(&journal, "thread").await;
    add(&journal, "thread", content(1)).await.unwrap();
    journal.close().await.unwrap();
    let wrong = "the master key does not match this store; use the key that encrypted the store";
    let missing =
        "this store is encrypted; provide its master key in a file or an environment variable";
    for _ in 0..2 {
        assert_eq!(refusal(&path, &with_key("b")).await, wrong);
        assert_eq!(refusal(&path, &Options::default()).await, missing);
    }
    let journal = store(&path, &with_key("a")).await.unwrap();
    assert_kept(&journal, 1).await;
    let short = MasterKey::parse("abc").map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        short,
        "a master key is 64 hexadecimal digits; create one with `openssl rand -hex 32`"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_schema_is_rejected() {
    let path = file("newer");
    new_store(&path).await.close().await.unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
    assert_eq!(
        refusal(&path, &Options::default()).await,
        "the store has schema version 7, but this program supports versions up to 3; upgrade \
         Throughline"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn open_rejects_non_store_files_untouched() {
    let path = file("strange");
    let text =
        b"This is a letter, and it is long enough to be taken for a page of something. ".repeat(99);
    std::fs::write(&path, &text).unwrap();
    let expected =
        format!("{} is not a database; choose a different file for the store", path.display());
    assert_eq!(refusal(&path, &Options::default()).await, expected);
    assert_eq!(std::fs::read(&path).unwrap(), text);
    std::fs::remove_file(&path).unwrap();

    // A database of another application, with any version number.
    let expected = format!(
        "{} is another program's database; choose a different file for the store",
        path.display()
    );
    for version in [0, 1, 2] {
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE IF NOT EXISTS notes (text)").unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(refusal(&path, &Options::default()).await, expected);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_report_a_destroyed_header_as_damage() {
    let path = file("header");
    let journal = new_store(&path).await;
    begin(&journal, "thread").await;
    add(&journal, "thread", content(1)).await.unwrap();
    // After this checkpoint, the writer reads the header from the file again.
    let other = Connection::open(&path).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(other);
    let write_header = |header: &[u8]| {
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, header).unwrap();
    };
    let intact = std::fs::read(&path).unwrap();
    write_header(&[0; 100]);
    let error = add(&journal, "thread", content(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    let error = journal.probe().await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    // The open connection keeps reporting the damage, so the store must be opened again.
    write_header(&intact[..100]);
    drop(journal.close().await);
    let journal = new_store(&path).await;
    add(&journal, "thread", content(2)).await.unwrap();
    assert_kept(&journal, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_folder_is_created_or_reported() {
    let path = file("folders").with_file_name("new").join("newer").join("store.db");
    let looking = Options { create: false, ..Options::default() };
    assert_eq!(refusal(&path, &looking).await, format!("there is no store {}", path.display()));
    new_store(&path).await.close().await.unwrap();
    store(&path, &looking).await.unwrap().close().await.unwrap();
    // The parent in this path is a file, not a folder.
    let path = path.join("store.db");
    assert_eq!(
        refusal(&path, &Options::default()).await,
        format!("cannot reach {}: Not a directory (os error 20)", path.display())
    );
    let outcome = open("sqlite://", &Options::default()).await.map(|_| ());
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "the store URL has no file name; use sqlite://file.db"
    );
    let outcome = open("mysql://host/name", &Options::default()).await.map(|_| ());
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "\"mysql\" is not a supported store type; use sqlite://file.db or \
         postgres://user@host/database"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_page_affects_only_its_own_records() {
    const THREADS: u32 = 40;
    let path = file("damaged");
    let journal = new_store(&path).await;
    for thread in 0..THREADS {
        let name = format!("thread {thread}");
        begin(&journal, &name).await;
        for number in 0..10 {
            add(&journal, &name, content(number)).await.unwrap();
        }
    }
    journal.close().await.unwrap();
    drop(journal);
    let original = std::fs::read(&path).unwrap();
    let size = usize::from(u16::from_be_bytes([original[16], original[17]]));
    let pages = original.len() / size;
    let mut damaged = false;
    for page in pages / 2..pages {
        let copy = path.with_file_name(format!("page {page}.db"));
        let mut bytes = original.clone();
        bytes[page * size..(page + 1) * size].fill(0xff);
        std::fs::write(&copy, &bytes).unwrap();
        let Ok(journal) = store(&copy, &Options::default()).await else { continue };
        let expected = format!(
            "the store is damaged: cannot read a page of {}; restore a backup, or export the \
             readable data",
            copy.display()
        );
        let (mut intact, mut lost) = (0, 0);
        for thread in 0..THREADS {
            match read(&journal, &format!("thread {thread}")).await {
                Ok(records) if records.len() == 10 => intact += 1,
                Err(error) if error.to_string() == expected => lost += 1,
                Ok(_) | Err(_) => {}
            }
        }
        if lost > 0 && intact > 0 {
            figure("threads read beside a damaged page", format!("{intact} of {THREADS}"));
            let proof = journal.verify(None, &|_| {}).await.unwrap();
            assert!(proof.broken.is_some());
            damaged = true;
            break;
        }
    }
    assert!(damaged, "no page of {pages} affected only some threads");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_never_contain_the_password() {
    for url in ["postgres://user:secret@127.0.0.1:1/name", "postgresql://user:secret@127.0.0.1:1/n"]
    {
        let problem = open(url, &impatient()).await.map(|_| ()).unwrap_err();
        let message = format!("{problem} {problem:?}");
        assert!(!message.contains("secret"), "{message}");
        assert!(message.contains("127.0.0.1:1"), "{message}");
    }
}
