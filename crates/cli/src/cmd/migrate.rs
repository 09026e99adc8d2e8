//! `throughline migrate`: copies a store from SQLite to PostgreSQL or back, and verifies both.

use std::sync::Mutex;

use serde_json::json;
use throughline_core::StoreError;
use throughline_store::{MigrationReport, MigrationStep, Stats, StoreProof};
use tokio::runtime::Builder;

use crate::args::{Migrate, StoreArgs};
use crate::config::environment::is_address;
use crate::print::failure::{Failure, Result};
use crate::print::progress::Progress;
use crate::print::text::{self, count, plain, stored_size};
use crate::store::{IfMissing, Signals, open_failure, open_options, remedy_of, runtime};

pub(crate) fn run(options: &Migrate) -> Result<()> {
    let Migrate { master_key_file, retired_key_file, format, source, target } = options;
    if !is_address(target) {
        return Err(Failure::Usage(
            "the target URL has an unknown scheme: write sqlite://FILE or \
             postgres://USER@HOST/DATABASE"
                .to_owned(),
        ));
    }
    let at = StoreArgs {
        store: Some(source.clone()),
        tenant: "default".to_owned(),
        master_key_file: master_key_file.clone(),
        retired_key_file: retired_key_file.clone(),
        config: None,
    };
    let (source, how) = open_options(&at, IfMissing::Fails)?;
    let bars = Bars { format: *format, current: Mutex::default() };
    let show = |step, share| bars.show(step, share);
    let runtime = runtime(Builder::new_current_thread())?;
    let migrated = runtime.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            migrated = throughline_store::migrate(&source, target, &how, &show) => {
                migrated.map_err(|error| to_failure(error, &source))
            }
            () = signals.wait_for_stop() => {
                let message = "interrupted; run the same command again to continue";
                Err(Failure::Interrupted(message.to_owned()))
            }
        }
    });
    // After an interrupt, the copying thread rolls back its transaction.
    runtime.shutdown_timeout(crate::store::SHUTDOWN_LIMIT);
    drop(bars);
    print(&migrated?, options)
}

fn print(migrated: &MigrationReport, options: &Migrate) -> Result<()> {
    let MigrationReport { source, target, proof, stats, was_copied } = migrated;
    let StoreProof { public_key, heads, records, gone, manifests, .. } = proof;
    let Stats { tenants, threads, runs, turns, blobs, disk_bytes, .. } = *stats;
    let digest = proof.digest();
    let text = || {
        let done = if *was_copied { "copied" } else { "already copied" };
        let (mark, records) = (text::mark(true), count(*records, "record"));
        let counted = [
            count(tenants, "tenant"),
            count(threads, "thread"),
            count(runs, "run"),
            count(turns, "captured turn"),
            count(blobs, "blob"),
        ];
        [
            format!("{mark} {done} {} to {}", plain(source), plain(target)),
            format!("{records}, {gone} without content · {}", counted.join(" · ")),
            format!(
                "{} · {} · {} on disk",
                count(u64::try_from(heads.len()).unwrap_or(u64::MAX), "chain"),
                count(*manifests, "signed manifest"),
                stored_size(disk_bytes)
            ),
            format!("both stores are intact and have the proof {digest}"),
            format!("signed by {public_key}"),
            "start the gateways with the new URL, and keep the source until they run".to_owned(),
        ]
        .join("\n  ")
            + "\n"
    };
    let json = || {
        json!({
            "source": source, "target": target, "copied": was_copied, "proof": digest,
            "store": public_key, "records": records, "without_content": gone,
            "segments": heads.len(), "manifests": manifests, "tenants": tenants,
            "threads": threads, "runs": runs, "turns": turns, "blobs": blobs,
        })
    };
    options.format.print(text, json)
}

/// Converts an error of the migration to a failure with the matching exit code.
fn to_failure(error: StoreError, source: &str) -> Failure {
    match error {
        StoreError::Invalid(problem) => Failure::Usage(problem.to_string()),
        StoreError::Corrupt(problem) => Failure::BadData(problem.to_string()),
        StoreError::NotFound { .. }
        | StoreError::KeyMissing
        | StoreError::WrongKey
        | StoreError::NewerSchema { .. } => open_failure(error, source),
        error => {
            let problem = error.to_string();
            let remedy = match &error {
                StoreError::Unreachable(name, _) if name.starts_with("postgres") => {
                    "; check the URL, and that the server is running and accepts this user"
                }
                StoreError::Unreachable(_, _) => "; check the path and its permissions",
                _ => "",
            };
            let remedy = remedy_of(&problem, remedy);
            Failure::NoStore(format!("{problem}{remedy}"))
        }
    }
}

/// The progress bar of the current step.
struct Bars {
    format: crate::args::Format,
    current: Mutex<Option<(MigrationStep, Progress)>>,
}

impl Bars {
    fn show(&self, step: MigrationStep, share: f64) {
        let Ok(mut current) = self.current.lock() else { return };
        if current.as_ref().is_none_or(|(shown, _)| *shown != step) {
            let label = match step {
                MigrationStep::VerifySource => "verifying the source",
                MigrationStep::Copy => "copying",
                MigrationStep::VerifyTarget => "verifying the target",
            };
            // Clear the bar of the previous step first.
            *current = None;
            *current = Some((step, Progress::new(label, self.format)));
        }
        if let Some((_, bar)) = &*current {
            bar.set_fraction(share);
        }
    }
}
