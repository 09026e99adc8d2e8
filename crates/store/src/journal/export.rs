//! Exports Threads as JSON lines in a versioned format that can be verified.
//!
//! The first line is the header. Each log has one line, followed by one line per record. The last
//! line is a signed manifest whose signature covers all lines before it, so a reader detects a
//! truncated export. A record's line contains its content and its salt, so a reader can check the
//! content against its commitment.
//!
//! A full export (`"full": true` in the header) contains the exact content and can be imported. A
//! redacted export omits the salt of each redacted record, so the original content cannot be
//! guessed. Everything else in the export can still be verified.
//!
//! The store is read in pages, and each page is written before the next one is read. Memory holds
//! only the Thread names, one page, and one chunk of lines.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use throughline_core::{LogHead, LogId, LogKind, Store, StoreError, StoreFuture, Tenant};
use throughline_json::{self as json, Json};
use throughline_spec::{ExportSink, RedactionPolicy};

use crate::hex::hex;
use crate::journal::Journal;
use crate::journal::api_keys::KEYS_LOG;
use crate::journal::listing::Page;
use crate::manifest::{Manifest, Statement};
use crate::query::{Progress, Span, share};
use crate::rejection::{Result, invalid, no_thread};
use crate::row::Row;
use crate::row_mac::RowState;

/// Format name in the header line.
pub(super) const FORMAT: &str = "throughline-export";
/// Version of the line format, written in the header line.
pub(super) const VERSION: u64 = 1;

/// Counts of exported Threads, runs and records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Number of exported Threads.
    pub threads: u64,
    /// Number of exported runs. Logs without a status, such as inboxes and stored responses, are
    /// exported but are not runs.
    pub runs: u64,
    /// Number of exported records.
    pub records: u64,
    /// Number of exported records whose content was redacted.
    pub redacted: u64,
}

/// Approximate number of bytes to collect before each write.
const CHUNK: usize = 64 << 10;
/// Approximate number of content bytes per page. A page also has at most `PAGE_RECORDS` records.
const PAGE_BYTES: u64 = 256 << 10;
const PAGE_RECORDS: u64 = 256;

impl Journal {
    /// Exports Threads and their runs as JSON lines. If `threads` is empty, exports all of the
    /// tenant's Threads. Without a redaction policy, the export is full.
    pub async fn export(
        &self,
        tenant: &Tenant,
        threads: &[LogId],
        redaction: Option<&RedactionPolicy>,
        out: &mut (dyn Write + Send),
        progress: Progress<'_>,
    ) -> Result<ExportSummary> {
        let summary =
            self.export_to(tenant, threads, redaction, &mut WriteSink(out), progress).await?;
        out.flush().map_err(|error| failed(&error))?;
        Ok(summary)
    }

    /// Like [`Journal::export`], but writes to a sink that accepts chunks.
    pub async fn export_to(
        &self,
        tenant: &Tenant,
        threads: &[LogId],
        redaction: Option<&RedactionPolicy>,
        out: &mut dyn ExportSink,
        progress: Progress<'_>,
    ) -> Result<ExportSummary> {
        let chosen = self.threads_of(tenant, threads).await?;
        let (chunk, hash) = (Vec::with_capacity(CHUNK), Sha256::new());
        let summary = ExportSummary::default();
        let mut export = Export { journal: self, tenant, redaction, out, chunk, hash, summary };
        export.signed_line(&json::object(|line| {
            line.string("format", FORMAT).number("version", VERSION);
            line.string("store", &self.signer.store()).string("tenant", &tenant.0);
            line.bool("redacted", redaction.is_some()).bool("full", redaction.is_none());
        }));
        for (number, thread) in (1..).zip(&chosen) {
            export.thread(thread).await?;
            progress(share(number, chosen.len() as u64));
        }
        if threads.is_empty() {
            // Some runs have no Thread.
            for run in self.runs_without_thread(tenant).await? {
                export.log(&run).await?;
            }
        }
        let covers: [u8; 32] = export.hash.clone().finalize().into();
        let manifest = self.manifest_covering(tenant, Some(covers)).await?;
        export.line(&manifest.json());
        export.flush().await?;
        Ok(export.summary)
    }

