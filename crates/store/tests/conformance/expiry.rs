//! Tests of expiry by class: requests, bodies, Threads and runs.

use throughline_core::{
    Append, Content, ElisionReason, LogHead, LogId, LogOpening, NewRecord, Store,
};
use throughline_store::{
    ClassStats, DataCount, ExpiredData, Journal, LogClassifier, RetentionClass,
};

use crate::harness::*;

/// Logs whose names start with `call` contain calls, and the log `index` never expires.
struct ByName;

impl LogClassifier for ByName {
    fn is_call(&self, log: &LogId) -> bool {
        log.0.starts_with("call")
    }

    fn is_permanent(&self, log: &LogId) -> bool {
        &*log.0 == "index"
    }
}

/// Returns midnight of a day in January 2020, in UTC.
fn day(day: i8) -> jiff::Timestamp {
    jiff::civil::date(2020, 1, day).in_tz("UTC").unwrap().timestamp()
}

/// Opens a log whose records were all written on this day. A text that starts with `body` is the
/// body of a call.
async fn old(journal: &Journal, name: &str, opening: LogOpening, at: i8, texts: &[&str]) {
    let mut append = Append::new(name).opening(opening);
    for text in texts {
        let is_body = text.starts_with("body");
        let content = (*text).to_owned();
        let record = if is_body { NewRecord::copy(&log(name), content) } else { item(text) };
        append = append.record(NewRecord { at: Some(day(at)), ..record });
    }
    journal.commit(batch(append)).await.unwrap();
}

async fn old_run(journal: &Journal, name: &str, of: &str, at: i8, status: &str) {
    let record = NewRecord { at: Some(day(at)), ..item("of the run") };
    let append = Append::new(name).opening(LogOpening::run(of)).record(record).status(status);
    journal.commit(batch(append)).await.unwrap();
}

async fn expire(journal: &Journal, class: RetentionClass, until: i8) -> DataCount {
    let data = ExpiredData { class, until: day(until), classifier: &ByName };
    let count = journal.expire(&us(), &data).await.unwrap();
    assert_eq!(journal.complete_expiry().await.unwrap(), Vec::<throughline_json::Name>::new());
    count
}

async fn stats(journal: &Journal, class: RetentionClass, until: i8) -> ClassStats {
    journal.class_stats(&us(), class, Some(day(until)), &ByName).await.unwrap()
}

async fn head(journal: &Journal, name: &str) -> LogHead {
    journal.log(&us(), &log(name)).await.unwrap().unwrap()
}

async fn is_expired(journal: &Journal, name: &str) -> bool {
    head(journal, name).await.gone == Some(ElisionReason::Expired)
}

fn count(logs: u64, records: u64, bytes: u64) -> DataCount {
    DataCount { logs, records, bytes }
}

