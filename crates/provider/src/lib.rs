//! The providers' endpoints behind the port [`Upstream`](throughline_core::Upstream): keys, retries, and the HTTP client.
//!
//! [`Http`] sends what it is given to the [`Endpoint`] that is named, with that endpoint's key, and hands back what the
//! provider answers, byte for byte. It retries only what is safe to repeat, leaves an endpoint alone that keeps failing, and
//! never connects to link-local addresses or a cloud's metadata service. Nothing here reads the environment: [`usual_key`]
//! and [`usual_address`] ask whoever does. [`EndpointModel`] joins an endpoint and the codec of its wire to
//! the port [`Model`](throughline_core::Model).

mod address;
mod auth;
mod breaker;
mod client;
mod endpoint;
mod environment;
mod http;
mod model;
mod retry;
mod sigv4;
mod tls;

pub use crate::auth::Scheme;
pub use crate::breaker::BreakerPolicy;
pub use crate::endpoint::{Endpoint, EndpointOptions, InvalidEndpoint, Source};
pub use crate::environment::{
    AWS_ACCESS_KEY_ID, Lookup, Unheard, UsualAddress, UsualKey, in_region, needs_key,
    usual_address, usual_key,
};
pub use crate::http::{Clock, Http};
pub use crate::model::{EndpointModel, EndpointModels, Whereabouts};
pub use crate::retry::RetryPolicy;
pub use crate::sigv4::AwsKeys;
