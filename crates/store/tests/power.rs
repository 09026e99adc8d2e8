//! Invariant 11, durability: acknowledged writes survive a power loss, and forgotten content stays
//! forgotten.
//!
//! One workload is recorded on a virtual disk that logs every write and sync. The test then
//! simulates a power loss at many points, where any part of the unsynced data may remain, torn or
//! whole. Each resulting disk is opened as a store and checked against the acknowledgements up to
//! that point.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use throughline_core::pack_events;
use throughline_core::{
    Append, Batch, Content, LogId, LogOpening, NewRecord, NewVaultTurn, Store, Tenant, VaultKey,
    kind,
};
use throughline_store::{Journal, Options, about_item, open};
use throughline_testkit::power::{Recorder, record};
use throughline_testkit::{Folder, TestRng, cases, figure};

enum Ack {
    /// A record was written. The fields are its log, sequence number and content.
    Wrote(LogId, u64, Bytes),
    /// Records were forgotten. The fields are their log, sequence numbers and former salts.
    Forgot(LogId, Vec<u64>, Vec<Vec<u8>>),
    /// A turn with this claim was captured.
    Captured(VaultKey),
}

/// The recorder, and the acknowledgements in the same order as the recorder's marks.
struct Notes<'r> {
    recorder: &'r Recorder,
    acks: Mutex<Vec<Ack>>,
}

impl Notes<'_> {
    fn note(&self, new: impl IntoIterator<Item = Ack>) {
        let mut acks = self.acks.lock().unwrap();
        acks.extend(new);
        self.recorder.mark(acks.len());
    }
}

fn tenant() -> Tenant {
    Tenant::from("power")
}

async fn opened(folder: &Path) -> Journal {
    let url = format!("sqlite://{}", folder.join("store.db").display());
    // Keys are indexed often, so that power is also lost while they are indexed.
    open(&url, &Options { index_batch: 10, ..Options::default() }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_power_loss() {
    let count = usize::try_from(cases(200)).unwrap().max(200);
    let folder = Folder::new("power");
    let recorder = record(&folder);
    let notes = Notes { recorder: &recorder, acks: Mutex::default() };
    work(&folder, &notes).await;
    let acks = notes.acks.into_inner().unwrap();
    let tape = recorder.stop();
    let scratch = Folder::new("power-images");
    let mut disk = tape.disk();
    let (mut lost, mut torn, mut intact, mut fresh) = (0, 0, 0, 0);
    let history = History::of(&acks);
    for number in 0..count {
        let point = number * tape.points() / count;
        disk.play_to(point);
        let image = disk.lose_power(&mut TestRng::new(number as u64));
        (lost, torn) = (lost + image.lost, torn + image.torn);
        intact += usize::from(image.lost + image.torn == 0);
        fresh += usize::from(disk.marked() == 0);
        image.write_to(&scratch);
        history.assert_no_salt_in(&image.files, disk.marked(), point);
        history.check(&scratch, disk.marked(), point).await;
    }
    figure(
        "losses of power",
        format!(
            "{count} at {} points between {} writes and {} syncs, {fresh} before the first \
             acknowledgement; {lost} changes lost, {torn} writes torn, {intact} disks whole; of {} \
             acknowledgements none lost",
            tape.points().min(count),
            tape.writes(),
            tape.syncs(),
            acks.len()
        ),
    );
}

/// Performs all kinds of writes: opening, single and grouped batches, blobs, captured turns,
/// forgetting, a backup and closing. The WAL is also checkpointed during the writes.
async fn work(folder: &Path, notes: &Notes<'_>) {
    let mut journal = opened(folder).await;
    for (log, opening) in [
        ("pair-thread", LogOpening::thread()),
        ("pair-run", LogOpening::run("pair-thread")),
        ("alone", LogOpening::thread()),
        ("doomed", LogOpening::thread()),
        ("turns", LogOpening::thread()),
    ] {
        let append = Append::new(log).opening(opening);
        journal.commit(Batch::new(tenant()).append(append)).await.unwrap();
    }
    let (mut checkpoint, mut checkpoints) = (None, 0);
    for round in 0..12_u32 {
        for step in 0..6 {
            let (one, other, third, captured) = tokio::join!(
                pair(&journal, round, step),
                single(&journal, "alone", round, step),
                single(&journal, if round < 8 { "doomed" } else { "alone" }, round, step + 100),
                turn(&journal, round, step),
            );
            notes.note(captured);
            notes.note(one);
            notes.note([other]);
            notes.note([third]);
            if step == 2 {
                checkpoint = Some(tokio::task::spawn_blocking(checkpoint_wal(folder)));
            }
        }
        if let Some(taken_in) = checkpoint.take() {
            checkpoints += usize::from(taken_in.await.unwrap() > 0);
        }
        match round {
            3 => {
                forget_item(&journal, folder, notes, ("alone", "2-1")).await;
                forget_item(&journal, folder, notes, ("turns", "2-1-1")).await;
            }
            5 => journal.backup(&folder.join("backup.db"), &|_| {}).await.unwrap(),
            8 => forget_thread(&journal, folder, notes).await,
            _ => {}
        }
        // Leave most openings without closing, as after a crash.
        if round % 4 == 1 {
            journal.close().await.unwrap();
            journal = opened(folder).await;
        }
    }
    journal.close().await.unwrap();
    assert!(checkpoints > 5, "the WAL was checkpointed {checkpoints} times");
}

/// Returns a closure that checkpoints the WAL into the database file as far as readers allow. The
/// closure returns the number of checkpointed pages.
fn checkpoint_wal(folder: &Path) -> impl FnOnce() -> i64 + Send + 'static {
    let file = folder.join("store.db");
    move || {
        let db = rusqlite::Connection::open(file).unwrap();
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(2)).unwrap()
    }
}

