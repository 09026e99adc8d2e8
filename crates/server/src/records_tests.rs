//! Tests of the search for a time in a log.

use std::time::Duration;

use jiff::ToSpan as _;
use throughline_core::{Append, Batch, LogId, LogOpening, NewRecord, Store as _, Tenant};
use throughline_store::{Journal, Options, open};
use throughline_testkit::Folder;

use super::seq_before_time;

/// Appends a record with a later time than `after`, and returns its time.
async fn append(journal: &Journal, after: Option<jiff::Timestamp>) -> jiff::Timestamp {
    let (tenant, log) = (Tenant::from("t"), LogId::from("log"));
    let append = Append::new(log.clone()).record(NewRecord::new("note", "{}"));
    let append = if after.is_none() { append.opening(LogOpening::thread()) } else { append };
    // An empty lease ends at the store's current time.
    let now = async || {
        let lease = journal.lease(&tenant, &LogId::from("clock"), "test", Duration::ZERO).await;
        lease.unwrap().until
    };
    while now().await <= after.unwrap_or_default() {}
    let batch = Batch::new(tenant.clone()).append(append);
    journal.commit(batch).await.unwrap();
    let last = journal.log(&tenant, &log).await.unwrap().unwrap().last;
    journal.read(&tenant, &log, last - 1, 1).await.unwrap()[0].at
}

#[tokio::test]
async fn search_finds_the_last_record_before_a_time() {
    let folder = Folder::new("records");
    let url = format!("sqlite://{}", folder.join("store.db").display());
    let journal = open(&url, &Options::default()).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..11 {
        times.push(append(&journal, times.last().copied()).await);
    }
    let tenant = Tenant::from("t");
    let head = journal.log(&tenant, &LogId::from("log")).await.unwrap().unwrap();
    for (index, time) in times.iter().enumerate() {
        let before = seq_before_time(&journal, &tenant, &head, *time).await.unwrap();
        assert_eq!(before, index as u64);
    }
    let later = *times.last().unwrap() + 1.second();
    assert_eq!(seq_before_time(&journal, &tenant, &head, later).await.unwrap(), 11);
    journal.close().await.unwrap();
}
