//! Maps model names to endpoints. The application that embeds the gateway provides the mapping.

use std::sync::Arc;

use throughline_core::{Provider, Wire};
use throughline_json::Name;

/// Resolves model names to the endpoints that serve them.
pub trait ModelRouter: Send + Sync {
    /// Returns the targets of a model name in the order they are tried. The error is a message that
    /// lists the alternatives.
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String>;

    /// Returns the endpoint for requests on a wire that name no known model, such as requests for
    /// files and batches.
    fn of_wire(&self, wire: &Wire) -> Option<RouteTarget>;

    /// Lists the model names that clients can request.
    fn models(&self) -> Vec<Name>;
}

/// A target of a model name: a model at an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteTarget {
    /// The name by which [`Upstream`](throughline_core::Upstream) selects the endpoint.
    pub endpoint: Name,
    /// The provider account that owns the Seals issued by the endpoint.
    pub account: Name,
    /// Whether requests use the caller's own key, and therefore the caller's own account.
    pub is_callers: bool,
    /// The provider's entry in the catalog.
    pub provider: Arc<Provider>,
    /// The provider's name for the model.
    pub model: Name,
}
