//! Invariant 1 in the store: recorded values are bit-identical after writing, closing and reopening
//! the store.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::HashSet;
use std::path::Path;

use bytes::Bytes;
use throughline_core::{Append, Batch, Content, LogId, LogOpening, NewRecord, Store, Tenant};
use throughline_json::{Node, Tree};
use throughline_store::{MasterKey, Options, open};
use throughline_testkit::{captures, figure, recordings, skip};

/// JSON members whose values only the issuing provider can interpret.
const OPAQUE: [&str; 8] = [
    "signature",
    "data",
    "encrypted_content",
    "thoughtSignature",
    "thought_signature",
    "reasoning_details",
    "redactedContent",
    "system_fingerprint",
];

/// Values from the recordings: request and response bodies, message parts, and opaque values.
struct RecordedValues {
    bodies: Vec<Bytes>,
    parts: Vec<Bytes>,
    opaque: Vec<Bytes>,
}

impl RecordedValues {
    fn load() -> Option<Self> {
        let mut found = Self { bodies: Vec::new(), parts: Vec::new(), opaque: Vec::new() };
        for exchange in recordings()?.into_iter().flat_map(|recording| recording.exchanges) {
            found.body(exchange.request.into_bytes());
            found.body(exchange.response);
        }
        for capture in captures()? {
            found.body(capture.response.into_bytes());
        }
        Some(found)
    }

    /// Adds a body, and the message parts and opaque values in it. A stream's values are those in
    /// its events.
    fn body(&mut self, body: Vec<u8>) {
        let body = Bytes::from(body);
        self.bodies.push(body.clone());
        match Tree::parse(body.clone()) {
            Ok(tree) => self.walk(tree.root()),
            Err(_) => {
                for line in body.split(|byte| *byte == b'\n') {
                    let line = line.strip_prefix(b"data:").unwrap_or(line).trim_ascii();
                    if let Ok(tree) = Tree::parse(line.to_vec()) {
                        self.walk(tree.root());
                    }
                }
            }
        }
    }

    fn walk(&mut self, root: Node<'_>) {
        let mut left = vec![root];
        while let Some(node) = left.pop() {
            if node.get("type").is_some() || node.get("role").is_some() {
                self.parts.push(Bytes::copy_from_slice(node.raw()));
            }
            for name in OPAQUE {
                if let Some(value) = node.get(name) {
                    self.opaque.push(Bytes::copy_from_slice(value.raw()));
                }
            }
            left.extend(node.elements());
            left.extend(node.members().map(|(_, value)| value));
        }
    }
}

/// Writes the values, reopens the store and reads them. Returns how many values are unchanged.
async fn survive(url: &str, options: &Options, contents: &[Bytes]) -> usize {
    const PAGE: usize = 500;
    let (tenant, log) = (Tenant::from("tenant"), LogId::from("thread"));
    let journal = open(url, options).await.unwrap();
    let opening = Append::new("thread").opening(LogOpening::thread());
    journal.commit(Batch::new("tenant").append(opening)).await.unwrap();
    for page in contents.chunks(PAGE) {
        let mut append = Append::new("thread");
        append.records = page.iter().map(|bytes| NewRecord::new("item", bytes.clone())).collect();
        journal.commit(Batch::new("tenant").append(append)).await.unwrap();
    }
    journal.close().await.unwrap();
    let journal = open(url, options).await.unwrap();
    let mut exact = 0;
    for (number, page) in contents.chunks(PAGE).enumerate() {
        let after = u64::try_from(number * PAGE).unwrap();
        let read = journal.read(&tenant, &log, after, u32::try_from(PAGE).unwrap()).await.unwrap();
        assert_eq!(read.len(), page.len());
        for (record, bytes) in read.iter().zip(page) {
            assert_eq!(record.content, Content::Here(bytes.clone()), "record {}", record.seq);
            exact += 1;
        }
    }
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
    exact
}

async fn everything_round_trips(backend: &str, url: &str, options: &Options) {
    let Some(RecordedValues { bodies, parts, opaque }) = RecordedValues::load() else {
        return skip("the recordings are absent, so nothing recorded was put through the store");
    };
    let distinct: HashSet<&Bytes> = opaque.iter().collect();
    figure("distinct opaque values among the recorded", distinct.len());
    assert!(!bodies.is_empty() && !parts.is_empty() && !distinct.is_empty());
    let (count_bodies, count_parts) = (bodies.len(), parts.len());
    let all: Vec<Bytes> = bodies.into_iter().chain(parts).chain(opaque).collect();
    let exact = survive(url, options, &all).await;
    assert_eq!(exact, all.len());
    figure(&format!("bodies bit-equal after a restart: {backend}"), count_bodies);
    figure(&format!("raw messages and parts bit-equal after a restart: {backend}"), count_parts);
    let count_opaque = all.len() - count_bodies - count_parts;
    figure(&format!("opaque values bit-equal after a restart: {backend}"), count_opaque);
}

/// Returns a URL for a new SQLite file in the target folder.
fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exactness");
    std::fs::create_dir_all(&folder).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        // Ignore errors, because the file does not exist before the first run.
        drop(std::fs::remove_file(folder.join(format!("{name}{suffix}"))));
    }
    format!("sqlite://{}", folder.join(name).display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_values_survive_sqlite() {
    everything_round_trips("SQLite", &file("plain.db"), &Options::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_values_survive_sqlite_with_key() {
    let options = Options { master_key: Some(master_key()), ..Options::default() };
    everything_round_trips("SQLite with a master key", &file("sealed.db"), &options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_values_survive_postgres() {
    let url = throughline_testkit::postgres_database();
    everything_round_trips("PostgreSQL", &url, &Options::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_values_survive_postgres_with_key() {
    let options = Options { master_key: Some(master_key()), ..Options::default() };
    let url = throughline_testkit::postgres_database();
    everything_round_trips("PostgreSQL with a master key", &url, &options).await;
}

fn master_key() -> MasterKey {
    MasterKey::parse(&"a".repeat(64)).unwrap()
}
