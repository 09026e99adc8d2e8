//! Verifies an export and imports its Threads into a store.

use std::io::BufRead;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use throughline_core::{
    Append, Batch, Digest, ForkPoint, LogId, LogKind, LogOpening, NewRecord, Store, StoreError,
    Tenant,
};
use throughline_json::{self as json, Name, Node, Tree};

use crate::chain::nature;
use crate::cipher;
use crate::hex::{hex, parse_digest, unhex};
use crate::journal::Journal;
use crate::journal::erasure_note::notice;
use crate::journal::export::{FORMAT, VERSION};
use crate::journal::seal::seal_as_operator;
use crate::manifest::Manifest;
use crate::rejection::{Result, invalid};
use crate::row::{ErasureReason, Row};
use crate::sealed_batch::Erasure;

/// Origin and counts of a verified export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// The tenant that the Threads were exported from.
    pub tenant: String,
    /// The public key of the store that signed the export, in hexadecimal digits.
    pub store: String,
    /// Names of the exported Threads.
    pub threads: Vec<LogId>,
    /// Number of runs in the export, without logs that have no status.
    pub runs: u64,
    /// Number of records in the export.
    pub records: u64,
    /// Number of records whose content is redacted or was destroyed.
    pub without_content: u64,
    /// Whether the export is redacted. A redacted export can be verified but not imported.
    pub redacted: bool,
}

impl ImportSummary {
    /// Returns an error for a redacted export. Redacted content differs from the recorded content,
    /// so a replay would send a provider values that the provider never issued.
    pub fn must_be_full(&self) -> Result<()> {
        if !self.redacted {
            return Ok(());
        }
        Err(StoreError::invalid(
            "this export is redacted and cannot be imported; create a full export with \
             `throughline export --full`",
        ))
    }
}

enum ExportLine {
    Log(ImportedLog),
    Record(Box<ImportedRecord>),
    Manifest,
}

struct ImportedLog {
    name: LogId,
    kind: LogKind,
    of: Option<LogId>,
    fork: Option<ForkPoint>,
    status: Option<Name>,
    rewinds: Vec<(u64, u64)>,
    gone: Option<ErasureReason>,
    /// Number of the last record that was inherited from a parent that is not imported. Only the
    /// parent's log contains the erasure records for the inherited records.
    orphaned: u64,
    /// Numbers of the inherited records whose content was destroyed, with the reasons. `at` is the
    /// time of the last imported record.
    unrecorded: Vec<(u64, ErasureReason)>,
    at: Option<i64>,
    /// Number of the last imported record; `None` until the log is opened.
    last: Option<u64>,
}

struct ImportedRecord {
    row: Row,
    content: Option<Bytes>,
    salt: Option<Bytes>,
    redacted: bool,
    gone: Option<ErasureReason>,
}

/// Verifies an export without a store. Checks all content against its commitments, the links of
/// consecutive records, and the signature over all lines.
pub fn verify_export(from: &mut dyn BufRead) -> Result<ImportSummary> {
    Ok(proven(from)?.0)
}

/// Verifies an export. Returns its summary, the names of its logs, and a digest that identifies the
/// export.
fn proven(from: &mut dyn BufRead) -> Result<(ImportSummary, Vec<LogId>, Digest)> {
    let mut reader = ExportReader::new(from)?;
    let mut logs = Vec::new();
    while let Some(line) = reader.next()? {
        if let ExportLine::Log(log) = line {
            logs.push(log.name);
        }
    }
    Ok((reader.summary, logs, reader.covers.unwrap_or_default()))
}

