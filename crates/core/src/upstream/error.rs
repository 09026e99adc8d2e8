//! What can go wrong on the way to a provider and back.

use std::time::Duration;

use crate::name::Name;

/// What can go wrong on the way to a provider and back. No message holds a key or an address with one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// No endpoint of that name is configured.
    #[error("there is no endpoint named `{endpoint}`: configure it, or set its key")]
    UnknownEndpoint {
        /// The name.
        endpoint: Name,
    },
    /// Neither the endpoint nor the caller has a key.
    #[error("there is no key for {endpoint}: {}", advice(.variable.as_deref()))]
    NoCredential {
        /// The endpoint.
        endpoint: Name,
        /// The environment variable that usually holds the key.
        variable: Option<Name>,
    },
    /// The address belongs to the machine's own surroundings and to no provider.
    #[error(
        "{endpoint} is at {address}, which is link-local or a cloud's metadata service: nothing is sent there"
    )]
    Refused {
        /// The endpoint.
        endpoint: Name,
        /// The host or the address that it turned out to have.
        address: Name,
    },
    /// The request cannot be sent as it is.
    #[error("the request to {endpoint} cannot be sent: {problem}")]
    Invalid {
        /// The endpoint.
        endpoint: Name,
        /// What is wrong with it.
        problem: Name,
    },
    /// No connection came about. Nothing was sent.
    #[error("{endpoint} cannot be reached: {cause}")]
    Unreachable {
        /// The endpoint.
        endpoint: Name,
        /// What the network said.
        cause: Name,
    },
    /// It took too long.
    #[error("{endpoint} took more than {} {waiting}", short(*.limit))]
    TimedOut {
        /// The endpoint.
        endpoint: Name,
        /// What was waited for.
        waiting: Waiting,
        /// How long was waited.
        limit: Duration,
    },
    /// The connection broke after the request was sent.
    #[error("the connection to {endpoint} broke: {cause}")]
    Cut {
        /// The endpoint.
        endpoint: Name,
        /// What the network said.
        cause: Name,
    },
    /// The endpoint failed again and again, so it is left alone for a while. Nothing was sent.
    #[error("{endpoint} failed repeatedly and is tried again in {}", short(*.left))]
    Resting {
        /// The endpoint.
        endpoint: Name,
        /// How long it is still left alone.
        left: Duration,
    },
    /// The answer is larger than is allowed.
    #[error("the answer of {endpoint} has more than {limit} bytes")]
    TooLarge {
        /// The endpoint.
        endpoint: Name,
        /// How many bytes it may have.
        limit: u64,
    },
}

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// The connection.
    Connecting,
    /// The first byte of the answer.
    FirstByte,
    /// The next byte of the answer.
    NextByte,
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Waiting::Connecting => "to connect",
            Waiting::FirstByte => "to begin its answer",
            Waiting::NextByte => "to go on with its answer",
        })
    }
}

fn advice(variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("set {variable}, or send one with the request"),
        None => "configure one, or send one with the request".to_owned(),
    }
}

/// A time as people say it, and never as nothing.
fn short(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis().max(1))
    } else {
        format!("{} s", time.as_secs_f64().ceil())
    }
}
