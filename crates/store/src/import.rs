//! Reading an export: proving it, and bringing its threads into a store.

use std::io::BufRead;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use throughline_core::{
    Append, Batch, Digest, LogId, LogKind, LogOpening, Name, NewRecord, Node, Store, StoreError,
    Tenant, Tree, json,
};

use crate::backend::Row;
use crate::cipher;
use crate::export::{FORMAT, VERSION, manifest_line};
use crate::journal::Journal;
use crate::manifest::{Manifest, digest};

/// What was read from an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The tenant that it was exported from.
    pub tenant: String,
    /// The public key of the store that signed it.
    pub store: String,
    /// Threads.
    pub threads: Vec<LogId>,
    /// Runs.
    pub runs: u64,
    /// Records.
    pub records: u64,
    /// Records whose content is redacted or was destroyed.
    pub without_content: u64,
}

/// One line of an export.
enum Line {
    Log(Opened),
    Record(Box<Taken>),
    /// The signature over everything before it, which holds.
    Manifest,
}

struct Opened {
    id: LogId,
    kind: LogKind,
    of: Option<LogId>,
    status: Option<Name>,
    rewinds: Vec<(u64, u64)>,
}

struct Taken {
    row: Row,
    content: Option<Bytes>,
    salt: Option<Vec<u8>>,
    redacted: bool,
    gone: Option<Name>,
}

/// Proves an export without a store: every content against its commitment, and the signature over every byte. Who signed it
/// is told: whether that is the right store is for the reader to say.
pub fn verify_export(from: &mut dyn BufRead) -> Result<Imported, StoreError> {
    let mut reader = Reader::new(from)?;
    while reader.next()?.is_some() {}
    Ok(reader.seen)
}

impl Journal {
    /// Brings an export's threads into the tenant, under their own names. The whole of it is proven first, so `from` is read
    /// twice: `open` opens it. Nothing that exists is changed.
    pub async fn import<R: BufRead + Send>(
        &self,
        tenant: &Tenant,
        mut open: impl FnMut() -> Result<R, StoreError>,
    ) -> Result<Imported, StoreError> {
        let proven = verify_export(&mut open()?)?;
        for thread in &proven.threads {
            if let Some(head) = self.log(tenant, thread).await? {
                let log = thread.clone();
                return Err(StoreError::Conflict { log, expected: 0, found: head.last });
            }
        }
        let mut source = open()?;
        let mut reader = Reader::new(&mut source)?;
        let mut log: Option<Opened> = None;
        let mut records: Vec<Taken> = Vec::new();
        loop {
            let line = reader.next()?;
            let ended = !matches!(line, Some(Line::Record(_)));
            if (ended || records.len() >= 256)
                && let Some(log) = &mut log
            {
                self.bring(tenant, log, std::mem::take(&mut records)).await?;
            }
            match line {
                None => return Ok(proven),
                Some(Line::Log(next)) => log = Some(next),
                Some(Line::Record(record)) => records.push(*record),
                Some(Line::Manifest) => log = None,
            }
        }
    }

    /// Adds records to the log, which is opened with the first. A fork comes with all of its history, so it is a thread of
    /// its own here.
    async fn bring(
        &self,
        tenant: &Tenant,
        log: &mut Opened,
        records: Vec<Taken>,
    ) -> Result<(), StoreError> {
        let mut append = Append::to(log.id.clone());
        if self.log(tenant, &log.id).await?.is_none() {
            let opening = LogOpening { kind: log.kind, of: log.of.clone(), fork: None };
            append = append.opening(opening);
            append.status.clone_from(&log.status);
        }
        let mut batches = vec![append];
        for taken in records {
            let record = NewRecord {
                kind: taken.row.kind.clone(),
                content: taken.shown(),
                events: taken.row.events,
                // The hash means nothing here; but what was about the same thing still is.
                about: taken.row.about.map(|about| Name::from(format!("imported {about}"))),
                at: Timestamp::from_millisecond(taken.row.at).ok(),
            };
            let rewind = log.rewinds.iter().find(|(at, _)| *at == taken.row.seq);
            if let Some((_, to)) = rewind {
                // The store writes the record of a rewind itself.
                let mut rewind = Append::to(log.id.clone());
                rewind.rewind_to = Some(*to);
                batches.push(rewind);
                batches.push(Append::to(log.id.clone()));
            } else if let Some(append) = batches.last_mut() {
                append.records.push(record);
            }
        }
        for append in batches {
            if append.opening.is_some() || append.rewind_to.is_some() || !append.records.is_empty()
            {
                self.commit(Batch::of(tenant.clone()).append(append)).await?;
            }
        }
        Ok(())
    }
}

