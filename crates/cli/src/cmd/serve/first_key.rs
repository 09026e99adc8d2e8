//! `--first-key-file`: creates the first API key of a store, so that a container can accept
//! requests from other machines as soon as it starts.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use tempfile::NamedTempFile;
use throughline_core::{KeyRole, Tenant};
use throughline_store::{Journal, KeyLimits};

use crate::print::failure::{Failure, Result};
use crate::print::text;

/// Label of the key, which the operator can revoke later.
const LABEL: &str = "first";

/// Creates an API key and writes it to `file`, unless the store already has keys. Only the user of
/// this process can read the file. An existing file is never replaced, unless it is empty.
pub(super) async fn create_if_none(journal: &Journal, file: &Path) -> Result<()> {
    if journal.has_api_keys().await.context("cannot read the API keys")? {
        return Ok(());
    }
    let name = file.display();
    let existing = std::fs::metadata(file).ok();
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file() || metadata.len() > 0) {
        return Err(Failure::Usage(format!(
            "{name} exists already, and --first-key-file does not replace a file; delete the file, \
             name another one, or create a key with `throughline keys create --role operator`"
        )));
    }
    if existing.is_some() {
        std::fs::remove_file(file)
            .with_context(|| format!("cannot replace the empty file {name}"))?;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Open the file first: a key that cannot be written to it is useless.
    let opened = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
    let mut opened = opened.with_context(|| format!("cannot write the first API key to {name}"))?;
    // The first key belongs to the operator, who can create further keys with it.
    let limits = KeyLimits { role: Some(KeyRole::Operator), ..KeyLimits::default() };
    let tenant = Tenant::from("default");
    let key = journal.create_api_key(&tenant, LABEL, &limits).await;
    let key = key.context("cannot create the first API key")?;
    let written = writeln!(opened, "{}", key.secret).and_then(|()| opened.as_file().sync_all());
    let persisted = |()| opened.persist_noclobber(file).map(drop).map_err(|error| error.error);
    let kept = written.and_then(persisted);
    if let Err(error) = kept {
        let message = format!("cannot write the first API key to {name}: {error}");
        return Err(Failure::Outside(anyhow::anyhow!(message)));
    }
    text::note(&format!("created the API key {} and wrote it to {name}", key.id));
    Ok(())
}
