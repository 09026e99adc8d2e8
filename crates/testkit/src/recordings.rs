//! Real exchanges with providers, recorded by public projects, as evidence for the codecs.
//!
//! The recordings are in `../shared/recordings`, beside the workspace. A test that needs them calls
//! [`skip`](crate::skip) if they are absent. A file with an unexpected format causes a panic,
//! because ignoring files would silently reduce the evidence.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::workspace::workspace_root;

/// Folders with whole conversations: with one provider (`.`), with several providers (`mixed`), and
/// with refused requests (`refusals`).
const FOLDERS: [&str; 3] = [".", "mixed", "refusals"];

/// One recorded conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The folder: `.`, `mixed` or `refusals`.
    pub folder: String,
    /// The file name without `.json`.
    pub name: String,
    /// Wire name, such as `openai-responses`. In `mixed`, each exchange has its own wire.
    pub wire: String,
    /// Provider name. In `mixed`, each exchange has its own provider.
    pub provider: String,
    /// Requested model. In `mixed`, each exchange has its own model.
    pub model: String,
    /// The requests and responses, in order.
    pub exchanges: Vec<Exchange>,
    /// Indexes of the exchanges that were refused because of a rule about reasoning. Empty outside
    /// `refusals`.
    pub refused: Vec<usize>,
}

/// One request and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The path and query of the URL.
    pub path: String,
    /// Wire name of the exchange.
    pub wire: String,
    /// Provider name of the exchange.
    pub provider: String,
    /// Model requested in the exchange.
    pub model: String,
    /// Request body as JSON text.
    pub request: String,
    /// Whether `request` is byte-identical to the original. Otherwise only its JSON values are
    /// equal.
    pub request_exact: bool,
    /// HTTP status of the response.
    pub status: u16,
    /// `Content-Type` header of the response, if it was recorded.
    pub content_type: Option<String>,
    /// Response body; binary for an AWS event stream.
    pub response: Vec<u8>,
    /// Whether `response` is byte-identical to the original. Otherwise only its JSON values are
    /// equal.
    pub response_exact: bool,
    /// Whether the response was streamed.
    pub stream: bool,
}

/// One recorded response without its request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Capture {
    /// The file name without `.json`.
    pub name: String,
    /// Wire name, such as `openai-responses`.
    pub wire: String,
    /// Name of the provider that sent the response.
    pub provider: String,
    /// Whether the response was streamed.
    pub stream: bool,
    /// Format of `response`: `json`, or `json-lines` with one stream event per line, without the
    /// original framing.
    pub framing: String,
    /// Response body as text.
    pub response: String,
}

/// Returns all recorded conversations, sorted by folder and name, or `None` if the recordings are
/// absent.
pub fn recordings() -> Option<Vec<Recording>> {
    let home = home()?;
    let load = |folder: &'static str| {
        json_files(&home.join(folder)).into_iter().map(move |path| recording(folder, &path))
    };
    Some(FOLDERS.into_iter().flat_map(load).collect())
}

/// Returns all responses without requests, sorted by name, or `None` if the recordings are absent.
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

/// A recording as stored in its JSON file.
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

/// An exchange as stored in the JSON file of its recording.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the file format is given")]
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

/// Returns the `.json` files directly in a folder, sorted for a stable order.
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
