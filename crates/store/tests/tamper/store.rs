//! A store with a little of everything, to be tampered with.

use std::path::Path;

use bytes::Bytes;
use throughline_core::pack;
use throughline_core::{
    Append, Batch, LogOpening, NewRecord, Record, Store, StoreError, Tenant, kind,
};
use throughline_store::{Journal, Manifest, Options, about_item, open};

const TENANTS: [&str; 2] = ["one", "two"];
const LOGS: [&str; 6] = ["thread", "other", "fork", "doomed", "run", "doomed-run"];

/// Writes it, and gives a manifest of the first tenant. Two openings write, so there are two segments of each chain.
pub(crate) async fn write(file: &Path) -> Manifest {
    let url = format!("sqlite://{}", file.display());
    let journal = open(&url, &Options::default()).await.unwrap();
    for tenant in TENANTS {
        let batch = Batch::of(tenant)
            .append(thread("thread", tenant, 0).opening(LogOpening::thread()))
            .append(Append::to("run").opening(LogOpening::run("thread")).record(events(0)));
        journal.commit(batch).await.unwrap();
        let batch = Batch::of(tenant)
            .append(thread("other", tenant, 1).opening(LogOpening::thread()))
            .append(thread("doomed", tenant, 2).opening(LogOpening::thread()))
            .append(Append::to("doomed-run").opening(LogOpening::run("doomed")).record(events(1)));
        journal.commit(batch).await.unwrap();
        let large = NewRecord::new(kind::ITEM, vec![7; 20_000]);
        for log in ["thread", "doomed"] {
            let append = Append::to(log).record(large.clone()).status("running");
            journal.commit(Batch::of(tenant).append(append)).await.unwrap();
        }
    }
    journal.close().await.unwrap();
    let journal = open(&url, &Options::default()).await.unwrap();
    for tenant in TENANTS {
        let mut rewind = thread("thread", tenant, 3);
        rewind.rewind_to = Some(2);
        journal.commit(Batch::of(tenant).append(rewind)).await.unwrap();
        let name = Tenant::from(tenant);
        journal.fork(&name, &"thread".into(), None, &"fork".into()).await.unwrap();
        journal.commit(Batch::of(tenant).append(thread("fork", tenant, 4))).await.unwrap();
        let append = Append::to("run").record(events(2)).record(events(3));
        journal.commit(Batch::of(tenant).append(append)).await.unwrap();
        journal.forget(&name, &"thread".into(), Some("item 0")).await.unwrap();
        journal.forget(&name, &"doomed".into(), None).await.unwrap();
        journal.commit(Batch::of(tenant).append(thread("other", tenant, 5))).await.unwrap();
    }
    journal.commit(Batch::of("one").append(thread("other", "one", 6))).await.unwrap();
    let witness = journal.manifest(&Tenant::from("one")).await.unwrap();
    journal.close().await.unwrap();
    witness
}

fn thread(log: &str, tenant: &str, number: u32) -> Append {
    let id = format!("item {number}");
    let text = format!("{{\"id\":\"{id}\",\"text\":\"what {tenant} said, mail@example.com\"}}");
    let item = NewRecord::new(kind::ITEM, text).about(about_item(&log.into(), &id));
    let checkpoint = NewRecord::new(kind::CHECKPOINT, format!("state {number}"));
    Append::to(log).record(item).record(checkpoint)
}

fn events(number: u32) -> NewRecord {
    let events: Vec<String> =
        (0..3 + number).map(|event| format!("event {number} {event}")).collect();
    pack(events.iter().map(String::as_bytes))
}

/// Everything that it says.
pub(crate) async fn read(journal: &Journal) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    for tenant in TENANTS.map(Tenant::from) {
        for log in LOGS {
            records.extend(journal.read(&tenant, &log.into(), 0, 1000).await?);
            let Some(head) = journal.log(&tenant, &log.into()).await? else { continue };
            // What holds of it is part of what it says.
            let spans = format!("{:?} {:?} {:?}", head.spans(head.last), head.fork, head.of);
            if let Some(last) = records.last_mut().cloned() {
                let content = throughline_core::Content::Here(Bytes::from(spans));
                records.push(Record { content, ..last });
            }
        }
    }
    Ok(records)
}
