//! The console: the page at `/`, and its API under `/v1/throughline/`.
//!
//! The API serves people. It returns only data of the caller's tenant, redacts secrets, and shows
//! Seals by their size. The routes are listed in `routes.rs`, and the page is in [`assets`].
//!
//! | file | contents |
//! |---|---|
//! | `assets.rs` | the page, built from `ui/` and embedded in the binary |
//! | `runs.rs` | the list of runs, and one run |
//! | `events.rs`, `stream_redactor.rs` | the events of a run as a resumable stream; redaction of its text |
//! | `threads.rs`, `thought_map.rs` | threads; which model had which Thought, and where it was sent back |
//! | `calls.rs` | the list of gateway calls, and one call |
//! | `inbox.rs` | approvals and questions for a person, and decisions on them |
//! | `journal.rs` | verification, manifest, export, keys, and usage by hour |
//! | `trace.rs` | the trace of a run, as sinks receive it |
//! | `doctor.rs` | audit, repair and translation of a pasted request |

pub(crate) mod assets;
pub(crate) mod calls;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod inbox;
pub(crate) mod journal;
pub(crate) mod run_trace;
pub(crate) mod runs;
mod stream_redactor;
pub(crate) mod thought_map;
pub(crate) mod threads;

use throughline_core::ErasureEpoch;
use throughline_json::{Json, Tree};
use throughline_spec::{Archive, RedactionPolicy, ThoughtRedaction};

pub(crate) use crate::api::{ApiError, ApiRequest};

/// The archive that the console reads.
fn archive<'a>(asked: &'a ApiRequest<'_>) -> Result<&'a dyn Archive, ApiError> {
    asked.api.archive.as_deref().ok_or_else(no_archive)
}

fn no_archive() -> ApiError {
    ApiError::new(501, "the console is not available: this server has no archive")
}

/// The erasure epoch of the caller's tenant. Data cached in another epoch may have been erased
/// since.
async fn erasure_epoch(asked: &ApiRequest<'_>) -> Result<ErasureEpoch, ApiError> {
    Ok(asked.api.store().find(&asked.caller.tenant, &[]).await?.era)
}

/// Redacts a value for display.
fn redact(policy: &RedactionPolicy, value: &Json) -> Json {
    policy.redact_json(value, ThoughtRedaction::Redact).into_owned()
}

/// A number with six decimal places.
fn decimal(number: f64) -> Json {
    Json::parse(format!("{number:.6}")).unwrap_or_else(|_| Json::null())
}

/// Parses a stored document; `None` if it is not JSON.
fn parse_stored(bytes: &bytes::Bytes) -> Option<Tree> {
    Tree::parse(bytes.clone()).ok()
}
