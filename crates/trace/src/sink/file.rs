//! Writes traces to files, one folder per session, and lists the stored sessions.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use throughline_json::Name;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::session::{BatchPhase, TraceBatch};
use crate::sink::{SendFuture, Sink, SinkError};

/// The files of a session. A folder with other files is not a session.
const WHOLE: &str = "trace.session.json";
const PART: &str = "trace.session.json.part";
const EVENTS: &str = "trace.events.jsonl";

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
            let draft = folder.join(PART);
            fs::write(&draft, text).await?;
            return fs::rename(draft, folder.join(WHOLE)).await;
        }
        let file = folder.join(EVENTS);
        let mut file = fs::OpenOptions::new().create(true).append(true).open(file).await?;
        file.write_all(text.as_bytes()).await?;
        file.flush().await
    }
}

/// A session in the folder of a [`FileSink`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    folder: PathBuf,
    /// When a file of the session was last written.
    pub written: SystemTime,
    /// Total size of the files in bytes.
    pub bytes: u64,
}

impl StoredSession {
    /// Lists the sessions in the folder of a sink; none if the folder does not exist. Other files
    /// and folders are left out. This function blocks.
    pub fn list(folder: &Path) -> io::Result<Vec<Self>> {
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut sessions = Vec::new();
        for entry in entries {
            let entry = entry?;
            // A symbolic link is not a directory here, so its target is never deleted.
            if entry.file_type()?.is_dir() {
                sessions.extend(Self::read(entry.path())?);
            }
        }
        Ok(sessions)
    }

    fn read(folder: PathBuf) -> io::Result<Option<Self>> {
        let mut session = Self { folder, written: SystemTime::UNIX_EPOCH, bytes: 0 };
        let mut has_files = false;
        for entry in std::fs::read_dir(&session.folder)? {
            let entry = entry?;
            let is_own = [WHOLE, PART, EVENTS].iter().any(|name| entry.file_name() == *name);
            let metadata = entry.metadata()?;
            if !is_own || !metadata.is_file() {
                return Ok(None);
            }
            has_files = true;
            session.written = session.written.max(metadata.modified()?);
            session.bytes += metadata.len();
        }
        Ok(has_files.then_some(session))
    }

    /// Deletes the session's files and its folder. This function blocks.
    pub fn delete(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.folder)
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
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

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

    #[tokio::test]
    async fn only_sessions_are_listed_and_deleted() {
        let folder = Folder::new("sessions");
        let sink = FileSink::new(Name::from("file"), folder.join("traces"));
        assert_eq!(StoredSession::list(&folder.join("traces")).unwrap(), []);
        let id = session_id(&Tenant::from("acme"), &LogId::from("run_1"));
        sink.send(&batch(id)).await.unwrap();
        let other = folder.join("traces/notes");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("trace.session.json"), "{}").unwrap();
        std::fs::write(other.join("notes.txt"), "kept").unwrap();
        std::fs::write(folder.join("traces/readme.txt"), "kept").unwrap();
        std::fs::create_dir(folder.join("traces/empty")).unwrap();
        let sessions = StoredSession::list(&folder.join("traces")).unwrap();
        assert_eq!(sessions.len(), 1);
        assert!(sessions[0].bytes > 0 && sessions[0].written > SystemTime::UNIX_EPOCH);
        sessions[0].delete().unwrap();
        assert_eq!(StoredSession::list(&folder.join("traces")).unwrap(), []);
        assert_eq!(std::fs::read_dir(folder.join("traces")).unwrap().count(), 3);
        assert!(other.join("notes.txt").exists());
    }
}
