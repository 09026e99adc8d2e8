//! Names are looked up, and addresses that nothing is ever sent to are left out.
//!
//! The address that is really connected to is what counts, so names are looked up here; literal addresses are never looked
//! up, and are checked on their own. Loopback and private networks are allowed, since that is where Ollama and vLLM live.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use throughline_core::{OutOfBounds, check_host, within_bounds};
use tower_service::Service;
use url::Url;

/// What a URL itself says about where it leads.
pub(crate) fn check(url: &Url) -> Result<(), OutOfBounds> {
    check_host(url.host_str().unwrap_or_default())
}

/// Addresses, once they are found.
type Finding<A, E> = Pin<Box<dyn Future<Output = Result<A, E>> + Send>>;

/// How a name is looked up.
type Lookup = fn(Name) -> Finding<Vec<SocketAddr>, io::Error>;

/// Looks names up, and leaves out what is out of bounds.
#[derive(Clone, Copy)]
pub(crate) struct Guarded {
    lookup: Lookup,
}

impl Guarded {
    /// Looks names up as the system does.
    pub(crate) fn system() -> Self {
        Self::over(|name| {
            Box::pin(
                async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) },
            )
        })
    }

    /// Looks names up in that way.
    pub(crate) fn over(lookup: Lookup) -> Self {
        Self { lookup }
    }
}

impl Service<Name> for Guarded {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Finding<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let host = name.as_str().to_owned();
        let found = (self.lookup)(name);
        Box::pin(async move { Ok(within_bounds(&host, found.await?)?.into_iter()) })
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod address_tests;
