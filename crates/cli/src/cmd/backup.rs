//! `throughline backup`: copies a store while it is in use, and registers the key files of backups.

use std::path::{Path, PathBuf};

use serde_json::json;
use throughline_store::key_file_of;

use crate::args::Backup;
use crate::print::failure::Failure;
use crate::print::progress::Progress;
use crate::print::text::{self, plain, stored_size};
use crate::store::{self, IfMissing};

pub(crate) fn run(options: &Backup) -> Result<(), Failure> {
    let keys = options.register.as_deref().map(|keys| (keys, true));
    match (&options.file, keys.or(options.unregister.as_deref().map(|keys| (keys, false)))) {
        (_, Some((keys, is_there))) => register(options, keys, is_there),
        (Some(file), None) => back_up(options, file),
        (None, None) => Err(Failure::Usage("name the backup file to create".to_owned())),
    }
}

/// Records the new path of a key file, or that the file was deleted.
fn register(options: &Backup, keys: &Path, is_there: bool) -> Result<(), Failure> {
    store::with(&options.at, IfMissing::Fails, |opened| {
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
            || json!({ "keys": keys.display().to_string(), "unreached": unreached }),
        )
    })
}

fn back_up(options: &Backup, file: &PathBuf) -> Result<(), Failure> {
    let name = file.display();
    let keys = options.keys.clone().unwrap_or_else(|| key_file_of(file));
    if let Some(path) = [file, &keys].into_iter().find(|path| path.exists()) {
        let path = path.display();
        let message = format!("{path} already exists; choose another name for the backup");
        return Err(Failure::Usage(message));
    }
    store::with(&options.at, IfMissing::Fails, |opened| {
        let progress = Progress::new("backing up", &options.printing);
        let share = |done| progress.set_fraction(done);
        // If this command is interrupted, the store removes the partial backup.
        let copied = opened.journal.backup_with_keys(file, &keys, &share);
        let copied = opened.signals()?.run_until_interrupted(opened, &progress, copied)?;
        copied.map_err(|error| opened.to_failure(error))?;
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
                let (name, keys) = (name.to_string(), keys.display().to_string());
                json!({ "backup": name, "keys": keys, "bytes": bytes })
            },
        )
    })
}
