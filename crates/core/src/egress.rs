//! Blocks outgoing connections to link-local addresses and cloud metadata services.
//!
//! Otherwise a caller that can choose an address could read the machine's credentials from the
//! metadata service. Loopback and private networks are allowed, because local models and tools run
//! there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A host or address that Throughline refuses to connect to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is a link-local or cloud metadata address")]
pub struct BlockedAddress(pub String);

/// Metadata services that are not link-local: AWS over IPv6, and Alibaba Cloud.
const METADATA: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
];

const METADATA_HOST: &str = "metadata.google.internal";

/// Checks the host of a URL: a name, or an address in the form a URL parser produces.
pub fn check_host(host: &str) -> Result<(), BlockedAddress> {
    let unbracketed = host.trim_start_matches('[').trim_end_matches(']');
    let literal = unbracketed.parse::<IpAddr>().is_ok_and(is_blocked);
    if literal || host.trim_end_matches('.').eq_ignore_ascii_case(METADATA_HOST) {
        return Err(BlockedAddress(host.to_owned()));
    }
    Ok(())
}

/// Removes blocked addresses from the resolved addresses of a host name. The name is refused only
/// if no address remains, because machines on a local network often have a link-local address in
/// addition to a routable address.
pub fn allowed_addresses(
    name: &str,
    found: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, BlockedAddress> {
    let (blocked, allowed): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.into_iter().partition(|address| is_blocked(address.ip()));
    match blocked.first() {
        Some(address) if allowed.is_empty() => {
            Err(BlockedAddress(format!("{} ({name})", address.ip())))
        }
        _ => Ok(allowed),
    }
}

fn is_blocked(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(long) => embedded_ipv4(long).map_or(address, IpAddr::V4),
    };
    let link_local = match address {
        IpAddr::V4(short) => short.is_link_local(),
        IpAddr::V6(long) => long.is_unicast_link_local(),
    };
    link_local || METADATA.contains(&address)
}

/// Returns the IPv4 address embedded in an IPv6 address (IPv4-mapped or NAT64).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let translated = match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    };
    address.to_ipv4().or(translated)
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod bounds_tests;
