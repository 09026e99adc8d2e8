//! Tests of error kinds and of redacted error messages.

use throughline_core::{Failure, ModelErrorKind};

use super::{from_failure, kind_from_status, redact};

#[test]
fn messages_redact_possible_keys_and_seals() {
    let key = "sk-ant-api03-AbCdEf0123456789AbCdEf0123456789";
    let message = format!(
        "Incorrect API key provided: {key}. The model us.anthropic.claude-sonnet-4-5-20250929-v1:0 is there."
    );
    let redacted = redact(&message);
    assert_eq!(
        &*redacted,
        "Incorrect API key provided: …. The model us.anthropic.claude-sonnet-4-5-20250929-v1:0 is there."
    );
    assert_eq!(&*redact("ünïcödé — “fine”"), "ünïcödé — “fine”");
}

#[test]
fn status_and_error_type_determine_the_kind() {
    for (status, kind) in [
        (429, ModelErrorKind::RateLimit),
        (529, ModelErrorKind::Transient),
        (408, ModelErrorKind::Transient),
        (400, ModelErrorKind::Other),
        (302, ModelErrorKind::Other),
    ] {
        assert_eq!(kind_from_status(status), kind, "{status}");
    }
    for (error_type, kind) in [
        ("overloaded_error", ModelErrorKind::Transient),
        ("rate_limit_error", ModelErrorKind::RateLimit),
        ("throttlingException", ModelErrorKind::RateLimit),
        ("validationException", ModelErrorKind::Other),
    ] {
        let failure = Failure {
            status: None,
            kind: Some(error_type.into()),
            message: "no".into(),
            body: bytes::Bytes::new(),
        };
        assert_eq!(from_failure(&failure).kind, kind, "{error_type}");
    }
}
