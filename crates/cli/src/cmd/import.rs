//! `throughline import`: imports exported threads into a store.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use throughline_core::StoreError;
use throughline_store::{ImportSummary, verify_export};

use crate::args::{Format, Import};
use crate::print::failure::{Failure, Result};
use crate::print::progress::{Meter, Progress};
use crate::print::text::{self, count, plain};
use crate::store::{self, IfMissing, OpenStore};

pub(crate) fn run(options: &Import) -> Result<()> {
    let source = ExportSource::open(&options.file)?;
    let file = store::sqlite_file(&options.common.at);
    if file.is_some_and(|file| !file.exists()) {
        // Verify first, so that no store is created for an invalid export.
        let proof = source.verify(options.common.format)?.and_then(|proof| proof.must_be_full());
        proof.map_err(|error| source.invalid(&error.to_string()))?;
    }
    store::with(&options.common.at, IfMissing::IsMade, |store| {
        let progress = Progress::new("importing", options.common.format);
        // The export is read twice: once for verification and once for import.
        let meter = Meter::new(&progress, source.bytes.saturating_mul(2));
        let open = || {
            let cannot = |error| StoreError::invalid(format!("line 1 cannot be read: {error}"));
            source.reader(&meter).map_err(cannot)
        };
        let import = store.journal.import(&store.tenant, open);
        let to_failure = |error| import_failure(store, &source, error);
        let summary = store.run_uninterrupted("the import", import, to_failure);
        drop(progress);
        let summary = summary?;
        options.common.format.print(|| text_of(store, &summary), || json_of(&summary))
    })
}

/// An export that can be read more than once.
pub(crate) struct ExportSource {
    pub(crate) name: String,
    file: File,
    bytes: u64,
}

impl ExportSource {
    /// Opens an export. Standard input and other sources that can be read only once are copied to
    /// an unnamed temporary file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        if path.is_dir() {
            return Err(Failure::Usage(format!("{name} is a directory; name a file in it")));
        }
        let cannot_read =
            |error: io::Error| Failure::unreadable(&format!("cannot read {name}"), &error);
        let file = if is_stdin {
            copy_to_temp_file(&mut io::stdin().lock(), &name)?
        } else {
            let mut file = File::open(path)
                .map_err(|error| Failure::unreadable(&format!("cannot open {name}"), &error))?;
            let is_file = file.metadata().map_err(cannot_read)?.is_file();
            if is_file { file } else { copy_to_temp_file(&mut file, &name)? }
        };
        let bytes = file.metadata().map_err(cannot_read)?.len();
        if bytes == 0 {
            return Err(Failure::BadData(format!("{name} is empty; expected an export")));
        }
        Ok(Self { name, file, bytes })
    }

    /// Returns a reader that starts at the beginning of the export.
    fn reader<'m>(&self, meter: &'m Meter<'m>) -> io::Result<BufReader<MeteredFile<'m>>> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        Ok(BufReader::with_capacity(1 << 16, MeteredFile { file, meter }))
    }

    /// Verifies the export without importing it.
    pub(crate) fn verify(&self, format: Format) -> Result<Result<ImportSummary, StoreError>> {
        let progress = Progress::new("verifying", format);
        let meter = Meter::new(&progress, self.bytes);
        let reader = self.reader(&meter);
        let mut reader = reader.with_context(|| format!("cannot read {}", self.name))?;
        Ok(verify_export(&mut reader))
    }

    pub(crate) fn invalid(&self, problem: &str) -> Failure {
        Failure::BadData(format!("{}: {problem}", self.name))
    }
}

fn copy_to_temp_file(from: &mut dyn Read, name: &str) -> Result<File> {
    let file = tempfile::tempfile().context("cannot create a temporary file")?;
    let copied = io::copy(from, &mut &file);
    copied.with_context(|| format!("cannot copy {name} to a temporary file"))?;
    Ok(file)
}

/// A file that reports the number of bytes read to a progress meter.
struct MeteredFile<'m> {
    file: File,
    meter: &'m Meter<'m>,
}

impl Read for MeteredFile<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.meter.add(read);
        Ok(read)
    }
}

fn import_failure(store: &OpenStore, source: &ExportSource, error: StoreError) -> Failure {
    match error {
        StoreError::Conflict { log, expected: 1.., .. } => Failure::Outside(anyhow::anyhow!(
            "the import is incomplete, because another process wrote to {log} at the same time; \
             erase the imported threads with `throughline forget`, and import into another \
             tenant with --tenant"
        )),
        StoreError::Conflict { log, .. } => Failure::Outside(anyhow::anyhow!(
            "nothing was imported: the tenant {} already has a thread {log}; import into another \
             tenant with --tenant, or into another store with --store",
            store.tenant
        )),
        StoreError::Invalid(problem) => source.invalid(&problem),
        error => store.to_failure()(error),
    }
}

fn text_of(store: &OpenStore, summary: &ImportSummary) -> String {
    let (mark, tenant) = (text::mark(true), plain(&store.tenant.0));
    let (threads, runs) = (count(summary.threads.len(), "thread"), count(summary.runs, "run"));
    let records = count(summary.records, "record");
    let mut out =
        format!("{mark} imported for the tenant {tenant}: {threads}, {runs}, {records}\n");
    if summary.without_content > 0 {
        let without_content = count(summary.without_content, "record");
        text::push_line(
            &mut out,
            &format!("  {without_content} imported without content: redacted or forgotten"),
        );
    }
    out
}

fn json_of(summary: &ImportSummary) -> Value {
    json!({
        "threads": summary.threads.iter().map(|thread| &*thread.0).collect::<Vec<_>>(),
        "runs": summary.runs,
        "records": summary.records,
        "without_content": summary.without_content,
        "from_store": summary.store,
        "from_tenant": summary.tenant,
    })
}
