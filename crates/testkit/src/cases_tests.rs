//! Tests that the case counts follow the environment, and that invalid values panic.

use super::number_or;

#[test]
fn unset_variable_uses_the_default() {
    assert_eq!(number_or("COUNT", None, 64), 64);
}

#[test]
fn a_variable_replaces_the_default() {
    assert_eq!(number_or("COUNT", Some("10000"), 64), 10_000);
}

#[test]
#[should_panic(expected = "COUNT must be a whole number, but is \"many\"")]
fn invalid_variable_is_reported() {
    number_or("COUNT", Some("many"), 64);
}
