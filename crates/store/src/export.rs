//! Threads as lines of JSON: lossless, versioned, and still provable.
//!
//! The first line says what it is; then comes a line for each log, followed by a line for each of its records; the last line
//! is a signed manifest, whose signature covers all lines before it. A record's line holds its content and the salt that proves it against the commitment. Where a
//! content was redacted the salt is left out: what was there cannot be guessed, and everything else can still be proven.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use throughline_core::{
    Json, LogHead, LogId, LogKind, RedactionPolicy, Store, StoreError, Tenant, Thoughts, json,
};

use crate::api_keys::KEYS_LOG;
use crate::backend::{Progress, Row, Span};
use crate::journal::Journal;
use crate::listing::Page;
use crate::manifest::{Manifest, Statement, hex};
use crate::row_mac::RowState;

/// What the first line says.
pub(crate) const FORMAT: &str = "throughline-export";
/// The version of the lines.
pub(crate) const VERSION: u64 = 1;

/// What was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Threads.
    pub threads: u64,
    /// Runs.
    pub runs: u64,
    /// Records.
    pub records: u64,
    /// Records whose content was changed by redaction.
    pub redacted: u64,
}

impl Journal {
    /// Writes threads, with their runs, as lines of JSON: those that are named, or all of the tenant.
    pub async fn export(
        &self,
        tenant: &Tenant,
        threads: &[LogId],
        redaction: Option<&RedactionPolicy>,
        out: &mut (dyn Write + Send),
        progress: Progress<'_>,
    ) -> Result<Exported, StoreError> {
        let heads = self.heads_of(tenant, threads).await?;
        let total: u64 = heads.iter().map(|head| head.last).sum::<u64>().max(1);
        let mut export = Export {
            journal: self,
            tenant,
            redaction,
            out,
            hash: Sha256::new(),
            done: Exported::default(),
        };
        export.line(&json::object(|line| {
            line.string("format", FORMAT).number("version", VERSION);
            line.string("store", &self.signer.store()).string("tenant", &tenant.0);
            line.bool("redacted", redaction.is_some());
        }))?;
        for head in &heads {
            export.log(head, total, progress).await?;
        }
        let covers: [u8; 32] = export.hash.clone().finalize().into();
        let done = export.done;
        let manifest = self.manifest_covering(tenant, Some(covers)).await?;
        write_line(out, &manifest_line(&manifest))?;
        out.flush().map_err(|error| failed(&error))?;
        Ok(done)
    }

    /// A signed manifest of all the tenant's chains, to hold against the store later.
    pub async fn manifest(&self, tenant: &Tenant) -> Result<Manifest, StoreError> {
        self.manifest_covering(tenant, None).await
    }

    async fn manifest_covering(
        &self,
        tenant: &Tenant,
        covers: Option<[u8; 32]>,
    ) -> Result<Manifest, StoreError> {
        let heads = self.backend.heads().await?;
        // Whoever imports an export has no rows to compare.
        let rows = match covers {
            Some(_) => Vec::new(),
            None => self.backend.row_states().await?,
        };
        let is_own = |row: &RowState| row.segment.as_ref().is_none_or(|(of, _)| of == tenant);
        Ok(self.signer.sign(Statement {
            store: String::new(),
            writer: "export".into(),
            number: 0,
            at: 0,
            previous: [0; 32],
            covers,
            heads: heads.into_iter().filter(|head| head.tenant == *tenant).collect(),
            rows: rows.into_iter().filter(is_own).collect(),
        }))
    }

    /// The threads and all their runs: a thread stands before its runs, and a parent before its forks.
    async fn heads_of(
        &self,
        tenant: &Tenant,
        threads: &[LogId],
    ) -> Result<Vec<LogHead>, StoreError> {
        let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
        let mut chosen: Vec<LogHead> = Vec::new();
        if threads.is_empty() {
            chosen = self.threads(tenant, everything.clone()).await?;
            chosen.sort_by_key(|head| head.created);
        }
        for thread in threads {
            if chosen.iter().any(|head| head.log == *thread) {
                continue;
            }
            match self.log(tenant, thread).await? {
                Some(head) if head.kind == LogKind::Thread => chosen.push(head),
                Some(_) | None => {
                    return Err(StoreError::NotFound { what: "thread", name: thread.0.clone() });
                }
            }
        }
        let mut heads = Vec::new();
        for thread in parents_first(chosen) {
            let mut runs = self.runs(tenant, Some(&thread.log), everything.clone()).await?;
            runs.sort_by_key(|head| head.created);
            heads.push(thread);
            heads.extend(runs);
        }
        if threads.is_empty() {
            // A run need not have a thread.
            let mut runs = self.runs(tenant, None, everything).await?;
            // Keys stay in their store, and so do the records about them.
            runs.retain(|run| run.of.is_none() && *run.log.0 != *KEYS_LOG);
            runs.sort_by_key(|head| head.created);
            heads.extend(runs);
        }
        Ok(heads)
    }
}