impl Journal {
    /// Imports an export's Threads into the tenant under their original names. Existing data is not
    /// changed. The export is read twice, because it is verified completely before anything is
    /// written. `open` is called once for each pass.
    ///
    /// Each part is imported exactly once. Importing the same export again therefore resumes an
    /// interrupted import, and concurrent imports of one export do not conflict.
    pub async fn import<R: BufRead + Send>(
        &self,
        tenant: &Tenant,
        mut open: impl FnMut() -> Result<R>,
    ) -> Result<ImportSummary> {
        const PAGE: usize = 256;
        let (proven, logs, digest) = proven(&mut open()?)?;
        proven.must_be_full()?;
        let import = Import { journal: self, tenant, digest: hex(&digest) };
        let marker = format!("import {} {tenant}", import.digest);
        if !self.backend.values(&marker).await?.iter().any(|(name, _)| *name == marker) {
            for log in logs {
                if let Some(head) = self.log(tenant, &log).await? {
                    return Err(StoreError::Conflict { log, expected: 0, found: head.last });
                }
            }
            self.backend.keep(&marker, Bytes::new()).await?;
        }
        let mut source = open()?;
        let mut reader = ExportReader::new(&mut source)?;
        let mut log: Option<ImportedLog> = None;
        let mut records: Vec<ImportedRecord> = Vec::new();
        loop {
            let line = reader.next()?;
            let ended = !matches!(line, Some(ExportLine::Record(_)));
            if (ended || records.len() >= PAGE)
                && let Some(log) = &mut log
            {
                import.append(log, std::mem::take(&mut records)).await?;
                if ended {
                    import.record_erasures(log).await?;
                }
            }
            match line {
                None => {
                    self.backend.discard(&marker).await?;
                    return Ok(proven);
                }
                Some(ExportLine::Log(mut next)) => {
                    // A fork whose parent is not imported becomes an independent Thread with its
                    // full history.
                    let comes = |fork: &ForkPoint| proven.threads.contains(&fork.log);
                    let alone = next.fork.as_ref().filter(|fork| !comes(fork));
                    next.orphaned = alone.map_or(0, |fork| fork.at);
                    next.fork = next.fork.filter(comes);
                    log = Some(next);
                }
                Some(ExportLine::Record(record)) => records.push(*record),
                Some(ExportLine::Manifest) => log = None,
            }
        }
    }
}

struct Import<'i> {
    journal: &'i Journal,
    tenant: &'i Tenant,
    /// Digest of the export, in hexadecimal digits.
    digest: String,
}

impl Import<'_> {
    /// Appends records to the log. The first append opens the log.
    async fn append(&self, log: &mut ImportedLog, mut records: Vec<ImportedRecord>) -> Result<()> {
        // Records shared with the parent are imported with the parent.
        let shared = log.shared();
        records.retain(|record| record.row.seq > shared);
        let mut records = records.into_iter().peekable();
        while log.last.is_none() || records.peek().is_some() {
            let rewind_to = records.peek().and_then(|record| log.rewind_at(record.row.seq));
            let mut together = Vec::new();
            while let Some(record) = records
                .next_if(|record| together.is_empty() || log.rewind_at(record.row.seq).is_none())
            {
                together.push(record);
            }
            self.commit_records(log, &together, rewind_to).await?;
        }
        Ok(())
    }

    /// For a fork whose parent is not imported, records the erasures of inherited records and marks
    /// these records as erased.
    async fn record_erasures(&self, log: &ImportedLog) -> Result<()> {
        let erases = log.erasures(&log.unrecorded);
        if erases.is_empty() {
            return Ok(());
        }
        let mut append = Append::new(log.name.clone());
        append.expect = log.last;
        let at = log.at.and_then(|at| Timestamp::from_millisecond(at).ok());
        append.records = erases.iter().map(|erase| NewRecord { at, ..notice(erase) }).collect();
        self.commit(append, erases, None, &format!("{} told", log.name)).await
    }

    /// Appends records. Only the first record may be a rewind.
    async fn commit_records(
        &self,
        log: &mut ImportedLog,
        records: &[ImportedRecord],
        rewind_to: Option<u64>,
    ) -> Result<()> {
        let mut append = Append::new(log.name.clone());
        append.records = records.iter().map(ImportedRecord::record).collect();
        // Fail if another process added records to the log.
        append.expect = log.last;
        let last = records.last().map_or(log.last.unwrap_or(log.shared()), |record| record.row.seq);
        let part = format!("{} {last}", log.name);
        let begins = log.last.replace(last).is_none();
        if begins {
            let (of, fork) = (log.of.clone(), log.fork.clone());
            append = append.opening(LogOpening { kind: log.kind, of, fork });
            append.status.clone_from(&log.status);
        }
        log.at = records.last().map_or(log.at, |record| Some(record.row.at));
        // Only the parent, which is not imported, has records of the erasures in its history, so
        // collect these erasures for `record_erasures`.
        let destroyed = records.iter().filter_map(|record| Some((record.row.seq, record.gone?)));
        let (unrecorded, own_erasures): (Vec<_>, Vec<_>) =
            destroyed.partition(|(seq, _)| *seq <= log.orphaned);
        log.unrecorded.extend(unrecorded);
        let mut erases = log.erasures(&own_erasures);
        // Apply the erasure of the whole log last, so that each record keeps its own reason.
        let log_erasure = log.gone.filter(|_| begins);
        erases.extend(log_erasure.map(|reason| Erasure::all(log.name.clone(), reason)));
        self.commit(append, erases, rewind_to, &part).await
    }

    /// Commits a part of the export, unless it was committed before.
    async fn commit(
        &self,
        append: Append,
        erases: Vec<Erasure>,
        rewind_to: Option<u64>,
        part: &str,
    ) -> Result<()> {
        let Journal { backend, keys, .. } = self.journal;
        let _sealing = keys.sealing().await;
        let name = format!("import {} {part}", self.digest);
        let batch = Batch::new(self.tenant.clone()).append(append).with_idempotency_key(name);
        let mut sealed = seal_as_operator(keys, batch, erases)?;
        for append in &mut sealed.appends {
            append.rewind_to = rewind_to;
        }
        backend.commit(sealed).await.map(drop)
    }
}