impl Taken {
    /// What is imported: the content, or a note that says why there is none.
    fn shown(&self) -> Bytes {
        match (&self.content, &self.gone) {
            (Some(content), _) => content.clone(),
            (None, gone) => {
                let note = json::object(|note| {
                    note.string("gone", gone.as_deref().unwrap_or("not exported"));
                });
                note.bytes().clone()
            }
        }
    }
}

/// Reads and proves, line by line.
struct Reader<'r> {
    from: &'r mut dyn BufRead,
    hash: Sha256,
    line: u64,
    seen: Imported,
    /// Whether the records that come are some log's.
    in_log: bool,
    signed: bool,
}

impl<'r> Reader<'r> {
    fn new(from: &'r mut dyn BufRead) -> Result<Self, StoreError> {
        let (hash, seen) = (Sha256::new(), Imported::default());
        let mut reader = Self { from, hash, line: 0, seen, in_log: false, signed: false };
        let Some((first, text)) = reader.read()? else {
            return Err(reader.wrong("is not there: the file is empty"));
        };
        let root = first.root();
        if !root.get("format").is_some_and(|format| format.is(FORMAT)) {
            return Err(reader.wrong("does not begin an export of Throughline"));
        }
        match root.get("version").and_then(Node::u64) {
            Some(VERSION) => {}
            Some(version) => {
                let problem = format!("has version {version}, and this program knows {VERSION}");
                return Err(reader.wrong(&problem));
            }
            None => return Err(reader.wrong("has no version")),
        }
        let word = |key| root.text_of(key).unwrap_or_default().into_owned();
        (reader.seen.tenant, reader.seen.store) = (word("tenant"), word("store"));
        reader.hash.update(text);
        Ok(reader)
    }

    /// The next line, proven as far as it can be.
    fn next(&mut self) -> Result<Option<Line>, StoreError> {
        let Some((tree, text)) = self.read()? else {
            if !self.signed {
                return Err(self.wrong("is missing: the export was cut off before its signature"));
            }
            return Ok(None);
        };
        if self.signed {
            return Err(self.wrong("stands after the signature"));
        }
        let root = tree.root();
        if let Some(manifest) = root.get("manifest") {
            return self.manifest(manifest, &text).map(|()| Some(Line::Manifest));
        }
        self.hash.update(&text);
        if root.get("log").is_some() {
            let log = log_of(root).ok_or_else(|| self.wrong("is not a log"))?;
            match log.kind {
                LogKind::Thread => self.seen.threads.push(log.id.clone()),
                LogKind::Run => self.seen.runs += 1,
            }
            self.in_log = true;
            return Ok(Some(Line::Log(log)));
        }
        let record = record_of(root).ok_or_else(|| self.wrong("is not a record"))?;
        self.prove(&record)?;
        Ok(Some(Line::Record(Box::new(record))))
    }

    fn prove(&mut self, record: &Taken) -> Result<(), StoreError> {
        let row = &record.row;
        if !self.in_log {
            return Err(self.wrong("is a record of no log"));
        }
        self.seen.records += 1;
        match (&record.content, &record.salt) {
            (Some(content), Some(salt)) if !record.redacted => {
                let salt = <[u8; cipher::SALT]>::try_from(salt.as_slice())
                    .map_err(|_| self.wrong("has a salt of the wrong length"))?;
                if cipher::commitment(&salt, content) != row.commitment {
                    return Err(self.wrong("has another content than was committed to"));
                }
            }
            (Some(_), _) if record.redacted => self.seen.without_content += 1,
            (None, _) if record.gone.is_some() => self.seen.without_content += 1,
            (_, _) => return Err(self.wrong("has no content, and does not say why")),
        }
        Ok(())
    }