pub(crate) async fn classes_expire_separately(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    old(&journal, "call-1", LogOpening::thread(), 1, &["reply", "body 1"]).await;
    old(&journal, "call-1b", LogOpening::run("call-1"), 2, &["refused", "body 1b"]).await;
    old(&journal, "call-young", LogOpening::thread(), 9, &["reply", "body 2"]).await;
    old(&journal, "index", LogOpening::thread(), 1, &["agents"]).await;
    old(&journal, "agent", LogOpening::thread(), 1, &["said"]).await;
    old_run(&journal, "run", "agent", 1, "completed").await;
    old(&journal, "run.inbox", LogOpening::run("agent"), 1, &["command"]).await;
    old_run(&journal, "active", "agent", 1, "running").await;
    old_run(&journal, "waiting", "agent", 1, "waiting").await;

    // Bodies: the rest of the calls is kept, and the conversation does not count as used.
    let planned = ClassStats { logs: 3, since: Some(day(1)), expired: count(2, 2, 13) };
    assert_eq!(stats(&journal, RetentionClass::Bodies, 5).await, planned);
    assert_eq!(expire(&journal, RetentionClass::Bodies, 5).await, planned.expired);
    assert_eq!(head(&journal, "call-1").await.updated, day(1));
    let records = read(&journal, "call-1").await;
    assert_eq!(records[0].content, Content::Here("reply".into()));
    assert_eq!(records[1].content, Content::Gone(ElisionReason::Expired));
    assert_eq!(texts(&journal, "call-young").await, numbered(&[(1, "reply"), (2, "body 2")]));
    let left = ClassStats { logs: 1, since: Some(day(9)), expired: DataCount::default() };
    assert_eq!(stats(&journal, RetentionClass::Bodies, 5).await, left);
    assert_eq!(expire(&journal, RetentionClass::Bodies, 5).await, DataCount::default());
    proven(&journal).await;

    // Requests: a conversation goes with its failed calls.
    let planned = stats(&journal, RetentionClass::Requests, 5).await;
    assert_eq!((planned.logs, planned.since), (2, Some(day(1))));
    assert_eq!(planned.expired, count(2, 2, 12));
    assert_eq!(expire(&journal, RetentionClass::Requests, 5).await, planned.expired);
    assert!(is_expired(&journal, "call-1").await && is_expired(&journal, "call-1b").await);
    assert!(!is_expired(&journal, "call-young").await && !is_expired(&journal, "agent").await);

    // Runs: those that have ended, with their commands. The Thread stays.
    let planned = stats(&journal, RetentionClass::Runs, 5).await;
    assert_eq!((planned.logs, planned.expired), (1, count(2, 2, 17)));
    assert_eq!(expire(&journal, RetentionClass::Runs, 5).await, planned.expired);
    assert!(is_expired(&journal, "run").await && is_expired(&journal, "run.inbox").await);
    assert!(!is_expired(&journal, "active").await && !is_expired(&journal, "waiting").await);
    assert_eq!(texts(&journal, "agent").await, numbered(&[(1, "said")]));

    // Threads: with the runs that are left, but without the calls and the permanent Threads.
    let planned = stats(&journal, RetentionClass::Threads, 5).await;
    assert_eq!((planned.logs, planned.expired), (1, count(3, 3, 24)));
    assert_eq!(expire(&journal, RetentionClass::Threads, 5).await, planned.expired);
    assert!(is_expired(&journal, "agent").await && is_expired(&journal, "active").await);
    assert_eq!(texts(&journal, "index").await, numbered(&[(1, "agents")]));
    assert_eq!(texts(&journal, "call-young").await, numbered(&[(1, "reply"), (2, "body 2")]));
    for class in [RetentionClass::Requests, RetentionClass::Threads, RetentionClass::Runs] {
        assert_eq!(stats(&journal, class, 5).await.expired, DataCount::default(), "{class}");
        assert_eq!(expire(&journal, class, 5).await, DataCount::default(), "{class}");
    }
    proven(&journal).await;
}

pub(crate) async fn conversations_in_use_keep_all_their_data(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    for (name, opening) in [
        ("call-fork", LogOpening::fork("call-forked", 2)),
        ("call-run", LogOpening::run("call-continued")),
    ] {
        let parent = if name == "call-fork" { "call-forked" } else { "call-continued" };
        old(&journal, parent, LogOpening::thread(), 1, &["reply", "body"]).await;
        old(&journal, name, opening, 9, &["later", "body 2"]).await;
    }
    for class in [RetentionClass::Bodies, RetentionClass::Requests] {
        assert_eq!(stats(&journal, class, 5).await.expired, DataCount::default(), "{class}");
        assert_eq!(expire(&journal, class, 5).await, DataCount::default(), "{class}");
    }
    assert_eq!(texts(&journal, "call-forked").await, numbered(&[(1, "reply"), (2, "body")]));
    // Without use, the forks expire with their parents in one pass.
    assert_eq!(expire(&journal, RetentionClass::Requests, 9).await.logs, 4);
    for name in ["call-forked", "call-fork", "call-continued", "call-run"] {
        assert!(is_expired(&journal, name).await, "{name}");
    }
    proven(&journal).await;
}

pub(crate) async fn expiry_covers_many_pages_and_one_tenant(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let others = NewRecord { at: Some(day(1)), ..item("another tenant's") };
    let append = Append::new("call-0").opening(LogOpening::thread()).record(others);
    let others = throughline_core::Batch::new(other_tenant()).append(append);
    journal.commit(others).await.unwrap();
    // More than two pages, with logs of another class in between.
    for number in 0..230 {
        let name = format!("{}-{number}", if number % 3 == 0 { "agent" } else { "call" });
        old(&journal, &name, LogOpening::thread(), 1, &["x"]).await;
    }
    assert_eq!(expire(&journal, RetentionClass::Requests, 5).await, count(153, 153, 153));
    assert_eq!(stats(&journal, RetentionClass::Requests, 5).await, ClassStats::default());
    assert_eq!(stats(&journal, RetentionClass::Threads, 5).await.expired, count(77, 77, 77));
    let others = journal.read(&other_tenant(), &log("call-0"), 0, 10).await.unwrap();
    assert_eq!(others[0].content, Content::Here("another tenant's".into()));
    proven(&journal).await;
}
