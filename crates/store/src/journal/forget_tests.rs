//! Tests that deleting a run updates key files while the store stays open.

use std::time::Duration;

use throughline_core::{Append, Batch, LogOpening, NewRecord, Store, Tenant, kind};
use throughline_testkit::Folder;

use crate::{Options, key_file_of, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_run_rewrites_key_files_while_the_store_stays_open() {
    let folder = Folder::new("forget-run-later");
    let url = format!("sqlite://{}", folder.join("store.db").display());
    let journal = open(&url, &Options::default()).await.expect("the store opens");
    let run = Append::new("run").opening(LogOpening::run("thread"));
    let batch = Batch::new("us")
        .append(Append::new("thread").opening(LogOpening::thread()))
        .append(run.record(NewRecord::new(kind::ITEM, "the run's content")));
    journal.commit(batch).await.expect("the batch is stored");
    let backup = folder.join("backup.db");
    journal.backup(&backup, &|_| {}).await.expect("the backup is written");
    let keys = || std::fs::read_to_string(key_file_of(&backup)).expect("the key file exists");
    assert!(!keys().contains("forgotten"), "{}", keys());
    let tenant = Tenant::from("us");
    Store::forget_run(&journal, &tenant, &"run".into()).await.expect("the run is deleted");
    // Wait up to 20 seconds, because the machine may be busy.
    for _ in 0..2000 {
        if keys().contains("\nforgotten ") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let keys = keys();
    assert!(keys.contains("\nforgotten ") && !keys.contains("\nsalt "), "{keys}");
    journal.close().await.expect("the store closes");
}
