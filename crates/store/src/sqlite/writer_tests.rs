//! When the writer signs, when it only flushes, and what it does not even try.

use bytes::Bytes;
use throughline_core::{LogId, LogOpening, Tenant};

use super::*;
use crate::backend::{Erase, Erased, Guard, Salt, SealedAppend, SealedRecord};

/// Longer than any test takes.
const FOR_EVER: Duration = Duration::from_hours(1);

type Answer = oneshot::Receiver<Result<Receipt, StoreError>>;

fn database() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    for migration in crate::sqlite::schema::MIGRATIONS {
        db.execute_batch(migration).unwrap();
    }
    db
}

fn relaxed(db: &Connection) -> Writer<'_> {
    let mut chains = Chains::new("writer".into());
    chains.key = Some(RowKey::new(crate::cipher::Secret::new([9; 32])));
    Writer {
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
    }
}

/// A batch that opens a log with one record, and its answer.
fn batch(log: &str) -> (Waiting, Answer) {
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
    let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    (Waiting { batch, reply, room }, answer)
}

fn commit(writer: &mut Writer<'_>, log: &str) {
    let (_jobs, queue) = mpsc::channel();
    let mut queue = Queue::new(queue);
    let (waiting, mut answer) = batch(log);
    writer.commit(Group::of(waiting, &mut queue));
    answer.try_recv().unwrap().unwrap();
}

fn manifests(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM manifests", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_flush_signs_nothing_before_its_time() {
    let db = database();
    let mut writer = relaxed(&db);
    // The first commit of a writer signs at once.
    commit(&mut writer, "one");
    assert_eq!((manifests(&db), writer.unsigned.is_some()), (1, false));
    // Its clock may not go on for a second meanwhile, so it is set.
    writer.chains.signed(i64::MAX);
    commit(&mut writer, "two");
    assert!(writer.unflushed.is_some());
    writer.try_settle(FOR_EVER).unwrap();
    assert_eq!((manifests(&db), writer.unsigned.is_some()), (1, true));
    assert!(writer.unflushed.is_none());
    writer.try_settle(Duration::ZERO).unwrap();
    assert_eq!((manifests(&db), writer.unsigned.is_some()), (2, false));
}

#[test]
fn what_did_not_fit_a_moment_ago_is_not_tried_again() {
    let (_jobs, queue) = mpsc::channel();
    let mut queue = Queue::new(queue);
    let (large, mut answer) = batch("large");
    let (mut small, _) = batch("small");
    small.batch.appends.clear();
    queue.learn(&large.batch, &Err(StoreError::Full));
    let small = queue.admit(small).expect("one that is smaller is tried");
    assert!(queue.admit(large).is_none());
    assert!(matches!(answer.try_recv().unwrap(), Err(StoreError::Full)));
    // What makes room is always tried, and tells nothing of others.
    let (mut erasing, _) = batch("erasing");
    erasing.batch.erases.push(Erase::all(LogId::from("erasing"), Erased::Forgotten));
    queue.learn(&erasing.batch, &Err(StoreError::Full));
    assert!(queue.admit(erasing).is_some());
    // Nor is anything, where the smallest did not fit; until a moment has passed.
    queue.learn(&small.batch, &Err(StoreError::Full));
    assert!(queue.admit(small).is_none());
    let no_room = queue.no_room.as_mut().unwrap();
    no_room.since = no_room.since.checked_sub(FULL).unwrap();
    let (large, _) = batch("large");
    assert!(queue.admit(large).is_some());
}

#[test]
fn what_fits_shows_that_there_is_room() {
    let (_jobs, queue) = mpsc::channel();
    let mut queue = Queue::new(queue);
    let (waiting, _) = batch("one");
    queue.learn(&waiting.batch, &Err(StoreError::Full));
    queue.learn(&waiting.batch, &Ok(Receipt { written: Vec::new(), repeated: false }));
    assert!(queue.admit(waiting).is_some());
}

#[test]
fn of_a_group_that_does_not_fit_each_is_tried_alone() {
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
    jobs.send(Job::Commit(large)).ok().unwrap();
    writer.commit(Group::of(small, &mut queue));
    written.try_recv().unwrap().unwrap();
    assert!(matches!(none.try_recv().unwrap(), Err(StoreError::Full)));
    assert_eq!(queue.no_room.map(|no_room| no_room.bytes), Some(bytes));
}
