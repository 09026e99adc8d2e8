//! `throughline rotate`: a new master key for a store, while it is in use.

use throughline_core::json;

use crate::failure::Failure;
use crate::options::Rotate;
use crate::progress::Progress;
use crate::store::{self, Missing};
use crate::text::{self, count};

pub(crate) fn run(options: &Rotate) -> Result<(), Failure> {
    let key = store::key(&options.new_key_file)?;
    store::with(&options.at, Missing::Fails, |opened| {
        let progress = Progress::of("rotating", &options.printing);
        let share = |done| progress.share(done);
        let work = opened.journal.rotate(&key, &share);
        let rotated = opened.run_to_the_end("rotating", work)?;
        drop(progress);
        let rotated = rotated.map_err(|error| opened.failed(error))?;
        text::answer(
            &options.printing,
            || {
                let contents = count(usize::try_from(rotated).unwrap_or(usize::MAX), "content");
                let mark = text::mark(true);
                format!(
                    "{mark} rotated: {contents} wrapped under the new key\n  \
                     from now on give the new key, and the one before with --retired-key-file\n  \
                     backups that were made before still need the key that they were made under\n"
                )
            },
            || {
                json::object(|o| {
                    o.number("rotated", rotated);
                })
            },
        )
    })
}
