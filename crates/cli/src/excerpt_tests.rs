//! Excerpts: carets in their columns, windows on long lines, bars beside many.

use throughline_core::Tree;

use super::{Mark, Source};

/// What is drawn for the first place of `needle`, without colours.
fn drawn(text: &str, needle: &str, label: &str, width: usize) -> String {
    let tree = Tree::parse(text.to_owned()).unwrap();
    let start = text.find(needle).unwrap();
    let place = start..start + needle.len();
    let source = Source::new(&tree);
    let mark = Mark { place: place.clone(), label, style: owo_colors::Style::new() };
    let drawn = source.draw(&mark, source.digits(&place), width);
    anstream::adapter::strip_str(&drawn).to_string()
}

#[test]
fn carets_stand_below_the_place_and_the_label_behind_them() {
    let text = "{\n  \"a\": 1,\n  \"b\": \"two\"\n}";
    let expected = "  |\n3 |   \"b\": \"two\"\n  |        ^^^^^ this one\n";
    assert_eq!(drawn(text, "\"two\"", "this one", 80), expected);
}

#[test]
fn wide_characters_and_tabs_keep_the_carets_in_place() {
    let text = "{\"天気\":\t\"🎉\", \"b\": 2}";
    let line = "1 | {\"天気\":    \"🎉\", \"b\": 2}";
    let below =
        |columns: usize, marked: &str| format!("  |\n{line}\n  | {:columns$}{marked}\n", "");
    assert_eq!(drawn(text, "2", "here", 80), below(23, "^ here"));
    assert_eq!(drawn(text, "\"🎉\"", "joy", 80), below(12, "^^^^ joy"));
}

#[test]
fn of_a_long_line_a_window_is_shown_whatever_its_characters() {
    for filler in ["x ", "é", "天", "🎉"] {
        let filler = filler.repeat(50_000);
        let text = format!("{{\"before\":\"{filler}\",\"here\":7,\"behind\":\"{filler}\"}}");
        let lines = drawn(&text, "7", "seven", 60);
        let mut lines = lines.lines().skip(1);
        let (line, carets) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(line.starts_with("1 | …") && line.ends_with('…'), "{line}");
        let width = |text: &str| unicode_width::UnicodeWidthStr::width(text);
        assert!(width(line) <= 60, "{line}");
        let column = width(line.split_once('7').unwrap().0);
        assert_eq!(width(carets.split_once('^').unwrap().0), column, "{line}\n{carets}");
    }
}

#[test]
fn a_place_that_does_not_end_in_the_window_is_underlined_to_its_edge() {
    let text = format!("{{\"text\":\"{}\"}}", "a ".repeat(100));
    let value = &text[8..text.len() - 1];
    let lines = drawn(&text, value, "", 40);
    let expected =
        format!("  |\n1 | {{\"text\":\"{}a…\n  |         {}\n", "a ".repeat(12), "^".repeat(27));
    assert_eq!(lines, expected);
}

#[test]
fn a_label_that_does_not_fit_beside_its_carets_stands_below_them() {
    let text = format!("{{\"text\":\"{}\"}}", "a".repeat(60));
    let value = &text[8..text.len() - 1];
    let lines = drawn(&text, value, "this is said of all of it", 80);
    assert!(lines.ends_with("^^\n  |         this is said of all of it\n"), "{lines}");
}

#[test]
fn a_place_of_several_lines_has_a_bar() {
    let text = "[\n  {\n    \"a\": 1\n  }\n]";
    let place = &text[4..text.len() - 2];
    let expected = "  |\n2 | /   {\n3 | |     \"a\": 1\n4 | |   }\n  | |___^ all of this\n";
    assert_eq!(drawn(text, place, "all of this", 80), expected);
}

#[test]
fn a_place_that_begins_within_a_line_shows_where() {
    let text = "{\n  \"a\": [\n    1\n  ]\n}";
    let place = &text[9..text.len() - 2];
    let expected =
        "  |\n2 |     \"a\": [\n  |  ________^\n3 | |     1\n4 | |   ]\n  | |___^ a list\n";
    assert_eq!(drawn(text, place, "a list", 80), expected);
}

#[test]
fn of_many_lines_the_first_and_the_last_are_shown() {
    let numbers: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let text = format!("[\n{}\n]", numbers.join(",\n"));
    let expected =
        " |\n1 | / [\n2 | | 0,\n3 | | 1,\n4 | | 2,\n5 | | 3,\n... |\n52 | | ]\n | |_^ all\n";
    let lines = drawn(&text, &text, "all", 80);
    let squeezed: Vec<String> =
        lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(squeezed, expected, "{lines}");
}

#[test]
fn nothing_in_a_text_steers_the_terminal_and_no_seal_is_shown() {
    let text = "{\"signature\":\"c2VjcmV0\",\"a\":\"\u{202e}\u{7f}\u{9b}\",\"b\":1}";
    let lines = drawn(text, "1", "", 120);
    assert!(lines.contains(r#""signature":"‹seal 8 B›""#), "{lines}");
    assert!(lines.contains(r"\u{202e}\u{7f}\u{9b}"), "{lines}");
    assert!(!lines.contains("c2VjcmV0"), "{lines}");
}

#[test]
fn a_place_inside_a_seal_marks_the_whole_of_it() {
    let text = "{\"signature\":\"c2VjcmV0\"}";
    let expected = "  |\n1 | {\"signature\":\"‹seal 8 B›\"}\n  |              ^^^^^^^^^^^^\n";
    assert_eq!(drawn(text, "VjcmV", "", 80), expected);
}

#[test]
fn characters_that_join_the_one_before_stay_with_it() {
    let filler = "🌦\u{fe0f}e\u{301}".repeat(100);
    let text = format!("{{\"before\":\"{filler}\",\"here\":7,\"behind\":\"{filler}\"}}");
    let lines = drawn(&text, "7", "", 60);
    let mut lines = lines.lines().skip(1);
    let (line, carets) = (lines.next().unwrap(), lines.next().unwrap());
    let width = |text: &str| unicode_width::UnicodeWidthStr::width(text);
    assert!(width(line) <= 60, "{line}");
    let column = width(line.split_once('7').unwrap().0);
    assert_eq!(width(carets.split_once('^').unwrap().0), column, "{line}\n{carets}");
}

#[test]
fn a_label_with_a_long_word_is_not_squeezed_beside_its_carets() {
    let text = "{\"binding\": {\"behaviour\": \"error, as it was asked for\"}}";
    let label = "this needs the beta `thinking-binding-controls-2026-08-01`";
    let lines = drawn(text, &text[12..text.len() - 1], label, 100);
    assert!(lines.contains("`thinking-binding-controls-2026-08-01`"), "{lines}");
}
