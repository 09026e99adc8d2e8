//! The port by which a program decides, before every model call of a run, whether the run may make it.

use std::future::Future;
use std::pin::Pin;

use throughline_core::Name;

use crate::progress::Purpose;

/// A decision that is being made.
pub type Permitting<'a> = Pin<Box<dyn Future<Output = Result<(), CallDenial>> + Send + 'a>>;

/// Decides whether a run may make its next model call. The runner asks before every call: turns, retries of a gate,
/// reflections and summaries. The run waits for the decision, so an implementation may delay a call, too.
pub trait CallPermit: Send + Sync {
    /// Whether this model may be called now.
    fn permit<'a>(&'a self, model: &'a str, purpose: Purpose) -> Permitting<'a>;
}

/// Why a run may not make its next model call. It ends the run as a limit does.
#[derive(Clone, Debug, PartialEq)]
pub struct CallDenial {
    /// The limit, as `keyBudget`.
    pub limit: Name,
    /// How much it allows.
    pub allowed: f64,
    /// How much there is.
    pub actual: f64,
    /// What was reached, and what to do.
    pub message: Name,
}