impl ImportedLog {
    /// Returns the number of the last record that the log shares with its parent, or 0.
    fn shared(&self) -> u64 {
        self.fork.as_ref().map_or(0, |fork| fork.at)
    }

    /// Returns the erasures for these records, one per reason.
    fn erasures(&self, destroyed: &[(u64, ErasureReason)]) -> Vec<Erasure> {
        let erasure = |reason| {
            let seqs =
                destroyed.iter().filter(|(_, destroyed)| *destroyed == reason).map(|(seq, _)| *seq);
            Erasure::records(self.name.clone(), seqs.collect(), reason)
        };
        let erases = ErasureReason::ALL.into_iter().map(erasure);
        erases.filter(|erase| erase.seqs.as_ref().is_some_and(|seqs| !seqs.is_empty())).collect()
    }

    /// Returns the rewind target if record `seq` is a rewind.
    fn rewind_at(&self, seq: u64) -> Option<u64> {
        self.rewinds.iter().find(|(at, _)| *at == seq).map(|(_, to)| *to)
    }
}

impl ImportedRecord {
    /// Returns the record to import. If its content is missing, the imported content is a note with
    /// the reason.
    fn record(&self) -> NewRecord {
        let content = self.content.clone().unwrap_or_else(|| {
            let reason = self
                .gone
                .map_or("not exported".to_owned(), |reason| reason.to_elision_reason().to_string());
            let note = json::object(|note| {
                note.string("gone", &reason);
            });
            note.bytes().clone()
        });
        NewRecord {
            kind: self.row.kind.clone(),
            content,
            events: self.row.events,
            // The hash has no meaning in this store, but records with the same subject must stay
            // related.
            about: self.row.about.map(|about| Name::from(format!("imported {about}"))),
            at: Timestamp::from_millisecond(self.row.at).ok(),
        }
    }
}

/// Reads and verifies an export line by line.
struct ExportReader<'r> {
    from: &'r mut dyn BufRead,
    hash: Sha256,
    line: u64,
    summary: ImportSummary,
    /// The previous record. The next record's link is checked if both records are consecutive in
    /// the same chain.
    last: Option<Row>,
    /// The current log: its name, its kind and lineage, and the number of records that it shares
    /// with its parent.
    log: Option<(LogId, String, u64)>,
    /// The digest that the signature covers; `None` until the signature is read.
    covers: Option<Digest>,
}

