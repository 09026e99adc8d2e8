//! Checks prose: no stop-listed words, and lines of at most 100 columns.

use crate::assert_tidy;
use crate::tree::{Source, sources};

/// Words and phrases that hide the actor or the action. They are matched as whole words, ignoring
/// case.
const STOPPED_WORDS: &[&str] = &[
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("who", "ever"),
    concat!("who", "m"),
    concat!("me", "nd"),
    concat!("me", "nds"),
    concat!("me", "nded"),
    concat!("me", "nding"),
    concat!("is ", "told"),
    concat!("are ", "told"),
    concat!("was ", "told"),
    concat!("were ", "told"),
    concat!("is no ", "more"),
    concat!("for ", "ever"),
];

/// Files that may use stop-listed words, each with the reason.
const ALLOWED_FILES: &[(&str, &str)] = &[
    ("CHANGELOG.md", "names former members of call records"),
    ("crates/replay/src/call_record/call_view.rs", "reads records with the former members"),
    ("crates/replay/src/call_record/call_view_tests.rs", "tests records with the former members"),
    ("crates/testkit/tests/tidy/modules.rs", "lists stopped type names"),
];

/// Maximum number of stop-listed words in the allowed files.
const MAX_ALLOWED_WORDS: usize = 40;

const MAX_COLUMNS: usize = 100;

#[test]
fn prose_has_no_stopped_words() {
    let (mut problems, mut allowed) = (Vec::new(), 0);
    for source in sources().iter().filter(|source| is_prose_or_code(source)) {
        let is_allowed = ALLOWED_FILES.iter().any(|(path, _)| source.path == *path);
        for (number, line) in source.numbered_lines() {
            for word in stopped_words(line) {
                if is_allowed {
                    allowed += 1;
                    continue;
                }
                problems.push(format!(
                    "{}:{number} uses `{word}`: name the actor and use the usual technical term",
                    source.path
                ));
            }
        }
    }
    println!("FIGURE stop-listed words: {allowed} of at most {MAX_ALLOWED_WORDS}, all allowed");
    assert!(allowed <= MAX_ALLOWED_WORDS, "{allowed} stop-listed words are in the allowed files");
    assert_tidy(&problems);
}

#[test]
fn comments_and_markdown_fit_into_100_columns() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| is_prose_or_code(source)) {
        let is_markdown = source.path.rsplit('.').next() == Some("md");
        let mut is_code_block = false;
        for (number, line) in source.numbered_lines() {
            if is_markdown && line.trim_start().starts_with("```") {
                is_code_block = !is_code_block;
            }
            let text = line.trim_start();
            let is_comment = source.is_rust() && text.starts_with("//");
            let is_table = text.trim_start_matches(['/', '!', ' ']).starts_with('|');
            // A link cannot be wrapped, and code blocks quote output unchanged.
            let is_link =
                text.contains("](http") || text.starts_with("- [") && text.ends_with(".md)");
            let is_exempt = is_table || is_code_block || is_link;
            if (is_comment || is_markdown) && !is_exempt && line.chars().count() > MAX_COLUMNS {
                problems.push(format!(
                    "{}:{number} is longer than {MAX_COLUMNS} columns: wrap it",
                    source.path
                ));
            }
        }
    }
    assert_tidy(&problems);
}

/// Returns whether the file is hand-written prose or code. Generated pages are not checked, because
/// the rule texts that they are generated from are.
fn is_prose_or_code(source: &Source) -> bool {
    let is_generated = source.path.starts_with("docs/providers/")
        || source.path.starts_with("docs/rules/")
        || source.path == "docs/faq.md"
        || source.path.starts_with("crates/server/assets/")
        || source.path.ends_with("package-lock.json");
    let extension = source.path.rsplit('.').next().unwrap_or_default();
    let is_read = ["md", "rs", "toml", "ts", "tsx", "yml"].contains(&extension)
        || source.path.starts_with("scripts/");
    is_read && !is_generated
}

/// Returns the stop-listed words in a line, in lower case.
fn stopped_words(line: &str) -> Vec<&'static str> {
    let line = line.to_ascii_lowercase();
    let is_word = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    };
    let mut found = Vec::new();
    for word in STOPPED_WORDS {
        for (at, _) in line.match_indices(word) {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
            if !is_word(before) && !is_word(after) {
                found.push(*word);
            }
        }
    }
    found
}

#[test]
fn word_check_finds_whole_words_only() {
    let line = format!("{} is here; some{} too", concat!("No", "body"), "thing");
    assert_eq!(stopped_words(&line), [concat!("no", "body")]);
    assert_eq!(stopped_words("amended mendelevium nobody_else"), [""; 0]);
}
