//! What goes into the headers, and what nobody is shown of it.

use http::HeaderMap;
use throughline_core::Credential;

use super::{Scheme, without_keys};

#[test]
fn a_key_in_the_headers_is_not_shown() {
    for scheme in [Scheme::Anthropic, Scheme::Bearer, Scheme::Azure, Scheme::Google] {
        for key in ["canary", "sk-ant-oat-canary", "eyJ-canary", "ya29.canary"] {
            let mut headers = HeaderMap::new();
            scheme.add(&mut headers, &Credential::new(key)).unwrap();
            assert_eq!(headers.len(), 1);
            assert!(!format!("{headers:?}").contains("canary"), "{scheme:?}");
        }
    }
}

#[test]
fn only_keys_are_taken_out_of_a_query() {
    assert_eq!(without_keys("alt=sse&key=k&access_token=t&keys=1&b"), "alt=sse&keys=1&b");
    assert_eq!(without_keys("key=k"), "");
    assert_eq!(without_keys(""), "");
}
