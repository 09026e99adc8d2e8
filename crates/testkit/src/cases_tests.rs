//! The counts follow the environment, and refuse nonsense in it.

use super::number_or;

#[test]
fn without_a_variable_the_default_stands() {
    assert_eq!(number_or("COUNT", None, 64), 64);
}

#[test]
fn a_variable_replaces_the_default() {
    assert_eq!(number_or("COUNT", Some("10000"), 64), 10_000);
}

#[test]
#[should_panic(expected = "COUNT must be a whole number, but is \"many\"")]
fn a_mistyped_variable_is_named() {
    number_or("COUNT", Some("many"), 64);
}