    fn manifest(&mut self, node: Node<'_>, text: &[u8]) -> Result<(), StoreError> {
        let manifest = read_manifest(node).ok_or_else(|| self.wrong("is not a manifest"))?;
        if text.strip_suffix(b"\n") != Some(manifest_line(&manifest).bytes()) {
            return Err(self.wrong("is not written as a manifest is"));
        }
        if !manifest.is_signed_by(&self.seen.store) {
            return Err(self.wrong("has a wrong signature"));
        }
        let covers: Digest = self.hash.clone().finalize().into();
        if manifest.statement().and_then(|said| said.covers) != Some(covers) {
            return Err(self.wrong("was signed over something else: a line before it was changed"));
        }
        self.signed = true;
        Ok(())
    }

    /// The next line, and its text with the line break.
    fn read(&mut self) -> Result<Option<(Tree, Bytes)>, StoreError> {
        let mut text = Vec::new();
        self.line += 1;
        let read = self.from.read_until(b'\n', &mut text);
        read.map_err(|error| self.wrong(&format!("cannot be read: {error}")))?;
        if text.is_empty() {
            return Ok(None);
        }
        let text = Bytes::from(text);
        let tree = Tree::parse(text.clone());
        let tree = tree.map_err(|error| self.wrong(&format!("is not JSON: {error}")))?;
        Ok(Some((tree, text)))
    }

    fn wrong(&self, problem: &str) -> StoreError {
        StoreError::invalid(format!("line {} {problem}", self.line))
    }
}

/// The manifest that a line of JSON holds.
pub fn parse_manifest(line: &[u8]) -> Option<Manifest> {
    let tree = Tree::parse(line.to_vec()).ok()?;
    read_manifest(tree.root().get("manifest")?)
}

fn read_manifest(node: Node<'_>) -> Option<Manifest> {
    let body = node.text_of("body")?.into_owned();
    let signature = node.text_of("signature")?;
    let (first, second) = signature.split_at_checked(64)?;
    let mut bytes = [0; 64];
    let halves = [digest(first)?, digest(second)?].concat();
    bytes.copy_from_slice(halves.get(..64)?);
    Some(Manifest { body, signature: bytes })
}

fn log_of(root: Node<'_>) -> Option<Opened> {
    let kind = match &*root.text_of("kind")? {
        "thread" => LogKind::Thread,
        "run" => LogKind::Run,
        _ => return None,
    };
    let pair = |pair: Node<'_>| Some((pair.get("at")?.u64()?, pair.get("to")?.u64()?));
    let rewinds = match root.get("rewinds") {
        None => Vec::new(),
        Some(list) => list.elements().map(pair).collect::<Option<_>>()?,
    };
    Some(Opened {
        id: LogId(root.name_of("log")?),
        kind,
        of: root.name_of("of").map(LogId),
        status: root.name_of("status"),
        rewinds,
    })
}

fn record_of(root: Node<'_>) -> Option<Taken> {
    let content = match (root.get("text"), root.get("base64")) {
        (Some(text), _) => Some(Bytes::from(text.text()?.into_owned())),
        (None, Some(base64)) => Some(Bytes::from(STANDARD.decode(&*base64.text()?).ok()?)),
        (None, None) => None,
    };
    let salt = match root.text_of("salt") {
        None => None,
        Some(salt) => Some(bytes_of(&salt)?),
    };
    let row = Row {
        seq: root.get("seq")?.u64()?,
        kind: root.name_of("kind")?,
        at: root.text_of("at")?.parse().ok()?,
        events: u32::try_from(root.get("events").map_or(Some(0), Node::u64)?).ok()?,
        last_event: root.get("last_event").and_then(Node::u64),
        about: match root.text_of("about") {
            None => None,
            Some(about) => Some(about.parse().ok()?),
        },
        size: root.get("size")?.u64()?,
        commitment: digest(&root.text_of("commitment")?)?,
        link: digest(&root.text_of("link")?)?,
        writer: root.name_of("writer")?,
        position: root.get("position")?.u64()?,
        blob: None,
        content: None,
        salt: None,
        erased: None,
    };
    let redacted = root.get("redacted").and_then(Node::bool).unwrap_or(false);
    Some(Taken { row, content, salt, redacted, gone: root.name_of("gone") })
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
