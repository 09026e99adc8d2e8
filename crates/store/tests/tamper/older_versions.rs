//! Tests that stores of earlier schema versions open, are migrated, and keep their content.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use throughline_core::{
    Append, Batch, KeyRole, NewRecord, NewVaultTurn, Store as _, StoreError, Tenant, VaultKey,
};
use throughline_store::{ApiKey, Journal, KeyLimits, MasterKey, Options, Warning, open, restore};
use throughline_testkit::Folder;

/// The API keys of a fixture: for each tenant, a valid key and a revoked key.
type FixtureKeys = [(&'static str, [&'static str; 2]); 2];

const POSTGRES_KEYS: FixtureKeys = [
    (
        "alpha",
        [
            "tl_e74632c8bdeedabac131e170e917e34e6df99ee521f49fb8",
            "tl_cb43c78f6cba97225109a5d33e574779b7a264da9475ba46",
        ],
    ),
    (
        "beta",
        [
            "tl_405f476e3e1b15566fd69909d7787fc64ba5b322a5a1879d",
            "tl_0c5a99ba86cb6a74b6d04a5076a0399214451eac92b92ee3",
        ],
    ),
];

const SQLITE_KEYS: FixtureKeys = [
    (
        "alpha",
        [
            "tl_d7782e77a0ca718c976566f2b47aa16feeee2b2be69bed80",
            "tl_f6257d1a9bfb90da1eaf346a94794a580dafe01d9a080c08",
        ],
    ),
    (
        "beta",
        [
            "tl_502ebb2cbf3b8ec40821d93546e20be5de70e3b6a821e5fa",
            "tl_187998537840f87e62884106fe318daa43b3eb1c3413aa5c",
        ],
    ),
];

/// SQL that removes the expiry times of the fixture's pending requests, which had a lifetime of one
/// hour.
const NEVER_EXPIRES: &str = "UPDATE pending SET expires = NULL";

fn options() -> Options {
    let master_key = Some(MasterKey::parse(&"1".repeat(64)).unwrap());
    Options { master_key, create: false, ..Options::default() }
}

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version_1").join(name)
}

/// Asserts that everything in the fixture still exists, works and passes verification.
async fn assert_is_carried_over(url: &str, keys: FixtureKeys) {
    let journal = open(url, &options()).await.unwrap();
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!((proof.broken, proof.records, proof.tables.len()), (None, 22, 13));
    for (tenant, [valid, revoked]) in keys {
        let other = if tenant == "alpha" { "beta" } else { "alpha" };
        let tenant = Tenant::from(tenant);
        let key = journal.api_key(valid).await.unwrap().unwrap();
        assert_eq!((&key.tenant, key.limits.budget_tokens), (&tenant, Some(5)));
        assert_eq!(journal.api_key(revoked).await.unwrap(), None);
        let ids = [format!("resp_{tenant}"), format!("resp_{other}")];
        let ids = ids.map(|id| VaultKey::Id(id.into()));
        let found = journal.find(&tenant, &ids).await.unwrap().found;
        let names: Vec<_> =
            found.iter().map(|found| found.as_ref().map(|at| &at.turn.id)).collect();
        assert_eq!(names, [Some(&format!("turn-{tenant}").as_str().into()), None]);
        assert_eq!(journal.pending(&tenant, None).await.unwrap().len(), 1);
        let run = journal.log(&tenant, &"run".into()).await.unwrap().unwrap();
        assert_eq!(run.status.as_deref(), Some("completed"));
        // The earlier batch with this idempotency name is recognised.
        let append = Append::new("thread").record(NewRecord::new("note", "again"));
        let batch = Batch::new(tenant.clone())
            .append(append)
            .with_idempotency_key(format!("start {tenant}"));
        assert!(journal.commit(batch).await.unwrap().repeated);
    }
    go_on(&journal).await;
    journal.close().await.unwrap();
    let journal = open(url, &options()).await.unwrap();
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!(proof.broken, None);
    assert!(proof.records > 22);
    journal.close().await.unwrap();
}

