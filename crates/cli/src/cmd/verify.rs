//! `throughline verify`: verifies that a store or an export is unchanged.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use throughline_core::StoreError;
use throughline_store::{
    Manifest, VerifyFailure, VerifyReport, Warning, parse_manifest, verify_export,
};

use crate::args::{OutputArgs, Verify};
use crate::cmd::export::{folder_of, real_file};
use crate::cmd::import::ExportSource;
use crate::print::failure::Failure;
use crate::print::progress::{Meter, Progress};
use crate::print::text::{self, count, plain, push_line};
use crate::store::{self, IfMissing, OpenStore};

pub(crate) fn run(options: &Verify) -> Result<ExitCode, Failure> {
    if let Some(file) = &options.file {
        return export(file, &options.printing);
    }
    let witness = options.manifest.as_deref().map(manifest).transpose()?;
    store::with(&options.at, IfMissing::FailsReadOnly, |opened| {
        let progress = Progress::new("verifying", &options.printing);
        let share = |done| progress.set_fraction(done);
        let proof = opened.run(opened.journal.verify(witness.as_ref(), &share))?;
        drop(progress);
        let mut saved = None;
        if let Some(file) = options.write_manifest.as_deref().filter(|_| proof.broken.is_none()) {
            save_manifest(opened, file)?;
            saved = Some(file);
        }
        let verdict = Verdict::from_store(opened, &proof, witness.is_some());
        verdict.print(&options.printing, saved)
    })
}

/// Result of a verification.
struct Verdict {
    subject: String,
    /// Public key of the store, if a signature was verified.
    store: Option<String>,
    records: u64,
    without_content: u64,
    /// Number of chain segments and manifests of a store.
    chains: Option<(u64, u64)>,
    broken: Option<VerifyFailure>,
    /// Verified tables of a store.
    tables: Vec<&'static str>,
    warnings: Vec<Warning>,
    /// Whether the store was compared with a manifest from elsewhere.
    has_witness: bool,
}

impl Verdict {
    fn from_store(opened: &OpenStore, proof: &VerifyReport, has_witness: bool) -> Self {
        Self {
            subject: opened.journal.url().to_owned(),
            store: Some(opened.journal.public_key()),
            records: proof.records,
            without_content: proof.gone,
            chains: Some((proof.segments, proof.manifests)),
            broken: proof.broken.clone(),
            tables: proof.tables.clone(),
            warnings: proof.warnings.clone(),
            has_witness,
        }
    }

