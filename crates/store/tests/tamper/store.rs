//! Builds a store with rows in every table, for the tamper tests.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::pack_events;
use throughline_core::{
    Append, Batch, LogOpening, NewRecord, NewVaultTurn, PendingRequest, Record, Store, StoreError,
    Tenant, VaultKey, kind,
};
use throughline_store::{Journal, KeyLimits, Manifest, MasterKey, Options, about_item, open};

const TENANTS: [&str; 2] = ["one", "two"];
const LOGS: [&str; 6] = ["thread", "other", "fork", "doomed", "run", "doomed-run"];

/// Returns options with the master key of the test store. The keys of some of its captured turns
/// are indexed, and those of the last turns are not.
pub(crate) fn options() -> Options {
    let master_key = Some(MasterKey::parse(&"7".repeat(64)).unwrap());
    Options { master_key, index_batch: 3, ..Options::default() }
}

/// Writes the store to an SQLite file. Returns a manifest of the first tenant.
pub(crate) async fn write(file: &Path) -> Manifest {
    write_at(&format!("sqlite://{}", file.display()), file).await
}

/// Opens and writes the store twice, so that each chain has two segments. Also makes a backup
/// beside `file`.
pub(crate) async fn write_at(url: &str, file: &Path) -> Manifest {
    let journal = open(url, &options()).await.unwrap();
    for tenant in TENANTS {
        let batch = Batch::new(tenant)
            .append(thread("thread", tenant, 0).opening(LogOpening::thread()))
            .append(Append::new("run").opening(LogOpening::run("thread")).record(events(0)));
        journal.commit(batch).await.unwrap();
        let batch = Batch::new(tenant)
            .append(thread("other", tenant, 1).opening(LogOpening::thread()))
            .append(thread("doomed", tenant, 2).opening(LogOpening::thread()))
            .append(Append::new("doomed-run").opening(LogOpening::run("doomed")).record(events(1)));
        journal.commit(batch).await.unwrap();
        let large = NewRecord::new(kind::ITEM, vec![7; 20_000]);
        for log in ["thread", "doomed"] {
            let append = Append::new(log).record(large.clone()).status("running");
            journal.commit(Batch::new(tenant).append(append)).await.unwrap();
        }
    }
    journal.close().await.unwrap();
    let journal = open(url, &options()).await.unwrap();
    for tenant in TENANTS {
        let mut rewind = thread("thread", tenant, 3);
        rewind.rewind_to = Some(2);
        journal.commit(Batch::new(tenant).append(rewind)).await.unwrap();
        let name = Tenant::from(tenant);
        journal.fork(&name, &"thread".into(), None, &"fork".into()).await.unwrap();
        journal.commit(Batch::new(tenant).append(thread("fork", tenant, 4))).await.unwrap();
        let append = Append::new("run").record(events(2)).record(events(3));
        journal.commit(Batch::new(tenant).append(append)).await.unwrap();
        journal.forget(&name, &"thread".into(), Some("item 0")).await.unwrap();
        journal.forget(&name, &"doomed".into(), None).await.unwrap();
        journal.commit(Batch::new(tenant).append(thread("other", tenant, 5))).await.unwrap();
        write_index(&journal, &name).await;
    }
    journal.backup(&file.with_extension("backup"), &|_| {}).await.unwrap();
    journal.commit(Batch::new("one").append(thread("other", "one", 6))).await.unwrap();
    let witness = journal.manifest(&Tenant::from("one")).await.unwrap();
    journal.close().await.unwrap();
    witness
}

