//! Creates stores for the conformance suite, and provides helpers for its tests.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Append, Batch, Content, LogId, LogOpening, NewRecord, Receipt, Record, Store, StoreError,
    Tenant, WrittenRange,
};
use throughline_json::Name;
use throughline_store::{Journal, MasterKey, Options, open};

/// The databases that the suite runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    SqliteWithKey,
    /// The server that `scripts/postgres run` starts.
    Postgres,
}

/// A new, empty store location, and the options for opening it.
pub(crate) struct Harness {
    on: Database,
    url: String,
    folder: StoreFolder,
}

impl Harness {
    pub(crate) fn fresh(on: Database) -> Self {
        let folder = StoreFolder::new();
        let url = match on {
            Database::Postgres => throughline_testkit::postgres_database(),
            Database::Sqlite | Database::SqliteWithKey => {
                format!("sqlite://{}", folder.file(FILE).display())
            }
        };
        Self { on, url, folder }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Returns the options for opening the store. They contain a master key only for
    /// `SqliteWithKey`.
    pub(crate) fn options(&self) -> Options {
        let has_key = self.on == Database::SqliteWithKey;
        Options { master_key: has_key.then(|| master_key('a')), ..Options::default() }
    }

    /// Returns the folder for files beside the store, such as backups.
    pub(crate) fn folder(&self) -> &StoreFolder {
        &self.folder
    }

    /// Starts a read transaction that lasts until the returned value is dropped. Until then,
    /// destroyed content stays in the database files.
    pub(crate) async fn reader(&self) -> Box<dyn std::any::Any + Send> {
        if self.on == Database::Postgres {
            let connected = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            tokio::spawn(connection);
            client.batch_execute("BEGIN; SELECT count(*) FROM salts;").await.unwrap();
            return Box::new(client);
        }
        let file = rusqlite::Connection::open(self.folder.file(FILE)).unwrap();
        file.execute_batch("BEGIN; SELECT count(*) FROM records;").unwrap();
        Box::new(file)
    }

    /// Opens the store. Each further call acts as another node.
    pub(crate) async fn open(&self) -> Journal {
        open(&self.url, &self.options()).await.expect("the store opens")
    }
}

const FILE: &str = "store.db";

/// A temporary folder that is removed on drop.
pub(crate) struct StoreFolder(PathBuf);

impl StoreFolder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("conformance-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        // Ignore errors, because the target folder is cleaned up as a whole.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Returns a master key that repeats one hexadecimal digit.
pub(crate) fn master_key(digit: char) -> MasterKey {
    MasterKey::parse(&digit.to_string().repeat(64)).unwrap()
}

/// Returns the tenant that most tests use.
pub(crate) fn us() -> Tenant {
    Tenant::from("us")
}

pub(crate) fn other_tenant() -> Tenant {
    Tenant::from("them")
}

pub(crate) fn log(name: &str) -> LogId {
    LogId::from(name)
}

/// Returns a batch for the tenant [`us`] with this append.
pub(crate) fn batch(append: Append) -> Batch {
    Batch::new(us()).append(append)
}

pub(crate) fn item(text: &str) -> NewRecord {
    NewRecord::new("item", text.as_bytes().to_vec())
}

/// Returns an append that adds Items with these texts.
pub(crate) fn items(to: &str, texts: &[&str]) -> Append {
    texts.iter().fold(Append::new(to), |append, text| append.record(item(text)))
}

/// Opens a Thread of the tenant [`us`] with these Items.
pub(crate) async fn thread(journal: &Journal, name: &str, texts: &[&str]) -> Receipt {
    let append = items(name, texts).opening(LogOpening::thread());
    journal.commit(batch(append)).await.unwrap()
}

/// Opens a run of the tenant [`us`] on this Thread.
pub(crate) async fn run(journal: &Journal, name: &str, of: &str) -> Receipt {
    let append = Append::new(name).opening(LogOpening::run(of));
    journal.commit(batch(append)).await.unwrap()
}

/// Adds Items to a log of the tenant [`us`].
pub(crate) async fn add(journal: &Journal, to: &str, texts: &[&str]) -> Receipt {
    journal.commit(batch(items(to, texts))).await.unwrap()
}

pub(crate) fn receipt(written: &[(&str, u64, u64, u64)]) -> Receipt {
    let written = written.iter().map(|&(name, first, last, events)| WrittenRange {
        log: log(name),
        first,
        last,
        events,
    });
    Receipt { written: written.collect(), repeated: false }
}

/// A record's sequence number, kind, events and content, without its time.
pub(crate) type RecordSummary = (u64, Name, Option<(u64, u64)>, Content);

pub(crate) fn summaries(records: &[Record]) -> Vec<RecordSummary> {
    let summary =
        |record: &Record| (record.seq, record.kind.clone(), record.events, record.content.clone());
    records.iter().map(summary).collect()
}

/// Returns the summaries of Items with these sequence numbers and texts.
pub(crate) fn expected(texts: &[(u64, &str)]) -> Vec<RecordSummary> {
    let item = |&(seq, text): &(u64, &str)| {
        (seq, Name::from("item"), None, Content::Here(Bytes::copy_from_slice(text.as_bytes())))
    };
    texts.iter().map(item).collect()
}

/// Reads all records in a log of the tenant [`us`].
pub(crate) async fn read(journal: &Journal, name: &str) -> Vec<Record> {
    journal.read(&us(), &log(name), 0, u32::MAX).await.unwrap()
}

/// Reads all records in a log of the tenant [`us`], without their times.
pub(crate) async fn read_summaries(journal: &Journal, name: &str) -> Vec<RecordSummary> {
    summaries(&read(journal, name).await)
}

/// Returns the sequence number and text of each record in a log of the tenant [`us`]. For destroyed
/// content, the text is the reason for its erasure.
pub(crate) async fn texts(journal: &Journal, name: &str) -> Vec<(u64, String)> {
    read(journal, name).await.iter().map(|record| (record.seq, text(record))).collect()
}

/// Returns the content of a record as text, or the reason for its erasure.
pub(crate) fn text(record: &Record) -> String {
    match &record.content {
        Content::Here(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Content::Gone(reason) => reason.to_string(),
    }
}

/// Converts literals for comparison with [`texts`].
pub(crate) fn numbered(texts: &[(u64, &str)]) -> Vec<(u64, String)> {
    texts.iter().map(|&(seq, text)| (seq, text.to_owned())).collect()
}

/// Returns the error message of a call that must fail.
pub(crate) fn error_message<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    outcome.expect_err("the call fails").to_string()
}

/// Fails the test if the future does not complete within a minute.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), future)
        .await
        .expect("the future completes in time")
}

/// Blocks on a future, for callbacks that are not async.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| runtime.block_on(future))
}

/// Polls until a condition holds, for at most a minute.
pub(crate) async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    soon(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Verifies a store and fails the test if it is not intact.
pub(crate) async fn proven(journal: &Journal) -> throughline_store::VerifyReport {
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!(proof.broken, None);
    proof
}
