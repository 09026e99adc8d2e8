//! Tests that handles are found in any text.

use proptest::prelude::*;

use super::*;

/// Searches a text word by word, as the definition of a handle states.
fn contains_handles_by_word(text: &[u8]) -> bool {
    let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    words
        .filter(|word| word.len() > TURN_LETTERS)
        .any(|word| Claims::has_handle_format(word) || word.starts_with(RESPONSE.as_bytes()))
}

proptest! {
    #[test]
    fn search_finds_the_same_handles_as_a_search_by_word(
        words in prop::collection::vec("(call_|resp_|x)?(tl1)?[ctl1ap_]{0,24}[-\" ]?", 0..6),
    ) {
        let text = words.concat();
        let expected = contains_handles_by_word(text.as_bytes());
        prop_assert_eq!(Claims::contains_handles(text.as_bytes()), expected);
    }
}

#[test]
fn issued_handles_are_found_in_json() {
    let (claims, tenant) = (Claims::new([7; 32]), Tenant::from("one"));
    let node = Claims::new_turn_id().unwrap();
    let handles = [
        claims.claim(&tenant, &node),
        claims.call_id(&tenant, &node, 3),
        claims.response_id(&tenant, &node),
    ];
    for handle in handles {
        let text = format!(r#"{{"type":"thinking","signature":"{handle}"}}"#);
        assert!(Claims::contains_handles(text.as_bytes()), "{text}");
        let part_of_word = format!(r#"{{"signature":"x{handle}"}}"#);
        assert!(!Claims::contains_handles(part_of_word.as_bytes()), "{part_of_word}");
    }
    assert!(!Claims::contains_handles("tl1".repeat(100_000).as_bytes()));
    // A second `tl1` in a word, six letters after the first one.
    assert!(!Claims::contains_handles(b"ctl1ccxtl1tlpa_cl"));
}

#[test]
fn turn_ids_are_unique_and_sorted() {
    let ids: Vec<String> =
        (0..1000).map(|_| Claims::new_turn_id().unwrap().0.to_string()).collect();
    assert!(ids.is_sorted());
    assert!(ids.iter().all(|id| id.len() == TURN_LETTERS));
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!(unique.len(), ids.len());
}