impl<'r> ExportReader<'r> {
    fn new(from: &'r mut dyn BufRead) -> Result<Self> {
        let (hash, summary) = (Sha256::new(), ImportSummary::default());
        let mut reader = Self { from, hash, line: 0, summary, last: None, log: None, covers: None };
        let Some((first, text)) = reader.read()? else {
            return Err(reader.wrong("is missing: the file is empty"));
        };
        let root = first.root();
        if !root.get("format").is_some_and(|format| format.is(FORMAT)) {
            return Err(reader.wrong("is not the header of a Throughline export"));
        }
        match root.get("version").and_then(Node::u64) {
            Some(VERSION) => {}
            Some(version) => {
                let problem = format!("has version {version}, but this program supports {VERSION}");
                return Err(reader.wrong(&problem));
            }
            None => return Err(reader.wrong("has no version")),
        }
        let field = |key| root.text_of(key).unwrap_or_default().into_owned();
        (reader.summary.tenant, reader.summary.store) = (field("tenant"), field("store"));
        reader.summary.redacted = root.get("redacted").and_then(Node::bool).unwrap_or(false);
        reader.hash.update(text);
        Ok(reader)
    }

    /// Returns the next line, after all checks that are possible at this point.
    fn next(&mut self) -> Result<Option<ExportLine>> {
        let Some((tree, text)) = self.read()? else {
            if self.covers.is_none() {
                return Err(self.wrong("is missing: the export was truncated before its signature"));
            }
            return Ok(None);
        };
        if self.covers.is_some() {
            return Err(self.wrong("comes after the signature, which must be on the last line"));
        }
        let root = tree.root();
        if let Some(manifest) = root.get("manifest") {
            self.manifest(manifest, &text)?;
            return Ok(Some(ExportLine::Manifest));
        }
        self.hash.update(&text);
        if root.get("log").is_some() {
            let log = log_of(root).ok_or_else(|| self.wrong("is not a log"))?;
            match log.kind {
                LogKind::Thread => self.summary.threads.push(log.name.clone()),
                LogKind::Run => self.summary.runs += u64::from(log.status.is_some()),
            }
            let shared = log.shared();
            let nature = nature(log.kind, log.of.as_ref(), log.fork.as_ref());
            self.log = Some((log.name.clone(), nature, shared));
            return Ok(Some(ExportLine::Log(log)));
        }
        let record = record_of(root).ok_or_else(|| self.wrong("is not a record"))?;
        self.prove(&record)?;
        Ok(Some(ExportLine::Record(Box::new(record))))
    }

    fn prove(&mut self, record: &ImportedRecord) -> Result<()> {
        let row = &record.row;
        let Some((log, nature, shared)) = self.log.clone() else {
            return Err(self.wrong("is a record, but no log header precedes it"));
        };
        self.summary.records += 1;
        match (&record.content, &record.salt) {
            (Some(content), Some(salt)) if !record.redacted => {
                let salt = <[u8; cipher::SALT]>::try_from(&**salt)
                    .map_err(|_| self.wrong("has a salt of the wrong length"))?;
                if cipher::commitment(&salt, content) != row.commitment {
                    return Err(self.wrong("has content that does not match its commitment"));
                }
            }
            (Some(_), None) if record.redacted && self.summary.redacted => {
                self.summary.without_content += 1;
            }
            (None, _) if record.gone.is_some() => self.summary.without_content += 1,
            (_, _) => {
                return Err(
                    self.wrong("has neither content nor a reason why its content is missing")
                );
            }
        }
        // An export omits some logs of a chain, so only consecutive records of one chain are
        // checked. Shared records of a fork were linked under the parent's name.
        let last = self.last.replace(row.clone());
        let follows = |last: &Row| last.writer == row.writer && last.position + 1 == row.position;
        if row.seq > shared
            && let Some(last) = last.filter(follows)
        {
            let tenant = Tenant::from(&*self.summary.tenant);
            let header = row.header(&tenant, &log, &nature);
            if header.link(&last.link, &row.commitment) != row.link {
                return Err(self.wrong("breaks the hash chain"));
            }
        }
        Ok(())
    }

    fn manifest(&mut self, node: Node<'_>, text: &[u8]) -> Result<()> {
        let manifest = read_manifest(node).ok_or_else(|| self.wrong("is not a manifest"))?;
        if text.strip_suffix(b"\n") != Some(manifest.json().bytes()) {
            return Err(self.wrong("is a manifest, but its formatting was changed"));
        }
        if !manifest.is_signed_by(&self.summary.store) {
            return Err(self.wrong("has an invalid signature"));
        }
        let covers: Digest = self.hash.clone().finalize().into();
        if manifest.statement().and_then(|statement| statement.covers) != Some(covers) {
            return Err(self.wrong("has a signature that does not match the lines before it"));
        }
        self.covers = Some(covers);
        Ok(())
    }

