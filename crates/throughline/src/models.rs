//! Models of the providers' endpoints, by name, and the ports that a model of your own implements.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_codec::Catalog;

pub use throughline_core::{
    BodyStream, Credential, EventStream, Model, ModelError, ModelErrorKind, ModelFuture,
    ModelRegistry, ModelStream, TimeoutPhase, Upstream, UpstreamError, UpstreamFuture,
    UpstreamRequest, UpstreamResponse,
};
pub use throughline_provider::{
    AwsKeys, BreakerPolicy, CredentialSource, Endpoint, EndpointModel, EndpointModels,
    EndpointOptions, EnvLookup, Http, InvalidEndpoint, ModelResolver, RetryPolicy,
};

/// Returns the models of all providers whose API keys are set in their usual variables, with names
/// such as `anthropic/claude-sonnet-5-5`. The caller supplies the lookup: `from_env(&|name|
/// std::env::var(name).ok())`.
pub fn from_env(variables: EnvLookup<'_>) -> Result<EndpointModels, InvalidEndpoint> {
    EndpointModels::from_env(variables, Arc::new(now))
}

/// Returns the models of these endpoints with the entries of a catalog, with names such as
/// `anthropic/claude-sonnet-5-5`.
pub fn with_endpoints(
    catalog: Catalog,
    endpoints: impl IntoIterator<Item = Endpoint>,
) -> Result<EndpointModels, InvalidEndpoint> {
    EndpointModels::from_endpoints(catalog, endpoints, Arc::new(now))
}

#[expect(clippy::disallowed_methods, reason = "retries wait by the clock of the machine")]
fn now() -> Timestamp {
    Timestamp::now()
}
