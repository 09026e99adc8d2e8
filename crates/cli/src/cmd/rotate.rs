//! `throughline rotate`: replaces the master key of a store while it is in use.

use std::process::ExitCode;

use owo_colors::Style;
use serde_json::json;
use throughline_store::RotationReport;

use crate::args::Rotate;
use crate::print::failure::Failure;
use crate::print::progress::Progress;
use crate::print::text::{self, count};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Rotate) -> Result<ExitCode, Failure> {
    let key = store::key(&options.new_key_file)?;
    store::with(&options.at, IfMissing::Fails, |opened| {
        let progress = Progress::new("rotating", &options.printing);
        let share = |done| progress.set_fraction(done);
        let work = opened.journal.rotate(&key, &share);
        let rotated = opened.run_uninterrupted("rotating", work)?;
        drop(progress);
        let RotationReport { wrapped, is_behind } =
            rotated.map_err(|error| opened.to_failure(error))?;
        text::answer(
            &options.printing,
            || {
                let contents = count(wrapped, "content");
                let mark = text::mark(!is_behind);
                format!(
                    "{mark} {contents} wrapped under the new key\n  \
                     from now on use the new key, and pass the old one with --retired-key-file\n  \
                     existing backups still need the key that they were made with\n"
                )
            },
            || json!({ "rotated": wrapped, "behind": is_behind }),
        )
        .or_else(Failure::ignore_closed_pipe)?;
        Ok(if is_behind { behind() } else { ExitCode::SUCCESS })
    })
}

/// Reports that the old key is still in use; the exit code is then 1.
fn behind() -> ExitCode {
    let message = "some contents are wrapped under another key: a process wrote without the new key. \
                   Restart that process with both keys and rotate again: see `throughline rotate --help`";
    text::notice("incomplete:", Style::new().red(), message);
    ExitCode::from(1)
}