/// The same threads, each after the one that it forks off.
fn parents_first(threads: Vec<LogHead>) -> Vec<LogHead> {
    let mut waiting: HashMap<LogId, Vec<LogHead>> = HashMap::new();
    let chosen: HashSet<LogId> = threads.iter().map(|head| head.log.clone()).collect();
    let mut ready = VecDeque::new();
    for head in threads {
        match &head.fork {
            Some(fork) if chosen.contains(&fork.log) => {
                waiting.entry(fork.log.clone()).or_default().push(head);
            }
            Some(_) | None => ready.push_back(head),
        }
    }
    let mut ordered = Vec::with_capacity(chosen.len());
    while let Some(head) = ready.pop_front() {
        ready.extend(waiting.remove(&head.log).unwrap_or_default());
        ordered.push(head);
    }
    ordered
}

struct Export<'e> {
    journal: &'e Journal,
    tenant: &'e Tenant,
    redaction: Option<&'e RedactionPolicy>,
    out: &'e mut (dyn Write + Send),
    hash: Sha256,
    done: Exported,
}

impl Export<'_> {
    async fn log(
        &mut self,
        head: &LogHead,
        total: u64,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        const PAGE: u32 = 256;
        match head.kind {
            LogKind::Thread => self.done.threads += 1,
            LogKind::Run => self.done.runs += 1,
        }
        self.line(&log_line(head))?;
        let mut after = 0;
        loop {
            let span = Span { after, up_to: head.last, limit: PAGE };
            let rows = self.journal.rows(self.tenant, &head.log, span).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.seq;
            for row in &rows {
                self.record(&head.log, row).await?;
            }
            #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
            progress((self.done.records as f64 / total as f64).min(1.0));
        }
    }

    async fn record(&mut self, log: &LogId, row: &Row) -> Result<(), StoreError> {
        let content = self.journal.content_or_gone(self.tenant, log, row).await?;
        let redacted = match (&content, self.redaction) {
            (Ok((content, _)), Some(policy)) => redact(&row.kind, content, policy),
            (_, _) => None,
        };
        self.done.records += 1;
        self.done.redacted += u64::from(redacted.is_some());
        let line = json::object(|line| {
            proven_members(line, row);
            match (&content, &redacted) {
                (Err(erased), _) => {
                    line.string("gone", &erased.why().to_string());
                }
                (Ok(_), Some(redacted)) => {
                    line.bool("redacted", true);
                    content_member(line, redacted);
                }
                (Ok((content, salt)), None) => {
                    line.string("salt", &hex(salt));
                    content_member(line, content);
                }
            }
        });
        self.line(&line)
    }

    /// A line. The signature covers every byte of it: what was redacted cannot be held against a commitment.
    fn line(&mut self, line: &Json) -> Result<(), StoreError> {
        self.hash.update(line.bytes());
        self.hash.update(b"\n");
        write_line(self.out, line)
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
        line.maybe_string("gone", head.gone.map(|why| why.to_string()).as_deref());
        line.number("records", head.last).string("created", &head.created.to_string());
    })
}

/// What the chain proves about a record.
fn proven_members(line: &mut json::Object<'_>, row: &Row) {
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

fn content_member(line: &mut json::Object<'_>, content: &[u8]) {
    match std::str::from_utf8(content) {
        Ok(text) => line.string("text", text),
        Err(_) => line.string("base64", &STANDARD.encode(content)),
    };
}

/// The manifest's line: the last one of an export, or a file of its own.
pub(crate) fn manifest_line(manifest: &Manifest) -> Json {
    json::object(|line| {
        line.object("manifest", |inner| {
            inner.string("body", &manifest.body);
            inner.string("signature", &hex(&manifest.signature));
        });
    })
}

impl Manifest {
    /// The manifest as a line of JSON.
    pub fn json(&self) -> Json {
        manifest_line(self)
    }
}

/// The content as it may be shown; nothing if that is how it is.
fn redact(kind: &str, content: &Bytes, policy: &RedactionPolicy) -> Option<Vec<u8>> {
    if kind == throughline_core::kind::EVENTS {
        return redact_events(content, policy);
    }
    match Json::parse(content.clone()) {
        Ok(value) => match policy.redact_json(&value, Thoughts::Redact) {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(redacted) => Some(redacted.bytes().to_vec()),
        },
        Err(_) => {
            let text = String::from_utf8_lossy(content);
            let thought = policy.redact_thought(&text);
            let redacted = policy.redact_text(&thought);
            (redacted.as_bytes() != &**content).then(|| redacted.as_bytes().to_vec())
        }
    }
}

/// Each event of a pack by itself.
fn redact_events(content: &Bytes, policy: &RedactionPolicy) -> Option<Vec<u8>> {
    let events = throughline_core::split(content);
    let redacted: Vec<Option<Vec<u8>>> =
        events.iter().map(|event| redact("", event, policy)).collect();
    if redacted.iter().all(Option::is_none) {
        return None;
    }
    let shown = events.iter().zip(&redacted).map(|(event, redacted)| match redacted {
        Some(redacted) => redacted.as_slice(),
        None => &**event,
    });
    Some(throughline_core::pack(shown).content.to_vec())
}

fn write_line(out: &mut (dyn Write + Send), line: &Json) -> Result<(), StoreError> {
    let written = out.write_all(line.bytes()).and_then(|()| out.write_all(b"\n"));
    written.map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> StoreError {
    StoreError::invalid(format!("the export cannot be written: {error}"))
}
