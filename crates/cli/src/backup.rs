//! `throughline backup`: a copy of a store, made while it is in use.

use throughline_core::json;

use crate::failure::Failure;
use crate::options::Backup;
use crate::progress::Progress;
use crate::store::{self, Missing};
use crate::text::{self, plain, stored_size};

pub(crate) fn run(options: &Backup) -> Result<(), Failure> {
    let (file, name) = (&options.file, options.file.display());
    if file.exists() {
        let message = format!("{name} exists already: choose another name for the backup");
        return Err(Failure::Usage(message));
    }
    store::with(&options.at, Missing::Fails, |opened| {
        let progress = Progress::of("backing up", &options.printing);
        let share = |done| progress.share(done);
        // Where nobody waits for it any more, the store takes back what it has written.
        let copied = opened.journal.backup(file, &share);
        let copied = opened.signals()?.run_until_stopped(opened, &progress, copied)?;
        copied.map_err(|error| opened.failed(error))?;
        drop(progress);
        let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
        text::answer(
            &options.printing,
            || {
                let (mark, bytes) = (text::mark(true), stored_size(bytes));
                format!("{mark} backed up to {}, {bytes}\n", plain(&name.to_string()))
            },
            || {
                json::object(|o| {
                    o.string("backup", &name.to_string()).number("bytes", bytes);
                })
            },
        )
    })
}
