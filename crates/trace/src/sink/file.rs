//! Traces as files: a folder for each session.

use std::io;
use std::path::{Path, PathBuf};

use throughline_core::Name;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::session::{Parcel, Phase};
use crate::sink::{Sink, SinkError, Taking};

/// Writes `SESSION/trace.session.json` in a folder; what is streamed is appended to `SESSION/trace.events.jsonl`. A session's
/// name begins with its tenant, except for the tenant `default`.
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
        let session = &*parcel.session.id;
        if !is_file_name(session) {
            let problem = "the session's name may hold only letters, digits, `_`, `-` and `.`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let folder = self.folder.join(session);
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

/// Whether a session's name names a folder of this one, and nothing outside it.
fn is_file_name(session: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=255).contains(&session.len())
        && session.bytes().all(is_allowed)
        && !matches!(session, "." | "..")
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use throughline_core::{LogId, Tenant};
    use throughline_testkit::Folder;

    use super::*;
    use crate::deliver::Status;
    use crate::session::{Session, session_id};
    use crate::tracer::Mode;

    fn parcel(id: Name) -> Parcel {
        let session = Session {
            id,
            trace: [1; 16],
            root: [2; 8],
            thread: Name::from("thread_1"),
            log_data: true,
            mode: Mode::Batched,
            sinks: Vec::new(),
        };
        Parcel {
            session: Arc::new(session),
            phase: Phase::Whole,
            before: 0,
            spans: Vec::new(),
            agent: None,
            status: Status::Success,
            errors: Vec::new(),
            is_again: false,
        }
    }

    #[tokio::test]
    async fn file_sink_stays_in_its_folder_and_keeps_tenants_apart() {
        let outside = Folder::new("sink");
        let sink = FileSink::new(Name::from("file"), outside.join("traces"));
        let absolute = outside.join("x").display().to_string();
        for name in ["../x", "..", ".", "", "a/b", "sess_é", "a\0b", &*absolute] {
            let refused = sink.take(&parcel(Name::from(name))).await.unwrap_err();
            assert!(refused.message.contains("name may hold only"), "{refused}");
        }
        // The same run of two tenants, with a name that would leave the folder, is two files within it.
        for tenant in ["acme", "../acme"] {
            let id = session_id(&Tenant::from(tenant), &LogId::from("../../x"));
            sink.take(&parcel(id)).await.unwrap();
        }
        let list = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
        assert_eq!((list(&outside), list(&outside.join("traces"))), (1, 2));
    }
}
