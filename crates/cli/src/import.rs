//! `throughline import`: exported threads, brought into a store.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::Context as _;
use throughline_core::{Json, StoreError, json};
use throughline_store::{Imported, verify_export};

use crate::failure::Failure;
use crate::options::{Import, Printing};
use crate::progress::{Meter, Progress};
use crate::store::{self, Missing, Opened};
use crate::text::{self, count, plain};

pub(crate) fn run(options: &Import) -> Result<(), Failure> {
    let source = Source::open(&options.file)?;
    let file = store::file_of(&options.at);
    if file.is_some_and(|file| !file.exists()) {
        // No store is made for what cannot be imported.
        source.prove(&options.printing)?;
    }
    store::with(&options.at, Missing::IsMade, |opened| {
        let progress = Progress::of("importing", &options.printing);
        // It is read twice, once to prove it and once to bring it in.
        let meter = Meter::new(&progress, source.bytes.saturating_mul(2));
        let open = || {
            let cannot = |error| StoreError::invalid(format!("line 1 cannot be read: {error}"));
            source.reader(&meter).map_err(cannot)
        };
        let brought = opened.journal.import(&opened.tenant, open);
        let brought = opened.run_to_the_end("the import", brought)?;
        drop(progress);
        let done = brought.map_err(|error| not_imported(opened, &source, error))?;
        text::answer(&options.printing, || told(opened, &done), || json_of(&done))
    })
}

/// An export that can be read more than once.
pub(crate) struct Source {
    /// What to call it in messages.
    pub(crate) name: String,
    file: File,
    bytes: u64,
}

impl Source {
    /// Opens a file. Standard input, and anything else that can be read but once, is kept in a file without a name.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        if path.is_dir() {
            return Err(anyhow::anyhow!("{name} is a directory; name a file in it").into());
        }
        let cannot = || format!("{name} cannot be read");
        let file = if is_stdin {
            kept(&mut io::stdin().lock(), &name)?
        } else {
            let mut file = File::open(path).with_context(|| format!("{name} cannot be opened"))?;
            let is_file = file.metadata().with_context(cannot)?.is_file();
            if is_file { file } else { kept(&mut file, &name)? }
        };
        let bytes = file.metadata().with_context(cannot)?.len();
        if bytes == 0 {
            return Err(Failure::BadData(format!("{name} is empty: an export was expected")));
        }
        Ok(Self { name, file, bytes })
    }

    /// The bytes, from the first on.
    pub(crate) fn reader<'m>(&self, meter: &'m Meter<'m>) -> io::Result<Metered<'m>> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        Ok(Metered { from: BufReader::with_capacity(1 << 16, file), meter })
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Refuses an export that cannot be imported.
    fn prove(&self, printing: &Printing) -> Result<(), Failure> {
        let progress = Progress::of("verifying", printing);
        let meter = Meter::new(&progress, self.bytes);
        let from = self.reader(&meter);
        let mut from = from.with_context(|| format!("{} cannot be read", self.name))?;
        let proven = verify_export(&mut from);
        let proven = proven.and_then(|proven| proven.must_be_full());
        proven.map_err(|error| self.bad(&error.to_string()))
    }

    /// What is wrong with the export.
    pub(crate) fn bad(&self, problem: &str) -> Failure {
        Failure::BadData(format!("{}: {problem}", self.name))
    }
}

fn kept(from: &mut dyn Read, name: &str) -> Result<File, Failure> {
    let file = tempfile::tempfile().context("there is no room for a temporary file")?;
    let copied = io::copy(from, &mut &file);
    copied.with_context(|| format!("{name} cannot be kept in a temporary file"))?;
    Ok(file)
}

/// Tells how much was read.
pub(crate) struct Metered<'m> {
    from: BufReader<File>,
    meter: &'m Meter<'m>,
}

impl Read for Metered<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.meter.add(read);
        Ok(read)
    }
}

impl BufRead for Metered<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.meter.add(bytes);
        self.from.consume(bytes);
    }
}

fn not_imported(opened: &Opened, source: &Source, error: StoreError) -> Failure {
    match error {
        StoreError::Conflict { log, expected: 1.., .. } => Failure::Outside(anyhow::anyhow!(
            "the import stopped half-way: somebody else wrote to {log} meanwhile; forget what came \
             of it, or import into another tenant with --tenant"
        )),
        StoreError::Conflict { log, .. } => Failure::Outside(anyhow::anyhow!(
            "nothing was imported: the tenant {} has a thread {log} already; import into another \
             tenant with --tenant, or into another store with --store",
            opened.tenant
        )),
        StoreError::Invalid(problem) => source.bad(&problem),
        error => opened.failed(error),
    }
}

fn told(opened: &Opened, done: &Imported) -> String {
    let number =
        |number: u64, noun: &str| count(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let mut out = format!(
        "{} imported for the tenant {}: {}, {}, {}\n",
        text::mark(true),
        plain(&opened.tenant.0),
        count(done.threads.len(), "thread"),
        number(done.runs, "run"),
        number(done.records, "record")
    );
    if done.without_content > 0 {
        let some = number(done.without_content, "record");
        text::push_line(&mut out, &format!("  {some} came redacted, or after being forgotten"));
    }
    out
}

fn json_of(done: &Imported) -> Json {
    json::object(|o| {
        o.array("threads", |list| {
            for thread in &done.threads {
                list.string(&thread.0);
            }
        });
        o.number("runs", done.runs).number("records", done.records);
        o.number("without_content", done.without_content);
        o.string("from_store", &done.store).string("from_tenant", &done.tenant);
    })
}
