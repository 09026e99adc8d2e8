//! Seals: what opens them, what does not, and what they look like.

use super::*;

fn claims() -> Claims {
    Claims {
        kind: "thinking".to_owned(),
        row: "anthropic".to_owned(),
        family: "claude-4.5".to_owned(),
        account: Mark::of("account", "one"),
        reply: Mark::of("reply", "one"),
        count: 1,
        text: Mark::of("text", "Hm."),
        ..Claims::default()
    }
}

const FORMS: [(Form, &str); 3] =
    [(Form::Claude, "E"), (Form::Fernet, "gAAAAABp"), (Form::Gemini, "C")];

#[test]
fn a_seal_opens_to_its_claims_for_its_signer_only() {
    let keys = Keys::new(7);
    for (form, start) in FORMS {
        let seal = keys.seal("one", form, &claims());
        assert!(seal.starts_with(start), "{seal}");
        assert_eq!(seal, keys.seal("one", form, &claims()), "equal claims give equal seals");
        assert_eq!(keys.open("one", form, &seal), Ok(claims()));
        assert_eq!(keys.open("two", form, &seal), Err(Forged::Unknown));
        assert_eq!(Keys::new(8).open("one", form, &seal), Err(Forged::Unknown));
        assert_eq!(keys.open("one", form, ""), Err(Forged::Empty));
        assert_eq!(keys.open("one", form, "not base64!"), Err(Forged::NotBase64));
    }
}

#[test]
fn no_seal_survives_a_change_of_any_of_its_letters() {
    let keys = Keys::new(7);
    for (form, _) in FORMS {
        let seal = keys.seal("one", form, &claims());
        for at in 0..seal.len() {
            let mut letters = seal.clone().into_bytes();
            letters[at] = if letters[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(letters).unwrap();
            assert!(keys.open("one", form, &changed).is_err(), "letter {at} of {form:?}");
            // Gemini does not mind if only the padding is gone.
            let is_whole = form == Form::Gemini && at >= seal.trim_end_matches('=').len();
            assert_eq!(keys.open("one", form, &seal[..at]).is_ok(), is_whole, "{at} of {form:?}");
        }
    }
}

#[test]
fn gemini_reads_either_alphabet_and_the_others_only_their_own() {
    let keys = Keys::new(7);
    let other = |seal: &str| {
        if seal.contains(['+', '/']) {
            seal.replace('+', "-").replace('/', "_")
        } else {
            seal.replace('-', "+").replace('_', "/")
        }
    };
    for (form, is_read) in [(Form::Claude, false), (Form::Fernet, false), (Form::Gemini, true)] {
        let seal = keys.seal("one", form, &claims());
        assert_ne!(other(&seal), seal);
        assert_eq!(keys.open("one", form, &other(&seal)).is_ok(), is_read, "{form:?}");
    }
}

#[test]
fn nothing_of_the_claims_can_be_read_in_a_seal() {
    let keys = Keys::new(7);
    let bytes = Form::Claude.decode(&keys.seal("one", Form::Claude, &claims())).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("claude"));
    assert_eq!(format!("{keys:?}"), "Keys { .. }");
}
