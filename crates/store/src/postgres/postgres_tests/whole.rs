//! Tests of manifests, internal values, keys, statistics and backups.

use super::*;
use crate::backup_files::NewBackup;
use crate::backup_files::key_file::BackupOwner;
use crate::manifest::Signer;
use crate::row::{ApiKeyRow, SaltRow};
use crate::sealed_batch::KeyChange;

#[tokio::test]
async fn heads_are_signed_during_writes_and_on_close() {
    let url = database().await;
    let (node, other) = (node(&url, "w1").await, node(&url, "w2").await);
    let signer = Arc::new(Signer::new(&[7; 32]));
    node.sign_with(signer.clone());
    commit(&node, adding([opened("a", [record("x")])])).await.unwrap();
    // The node signs a manifest by itself after a short time.
    until(async || other.manifests(0, 9).await.unwrap().len() == 1).await;
    commit(&node, adding([append("a", [record("y")])])).await.unwrap();
    Driver::close(&*node).await.unwrap();
    assert!(matches!(commit(&node, adding([append("a", [])])).await, Err(StoreError::Closed)));
    let kept = other.manifests(0, 9).await.unwrap();
    let statements: Vec<_> = kept
        .iter()
        .map(|(_, manifest)| {
            assert!(manifest.is_signed_by(&signer.store()));
            manifest.statement().unwrap()
        })
        .collect();
    assert_eq!(statements.iter().map(|statement| statement.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(statements[1].previous, kept[0].1.digest());
    assert_eq!(statements[1].heads, other.heads(None).await.unwrap());
    assert_eq!(other.manifests(kept[0].0, 9).await.unwrap().len(), 1);
    let left = client(&url).await.query("SELECT FROM writers", &[]).await.unwrap();
    assert!(left.is_empty(), "the writer's row is deleted on close");
}

#[tokio::test]
async fn small_values_and_api_keys_are_stored() {
    let node = node(&database().await, "w1").await;
    let value = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert_eq!(node.keep("secret", value("1")).await.unwrap(), value("1"));
    assert_eq!(node.keep("secret", value("2")).await.unwrap(), value("1"));
    node.replace("secret", value("3")).await.unwrap();
    node.replace("epoch 1", value("%")).await.unwrap();
    assert_eq!(node.values("epoch ").await.unwrap(), [("epoch 1".to_owned(), value("%"))]);
    // Two values that the test stored, and the tally.
    assert_eq!(node.values("").await.unwrap().len(), 3);

    let key = ApiKeyRow {
        tenant: tenant(),
        id: "k1".into(),
        label: "laptop".into(),
        limits: r#"{"models":["claude-*"]}"#.into(),
        hash: [1; 32],
        created: 0,
        revoked: None,
        mac: Some([3; 32]),
    };
    let change = async |change| {
        let keys = vec![change];
        commit(&node, SealedBatch { keys, ..batch() }).await.map(drop)
    };
    change(KeyChange::Add(key.clone())).await.unwrap();
    assert!(error_message(change(KeyChange::Add(key.clone())).await).contains("already"));
    // The database sets the creation time.
    let (kept, is_revoked) = node.key([1; 32], 7).await.unwrap().unwrap();
    let key = ApiKeyRow { created: kept.created, ..key };
    assert!(kept == key && key.created > 1_700_000_000_000 && !is_revoked, "{kept:?}");
    assert_eq!(node.keys(&tenant()).await.unwrap(), [key]);
    let revoke = |id: &str| KeyChange::Revoke { id: id.into(), at: 9, mac: [4; 32] };
    change(revoke("k1")).await.unwrap();
    assert!(error_message(change(revoke("k1")).await).contains("no API key k1"));
    assert!(error_message(change(revoke("k2")).await).contains("no API key k2"));
    assert_eq!(node.key([1; 32], 7).await.unwrap(), None);
    assert!(node.keys(&tenant()).await.unwrap()[0].revoked.is_some());
}

#[tokio::test]
async fn salts_are_rewrapped() {
    let node = node(&database().await, "w1").await;
    commit(&node, adding([opened("a", (0..5).map(|n| record(&n.to_string())))])).await.unwrap();
    let all = async |limit| node.salts_not_of(1, 0, i64::MAX, limit).await.unwrap();
    let mut salts = all(3).await;
    assert_eq!(salts.len(), 3);
    let (first, last) = (salts[0].record, salts[2].record);
    assert_eq!(node.salts_not_of(1, first, last, 9).await.unwrap().len(), 2);
    for row in &mut salts {
        row.salt = Salt { epoch: 1, bytes: Bytes::from_static(b"wrapped") };
    }
    // The salt of a record that does not exist is not added.
    salts.push(SaltRow { record: 999, salt: salts[0].salt.clone() });
    node.rewrap(salts).await.unwrap();
    assert_eq!(all(9).await.len(), 2);
    assert_sound(&node).await;
}

#[tokio::test]
async fn backup_is_a_complete_sqlite_file() {
    let node = node(&database().await, "w1").await;
    let records = (0..200).map(|n| record(&n.to_string()));
    commit(&node, once("x", adding([opened("a", records), opened("b", [record("1"); 1])])))
        .await
        .unwrap();
    let stats = node.stats().await.unwrap();
    assert_eq!((stats.tenants, stats.threads, stats.records, stats.segments), (1, 2, 201, 1));
    let random = u64::from_be_bytes(crate::cipher::random().unwrap());
    let to = std::env::temp_dir().join(format!("throughline-{random:016x}.db"));
    let shares = std::sync::Mutex::new(Vec::new());
    let progress = |share: f64| shares.lock().unwrap().push(share);
    let keys = crate::key_file_of(&to);
    let owner = BackupOwner { backup: "1f".into(), store: "2f".into() };
    let plan = NewBackup { file: to.clone(), keys: keys.clone(), owner };
    crate::sqlite::backup(&*node, plan.clone(), &progress).await.unwrap();
    let shares = shares.into_inner().unwrap();
    assert!(shares.is_sorted() && shares.last() == Some(&1.0));
    assert!(
        error_message(crate::sqlite::backup(&*node, plan, &|_| {}).await)
            .contains("choose another name")
    );
    let file = rusqlite::Connection::open(&to).unwrap();
    let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM records"), 201);
    assert_eq!(count("SELECT count(*) FROM salts"), 0);
    let text = std::fs::read_to_string(&keys).unwrap();
    let records = text.lines().filter_map(|line| line.strip_prefix("salt ")?.split(' ').next());
    let records: Vec<i64> = records.map(|record| record.parse().unwrap()).collect();
    // Each row reserves 256 ids.
    assert_eq!(records, (0..201).map(|row| 1 + 256 * row).collect::<Vec<_>>());
    assert_eq!(count("PRAGMA user_version"), 3);
    assert_eq!(count("SELECT count(*) FROM once"), 1);
    let link: Vec<u8> = file.query_row("SELECT link FROM segments", [], |row| row.get(0)).unwrap();
    assert_eq!(link, node.heads(None).await.unwrap()[0].link);
    let sound: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    drop(file);
    std::fs::remove_file(to).unwrap();
    std::fs::remove_file(keys).unwrap();
}

#[tokio::test]
async fn check_reports_damage() {
    let url = database().await;
    let node = node(&url, "w1").await;
    commit(&node, adding([opened("a", [record("1"), record("2")])])).await.unwrap();
    let client = client(&url).await;
    client
        .batch_execute("DELETE FROM records WHERE seq = 2; CREATE EXTENSION amcheck")
        .await
        .unwrap();
    assert_eq!(
        node.check().await.unwrap(),
        [
            "acme/a has lost its last record.",
            "acme/a has records that do not match its count.",
            "acme/w1 is a chain whose records do not match its count.",
            "the salt of record 257 has no owner.",
        ]
    );
}
