//! `throughline export`: writes threads as verifiable JSON lines. Content is redacted, unless
//! `--full` is given.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use throughline_core::LogId;
use throughline_spec::RedactionPolicy;
use throughline_store::ExportSummary;

use crate::args::{Export, Format};
use crate::cmd::record;
use crate::print::failure::{Failure, Result};
use crate::print::progress::Progress;
use crate::print::text::{self, count, plain};
use crate::store::{self, IfMissing, OpenStore, Signals};

pub(crate) fn run(options: &Export) -> Result<()> {
    let policy = (!options.full)
        .then(|| record::policy(options.redaction.as_ref(), options.common.at.config.as_deref()))
        .transpose()?;
    let is_stdout = options.output.as_os_str() == "-";
    if !is_stdout {
        refuse_store(options)?;
    }
    store::with(&options.common.at, IfMissing::Fails, |opened| {
        for thread in &options.thread {
            opened.thread(&LogId::from(thread.as_str()))?;
        }
        if is_stdout {
            let mut out = ExportWriter { to: io::BufWriter::new(io::stdout()), failed: None };
            let done = write(opened, options, policy.as_ref(), &mut out, None)?;
            let summary = sentence(&done, &options.output, options.full);
            // Standard output carries the export, so the summary goes to standard error.
            match options.common.format {
                Format::Text => text::note(&summary),
                Format::Json => anstream::eprintln!("{}", json_of(&done, &options.output)),
            }
            return Ok(());
        }
        let signals = opened.signals()?;
        let done = replace_file(&options.output, |part| {
            let mut out = ExportWriter { to: io::BufWriter::new(part), failed: None };
            let done = write(opened, options, policy.as_ref(), &mut out, Some(signals))?;
            out.to.flush().with_context(|| cannot_write(&options.output))?;
            Ok(done)
        })?;
        let summary = || sentence(&done, &options.output, options.full);
        let text = || format!("{} {}\n", text::mark(true), summary());
        options.common.format.print(text, || json_of(&done, &options.output))
    })
}

fn cannot_write(file: &Path) -> String {
    match file.to_str() {
        Some("-") => "cannot write to standard output".to_owned(),
        _ => format!("cannot write {}", file.display()),
    }
}

/// Writes a temporary file and renames it, so that readers see either the previous or the complete
/// file. Symbolic links are followed. Devices and pipes are refused.
pub(crate) fn replace_file<T>(
    file: &Path,
    write: impl FnOnce(&mut NamedTempFile) -> Result<T>,
) -> Result<T> {
    let cannot = || cannot_write(file);
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Usage(format!(
            "{} is not a regular file; name another file, or use `-` for standard output",
            file.display()
        )));
    }
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let folder = real.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut part = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).with_context(cannot)?;
    let done = write(&mut part)?;
    part.as_file().sync_all().with_context(cannot)?;
    part.persist(&real).map_err(|error| error.error).with_context(cannot)?;
    Ok(done)
}

fn refuse_store(options: &Export) -> Result<()> {
    let name = options.output.display();
    if options.output.is_dir() {
        return Err(Failure::Usage(format!("--output {name} is a directory; name a file in it")));
    }
    let store = store::sqlite_file(&options.common.at).and_then(|file| file.canonicalize().ok());
    if store.is_some() && options.output.canonicalize().ok() == store {
        return Err(Failure::Usage(format!(
            "--output {name} would overwrite the store; choose another file"
        )));
    }
    Ok(())
}

fn write<W: Write + Send>(
    opened: &OpenStore,
    options: &Export,
    policy: Option<&RedactionPolicy>,
    out: &mut ExportWriter<W>,
    signals: Option<Signals>,
) -> Result<ExportSummary> {
    let threads: Vec<LogId> =
        options.thread.iter().map(|thread| LogId::from(thread.as_str())).collect();
    let progress = Progress::new("exporting", options.common.format);
    let share = |done| progress.set_fraction(done);
    let export = opened.journal.export(&opened.tenant, &threads, policy, out, &share);
    let done = match signals {
        Some(signals) => opened.run_until_interrupted(signals, &progress, export)?,
        // An interrupt ends the process at once, because the reader of a pipe may be slow and no
        // partial file is left.
        None => opened.wait_for(export),
    };
    drop(progress);
    match (done, out.failed.take()) {
        (Ok(done), _) => Ok(done),
        (Err(_), Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::ReaderGone)
        }
        (Err(_), Some(error)) => {
            Err(anyhow::Error::new(error).context(cannot_write(&options.output)).into())
        }
        (Err(error), None) => Err(opened.to_failure()(error)),
    }
}

/// Writes an export and keeps the first write error.
struct ExportWriter<W> {
    to: W,
    failed: Option<io::Error>,
}

impl<W: Write> ExportWriter<W> {
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
    let (threads, runs) = (count(done.threads, "thread"), count(done.runs, "run"));
    format!("exported{to}: {threads}, {runs}, {}{redacted}", count(done.records, "record"))
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
