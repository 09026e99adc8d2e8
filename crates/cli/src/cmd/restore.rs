//! `throughline restore`: creates a store from a backup and its key file.

use std::process::ExitCode;

use anyhow::Context as _;
use owo_colors::Style;
use serde_json::json;
use throughline_core::StoreError;

use crate::args::{Restore, StoreArgs};
use crate::print::failure::Failure;
use crate::print::text::{self, count, plain};
use crate::store::{IfMissing, open_failure, open_options};

pub(crate) fn run(options: &Restore) -> Result<ExitCode, Failure> {
    let Restore { keys, to, master_key_file, retired_key_file, printing, backup } = options;
    let at = StoreArgs {
        store: Some(format!("sqlite://{}", to.display())),
        tenant: "default".to_owned(),
        master_key_file: master_key_file.clone(),
        retired_key_file: retired_key_file.clone(),
        config: None,
    };
    let (url, how) = open_options(&at, IfMissing::Fails)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the async runtime cannot be started")?;
    let restored = runtime.block_on(throughline_store::restore(backup, keys.as_deref(), to, &how));
    let restored = restored.map_err(|error| match error {
        StoreError::Corrupt(_) => Failure::BadData(error.to_string()),
        StoreError::KeyMissing | StoreError::WrongKey | StoreError::NewerSchema { .. } => {
            open_failure(error, &url)
        }
        error => Failure::Usage(error.to_string()),
    })?;
    let name = to.display().to_string();
    text::answer(
        printing,
        || {
            let (mark, records) = (text::mark(true), count(restored.records, "record"));
            let gone = restored.gone;
            format!("{mark} restored to {}, {records}, {gone} without content\n", plain(&name))
        },
        || {
            json!({
                "store": name,
                "records": restored.records,
                "gone": restored.gone,
                "without_key": restored.without_key,
            })
        },
    )?;
    if restored.without_key == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let records = count(restored.without_key, "record");
    let message = format!(
        "{records} cannot be decrypted, and there is no record that they were forgotten: run any command \
         on the original store, which completes the key file, and restore again"
    );
    text::notice("no key:", Style::new().red(), &message);
    Ok(ExitCode::from(1))
}
