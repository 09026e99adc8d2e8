//! Invariant 6: forgetting destroys content. Afterwards, neither the database, the files beside it
//! nor a backup contains the forgotten content, its salts or its keys. The Journal stays valid and
//! records the erasure, and all other content stays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "forget/backups.rs"]
mod backups;
#[path = "forget/expiry.rs"]
mod expiry;
#[path = "forget/secrets.rs"]
mod secrets;

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use throughline_core::pack_events;
use throughline_core::{
    Append, Batch, Content, ElisionReason, LogId, LogOpening, NewRecord, NewVaultTurn, Record,
    Store, Tenant, VaultKey, kind,
};
use throughline_store::{Journal, MasterKey, Options, Retention, about_item, open, restore};
use throughline_testkit::{Folder, TestRng, cases, figure};

use crate::secrets::Secrets;

fn tenant() -> Tenant {
    Tenant::from("acme")
}

fn key(digits: &str) -> MasterKey {
    MasterKey::parse(&digits.repeat(32)).unwrap()
}

async fn opened(file: &Path, master_key: Option<MasterKey>) -> Journal {
    let options = Options { master_key, ..Options::default() };
    open(&format!("sqlite://{}", file.display()), &options).await.unwrap()
}

async fn assert_intact(journal: &Journal) {
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!(proof.broken, None);
}

/// Returns random text that occurs nowhere else.
fn text(dice: &mut TestRng, length: usize) -> String {
    (0..length)
        .map(|_| char::from(b'!' + u8::try_from(dice.below(90)).unwrap()))
        .collect::<String>()
        .replace(['"', '\\'], "~")
}

/// Returns the texts of an Item and of its events.
fn item(log: &str, number: u32) -> (String, String) {
    let mut dice = TestRng::new(u64::from(number) ^ ((log.len() as u64) << 20));
    let length = [40, 300, 3_000, 9_000][dice.below(4)];
    let item = format!("{{\"id\":\"{log}-{number}\",\"text\":\"{}\"}}", text(&mut dice, length));
    (item, text(&mut dice, 200))
}

/// Returns text that is large enough for a blob. Equal numbers give equal texts.
fn large(number: u64) -> String {
    text(&mut TestRng::new(number << 40), 40_000)
}

const SHARED: u64 = 1;
const UNSHARED: u64 = 2;

/// Writes two Threads with runs and turns. Their writes are interleaved, so that the Threads share
/// database pages. The Threads also share a blob. The first Thread has another blob of its own, and
/// a fork.
async fn write(journal: &Journal, items: u32) {
    let mut batch = Batch::new(tenant());
    for log in ["doomed", "other"] {
        let run = format!("{log}-run");
        batch = batch.append(Append::new(log).opening(LogOpening::thread()));
        batch = batch.append(Append::new(run).opening(LogOpening::run(log)));
    }
    journal.commit(batch).await.unwrap();
    for number in 0..items {
        for log in ["doomed", "other"] {
            let (item, events) = item(log, number);
            let about = about_item(&log.into(), &format!("{log}-{number}"));
            let mut batch = Batch::new(tenant())
                .append(
                    Append::new(log).record(NewRecord::new(kind::ITEM, item).about(about.clone())),
                )
                .append(
                    Append::new(format!("{log}-run"))
                        .record(pack_events([events.as_bytes()]).about(about.clone())),
                );
            batch.vault.push(NewVaultTurn {
                id: format!("turn-{log}-{number}").into(),
                parent: None,
                keys: vec![claim(log, number)],
                log: log.into(),
                prefix: None,
            });
            journal.commit(batch).await.unwrap();
        }
    }
    for (log, number) in [("doomed", SHARED), ("doomed", UNSHARED), ("other", SHARED)] {
        let record = NewRecord::new(kind::ITEM, large(number));
        let checkpoint = NewRecord::new(kind::CHECKPOINT, state(log, number));
        let append = Append::new(log).record(record).record(checkpoint);
        journal.commit(Batch::new(tenant()).append(append)).await.unwrap();
    }
    journal.fork(&tenant(), &"doomed".into(), None, &"fork".into()).await.unwrap();
    let append = Append::new("fork")
        .record(NewRecord::new(kind::ITEM, "the fork's own content"))
        .record(NewRecord::new(kind::CHECKPOINT, state("fork", 0)));
    journal.commit(Batch::new(tenant()).append(append)).await.unwrap();
}

