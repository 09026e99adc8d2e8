//! Tests that blocked addresses are detected in every spelling.

use url::Url;

use super::check;

#[test]
fn blocked_urls_are_rejected_in_every_spelling() {
    for url in [
        "http://169.254.169.254/latest/meta-data",
        "http://169.254.0.1",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/",
        "http://[fe80::1]/",
        "http://[febf::1]:8080/",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::169.254.169.254]/",
        "http://100.100.100.200/",
        "http://metadata.google.internal/computeMetadata/v1",
        "http://METADATA.Google.Internal./",
    ] {
        assert!(check(&Url::parse(url).unwrap()).is_err(), "{url}");
    }
}

#[test]
fn loopback_and_private_networks_are_allowed() {
    for url in [
        "http://localhost:11434/v1",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "http://10.0.0.7",
        "http://192.168.1.2",
        "http://172.16.0.1",
        "http://[fd12:3456::1]",
        "https://api.anthropic.com",
    ] {
        assert_eq!(check(&Url::parse(url).unwrap()), Ok(()), "{url}");
    }
}
