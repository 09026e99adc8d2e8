//! `throughline verify`: verifies that a store or an export was not modified.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};
use throughline_core::StoreError;
use throughline_store::{ImportSummary, Manifest, VerifyFailure, Warning, parse_manifest};

use crate::args::{Format, Verify};
use crate::cmd::export::replace_file;
use crate::cmd::import::ExportSource;
use crate::print::failure::{Failure, Result};
use crate::print::progress::Progress;
use crate::print::text::{self, count, plain};
use crate::store::{self, IfMissing, OpenStore};

pub(crate) fn run(options: &Verify) -> Result<ExitCode> {
    if let Some(file) = &options.file {
        return export(file, options.common.format);
    }
    let witness = options.manifest.as_deref().map(manifest).transpose()?;
    store::with(&options.common.at, IfMissing::FailsReadOnly, |store| {
        let progress = Progress::new("verifying", options.common.format);
        let share = |fraction| progress.set_fraction(fraction);
        let proof = store.run(store.journal.verify(witness.as_ref(), &share))?;
        drop(progress);
        let saved = options.write_manifest.as_deref().filter(|_| proof.broken.is_none());
        saved.map_or(Ok(()), |file| save_manifest(store, file))?;
        let verdict = Verdict {
            subject: store.journal.url().to_owned(),
            store: Some(store.journal.public_key()),
            records: proof.records,
            without_content: proof.gone,
            chains: Some((proof.segments, proof.manifests)),
            broken: proof.broken,
            tables: proof.tables,
            warnings: proof.warnings,
            has_witness: witness.is_some(),
        };
        verdict.print(options.common.format, saved)
    })
}

#[derive(Default)]
struct Verdict {
    subject: String,
    /// The store's public key, if a signature was verified.
    store: Option<String>,
    records: u64,
    without_content: u64,
    /// Number of verified chain segments and manifests; `None` for an export.
    chains: Option<(u64, u64)>,
    broken: Option<VerifyFailure>,
    /// Names of the verified tables; empty for an export.
    tables: Vec<&'static str>,
    warnings: Vec<Warning>,
    /// Whether the store was compared with a manifest that was saved elsewhere.
    has_witness: bool,
}

impl Verdict {
    fn print(&self, format: Format, saved: Option<&Path>) -> Result<ExitCode> {
        let printed = format.print(|| self.text(saved), || self.json());
        printed.or_else(Failure::ignore_closed_pipe)?;
        Ok(if self.broken.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn text(&self, saved: Option<&Path>) -> String {
        let subject = plain(&self.subject);
        let width = text::width(std::io::stdout()) - 2;
        let records = count(self.records, "record");
        let mut lines = Vec::new();
        if let Some(broken) = &self.broken {
            let verdict = "broken".red().bold().to_string();
            lines.push(format!("{} {subject} is {verdict}", text::mark(false)));
            lines.extend(text::wrapped(&plain(&broken.to_string()), width));
            if self.chains.is_some() && self.records > 0 {
                lines.push(format!("{records} before it are intact").dimmed().to_string());
            }
            let advice = "restore a backup, or get the file again from its source";
            lines.push(advice.dimmed().to_string());
            return lines.join("\n  ") + "\n";
        }
        lines.push(format!("{} {subject} is intact", text::mark(true)));
        let mut why = "redacted, forgotten or expired";
        if let Some((segments, manifests)) = self.chains {
            let manifests = count(manifests, "signed manifest");
            lines.push(format!("{records} · {} · {manifests}", count(segments, "chain")));
            why = "forgotten or expired, as recorded in their logs";
        } else {
            lines.push(records);
        }
        if self.without_content > 0 {
            lines.push(format!("{} without content: {why}", count(self.without_content, "record")));
        }
        if !self.tables.is_empty() {
            let tables = format!("verified tables: {}", self.tables.join(", "));
            lines.extend(text::wrapped(&tables, width));
        }
        lines
            .extend(self.store.as_ref().map(|key| format!("signed by {key}").dimmed().to_string()));
        for warning in &self.warnings {
            let warning = text::wrapped(&format!("warning: {warning}"), width);
            lines.extend(warning.iter().map(|line| line.yellow().to_string()));
        }
        if self.chains.is_some() && !self.has_witness {
            let note = "a rollback of the whole store to an earlier state is only detected with a \
                        manifest that was kept elsewhere: --manifest FILE";
            let note = text::wrapped(note, width);
            lines.extend(note.iter().map(|line| line.dimmed().to_string()));
        }
        if let Some(file) = saved {
            let file = plain(&file.display().to_string());
            lines.push(format!("manifest written to {file}: keep it elsewhere"));
        }
        lines.join("\n  ") + "\n"
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
        if let Some((segments, manifests)) = self.chains {
            let warning =
                |warning: &Warning| json!({ "code": warning.code(), "text": warning.to_string() });
            let chains = [
                ("segments", json!(segments)),
                ("manifests", json!(manifests)),
                ("tables", json!(self.tables)),
                ("warnings", self.warnings.iter().map(warning).collect()),
            ];
            if let Value::Object(members) = &mut out {
                members.extend(chains.map(|(name, value)| (name.to_owned(), value)));
            }
        }
        out
    }
}

fn export(file: &Path, format: Format) -> Result<ExitCode> {
    let source = ExportSource::open(file)?;
    let subject = source.name.clone();
    let verdict = match source.verify(format)? {
        Ok(ImportSummary { store, records, without_content, .. }) => {
            Verdict { subject, store: Some(store), records, without_content, ..Verdict::default() }
        }
        Err(StoreError::Invalid(problem)) => {
            let (place, message) = split(&problem);
            // A file with an invalid first line is not an export at all.
            if place == "line 1" {
                return Err(source.invalid(&problem));
            }
            let broken = VerifyFailure { place: place.to_owned(), problem: message.to_owned() };
            Verdict { subject, broken: Some(broken), ..Verdict::default() }
        }
        Err(error) => return Err(source.invalid(&error.to_string())),
    };
    verdict.print(format, None)
}

/// Splits a problem into its position, such as `line 7`, and its description.
fn split(problem: &str) -> (&str, &str) {
    let end = problem.match_indices(' ').nth(1).map_or(0, |(at, _)| at);
    let (place, message) = problem.split_at(end);
    if place.starts_with("line ") { (place, message.trim_start()) } else { ("the export", problem) }
}

/// Reads a manifest from a manifest file or from the end of an export.
fn manifest(file: &Path) -> Result<Manifest> {
    let name = file.display();
    let bytes = std::fs::read(file);
    let bytes = bytes.with_context(|| format!("cannot read the manifest {name}"))?;
    let line = bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    parse_manifest(line).ok_or_else(|| {
        Failure::BadData(format!(
            "{name} is not a manifest; use the output of `throughline verify --write-manifest`, or an export"
        ))
    })
}

fn save_manifest(store: &OpenStore, file: &Path) -> Result<()> {
    let manifest = store.run(store.journal.manifest(&store.tenant))?;
    replace_file(file, |part| {
        let written = writeln!(part, "{}", manifest.json().as_str());
        Ok(written.with_context(|| format!("cannot write {}", file.display()))?)
    })
}
