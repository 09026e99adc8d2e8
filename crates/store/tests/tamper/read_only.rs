//! Tests of read-only stores: verification leaves the evidence and all other files unchanged.

use std::path::Path;

use rusqlite::Connection;
use throughline_core::{Append, Batch, LogOpening, NewRecord, Store as _, StoreError};
use throughline_store::{Options, Warning, open};
use throughline_testkit::Folder;

use crate::{opened, proof_of_read_only, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_copy_is_verified_unchanged() {
    let folder = Folder::new("tamper-evidence");
    let file = folder.join("store.db");
    store::write(&file).await;
    let evidence = folder.join("evidence");
    std::fs::create_dir(&evidence).unwrap();
    let copy = evidence.join("what? #1 100%.db");
    std::fs::copy(&file, &copy).unwrap();
    make_read_only(&copy, 0o444);
    make_read_only(&evidence, 0o555);
    let before = std::fs::read(&copy).unwrap();
    let proof = proof_of_read_only(&copy).await.unwrap();
    assert_eq!((proof.broken, proof.warnings), (None, Vec::new()));
    assert_eq!(proof.tables.len(), 13, "{:?}", proof.tables);
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    let beside = std::fs::read_dir(&evidence).unwrap().count();
    assert_eq!(beside, 1, "no file was created beside it");
    let options = Options { read_only: true, ..store::options() };
    let journal = open(&format!("sqlite://{}", copy.display()), &options).await.unwrap();
    let batch = Batch::new("one").append(Append::new("new").opening(LogOpening::thread()));
    let refused = journal.commit(batch).await.unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused}");
    make_read_only(&evidence, 0o755);
}

fn make_read_only(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_in_use_is_verified_read_only() {
    let folder = Folder::new("tamper-in-use");
    let file = folder.join("store.db");
    store::write(&file).await;
    let journal = opened(&file).await.unwrap();
    for number in 0..5 {
        let append = Append::new("other").record(NewRecord::new("note", number.to_string()));
        journal.commit(Batch::new("one").append(append)).await.unwrap();
        assert_eq!(proof_of_read_only(&file).await.unwrap().broken, None);
    }
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_without_master_key_warns_about_signing_key() {
    let folder = Folder::new("tamper-no-key");
    let url = format!("sqlite://{}", folder.join("store.db").display());
    let journal = open(&url, &Options::default()).await.unwrap();
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!(proof.warnings, [Warning::KeyBesideData, Warning::NoManifest]);
    let append = Append::new("thread").opening(LogOpening::thread());
    let append = append.record(NewRecord::new("note", "a"));
    journal.commit(Batch::new("one").append(append)).await.unwrap();
    journal.close().await.unwrap();
    let options = Options { read_only: true, ..Options::default() };
    let proof = open(&url, &options).await.unwrap().verify(None, &|_| {}).await.unwrap();
    assert_eq!((proof.broken, proof.warnings), (None, vec![Warning::KeyBesideData]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_stores_are_rejected_with_clear_errors() {
    let folder = Folder::new("tamper-no-store");
    let original = folder.join("original.db");
    store::write(&original).await;
    let empty = folder.join("empty.db");
    std::fs::write(&empty, "").unwrap();
    let changed = |name: &str, sql: &str| {
        let file = folder.join(name);
        std::fs::copy(&original, &file).unwrap();
        Connection::open(&file).unwrap().execute_batch(sql).unwrap();
        file
    };
    let cases = [
        (empty, "is empty and contains no store"),
        (changed("zero.db", "PRAGMA user_version = 0"), "schema version 0"),
        (changed("minus.db", "PRAGMA user_version = -3"), "schema version -3"),
        (changed("table.db", "DROP TABLE api_keys"), "has no table api_keys"),
        (changed("newer.db", "PRAGMA user_version = 4"), "supports versions up to 3"),
    ];
    for (file, expected) in cases {
        let before = std::fs::read(&file).unwrap();
        for read_only in [true, false] {
            let options = Options { read_only, create: false, ..store::options() };
            let url = format!("sqlite://{}", file.display());
            let error = open(&url, &options).await.map(drop).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), before, "{expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downgraded_store_does_not_get_new_macs() {
    let folder = Folder::new("tamper-downgrade");
    let file = folder.join("store.db");
    store::write(&file).await;
    let db = Connection::open(&file).unwrap();
    crate::change::drop_triggers(&db);
    db.execute_batch(
        "DELETE FROM kept WHERE name = 'tally'; DELETE FROM once;
         ALTER TABLE segments DROP COLUMN mac; ALTER TABLE segments DROP COLUMN sums;
         ALTER TABLE segments DROP COLUMN changes; ALTER TABLE api_keys DROP COLUMN mac;
         DELETE FROM manifests; PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(db);
    let refused = opened(&file).await.map(drop).unwrap_err();
    assert!(matches!(&refused, StoreError::Corrupt(_)), "{refused}");
    assert!(refused.to_string().contains("the MACs of the store's rows were removed"), "{refused}");
}
