//! Tests that records from earlier versions are shown with the current field names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

#[test]
fn former_member_names_are_shown_as_the_present_ones() {
    let report = r#"{"fates":[],"dids":[],"more_mended":2,"mended":[{"rule":"r","mend":"m"}]}"#;
    let bodies = Bodies {
        expanded: Bytes::from_static(b"{}"),
        received: Bytes::from_static(b"{}"),
        sent: Bytes::from_static(b"{}"),
        account: Bytes::from_static(report.as_bytes()),
    };
    let attempts = r#"{"attempts":[{"endpoint":"e","said":"502"}]}"#;
    let account = Json::parse(attempts).unwrap();
    let call = StoredCall { turn: None, at: String::new(), account, texts: Ok(bodies) };
    let shown = call_json(&TurnId("call_1".into()), &call);
    let expected = r#""fates":[],"more_repaired":2,"repaired":[{"rule":"r","fix":"m"}]"#;
    assert!(shown.as_str().contains(expected), "{}", shown.as_str());
    let expected = r#""attempts":[{"endpoint":"e","error":"502"}]"#;
    assert!(shown.as_str().contains(expected), "{}", shown.as_str());
}
