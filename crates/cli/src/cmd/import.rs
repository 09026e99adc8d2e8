//! `throughline import`: imports exported threads into a store.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use throughline_core::StoreError;
use throughline_store::{ImportSummary, verify_export};

use crate::args::{Import, OutputArgs};
use crate::print::failure::Failure;
use crate::print::progress::{Meter, Progress};
use crate::print::text::{self, count, plain};
use crate::store::{self, IfMissing, OpenStore};

pub(crate) fn run(options: &Import) -> Result<(), Failure> {
    let source = ExportSource::open(&options.file)?;
    let file = store::sqlite_file(&options.at);
    if file.is_some_and(|file| !file.exists()) {
        // Verify first, so that no store is created for an invalid export.
        source.verify(&options.printing)?;
    }
    store::with(&options.at, IfMissing::IsMade, |opened| {
        let progress = Progress::new("importing", &options.printing);
        // The export is read twice: once to verify it and once to import it.
        let meter = Meter::new(&progress, source.bytes.saturating_mul(2));
        let open = || {
            let cannot = |error| StoreError::invalid(format!("line 1 cannot be read: {error}"));
            source.reader(&meter).map_err(cannot)
        };
        let brought = opened.journal.import(&opened.tenant, open);
        let brought = opened.run_uninterrupted("the import", brought)?;
        drop(progress);
        let done = brought.map_err(|error| import_failure(opened, &source, error))?;
        text::answer(&options.printing, || told(opened, &done), || json_of(&done))
    })
}

/// An export that can be read more than once.
pub(crate) struct ExportSource {
    /// Name for messages.
    pub(crate) name: String,
    file: File,
    bytes: u64,
}

impl ExportSource {
    /// Opens a file. Standard input and other sources that can be read only once are copied to an
    /// unnamed temporary file.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        if path.is_dir() {
            return Err(anyhow::anyhow!("{name} is a directory; name a file in it").into());
        }
        let cannot = || format!("{name} cannot be read");
        let file = if is_stdin {
            copy_to_temp_file(&mut io::stdin().lock(), &name)?
        } else {
            let mut file = File::open(path).with_context(|| format!("{name} cannot be opened"))?;
            let is_file = file.metadata().with_context(cannot)?.is_file();
            if is_file { file } else { copy_to_temp_file(&mut file, &name)? }
        };
        let bytes = file.metadata().with_context(cannot)?.len();
        if bytes == 0 {
            return Err(Failure::BadData(format!("{name} is empty; expected an export")));
        }
        Ok(Self { name, file, bytes })
    }

    /// Returns a reader from the start.
    pub(crate) fn reader<'m>(&self, meter: &'m Meter<'m>) -> io::Result<MeteredReader<'m>> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        Ok(MeteredReader { from: BufReader::with_capacity(1 << 16, file), meter })
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fails if the export cannot be imported.
    fn verify(&self, printing: &OutputArgs) -> Result<(), Failure> {
        let progress = Progress::new("verifying", printing);
        let meter = Meter::new(&progress, self.bytes);
        let from = self.reader(&meter);
        let mut from = from.with_context(|| format!("{} cannot be read", self.name))?;
        let proven = verify_export(&mut from);
        let proven = proven.and_then(|proven| proven.must_be_full());
        proven.map_err(|error| self.invalid(&error.to_string()))
    }

    /// Builds the error for an invalid export.
    pub(crate) fn invalid(&self, problem: &str) -> Failure {
        Failure::BadData(format!("{}: {problem}", self.name))
    }
}

fn copy_to_temp_file(from: &mut dyn Read, name: &str) -> Result<File, Failure> {
    let file = tempfile::tempfile().context("a temporary file cannot be created")?;
    let copied = io::copy(from, &mut &file);
    copied.with_context(|| format!("{name} cannot be copied to a temporary file"))?;
    Ok(file)
}

/// A reader that reports its progress.
pub(crate) struct MeteredReader<'m> {
    from: BufReader<File>,
    meter: &'m Meter<'m>,
}

impl Read for MeteredReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.meter.add(read);
        Ok(read)
    }
}

impl BufRead for MeteredReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.meter.add(bytes);
        self.from.consume(bytes);
    }
}

fn import_failure(opened: &OpenStore, source: &ExportSource, error: StoreError) -> Failure {
    match error {
        StoreError::Conflict { log, expected: 1.., .. } => Failure::Outside(anyhow::anyhow!(
            "the import stopped half-way: another process wrote to {log} meanwhile; forget the \
                 partial import, or import into another tenant with --tenant"
        )),
        StoreError::Conflict { log, .. } => Failure::Outside(anyhow::anyhow!(
            "nothing was imported: the tenant {} already has a thread {log}; import into another \
             tenant with --tenant, or into another store with --store",
            opened.tenant
        )),
        StoreError::Invalid(problem) => source.invalid(&problem),
        error => opened.to_failure(error),
    }
}

fn told(opened: &OpenStore, done: &ImportSummary) -> String {
    let mut out = format!(
        "{} imported for the tenant {}: {}, {}, {}\n",
        text::mark(true),
        plain(&opened.tenant.0),
        count(done.threads.len(), "thread"),
        count(done.runs, "run"),
        count(done.records, "record")
    );
    if done.without_content > 0 {
        let some = count(done.without_content, "record");
        text::push_line(
            &mut out,
            &format!("  {some} imported without content: redacted or forgotten"),
        );
    }
    out
}

fn json_of(done: &ImportSummary) -> Value {
    json!({
        "threads": done.threads.iter().map(|thread| &*thread.0).collect::<Vec<_>>(),
        "runs": done.runs,
        "records": done.records,
        "without_content": done.without_content,
        "from_store": done.store,
        "from_tenant": done.tenant,
    })
}
