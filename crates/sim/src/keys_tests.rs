//! Tests for creating and opening Seals, and for their format.

use super::*;

fn claims() -> SealClaims {
    SealClaims {
        kind: "thinking".to_owned(),
        row: "anthropic".to_owned(),
        family: "claude-4.5".to_owned(),
        account: Digest::new("account", "one"),
        reply: Digest::new("reply", "one"),
        count: 1,
        text: Digest::new("text", "Hm."),
        ..SealClaims::default()
    }
}

const FORMS: [(SealFormat, &str); 3] =
    [(SealFormat::Claude, "E"), (SealFormat::Fernet, "gAAAAABp"), (SealFormat::Gemini, "C")];

#[test]
fn seal_opens_only_for_its_signer() {
    let keys = SealKeys::new(7);
    for (form, start) in FORMS {
        let seal = keys.seal("one", form, &claims());
        assert!(seal.starts_with(start), "{seal}");
        assert_eq!(seal, keys.seal("one", form, &claims()), "equal claims give equal seals");
        assert_eq!(keys.open("one", form, &seal), Ok(claims()));
        assert_eq!(keys.open("two", form, &seal), Err(SealError::Unknown));
        assert_eq!(SealKeys::new(8).open("one", form, &seal), Err(SealError::Unknown));
        assert_eq!(keys.open("one", form, ""), Err(SealError::Empty));
        assert_eq!(keys.open("one", form, "not base64!"), Err(SealError::NotBase64));
    }
}

#[test]
fn changing_any_letter_invalidates_the_seal() {
    let keys = SealKeys::new(7);
    for (form, _) in FORMS {
        let seal = keys.seal("one", form, &claims());
        for at in 0..seal.len() {
            let mut bytes = seal.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(keys.open("one", form, &changed).is_err(), "letter {at} of {form:?}");
            // Gemini accepts Seals without padding.
            let is_whole = form == SealFormat::Gemini && at >= seal.trim_end_matches('=').len();
            assert_eq!(keys.open("one", form, &seal[..at]).is_ok(), is_whole, "{at} of {form:?}");
        }
    }
}

#[test]
fn only_gemini_accepts_both_base64_alphabets() {
    let keys = SealKeys::new(7);
    let other = |seal: &str| {
        if seal.contains(['+', '/']) {
            seal.replace('+', "-").replace('/', "_")
        } else {
            seal.replace('-', "+").replace('_', "/")
        }
    };
    for (form, is_read) in
        [(SealFormat::Claude, false), (SealFormat::Fernet, false), (SealFormat::Gemini, true)]
    {
        let seal = keys.seal("one", form, &claims());
        assert_ne!(other(&seal), seal);
        assert_eq!(keys.open("one", form, &other(&seal)).is_ok(), is_read, "{form:?}");
    }
}

#[test]
fn seal_does_not_expose_its_claims() {
    let keys = SealKeys::new(7);
    let bytes =
        SealFormat::Claude.decode(&keys.seal("one", SealFormat::Claude, &claims())).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("claude"));
    assert_eq!(format!("{keys:?}"), "Keys { .. }");
}
