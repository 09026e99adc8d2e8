//! Where the stores of the suite are, and the words in which the suite speaks.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Append, Batch, Content, LogId, LogOpening, Name, NewRecord, Receipt, Record, Store, StoreError,
    Tenant, Written,
};
use throughline_store::{Journal, MasterKey, Options, open};

/// Where a store is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    SqliteWithKey,
    /// On the server that `scripts/postgres run` starts.
    Postgres,
}

/// A place for a store of its own.
pub(crate) struct Harness {
    on: Database,
    url: String,
    folder: Folder,
}

impl Harness {
    /// An empty place.
    pub(crate) fn fresh(on: Database) -> Self {
        let folder = Folder::new();
        let url = match on {
            Database::Postgres => throughline_testkit::postgres_database(),
            Database::Sqlite | Database::SqliteWithKey => {
                format!("sqlite://{}", folder.file(FILE).display())
            }
        };
        Self { on, url, folder }
    }

    /// Where the store is.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// How it is opened.
    pub(crate) fn options(&self) -> Options {
        let has_key = self.on == Database::SqliteWithKey;
        Options { master_key: has_key.then(|| master_key('a')), ..Options::default() }
    }

    /// A folder for what lies beside it.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Reads for as long as what it gives is not dropped, so that what was destroyed meanwhile cannot leave the files.
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

    /// Opens it: for the first time, again, or as another node.
    pub(crate) async fn open(&self) -> Journal {
        open(&self.url, &self.options()).await.expect("the store opens")
    }
}

/// The file of a store on SQLite.
const FILE: &str = "store.db";

/// A folder that is removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
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

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is removed with the target folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A master key of one digit.
pub(crate) fn master_key(digit: char) -> MasterKey {
    MasterKey::parse(&digit.to_string().repeat(64)).unwrap()
}

/// The tenant that most tests use.
pub(crate) fn us() -> Tenant {
    Tenant::from("us")
}

/// Somebody else.
pub(crate) fn them() -> Tenant {
    Tenant::from("them")
}

pub(crate) fn log(name: &str) -> LogId {
    LogId::from(name)
}

/// A batch of ours that adds this.
pub(crate) fn batch(append: Append) -> Batch {
    Batch::of(us()).append(append)
}

/// An item that says that.
pub(crate) fn item(text: &str) -> NewRecord {
    NewRecord::new("item", text.as_bytes().to_vec())
}

/// Items that say these things, added to a log.
pub(crate) fn items(to: &str, texts: &[&str]) -> Append {
    texts.iter().fold(Append::to(to), |append, text| append.record(item(text)))
}

/// A new thread of ours with these items.
pub(crate) async fn thread(journal: &Journal, name: &str, texts: &[&str]) -> Receipt {
    let append = items(name, texts).opening(LogOpening::thread());
    journal.commit(batch(append)).await.unwrap()
}

/// A new run of ours on that thread.
pub(crate) async fn run(journal: &Journal, name: &str, of: &str) -> Receipt {
    let append = Append::to(name).opening(LogOpening::run(of));
    journal.commit(batch(append)).await.unwrap()
}

/// Adds items to a log of ours.
pub(crate) async fn add(journal: &Journal, to: &str, texts: &[&str]) -> Receipt {
    journal.commit(batch(items(to, texts))).await.unwrap()
}

pub(crate) fn receipt(written: &[(&str, u64, u64, u64)]) -> Receipt {
    let written = written.iter().map(|&(name, first, last, events)| Written {
        log: log(name),
        first,
        last,
        events,
    });
    Receipt { written: written.collect(), repeated: false }
}

/// A record without its time: its number, kind, events and content.
pub(crate) type Said = (u64, Name, Option<(u64, u64)>, Content);

pub(crate) fn said(records: &[Record]) -> Vec<Said> {
    let said =
        |record: &Record| (record.seq, record.kind.clone(), record.events, record.content.clone());
    records.iter().map(said).collect()
}

/// Items with these numbers and texts.
pub(crate) fn expected(texts: &[(u64, &str)]) -> Vec<Said> {
    let item = |&(seq, text): &(u64, &str)| {
        (seq, Name::from("item"), None, Content::Here(Bytes::copy_from_slice(text.as_bytes())))
    };
    texts.iter().map(item).collect()
}

/// All records of a log of ours.
pub(crate) async fn read(journal: &Journal, name: &str) -> Vec<Record> {
    journal.read(&us(), &log(name), 0, u32::MAX).await.unwrap()
}

/// All that a log of ours says.
pub(crate) async fn read_said(journal: &Journal, name: &str) -> Vec<Said> {
    said(&read(journal, name).await)
}

/// The texts of a log of ours, with their numbers; what is gone says why.
pub(crate) async fn texts(journal: &Journal, name: &str) -> Vec<(u64, String)> {
    read(journal, name).await.iter().map(|record| (record.seq, text(record))).collect()
}

/// What a record says, as text.
pub(crate) fn text(record: &Record) -> String {
    match &record.content {
        Content::Here(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Content::Gone(why) => why.to_string(),
    }
}

/// The same, as literals are compared.
pub(crate) fn numbered(texts: &[(u64, &str)]) -> Vec<(u64, String)> {
    texts.iter().map(|&(seq, text)| (seq, text.to_owned())).collect()
}

/// The sentence of an error.
pub(crate) fn sentence<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    outcome.expect_err("it is refused").to_string()
}

/// What comes soon; a test that would wait for ever fails instead.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), future).await.expect("it comes soon")
}

/// Does it at once, where nothing can be waited for.
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

/// The proof of a store that is intact.
pub(crate) async fn proven(journal: &Journal) -> throughline_store::Proof {
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!(proof.broken, None);
    proof
}