    fn print(&self, printing: &OutputArgs, saved: Option<&Path>) -> Result<ExitCode, Failure> {
        text::answer(printing, || self.text(saved), || self.json())
            .or_else(Failure::ignore_closed_pipe)?;
        Ok(if self.broken.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn text(&self, saved: Option<&Path>) -> String {
        let subject = plain(&self.subject);
        let mut out = String::new();
        let width = text::width(std::io::stdout()) - 2;
        let Some(broken) = &self.broken else {
            push_line(&mut out, &format!("{} {subject} is intact", text::mark(true)));
            let mut proven = count(self.records, "record");
            if let Some((segments, manifests)) = self.chains {
                let (segments, manifests) =
                    (count(segments, "chain"), count(manifests, "signed manifest"));
                proven = format!("{proven} · {segments} · {manifests}");
            }
            push_line(&mut out, &format!("  {proven}"));
            if self.without_content > 0 {
                let some = count(self.without_content, "record");
                let why = match self.chains {
                    Some(_) => "forgotten or expired, as recorded in their logs",
                    None => "redacted, forgotten or expired",
                };
                push_line(&mut out, &format!("  {some} without content: {why}"));
            }
            if !self.tables.is_empty() {
                let tables = format!("verified tables: {}", self.tables.join(", "));
                for line in text::wrapped(&tables, width) {
                    push_line(&mut out, &format!("  {line}"));
                }
            }
            if let Some(store) = &self.store {
                push_line(&mut out, &format!("  {}", format!("signed by {store}").dimmed()));
            }
            self.push_warnings(&mut out, width);
            if let Some(file) = saved {
                let file = plain(&file.display().to_string());
                push_line(&mut out, &format!("  manifest written to {file}: keep it elsewhere"));
            }
            return out;
        };
        push_line(
            &mut out,
            &format!("{} {subject} is {}", text::mark(false), "broken".red().bold()),
        );
        for line in text::wrapped(&plain(&broken.to_string()), width) {
            push_line(&mut out, &format!("  {line}"));
        }
        if self.chains.is_some() && self.records > 0 {
            let before = count(self.records, "record");
            push_line(
                &mut out,
                &format!("  {}", format!("{before} before it are intact").dimmed()),
            );
        }
        push_line(
            &mut out,
            &format!("  {}", "restore a backup, or get the file again from its source".dimmed()),
        );
        out
    }

    /// Prints the limits of the verification.
    fn push_warnings(&self, out: &mut String, width: usize) {
        for warning in &self.warnings {
            for line in text::wrapped(&format!("warning: {warning}"), width) {
                push_line(out, &format!("  {}", line.yellow()));
            }
        }
        if self.chains.is_some() && !self.has_witness {
            let note = "a rollback of the whole store to an earlier state is only detected with a \
                        manifest that was kept elsewhere: --manifest FILE";
            for line in text::wrapped(note, width) {
                push_line(out, &format!("  {}", line.dimmed()));
            }
        }
    }

    fn json(&self) -> Value {
        let broken = self.broken.as_ref();
        let mut out = json!({
            "verdict": if broken.is_some() { "broken" } else { "intact" },
            "broken": broken.map(|one| json!({ "place": one.place, "problem": one.problem })),
            "store": self.store,
            "records": self.records,
            "without_content": self.without_content,
        });
        if let (Some(out), Some((segments, manifests))) = (out.as_object_mut(), self.chains) {
            let warnings = self
                .warnings
                .iter()
                .map(|warning| json!({ "code": warning.code(), "text": warning.to_string() }));
            out.insert("segments".to_owned(), json!(segments));
            out.insert("manifests".to_owned(), json!(manifests));
            out.insert("tables".to_owned(), json!(self.tables));
            out.insert("warnings".to_owned(), warnings.collect());
        }
        out
    }
}

/// Verifies an export without a store.
fn export(file: &Path, printing: &OutputArgs) -> Result<ExitCode, Failure> {
    let source = ExportSource::open(file)?;
    let progress = Progress::new("verifying", printing);
    let meter = Meter::new(&progress, source.bytes());
    let from = source.reader(&meter);
    let mut from = from.with_context(|| format!("{} cannot be read", source.name))?;
    let proven = verify_export(&mut from);
    drop(from);
    drop(progress);
    let verdict = |store, records, without_content, broken| Verdict {
        subject: source.name.clone(),
        store,
        records,
        without_content,
        chains: None,
        broken,
        tables: Vec::new(),
        warnings: Vec::new(),
        has_witness: false,
    };
    let verdict = match proven {
        Ok(seen) => verdict(Some(seen.store), seen.records, seen.without_content, None),
        Err(StoreError::Invalid(problem)) => {
            let (place, what) = split(&problem);
            // A file with an invalid first line is not an export at all.
            if place == "line 1" {
                return Err(source.invalid(&problem));
            }
            let broken = VerifyFailure { place: place.to_owned(), problem: what.to_owned() };
            verdict(None, 0, 0, Some(broken))
        }
        Err(error) => return Err(source.invalid(&error.to_string())),
    };
    verdict.print(printing, None)
}

/// Splits a problem into its place, such as `line 7`, and its description.
fn split(problem: &str) -> (&str, &str) {
    let end = problem.match_indices(' ').nth(1).map_or(0, |(at, _)| at);
    let (place, what) = problem.split_at(end);
    if place.starts_with("line ") { (place, what.trim_start()) } else { ("the export", problem) }
}

/// Reads a manifest from its own file or from the end of an export.
fn manifest(file: &Path) -> Result<Manifest, Failure> {
    let name = file.display();
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes));
    read.with_context(|| format!("--manifest {name} cannot be read"))?;
    let line = bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    parse_manifest(line).ok_or_else(|| {
        Failure::BadData(format!(
            "{name} is not a manifest; use the output of `throughline verify --write-manifest`, or an export"
        ))
    })
}

fn save_manifest(opened: &OpenStore, file: &Path) -> Result<(), Failure> {
    let manifest = opened.run(opened.journal.manifest(&opened.tenant))?;
    let cannot = || format!("{} cannot be written", file.display());
    let file = &real_file(file)?;
    let mut part = NamedTempFile::new_in(folder_of(file)).with_context(cannot)?;
    let line = manifest.json();
    part.write_all(line.bytes()).and_then(|()| part.write_all(b"\n")).with_context(cannot)?;
    part.as_file().sync_all().with_context(cannot)?;
    part.persist(file).map_err(|error| error.error).with_context(cannot)?;
    Ok(())
}
