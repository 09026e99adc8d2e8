//! Kinds of failures, and what is not told of them.

use throughline_core::{Failure, Trouble};

use super::{of_failure, of_status, unsealed};

#[test]
fn what_may_be_a_key_or_a_seal_is_not_told() {
    let key = "sk-ant-api03-AbCdEf0123456789AbCdEf0123456789";
    let said = format!(
        "Incorrect API key provided: {key}. The model us.anthropic.claude-sonnet-4-5-20250929-v1:0 is there."
    );
    let told = unsealed(&said);
    assert_eq!(
        &*told,
        "Incorrect API key provided: …. The model us.anthropic.claude-sonnet-4-5-20250929-v1:0 is there."
    );
    assert_eq!(&*unsealed("ünïcödé — “fine”"), "ünïcödé — “fine”");
}

#[test]
fn a_status_and_a_word_say_whether_to_ask_again() {
    for (status, kind) in [
        (429, Trouble::RateLimit),
        (529, Trouble::Transient),
        (408, Trouble::Transient),
        (400, Trouble::Other),
        (302, Trouble::Other),
    ] {
        assert_eq!(of_status(status), kind, "{status}");
    }
    for (word, kind) in [
        ("overloaded_error", Trouble::Transient),
        ("rate_limit_error", Trouble::RateLimit),
        ("throttlingException", Trouble::RateLimit),
        ("validationException", Trouble::Other),
    ] {
        let failure = Failure {
            status: None,
            kind: Some(word.into()),
            message: "no".into(),
            body: bytes::Bytes::new(),
        };
        assert_eq!(of_failure(&failure).kind, kind, "{word}");
    }
}
