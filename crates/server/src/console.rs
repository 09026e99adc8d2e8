//! The console: the page at `/`, and what it asks under `/v1/throughline/`.
//!
//! What is told here is for people: of the caller's tenant only, without the usual secrets, and with seals by their size. The
//! routes stand with all the others in `letta/routes.rs`, and the page is [`assets`].
//!
//! | file | holds |
//! |---|---|
//! | `assets.rs` | the page, as it was built from `ui/` and lies in the binary |
//! | `runs.rs`, `summary.rs` | runs, listed and shown; what a run is in a few numbers |
//! | `events.rs`, `pieces.rs` | the events of a run as a stream that goes on after any of them; text that comes in pieces |
//! | `threads.rs`, `map.rs` | threads; which model thought what, and where it went back |
//! | `calls.rs` | calls of the gateway, listed and shown |
//! | `inbox.rs` | what waits for a person, and what the person says |
//! | `journal.rs` | proof, manifest, export, keys, and what was used day by day |
//! | `trace.rs` | the trace of a run, as sinks get it |
//! | `doctor.rs` | a request that somebody pastes: its audit, its repair, its translation |

pub(crate) mod assets;
pub(crate) mod calls;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod inbox;
pub(crate) mod journal;
pub(crate) mod map;
mod pieces;
pub(crate) mod runs;
mod summary;
pub(crate) mod threads;
pub(crate) mod trace;

use throughline_core::{Archive, Era, Json, RedactionPolicy, Thoughts, Tree};

pub(crate) use crate::console::summary::Summaries;
pub use crate::console::trace::RunTraces;
use crate::letta::{Asked, Denied};

/// What is kept, to look at.
fn archive<'a>(asked: &'a Asked<'_>) -> Result<&'a dyn Archive, Denied> {
    asked.api.archive.as_deref().ok_or_else(no_archive)
}

fn no_archive() -> Denied {
    Denied::new(501, "nothing can be looked at here: there is no archive")
}

/// The era of the caller's tenant: what was remembered in another one may have been destroyed since.
async fn era(asked: &Asked<'_>) -> Result<Era, Denied> {
    Ok(asked.api.store().find(&asked.caller.tenant, &[]).await?.era)
}

/// A value as people are shown it.
fn shown(policy: &RedactionPolicy, value: &Json) -> Json {
    policy.redact_json(value, Thoughts::Redact).into_owned()
}

/// A number with digits behind its point.
fn decimal(number: f64) -> Json {
    Json::parse(format!("{number:.6}")).unwrap_or_else(|_| Json::null())
}

/// The first words of a text, in one line.
fn first_words(text: &str, most: usize) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if words.chars().count() + word.chars().count() > most {
            words.extend(word.chars().take(most.saturating_sub(words.chars().count())));
            words.push('…');
            break;
        }
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    words
}

/// A document of our own, if it is one.
fn tree_of(bytes: &bytes::Bytes) -> Option<Tree> {
    Tree::parse(bytes.clone()).ok()
}