/// Appends, forgets a Thread and revokes API keys, so that rows covered by the initial sums change.
async fn go_on(journal: &Journal) {
    let tenant = Tenant::from("alpha");
    let append = Append::new("run").record(NewRecord::new("note", "on")).status("running");
    let mut batch = Batch::new(tenant.clone()).append(append);
    batch.takes.push("question".into());
    journal.commit(batch).await.unwrap();
    journal.forget(&tenant, &"thread".into(), None).await.unwrap();
    for key in journal.api_keys(&tenant).await.unwrap() {
        let was_valid = key.revoked.is_none();
        assert_eq!(journal.revoke_api_key(&tenant, &key.id).await.unwrap(), was_valid);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_1_file_gets_macs_and_keeps_keys_and_turns() {
    let folder = Folder::new("tamper-version-1");
    let file = folder.join("store.db");
    std::fs::copy(fixture("store.db"), &file).unwrap();
    let url = format!("sqlite://{}", file.display());
    // Opening the store read-only changes nothing, and verification reports what is not covered.
    let read_only = Options { read_only: true, ..options() };
    let journal = open(&url, &read_only).await.unwrap();
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!((proof.broken, proof.warnings), (None, vec![Warning::RowsWithoutMacs]));
    assert_eq!(proof.tables, ["records", "salts", "blobs", "segments"]);
    drop(journal);
    assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(fixture("store.db")).unwrap());
    let db = Connection::open(&file).unwrap();
    db.execute(NEVER_EXPIRES, []).unwrap();
    assert_is_carried_over(&url, SQLITE_KEYS).await;
    let version =
        db.query_row("SELECT user_version FROM pragma_user_version", [], |row| row.get(0));
    // Version 1 rejects higher versions with `NewerSchema`.
    assert_eq!(version, Ok(3_i64));
}

/// Returns the URL of a copy of the file that the last version with schema version 2 wrote.
fn version_2_copy(folder: &Folder) -> (std::path::PathBuf, String) {
    let file = folder.join("store.db");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version_2/store.db");
    std::fs::copy(fixture, &file).unwrap();
    let url = format!("sqlite://{}", file.display());
    (file, url)
}

/// Returns the id of the turn of the tenant `alpha` with this response id.
async fn turn_with(journal: &Journal, id: &str) -> Option<String> {
    let found = journal.find(&"alpha".into(), &[VaultKey::Id(id.into())]).await.unwrap().found;
    found.into_iter().next().flatten().map(|found| found.turn.id.0.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_2_file_keeps_its_rows_and_gets_new_ones() {
    let folder = Folder::new("tamper-version-2");
    let (file, url) = version_2_copy(&folder);
    // Opening the store read-only changes nothing.
    let before = std::fs::read(&file).unwrap();
    assert_is_read(&url).await;
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_gets_packs(&url, &folder).await;
    let version = Connection::open(&file).unwrap().query_row(
        "SELECT user_version FROM pragma_user_version",
        [],
        |row| row.get(0),
    );
    assert_eq!(version, Ok(3_i64));
}

/// Asserts that a store of version 2 can be opened read-only.
async fn assert_is_read(url: &str) {
    let journal = open(url, &Options { read_only: true, ..options() }).await.unwrap();
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!((proof.broken, proof.records, proof.warnings), (None, 23, Vec::new()));
    assert_eq!(turn_with(&journal, "resp_alpha").await.as_deref(), Some("turn-alpha"));
    drop(journal);
}

/// Asserts that opening a store of version 2 for writing migrates it, and that old and new turns
/// are found, verified, forgotten and restored from a backup.
async fn assert_gets_packs(url: &str, folder: &Folder) {
    let tenant = Tenant::from("alpha");
    let find = turn_with;
    let journal = open(url, &options()).await.unwrap();
    assert_eq!(find(&journal, "resp_alpha").await.as_deref(), Some("turn-alpha"));
    let append = Append::new("turns").record(NewRecord::new("turn", "{}"));
    let append = append.record(NewRecord::new("item", "a")).record(NewRecord::new("item", "b"));
    let mut batch = Batch::new(tenant.clone()).append(append);
    let (keys, log) = (vec![VaultKey::Id("resp_new".into())], "turns".into());
    let (id, parent, prefix) = ("turn-new".into(), Some("turn-alpha".into()), None);
    batch.vault.push(NewVaultTurn { id, parent, keys, log, prefix });
    journal.commit(batch).await.unwrap();
    for (id, name) in [("resp_alpha", "turn-alpha"), ("resp_new", "turn-new")] {
        assert_eq!(find(&journal, id).await.as_deref(), Some(name));
    }
    let records = journal.read(&tenant, &"turns".into(), 0, 10).await.unwrap();
    let kinds: Vec<&str> = records.iter().map(|record| &*record.kind).collect();
    assert_eq!(kinds, ["item", "item", "turn", "item", "item"]);
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!((proof.broken, proof.records), (None, 26));
    // A backup contains rows of both versions.
    let (backup, restored) = (folder.join("backup.db"), folder.join("restored.db"));
    journal.backup(&backup, &|_| {}).await.unwrap();
    journal.close().await.unwrap();
    let summary = restore(&backup, None, &restored, &options()).await.unwrap();
    assert_eq!((summary.records, summary.without_key), (26, 0));
    let journal = open(&format!("sqlite://{}", restored.display()), &options()).await.unwrap();
    assert_eq!(find(&journal, "resp_new").await.as_deref(), Some("turn-new"));
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
    // Records of both versions are forgotten together.
    let journal = open(url, &options()).await.unwrap();
    assert!(journal.forget(&tenant, &"turns".into(), None).await.unwrap().records >= 5);
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_version_2_file_have_no_role_until_they_get_one() {
    let folder = Folder::new("tamper-version-2-roles");
    let (_, url) = version_2_copy(&folder);
    let journal = open(&url, &options()).await.unwrap();
    let mut found = None;
    for tenant in journal.tenants().await.unwrap() {
        for key in journal.api_keys(&tenant).await.unwrap() {
            assert_eq!(key.limits.role, None, "{key:?}");
            found = Some(key).filter(|key| key.revoked.is_none()).or(found);
        }
    }
    let key = found.expect("the file has an active key");
    let limits = KeyLimits { role: Some(KeyRole::Viewer), ..key.limits.clone() };
    assert!(journal.change_api_key_limits(&key.tenant, &key.id, &limits).await.unwrap());
    let keys = journal.api_keys(&key.tenant).await.unwrap();
    let changed = keys.into_iter().find(|other| other.id == key.id);
    assert_eq!(changed, Some(ApiKey { limits, ..key }));
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_version_2_process_cannot_write_beside_packs() {
    let folder = Folder::new("tamper-version-2-beside");
    let (file, url) = version_2_copy(&folder);
    let old = Connection::open(&file).unwrap();
    let add = "INSERT INTO records (tenant, log, seq, kind, at, events, size, segment, position,
               commitment, link) VALUES (1, 1, 99, 'forgotten', 0, 0, 0, 1, 99, x'00', x'00')";
    let mut adds = old.prepare(add).unwrap();
    let journal = open(&url, &options()).await.unwrap();
    let refused = adds.execute([]).unwrap_err().to_string();
    assert!(refused.contains("the store has a newer schema"), "{refused}");
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_version_1_process_cannot_write_without_macs() {
    let folder = Folder::new("tamper-version-1-beside");
    let file = folder.join("store.db");
    std::fs::copy(fixture("store.db"), &file).unwrap();
    let old = Connection::open(&file).unwrap();
    let mut moves =
        old.prepare("UPDATE segments SET position = position + 1 WHERE id = 1").unwrap();
    let journal = open(&format!("sqlite://{}", file.display()), &options()).await.unwrap();
    let refused = moves.execute([]).unwrap_err().to_string();
    assert!(refused.contains("the store has a newer schema"), "{refused}");
    let add = "INSERT INTO segments (tenant, writer, position, link) VALUES (1, 'old', 0, x'00')";
    let key = "INSERT INTO api_keys (tenant, id, label, limits, hash, created)
               VALUES (1, 'key_old', 'old', '{}', x'00', 0)";
    let revoke = "UPDATE api_keys SET revoked = 7 WHERE revoked IS NULL";
    for sql in [add, key, revoke] {
        assert!(old.execute(sql, []).unwrap_err().to_string().contains("newer schema"), "{sql}");
    }
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
}

/// Creates a PostgreSQL database from a dump, and returns its URL and a connection to it.
async fn postgres_copy(dump: &str) -> (String, tokio_postgres::Client) {
    let url = throughline_testkit::postgres_database();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(dump).await.unwrap();
    client.batch_execute("SET search_path TO public").await.unwrap();
    (url, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_version_1_database_gets_macs_and_keeps_keys_and_turns() {
    let dump = std::fs::read_to_string(fixture("store.sql")).unwrap();
    let (url, client) = postgres_copy(&dump).await;
    client.batch_execute(NEVER_EXPIRES).await.unwrap();
    assert_is_carried_over(&url, POSTGRES_KEYS).await;
    client.batch_execute("INSERT INTO public.throughline_schema VALUES (4)").await.unwrap();
    let refused = open(&url, &options()).await.map(drop).unwrap_err();
    let is_newer = matches!(refused, StoreError::NewerSchema { found: 4, known: 3 });
    assert!(is_newer, "{refused}");
}

const POSTGRES_VERSION_2: &str = include_str!("../version_2/store.sql");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_version_2_database_keeps_its_rows_and_gets_new_ones() {
    let folder = Folder::new("tamper-postgres-version-2");
    let (url, client) = postgres_copy(POSTGRES_VERSION_2).await;
    let versions = async || {
        let sql = "SELECT array_agg(version ORDER BY version) FROM throughline_schema";
        client.query_one(sql, &[]).await.unwrap().get::<_, Vec<i32>>(0)
    };
    assert_is_read(&url).await;
    assert_eq!(versions().await, [1, 2]);
    assert_gets_packs(&url, &folder).await;
    assert_eq!(versions().await, [1, 2, 3]);
    let packs = client.query("SELECT FROM records WHERE span > 0", &[]).await.unwrap();
    assert_eq!(packs.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_running_version_2_process_cannot_write_beside_packs() {
    let (url, old) = postgres_copy(POSTGRES_VERSION_2).await;
    let (places, nulls): (Vec<_>, Vec<_>) =
        (1..=77).map(|number| (format!("${number}"), "NULL")).unzip();
    let prepare = format!("PREPARE write AS SELECT throughline_commit({})", places.join(", "));
    old.batch_execute(&prepare).await.unwrap();
    let journal = open(&url, &options()).await.unwrap();
    let write = format!("EXECUTE write ({})", nulls.join(", "));
    let refused = old.batch_execute(&write).await.unwrap_err();
    let refused = refused.as_db_error().unwrap().message().to_owned();
    assert!(refused.contains("the store has a newer schema"), "{refused}");
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
}

/// Returns whether another writer could take the lock of the whole store.
async fn can_write(client: &tokio_postgres::Client) -> bool {
    let lock = "SELECT pg_try_advisory_xact_lock_shared(1414025804, 0)";
    client.query_one(lock, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_upgrade_behind_a_long_reader_lets_others_write() {
    let (url, reader) = postgres_copy(POSTGRES_VERSION_2).await;
    let (second, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    reader.batch_execute("BEGIN; SELECT count(*) FROM records").await.unwrap();
    let opening = tokio::spawn(async move { open(&url, &options()).await });
    for is_possible in [false, true] {
        while can_write(&second).await != is_possible {
            assert!(!opening.is_finished(), "the upgrade waits for the reader");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    reader.batch_execute("COMMIT").await.unwrap();
    let journal = opening.await.unwrap().unwrap();
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_reader_notices_an_upgrade() {
    let (url, client) = postgres_copy(POSTGRES_VERSION_2).await;
    let read_only = Options { read_only: true, ..options() };
    let readers = [open(&url, &read_only).await.unwrap(), open(&url, &read_only).await.unwrap()];
    let writer = open(&url, &options()).await.unwrap();
    let (tenant, log) = (Tenant::from("alpha"), "turns".into());
    let append = Append::new("turns").record(NewRecord::new("turn", "{}"));
    let append = append.record(NewRecord::new("item", "a")).record(NewRecord::new("item", "b"));
    writer.commit(Batch::new(tenant.clone()).append(append)).await.unwrap();
    let expected = writer.read(&tenant, &log, 0, 10).await.unwrap();
    writer.close().await.unwrap();
    let [first, second] = readers;
    let error = first.read(&tenant, &log, 0, 10).await.unwrap_err();
    assert!(error.to_string().contains("upgraded"), "{error}");
    assert_eq!(first.read(&tenant, &log, 0, 10).await.unwrap(), expected);
    let error = second.verify(None, &|_| {}).await.unwrap_err();
    assert!(error.to_string().contains("upgraded"), "{error}");
    assert_eq!(second.verify(None, &|_| {}).await.unwrap().broken, None);
    // The functions can be replaced again, as a later version does.
    client.batch_execute(include_str!("../../src/postgres/functions_3.sql")).await.unwrap();
    let journal = open(&url, &options()).await.unwrap();
    assert_eq!(journal.read(&tenant, &log, 0, 10).await.unwrap(), expected);
    journal.close().await.unwrap();
}
