//! Real exchanges with providers, recorded by public projects: the evidence the codecs answer to.
//!
//! The recordings lie beside the workspace, in `../shared/recordings`, and are no part of it. A
//! test that needs them calls [`skip`](crate::skip) where they are absent. A file that is present
//! but does not have the documented form panics, because a loader that passes over such a file
//! would shrink the evidence unseen.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::workspace::workspace_root;

/// The folders of whole conversations: of one provider, across providers, and refused ones.
const FOLDERS: [&str; 3] = [".", "mixed", "refusals"];

/// One recorded conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// `.`, `mixed` or `refusals`.
    pub folder: String,
    /// The name of its file, without `.json`.
    pub name: String,
    /// The protocol, such as `openai-responses`; in `mixed` see each exchange.
    pub wire: String,
    /// Who answered; in `mixed` see each exchange.
    pub provider: String,
    /// The model that was asked; in `mixed` see each exchange.
    pub model: String,
    /// The requests with their answers, in the order they were made.
    pub exchanges: Vec<Exchange>,
    /// Which exchanges were refused because of a rule about reasoning. Empty outside `refusals`.
    pub refused: Vec<usize>,
}

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The path and query of the address.
    pub path: String,
    /// The exchange's own protocol, or else its recording's.
    pub wire: String,
    /// The exchange's own provider, or else its recording's.
    pub provider: String,
    /// The exchange's own model, or else its recording's.
    pub model: String,
    /// The body that was sent.
    pub request: String,
    /// Whether `request` is byte for byte what was sent; otherwise only its values are.
    pub request_exact: bool,
    /// The status of the answer.
    pub status: u16,
    /// The content type of the answer, where it was recorded.
    pub content_type: Option<String>,
    /// The body of the answer; binary for an AWS event stream.
    pub response: Vec<u8>,
    /// Whether `response` is byte for byte what was received; otherwise only its values are.
    pub response_exact: bool,
    /// Whether the answer was streamed.
    pub stream: bool,
}

/// One recorded answer whose request is not known.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Capture {
    /// The name of its file, without `.json`.
    pub name: String,
    /// The protocol.
    pub wire: String,
    /// Who answered.
    pub provider: String,
    /// Whether the answer was streamed.
    pub stream: bool,
    /// `json`, or `json-lines`: one event of the stream on each line, its own framing removed.
    pub framing: String,
    /// The body of the answer.
    pub response: String,
}

/// All recorded conversations, by folder and name; `None` where the recordings are absent.
pub fn recordings() -> Option<Vec<Recording>> {
    let home = home()?;
    let load = |folder: &'static str| {
        json_files(&home.join(folder)).into_iter().map(move |path| recording(folder, &path))
    };
    Some(FOLDERS.into_iter().flat_map(load).collect())
}

/// All answers recorded alone, by name; `None` where the recordings are absent.
pub fn captures() -> Option<Vec<Capture>> {
    let home = home()?;
    Some(json_files(&home.join("captures")).iter().map(|path| parse(path)).collect())
}

fn home() -> Option<PathBuf> {
    let folder = workspace_root().parent()?.join("shared").join("recordings");
    folder.is_dir().then_some(folder)
}

fn recording(folder: &str, path: &Path) -> Recording {
    let file: RecordingFile = parse(path);
    let exchange = |exchange: ExchangeFile| Exchange {
        path: exchange.path,
        wire: exchange.wire.unwrap_or_else(|| file.wire.clone()),
        provider: exchange.provider.unwrap_or_else(|| file.provider.clone()),
        model: exchange.model.unwrap_or_else(|| file.model.clone()),
        request: exchange.request,
        request_exact: exchange.request_exact,
        status: exchange.status,
        content_type: exchange.content_type.filter(|content_type| !content_type.is_empty()),
        response: if exchange.response_base64 {
            match STANDARD.decode(&exchange.response) {
                Ok(bytes) => bytes,
                Err(error) => panic!("{}: a response is not base64: {error}", path.display()),
            }
        } else {
            exchange.response.into_bytes()
        },
        response_exact: exchange.response_exact,
        stream: exchange.stream,
    };
    Recording {
        folder: folder.to_owned(),
        name: file.name,
        exchanges: file.exchanges.into_iter().map(exchange).collect(),
        wire: file.wire,
        provider: file.provider,
        model: file.model,
        refused: file.refused,
    }
}

/// A recording as its file writes it.
#[derive(Deserialize)]
struct RecordingFile {
    name: String,
    wire: String,
    provider: String,
    model: String,
    exchanges: Vec<ExchangeFile>,
    #[serde(default)]
    refused: Vec<usize>,
}

/// An exchange as its file writes it.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the form of the file is given")]
struct ExchangeFile {
    path: String,
    wire: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    request: String,
    request_exact: bool,
    status: u16,
    content_type: Option<String>,
    response: String,
    response_base64: bool,
    response_exact: bool,
    stream: bool,
}

/// The `.json` files directly in a folder, sorted, so that every run sees them in one order.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => panic!("cannot list {}: {error}", folder.display()),
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| match entry {
            Ok(entry) => entry.path(),
            Err(error) => panic!("cannot list {}: {error}", folder.display()),
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    paths
}

fn parse<File: DeserializeOwned>(path: &Path) -> File {
    let parsed = std::fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
    match parsed {
        Ok(file) => file,
        Err(error) => panic!("cannot read the recording {}: {error}", path.display()),
    }
}

#[cfg(test)]
#[path = "recordings_tests.rs"]
mod tests;
