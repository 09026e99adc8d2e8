//! Port for programs that allow or deny each model call of a run.

use std::future::Future;
use std::pin::Pin;

use throughline_json::Name;

use crate::progress::Purpose;

/// Future of a permit decision.
pub type PermitFuture<'a> = Pin<Box<dyn Future<Output = Result<(), CallDenial>> + Send + 'a>>;

/// Decides whether a run may make its next model call. The runner consults it before every call:
/// turns, gate retries, reflections and summaries. The run waits for the decision, so an
/// implementation can also delay calls.
pub trait CallPermit: Send + Sync {
    /// Allows or denies a call to this model now.
    fn permit<'a>(&'a self, model: &'a str, purpose: Purpose) -> PermitFuture<'a>;
}

/// Reason why a run may not make its next model call. It ends the run like a limit does.
#[derive(Clone, Debug, PartialEq)]
pub struct CallDenial {
    /// Name of the limit, such as `keyBudget`.
    pub limit: Name,
    /// Amount that the limit allows.
    pub allowed: f64,
    /// Amount used so far.
    pub actual: f64,
    /// Problem and remedy, as one sentence.
    pub message: Name,
}
