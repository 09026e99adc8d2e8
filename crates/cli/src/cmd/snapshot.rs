//! `throughline snapshot`: exports a run as a document from which another store can resume it.

use std::io::Write as _;

use anyhow::Context as _;
use throughline_core::LogId;

use crate::agent::{self, ModelAccess};
use crate::args::SnapshotArgs;
use crate::clock::now;
use crate::cmd::export::replace_file;
use crate::print::failure::{Failure, Result};
use crate::print::text;

pub(crate) fn run(options: &SnapshotArgs) -> Result<()> {
    agent::with(&options.at, ModelAccess::NoModels, async |context| {
        let run = LogId::from(options.run.as_str());
        let snapshot = context.run(context.runner.snapshot(&context.tenant, &run)).await?;
        let document = snapshot.to_json(now(), options.tag.as_deref());
        let document = document.map_err(|error| Failure::BadData(error.to_string()))?;
        let bytes = format!("{}\n", document.as_str()).into_bytes();
        match options.output.as_deref().filter(|file| file.as_os_str() != "-") {
            None => text::write_out(&bytes),
            // A snapshot is as sensitive as the store, so only its owner may read the file.
            Some(file) => replace_file(file, |part| {
                let written = part.write_all(&bytes);
                Ok(written.with_context(|| format!("cannot write {}", file.display()))?)
            }),
        }
    })
}