/// Writes a record to each of two logs, in one batch.
async fn pair(journal: &Journal, round: u32, step: u32) -> [Ack; 2] {
    let item = Bytes::from(format!("item {round} {step} {}", "pair ".repeat(20)));
    let events = pack_events([format!("event {round} {step}").as_bytes(), b"another"]);
    let packed = events.content.clone();
    let batch = Batch::new(tenant())
        .append(Append::new("pair-thread").record(NewRecord::new(kind::ITEM, item.clone())))
        .append(Append::new("pair-run").record(events))
        .with_idempotency_key(format!("{round} {step}"));
    let receipt = journal.commit(batch).await.unwrap();
    [
        Ack::Wrote(receipt.written[0].log.clone(), receipt.written[0].first, item),
        Ack::Wrote(receipt.written[1].log.clone(), receipt.written[1].first, packed),
    ]
}

async fn single(journal: &Journal, log: &str, round: u32, step: u32) -> Ack {
    // Some records are large enough for blobs, and some of these are equal.
    let length = if step % 50 == 4 { 20_000 } else { 100 };
    let id = format!("{round}-{}", step % 100);
    let text = format!("{{\"id\":\"{id}\",\"text\":\"{}\"}}", "x".repeat(length));
    let content = Bytes::from(text);
    let record = NewRecord::new(kind::ITEM, content.clone()).about(about_item(&log.into(), &id));
    let receipt =
        journal.commit(Batch::new(tenant()).append(Append::new(log).record(record))).await;
    let written = &receipt.unwrap().written[0];
    Ack::Wrote(written.log.clone(), written.first, content)
}

/// Captures a turn of three Items, which SQLite stores in one row.
async fn turn(journal: &Journal, round: u32, step: u32) -> Vec<Ack> {
    let name = format!("{round}-{step}");
    let item = |part: u32| {
        let text = format!("turn {}", "pack ".repeat(30));
        Bytes::from(format!("{{\"id\":\"{name}-{part}\",\"text\":\"{text}\"}}"))
    };
    let items = [item(0), item(1), item(2)];
    let mut append = Append::new("turns");
    for item in &items {
        append = append.record(NewRecord::new(kind::ITEM, item.clone()));
    }
    let claim = VaultKey::Claim(name.as_str().into());
    let mut batch = Batch::new(tenant()).append(append);
    batch.vault.push(NewVaultTurn {
        id: name.as_str().into(),
        parent: None,
        keys: vec![claim.clone()],
        log: "turns".into(),
        prefix: None,
    });
    let receipt = journal.commit(batch).await.unwrap();
    let written = &receipt.written[0];
    let numbered = (written.first..).zip(items);
    let wrote = numbered.map(|(seq, item)| Ack::Wrote(written.log.clone(), seq, item));
    wrote.chain([Ack::Captured(claim)]).collect()
}

/// Forgets one Item, given by its log and its id.
async fn forget_item(
    journal: &Journal,
    folder: &Path,
    notes: &Notes<'_>,
    (log, item): (&str, &str),
) {
    let log = LogId::from(log);
    let mut seqs = Vec::new();
    for record in journal.read(&tenant(), &log, 0, 10_000).await.unwrap() {
        let bytes = record.content.bytes().unwrap();
        if bytes.starts_with(format!("{{\"id\":\"{item}\"").as_bytes()) {
            seqs.push(record.seq);
        }
    }
    assert!(!seqs.is_empty());
    let salts = salts(folder, &log.0, &seqs);
    journal.forget(&tenant(), &log, Some(item)).await.unwrap();
    notes.note([Ack::Forgot(log, seqs, salts)]);
}

async fn forget_thread(journal: &Journal, folder: &Path, notes: &Notes<'_>) {
    let log = LogId::from("doomed");
    let last = journal.log(&tenant(), &log).await.unwrap().unwrap().last;
    let seqs: Vec<u64> = (1..=last).collect();
    let salts = salts(folder, "doomed", &seqs);
    let destroyed = journal.forget(&tenant(), &log, None).await.unwrap();
    assert!(destroyed.unreached.is_empty(), "{destroyed:?}");
    notes.note([Ack::Forgot(log, seqs, salts)]);
}

