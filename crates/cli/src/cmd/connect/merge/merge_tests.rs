//! Tests of the changes to configuration files.

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_testkit::proptest_config;

use super::{FileSetting, merge, remove};
use crate::clients::FileFormat;

fn setting(path: &[&str], value: Value) -> FileSetting {
    FileSetting { path: path.iter().map(|name| (*name).to_owned()).collect(), value }
}

fn merged(format: FileFormat, text: &str, settings: &[FileSetting]) -> String {
    merge(format, text, settings).unwrap()
}

/// Settings like those of the coding agents.
fn settings() -> Vec<FileSetting> {
    vec![
        setting(&["model"], json!("sim/claude-sonnet-5-5")),
        setting(&["provider", "throughline", "url"], json!("http://127.0.0.1:4400/v1")),
        setting(&["provider", "throughline", "streams"], json!(true)),
    ]
}

#[test]
fn json_settings_are_added_to_an_empty_file() {
    let expected = "{\n  \"model\": \"sim/claude-sonnet-5-5\",\n  \"provider\": {\n    \
        \"throughline\": {\n      \"url\": \"http://127.0.0.1:4400/v1\",\n      \
        \"streams\": true\n    }\n  }\n}\n";
    assert_eq!(merged(FileFormat::Json, "", &settings()), expected);
}

#[test]
fn json_keeps_comments_order_and_formatting() {
    let text = "// mine\n{\n\t\"z\": [1,2 , 3,], // list\n\t\"model\":   \"old\", /* keep */\n\t\
        \"provider\": { \"other\": {} }, // last\n}\n";
    let expected = "// mine\n{\n\t\"z\": [1,2 , 3,], // list\n\t\
        \"model\":   \"sim/claude-sonnet-5-5\", /* keep */\n\t\
        \"provider\": { \"other\": {}, \"throughline\": {\"url\":\"http://127.0.0.1:4400/v1\", \
        \"streams\": true} }, // last\n}\n";
    assert_eq!(merged(FileFormat::Json, text, &settings()), expected);
}

#[test]
fn json_member_after_a_comment_starts_on_its_own_line() {
    let text = "{\n  \"a\": 1 // one\n}";
    let expected = "{\n  \"a\": 1, // one\n  \"b\": 2\n}";
    assert_eq!(merged(FileFormat::Json, text, &[setting(&["b"], json!(2))]), expected);
    let text = "{\"a\": 1 // one\n}";
    let expected = "{\"a\": 1, // one\n  \"b\": 2\n}";
    assert_eq!(merged(FileFormat::Json, text, &[setting(&["b"], json!(2))]), expected);
}

#[test]
fn json_keeps_carriage_returns() {
    let text = "{\r\n    \"a\": {}\r\n}\r\n";
    let expected = "{\r\n    \"a\": {\r\n        \"b\": true\r\n    }\r\n}\r\n";
    assert_eq!(merged(FileFormat::Json, text, &[setting(&["a", "b"], json!(true))]), expected);
}

#[test]
fn toml_keeps_comments_order_and_formatting() {
    let text = "# mine\nmodel   = 'old' # which\napproval = \"never\"\n\n\
        [projects.\"/a\"]\ntrust_level = \"trusted\"   # yes\n";
    let expected = "# mine\nmodel   = \"sim/claude-sonnet-5-5\" # which\napproval = \"never\"\n\n\
        [projects.\"/a\"]\ntrust_level = \"trusted\"   # yes\n\n\
        [provider.throughline]\nurl = \"http://127.0.0.1:4400/v1\"\nstreams = true\n";
    assert_eq!(merged(FileFormat::Toml, text, &settings()), expected);
}

#[test]
fn toml_changes_inline_tables_in_place() {
    let text = "provider = { throughline = { url = \"x\" }, other = 1 }\n";
    let expected =
        "provider = { throughline = { url = \"http://127.0.0.1:4400/v1\" }, other = 1 }\n";
    let url = setting(&["provider", "throughline", "url"], json!("http://127.0.0.1:4400/v1"));
    assert_eq!(merged(FileFormat::Toml, text, &[url]), expected);
}

#[test]
fn env_replaces_the_last_line_of_a_variable_and_keeps_the_rest() {
    let text = "# mine\nA=1\nexport KEY=\"old\"\nTEXT=\"line\nKEY=inside\n\"\nB=2";
    let expected =
        "# mine\nA=1\nexport KEY=any\nTEXT=\"line\nKEY=inside\n\"\nB=2\nURL=http://h:1\n";
    let settings = [setting(&["KEY"], json!("any")), setting(&["URL"], json!("http://h:1"))];
    assert_eq!(merged(FileFormat::Env, text, &settings), expected);
}

#[test]
fn invalid_files_are_refused_with_a_position() {
    let problem = |format, text: &str| merge(format, text, &settings()).unwrap_err();
    assert!(problem(FileFormat::Json, "{\n  \"a\": x\n}").starts_with("line 2, column"));
    assert_eq!(problem(FileFormat::Json, "{ /* open"), "line 1: the comment is not closed");
    assert_eq!(problem(FileFormat::Json, "[]"), "the file must contain a JSON object");
    assert_eq!(problem(FileFormat::Json, "{\"provider\": 1}"), "`provider` is not an object");
    assert!(problem(FileFormat::Toml, "a = 1\nb = = 2\n").starts_with("line 2: "));
    assert_eq!(problem(FileFormat::Toml, "provider = 1\n"), "`provider` is not a table");
    assert_eq!(
        merge(FileFormat::Env, "A=\"x\n", &[setting(&["B"], json!("1"))]).unwrap_err(),
        "the quoted value of `A` has no closing quote"
    );
}

