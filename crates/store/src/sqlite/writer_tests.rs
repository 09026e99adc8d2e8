//! Tests of the writer's signing, flushing and full-disk estimate.

use bytes::Bytes;
use throughline_core::{LogId, LogOpening, Tenant};

use super::*;
use crate::row::{ErasureReason, Salt};
use crate::sealed_batch::{Erasure, Guard, SealedAppend, SealedRecord};

/// A duration that is longer than any test runs.
const LONGER_THAN_TEST: Duration = Duration::from_hours(1);

type ReplyReceiver = oneshot::Receiver<Result<Receipt, StoreError>>;

fn database() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    for migration in crate::sqlite::schema::MIGRATIONS {
        db.execute_batch(migration).unwrap();
    }
    db
}

fn relaxed(db: &Connection) -> SqliteWriter<'_> {
    let mut chains = Chains::new("writer".into());
    chains.key = Some(RowKey::new(crate::cipher::Secret::new([9; 32])));
    SqliteWriter {
        db,
        hot: None,
        path: PathBuf::new(),
        chains,
        series: Some(Series::new(Arc::new(Signer::new(&[7; 32])), "writer".into())),
        durability: Durability::Relaxed,
        is_synchronous: true,
        unflushed: None,
        unsigned: None,
        waiters: Arc::new(Waiters::new(Path::new(""))),
        recent: Arc::new(RecentTurns::new(4096)),
        index_retry: None,
        last_group: 0,
    }
}

/// Returns a batch that opens a log with one record, and the receiver of its result.
fn batch(log: &str) -> (QueuedBatch, ReplyReceiver) {
    let record = SealedRecord {
        kind: "item".into(),
        at: None,
        events: 0,
        about: None,
        size: 4,
        commitment: [1; 32],
        content: Bytes::from_static(b"said"),
        salt: Salt { epoch: 0, bytes: Bytes::from_static(b"salt") },
        blob: None,
    };
    let append = SealedAppend {
        log: LogId::from(log),
        opening: Some(LogOpening::thread()),
        expect: None,
        guard: Guard::Free,
        records: vec![record],
        rewind_to: None,
        status: None,
    };
    let batch = SealedBatch {
        tenant: Tenant::from("us"),
        once: Vec::new(),
        appends: vec![append],
        vault: Vec::new(),
        asks: Vec::new(),
        takes: Vec::new(),
        erases: Vec::new(),
        keys: Vec::new(),
    };
    let (reply, answer) = oneshot::channel();
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    (QueuedBatch { batch, reply, permit }, answer)
}

fn commit(writer: &mut SqliteWriter<'_>, log: &str) {
    let (_jobs, queue) = mpsc::channel();
    let mut queue = Queue::new(queue);
    let (waiting, mut answer) = batch(log);
    writer.commit(BatchGroup::new(waiting, &mut queue));
    answer.try_recv().unwrap().unwrap();
}

fn manifests(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM manifests", [], |row| row.get(0)).unwrap()
}

#[test]
fn flush_does_not_sign_before_the_interval() {
    let db = database();
    let mut writer = relaxed(&db);
    // A writer's first commit is signed at once.
    commit(&mut writer, "one");
    assert_eq!((manifests(&db), writer.unsigned.is_some()), (1, false));
    // Set the signing time, because the clock may advance by a second during the test.
    writer.chains.signed(i64::MAX);
    commit(&mut writer, "two");
    assert!(writer.unflushed.is_some());
    writer.try_sign_and_flush(LONGER_THAN_TEST).unwrap();
    assert_eq!((manifests(&db), writer.unsigned.is_some()), (1, true));
    assert!(writer.unflushed.is_none());
    writer.try_sign_and_flush(Duration::ZERO).unwrap();
    assert_eq!((manifests(&db), writer.unsigned.is_some()), (2, false));
}

#[test]
fn batch_that_did_not_fit_is_not_retried_at_once() {
    let (_jobs, queue) = mpsc::channel();
    let mut queue = Queue::new(queue);
    let (large, mut answer) = batch("large");
    let (mut small, _) = batch("small");
    small.batch.appends.clear();
    queue.learn(&large.batch, &Err(StoreError::Full));
    let small = queue.admit(small).expect("a smaller batch is tried");
    assert!(queue.admit(large).is_none());
    assert!(matches!(answer.try_recv().unwrap(), Err(StoreError::Full)));
    // A batch that frees space is always tried and does not change the estimate.
    let (mut erasing, _) = batch("erasing");
    erasing.batch.erases.push(Erasure::all(LogId::from("erasing"), ErasureReason::Forgotten));
    queue.learn(&erasing.batch, &Err(StoreError::Full));
    assert!(queue.admit(erasing).is_some());
    // After the smallest batch failed, every batch is rejected until the retry time has passed.
    queue.learn(&small.batch, &Err(StoreError::Full));
    assert!(queue.admit(small).is_none());
    let disk_full = queue.disk_full.as_mut().unwrap();
    disk_full.since = disk_full.since.checked_sub(FULL).unwrap();
    let (large, _) = batch("large");
    assert!(queue.admit(large).is_some());
}

#[test]
fn successful_batch_clears_the_disk_full_mark() {
    let (_jobs, queue) = mpsc::channel();
    let mut queue = Queue::new(queue);
    let (waiting, _) = batch("one");
    queue.learn(&waiting.batch, &Err(StoreError::Full));
    queue.learn(&waiting.batch, &Ok(Receipt { written: Vec::new(), repeated: false }));
    assert!(queue.admit(waiting).is_some());
}

#[test]
fn group_that_does_not_fit_is_retried_batch_by_batch() {
    let db = database();
    let mut writer = relaxed(&db);
    commit(&mut writer, "one");
    let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    let most = format!("PRAGMA max_page_count = {}", pages + 8);
    db.query_row(&most, [], |_| Ok(())).unwrap();
    let (jobs, queue) = mpsc::channel();
    let mut queue = Queue::new(queue);
    let (small, mut written) = batch("small");
    let (mut large, mut none) = batch("large");
    for record in large.batch.appends.iter_mut().flat_map(|append| &mut append.records) {
        record.content = Bytes::from(vec![7; 1 << 20]);
    }
    let bytes = weight(&large.batch);
    jobs.send(SqliteJob::Commit(large)).ok().unwrap();
    writer.commit(BatchGroup::new(small, &mut queue));
    written.try_recv().unwrap().unwrap();
    assert!(matches!(none.try_recv().unwrap(), Err(StoreError::Full)));
    assert_eq!(queue.disk_full.map(|disk_full| disk_full.bytes), Some(bytes));
}