/// Returns the salts of these records, as stored in the database.
fn salts(folder: &Path, log: &str, seqs: &[u64]) -> Vec<Vec<u8>> {
    let db = rusqlite::Connection::open(folder.join("store.db")).unwrap();
    // The records of a pack have consecutive ids and numbers, and the row has those of the last
    // one.
    let find = "SELECT s.salt FROM records r JOIN logs l ON l.id = r.log
                JOIN salts s ON s.record = r.id - (r.seq - ?2)
                WHERE l.name = ?1 AND ?2 BETWEEN r.seq - coalesce(r.span, 0) AND r.seq";
    let salt = |seq: &u64| {
        let parameters = rusqlite::params![log, i64::try_from(*seq).unwrap()];
        db.query_row(find, parameters, |row| row.get(0)).unwrap()
    };
    seqs.iter().map(salt).collect()
}

struct History<'a> {
    acks: &'a [Ack],
    written: HashMap<(LogId, u64), Bytes>,
    forgotten: HashMap<(LogId, u64), usize>,
}

impl<'a> History<'a> {
    fn of(acks: &'a [Ack]) -> Self {
        let (mut written, mut forgotten) = (HashMap::new(), HashMap::new());
        for (index, ack) in acks.iter().enumerate() {
            match ack {
                Ack::Wrote(log, seq, content) => {
                    written.insert((log.clone(), *seq), content.clone());
                }
                Ack::Forgot(log, seqs, _) => {
                    forgotten.extend(seqs.iter().map(|seq| ((log.clone(), *seq), index)));
                }
                Ack::Captured(_) => {}
            }
        }
        Self { acks, written, forgotten }
    }

    /// Asserts that no forgotten salt is in any file, including deleted files that a file system
    /// may restore.
    fn assert_no_salt_in(&self, files: &[(String, Vec<u8>)], marked: usize, point: usize) {
        for ack in &self.acks[..marked] {
            let Ack::Forgot(log, _, salts) = ack else { continue };
            for salt in salts {
                for (name, bytes) in files {
                    let found = memchr::memmem::find(bytes, salt);
                    assert_eq!(
                        found, None,
                        "a forgotten salt of {log} is in {name} at point {point}"
                    );
                }
            }
        }
    }

    /// Asserts that the store contains all acknowledged writes and no others, and accepts new
    /// writes.
    async fn check(&self, folder: &Path, marked: usize, point: usize) {
        let journal = opened(folder).await;
        let mut floor: BTreeMap<&LogId, u64> = BTreeMap::new();
        for ack in &self.acks[..marked] {
            if let Ack::Wrote(log, seq, _) = ack {
                let known = floor.entry(log).or_default();
                *known = (*known).max(*seq);
            }
        }
        let mut ends = Vec::new();
        for log in ["pair-thread", "pair-run", "alone", "doomed", "turns"].map(LogId::from) {
            let head = journal.log(&tenant(), &log).await.unwrap();
            let last = head.map_or(0, |head| head.last);
            let acknowledged = floor.get(&log).copied().unwrap_or(0);
            assert!(
                last >= acknowledged,
                "{log} ends at {last}, but {acknowledged} was acknowledged ({point})"
            );
            ends.push(last);
            if last == 0 {
                continue;
            }
            let records = journal.read(&tenant(), &log, 0, 10_000).await.unwrap();
            assert_eq!(records.len() as u64, last, "{log} has a gap ({point})");
            for record in records {
                let key = (log.clone(), record.seq);
                match &record.content {
                    _ if *record.kind == *kind::FORGOTTEN => {}
                    Content::Here(bytes) => {
                        assert_eq!(self.written.get(&key), Some(bytes), "{key:?} ({point})");
                        let forgotten = self.forgotten.get(&key);
                        let is_forgotten = forgotten.is_some_and(|at| *at < marked);
                        assert!(!is_forgotten, "{key:?} was restored after erasure ({point})");
                    }
                    Content::Gone(_) => {
                        assert!(self.forgotten.contains_key(&key), "{key:?} is lost ({point})");
                    }
                }
            }
        }
        assert_eq!(ends[0], ends[1], "a batch is incomplete ({point})");
        let claims: Vec<VaultKey> = self.acks[..marked]
            .iter()
            .filter_map(
                |ack| if let Ack::Captured(claim) = ack { Some(claim.clone()) } else { None },
            )
            .collect();
        let found = journal.find(&tenant(), &claims).await.unwrap().found;
        assert_eq!(found.len(), claims.len());
        for (claim, found) in claims.iter().zip(found) {
            assert!(found.is_some(), "the turn of {claim:?} is not found ({point})");
        }
        let proof = journal.verify(None, &|_| {}).await.unwrap();
        assert_eq!(proof.broken, None, "at point {point}");
        let append = Append::new("after").opening(LogOpening::thread());
        let batch = append.record(NewRecord::new(kind::ITEM, "it goes on"));
        journal.commit(Batch::new(tenant()).append(batch)).await.unwrap();
        journal.close().await.unwrap();
    }
}
