//! `throughline rotate`: a new master key for a store, while it is in use.

use std::process::ExitCode;

use owo_colors::Style;
use throughline_core::json;
use throughline_store::Rotated;

use crate::failure::Failure;
use crate::options::Rotate;
use crate::progress::Progress;
use crate::store::{self, Missing};
use crate::text::{self, count};

pub(crate) fn run(options: &Rotate) -> Result<ExitCode, Failure> {
    let key = store::key(&options.new_key_file)?;
    store::with(&options.at, Missing::Fails, |opened| {
        let progress = Progress::of("rotating", &options.printing);
        let share = |done| progress.share(done);
        let work = opened.journal.rotate(&key, &share);
        let rotated = opened.run_to_the_end("rotating", work)?;
        drop(progress);
        let Rotated { wrapped, is_behind } = rotated.map_err(|error| opened.failed(error))?;
        text::answer(
            &options.printing,
            || {
                let contents = count(usize::try_from(wrapped).unwrap_or(usize::MAX), "content");
                let mark = text::mark(!is_behind);
                format!(
                    "{mark} {contents} wrapped under the new key\n  \
                     from now on give the new key, and the one before with --retired-key-file\n  \
                     backups that were made before still need the key that they were made under\n"
                )
            },
            || {
                json::object(|o| {
                    o.number("rotated", wrapped).bool("behind", is_behind);
                })
            },
        )
        .or_else(Failure::unless_reader_gone)?;
        Ok(if is_behind { behind() } else { ExitCode::SUCCESS })
    })
}

/// Says that the old key is not yet out of use: then that is the exit code.
fn behind() -> ExitCode {
    let message = "something is wrapped under another key: somebody wrote meanwhile without the new one. Start \
                   that one again with both keys, and ask for this again: see `throughline rotate --help`";
    text::notice("not done:", Style::new().red(), message);
    ExitCode::from(1)
}
