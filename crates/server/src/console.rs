//! The console: the page at `/`, and its API under `/v1/throughline/`.
//!
//! The API serves the console's pages: it returns only the data of the caller's tenant, redacts
//! secrets, and shows the size of a Seal instead of its bytes. `routes.rs` lists the routes, and
//! [`assets`] contains the page.
//!
//! | file | contents |
//! |---|---|
//! | `assets.rs` | the page, built from `ui/` and embedded in the binary |
//! | `runs.rs` | the list of runs, one run, and its trace |
//! | `events.rs`, `stream_redactor.rs` | the events of a run as a resumable stream; redaction of its text |
//! | `threads.rs`, `items.rs`, `thought_map.rs` | threads; their Items as a conversation; which model had which Thought, and where it was sent back |
//! | `overview.rs` | calls, errors, latencies, cost and restored Thoughts by day |
//! | `calls.rs`, `reply.rs` | the list of gateway calls, and one call with its reply |
//! | `time_range.rs` | ranges of time in queries |
//! | `inbox.rs` | approvals and questions for a person, and decisions on them |
//! | `journal.rs` | verification, manifest, export, and usage by hour |
//! | `keys.rs` | the list and the management of keys, and their budgets |
//! | `model_routes.rs` | the routes of the tenant |
//! | `settings.rs` | the configuration, and the health of providers and of the store |
//! | `simulators.rs` | the ledger of the built-in simulators |
//! | `doctor.rs` | audit, repair and translation of a pasted request |

pub(crate) mod assets;
pub(crate) mod calls;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod inbox;
pub(crate) mod items;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod model_routes;
pub(crate) mod overview;
mod reply;
pub(crate) mod runs;
pub(crate) mod settings;
pub(crate) mod simulators;
pub(crate) mod thought_map;
pub(crate) mod threads;
mod time_range;

use throughline_core::{ErasureEpoch, LogHead, LogId, LogKind};
use throughline_json::{Json, Tree};
use throughline_spec::Archive;

use crate::api::{ApiError, ApiRequest, ApiResult};

/// Maximum number of entries on one page of a list.
const MAX_PAGE: usize = 200;
/// Number of logs per store query for a list without a limit.
const LOGS: usize = 100;
/// Maximum number of logs to read for one page of a list. A page with fewer entries contains the
/// cursor of the next page, so a filter that matches little costs no more in a long list.
const MOST_LOOKED: usize = 1000;

/// Returns the archive that the console reads, or 501 if the server has no archive.
fn archive<'a>(request: &'a ApiRequest<'_>) -> ApiResult<&'a dyn Archive> {
    request.api.archive.as_deref().ok_or_else(no_archive)
}

fn no_archive() -> ApiError {
    ApiError::new(501, "the console is not available: this server has no archive")
}

/// Maximum number of logs that are read at once for a page of a list.
const LARGEST_PAGE: u32 = 128;
/// Number of logs that are read at once if all logs are read.
const ALL_LOGS: u32 = 512;

/// Lists the tenant's logs of one kind, newest first, starting after the query's `after`.
struct LogList<'r> {
    request: &'r ApiRequest<'r>,
    kind: LogKind,
    page: std::vec::IntoIter<LogHead>,
    /// Number of logs to read at once.
    size: u32,
    /// The cursor of the next page; `None` at the end.
    next: Option<LogId>,
}

impl<'r> LogList<'r> {
    fn new(request: &'r ApiRequest<'r>, kind: LogKind) -> Self {
        let next = request.query.get("after").cloned().map(LogId);
        // A larger page would read logs that a short list does not show.
        let size = u32::try_from(row_limit(request, LOGS)).unwrap_or(0).clamp(8, LARGEST_PAGE);
        Self { request, kind, page: Vec::new().into_iter(), size, next }
    }

    /// Lists all logs of one kind, whatever the query's `after` and `limit`.
    fn of_all(request: &'r ApiRequest<'r>, kind: LogKind) -> Self {
        Self { request, kind, page: Vec::new().into_iter(), size: ALL_LOGS, next: None }
    }

    /// Reads more logs at once from now on, because many of them are not shown.
    fn enlarge_pages(&mut self) {
        self.size = LARGEST_PAGE;
    }

    async fn next(&mut self) -> ApiResult<Option<LogHead>> {
        if self.page.len() == 0 {
            let (archive, tenant) = (archive(self.request)?, &self.request.caller.tenant);
            let page = archive.logs(tenant, self.kind, self.next.as_ref(), self.size).await?;
            self.page = page.into_iter();
        }
        let head = self.page.next();
        self.next = head.as_ref().map(|head| head.log.clone());
        Ok(head)
    }
}

/// Returns the query's `limit`, or `default`, capped at [`MAX_PAGE`].
fn row_limit(request: &ApiRequest<'_>, default: usize) -> usize {
    let limit = request.query.get("limit").and_then(|limit| limit.parse().ok());
    limit.unwrap_or(default).min(MAX_PAGE)
}

/// Returns whether any of the texts contains the query's `search`, ignoring case.
fn matches_search<'t>(request: &ApiRequest<'_>, texts: impl IntoIterator<Item = &'t str>) -> bool {
    let Some(search) = request.query.get("search") else { return true };
    let search = search.to_lowercase();
    texts.into_iter().any(|text| text.to_lowercase().contains(&search))
}

/// Returns the erasure epoch of the caller's tenant. Data cached in an earlier epoch may have been
/// erased since.
async fn erasure_epoch(request: &ApiRequest<'_>) -> ApiResult<ErasureEpoch> {
    Ok(request.api.store().find(&request.caller.tenant, &[]).await?.era)
}

/// Formats a number with six decimal places.
fn decimal(number: f64) -> Json {
    Json::parse(format!("{number:.6}")).unwrap_or_else(|_| Json::null())
}

/// Parses a stored document; `None` if it is not JSON.
fn parse_stored(bytes: &bytes::Bytes) -> Option<Tree> {
    Tree::parse(bytes.clone()).ok()
}
