//! Models at provider endpoints, looked up by name, and the ports that a custom model implements.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_codec::Catalog;

pub use throughline_core::{
    BodyStream, Credential, EventStream, Model, ModelError, ModelErrorKind, ModelFuture,
    ModelRegistry, ModelStream, TimeoutPhase, Upstream, UpstreamError, UpstreamFuture,
    UpstreamRequest, UpstreamResponse,
};
pub use throughline_provider::{
    AwsKeys, AwsSettings, BreakerPolicy, CommandSettings, CredentialSettings, CredentialSource,
    DynamicCredential, Endpoint, EndpointModel, EndpointModels, EndpointOptions, EntraLogin,
    EntraSettings, EnvLookup, FailureLog, FetchError, GoogleSettings, Http, InvalidEndpoint,
    ModelResolver, RetryPolicy, ServicePrincipal,
};

/// Returns the models of all providers that need no key, or whose usual environment variable
/// contains a key. Model names look like `anthropic/claude-sonnet-5-5`. The caller passes the
/// lookup of environment variables: `from_env(&|name| std::env::var(name).ok())`.
pub fn from_env(variables: EnvLookup<'_>) -> Result<EndpointModels, InvalidEndpoint> {
    EndpointModels::from_env(variables, Arc::new(now))
}

/// Returns the models at the given endpoints, with names such as `anthropic/claude-sonnet-5-5`. The
/// catalog supplies the requirements of the models.
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