#[test]
fn second_merge_of_the_same_settings_changes_nothing() {
    for format in [FileFormat::Json, FileFormat::Toml] {
        let once = merged(format, "", &settings());
        assert_eq!(merged(format, &once, &settings()), once);
    }
    let variable = [setting(&["KEY"], json!("any"))];
    let once = merged(FileFormat::Env, "A=1\n", &variable);
    assert_eq!(merged(FileFormat::Env, &once, &variable), once);
}

/// Removes the values that the settings add, so that the rest can be compared.
fn without_settings(mut value: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.remove("model");
        if let Some(provider) = members.get_mut("provider").and_then(Value::as_object_mut) {
            provider.remove("throughline");
            if provider.is_empty() {
                members.remove("provider");
            }
        }
    }
    value
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![Just("model".to_owned()), Just("other".to_owned()), "[a-z\"\\\\é{} /*]{0,6}"]
}

/// An object with comments, trailing commas and odd spaces.
fn json_texts() -> impl Strategy<Value = String> {
    let space = prop_oneof![
        Just(""),
        Just(" "),
        Just("\n"),
        Just("\n\t"),
        Just(" // note, }\n"),
        Just("/* { \" */")
    ];
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("\"a // b\"".to_owned()),
        Just("[1, 2,]".to_owned()),
        Just("{}".to_owned()),
        Just("{\"x\": [ ], }".to_owned())
    ];
    let member = (names(), value, space.clone(), space.clone());
    (prop::collection::vec(member, 0..5), space.clone(), any::<bool>(), space).prop_map(
        |(members, before, has_comma, after)| {
            let count = members.len();
            let members =
                members.into_iter().enumerate().map(|(index, (name, value, left, right))| {
                    let name = Value::String(name);
                    let comma = if index + 1 < count || has_comma { "," } else { "" };
                    format!("{left}{name}{right}:{left}{value}{right}{comma}")
                });
            format!("{before}{{{}{after}}}{after}", members.collect::<String>())
        },
    )
}

/// Reads JSON with comments by a method of its own: strings are kept, comments are dropped, and
/// commas before a closing bracket are dropped.
fn read_json(text: &str) -> Value {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, letter)| {
                let is_end = *letter == '"' && !escaped;
                escaped = *letter == '\\' && !escaped;
                is_end
            });
            let end = end.unwrap().0 + 1;
            plain.push_str(&rest[..end]);
            rest = &rest[end..];
        } else if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").unwrap().1;
        } else {
            if "}]".contains(first) && plain.trim_end().ends_with(',') {
                plain.truncate(plain.trim_end().len() - 1);
            }
            if !first.is_whitespace() {
                plain.push(first);
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    serde_json::from_str(&plain).unwrap_or_else(|error| panic!("{error} in {text}"))
}

proptest! {
    #![proptest_config(proptest_config(64))]

    #[test]
    fn json_changes_only_the_settings(text in json_texts()) {
        let before = read_json(&text);
        let after_text = merged(FileFormat::Json, &text, &settings());
        let after = read_json(&after_text);
        prop_assert_eq!(&after["model"], &json!("sim/claude-sonnet-5-5"));
        prop_assert_eq!(
            &after["provider"]["throughline"],
            &json!({"url": "http://127.0.0.1:4400/v1", "streams": true})
        );
        prop_assert_eq!(without_settings(after), without_settings(before));
        for comment in ["// note, }\n", "/* { \" */"] {
            prop_assert_eq!(after_text.matches(comment).count(), text.matches(comment).count());
        }
    }

    #[test]
    fn toml_changes_only_the_settings(
        lines in prop::collection::vec(
            prop_oneof![Just("# note"), Just(""), Just("  k1 = 'x'  # one"), Just("k2 = [1, # two\n 2]"),
                Just("\"k 3\"=true")],
            0..5
        ),
        tables in prop::collection::vec(
            prop_oneof![Just("[a]\nx = 1 # y"), Just("[b.c]\n\nz = \"\"\"\n# no\n\"\"\""), Just("[[d]]\nq=1")],
            0..3
        ),
    ) {
        let mut seen = std::collections::BTreeSet::new();
        let is_new = |text: &&str| {
            let name = text.trim().split(['=', '\n']).next().unwrap().trim().to_owned();
            name.is_empty() || name.starts_with('#') || seen.insert(name)
        };
        let text: Vec<&str> = lines.into_iter().chain(tables).filter(is_new).collect();
        let text = text.join("\n") + "\n";
        let read = |text: &str| {
            let table: toml::Table = toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            serde_json::to_value(table).unwrap()
        };
        let before = read(&text);
        let after_text = merged(FileFormat::Toml, &text, &settings());
        prop_assert_eq!(without_settings(read(&after_text)), before);
        for comment in ["# note", "# one", "# two", "# y"] {
            prop_assert_eq!(after_text.matches(comment).count(), text.matches(comment).count());
        }
    }
}

#[test]
fn toml_setting_is_removed_and_the_rest_is_kept() {
    let path = ["providers", "own", "key"].map(str::to_owned).to_vec();
    let removed = |text: &str| remove(FileFormat::Toml, text, std::slice::from_ref(&path)).unwrap();
    let text = "# mine\r\nkey = 1\r\n\r\n[providers.own]\r\nkey = \"x\"\r\nurl = 'y' # z\r\n";
    let expected = "# mine\r\nkey = 1\r\n\r\n[providers.own]\r\nurl = 'y' # z\r\n";
    assert_eq!(removed(text), expected);
    for text in ["", "# only a comment", "providers = 1\n", "[providers.own.key]\na = 1\n"] {
        assert_eq!(removed(text), text);
    }
}
