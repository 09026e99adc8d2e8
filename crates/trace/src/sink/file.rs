//! Writes traces to files, one folder per session.

use std::io;
use std::path::{Path, PathBuf};

use throughline_json::Name;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::session::{BatchPhase, TraceBatch};
use crate::sink::{SendFuture, Sink, SinkError};

/// Writes each trace to `SESSION/trace.session.json` in a folder, and appends streamed batches to
/// `SESSION/trace.events.jsonl`. A session id starts with its tenant, unless the tenant is
/// `default`.
pub struct FileSink {
    name: Name,
    folder: PathBuf,
}

impl FileSink {
    /// Creates a sink that writes below `folder`. The folder is created when needed.
    pub fn new(name: Name, folder: impl AsRef<Path>) -> Self {
        Self { name, folder: folder.as_ref().to_owned() }
    }

    async fn write(&self, batch: &TraceBatch) -> io::Result<()> {
        let session = &*batch.session.id;
        if !is_file_name(session) {
            let problem = "the session id may contain only letters, digits, `_`, `-` and `.`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let folder = self.folder.join(session);
        fs::create_dir_all(&folder).await?;
        let mut text = batch.to_json().as_str().to_owned();
        text.push('\n');
        if batch.phase == BatchPhase::Whole {
            // The rename is atomic, so readers see either the old or the new file.
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

/// Returns whether a session id is safe to use as a folder name.
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

    fn send<'a>(&'a self, batch: &'a TraceBatch) -> SendFuture<'a> {
        Box::pin(async move {
            let written = self.write(batch).await;
            written.map_err(|error| SinkError::permanent(error.to_string()))
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
    use crate::session::{Mode, Session, Status, session_id};

    fn batch(id: Name) -> TraceBatch {
        let session = Session {
            id,
            trace: [1; 16],
            root: [2; 8],
            thread: Name::from("thread_1"),
            log_data: true,
            mode: Mode::Batched,
            sinks: Vec::new(),
        };
        TraceBatch {
            session: Arc::new(session),
            phase: BatchPhase::Whole,
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
            let error = sink.send(&batch(Name::from(name))).await.unwrap_err();
            assert!(error.message.contains("id may contain only"), "{error}");
        }
        // The ids would escape the folder if used as paths. The runs of both tenants must end up in
        // separate folders inside it.
        for tenant in ["acme", "../acme"] {
            let id = session_id(&Tenant::from(tenant), &LogId::from("../../x"));
            sink.send(&batch(id)).await.unwrap();
        }
        let list = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
        assert_eq!((list(&outside), list(&outside.join("traces"))), (1, 2));
    }
}
