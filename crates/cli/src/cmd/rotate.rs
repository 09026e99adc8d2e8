//! `throughline rotate`: replaces the master key of a store while the store is in use.

use std::process::ExitCode;

use owo_colors::Style;
use serde_json::json;
use throughline_store::RotationReport;

use crate::args::Rotate;
use crate::print::failure::{Failure, Result};
use crate::print::progress::Progress;
use crate::print::text::{self, count};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Rotate) -> Result<ExitCode> {
    let key = store::key(&options.new_key_file)?;
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let progress = Progress::new("rotating", options.common.format);
        let share = |fraction| progress.set_fraction(fraction);
        let work = store.journal.rotate(&key, &share);
        let rotated = store.run_uninterrupted("the rotation", work, store.to_failure());
        drop(progress);
        let RotationReport { wrapped, is_behind } = rotated?;
        let text = || {
            let (mark, contents) = (text::mark(!is_behind), count(wrapped, "content"));
            if is_behind {
                return format!(
                    "{mark} {contents} wrapped under the new key, but not all contents\n  \
                     keep the old key: run every process with both keys, and rotate again\n"
                );
            }
            let done = match wrapped {
                0 => "no content was changed: the new key already protects all contents".to_owned(),
                _ => format!("{contents} wrapped under the new key"),
            };
            format!(
                "{mark} {done}\n  \
                 restart each process with the new key, and without --retired-key-file\n  \
                 existing backups still need the key that they were made with\n"
            )
        };
        let json = || json!({ "rotated": wrapped, "behind": is_behind });
        options.common.format.print(text, json).or_else(Failure::ignore_closed_pipe)?;
        if !is_behind {
            return Ok(ExitCode::SUCCESS);
        }
        let message = "some contents are wrapped under another key: a process wrote without the new key. \
                       Restart that process with both keys and rotate again: see `throughline rotate --help`";
        text::notice("incomplete:", Style::new().red(), message);
        Ok(ExitCode::from(1))
    })
}
