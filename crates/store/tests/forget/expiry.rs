//! Expired data is in no file, for each class of data.

use throughline_core::{Append, Batch, LogId, LogOpening, NewRecord, Store as _, kind};
use throughline_store::{ExpiredData, Journal, LogClassifier, MasterKey, RetentionClass};
use throughline_testkit::{Folder, TestRng, figure};

use crate::secrets::Secrets;
use crate::{assert_intact, key, opened, tenant, text};

/// Conversations of the gateway have names that start with `call`.
struct Calls;

impl LogClassifier for Calls {
    fn is_call(&self, log: &LogId) -> bool {
        log.0.starts_with("call")
    }

    fn is_permanent(&self, _: &LogId) -> bool {
        false
    }
}

/// Returns the text of a record. The text of every fourth record is large enough for a blob.
fn content(log: &str, number: u64) -> String {
    let length = if number.is_multiple_of(4) { 40_000 } else { 400 };
    text(&mut TestRng::new(number ^ (log.len() as u64) << 30), length)
}

/// Writes turns of a conversation, the messages and an ended run of an agent, and a conversation
/// that is still in use. Their writes are interleaved, so that they share database pages.
async fn write(journal: &Journal) {
    let thread = |name: &str| Append::new(name).opening(LogOpening::thread());
    let mut batch = Batch::new(tenant());
    for name in ["call-old", "call-in-use", "messages"] {
        batch = batch.append(thread(name));
    }
    let run = Append::new("agent-run").opening(LogOpening::run("messages")).status("completed");
    journal.commit(batch.append(run)).await.unwrap();
    for number in 0..40 {
        let mut batch = Batch::new(tenant());
        for name in ["call-old", "call-in-use", "messages", "agent-run"] {
            let item = NewRecord::new(kind::ITEM, content(name, 2 * number));
            let mut append = Append::new(name).record(item);
            if name.starts_with("call") {
                let body = content(name, 2 * number + 1);
                append = append.record(NewRecord::copy(&LogId::from(name), body));
            }
            batch = batch.append(append);
        }
        journal.commit(batch).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_data_is_in_no_file() {
    expire_everywhere(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_data_is_in_no_file_with_a_master_key() {
    expire_everywhere(Some(key("ab"))).await;
}

async fn expire_everywhere(master_key: Option<MasterKey>) {
    let folder = Folder::new("expiry");
    let file = folder.join("store.db");
    let journal = opened(&file, master_key).await;
    write(&journal).await;
    journal.backup(&folder.join("backup.db"), &|_| {}).await.unwrap();
    let until = journal.log(&tenant(), &"call-old".into()).await.unwrap().unwrap().updated;
    // The conversation in use is written to after the time until which data expires.
    let later = until + jiff::SignedDuration::from_hours(1);
    let record = NewRecord { at: Some(later), ..NewRecord::new(kind::ITEM, "goes on") };
    let append = Append::new("call-in-use").record(record);
    journal.commit(Batch::new(tenant()).append(append)).await.unwrap();
    for (class, log) in [
        (RetentionClass::Bodies, "call-old"),
        (RetentionClass::Requests, "call-old"),
        (RetentionClass::Runs, "agent-run"),
        (RetentionClass::Threads, "messages"),
    ] {
        let mut secrets = Secrets::of(&file);
        let records = journal.read(&tenant(), &log.into(), 0, 1000).await.unwrap();
        // The record of an earlier erasure stays.
        let is_meant = |kind: &str| match class {
            RetentionClass::Bodies => kind == kind::COPY,
            _ => kind != kind::EXPIRED,
        };
        let meant = records.iter().filter(|record| is_meant(&record.kind));
        let meant: Vec<_> = meant.filter(|record| record.content.bytes().is_some()).collect();
        for record in &meant {
            secrets.add_text(record.content.bytes().unwrap());
        }
        if class != RetentionClass::Bodies {
            secrets.gather_all(log);
        }
        let data = ExpiredData { class, until, classifier: &Calls };
        let expired = journal.expire(&tenant(), &data).await.unwrap();
        assert_eq!(expired.records, meant.len() as u64, "{class}");
        assert!(journal.complete_expiry().await.unwrap().is_empty());
        let (windows, searched) = secrets.assert_in_no_file(&folder);
        figure(
            &format!("expired {class}"),
            format!("0 of {windows} windows of 16 bytes in {searched} bytes of files"),
        );
        assert_intact(&journal).await;
    }
    let kept = journal.read(&tenant(), &"call-in-use".into(), 0, 1000).await.unwrap();
    assert_eq!(kept.len(), 81);
    assert!(kept.iter().all(|record| record.content.bytes().is_some()));
    journal.close().await.unwrap();
}