    /// Returns a signed manifest of all the tenant's chains. A later verification can compare the
    /// store with this manifest to detect truncation.
    pub async fn manifest(&self, tenant: &Tenant) -> Result<Manifest> {
        self.manifest_covering(tenant, None).await
    }

    async fn manifest_covering(
        &self,
        tenant: &Tenant,
        covers: Option<[u8; 32]>,
    ) -> Result<Manifest> {
        let heads = self.backend.heads(Some(tenant)).await?;
        // An importer of this export has no rows to compare, so the manifest omits row sums.
        let rows = match covers {
            Some(_) => Vec::new(),
            None => self.backend.row_states().await?,
        };
        let is_own = |row: &RowState| row.segment.as_ref().is_none_or(|(of, _)| of == tenant);
        let rows = rows.into_iter().filter(is_own).collect();
        let writer = "export".into();
        Ok(self.signer.sign(Statement { writer, covers, heads, rows, ..Statement::default() }))
    }

    /// Returns the names of the Threads to export, with each fork after its parent.
    async fn threads_of(&self, tenant: &Tenant, threads: &[LogId]) -> Result<Vec<LogId>> {
        let mut chosen: Vec<LogHead> = Vec::new();
        if threads.is_empty() {
            chosen = self.threads(tenant, Page::everything()).await?;
            chosen.sort_by_key(|head| head.created);
        }
        let mut named: HashSet<&LogId> = HashSet::new();
        for thread in threads.iter().filter(|thread| named.insert(thread)) {
            match self.log(tenant, thread).await? {
                Some(head) if head.kind == LogKind::Thread => chosen.push(head),
                Some(_) | None => return Err(no_thread(thread)),
            }
        }
        Ok(parents_first(chosen))
    }

    async fn runs_without_thread(&self, tenant: &Tenant) -> Result<Vec<LogHead>> {
        let mut runs = self.runs(tenant, None, Page::everything()).await?;
        // API keys are not exported, so their records are not exported either.
        runs.retain(|run| run.of.is_none() && *run.log.0 != *KEYS_LOG);
        runs.sort_by_key(|head| head.created);
        Ok(runs)
    }
}

/// Sorts Threads so that each fork follows its parent, and returns their names.
fn parents_first(threads: Vec<LogHead>) -> Vec<LogId> {
    let mut waiting: HashMap<LogId, Vec<LogId>> = HashMap::new();
    let chosen: HashSet<LogId> = threads.iter().map(|head| head.log.clone()).collect();
    let mut ready = VecDeque::new();
    for head in threads {
        match head.fork {
            Some(fork) if chosen.contains(&fork.log) => {
                waiting.entry(fork.log).or_default().push(head.log);
            }
            Some(_) | None => ready.push_back(head.log),
        }
    }
    let mut ordered = Vec::with_capacity(chosen.len());
    while let Some(log) = ready.pop_front() {
        ready.extend(waiting.remove(&log).unwrap_or_default());
        ordered.push(log);
    }
    ordered
}

struct WriteSink<'w>(&'w mut (dyn Write + Send));

impl ExportSink for WriteSink<'_> {
    fn write(&mut self, chunk: Bytes) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.0.write_all(&chunk).map_err(|error| failed(&error)) })
    }
}

struct Export<'e> {
    journal: &'e Journal,
    tenant: &'e Tenant,
    redaction: Option<&'e RedactionPolicy>,
    out: &'e mut dyn ExportSink,
    chunk: Vec<u8>,
    hash: Sha256,
    summary: ExportSummary,
}

