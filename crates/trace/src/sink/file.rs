//! Traces as files: a folder for each session.

use std::io;
use std::path::{Path, PathBuf};

use throughline_core::Name;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::session::{Parcel, Phase};
use crate::sink::{Sink, SinkError, Taking};

/// Writes `SESSION/trace.session.json` in a folder; what is streamed is appended to `SESSION/trace.events.jsonl`.
pub struct FileSink {
    name: Name,
    folder: PathBuf,
}

impl FileSink {
    /// A sink that writes in that folder, which is made where it is not there.
    pub fn new(name: Name, folder: impl AsRef<Path>) -> Self {
        Self { name, folder: folder.as_ref().to_owned() }
    }

    async fn write(&self, parcel: &Parcel) -> io::Result<()> {
        let folder = self.folder.join(&*parcel.session.id);
        fs::create_dir_all(&folder).await?;
        let mut text = parcel.json().as_str().to_owned();
        text.push('\n');
        if parcel.phase == Phase::Whole {
            // It is there whole, or as it was before.
            let draft = folder.join("trace.session.json.part");
            fs::write(&draft, text).await?;
            return fs::rename(draft, folder.join("trace.session.json")).await;
        }
        let file = folder.join("trace.events.jsonl");
        let mut file = fs::OpenOptions::new().create(true).append(true).open(file).await?;
        file.write_all(text.as_bytes()).await?;
        file.flush().await
    }
}

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn take<'a>(&'a self, parcel: &'a Parcel) -> Taking<'a> {
        Box::pin(async move {
            let written = self.write(parcel).await;
            written.map_err(|error| SinkError::lasting(error.to_string()))
        })
    }
}
