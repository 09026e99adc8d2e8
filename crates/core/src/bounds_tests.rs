//! Tests for blocked hosts and addresses.

use std::net::SocketAddr;

use super::{BlockedAddress, allowed_addresses, check_host};

#[test]
fn check_host_rejects_blocked_hosts() {
    for host in [
        "169.254.169.254",
        "169.254.0.1",
        "[fe80::1]",
        "[febf::1]",
        "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::169.254.169.254]",
        "100.100.100.200",
        "metadata.google.internal",
        "METADATA.Google.Internal.",
    ] {
        assert_eq!(check_host(host), Err(BlockedAddress(host.to_owned())));
    }
    for host in ["localhost", "127.0.0.1", "[::1]", "10.0.0.7", "[fd12:3456::1]", "example.com"] {
        assert_eq!(check_host(host), Ok(()));
    }
}

#[test]
fn blocked_addresses_of_a_name_are_dropped() {
    let link_local: SocketAddr = "[fe80::2]:0".parse().unwrap();
    let private: SocketAddr = "192.168.1.2:0".parse().unwrap();
    assert_eq!(allowed_addresses("mac.local", vec![link_local, private]), Ok(vec![private]));
    let refused = allowed_addresses("mac.local", vec![link_local]);
    assert_eq!(refused, Err(BlockedAddress("fe80::2 (mac.local)".to_owned())));
}
