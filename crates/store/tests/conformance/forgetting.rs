//! Tests that forgetting and expiry destroy content everywhere and keep the erasure records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_core::{
    Append, Batch, Body, Content, Direction, ElisionReason, Envelope, Item, ItemPosition, LogHead,
    LogOpening, NativePart, NewRecord, NewVaultTurn, Role, Store, StoreError, TurnId, VaultKey,
    Wire, holds_siblings, kind, store_items,
};
use throughline_json::Json;
use throughline_store::{ErasureReport, Journal, Options, about_item, open};

use crate::harness::*;

const SECRET: &str = "a secret that must not be found again";

async fn head(journal: &Journal, name: &str) -> LogHead {
    journal.log(&us(), &log(name)).await.unwrap().unwrap()
}

/// Returns an Item record whose `about` names the Item itself.
fn about(thread: &str, id: &str, text: &str) -> NewRecord {
    item(text).about(about_item(&log(thread), id))
}

fn destroyed(logs: &[&str], records: u64, bytes: usize) -> ErasureReport {
    let logs = logs.iter().map(|name| log(name)).collect();
    ErasureReport { logs, records, bytes: bytes as u64, unreached: Vec::new(), damaged: 0 }
}

pub(crate) async fn forgetting_a_thread_includes_its_runs(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a", SECRET]).await;
    thread(&journal, "other", &["stays"]).await;
    run(&journal, "run", "thread").await;
    add(&journal, "run", &["step"]).await;
    let outcome = journal.forget(&us(), &log("thread"), None).await.unwrap();
    assert_eq!(outcome, destroyed(&["thread", "run"], 3, 1 + SECRET.len() + 4));
    let forgotten = "forgotten";
    let expected = numbered(&[(1, forgotten), (2, forgotten), (3, r#"{"all":true}"#)]);
    assert_eq!(texts(&journal, "thread").await, expected);
    assert_eq!(texts(&journal, "run").await, numbered(&[(1, forgotten), (2, r#"{"all":true}"#)]));
    assert_eq!(texts(&journal, "other").await, numbered(&[(1, "stays")]));
    for name in ["thread", "run"] {
        assert_eq!(head(&journal, name).await.gone, Some(ElisionReason::Forgotten));
        let more = journal.commit(batch(items(name, &["more"]))).await;
        assert_eq!(
            error_message(more),
            format!("{name} was forgotten and accepts no more records")
        );
    }
    assert_eq!(head(&journal, "thread").await.bytes, 12);
    // Forgetting again destroys nothing more.
    let repeated = journal.forget(&us(), &log("thread"), None).await.unwrap();
    assert_eq!((repeated.records, repeated.bytes), (0, 0));
    assert_eq!(proven(&journal).await.gone, 3);
    let outcome = journal.forget(&us(), &log("none"), None).await;
    assert_eq!(error_message(outcome), "there is no thread none");
    let outcome = journal.forget(&us(), &log("run"), None).await;
    assert_eq!(error_message(outcome), "run is a run; forget its thread or a single item instead");
}

pub(crate) async fn a_forgotten_item_is_gone_everywhere(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let append = Append::new("thread").opening(LogOpening::thread());
    let append = append.record(about("thread", "one", SECRET)).record(about("thread", "two", "b"));
    journal.commit(batch(append)).await.unwrap();
    run(&journal, "run", "thread").await;
    journal.commit(batch(Append::new("run").record(about("thread", "one", SECRET)))).await.unwrap();
    journal.fork(&us(), &log("thread"), None, &log("fork")).await.unwrap();
    add(&journal, "fork", &["c"]).await;
    // An Item without `about` is found by its content.
    add(&journal, "thread", &[r#"{"id":"three","text":"unmarked"}"#]).await;
    // Forget the Item through the fork that shares it.
    let outcome = journal.forget(&us(), &log("fork"), Some("one")).await.unwrap();
    assert_eq!(outcome, destroyed(&["thread", "run"], 2, 2 * SECRET.len()));
    let erasure = r#"{"seqs":[],"checkpoints":true}"#;
    let expected = [(1, "forgotten"), (2, "b"), (3, "c"), (4, erasure)];
    assert_eq!(texts(&journal, "fork").await, numbered(&expected));
    let outcome = journal.forget(&us(), &log("thread"), Some("three")).await.unwrap();
    assert_eq!(outcome, destroyed(&["thread"], 1, 32));
    let expected = [
        (1, "forgotten"),
        (2, "b"),
        (3, "forgotten"),
        (4, r#"{"seqs":[1],"checkpoints":true}"#),
        (5, r#"{"seqs":[3],"checkpoints":true}"#),
    ];
    assert_eq!(texts(&journal, "thread").await, numbered(&expected));
    assert_eq!(texts(&journal, "run").await[0], (1, "forgotten".to_owned()));
    assert_eq!(head(&journal, "thread").await.gone, None);
    add(&journal, "thread", &["goes on"]).await;
    let outcome = journal.forget(&us(), &log("thread"), Some("none")).await;
    assert_eq!(error_message(outcome), "there is no item none");
    assert_eq!(proven(&journal).await.gone, 3);
}

/// Copies repeat the content of other records. All copies of a Thread, its forks and its runs are
/// destroyed when any of their records is destroyed. The turn in the same batch as a copy is not
/// affected.
pub(crate) async fn copies_are_forgotten_with_what_they_repeat(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let copy = |thread: &str, text: &'static str| NewRecord::copy(&log(thread), text);
    let append = Append::new("thread").opening(LogOpening::thread());
    let append = append.record(about("thread", "one", SECRET)).record(copy("thread", "first"));
    journal.commit(batch(append)).await.unwrap();
    let mut second = batch(
        Append::new("thread").record(about("thread", "two", "b")).record(copy("thread", SECRET)),
    );
    second.vault.push(NewVaultTurn {
        id: TurnId::from("second"),
        parent: None,
        keys: vec![VaultKey::Claim("second".into())],
        log: log("thread"),
        prefix: None,
    });
    journal.commit(second).await.unwrap();
    journal.fork(&us(), &log("thread"), None, &log("fork")).await.unwrap();
    journal.commit(batch(Append::new("fork").record(copy("fork", SECRET)))).await.unwrap();
    run(&journal, "run", "fork").await;
    journal.commit(batch(Append::new("run").record(copy("fork", SECRET)))).await.unwrap();
    thread(&journal, "other", &["stays"]).await;
    journal.commit(batch(Append::new("other").record(copy("other", "stays too")))).await.unwrap();
    let outcome = journal.forget(&us(), &log("thread"), Some("one")).await.unwrap();
    assert_eq!((outcome.records, outcome.bytes), (5, 5 + 4 * SECRET.len() as u64));
    let forgotten_seqs = |texts: &[(u64, String)]| {
        texts.iter().filter(|(_, text)| text == "forgotten").map(|(seq, _)| *seq).collect()
    };
    let seqs: Vec<u64> = forgotten_seqs(&texts(&journal, "thread").await);
    assert_eq!(seqs, [1, 2, 4]);
    let seqs: Vec<u64> = forgotten_seqs(&texts(&journal, "fork").await);
    assert_eq!(seqs, [1, 2, 4, 5]);
    let seqs: Vec<u64> = forgotten_seqs(&texts(&journal, "run").await);
    assert_eq!(seqs, [1]);
    let expected = numbered(&[(1, "stays"), (2, "stays too")]);
    assert_eq!(texts(&journal, "other").await, expected);
    let found = journal.find(&us(), &[VaultKey::Claim("second".into())]).await.unwrap().found;
    assert_eq!(found[0].as_ref().unwrap().turn.gone, None, "the turn itself is intact");
    assert_eq!(proven(&journal).await.gone, 5);
}

pub(crate) async fn run_can_be_forgotten_without_its_thread(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    run(&journal, "run", "thread").await;
    add(&journal, "run", &[SECRET]).await;
    Store::forget_run(&journal, &us(), &log("run")).await.unwrap();
    assert_eq!(head(&journal, "run").await.gone, Some(ElisionReason::Forgotten));
    let expected = numbered(&[(1, "forgotten"), (2, r#"{"all":true}"#)]);
    assert_eq!(texts(&journal, "run").await, expected);
    assert_eq!(texts(&journal, "thread").await, numbered(&[(1, "a")]), "the thread is unchanged");
    assert_eq!(head(&journal, "thread").await.last, 1);
    for name in ["thread", "none"] {
        let outcome = Store::forget_run(&journal, &us(), &log(name)).await;
        assert_eq!(error_message(outcome), format!("there is no run {name}"));
    }
    assert_eq!(proven(&journal).await.gone, 1);
}

pub(crate) async fn a_fork_forgets_only_its_own(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a", "b"]).await;
    journal.fork(&us(), &log("thread"), Some(1), &log("fork")).await.unwrap();
    add(&journal, "fork", &["c"]).await;
    let outcome = journal.forget(&us(), &log("fork"), None).await.unwrap();
    assert_eq!(outcome, destroyed(&["fork"], 1, 1));
    let expected = numbered(&[(1, "a"), (2, "forgotten"), (3, r#"{"all":true}"#)]);
    assert_eq!(texts(&journal, "fork").await, expected);
    assert_eq!(texts(&journal, "thread").await, numbered(&[(1, "a"), (2, "b")]));
    // When a Thread is forgotten, its forks lose the shared records too.
    journal.fork(&us(), &log("thread"), Some(1), &log("next")).await.unwrap();
    journal.forget(&us(), &log("thread"), None).await.unwrap();
    let erasure = r#"{"seqs":[],"checkpoints":true}"#;
    assert_eq!(texts(&journal, "next").await, numbered(&[(1, "forgotten"), (2, erasure)]));
    proven(&journal).await;
}

pub(crate) async fn forgetting_destroys_the_checkpoints_after_it(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let checkpoint =
        |name: &str| batch(Append::new(name).record(NewRecord::new(kind::CHECKPOINT, SECRET)));
    let append = Append::new("thread").opening(LogOpening::thread());
    journal.commit(batch(append.record(about("thread", "one", SECRET)))).await.unwrap();
    journal.commit(checkpoint("thread")).await.unwrap();
    journal.fork(&us(), &log("thread"), None, &log("fork")).await.unwrap();
    journal.commit(checkpoint("fork")).await.unwrap();
    journal.fork(&us(), &log("fork"), None, &log("nested")).await.unwrap();
    journal.commit(checkpoint("nested")).await.unwrap();
    journal.forget(&us(), &log("thread"), Some("one")).await.unwrap();
    for name in ["thread", "fork", "nested"] {
        let found = journal.checkpoint(&us(), &log(name), u64::MAX).await.unwrap();
        assert_eq!(found, None, "{name}");
        for record in read(&journal, name).await {
            assert!(!text(&record).contains(SECRET), "{name} {}", record.seq);
        }
    }
    assert_eq!(proven(&journal).await.gone, 4);
}

pub(crate) async fn leased_log_can_be_forgotten(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[SECRET]).await;
    let time = Duration::from_mins(10);
    let lease = journal.lease(&us(), &log("thread"), "holder", time).await.unwrap();
    let outcome = journal.forget(&us(), &log("thread"), None).await.unwrap();
    assert_eq!(outcome, destroyed(&["thread"], 1, SECRET.len()));
    let more = journal.commit(batch(items("thread", &["more"]).with_fence(lease.fence))).await;
    assert_eq!(error_message(more), "thread was forgotten and accepts no more records");
    journal.renew(&us(), &log("thread"), lease.fence, time).await.unwrap();
}

pub(crate) async fn forgetting_reaches_backups(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let append = Append::new("thread").opening(LogOpening::thread());
    journal.commit(batch(append.record(about("thread", "one", SECRET)))).await.unwrap();
    let (near, lost) = (harness.folder().file("near.db"), harness.folder().file("lost.db"));
    journal.backup(&near, &|_| {}).await.unwrap();
    journal.backup(&lost, &|_| {}).await.unwrap();
    // Move a backup file away, because only its key file must be reachable.
    std::fs::rename(&near, near.with_extension("moved")).unwrap();
    let lost = throughline_store::key_file_of(&lost);
    std::fs::remove_file(&lost).unwrap();
    // A Thread that is newer than the backup is not searched in the backup.
    thread(&journal, "young", &["a"]).await;
    let outcome = journal.forget(&us(), &log("thread"), Some("one")).await.unwrap();
    assert_eq!(outcome.unreached, [lost.display().to_string().into()]);
    let outcome = journal.forget(&us(), &log("young"), None).await.unwrap();
    assert_eq!(outcome.unreached, [lost.display().to_string().into()]);
    let restored = harness.folder().file("restored.db");
    let keys = throughline_store::key_file_of(&near);
    let moved = near.with_extension("moved");
    throughline_store::restore(&moved, Some(&keys), &restored, &harness.options()).await.unwrap();
    let options: Options = harness.options();
    let backup = open(&format!("sqlite://{}", restored.display()), &options).await.unwrap();
    assert_eq!(texts(&backup, "thread").await[0], (1, "forgotten".to_owned()));
    assert_eq!(proven(&backup).await.gone, 1);
    backup.close().await.unwrap();
}

pub(crate) async fn interrupted_forgetting_is_completed(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[SECRET]).await;
    let file = harness.folder().file("backup.db");
    journal.backup(&file, &|_| {}).await.unwrap();
    // An active reader prevents the erasure from completing before its process ends.
    let reader = harness.reader().await;
    let (tenant, thread) = (us(), log("thread"));
    let destroyed = until(|| async { head(&journal, "thread").await.gone.is_some() });
    tokio::select! {
        () = destroyed => {}
        outcome = journal.forget(&tenant, &thread, None) => panic!("completed: {outcome:?}"),
    }
    drop(reader);
    let keys = throughline_store::key_file_of(&file);
    let salts = || {
        let text = std::fs::read_to_string(&keys).unwrap();
        text.lines().filter(|line| line.starts_with("salt ")).count()
    };
    assert_eq!(salts(), 1);
    // The next process that opens the store completes the erasure.
    let next = harness.open().await;
    assert_eq!(salts(), 0);
    let restored = harness.folder().file("restored.db");
    throughline_store::restore(&file, None, &restored, &harness.options()).await.unwrap();
    let url = format!("sqlite://{}", restored.display());
    let backup = open(&url, &harness.options()).await.unwrap();
    assert_eq!(texts(&backup, "thread").await[0], (1, "forgotten".to_owned()));
    assert_eq!(proven(&backup).await.gone, 1);
    backup.close().await.unwrap();
    // Opening the store again then changes nothing.
    let finished = std::fs::read(&keys).unwrap();
    let reopened = harness.open().await;
    assert_eq!(read(&reopened, "thread").await.len(), 2);
    assert_eq!(std::fs::read(&keys).unwrap(), finished);
    proven(&next).await;
}

pub(crate) async fn item_is_forgotten_in_all_ancestor_logs(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let append = Append::new("thread").opening(LogOpening::thread());
    journal.commit(batch(append.record(about("thread", "one", SECRET)))).await.unwrap();
    journal.fork(&us(), &log("thread"), None, &log("fork")).await.unwrap();
    let append = Append::new("fork").record(about("fork", "one", SECRET));
    journal.commit(batch(append.record(about("fork", "two", "b")))).await.unwrap();
    // Add another Item with the same name, which the fork does not share.
    journal.commit(batch(Append::new("thread").record(about("thread", "two", "c")))).await.unwrap();
    let outcome = journal.forget(&us(), &log("fork"), Some("one")).await.unwrap();
    assert_eq!(outcome, destroyed(&["fork", "thread"], 2, 2 * SECRET.len()));
    let outcome = journal.forget(&us(), &log("fork"), Some("two")).await.unwrap();
    assert_eq!(outcome, destroyed(&["fork"], 1, 1));
    assert_eq!(texts(&journal, "thread").await[1], (2, "c".to_owned()));
    assert_eq!(proven(&journal).await.gone, 3);
}

pub(crate) async fn records_without_item_ids_are_forgotten_too(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let unmarked = format!(r#"{{"id":"one","text":"{SECRET}"}}"#);
    let append = items("thread", &[&unmarked]).opening(LogOpening::thread());
    journal.commit(batch(append.record(about("thread", "one", SECRET)))).await.unwrap();
    journal.forget(&us(), &log("thread"), Some("one")).await.unwrap();
    let forgotten = |seq| (seq, "forgotten".to_owned());
    assert_eq!(texts(&journal, "thread").await[..2], [forgotten(1), forgotten(2)]);
}

pub(crate) async fn item_is_found_in_a_thread_of_any_length(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let unmarked = format!(r#"{{"id":"one","text":"{SECRET}"}}"#);
    // Positions just after one page, and several pages later.
    for before in [255, 256, 1030] {
        let name = format!("thread {before}");
        let append = items(&name, &vec!["a"; before]).opening(LogOpening::thread());
        journal.commit(batch(append.record(item(&unmarked)))).await.unwrap();
        let outcome = journal.forget(&us(), &log(&name), Some("one")).await.unwrap();
        assert_eq!((outcome.records, outcome.bytes), (1, unmarked.len() as u64));
    }
}

pub(crate) async fn checkpoints_written_during_forgetting_are_destroyed(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    let append = Append::new("thread").opening(LogOpening::thread());
    let append = (0..8).fold(append, |append, number| {
        append.record(about("thread", &format!("item {number}"), SECRET))
    });
    nodes[0].commit(batch(append)).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (other, ended) = (nodes[1].clone(), done.clone());
    let folding = tokio::spawn(async move {
        while !ended.load(Ordering::Acquire) {
            let checkpoint = NewRecord::new(kind::CHECKPOINT, SECRET);
            other.commit(batch(Append::new("thread").record(checkpoint))).await.unwrap();
        }
    });
    for number in 0..8 {
        let item = format!("item {number}");
        nodes[0].forget(&us(), &log("thread"), Some(&item)).await.unwrap();
    }
    done.store(true, Ordering::Release);
    soon(folding).await.unwrap();
    // All checkpoints before the erasure record were destroyed.
    let records = read(&nodes[0], "thread").await;
    let erasure = records.iter().rposition(|record| *record.kind == *kind::FORGOTTEN).unwrap();
    let before = records[..erasure].iter().filter(|record| *record.kind == *kind::CHECKPOINT);
    let remaining: Vec<u64> =
        before.filter(|record| record.content.bytes().is_some()).map(|record| record.seq).collect();
    assert_eq!(remaining, Vec::<u64>::new());
    proven(&nodes[0]).await;
}

pub(crate) async fn forgotten_thread_accepts_no_runs(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    journal.forget(&us(), &log("thread"), None).await.unwrap();
    let expected = "thread was forgotten and accepts no new runs or forks";
    let begun = batch(Append::new("run").opening(LogOpening::run("thread")));
    assert_eq!(error_message(journal.commit(begun).await), expected);
    let forked = journal.fork(&us(), &log("thread"), Some(1), &log("fork")).await;
    assert_eq!(error_message(forked), expected);
    for name in ["run", "fork"] {
        assert_eq!(journal.log(&us(), &log(name)).await.unwrap(), None);
    }
}

pub(crate) async fn logs_created_during_forgetting_are_forgotten(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    for round in 0..8 {
        let name = format!("thread {round}");
        thread(&nodes[0], &name, &["a"]).await;
        let (other, of) = (nodes[1].clone(), name.clone());
        let beginning = tokio::spawn(async move {
            let mut begun = Vec::new();
            loop {
                let run = format!("run {} of {of}", begun.len());
                let append = items(&run, &[SECRET]).opening(LogOpening::run(of.as_str()));
                match other.commit(batch(append)).await {
                    Ok(_) => begun.push(run),
                    Err(_) => return begun,
                }
            }
        });
        let first = log(&format!("run 0 of {name}"));
        until(|| async { nodes[0].log(&us(), &first).await.unwrap().is_some() }).await;
        nodes[0].forget(&us(), &log(&name), None).await.unwrap();
        for run in soon(beginning).await.unwrap() {
            assert_eq!(head(&nodes[0], &run).await.gone, Some(ElisionReason::Forgotten), "{run}");
        }
    }
    proven(&nodes[0]).await;
}

fn large(about: Option<&str>) -> NewRecord {
    let record = NewRecord::new("item", vec![7; 100_000]);
    match about {
        None => record,
        Some(id) => record.about(about_item(&log("thread"), id)),
    }
}

pub(crate) async fn large_contents_are_stored_once(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let append = Append::new("thread").opening(LogOpening::thread());
    let append = append.record(large(Some("one"))).record(large(Some("two")));
    journal.commit(batch(append)).await.unwrap();
    journal.commit(batch(Append::new("thread").record(large(Some("three"))))).await.unwrap();
    let stats = journal.stats().await.unwrap();
    assert_eq!((stats.records, stats.content_bytes, stats.blobs), (3, 300_000, 1));
    assert!((100_000..101_000).contains(&stats.blob_bytes), "{}", stats.blob_bytes);
    // The blob exists until the last record that refers to it is forgotten.
    for (left, id) in [(1, "two"), (1, "one"), (0, "three")] {
        journal.forget(&us(), &log("thread"), Some(id)).await.unwrap();
        assert_eq!(journal.stats().await.unwrap().blobs, left, "{id}");
        proven(&journal).await;
    }
    journal.commit(batch(Append::new("thread").record(large(None)))).await.unwrap();
    let records = read(&journal, "thread").await;
    assert_eq!(records.last().unwrap().content, Content::Here(vec![7; 100_000].into()));
    assert_eq!(records[0].content, Content::Gone(ElisionReason::Forgotten));
}

pub(crate) async fn large_contents_are_not_shared_by_tenants(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    for tenant in [us(), other_tenant()] {
        let append = Append::new("thread").opening(LogOpening::thread()).record(large(None));
        journal.commit(Batch::new(tenant).append(append)).await.unwrap();
    }
    assert_eq!(journal.stats().await.unwrap().blobs, 2);
    journal.forget(&us(), &log("thread"), None).await.unwrap();
    assert_eq!(journal.stats().await.unwrap().blobs, 1);
    let other_records: Result<_, StoreError> =
        journal.read(&other_tenant(), &log("thread"), 0, 10).await;
    assert_eq!(other_records.unwrap()[0].content, Content::Here(vec![7; 100_000].into()));
    proven(&journal).await;
}

pub(crate) async fn records_that_contain_a_forgotten_item_are_destroyed(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    // A message that cannot be split: its envelope contains the text of both parts in another form.
    let message = Json::parse(format!(r#"{{"content":"first, {SECRET}"}}"#)).unwrap();
    let envelope = Arc::new(Envelope { json: message, parts: 2 });
    let part = |number: usize, text: &str| {
        let body = Body::Text(text.into());
        let mut item =
            Item::new(format!("0.{number}"), ItemPosition::new(0, number), Role::User, body);
        let json = Json::parse(format!("{text:?}")).unwrap();
        let mut native = NativePart::new(Wire::OPENAI_CHAT, Direction::Request, json);
        native.envelope = Some(Arc::clone(&envelope));
        item.native = Some(native);
        item
    };
    let stored = store_items(&[part(0, "first, "), part(1, SECRET)]);
    assert!(holds_siblings(&stored[0].json), "the message can be split");
    let mut append = Append::new("thread").opening(LogOpening::thread());
    for (number, stored) in stored.iter().enumerate() {
        let record = NewRecord::new(kind::ITEM, stored.json.bytes().clone());
        append = append.record(record.about(about_item(&log("thread"), &format!("0.{number}"))));
    }
    // The next message is not part of the unsplittable one.
    let next = Item::new("1.0", ItemPosition::new(1, 0), Role::User, Body::Text("next".into()));
    let next = NewRecord::new(kind::ITEM, store_items(&[next])[0].json.bytes().clone());
    append = append.record(next.about(about_item(&log("thread"), "1.0")));
    journal.commit(batch(append)).await.unwrap();
    let outcome = journal.forget(&us(), &log("thread"), Some("1.0")).await.unwrap();
    assert_eq!(outcome.records, 1, "another message does not contain it");
    let outcome = journal.forget(&us(), &log("thread"), Some("0.1")).await.unwrap();
    assert_eq!(outcome.records, 2);
    let records = journal.read(&us(), &log("thread"), 0, 10).await.unwrap();
    let forgotten =
        records.iter().filter(|record| record.content == Content::Gone(ElisionReason::Forgotten));
    assert_eq!(forgotten.count(), 3);
}
