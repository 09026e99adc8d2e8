//! Addresses that nothing is ever sent to: link-local ones, and the metadata services of clouds.
//!
//! Whoever may choose an address could otherwise have the machine's own credentials read to them. Loopback and private
//! networks are allowed, since that is where people run models and tools of their own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Why nothing is sent: the host or the address that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is link-local or a metadata service")]
pub struct OutOfBounds(pub String);

/// Metadata services that are not link-local: of AWS over IPv6, and of Alibaba Cloud.
const METADATA: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
];

const METADATA_HOST: &str = "metadata.google.internal";

/// What the host of a URL itself says about where it leads: a name, or an address in the form that a URL parser gives it.
pub fn check_host(host: &str) -> Result<(), OutOfBounds> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let literal = bare.parse::<IpAddr>().is_ok_and(is_out_of_bounds);
    if literal || host.trim_end_matches('.').eq_ignore_ascii_case(METADATA_HOST) {
        return Err(OutOfBounds(host.to_owned()));
    }
    Ok(())
}

/// The addresses of a name that may be connected to. Machines in the same house often have a link-local address besides
/// their real one, so a name is refused only if nothing is left.
pub fn within_bounds(name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, OutOfBounds> {
    let (refused, kept): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.into_iter().partition(|address| is_out_of_bounds(address.ip()));
    match refused.first() {
        Some(address) if kept.is_empty() => Err(OutOfBounds(format!("{} ({name})", address.ip()))),
        _ => Ok(kept),
    }
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

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod bounds_tests;
