//! Errors that requests to provider endpoints return.

use std::time::Duration;

use throughline_json::{Name, words};

/// A failed request to a provider's endpoint. Messages never contain keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// No endpoint with that name is configured.
    #[error("endpoint `{endpoint}` is not configured; configure the endpoint or set its API key")]
    UnknownEndpoint {
        /// The name that the request specified.
        endpoint: Name,
    },
    /// Neither the endpoint nor the caller has an API key.
    #[error("no API key for {endpoint}; {}", advice(.variable.as_deref()))]
    NoCredential {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The environment variable that usually holds the key.
        variable: Option<Name>,
    },
    /// The source of the endpoint's credential failed. Nothing was sent.
    #[error("no credential for {endpoint}: {problem}")]
    CredentialUnavailable {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The source, what failed, and what to do. This text ends the error message.
        problem: Name,
    },
    /// The endpoint's address is link-local or belongs to a cloud metadata service.
    #[error(
        "refused to connect to {endpoint}: {address} is a link-local or cloud metadata address"
    )]
    Refused {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The blocked host name, or the blocked address to which the host name resolves.
        address: Name,
    },
    /// The request is malformed and was not sent.
    #[error("cannot send the request to {endpoint}: {problem}")]
    Invalid {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// What is wrong with the request. This text ends the error message.
        problem: Name,
    },
    /// The connection could not be established. Nothing was sent.
    #[error("cannot reach {endpoint}: {cause}")]
    Unreachable {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The network error, as text.
        cause: Name,
    },
    /// The endpoint did not respond within a timeout.
    #[error("{endpoint} took more than {} {waiting}", format_duration(*.limit))]
    TimedOut {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The phase that timed out.
        waiting: TimeoutPhase,
        /// The configured timeout.
        limit: Duration,
    },
    /// The connection broke after the request was sent.
    #[error("the connection to {endpoint} broke: {cause}")]
    Cut {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The network error, as text.
        cause: Name,
    },
    /// The circuit breaker is open after repeated failures. Nothing was sent.
    #[error("{endpoint} failed repeatedly; the next request is allowed in {}", format_duration(*.left))]
    Resting {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The time until the next attempt is allowed.
        left: Duration,
    },
    /// The response exceeds the size limit.
    #[error("the response from {endpoint} exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The endpoint's name in the configuration.
        endpoint: Name,
        /// The limit in bytes.
        limit: u64,
    },
}

impl UpstreamError {
    /// Returns whether the provider may have processed the request, and may therefore charge for
    /// it although there is no complete response.
    pub fn may_be_charged(&self) -> bool {
        match self {
            Self::TimedOut { waiting, .. } => match waiting {
                TimeoutPhase::Connecting => false,
                TimeoutPhase::FirstByte | TimeoutPhase::NextByte => true,
            },
            Self::Cut { .. } | Self::TooLarge { .. } => true,
            Self::UnknownEndpoint { .. }
            | Self::NoCredential { .. }
            | Self::CredentialUnavailable { .. }
            | Self::Refused { .. }
            | Self::Invalid { .. }
            | Self::Unreachable { .. }
            | Self::Resting { .. } => false,
        }
    }
}

words! {
    /// The phase of a request that timed out.
    TimeoutPhase {
        /// Establishing the connection.
        Connecting = "to connect",
        /// Waiting for the first byte of the response.
        FirstByte = "to start its response",
        /// Waiting for the next byte of the response.
        NextByte = "to continue its response",
    }
}

fn advice(variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("set {variable} or send a key with the request"),
        None => "configure a key or send one with the request".to_owned(),
    }
}

/// Formats a duration in milliseconds if it is below one second, otherwise in seconds, rounded up.
fn format_duration(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis().max(1))
    } else {
        format!("{} s", time.as_secs_f64().ceil())
    }
}