/// Writes rows to every index table: captured turns, pending requests, idempotency names, API keys,
/// a lease, and an empty log.
async fn write_index(journal: &Journal, tenant: &Tenant) {
    for (turn, parent) in [("turn-1", None), ("turn-2", Some("turn-1"))] {
        let mut batch = Batch::new(tenant.clone())
            .append(thread("other", &tenant.0, 7))
            .with_idempotency_key(turn);
        batch.vault.push(NewVaultTurn {
            id: turn.into(),
            parent: parent.map(Into::into),
            keys: vec![
                VaultKey::Id(turn.into()),
                VaultKey::Id(turn.into()),
                VaultKey::Claim(format!("claim of {turn}").into()),
                VaultKey::Chain([u8::from(parent.is_some()); 32]),
            ],
            log: "other".into(),
            prefix: parent.map(|_| [3; 32]),
        });
        journal.commit(batch).await.unwrap();
    }
    write_pack(journal, tenant).await;
    let mut batch = Batch::new(tenant.clone()).append(Append::new("run").status("waiting"));
    for (id, expires_in) in [("approval", None), ("question", Some(Duration::from_hours(1)))] {
        let (id, kind, log) = (id.into(), "approval".into(), "run".into());
        batch.asks.push(PendingRequest { id, kind, log, expires_in });
    }
    journal.commit(batch).await.unwrap();
    let mut batch = Batch::new(tenant.clone());
    batch.takes.push("approval".into());
    journal.commit(batch).await.unwrap();
    let batch = Batch::new(tenant.clone());
    let empty = Append::new("empty").opening(LogOpening::thread());
    journal.commit(batch.append(empty)).await.unwrap();
    let limits = KeyLimits { budget_tokens: Some(5), ..KeyLimits::default() };
    journal.create_api_key(tenant, "valid", &limits).await.unwrap();
    let revoked = journal.create_api_key(tenant, "revoked", &limits).await.unwrap();
    assert!(journal.revoke_api_key(tenant, &revoked.id).await.unwrap());
    let log = "thread".into();
    journal.lease(tenant, &log, "node", Duration::from_millis(1)).await.unwrap();
}

/// Captures two turns of several records each, which the store packs, and forgets one Item.
async fn write_pack(journal: &Journal, tenant: &Tenant) {
    for turn in ["turn-3", "turn-4"] {
        let item = |id: &str| {
            NewRecord::new(kind::ITEM, format!("{{\"id\":\"{turn} {id}\",\"text\":\"{id}\"}}"))
        };
        let append = Append::new("other").record(NewRecord::new("turn", "{}"));
        let append = append.record(item("a")).record(item("b"));
        let append = append.record(NewRecord::copy(&"other".into(), "bodies"));
        let mut batch = Batch::new(tenant.clone()).append(append);
        let keys = vec![VaultKey::Id(turn.into()), VaultKey::Chain([9; 32])];
        let (id, parent, log) = (turn.into(), None, "other".into());
        batch.vault.push(NewVaultTurn { id, parent, keys, log, prefix: None });
        journal.commit(batch).await.unwrap();
    }
    journal.forget(tenant, &"other".into(), Some("turn-3 b")).await.unwrap();
}

fn thread(log: &str, tenant: &str, number: u32) -> Append {
    let id = format!("item {number}");
    let text = format!("{{\"id\":\"{id}\",\"text\":\"what {tenant} said, mail@example.com\"}}");
    let item = NewRecord::new(kind::ITEM, text).about(about_item(&log.into(), &id));
    let checkpoint = NewRecord::new(kind::CHECKPOINT, format!("state {number}"));
    Append::new(log).record(item).record(checkpoint)
}

fn events(number: u32) -> NewRecord {
    let events: Vec<String> =
        (0..3 + number).map(|event| format!("event {number} {event}")).collect();
    pack_events(events.iter().map(String::as_bytes))
}

/// Reads all records of the store. After the records of each log, adds a record with the log's
/// valid ranges and lineage.
pub(crate) async fn read(journal: &Journal) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    for tenant in TENANTS.map(Tenant::from) {
        for log in LOGS {
            records.extend(journal.read(&tenant, &log.into(), 0, 1000).await?);
            let Some(head) = journal.log(&tenant, &log.into()).await? else { continue };
            // Add the valid ranges and the lineage of the log as the content of a further record.
            let spans = format!("{:?} {:?} {:?}", head.valid_ranges(head.last), head.fork, head.of);
            if let Some(last) = records.last_mut().cloned() {
                let content = throughline_core::Content::Here(Bytes::from(spans));
                records.push(Record { content, ..last });
            }
        }
    }
    Ok(records)
}
