//! `throughline backup`: a copy of a store, made while it is in use; and where the key files of such copies are.

use std::path::{Path, PathBuf};

use throughline_core::json;
use throughline_store::key_file_of;

use crate::failure::Failure;
use crate::forget::put_unreached;
use crate::options::Backup;
use crate::progress::Progress;
use crate::store::{self, Missing};
use crate::text::{self, plain, stored_size};

pub(crate) fn run(options: &Backup) -> Result<(), Failure> {
    let keys = options.register.as_deref().map(|keys| (keys, true));
    match (&options.file, keys.or(options.unregister.as_deref().map(|keys| (keys, false)))) {
        (_, Some((keys, is_there))) => register(options, keys, is_there),
        (Some(file), None) => back_up(options, file),
        (None, None) => Err(Failure::Usage("name the new file of the backup".to_owned())),
    }
}

/// Records where a key file is now, or that it was deleted.
fn register(options: &Backup, keys: &Path, is_there: bool) -> Result<(), Failure> {
    store::with(&options.at, Missing::Fails, |opened| {
        let unreached = if is_there {
            opened.run(opened.journal.register_keys(keys))?
        } else {
            opened.run(opened.journal.unregister_keys(keys))?
        };
        text::answer(
            &options.printing,
            || {
                let (mark, name) = (text::mark(true), keys.display().to_string());
                let done = if is_there { "registered" } else { "unregistered" };
                format!("{mark} {done} {}\n", plain(&name))
            },
            || {
                json::object(|o| {
                    o.string("keys", &keys.display().to_string());
                    put_unreached(o, &unreached);
                })
            },
        )
    })
}

fn back_up(options: &Backup, file: &PathBuf) -> Result<(), Failure> {
    let name = file.display();
    let keys = options.keys.clone().unwrap_or_else(|| key_file_of(file));
    if let Some(path) = [file, &keys].into_iter().find(|path| path.exists()) {
        let path = path.display();
        let message = format!("{path} exists already: choose another name for the backup");
        return Err(Failure::Usage(message));
    }
    store::with(&options.at, Missing::Fails, |opened| {
        let progress = Progress::of("backing up", &options.printing);
        let share = |done| progress.share(done);
        // Where nobody waits for it any more, the store takes back what it has written.
        let copied = opened.journal.backup_with_keys(file, &keys, &share);
        let copied = opened.signals()?.run_until_stopped(opened, &progress, copied)?;
        copied.map_err(|error| opened.failed(error))?;
        drop(progress);
        let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
        text::answer(
            &options.printing,
            || {
                let (mark, bytes) = (text::mark(true), stored_size(bytes));
                let (name, keys) = (name.to_string(), keys.display().to_string());
                let (name, keys) = (plain(&name), plain(&keys));
                format!("{mark} backed up to {name}, {bytes}; its keys are in {keys}\n")
            },
            || {
                json::object(|o| {
                    o.string("backup", &name.to_string());
                    o.string("keys", &keys.display().to_string()).number("bytes", bytes);
                })
            },
        )
    })
}
