//! Tests of excerpts: caret columns, windows on long lines, and bars over several lines.

use throughline_json::Tree;

use super::{Annotation, SourceText};

/// Renders the first occurrence of `needle`, without colours.
fn drawn(text: &str, needle: &str, label: &str, width: usize) -> String {
    let tree = Tree::parse(text.to_owned()).unwrap();
    let start = text.find(needle).unwrap();
    let range = start..start + needle.len();
    let source = SourceText::new(&tree);
    let mark = Annotation { range: range.clone(), label, style: owo_colors::Style::new() };
    let drawn = source.draw(&mark, source.digits(&range), width);
    anstream::adapter::strip_str(&drawn).to_string()
}

#[test]
fn carets_are_below_the_place_and_the_label_after_them() {
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
fn long_lines_are_cut_to_a_window() {
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
fn carets_stop_at_the_window_edge() {
    let text = format!("{{\"text\":\"{}\"}}", "a ".repeat(100));
    let value = &text[8..text.len() - 1];
    let lines = drawn(&text, value, "", 40);
    let expected =
        format!("  |\n1 | {{\"text\":\"{}a…\n  |         {}\n", "a ".repeat(12), "^".repeat(27));
    assert_eq!(lines, expected);
}

#[test]
fn long_label_is_drawn_below_the_carets() {
    let text = format!("{{\"text\":\"{}\"}}", "a".repeat(60));
    let value = &text[8..text.len() - 1];
    let lines = drawn(&text, value, "this is said of all of it", 80);
    assert!(lines.ends_with("^^\n  |         this is said of all of it\n"), "{lines}");
}

#[test]
fn multi_line_place_has_a_bar() {
    let text = "[\n  {\n    \"a\": 1\n  }\n]";
    let needle = &text[4..text.len() - 2];
    let expected = "  |\n2 | /   {\n3 | |     \"a\": 1\n4 | |   }\n  | |___^ all of this\n";
    assert_eq!(drawn(text, needle, "all of this", 80), expected);
}

#[test]
fn multi_line_place_marks_its_start() {
    let text = "{\n  \"a\": [\n    1\n  ]\n}";
    let needle = &text[9..text.len() - 2];
    let expected =
        "  |\n2 |     \"a\": [\n  |  ________^\n3 | |     1\n4 | |   ]\n  | |___^ a list\n";
    assert_eq!(drawn(text, needle, "a list", 80), expected);
}

#[test]
fn many_lines_are_elided_in_the_middle() {
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
fn control_characters_are_escaped_and_seals_masked() {
    let text = "{\"signature\":\"c2VjcmV0\",\"a\":\"\u{202e}\u{7f}\u{9b}\",\"b\":1}";
    let lines = drawn(text, "1", "", 120);
    assert!(lines.contains(r#""signature":"‹seal 8 B›""#), "{lines}");
    assert!(lines.contains(r"\u{202e}\u{7f}\u{9b}"), "{lines}");
    assert!(!lines.contains("c2VjcmV0"), "{lines}");
}

#[test]
fn place_inside_a_seal_marks_the_whole_seal() {
    let text = "{\"signature\":\"c2VjcmV0\"}";
    let expected = "  |\n1 | {\"signature\":\"‹seal 8 B›\"}\n  |              ^^^^^^^^^^^^\n";
    assert_eq!(drawn(text, "VjcmV", "", 80), expected);
}

#[test]
fn combining_characters_stay_with_their_base() {
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
fn label_with_a_long_word_is_drawn_below() {
    let text = "{\"binding\": {\"behaviour\": \"error, as it was asked for\"}}";
    let label = "this needs the beta `thinking-binding-controls-2026-08-01`";
    let lines = drawn(text, &text[12..text.len() - 1], label, 100);
    assert!(lines.contains("`thinking-binding-controls-2026-08-01`"), "{lines}");
}
