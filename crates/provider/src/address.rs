//! Resolves host names and drops addresses that must never be contacted.
//!
//! Host names are resolved in this module, so that the check applies to the address of the actual
//! connection. Literal addresses skip DNS and are checked separately. Loopback and private networks
//! are allowed, because Ollama and vLLM usually run on them.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use throughline_core::{BlockedAddress, allowed_addresses, check_host};
use tower_service::Service;
use url::Url;

/// Fails if a URL's host is a blocked literal address.
pub(crate) fn check(url: &Url) -> Result<(), BlockedAddress> {
    check_host(url.host_str().unwrap_or_default())
}

/// Pending result of a DNS lookup.
type LookupFuture<A, E> = Pin<Box<dyn Future<Output = Result<A, E>> + Send>>;

/// Function that resolves a host name.
type ResolveFn = fn(Name) -> LookupFuture<Vec<SocketAddr>, io::Error>;

/// A DNS resolver that drops blocked addresses.
#[derive(Clone, Copy)]
pub(crate) struct FilteredResolver {
    lookup: ResolveFn,
}

impl FilteredResolver {
    pub(crate) fn system() -> Self {
        Self::with_lookup(|name| {
            Box::pin(
                async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) },
            )
        })
    }

    /// Creates a resolver with a custom lookup function, for tests.
    pub(crate) fn with_lookup(lookup: ResolveFn) -> Self {
        Self { lookup }
    }
}

impl Service<Name> for FilteredResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = LookupFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let host = name.as_str().to_owned();
        let found = (self.lookup)(name);
        Box::pin(async move { Ok(allowed_addresses(&host, found.await?)?.into_iter()) })
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod address_tests;
