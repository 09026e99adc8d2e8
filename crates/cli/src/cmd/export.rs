//! `throughline export`: writes threads as verifiable JSON lines, redacted, or exact with `--full`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use throughline_core::LogId;
use throughline_spec::RedactionPolicy;
use throughline_store::ExportSummary;

use crate::args::{Export, Format};
use crate::cmd::record;
use crate::config;
use crate::print::failure::Failure;
use crate::print::progress::Progress;
use crate::print::text::{self, count, plain};
use crate::store::{self, IfMissing, OpenStore, Signals};

pub(crate) fn run(options: &Export) -> Result<(), Failure> {
    let policy = match &options.redaction {
        Some(file) => Some(record::policy(file)?),
        None if options.full => None,
        None => Some(config::redaction(options.at.config.as_deref())?),
    };
    let is_stdout = options.output.as_os_str() == "-";
    if !is_stdout {
        refuse_store(options)?;
    }
    store::with(&options.at, IfMissing::Fails, |opened| {
        for thread in &options.thread {
            opened.thread(&LogId::from(thread.as_str()))?;
        }
        if is_stdout {
            let mut out = ExportWriter::new(io::BufWriter::new(io::stdout()));
            let done = written(opened, options, policy.as_ref(), &mut out, None)?;
            print_summary(options, &done);
            return Ok(());
        }
        let file = &real_file(&options.output)?;
        let folder = folder_of(file);
        let name = file.display();
        let beside = || format!("{name} cannot be written");
        let signals = opened.signals()?;
        // Written to a temporary name first, so readers find either the whole file or the previous
        // one.
        let part = NamedTempFile::new_in(folder).with_context(beside)?;
        let mut out = ExportWriter::new(io::BufWriter::new(part));
        let done = written(opened, options, policy.as_ref(), &mut out, Some(signals))?;
        let part = out.to.into_inner().map_err(io::IntoInnerError::into_error);
        let part = part.with_context(beside)?;
        part.as_file().sync_all().with_context(beside)?;
        part.persist(file).map_err(|error| error.error).with_context(beside)?;
        text::answer(
            &options.printing,
            || format!("{} {}\n", text::mark(true), sentence(&done, &options.output, options.full)),
            || json_of(&done, &options.output),
        )
    })
}

/// Resolves links to the file that is to be replaced; fails for devices and pipes.
pub(crate) fn real_file(file: &Path) -> Result<PathBuf, Failure> {
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(Failure::Usage(format!(
            "{} is not a regular file; name another file, or use `-` for standard output",
            file.display()
        ))),
        Ok(_) => Ok(file.canonicalize().unwrap_or_else(|_| file.to_owned())),
        Err(_) => Ok(file.to_owned()),
    }
}

/// Returns the parent folder of a file.
pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refuse_store(options: &Export) -> Result<(), Failure> {
    let name = options.output.display();
    if options.output.is_dir() {
        return Err(Failure::Usage(format!("--output {name} is a directory; name a file in it")));
    }
    let store = store::sqlite_file(&options.at).and_then(|file| file.canonicalize().ok());
    if store.is_some() && options.output.canonicalize().ok() == store {
        return Err(Failure::Usage(format!("--output {name} would overwrite the store")));
    }
    Ok(())
}

fn written<W: Write + Send>(
    opened: &OpenStore,
    options: &Export,
    policy: Option<&RedactionPolicy>,
    out: &mut ExportWriter<W>,
    signals: Option<Signals>,
) -> Result<ExportSummary, Failure> {
    let threads: Vec<LogId> =
        options.thread.iter().map(|thread| LogId::from(thread.as_str())).collect();
    let progress = Progress::new("exporting", &options.printing);
    let share = |done| progress.set_fraction(done);
    let export = opened.journal.export(&opened.tenant, &threads, policy, out, &share);
    let done = match signals {
        Some(signals) => signals.run_until_interrupted(opened, &progress, export)?,
        // The reader of a pipe may be slow. Interrupting the program leaves no partial file.
        None => opened.wait_for(export),
    };
    drop(progress);
    match (done, out.failed.take()) {
        (Ok(done), _) => Ok(done),
        (Err(_), Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::ReaderGone)
        }
        (Err(_), Some(error)) => {
            let name = options.output.display();
            let what = if options.output.as_os_str() == "-" {
                "standard output cannot be written".to_owned()
            } else {
                format!("{name} cannot be written")
            };
            Err(anyhow::Error::new(error).context(what).into())
        }
        (Err(error), None) => Err(opened.to_failure(error)),
    }
}

/// The output of an export; keeps the first write error.
struct ExportWriter<W> {
    to: W,
    failed: Option<io::Error>,
}

impl<W: Write> ExportWriter<W> {
    fn new(to: W) -> Self {
        Self { to, failed: None }
    }

    fn record_error<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            self.failed = Some(error);
            io::Error::from(kind)
        })
    }
}

impl<W: Write> Write for ExportWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.to.write(bytes);
        self.record_error(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.to.flush();
        self.record_error(result)
    }
}

/// Prints the summary to standard error, because standard output carries the export.
fn print_summary(options: &Export, done: &ExportSummary) {
    match options.printing.format {
        Format::Text => text::note(&sentence(done, &options.output, options.full)),
        Format::Json => anstream::eprintln!("{}", json_of(done, &options.output)),
    }
}

fn sentence(done: &ExportSummary, output: &Path, is_full: bool) -> String {
    let redacted = match (is_full, done.redacted) {
        (true, _) => " (full)".to_owned(),
        (false, 0) => " (redacted)".to_owned(),
        (false, some) => format!(" (redacted, {some} of them changed)"),
    };
    let to = if output.as_os_str() == "-" {
        String::new()
    } else {
        format!(" to {}", plain(&output.display().to_string()))
    };
    format!(
        "exported{to}: {}, {}, {}{redacted}",
        count(done.threads, "thread"),
        count(done.runs, "run"),
        count(done.records, "record")
    )
}

fn json_of(done: &ExportSummary, output: &Path) -> Value {
    json!({
        "output": output.display().to_string(),
        "threads": done.threads,
        "runs": done.runs,
        "records": done.records,
        "redacted": done.redacted,
    })
}
