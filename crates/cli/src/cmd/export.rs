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
    store::with(&options.common.at, IfMissing::Fails, |store| {
        for thread in &options.thread {
            store.thread(&LogId::from(thread.as_str()))?;
        }
        if is_stdout {
            let mut out = ExportWriter { to: io::BufWriter::new(io::stdout()), failed: None };
            let exported = write(store, options, policy.as_ref(), &mut out, None)?;
            let summary = sentence(&exported, &options.output, options.full);
            // Standard output carries the export, so the summary goes to standard error.
            match options.common.format {
                Format::Text => text::note(&summary),
                Format::Json => anstream::eprintln!("{}", json_of(&exported, &options.output)),
            }
            return Ok(());
        }
        let signals = store.signals()?;
        let exported = replace_file(&options.output, |part| {
            let mut out = ExportWriter { to: io::BufWriter::new(part), failed: None };
            let exported = write(store, options, policy.as_ref(), &mut out, Some(signals))?;
            out.to.flush().with_context(|| cannot_write(&options.output))?;
            Ok(exported)
        })?;
        let summary = || sentence(&exported, &options.output, options.full);
        let text = || format!("{} {}\n", text::mark(true), summary());
        options.common.format.print(text, || json_of(&exported, &options.output))
    })
}

fn cannot_write(file: &Path) -> String {
    match file.to_str() {
        Some("-") => "cannot write to standard output".to_owned(),
        _ => format!("cannot write {}", file.display()),
    }
}

/// Writes a temporary file and renames it to the target, so that readers see either the previous or
/// the complete file. Symbolic links are followed. Devices and pipes are refused.
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
    let folder = folder.unwrap_or(Path::new("."));
    let part = NamedTempFile::new_in(folder);
    let mut part = part.map_err(|error| not_created(&cannot(), folder, &error))?;
    let done = write(&mut part)?;
    part.as_file().sync_all().with_context(cannot)?;
    part.persist(&real).map_err(|error| error.error).with_context(cannot)?;
    Ok(done)
}

/// Creates the failure for a file whose temporary file cannot be created. The error of the system
/// names the temporary file, so only its kind is printed.
fn not_created(cannot: &str, folder: &Path, error: &io::Error) -> Failure {
    let shown = folder.display();
    Failure::Outside(if folder.is_dir() {
        let kind = error.kind();
        anyhow::anyhow!(
            "{cannot}: cannot create a file in {shown} ({kind}); make the folder writable for \
             this user, or name another file"
        )
    } else {
        anyhow::anyhow!(
            "{cannot}: there is no folder {shown}; create the folder, or name another file"
        )
    })
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
    store: &OpenStore,
    options: &Export,
    policy: Option<&RedactionPolicy>,
    out: &mut ExportWriter<W>,
    signals: Option<Signals>,
) -> Result<ExportSummary> {
    let threads: Vec<LogId> =
        options.thread.iter().map(|thread| LogId::from(thread.as_str())).collect();
    let progress = Progress::new("exporting", options.common.format);
    let share = |fraction| progress.set_fraction(fraction);
    let export = store.journal.export(&store.tenant, &threads, policy, out, &share);
    let exported = match signals {
        Some(signals) => store.run_until_interrupted(signals, &progress, export)?,
        // An interrupt ends the process at once, because the reader of a pipe may be slow and no
        // partial file is left.
        None => store.wait_for(export),
    };
    drop(progress);
    match (exported, out.failed.take()) {
        (Ok(exported), _) => Ok(exported),
        (Err(_), Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::ReaderGone)
        }
        (Err(_), Some(error)) => {
            Err(anyhow::Error::new(error).context(cannot_write(&options.output)).into())
        }
        (Err(error), None) => Err(store.to_failure()(error)),
    }
}

/// Writes an export and remembers a write error.
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

fn sentence(exported: &ExportSummary, output: &Path, is_full: bool) -> String {
    let redacted = match (is_full, exported.redacted) {
        (true, _) => " (full)".to_owned(),
        (false, 0) => " (redacted)".to_owned(),
        (false, some) => format!(" (redacted, {some} of them changed)"),
    };
    let to = if output.as_os_str() == "-" {
        String::new()
    } else {
        format!(" to {}", plain(&output.display().to_string()))
    };
    let (threads, runs) = (count(exported.threads, "thread"), count(exported.runs, "run"));
    format!("exported{to}: {threads}, {runs}, {}{redacted}", count(exported.records, "record"))
}

fn json_of(exported: &ExportSummary, output: &Path) -> Value {
    json!({
        "output": output.display().to_string(),
        "threads": exported.threads,
        "runs": exported.runs,
        "records": exported.records,
        "redacted": exported.redacted,
    })
}
