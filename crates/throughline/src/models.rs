//! Models behind the providers' endpoints, by name; and what it takes to reach them.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_codec::Catalog;

pub use throughline_provider::{
    AwsKeys, Endpoint, EndpointModel, EndpointModels, EndpointOptions, Http, InvalidEndpoint,
    Lookup, Source, Whereabouts,
};

/// The models of all providers whose keys the usual variables hold, by names as `anthropic/claude-sonnet-4-5`. The variables
/// are looked up by whoever may read them: `usual(&|name| std::env::var(name).ok())`.
pub fn usual(variables: Lookup<'_>) -> Result<EndpointModels, InvalidEndpoint> {
    EndpointModels::usual(variables, Arc::new(now))
}

/// The models behind these endpoints, by names as `anthropic/claude-sonnet-4-5`, with the rows of that catalog.
pub fn at(
    catalog: Catalog,
    endpoints: impl IntoIterator<Item = Endpoint>,
) -> Result<EndpointModels, InvalidEndpoint> {
    EndpointModels::at(catalog, endpoints, Arc::new(now))
}

#[expect(clippy::disallowed_methods, reason = "retries wait by the clock of the machine")]
fn now() -> Timestamp {
    Timestamp::now()
}
