//! Tests of wrapping text and of escaping invisible characters.

use std::time::Duration;

use crate::print::text::{elapsed, plain, wrapped};

#[test]
fn lines_wrap_between_words_if_possible() {
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

#[test]
fn invisible_characters_are_escaped() {
    assert_eq!(
        plain("a\u{202e}b\u{200b}c\u{feff}\r\n\td\u{1b}[2J"),
        r"a\u{202e}b\u{200b}c\u{feff}".to_owned() + "\n\td" + r"\u{1b}[2J"
    );
    // These characters are used to hide text from readers.
    assert_eq!(
        plain("rm\u{e0041}\u{e007f} pass\u{200d}word"),
        r"rm\u{e0041}\u{e007f} pass\u{200d}word"
    );
    // Characters that are part of words and emoji are kept.
    for text in ["می\u{200c}خواهم", "👩\u{200d}🚀", "❤\u{fe0f}", "天気", "é"] {
        assert_eq!(plain(text), text);
    }
}

#[test]
fn durations_have_at_most_two_units() {
    for (milliseconds, text) in [
        (0, "0.0 s"),
        (440, "0.4 s"),
        (12_900, "12 s"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (273_600_000, "3 d 4 h"),
    ] {
        assert_eq!(elapsed(Duration::from_millis(milliseconds)), text);
    }
}
