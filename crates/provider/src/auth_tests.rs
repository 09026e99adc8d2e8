//! Tests of authentication headers and of their redaction in `Debug`.

use http::HeaderMap;
use throughline_core::Credential;

use super::{Scheme, strip_query_keys};

#[test]
fn debug_hides_keys_in_headers() {
    let anthropic = [Scheme::Anthropic, Scheme::CloudAnthropic];
    for scheme in anthropic.into_iter().chain([Scheme::Bearer, Scheme::Azure, Scheme::Google]) {
        for key in ["canary", "sk-ant-oat-canary", "eyJ-canary", "ya29.canary"] {
            let mut headers = HeaderMap::new();
            scheme.add(&mut headers, &Credential::new(key)).unwrap();
            assert_eq!(headers.len(), 1);
            assert!(!format!("{headers:?}").contains("canary"), "{scheme:?}");
        }
    }
}

#[test]
fn only_keys_are_removed_from_the_query() {
    assert_eq!(strip_query_keys("alt=sse&key=k&access_token=t&keys=1&b"), "alt=sse&keys=1&b");
    assert_eq!(strip_query_keys("key=k"), "");
    assert_eq!(strip_query_keys(""), "");
}
