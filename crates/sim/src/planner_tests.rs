//! Tests of the questions in generated texts.

use super::without_leading_elements;

#[test]
fn question_starts_with_the_words_of_the_user() {
    let reminder = "<system-reminder>\nUse <b>.\n</system-reminder>\n";
    let context = "<environment_context>\n  <cwd>/tmp</cwd>\n</environment_context>";
    for (text, expected) in [
        ("Say hello".to_owned(), "Say hello"),
        (format!("{reminder}{context}\n\nSay hello"), "Say hello"),
        ("<b>bold</b> or not?".to_owned(), "or not?"),
        ("<open Say hello".to_owned(), "<open Say hello"),
        ("<open>Say hello".to_owned(), "<open>Say hello"),
        ("a < b and c > d".to_owned(), "a < b and c > d"),
        ("< b > c </ b >".to_owned(), "< b > c </ b >"),
        ("<a>only</a>".to_owned(), "<a>only</a>"),
    ] {
        assert_eq!(without_leading_elements(&text), expected);
    }
}