/// Returns random content for a checkpoint.
fn state(log: &str, number: u64) -> String {
    text(&mut TestRng::new(number << 50 ^ log.len() as u64), 500)
}

fn claim(log: &str, number: u32) -> VaultKey {
    VaultKey::Claim(format!("claim {log} {number}").into())
}

async fn all(journal: &Journal, log: &str) -> Vec<Record> {
    journal.read(&tenant(), &LogId::from(log), 0, 10_000).await.unwrap()
}

fn is_gone(record: &Record, reason: ElisionReason) -> bool {
    record.content == Content::Gone(reason)
}

/// Asserts that the other Thread has lost no content.
async fn assert_other_is_intact(journal: &Journal, items: u32) {
    let records = all(journal, "other").await;
    for number in 0..items {
        let (item, _) = item("other", number);
        assert_eq!(records[number as usize].content, Content::Here(item.into()));
    }
    let shared =
        records.iter().filter(|record| record.content == Content::Here(large(SHARED).into()));
    assert_eq!(shared.count(), 1, "a large content of another thread was destroyed");
    let found = journal.find(&tenant(), &[claim("other", 0)]).await.unwrap().found;
    assert_eq!(found[0].as_ref().unwrap().turn.gone, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_content_is_in_no_file() {
    forget_everywhere(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_content_is_in_no_file_with_a_master_key() {
    forget_everywhere(Some(key("ab"))).await;
}

#[expect(clippy::too_many_lines, reason = "one scenario from the first write to the last search")]
async fn forget_everywhere(master_key: Option<MasterKey>) {
    let items = (cases(1000) / 25).clamp(40, 400);
    let folder = Folder::new("forget");
    let file = folder.join("store.db");
    let with = if master_key.is_some() { "with" } else { "without" };
    let journal = opened(&file, master_key.clone()).await;
    write(&journal, items).await;
    journal.backup(&folder.join("backup.db"), &|_| {}).await.unwrap();
    // Make a copy of the backup that is not registered in the store.
    let (backup, copy) = (folder.join("backup.db"), folder.join("copy.db"));
    std::fs::copy(&backup, &copy).unwrap();
    assert_intact(&journal).await;

    // Forget one Item: its text, its events, and every checkpoint that contains it.
    let mut secrets = Secrets::of(&file);
    secrets.gather("doomed", &[4]);
    secrets.gather("doomed-run", &[4]);
    let (text, events) = item("doomed", 3);
    secrets.add_text(text.as_bytes());
    secrets.add_text(events.as_bytes());
    secrets.add_text(state("doomed", SHARED).as_bytes());
    secrets.add_text(state("fork", 0).as_bytes());
    secrets.assert_search_works();
    let destroyed = journal.forget(&tenant(), &"doomed".into(), Some("doomed-3")).await.unwrap();
    assert!(destroyed.unreached.is_empty(), "{destroyed:?}");
    let (windows, searched) = secrets.assert_in_no_file(&folder);
    figure(
        &format!("one item forgotten, {with} a master key"),
        format!("0 of {windows} windows of 16 bytes in {searched} bytes of files"),
    );
    let records = all(&journal, "doomed").await;
    assert!(is_gone(&records[3], ElisionReason::Forgotten));
    assert!(!is_gone(&records[2], ElisionReason::Forgotten));
    assert!(is_gone(&all(&journal, "fork").await[3], ElisionReason::Forgotten), "a fork shares it");
    assert_intact(&journal).await;

    // Forget the whole Thread.
    let mut secrets = Secrets::of(&file);
    secrets.gather_all("doomed");
    secrets.gather_all("doomed-run");
    secrets.gather_blob(&large(UNSHARED));
    for number in 0..items {
        let (text, events) = item("doomed", number);
        secrets.add_text(text.as_bytes());
        secrets.add_text(events.as_bytes());
    }
    secrets.add_text(large(UNSHARED).as_bytes());
    secrets.assert_search_works();
    journal.forget(&tenant(), &"doomed".into(), None).await.unwrap();
    let (windows, searched) = secrets.assert_in_no_file(&folder);
    figure(
        &format!("a thread forgotten, {with} a master key"),
        format!("0 of {windows} windows of 16 bytes in {searched} bytes of files"),
    );
    for log in ["doomed", "doomed-run"] {
        let records = all(&journal, log).await;
        let records: Vec<_> =
            records.iter().filter(|record| *record.kind != *kind::FORGOTTEN).collect();
        assert!(
            records.iter().all(|record| is_gone(record, ElisionReason::Forgotten)),
            "{records:?}"
        );
        let head = journal.log(&tenant(), &log.into()).await.unwrap().unwrap();
        assert_eq!(head.gone, Some(ElisionReason::Forgotten));
    }
    let fork = all(&journal, "fork").await;
    let contents: Vec<_> = fork.iter().filter_map(|record| record.content.bytes()).collect();
    assert!(contents.iter().any(|bytes| &***bytes == b"the fork's own content"));
    assert_eq!(journal.checkpoint(&tenant(), &"fork".into(), u64::MAX).await.unwrap(), None);
    let found = journal.find(&tenant(), &[claim("doomed", 0)]).await.unwrap().found;
    assert_eq!(found[0].as_ref().unwrap().turn.gone, Some(ElisionReason::Forgotten));
    assert_eq!(journal.stats().await.unwrap().blobs, 1);
    assert_other_is_intact(&journal, items).await;
    assert_intact(&journal).await;
    journal.close().await.unwrap();
    secrets.assert_in_no_file(&folder);

    // The backup and its copies open only with the key file, which no longer has the forgotten
    // keys. Everything else is restored and can be verified, including the erasure records.
    let refused = open(&format!("sqlite://{}", copy.display()), &Options::default()).await;
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("is a backup, which opens only with its key file"), "{refused}");
    let alone = restore(&copy, None, &folder.join("alone.db"), &Options::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(alone.contains("copy.db.keys does not exist"), "{alone}");
    let keys = throughline_store::key_file_of(&backup);
    for (number, from) in [&backup, &copy].into_iter().enumerate() {
        let to = folder.join(format!("restored-{number}.db"));
        let options = Options { master_key: master_key.clone(), ..Options::default() };
        let restored = restore(from, Some(&keys), &to, &options).await.unwrap();
        assert_eq!(restored.without_key, 0, "{restored:?}");
        assert!(restored.gone > u64::from(2 * items), "{restored:?}");
        secrets.assert_in_no_file(&folder);
        let store = opened(&to, master_key.clone()).await;
        assert_other_is_intact(&store, items).await;
        let records = all(&store, "doomed").await;
        let mut records = records.iter().filter(|record| *record.kind != *kind::FORGOTTEN);
        assert!(records.all(|record| is_gone(record, ElisionReason::Forgotten)));
        assert_intact(&store).await;
        // The restored store accepts writes like any other store.
        let record = NewRecord::new(kind::ITEM, "goes on");
        store
            .commit(Batch::new(tenant()).append(Append::new("other").record(record)))
            .await
            .unwrap();
        assert_intact(&store).await;
        store.close().await.unwrap();
        let (windows, searched) = secrets.assert_in_no_file(&folder);
        figure(
            &format!("a copy of a backup after forgetting, {with} a master key"),
            format!("0 of {windows} windows in {searched} bytes, {} records", restored.records),
        );
        if number > 0 {
            std::fs::remove_file(&to).unwrap();
        }
    }
    #[cfg(unix)]
    for name in ["store.db", "backup.db", "backup.db.keys", "restored-0.db"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} is readable by others");
    }
}

/// A backup made by an earlier version contains its own salts and opens as a store. Forgetting
/// therefore destroys the salts in the backup file itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_reaches_backups_of_earlier_versions() {
    let folder = Folder::new("old-backup");
    let (file, old) = (folder.join("store.db"), folder.join("old.db"));
    let journal = opened(&file, None).await;
    write(&journal, 5).await;
    journal.close().await.unwrap();
    std::fs::copy(&file, &old).unwrap();
    let name = format!("backup {}", std::path::absolute(&old).unwrap().display());
    let register = "INSERT INTO kept (name, value) VALUES (?1, x'')";
    Connection::open(&file).unwrap().execute(register, [name]).unwrap();
    let journal = opened(&file, None).await;
    let mut secrets = Secrets::of(&file);
    secrets.gather_all("doomed");
    let destroyed = journal.forget(&tenant(), &"doomed".into(), None).await.unwrap();
    assert!(destroyed.unreached.is_empty(), "{destroyed:?}");
    secrets.assert_in_no_file(&folder);
    assert!(!folder.join("old.db-reserve").exists(), "only a store in use needs a reserve");
    let backup = opened(&old, None).await;
    assert_other_is_intact(&backup, 5).await;
    assert_intact(&backup).await;
    let to = folder.join("new.db");
    let refused = restore(&old, None, &to, &Options::default()).await.unwrap_err().to_string();
    assert!(refused.contains("is a store, or a backup of an earlier version"), "{refused}");
}

/// A key file that is truncated, modified or from another backup is rejected, and nothing is
/// restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_or_foreign_key_file_is_refused() {
    let folder = Folder::new("key-files");
    let journal = opened(&folder.join("store.db"), None).await;
    write(&journal, 5).await;
    let (one, two) = (folder.join("one.db"), folder.join("two.db"));
    journal.backup(&one, &|_| {}).await.unwrap();
    let apart = folder.join("elsewhere.keys");
    journal.backup_with_keys(&two, &apart, &|_| {}).await.unwrap();
    let to = folder.join("new.db");
    let refusal = async |keys: Option<&Path>| {
        let problem = restore(&one, keys, &to, &Options::default()).await.unwrap_err().to_string();
        assert!(!to.exists());
        problem
    };
    assert!(refusal(Some(&apart)).await.contains("is the key file of a different backup, not of"));
    assert!(refusal(Some(&one)).await.contains("is not a backup key file"));
    let keys = throughline_store::key_file_of(&one);
    let key_bytes = std::fs::read(&keys).unwrap();
    for length in [key_bytes.len() - 1, key_bytes.len() / 2, 40] {
        std::fs::write(&keys, &key_bytes[..length]).unwrap();
        assert!(refusal(None).await.contains("is truncated or was modified"), "{length}");
    }
    let mut changed = key_bytes.clone();
    let index = changed.len() / 2;
    changed[index] = if changed[index] == b'0' { b'1' } else { b'0' };
    std::fs::write(&keys, &changed).unwrap();
    assert!(refusal(None).await.contains("is truncated or was modified"));
    // A damaged key file is not rewritten either, and is reported as unreached.
    let destroyed = journal.forget(&tenant(), &"doomed".into(), None).await.unwrap();
    assert_eq!(destroyed.unreached, [keys.display().to_string().into()]);
    std::fs::write(&keys, &key_bytes).unwrap();
    let restored = restore(&two, Some(&apart), &to, &Options::default()).await.unwrap();
    assert_eq!(restored.without_key, 0);
    // The next process that opens the store completes the erasure.
    journal.close().await.unwrap();
    opened(&folder.join("store.db"), None).await.close().await.unwrap();
    let restored =
        restore(&one, None, &folder.join("one-again.db"), &Options::default()).await.unwrap();
    assert_eq!(restored.without_key, 0);
    assert!(restored.gone > 5, "{restored:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silently_deleted_salt_is_found() {
    let folder = Folder::new("forget-silently");
    let file = folder.join("store.db");
    let journal = opened(&file, None).await;
    write(&journal, 5).await;
    let db = Connection::open(&file).unwrap();
    let third = "SELECT r.id FROM records r JOIN logs l ON l.id = r.log WHERE l.name = 'doomed' AND r.seq = 3";
    let third: i64 = db.query_row(third, [], |row| row.get(0)).unwrap();
    db.execute("DELETE FROM salts WHERE record = ?1", [third]).unwrap();
    let broken = journal.verify(None, &|_| {}).await.unwrap().broken.unwrap();
    assert_eq!(broken.place, "record 3 of doomed (tenant acme)");
    // Marking the record as forgotten does not hide the change.
    let mark = "UPDATE records SET content = NULL, erased = 1 WHERE id = ?1";
    db.execute(mark, [third]).unwrap();
    let broken = journal.verify(None, &|_| {}).await.unwrap().broken.unwrap();
    assert_eq!(broken.place, "record 3 of doomed (tenant acme)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_content_is_reported_as_expired() {
    let folder = Folder::new("expire");
    let file = folder.join("store.db");
    let journal = opened(&file, None).await;
    write(&journal, 20).await;
    let mut secrets = Secrets::of(&file);
    for log in ["doomed", "doomed-run", "other", "other-run"] {
        secrets.gather_all(log);
    }
    let updated = journal.log(&tenant(), &"fork".into()).await.unwrap().unwrap().updated;
    let now = updated + SignedDuration::from_hours(1);
    let retention = |seconds| Retention {
        older_than: Some(std::time::Duration::from_secs(seconds)),
        at_most_bytes: None,
    };
    let unexpired =
        journal.prune(&tenant(), (retention(7200), &|_| false), now, &|_| {}).await.unwrap();
    assert_eq!(unexpired.records, 0);
    let destroyed =
        journal.prune(&tenant(), (retention(60), &|_| false), now, &|_| {}).await.unwrap();
    assert!(destroyed.records > 80, "{destroyed:?}");
    let (windows, _) = secrets.assert_in_no_file(&folder);
    for log in ["doomed", "other-run", "fork"] {
        let records = all(&journal, log).await;
        let mut records = records.iter().filter(|record| *record.kind != *kind::EXPIRED);
        assert!(records.all(|record| is_gone(record, ElisionReason::Expired)), "{log}");
    }
    let found = journal.find(&tenant(), &[claim("doomed", 0)]).await.unwrap().found;
    assert_eq!(found[0].as_ref().unwrap().turn.gone, Some(ElisionReason::Expired));
    assert_intact(&journal).await;
    assert!(Timestamp::UNIX_EPOCH < updated);
    figure("threads expired", format!("0 of {windows} windows of their salts are in any file"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_removes_old_salts_from_all_files() {
    let folder = Folder::new("rotate");
    let file = folder.join("store.db");
    let items = (cases(1000) / 25).clamp(40, 400);
    let journal = opened(&file, None).await;
    write(&journal, items).await;
    let mut count = 0;
    for digits in ["ab", "cd"] {
        let mut secrets = Secrets::of(&file);
        secrets.gather_salts();
        secrets.assert_search_works();
        let rotated = journal.rotate(&key(digits), &|_| {}).await.unwrap();
        assert!(rotated.wrapped > u64::from(items) && !rotated.is_behind);
        count += secrets.assert_in_no_file(&folder).0;
        assert_other_is_intact(&journal, items).await;
        assert_intact(&journal).await;
    }
    // Content that is forgotten now leaves no wrapped salt either.
    let mut secrets = Secrets::of(&file);
    secrets.gather_all("doomed");
    journal.forget(&tenant(), &"doomed".into(), None).await.unwrap();
    count += secrets.assert_in_no_file(&folder).0;
    journal.close().await.unwrap();
    figure("salts after new master keys", format!("0 of {count} windows of old ones in any file"));
}

#[tokio::test]
async fn item_is_forgotten_despite_a_damaged_record() {
    let folder = Folder::new("damaged");
    let file = folder.join("store.db");
    let journal = opened(&file, None).await;
    let one = r#"{"id":"one","text":"a"}"#;
    let append = Append::new("thread").opening(LogOpening::thread());
    let append =
        append.record(NewRecord::new(kind::ITEM, "{}")).record(NewRecord::new(kind::ITEM, one));
    journal.commit(Batch::new(tenant()).append(append)).await.unwrap();
    let damage = Connection::open(&file).unwrap();
    damage.execute("UPDATE records SET content = x'00' WHERE seq = 1", []).unwrap();
    let outcome = journal.forget(&tenant(), &"thread".into(), Some("one")).await.unwrap();
    assert_eq!((outcome.records, outcome.damaged), (1, 1));
    // A missing Item may be in a record that cannot be decrypted.
    let outcome = journal.forget(&tenant(), &"thread".into(), Some("two")).await;
    let expected = "the store is damaged: item two was not found; \
                  damaged records that could not be searched: 1";
    assert_eq!(outcome.unwrap_err().to_string(), expected);
}

/// Captures a turn whose records share one row.
async fn capture_pack(journal: &Journal, log: &str) {
    let mut dice = TestRng::new(77);
    let mut append = Append::new(log).opening(LogOpening::thread());
    for id in ["a", "b", "c"] {
        let content = format!("{{\"id\":\"{id}\",\"text\":\"{}\"}}", text(&mut dice, 900));
        append = append.record(NewRecord::new(kind::ITEM, content));
    }
    let mut batch = Batch::new(tenant()).append(append);
    let (id, keys) = (format!("turn-{log}").into(), vec![claim(log, 1)]);
    batch.vault.push(NewVaultTurn { id, parent: None, keys, log: log.into(), prefix: None });
    journal.commit(batch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_item_of_a_pack_is_destroyed_in_every_file() {
    let folder = Folder::new("forget-pack");
    let file = folder.join("store.db");
    let journal = opened(&file, None).await;
    capture_pack(&journal, "packed").await;
    let mut secrets = Secrets::of(&file);
    let before = secrets.pack("packed");
    secrets.gather_packed_salt("packed", 2);
    let outcome = journal.forget(&tenant(), &"packed".into(), Some("b")).await.unwrap();
    assert_eq!(outcome.records, 1);
    let after = secrets.pack("packed");
    assert!(after.len() + 900 < before.len());
    secrets.add_difference(&before, &after);
    secrets.assert_in_no_file(&folder.join(""));
    let records = journal.read(&tenant(), &"packed".into(), 0, 3).await.unwrap();
    let is_here: Vec<bool> =
        records.iter().map(|record| record.content.bytes().is_some()).collect();
    assert_eq!(is_here, [true, false, true]);
    assert_intact(&journal).await;
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_with_a_damaged_pack_is_forgotten() {
    let folder = Folder::new("forget-damaged-pack");
    let file = folder.join("store.db");
    let journal = opened(&file, None).await;
    capture_pack(&journal, "packed").await;
    let append = Append::new("packed").record(NewRecord::new(kind::ITEM, "after the pack"));
    journal.commit(Batch::new(tenant()).append(append)).await.unwrap();
    let db = Connection::open(&file).unwrap();
    db.execute("UPDATE records SET content = CAST(x'ff' || content AS BLOB) WHERE span > 0", [])
        .unwrap();
    // The records of the pack are damaged, and the record after it is not.
    let read = journal.read(&tenant(), &"packed".into(), 3, 1).await.unwrap();
    assert_eq!(read[0].content.bytes().unwrap(), "after the pack");
    let refused = journal.read(&tenant(), &"packed".into(), 0, 1).await.unwrap_err();
    assert!(refused.to_string().contains("damaged"), "{refused}");
    assert!(journal.verify(None, &|_| {}).await.unwrap().broken.is_some());
    journal.forget(&tenant(), &"packed".into(), None).await.unwrap();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    // Only the erasure record has a salt.
    assert_eq!(count("SELECT count(*) FROM salts"), 1);
    journal.close().await.unwrap();
}
