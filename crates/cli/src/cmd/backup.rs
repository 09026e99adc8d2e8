//! `throughline backup` and `throughline restore`: copy a store that is in use, register the key
//! files of backups, and restore a store from a backup.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use owo_colors::Style;
use serde_json::json;
use throughline_core::StoreError;
use throughline_store::{RestoreSummary, key_file_of};
use tokio::runtime::Builder;

use crate::args::{Backup, Restore, StoreArgs};
use crate::print::failure::{Failure, Result};
use crate::print::progress::Progress;
use crate::print::text::{self, count, plain, stored_size};
use crate::store::{self, IfMissing, open_failure, open_options, runtime};

pub(crate) fn backup(options: &Backup) -> Result<()> {
    let keys = options.register.as_deref().map(|keys| (keys, true));
    match (&options.file, keys.or(options.unregister.as_deref().map(|keys| (keys, false)))) {
        (_, Some((keys, is_there))) => register(options, keys, is_there),
        (Some(file), None) => back_up(options, file),
        (None, None) => {
            Err(Failure::Usage("no backup file was given; name the file to create".to_owned()))
        }
    }
}

/// Records in the store that a backup's key file was moved or deleted.
fn register(options: &Backup, keys: &Path, is_there: bool) -> Result<()> {
    let name = keys.display().to_string();
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let (done, unreached) = if is_there {
            ("registered", store.run(store.journal.register_keys(keys))?)
        } else {
            ("unregistered", store.run(store.journal.unregister_keys(keys))?)
        };
        let text = || format!("{} {done} {}\n", text::mark(true), plain(&name));
        options.common.format.print(text, || json!({ "keys": name, "unreached": unreached }))
    })
}

fn back_up(options: &Backup, file: &PathBuf) -> Result<()> {
    let keys = options.keys.clone().unwrap_or_else(|| key_file_of(file));
    if let Some(path) = [file, &keys].into_iter().find(|path| path.exists()) {
        return Err(Failure::Usage(format!(
            "{} already exists; choose another name for the backup",
            path.display()
        )));
    }
    [file, &keys].into_iter().try_for_each(|path| check_folder(path))?;
    store::with(&options.common.at, IfMissing::Fails, |store| {
        let progress = Progress::new("backing up", options.common.format);
        let share = |fraction| progress.set_fraction(fraction);
        // If this command is interrupted, the store removes the partial backup.
        let copied = store.journal.backup_with_keys(file, &keys, &share);
        let copied = store.run_until_interrupted(store.signals()?, &progress, copied)?;
        copied.map_err(store.to_failure())?;
        drop(progress);
        let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
        let (name, keys) = (file.display().to_string(), keys.display().to_string());
        let text = || {
            let (mark, bytes) = (text::mark(true), stored_size(bytes));
            let (name, keys) = (plain(&name), plain(&keys));
            format!("{mark} backed up to {name}, {bytes}; its keys are in {keys}\n")
        };
        let json = || json!({ "backup": name, "keys": keys, "bytes": bytes });
        options.common.format.print(text, json)
    })
}

/// Fails if a new file cannot be created at this path.
fn check_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let (name, shown) = (path.display(), folder.display());
    if !folder.is_dir() {
        return Err(Failure::NoStore(format!(
            "cannot create {name}: there is no folder {shown}; create the folder, or choose \
             another one"
        )));
    }
    tempfile::tempfile_in(folder).map(drop).map_err(|error| {
        Failure::NoStore(format!(
            "cannot create {name}: this user cannot create files in {shown} ({error}); make the \
             folder writable, or choose another one"
        ))
    })
}

pub(crate) fn restore(options: &Restore) -> Result<ExitCode> {
    let Restore { keys, to, master_key_file, retired_key_file, format, backup } = options;
    let at = StoreArgs {
        store: Some(format!("sqlite://{}", to.display())),
        tenant: "default".to_owned(),
        master_key_file: master_key_file.clone(),
        retired_key_file: retired_key_file.clone(),
        config: None,
    };
    let (url, how) = open_options(&at, IfMissing::Fails)?;
    let restored = throughline_store::restore(backup, keys.as_deref(), to, &how);
    let restored = runtime(Builder::new_current_thread())?.block_on(restored);
    let restored = restored.map_err(|error| match error {
        StoreError::Corrupt(_) => Failure::BadData(error.to_string()),
        StoreError::KeyMissing | StoreError::WrongKey | StoreError::NewerSchema { .. } => {
            open_failure(error, &url)
        }
        error => Failure::Usage(error.to_string()),
    })?;
    let name = to.display().to_string();
    let RestoreSummary { records, gone, without_key, .. } = restored;
    let text = || {
        let (mark, records) = (text::mark(true), count(records, "record"));
        format!("{mark} restored to {}, {records}, {gone} without content\n", plain(&name))
    };
    let json =
        || json!({ "store": name, "records": records, "gone": gone, "without_key": without_key });
    format.print(text, json)?;
    if without_key == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let records = count(without_key, "record");
    let message = format!(
        "{records} cannot be decrypted, and there is no record that they were forgotten: run any command \
         on the original store, which completes the key file, and restore again"
    );
    text::notice("no key:", Style::new().red(), &message);
    Ok(ExitCode::from(1))
}
