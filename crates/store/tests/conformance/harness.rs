//! Stores for the suite, and helper functions of its tests.

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

/// The database of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    SqliteWithKey,
    /// The server that `scripts/postgres run` starts.
    Postgres,
}

/// The location of a new store.
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

    /// Returns the URL of the store.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Returns the options for opening the store.
    pub(crate) fn options(&self) -> Options {
        let has_key = self.on == Database::SqliteWithKey;
        Options { master_key: has_key.then(|| master_key('a')), ..Options::default() }
    }

    /// Returns a folder for files beside the store.
    pub(crate) fn folder(&self) -> &StoreFolder {
        &self.folder
    }

    /// Starts a read that lasts until the result is dropped, so that destroyed contents stay in the
    /// files meanwhile.
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

    /// Opens the store: for the first time, again, or as another node.
    pub(crate) async fn open(&self) -> Journal {
        open(&self.url, &self.options()).await.expect("the store opens")
    }
}

const FILE: &str = "store.db";

/// A folder that is removed on drop.
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
        // Remaining files are removed with the target folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Returns a master key that consists of one digit.
pub(crate) fn master_key(digit: char) -> MasterKey {
    MasterKey::parse(&digit.to_string().repeat(64)).unwrap()
}

/// The tenant that most tests use.
pub(crate) fn us() -> Tenant {
    Tenant::from("us")
}

pub(crate) fn them() -> Tenant {
    Tenant::from("them")
}

pub(crate) fn log(name: &str) -> LogId {
    LogId::from(name)
}

/// Returns a batch of our tenant with this append.
pub(crate) fn batch(append: Append) -> Batch {
    Batch::new(us()).append(append)
}

/// Returns an Item record with this text.
pub(crate) fn item(text: &str) -> NewRecord {
    NewRecord::new("item", text.as_bytes().to_vec())
}

/// Returns an append of Items with these texts.
pub(crate) fn items(to: &str, texts: &[&str]) -> Append {
    texts.iter().fold(Append::new(to), |append, text| append.record(item(text)))
}

/// Opens a Thread of our tenant with these Items.
pub(crate) async fn thread(journal: &Journal, name: &str, texts: &[&str]) -> Receipt {
    let append = items(name, texts).opening(LogOpening::thread());
    journal.commit(batch(append)).await.unwrap()
}

/// Opens a run of our tenant on this Thread.
pub(crate) async fn run(journal: &Journal, name: &str, of: &str) -> Receipt {
    let append = Append::new(name).opening(LogOpening::run(of));
    journal.commit(batch(append)).await.unwrap()
}

/// Adds Items to a log of our tenant.
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

/// A record without its time: its number, kind, events and content.
pub(crate) type RecordSummary = (u64, Name, Option<(u64, u64)>, Content);

pub(crate) fn said(records: &[Record]) -> Vec<RecordSummary> {
    let said =
        |record: &Record| (record.seq, record.kind.clone(), record.events, record.content.clone());
    records.iter().map(said).collect()
}

/// Returns Items with these numbers and texts.
pub(crate) fn expected(texts: &[(u64, &str)]) -> Vec<RecordSummary> {
    let item = |&(seq, text): &(u64, &str)| {
        (seq, Name::from("item"), None, Content::Here(Bytes::copy_from_slice(text.as_bytes())))
    };
    texts.iter().map(item).collect()
}

/// Reads all records of a log of our tenant.
pub(crate) async fn read(journal: &Journal, name: &str) -> Vec<Record> {
    journal.read(&us(), &log(name), 0, u32::MAX).await.unwrap()
}

/// Reads all records of a log of our tenant, without times.
pub(crate) async fn read_summaries(journal: &Journal, name: &str) -> Vec<RecordSummary> {
    said(&read(journal, name).await)
}

/// Returns the numbers and texts of a log of our tenant. A destroyed content is shown as its
/// reason.
pub(crate) async fn texts(journal: &Journal, name: &str) -> Vec<(u64, String)> {
    read(journal, name).await.iter().map(|record| (record.seq, text(record))).collect()
}

/// Returns the content of a record as text.
pub(crate) fn text(record: &Record) -> String {
    match &record.content {
        Content::Here(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Content::Gone(why) => why.to_string(),
    }
}

/// Converts literals for comparison with [`texts`].
pub(crate) fn numbered(texts: &[(u64, &str)]) -> Vec<(u64, String)> {
    texts.iter().map(|&(seq, text)| (seq, text.to_owned())).collect()
}

/// Returns the message of an error.
pub(crate) fn sentence<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
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

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    soon(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Verifies a store that must be intact.
pub(crate) async fn proven(journal: &Journal) -> throughline_store::VerifyReport {
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!(proof.broken, None);
    proof
}
