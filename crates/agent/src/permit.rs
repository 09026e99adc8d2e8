//! Port that allows or denies each model call of a run, for example to enforce a budget.

use std::future::Future;
use std::pin::Pin;

use throughline_core::{Call, Reply};
use throughline_json::Name;

use crate::progress::Purpose;

/// Future returned by [`CallPermit::permit`].
pub type PermitFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn CallGrant>, CallDenial>> + Send + 'a>>;

/// Decides whether a run may make its next model call. The runner requests a permit before every
/// call: turns, gate retries, reflections and summaries. The run waits for the decision, so an
/// implementation can also delay calls.
pub trait CallPermit: Send + Sync {
    /// Returns an error if the run may not send `call` to `model` now. `model` is the configured
    /// name of the model. The grant can reserve what the call may use.
    fn permit<'a>(&'a self, model: &'a str, purpose: Purpose, call: &'a Call) -> PermitFuture<'a>;
}

/// A permitted model call. The runner keeps the grant until the call ends.
///
/// If the call is cancelled, its response breaks off, or an error leaves open whether the provider
/// processed the request, the runner drops the grant without settling it. The provider may charge
/// for such a call.
pub trait CallGrant: Send {
    /// Counts bytes of the answer as they arrive.
    fn add_received(&mut self, bytes: usize);

    /// Ends the call with its reply, or with `None` if the model did not process the request.
    fn settle(self: Box<Self>, reply: Option<&Reply>);
}

/// A grant that reserves and records nothing.
impl CallGrant for () {
    fn add_received(&mut self, _: usize) {}

    fn settle(self: Box<Self>, _: Option<&Reply>) {}
}

/// Reason why a run may not make its next model call. A denial ends the run, as an exceeded limit
/// does.
#[derive(Clone, Debug, PartialEq)]
pub struct CallDenial {
    /// Name of the limit, such as `keyBudget`.
    pub limit: Name,
    /// Amount that the limit allows, in the limit's unit.
    pub allowed: f64,
    /// Amount used so far plus the estimate for the denied call, in the limit's unit.
    pub actual: f64,
    /// One sentence that describes the problem and the fix.
    pub message: Name,
}
