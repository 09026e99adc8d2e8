//! `throughline verify`: the proof that a store, or an export, is as it was written.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use tempfile::NamedTempFile;
use throughline_core::{Json, StoreError, json};
use throughline_store::{Broken, Manifest, Proof, Warning, parse_manifest, verify_export};

use crate::export::{folder_of, real_file};
use crate::failure::Failure;
use crate::import::Source;
use crate::listing::put_maybe;
use crate::options::{Printing, Verify};
use crate::progress::{Meter, Progress};
use crate::store::{self, Missing, Opened};
use crate::text::{self, count, plain, push_line};

pub(crate) fn run(options: &Verify) -> Result<ExitCode, Failure> {
    if let Some(file) = &options.file {
        return export(file, &options.printing);
    }
    let witness = options.manifest.as_deref().map(manifest).transpose()?;
    store::with(&options.at, Missing::FailsReadOnly, |opened| {
        let progress = Progress::of("verifying", &options.printing);
        let share = |done| progress.share(done);
        let proof = opened.run(opened.journal.verify(witness.as_ref(), &share))?;
        drop(progress);
        let mut saved = None;
        if let Some(file) = options.write_manifest.as_deref().filter(|_| proof.broken.is_none()) {
            save_manifest(opened, file)?;
            saved = Some(file);
        }
        let verdict = Verdict::of_store(opened, &proof, witness.is_some());
        verdict.tell(&options.printing, saved)
    })
}

/// What was proven of whatever it was.
struct Verdict {
    subject: String,
    /// The key that signs, where the signature was seen.
    store: Option<String>,
    records: u64,
    without_content: u64,
    /// Segments of chains and manifests, of a store.
    chains: Option<(u64, u64)>,
    broken: Option<Broken>,
    /// The tables that are proven, of a store.
    tables: Vec<&'static str>,
    warnings: Vec<Warning>,
    /// Whether the store was compared with a manifest from elsewhere.
    has_witness: bool,
}

impl Verdict {
    fn of_store(opened: &Opened, proof: &Proof, has_witness: bool) -> Self {
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

    fn tell(&self, printing: &Printing, saved: Option<&Path>) -> Result<ExitCode, Failure> {
        text::answer(printing, || self.text(saved), || self.json())
            .or_else(Failure::unless_reader_gone)?;
        Ok(if self.broken.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn text(&self, saved: Option<&Path>) -> String {
        let number =
            |number: u64, noun: &str| count(usize::try_from(number).unwrap_or(usize::MAX), noun);
        let subject = plain(&self.subject);
        let mut out = String::new();
        let width = text::width(std::io::stdout()) - 2;
        let Some(broken) = &self.broken else {
            push_line(&mut out, &format!("{} {subject} is intact", text::mark(true)));
            let mut proven = number(self.records, "record");
            if let Some((segments, manifests)) = self.chains {
                let (segments, manifests) =
                    (number(segments, "chain"), number(manifests, "signed manifest"));
                proven = format!("{proven} · {segments} · {manifests}");
            }
            push_line(&mut out, &format!("  {proven}"));
            if self.without_content > 0 {
                let some = number(self.without_content, "record");
                let why = match self.chains {
                    Some(_) => "forgotten or expired, as their logs say",
                    None => "redacted, forgotten or expired",
                };
                push_line(&mut out, &format!("  {some} without content: {why}"));
            }
            if !self.tables.is_empty() {
                let tables = format!("proven tables: {}", self.tables.join(", "));
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
            let before = number(self.records, "record");
            push_line(&mut out, &format!("  {}", format!("{before} before it hold").dimmed()));
        }
        push_line(
            &mut out,
            &format!("  {}", "restore a backup, or the file from where it came".dimmed()),
        );
        out
    }

    /// What limits the proof.
    fn push_warnings(&self, out: &mut String, width: usize) {
        for warning in &self.warnings {
            for line in text::wrapped(&format!("warning: {warning}"), width) {
                push_line(out, &format!("  {}", line.yellow()));
            }
        }
        if self.chains.is_some() && !self.has_witness {
            let note = "a store that was put back to an earlier state as a whole is only noticed with a \
                        manifest that was kept elsewhere: --manifest FILE";
            for line in text::wrapped(note, width) {
                push_line(out, &format!("  {}", line.dimmed()));
            }
        }
    }

    fn json(&self) -> Json {
        json::object(|o| {
            o.string("verdict", if self.broken.is_some() { "broken" } else { "intact" });
            match &self.broken {
                None => o.null("broken"),
                Some(broken) => o.object("broken", |o| {
                    o.string("place", &broken.place).string("problem", &broken.problem);
                }),
            };
            put_maybe(o, "store", self.store.as_deref());
            o.number("records", self.records);
            o.number("without_content", self.without_content);
            if let Some((segments, manifests)) = self.chains {
                o.number("segments", segments).number("manifests", manifests);
                o.array("tables", |list| {
                    for table in &self.tables {
                        list.string(table);
                    }
                });
                o.array("warnings", |list| {
                    for warning in &self.warnings {
                        list.object(|o| {
                            o.string("code", warning.code()).string("text", &warning.to_string());
                        });
                    }
                });
            }
        })
    }
}

/// Proves an export, for which no store is needed.
fn export(file: &Path, printing: &Printing) -> Result<ExitCode, Failure> {
    let source = Source::open(file)?;
    let progress = Progress::of("verifying", printing);
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
            // What does not even begin like an export was never one.
            if place == "line 1" {
                return Err(source.bad(&problem));
            }
            let broken = Broken { place: place.to_owned(), problem: what.to_owned() };
            verdict(None, 0, 0, Some(broken))
        }
        Err(error) => return Err(source.bad(&error.to_string())),
    };
    verdict.tell(printing, None)
}

/// `line 7` and what is wrong there.
fn split(problem: &str) -> (&str, &str) {
    let end = problem.match_indices(' ').nth(1).map_or(0, |(at, _)| at);
    let (place, what) = problem.split_at(end);
    if place.starts_with("line ") { (place, what.trim_start()) } else { ("the export", problem) }
}

/// A manifest from a file of its own, or from the end of an export.
fn manifest(file: &Path) -> Result<Manifest, Failure> {
    let name = file.display();
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes));
    read.with_context(|| format!("--manifest {name} cannot be read"))?;
    let line = bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    parse_manifest(line).ok_or_else(|| {
        Failure::BadData(format!(
            "{name} is no manifest: give what `throughline verify --write-manifest` wrote, or an export"
        ))
    })
}

fn save_manifest(opened: &Opened, file: &Path) -> Result<(), Failure> {
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