impl Export<'_> {
    /// Exports the current state of a Thread and its runs.
    async fn thread(&mut self, thread: &LogId) -> Result<()> {
        let Some(head) = self.journal.log(self.tenant, thread).await? else { return Ok(()) };
        self.log(&head).await?;
        let mut runs = self.journal.runs(self.tenant, Some(thread), Page::everything()).await?;
        runs.sort_by_key(|head| head.created);
        for run in &runs {
            self.log(run).await?;
        }
        Ok(())
    }

    async fn log(&mut self, head: &LogHead) -> Result<()> {
        match head.kind {
            LogKind::Thread => self.summary.threads += 1,
            LogKind::Run => self.summary.runs += u64::from(head.status.is_some()),
        }
        self.signed_line(&log_line(head));
        // Start with a small page. The size of its records determines the limit of the next page.
        let (mut after, mut limit) = (0, 16);
        loop {
            let span = Span { after, up_to: head.last, limit };
            let rows = self.journal.rows(self.tenant, &head.log, span).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.seq;
            let bytes: u64 = rows.iter().map(|row| row.size).sum();
            let each = (bytes / rows.len().max(1) as u64).max(1);
            limit = u32::try_from((PAGE_BYTES / each).clamp(1, PAGE_RECORDS)).unwrap_or(1);
            for row in &rows {
                self.record(&head.log, row).await?;
            }
        }
    }

    async fn record(&mut self, log: &LogId, row: &Row) -> Result<()> {
        let content = self.journal.content_or_erasure(self.tenant, log, row).await?;
        let redacted = match (&content, self.redaction) {
            (Ok((content, _)), Some(policy)) => policy.redact_record(&row.kind, content),
            (_, _) => None,
        };
        self.summary.records += 1;
        self.summary.redacted += u64::from(redacted.is_some());
        let line = json::object(|line| {
            write_proven_fields(line, row);
            match (&content, &redacted) {
                (Err(erased), _) => {
                    line.string("gone", &erased.to_elision_reason().to_string());
                }
                (Ok(_), Some(redacted)) => {
                    line.bool("redacted", true);
                    write_content(line, redacted);
                }
                (Ok((content, salt)), None) => {
                    line.string("salt", &hex(salt));
                    write_content(line, content);
                }
            }
        });
        self.signed_line(&line);
        if self.chunk.len() >= CHUNK { self.flush().await } else { Ok(()) }
    }

    /// Writes a line that the signature covers. Redacted content cannot be checked against its
    /// commitment, so only the signature protects the line of a redacted record.
    fn signed_line(&mut self, line: &Json) {
        self.hash.update(line.bytes());
        self.hash.update(b"\n");
        self.line(line);
    }

    fn line(&mut self, line: &Json) {
        self.chunk.extend_from_slice(line.bytes());
        self.chunk.push(b'\n');
    }

    async fn flush(&mut self) -> Result<()> {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        self.out.write(Bytes::from(chunk)).await
    }
}

fn log_line(head: &LogHead) -> Json {
    json::object(|line| {
        line.string("log", &head.log.0).string("kind", head.kind.as_str());
        line.maybe_string("of", head.of.as_ref().map(|of| &*of.0));
        if let Some(fork) = &head.fork {
            line.object("fork", |inner| {
                inner.string("log", &fork.log.0).number("at", fork.at);
            });
        }
        if !head.rewinds.is_empty() {
            line.array("rewinds", |list| {
                for rewind in &head.rewinds {
                    list.object(|pair| {
                        pair.number("at", rewind.at).number("to", rewind.to);
                    });
                }
            });
        }
        line.maybe_string("status", head.status.as_deref());
        line.maybe_string("gone", head.gone.map(|reason| reason.to_string()).as_deref());
        line.number("records", head.last).string("created", &head.created.to_string());
    })
}

/// Writes the fields that the record's link covers.
fn write_proven_fields(line: &mut json::Object<'_>, row: &Row) {
    line.number("seq", row.seq).string("kind", &row.kind).string("at", &row.at.to_string());
    if row.events > 0 {
        line.number("events", u64::from(row.events));
    }
    if let Some(last) = row.last_event {
        line.number("last_event", last);
    }
    if let Some(about) = row.about {
        line.string("about", &about.to_string());
    }
    line.number("size", row.size).string("writer", &row.writer);
    line.number("position", row.position).string("commitment", &hex(&row.commitment));
    line.string("link", &hex(&row.link));
}

fn write_content(line: &mut json::Object<'_>, content: &[u8]) {
    match std::str::from_utf8(content) {
        Ok(text) => line.string("text", text),
        Err(_) => line.string("base64", &STANDARD.encode(content)),
    };
}

impl Manifest {
    /// Returns the manifest as a JSON line: the last line of an export, or the text of a manifest
    /// file.
    pub fn json(&self) -> Json {
        json::object(|line| {
            line.object("manifest", |inner| {
                inner.string("body", &self.body).string("signature", &hex(&self.signature));
            });
        })
    }
}

fn failed(error: &std::io::Error) -> StoreError {
    invalid!("cannot write the export: {error}")
}
