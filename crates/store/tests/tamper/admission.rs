//! Tests that API keys with modified rows are refused on use and found by verification.

use std::path::Path;

use rusqlite::Connection;
use throughline_core::{Store as _, Tenant};
use throughline_store::{Journal, KeyCheck, KeyLimits, NewApiKey};
use throughline_testkit::Folder;

use crate::{opened, proof_of_read_only, store};

/// Writes a store in which the tenant `one` has a valid key and a revoked key.
async fn store_with_keys(file: &Path) -> (Journal, NewApiKey, NewApiKey) {
    store::write(file).await;
    let journal = opened(file).await.unwrap();
    let tenant = Tenant::from("one");
    let limits = KeyLimits { budget_tokens: Some(5), ..KeyLimits::default() };
    let valid = journal.create_api_key(&tenant, "mine", &limits).await.unwrap();
    let revoked = journal.create_api_key(&tenant, "lost", &limits).await.unwrap();
    (journal, valid, revoked)
}

fn change(file: &Path, sql: &str, id: &str) {
    let db = Connection::open(file).unwrap();
    assert_eq!(db.execute(sql, [id]).unwrap(), 1, "{sql}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_or_moved_api_key_is_refused() {
    let folder = Folder::new("tamper-keys");
    let file = folder.join("keys.db");
    let (journal, valid, _) = store_with_keys(&file).await;
    let known = journal.check_api_key(&valid.secret).await.unwrap();
    assert!(matches!(&known, KeyCheck::Valid(key) if key.id == valid.id), "{known:?}");
    for sql in [
        "UPDATE api_keys SET limits = '{}' WHERE id = ?1",
        "UPDATE api_keys SET tenant = 2 WHERE id = ?1",
        "UPDATE api_keys SET mac = NULL WHERE id = ?1",
    ] {
        let copy = folder.join("copy.db");
        journal.close().await.unwrap();
        std::fs::copy(&file, &copy).unwrap();
        change(&copy, sql, &valid.id);
        let journal = opened(&copy).await.unwrap();
        let refused = journal.check_api_key(&valid.secret).await.unwrap();
        assert!(matches!(&refused, KeyCheck::Tampered { .. }), "{sql}: {refused:?}");
        assert_eq!(journal.api_key(&valid.secret).await.unwrap(), None, "{sql}");
        journal.close().await.unwrap();
        let broken = proof_of_read_only(&copy).await.unwrap().broken.unwrap();
        assert!(broken.place.starts_with("the rows of api_keys (tenant "), "{sql}: {broken}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_key_stays_revoked_when_its_row_is_restored() {
    let folder = Folder::new("tamper-revoked");
    let file = folder.join("keys.db");
    let (journal, _, lost) = store_with_keys(&file).await;
    let tenant = Tenant::from("one");
    journal.close().await.unwrap();
    let find = "SELECT mac FROM api_keys WHERE id = ?1";
    let find = |db: &Connection| db.query_row(find, [&*lost.id], |row| row.get::<_, Vec<u8>>(0));
    let mac = find(&Connection::open(&file).unwrap()).unwrap();
    let journal = opened(&file).await.unwrap();
    assert!(journal.revoke_api_key(&tenant, &lost.id).await.unwrap());
    assert!(!journal.revoke_api_key(&tenant, &lost.id).await.unwrap());
    assert_eq!(journal.check_api_key(&lost.secret).await.unwrap(), KeyCheck::Unknown);
    // The log of API keys appears neither as a Thread nor as a run.
    let log = journal.log(&tenant, &"throughline-api-keys".into()).await.unwrap().unwrap();
    assert_eq!((log.status, log.of), (None, None));
    journal.close().await.unwrap();
    let db = Connection::open(&file).unwrap();
    let put_back = "UPDATE api_keys SET revoked = NULL, mac = ?2 WHERE id = ?1";
    assert_eq!(db.execute(put_back, rusqlite::params![&*lost.id, mac]).unwrap(), 1);
    drop(db);
    let journal = opened(&file).await.unwrap();
    let refused = journal.check_api_key(&lost.secret).await.unwrap();
    assert!(matches!(&refused, KeyCheck::Tampered { .. }), "{refused:?}");
    let refused = journal.check_api_key_id(&tenant, &lost.id).await.unwrap();
    assert!(matches!(&refused, KeyCheck::Tampered { .. }), "{refused:?}");
    journal.close().await.unwrap();
    let broken = proof_of_read_only(&file).await.unwrap().broken.unwrap();
    assert_eq!(broken.place, "the rows of api_keys (tenant one)", "{broken}");
}
