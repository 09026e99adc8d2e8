//! Lines fit their columns, whatever stands in them.

use crate::text::wrapped;

#[test]
fn lines_break_between_words_and_long_words_where_they_must() {
    assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
    assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    assert_eq!(wrapped(r#"["one","two_three"]"#, 12), [r#"["one","#, r#""two_three"]"#]);
    assert_eq!(wrapped("at https://a.example/path", 16), ["at https://a.", "example/path"]);
    assert_eq!(wrapped("as it is\n\nand so on", usize::MAX), ["as it is", "", "and so on"]);
}

#[test]
fn wide_characters_take_two_columns_and_tabs_four() {
    assert_eq!(wrapped("天気予報", 4), ["天気", "予報"]);
    assert_eq!(wrapped("\tx", 8), ["    x"]);
    assert_eq!(wrapped("天", 1), ["天"]);
}
