//! What is out of bounds.

use std::net::SocketAddr;

use super::{OutOfBounds, check_host, within_bounds};

#[test]
fn hosts_that_lead_out_of_bounds_are_refused() {
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
        assert_eq!(check_host(host), Err(OutOfBounds(host.to_owned())));
    }
    for host in ["localhost", "127.0.0.1", "[::1]", "10.0.0.7", "[fd12:3456::1]", "example.com"] {
        assert_eq!(check_host(host), Ok(()));
    }
}

#[test]
fn a_name_keeps_the_addresses_that_are_within_bounds() {
    let link_local: SocketAddr = "[fe80::2]:0".parse().unwrap();
    let private: SocketAddr = "192.168.1.2:0".parse().unwrap();
    assert_eq!(within_bounds("mac.local", vec![link_local, private]), Ok(vec![private]));
    let refused = within_bounds("mac.local", vec![link_local]);
    assert_eq!(refused, Err(OutOfBounds("fe80::2 (mac.local)".to_owned())));
}
