//! Which endpoints answer a model name. The program that embeds the gateway decides it.

use std::sync::Arc;

use throughline_core::{Provider, Wire};
use throughline_json::Name;

/// Resolves model names to the endpoints that serve them.
pub trait ModelRouter: Send + Sync {
    /// Returns the targets of a model name in the order they are tried. The error message lists the
    /// alternatives.
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String>;

    /// Returns the endpoint that serves all other requests of a wire, such as files and batches.
    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget>;

    /// Lists the model names that clients can request.
    fn models(&self) -> Vec<Name>;
}

/// A model at an endpoint: one target of a model name.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteTarget {
    /// The name under which [`Upstream`](throughline_core::Upstream) reaches the endpoint.
    pub endpoint: Name,
    /// The account that owns the Seals issued there.
    pub account: Name,
    /// Whether requests use the caller's own key, and therefore the caller's own account.
    pub is_callers: bool,
    /// The provider's catalog row.
    pub provider: Arc<Provider>,
    /// The provider's name for the model.
    pub model: Name,
}