    /// Reads the next line. Returns its parsed JSON, and its text including the line break.
    fn read(&mut self) -> Result<Option<(Tree, Bytes)>> {
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
        invalid!("line {} {problem}", self.line)
    }
}

/// Parses a manifest from a JSON line, as written by [`Manifest::json`]. Returns `None` if the line
/// is not a manifest.
pub fn parse_manifest(line: &[u8]) -> Option<Manifest> {
    let tree = Tree::parse(line.to_vec()).ok()?;
    read_manifest(tree.root().get("manifest")?)
}

fn read_manifest(node: Node<'_>) -> Option<Manifest> {
    let body = node.text_of("body")?.into_owned();
    let signature = node.text_of("signature")?;
    let (first, second) = signature.split_at_checked(64)?;
    let signature = [parse_digest(first)?, parse_digest(second)?].concat().try_into().ok()?;
    Some(Manifest { body, signature })
}

fn log_of(root: Node<'_>) -> Option<ImportedLog> {
    let kind = match &*root.text_of("kind")? {
        "thread" => LogKind::Thread,
        "run" => LogKind::Run,
        _ => return None,
    };
    let fork = parse_present(root.get("fork"), |fork| {
        Some(ForkPoint { log: LogId(fork.name_of("log")?), at: fork.get("at")?.u64()? })
    })?;
    let pair = |pair: Node<'_>| Some((pair.get("at")?.u64()?, pair.get("to")?.u64()?));
    let rewinds = parse_present(root.get("rewinds"), |list| list.elements().map(pair).collect())?;
    let gone = parse_present(root.text_of("gone"), |text| parse_erasure_reason(&text))?;
    Some(ImportedLog {
        name: LogId(root.name_of("log")?),
        kind,
        of: root.name_of("of").map(LogId),
        fork,
        status: root.name_of("status"),
        rewinds: rewinds.unwrap_or_default(),
        gone,
        orphaned: 0,
        unrecorded: Vec::new(),
        at: None,
        last: None,
    })
}

fn record_of(root: Node<'_>) -> Option<ImportedRecord> {
    let content = match (root.get("text"), root.get("base64")) {
        (Some(text), _) => Some(Bytes::from(text.text()?.into_owned())),
        (None, Some(base64)) => Some(Bytes::from(STANDARD.decode(&*base64.text()?).ok()?)),
        (None, None) => None,
    };
    let salt = parse_present(root.text_of("salt"), |salt| unhex(&salt))?;
    let row = Row {
        seq: root.get("seq")?.u64()?,
        kind: root.name_of("kind")?,
        at: root.text_of("at")?.parse().ok()?,
        events: u32::try_from(root.get("events").map_or(Some(0), Node::u64)?).ok()?,
        last_event: root.get("last_event").and_then(Node::u64),
        about: parse_present(root.text_of("about"), |about| about.parse().ok())?,
        size: root.get("size")?.u64()?,
        commitment: parse_digest(&root.text_of("commitment")?)?,
        link: parse_digest(&root.text_of("link")?)?,
        writer: root.name_of("writer")?,
        position: root.get("position")?.u64()?,
        blob: None,
        content: None,
        salt: None,
        erased: None,
    };
    let redacted = root.get("redacted").and_then(Node::bool).unwrap_or(false);
    let gone = parse_present(root.text_of("gone"), |text| parse_erasure_reason(&text))?;
    Some(ImportedRecord { row, content, salt, redacted, gone })
}

fn parse_erasure_reason(text: &str) -> Option<ErasureReason> {
    ErasureReason::ALL.into_iter().find(|reason| reason.to_elision_reason().to_string() == text)
}

/// Parses an optional value. Returns `None` if the value is invalid, `Some(None)` if it is absent.
#[expect(clippy::option_option, reason = "an invalid value differs from a missing one")]
fn parse_present<T, U>(value: Option<T>, parse: impl FnOnce(T) -> Option<U>) -> Option<Option<U>> {
    value.map_or(Some(None), |value| parse(value).map(Some))
}
