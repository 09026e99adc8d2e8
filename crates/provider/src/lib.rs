//! Provider endpoints that implement the [`Upstream`](throughline_core::Upstream) port:
//! credentials, retries and the HTTP client.
//!
//! [`Http`] sends a request to the named [`Endpoint`] with that endpoint's key, and returns the
//! response byte for byte. It retries only requests that are safe to repeat, and circuit breakers
//! reject requests to failing endpoints. It never connects to link-local addresses or cloud
//! metadata services, except for credentials: a [`DynamicCredential`] is read from a file, a
//! command or the identity service of a cloud, and refreshed. Except for the AWS SDK, this crate
//! does not read the environment: [`key_from_env`] and [`address_from_env`] take a lookup function.
//! [`EndpointModel`] combines an endpoint with the codec for its wire and implements the
//! [`Model`](throughline_core::Model) port. [`OidcProvider`] signs people in with OpenID Connect.

mod address;
mod auth;
mod breaker;
mod client;
mod credential;
mod endpoint;
mod environment;
mod http;
mod lookup;
mod model;
mod oidc;
mod redact;
mod retry;
mod sigv4;
mod tls;

pub use crate::auth::Scheme;
pub use crate::breaker::BreakerPolicy;
pub use crate::credential::{
    AwsSettings, CommandSettings, CredentialSettings, DynamicCredential, EntraLogin, EntraSettings,
    FailureLog, FetchError, GoogleSettings, ServicePrincipal,
};
pub use crate::endpoint::{CredentialSource, Endpoint, EndpointOptions, InvalidEndpoint};
pub use crate::environment::{
    AWS_ACCESS_KEY_ID, EnvAddress, EnvKey, EnvWarning, address_from_env, in_region, key_from_env,
    needs_key,
};
pub use crate::http::{Clock, Http};
pub use crate::lookup::EnvLookup;
pub use crate::model::{EndpointModel, EndpointModels, ModelResolver, TargetOrder};
pub use crate::oidc::{OidcProvider, OidcSettings};
pub use crate::retry::RetryPolicy;
pub use crate::sigv4::AwsKeys;
