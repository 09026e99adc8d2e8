//! Port that allows or denies each model call of a run, for example to enforce a budget.

use std::future::Future;
use std::pin::Pin;

use throughline_json::Name;

use crate::progress::Purpose;

/// Future returned by [`CallPermit::permit`].
pub type PermitFuture<'a> = Pin<Box<dyn Future<Output = Result<(), CallDenial>> + Send + 'a>>;

/// Decides whether a run may make its next model call. The runner requests a permit before every
/// call: turns, gate retries, reflections and summaries. The run waits for the decision, so an
/// implementation can also delay calls.
pub trait CallPermit: Send + Sync {
    /// Returns an error if the run may not call `model` now.
    fn permit<'a>(&'a self, model: &'a str, purpose: Purpose) -> PermitFuture<'a>;
}

/// Reason why a run may not make its next model call. A denial ends the run, as an exceeded limit
/// does.
#[derive(Clone, Debug, PartialEq)]
pub struct CallDenial {
    /// Name of the limit, such as `keyBudget`.
    pub limit: Name,
    /// Amount that the limit allows, in the limit's unit.
    pub allowed: f64,
    /// Amount used so far, in the limit's unit.
    pub actual: f64,
    /// One sentence that describes the problem and the fix.
    pub message: Name,
}
