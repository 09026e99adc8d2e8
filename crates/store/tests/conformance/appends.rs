//! Tests that appends leave no gaps in sequence numbers, write batches atomically and validate
//! names.

use bytes::Bytes;
use throughline_core::{
    Append, Batch, Content, LogHead, LogKind, LogOpening, NewRecord, NewVaultTurn, PendingRequest,
    Receipt, Store, StoreError, VaultKey, WrittenRange,
};
use throughline_store::{KeyLimits, Order, Page};
use tokio::task::JoinSet;

use crate::harness::*;

pub(crate) async fn sequences_have_no_gaps(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    assert_eq!(thread(&journal, "thread", &["a", "b"]).await, receipt(&[("thread", 1, 2, 0)]));
    assert_eq!(add(&journal, "thread", &["c"]).await, receipt(&[("thread", 3, 3, 0)]));
    assert_eq!(add(&journal, "thread", &[]).await, receipt(&[("thread", 4, 3, 0)]));
    let all = expected(&[(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(read_summaries(&journal, "thread").await, all);
    journal.close().await.unwrap();

    let journal = harness.open().await;
    assert_eq!(read_summaries(&journal, "thread").await, all);
    assert_eq!(add(&journal, "thread", &["d"]).await, receipt(&[("thread", 4, 4, 0)]));
    let head = journal.log(&us(), &log("thread")).await.unwrap().unwrap();
    let expected = LogHead {
        log: log("thread"),
        kind: LogKind::Thread,
        of: None,
        fork: None,
        rewinds: Vec::new(),
        status: None,
        last: 4,
        events: 0,
        bytes: 4,
        created: head.created,
        updated: head.updated,
        gone: None,
    };
    assert_eq!(head, expected);
    let records = read(&journal, "thread").await;
    assert_eq!((head.created, head.updated), (records[0].at, records[3].at));
}

pub(crate) async fn sequences_have_no_gaps_with_many_writers(on: Database) {
    let harness = Harness::fresh(on);
    let (one, other) = (harness.open().await, harness.open().await);
    thread(&one, "thread", &[]).await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let journal = if writer % 2 == 0 { one.clone() } else { other.clone() };
        writers.spawn(async move {
            let mut written = Vec::new();
            for number in 0..20 {
                let text = format!("{writer} {number}");
                let receipt = add(&journal, "thread", &[&text]).await;
                written.push((receipt.written[0].first, text));
            }
            written
        });
    }
    let mut written: Vec<_> = soon(writers.join_all()).await.into_iter().flatten().collect();
    written.sort();
    assert_eq!(
        written.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (1..=160).collect::<Vec<_>>()
    );
    assert_eq!(texts(&one, "thread").await, written);
    assert_eq!(texts(&other, "thread").await, written);
    assert_eq!(proven(&one).await.records, 160);
}

pub(crate) async fn unexpected_sequence_is_a_conflict(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a", "b"]).await;
    let outcome = journal.commit(batch(items("thread", &["late"]).expect_last(1))).await;
    assert_eq!(
        error_message(outcome),
        "thread is at record 2, not 1; read the new records and retry"
    );
    let outcome = journal.commit(batch(items("thread", &["c"]).expect_last(2))).await;
    assert_eq!(outcome.unwrap(), receipt(&[("thread", 3, 3, 0)]));
    // If many writers expect the same sequence number, only one succeeds.
    let mut writers = JoinSet::new();
    for _ in 0..8 {
        let journal = journal.clone();
        writers.spawn(async move {
            journal.commit(batch(items("thread", &["d"]).expect_last(3))).await.is_ok()
        });
    }
    let won = soon(writers.join_all()).await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
    assert_eq!(
        texts(&journal, "thread").await,
        numbered(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    );
}

pub(crate) async fn a_thread_and_its_run_begin_in_one_batch(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let begin = batch(items("thread", &["hello"]).opening(LogOpening::thread()))
        .append(Append::new("run").opening(LogOpening::run("thread")).status("running"));
    let written = journal.commit(begin).await.unwrap();
    assert_eq!(written, receipt(&[("thread", 1, 1, 0), ("run", 1, 0, 0)]));
    let run = journal.log(&us(), &log("run")).await.unwrap().unwrap();
    assert_eq!((run.kind, run.of.clone()), (LogKind::Run, Some(log("thread"))));
    assert_eq!(run.status.as_deref(), Some("running"));
    assert_eq!(
        journal.runs(&us(), Some(&log("thread")), Page::default()).await.unwrap(),
        std::slice::from_ref(&run)
    );
    journal.commit(batch(Append::new("run").status("done"))).await.unwrap();
    let done = journal.log(&us(), &log("run")).await.unwrap().unwrap();
    assert_eq!(done, LogHead { status: Some("done".into()), updated: done.updated, ..run });
}

pub(crate) async fn only_threads_have_runs_and_forks(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let open = async |name: &str, opening: LogOpening| {
        journal.commit(batch(Append::new(name).opening(opening))).await
    };
    open("thread", LogOpening::thread()).await.unwrap();
    open("run", LogOpening::run("thread")).await.unwrap();
    let message = |outcome: Result<Receipt, StoreError>| outcome.unwrap_err().to_string();
    assert_eq!(message(open("a", LogOpening::run("run")).await), "there is no thread run");
    assert_eq!(message(open("a", LogOpening::fork("run", 0)).await), "there is no thread run");
    let of_a_thread = LogOpening { of: Some(log("thread")), ..LogOpening::thread() };
    assert_eq!(
        message(open("a", of_a_thread).await),
        "a is a thread; only a run can belong to a thread"
    );
    let forked =
        LogOpening { fork: LogOpening::fork("thread", 0).fork, ..LogOpening::run("thread") };
    assert_eq!(message(open("a", forked).await), "a is a run; only threads can be forked");
    // A run that is opened in the same batch is not a Thread either.
    let both = Batch::new(us())
        .append(Append::new("b").opening(LogOpening::run("thread")))
        .append(Append::new("c").opening(LogOpening::run("b")));
    assert_eq!(message(journal.commit(both).await), "there is no thread b");
    assert_eq!(journal.log(&us(), &log("b")).await.unwrap(), None);
}

pub(crate) async fn run_may_precede_its_thread_in_a_batch(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let begin = batch(Append::new("run").opening(LogOpening::run("thread")))
        .append(items("thread", &["hello"]).opening(LogOpening::thread()));
    let written = journal.commit(begin).await.unwrap();
    assert_eq!(written, receipt(&[("run", 1, 0, 0), ("thread", 1, 1, 0)]));
    let run = journal.log(&us(), &log("run")).await.unwrap().unwrap();
    assert_eq!(run.of, Some(log("thread")));
}

pub(crate) async fn log_cannot_be_opened_twice(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let outcome = journal.commit(batch(items("thread", &["a"]))).await;
    assert_eq!(error_message(outcome), "there is no log thread");
    let outcome = journal.read(&us(), &log("thread"), 0, 10).await;
    assert_eq!(error_message(outcome), "there is no log thread");
    assert_eq!(journal.log(&us(), &log("thread")).await.unwrap(), None);
    thread(&journal, "thread", &["a"]).await;
    let outcome = journal.commit(batch(Append::new("thread").opening(LogOpening::thread()))).await;
    assert_eq!(
        error_message(outcome),
        "thread is at record 1, not 0; read the new records and retry"
    );
    let outcome = journal.commit(batch(Append::new("run").opening(LogOpening::run("none")))).await;
    assert_eq!(error_message(outcome), "there is no thread none");
}

pub(crate) async fn batch_is_written_completely_or_not_at_all(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "first", &["a"]).await;
    thread(&journal, "second", &["b"]).await;
    let before = journal.stats().await.unwrap();
    let claim = VaultKey::Claim("claim".into());
    let new_batch = |expected: u64| {
        let mut batch = batch(items("first", &["c"]))
            .append(items("second", &["d"]).expect_last(expected))
            .append(Append::new("third").opening(LogOpening::thread()))
            .with_idempotency_key("name");
        batch.vault.push(NewVaultTurn {
            id: "turn".into(),
            parent: None,
            keys: vec![claim.clone()],
            log: log("first"),
            prefix: None,
        });
        batch.asks.push(PendingRequest {
            id: "question".into(),
            kind: "approval".into(),
            log: log("second"),
            expires_in: None,
        });
        batch
    };
    let refused = journal.commit(new_batch(7)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    let mut after = journal.stats().await.unwrap();
    (after.manifests, after.disk_bytes) = (before.manifests, before.disk_bytes);
    assert_eq!(after, before);
    assert_eq!(texts(&journal, "first").await, numbered(&[(1, "a")]));
    assert_eq!(journal.log(&us(), &log("third")).await.unwrap(), None);
    assert_eq!(journal.pending(&us(), None).await.unwrap(), []);
    assert_eq!(journal.find(&us(), std::slice::from_ref(&claim)).await.unwrap().found, [None]);
    // The rejected batch of another tenant does not create that tenant.
    let mut other = new_batch(7);
    other.tenant = other_tenant();
    assert!(journal.commit(other).await.is_err());
    assert_eq!(journal.tenants().await.unwrap(), [us()]);
    // The rejected batch did not use up its idempotency name.
    let written = journal.commit(new_batch(1)).await.unwrap();
    assert_eq!(written, receipt(&[("first", 2, 2, 0), ("second", 2, 2, 0), ("third", 1, 0, 0)]));
    assert_eq!(journal.pending(&us(), None).await.unwrap().len(), 1);
    assert!(journal.find(&us(), &[claim]).await.unwrap().found[0].is_some());
}

pub(crate) async fn batch_with_duplicate_names_is_rejected(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let duplicate = batch(items("thread", &["a"])).append(items("thread", &["b"]));
    assert_eq!(
        error_message(journal.commit(duplicate).await),
        "a batch may append to each log only once"
    );
    let duplicate =
        batch(items("thread", &["a"])).with_idempotency_key("name").with_idempotency_key("name");
    assert_eq!(
        error_message(journal.commit(duplicate).await),
        "a batch may list each idempotency key only once"
    );
    let mut duplicate = batch(items("thread", &["a"]));
    let request = PendingRequest {
        id: "q".into(),
        kind: "approval".into(),
        log: log("thread"),
        expires_in: None,
    };
    duplicate.asks = vec![request.clone(), request];
    assert_eq!(
        error_message(journal.commit(duplicate).await),
        "a batch may add each pending request only once"
    );
    let mut duplicate = batch(items("thread", &["a"]));
    let (keys, prefix) = (Vec::new(), None);
    let node = NewVaultTurn { id: "t".into(), parent: None, keys, log: log("thread"), prefix };
    duplicate.vault = vec![node.clone(), node];
    assert_eq!(
        error_message(journal.commit(duplicate).await),
        "a batch may capture each turn only once"
    );
    assert_eq!(read(&journal, "thread").await, []);
}

pub(crate) async fn names_with_control_characters_are_refused(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let tail = "is not a valid name; use 1 to 200 bytes without control characters";
    let request = |id: &str, kind: &str| {
        let mut asks_batch = batch(items("thread", &["a"]));
        let (id, kind) = (id.into(), kind.into());
        asks_batch.asks = vec![PendingRequest { id, kind, log: log("thread"), expires_in: None }];
        asks_batch
    };
    let capture = |id: &str| {
        let mut capturing = batch(items("thread", &["a"]));
        let (id, keys, prefix) = (id.into(), Vec::new(), None);
        capturing.vault = vec![NewVaultTurn { id, parent: None, keys, log: log("thread"), prefix }];
        capturing
    };
    let (long, shown) = ("x".repeat(201), "x".repeat(40));
    let opening = |name: &str| Append::new(name).opening(LogOpening::thread());
    let invalid = [
        (Batch::new("a\nb").append(opening("t")), "\"a\\nb\""),
        (Batch::new("").append(opening("t")), "\"\""),
        (batch(opening("a\tb")), "\"a\\tb\""),
        (batch(opening(&long)), &*format!("{shown:?}")),
        (batch(Append::new("thread").record(NewRecord::new("a\0b", "a"))), "\"a\\0b\""),
        (batch(Append::new("thread").status("a\u{7f}b")), "\"a\\u{7f}b\""),
        (request("a\nb", "approval"), "\"a\\nb\""),
        (request("a", "a\nb"), "\"a\\nb\""),
        (capture("a\nb"), "\"a\\nb\""),
    ];
    for (invalid, name) in invalid {
        assert_eq!(error_message(journal.commit(invalid).await), format!("{name} {tail}"));
    }
    let time = std::time::Duration::from_secs(1);
    let lease = journal.lease(&us(), &log("a\nb"), "owner", time).await;
    assert_eq!(error_message(lease), format!("\"a\\nb\" {tail}"));
    let lease = journal.lease(&us(), &log("thread"), "a\nb", time).await;
    assert_eq!(error_message(lease), format!("\"a\\nb\" {tail}"));
    let key = journal.create_api_key(&"a\nb".into(), "label", &KeyLimits::default()).await;
    assert_eq!(error_message(key), format!("\"a\\nb\" {tail}"));
    assert_eq!(journal.tenants().await.unwrap(), [us()]);
    // All other characters are valid in a name.
    let name = "ß 漢字 \"quoted\" \\ 🦀";
    thread(&journal, name, &["a"]).await;
    assert_eq!(texts(&journal, name).await, numbered(&[(1, "a")]));
}

pub(crate) async fn any_content_round_trips(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut contents: Vec<Bytes> = vec![Bytes::new(), every_byte.into()];
    // Sizes around the limit above which content is stored as a blob.
    for size in [1, (16 << 10) - 1, 16 << 10, (16 << 10) + 1, 300 << 10] {
        contents.push((0..size).map(|at: u32| (at % 251) as u8).collect::<Vec<u8>>().into());
    }
    let append = Append::new("thread").opening(LogOpening::thread());
    let append = contents
        .iter()
        .fold(append, |append, content| append.record(NewRecord::new("item", content.clone())));
    journal.commit(batch(append)).await.unwrap();
    journal.close().await.unwrap();
    let journal = harness.open().await;
    let found: Vec<_> =
        read(&journal, "thread").await.into_iter().map(|record| record.content).collect();
    assert_eq!(found, contents.into_iter().map(Content::Here).collect::<Vec<_>>());
}

pub(crate) async fn huge_content_round_trips(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let huge: Bytes =
        (0..50_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let append = Append::new("thread").opening(LogOpening::thread());
    journal.commit(batch(append.record(NewRecord::new("item", huge.clone())))).await.unwrap();
    journal.close().await.unwrap();
    let journal = harness.open().await;
    let records = read(&journal, "thread").await;
    assert!(records[0].content == Content::Here(huge), "50 MB are read back unchanged");
}

pub(crate) async fn reading_accepts_any_position_and_limit(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a", "b", "c"]).await;
    let all = expected(&[(1, "a"), (2, "b"), (3, "c")]);
    for after in [0, 1, 2, 3, 4, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        for limit in [0, 1, 2, 3, 4, u32::MAX] {
            let records = journal.read(&us(), &log("thread"), after, limit).await.unwrap();
            let expected = all.iter().filter(|(seq, ..)| *seq > after).take(limit as usize);
            assert_eq!(
                summaries(&records),
                expected.cloned().collect::<Vec<_>>(),
                "{after} {limit}"
            );
        }
    }
}

pub(crate) async fn logs_are_listed_by_time_and_in_pages(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    // Logs that are written in one batch have the same time.
    let mut begin = Batch::new(us());
    for number in 0..7 {
        let append = Append::new(format!("thread {number}")).opening(LogOpening::thread());
        begin = begin.append(append);
    }
    journal.commit(begin).await.unwrap();
    thread(&journal, "last", &[]).await;
    run(&journal, "run", "last").await;
    for order in [Order::Newest, Order::Oldest] {
        let everything = Page { limit: 100, order, ..Page::default() };
        let all = journal.threads(&us(), everything).await.unwrap();
        assert_eq!(all.len(), 8);
        let mut paged: Vec<LogHead> = Vec::new();
        loop {
            let after = paged.last().map(|head| head.log.clone());
            let page = journal.threads(&us(), Page { after, limit: 3, order }).await.unwrap();
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, all);
        let mut times: Vec<_> = all.iter().map(|head| head.updated).collect();
        if order == Order::Newest {
            times.reverse();
        }
        assert!(times.is_sorted());
    }
    // A write moves a log to the front of the listing.
    let time = journal.log(&us(), &log("last")).await.unwrap().unwrap().updated;
    until(|| async {
        let receipt: Receipt = add(&journal, "thread 3", &["new"]).await;
        let [WrittenRange { .. }] = &receipt.written[..] else { return false };
        journal.log(&us(), &log("thread 3")).await.unwrap().unwrap().updated > time
    })
    .await;
    let first = journal.threads(&us(), Page { limit: 1, ..Page::default() }).await.unwrap();
    assert_eq!(first[0].log, log("thread 3"));
}
