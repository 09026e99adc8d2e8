//! Checks how patterns match model names.

use super::{ModelMatch, best_match, is_valid_pattern};

/// Returns the pattern that matches a model name best.
fn best<'p>(patterns: &[&'p str], model: &str) -> Option<&'p str> {
    best_match(patterns.iter().map(|pattern| (*pattern, *pattern)), model)
}

#[test]
fn version_matches_all_its_spellings() {
    let patterns = ["*claude-opus-{5}*", "*claude-opus-{5.5}*"];
    for name in [
        "claude-opus-5.5",
        "claude-opus-5-5",
        "claude-opus-5_5",
        "claude-opus-5p5",
        "Claude-Opus-5-5-20260901",
        "us.anthropic.claude-opus-5-5-v1:0",
        "anthropic/claude-opus-5.5:thinking",
        "claude-opus-5-5@20260901",
    ] {
        assert_eq!(best(&patterns, name), Some("*claude-opus-{5.5}*"), "{name}");
    }
    for name in ["claude-opus-5", "claude-opus-5-0", "claude-opus-5-20260901", "claude-opus-5-1m"] {
        assert_eq!(best(&patterns, name), Some("*claude-opus-{5}*"), "{name}");
    }
}

#[test]
fn unlisted_version_matches_the_newest_pattern_of_its_series() {
    let patterns = ["*x-{4}*", "*x-{5.2}*", "*x-{5.10}*", "*x-{5}*", "*x*"];
    for name in ["x-5.3", "x-6", "x-4-1", "vendor/x-99-20260101"] {
        assert_eq!(best(&patterns, name), Some("*x-{5.10}*"), "{name}");
    }
    assert_eq!(best(&patterns, "x-4"), Some("*x-{4}*"));
    assert_eq!(best(&patterns, "x-latest"), Some("*x*"));
}

#[test]
fn version_before_all_others_matches_the_oldest_pattern_of_its_series() {
    let patterns = ["*x-{5}*", "*x-{4.1}*", "*x-{4}*", "*x*", "*x-{2}-pro*", "*x-{3}-pro*"];
    for name in ["x-3", "x-1.5", "vendor/x-3-9-20240101"] {
        assert_eq!(best(&patterns, name), Some("*x-{4}*"), "{name}");
    }
    assert_eq!(best(&patterns, "x-1-pro"), Some("*x-{2}-pro*"));
    assert_eq!(best(&patterns, "x-4.5"), Some("*x-{5}*"));
    // Of equally good patterns, the first one wins.
    assert_eq!(best_match([("*x-{2}*", 1), ("*x-{2}*", 2)], "x-1"), Some(1));
    assert_eq!(best_match([("*x-{2}*", 1), ("*x-{2}*", 2)], "x-2"), Some(1));
}

#[test]
fn dates_sizes_and_variants_are_not_versions() {
    let patterns = ["*gpt-{4}*", "*gpt-{5}*"];
    assert_eq!(best(&patterns, "gpt-4-0613"), Some("*gpt-{4}*"));
    assert_eq!(best(&patterns, "gpt-4-32k"), Some("*gpt-{4}*"));
    assert_eq!(best(&patterns, "gpt-5-2025-08-07"), Some("*gpt-{5}*"));
    for name in ["gpt-4o", "gpt-oss-20b", "gpt-image-1", "gpt-", "gpt-350"] {
        assert_eq!(best(&patterns, name), None, "{name}");
    }
    let patterns = ["*glm-{4.5}*", "*glm-{4}*"];
    assert_eq!(best(&patterns, "glm-4.5v"), Some("*glm-{4.5}*"));
    assert_eq!(best(&patterns, "glm-4-9b"), Some("*glm-{4}*"));
}

#[test]
fn longer_pattern_wins_before_versions_are_compared() {
    let patterns = ["*g-{3}*", "*g-{4}*", "*g-{3}-pro*", "*g-3-pro-image*", "*g*"];
    assert_eq!(best(&patterns, "g-3"), Some("*g-{3}*"));
    assert_eq!(best(&patterns, "g-3-pro"), Some("*g-{3}-pro*"));
    assert_eq!(best(&patterns, "g-5-pro"), Some("*g-{3}-pro*"));
    assert_eq!(best(&patterns, "g-5-flash"), Some("*g-{4}*"));
    assert_eq!(best(&patterns, "g-3-pro-image"), Some("*g-3-pro-image*"));
    // A series wins over a pattern without a version that has the same length.
    assert_eq!(best(&["*g-{3}*", "*g-*"], "g-4"), Some("*g-{3}*"));
    assert_eq!(best(&["*g-{3}*", "*g-*"], "g-latest"), Some("*g-*"));
}

#[test]
fn pattern_needs_one_complete_version() {
    for pattern in ["*gpt-*", "", "*gpt-{5}*", "qwen{3.8}", "{10.25}"] {
        assert!(is_valid_pattern(pattern), "{pattern}");
    }
    for pattern in ["*gpt-{}*", "{x}", "{5", "5}", "}5{", "{5}{6}", "{5.}", "{5.1.2}", "{2026}"] {
        assert!(!is_valid_pattern(pattern), "{pattern}");
    }
    assert_eq!(ModelMatch::new("{x}", "5"), None);
}
