//! Addresses that nothing is ever sent to: link-local ones, and the metadata services of clouds.
//!
//! Whoever may choose an address could otherwise have the machine's own credentials read to them. The address that is
//! really connected to is what counts, so names are looked up here; literal addresses are never looked up, and are checked
//! on their own. Loopback and private networks are allowed, since that is where Ollama and vLLM live.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;
use url::Url;

/// Why nothing is sent: the host or the address that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is link-local or a metadata service")]
pub(crate) struct OutOfBounds(pub(crate) String);

/// Metadata services that are not link-local: of AWS over IPv6, and of Alibaba Cloud.
const METADATA: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
];

const METADATA_HOST: &str = "metadata.google.internal";

/// What a URL itself says about where it leads.
pub(crate) fn check(url: &Url) -> Result<(), OutOfBounds> {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let literal = bare.parse::<IpAddr>().is_ok_and(is_out_of_bounds);
    if literal || host.trim_end_matches('.').eq_ignore_ascii_case(METADATA_HOST) {
        return Err(OutOfBounds(host.to_owned()));
    }
    Ok(())
}

fn is_out_of_bounds(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(long) => embedded(long).map_or(address, IpAddr::V4),
    };
    let link_local = match address {
        IpAddr::V4(short) => short.is_link_local(),
        IpAddr::V6(long) => long.is_unicast_link_local(),
    };
    link_local || METADATA.contains(&address)
}

/// The IPv4 address that an IPv6 address stands for: mapped, or translated by NAT64.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let translated = match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    };
    address.to_ipv4().or(translated)
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
        Box::pin(async move { Ok(allowed(&host, found.await?)?) })
    }
}

/// The addresses of a name that may be connected to. Machines in the same house often have a link-local address besides
/// their real one, so a name is refused only if nothing is left.
fn allowed(name: &str, found: Vec<SocketAddr>) -> Result<vec::IntoIter<SocketAddr>, OutOfBounds> {
    let (refused, kept): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.into_iter().partition(|address| is_out_of_bounds(address.ip()));
    match refused.first() {
        Some(address) if kept.is_empty() => Err(OutOfBounds(format!("{} ({name})", address.ip()))),
        _ => Ok(kept.into_iter()),
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod address_tests;
