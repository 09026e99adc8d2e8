//! Tests of the binary's output and exit codes for valid and invalid input.

use throughline_testkit::workspace_root;

use crate::support::{scratch, throughline};

const EXAMPLE: &str = "examples/tool-loop.json";

fn example() -> Vec<u8> {
    std::fs::read(workspace_root().join(EXAMPLE)).unwrap()
}

#[test]
fn show_prints_messages_and_seals() {
    let output = throughline(&["show", EXAMPLE], b"");
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    for expected in [
        "anthropic-messages request  claude-sonnet-4-6",
        "thought, text",
        "sealed by anthropic: 92 B (anthropic.signature)",
        "calls weather",
        "{\"city\":\"Paris\",\"day\":\"Saturday\"}",
        "answers weather  toolu_02",
        "8 items · 1 thought · 1 seal · 2 tool calls",
    ] {
        assert!(output.out.contains(expected), "{expected:?} is not in\n{}", output.out);
    }
    assert!(!output.out.contains("RXhhbXBsZ"), "the seal's bytes were shown");
    assert!(!output.out.contains('\u{1b}'), "colours went into a pipe");
}

#[test]
fn show_json_masks_seals() {
    let output = throughline(&["show", "--format", "json", "-"], &example());
    assert_eq!(output.code, 0);
    let document: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(document["wire"], "anthropic-messages");
    assert_eq!(document["items"].as_array().unwrap().len(), 8);
    assert_eq!(
        document["items"][2]["seals"],
        serde_json::json!([{"format": "anthropic.signature", "bytes": 92, "owner": "anthropic", "at": "/signature"}])
    );
    assert!(!output.out.contains("RXhhbXBsZ"));
}

#[test]
fn show_reports_truncated_streams() {
    let stream = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Hm.\"}}\n\n",
    );
    let output = throughline(&["show", "-"], stream.as_bytes());
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("anthropic-messages stream"), "{}", output.out);
    assert!(output.out.contains("cut off: cannot be replayed"), "{}", output.out);
    assert!(output.out.contains("no part of it can be replayed"), "{}", output.out);
}

#[test]
fn show_prints_provider_errors() {
    let error = br#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#;
    let output = throughline(&["show", "-"], error);
    assert_eq!(output.code, 0);
    assert!(
        output.out.contains("invalid_request_error: messages.1.content.0: Invalid `signature`"),
        "{}",
        output.out
    );
}

#[test]
fn control_characters_are_escaped() {
    let hostile = "{\"model\":\"claude\\u001b[31m\",\"max_tokens\":1,\"system\":\"a\\u001b]0;title\\u0007\\u202e\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u009b2J\"}]}";
    let output = throughline(&["show", "--wire", "anthropic-messages", "-"], hostile.as_bytes());
    assert_eq!(output.code, 0, "{}", output.err);
    for bad in ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'] {
        assert!(
            !output.out.contains(bad) && !output.err.contains(bad),
            "{bad:?} reached the terminal"
        );
    }
}

#[test]
fn translate_on_the_same_wire_and_owner_changes_nothing() {
    let output = throughline(
        &["translate", "--from", "anthropic-messages", "--to", "anthropic-messages", EXAMPLE],
        b"",
    );
    assert_eq!(output.code, 0);
    assert_eq!(output.out.as_bytes(), example());
    assert!(output.err.contains("kept"), "{}", output.err);
}

#[test]
fn translate_accounts_for_every_item_and_seal() {
    let file = scratch("fates.json");
    let output = throughline(
        &[
            "translate",
            "--from",
            "anthropic-messages",
            "--to",
            "gemini",
            "--model",
            "gemini-3-pro-preview",
            "--fates",
            file.to_str().unwrap(),
            EXAMPLE,
        ],
        b"",
    );
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let body: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(body["contents"][1]["parts"][1]["functionCall"]["name"], "weather");
    assert_eq!(
        body["contents"][1]["parts"][1]["thoughtSignature"],
        "skip_thought_signature_validator"
    );
    assert!(!output.out.contains("RXhhbXBsZ") && !output.out.contains("better weather decides"));
    let fates: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let thought = &fates["fates"][2];
    assert_eq!(thought["visible"], "elided");
    assert_eq!(thought["seals"][0]["did_why"], "foreign: another provider issued it");
    assert_eq!(fates["fates"].as_array().unwrap().len(), 8);
}

#[test]
fn bad_input_gets_a_clear_sentence_and_the_right_code() {
    let folder = scratch("a-folder");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let translate = ["translate", "--from", "gemini", "--to", "anthropic-messages"];
    let translate_with = |extra: &[&'static str]| [&translate[..], extra].concat();
    let cases: Vec<(Vec<&str>, &[u8], i32, &str)> = vec![
        (vec!["show", "-"], b"", 65, "standard input is empty"),
        (vec!["show", "-"], b" \n", 65, "standard input is empty"),
        (
            vec!["show", "-"],
            b"{\"model\":\"x\",\n\"messages\":[",
            65,
            "standard input:2:13: not JSON: the text ends",
        ),
        (
            vec!["show", "-"],
            b"{\"hello\":1}",
            65,
            "does not look like a request, response or stream",
        ),
        (vec!["show", "-"], b"hello", 65, "does not look like a request, response or stream"),
        (
            vec!["show", "-"],
            b"\xff\xfe\x00",
            65,
            "does not look like a request, response or stream",
        ),
        (vec!["show", folder], b"", 2, "is a directory"),
        (vec!["show", "no-such-file.json"], b"", 2, "cannot open no-such-file.json: No such file"),
        (vec!["show"], b"", 2, "required arguments were not provided"),
        (
            vec!["show", "--wire", "morse", "x"],
            b"",
            2,
            "possible values: anthropic-messages, openai-responses",
        ),
        (
            vec!["show", "--provider", "unknown", "-"],
            b"{\"type\":\"message\",\"content\":[]}",
            2,
            "provider `unknown` does not support anthropic-messages",
        ),
        (
            vec!["show", "--wire", "gemini", EXAMPLE],
            b"",
            65,
            "is not in gemini format; it looks like anthropic-messages",
        ),
        (
            vec!["show", "--wire", "openai-chat", EXAMPLE],
            b"",
            65,
            "is not in openai-chat format; it looks like anthropic-messages",
        ),
        (vec!["show", "-"], b"\xef\xbb\xbf{}", 65, "begins with a byte order mark"),
        (vec!["show", "--model", "", "-"], b"{}", 2, "a value is required"),
        (translate_with(&["--model", "m", "gone.json"]), b"", 2, "cannot open gone.json"),
        (translate_with(&["-"]), b"{\"contents\":[]}", 2, "specify the target model with --model"),
        (
            translate_with(&["--model", "m", "-"]),
            b"{\"candidates\":[{\"content\":{\"parts\":[]}}]}",
            65,
            "is not a request",
        ),
        (vec!["shoe"], b"", 2, "unrecognized subcommand 'shoe'"),
        (vec![], b"", 2, "Usage: throughline <COMMAND>"),
        (
            translate_with(&["-"]),
            b"{\"messages\":[]}",
            65,
            "is not in gemini format; it looks like openai-chat (a request)",
        ),
        (
            translate_with(&["--model", "m", "--to-provider", "gemini", "-"]),
            b"{\"contents\":[]}",
            2,
            "provider `gemini` does not support anthropic-messages",
        ),
    ];
    for (arguments, input, code, message) in cases {
        let output = throughline(&arguments, input);
        assert_eq!(output.code, code, "{arguments:?}: {}", output.err);
        assert!(output.err.contains(message), "{arguments:?}: {}", output.err);
        assert!(
            !output.err.contains("panicked") && output.out.is_empty(),
            "{arguments:?}: {}",
            output.err
        );
    }
}

#[test]
fn unknown_model_is_noted_and_translated() {
    let output = throughline(
        &[
            "translate",
            "--from",
            "anthropic-messages",
            "--to",
            "openai-chat",
            "--to-provider",
            "compatible",
            "--model",
            "nobodys-model-9",
            EXAMPLE,
        ],
        b"",
    );
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.err.contains("unknown model `nobodys-model-9`"), "{}", output.err);
}

#[test]
fn fates_never_overwrite_the_request() {
    let copy = scratch("request.json");
    std::fs::write(&copy, example()).unwrap();
    let copy = copy.to_str().unwrap();
    let translate = [
        "translate",
        "--from",
        "anthropic-messages",
        "--to",
        "openai-responses",
        "--model",
        "gpt-5.2",
    ];
    let output = throughline(&[&translate[..], &["--fates", "-", copy]].concat(), b"");
    assert_eq!(output.code, 0);
    let fates: serde_json::Value = serde_json::from_str(&output.err).unwrap();
    assert_eq!(fates["wire"], "openai-responses");
    let output = throughline(&[&translate[..], &["--fates", copy, copy]].concat(), b"");
    assert_eq!((output.code, output.out.as_str()), (2, ""));
    assert!(output.err.contains("would overwrite the request"), "{}", output.err);
    assert_eq!(std::fs::read(copy).unwrap(), example());
}

#[test]
fn partial_reply_before_an_error_is_shown() {
    let stream = concat!(
        "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[]}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Half an ans\"}}\n\n",
        "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
    );
    let output = throughline(&["show", "-"], stream.as_bytes());
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.out.contains("Half an ans") && output.out.contains("overloaded_error: Overloaded"),
        "{}",
        output.out
    );
}

#[test]
fn help_groups_the_commands_and_mistakes_get_suggestions() {
    let help = throughline(&["--help"], b"").out;
    let groups = ["Start:", "Agents:", "Requests:", "Simulators:", "Gateway:", "Store:"];
    let places: Vec<usize> = groups.iter().map(|group| help.find(group).unwrap()).collect();
    assert!(places.is_sorted(), "{help}");
    assert!(help.find("\n  run ").unwrap() > places[1], "{help}");
    for (arguments, suggestion) in [
        (&["rusn"][..], "'runs'"),
        (&["aprove", "x"], "'approve'"),
        (&["runs", "--jsn"], "'--json'"),
        (&["runs", "--formt", "json"], "'--format'"),
    ] {
        let output = throughline(arguments, b"");
        assert_eq!(output.code, 2, "{arguments:?}");
        assert!(output.err.contains(suggestion), "{arguments:?}: {}", output.err);
    }
}

#[test]
fn help_has_examples_and_completions_are_printed() {
    for command in [
        "show",
        "translate",
        "audit",
        "repair",
        "rules",
        "explain",
        "sim",
        "connect",
        "fidelity",
        "threads",
        "runs",
        "items",
        "export",
        "import",
        "fork",
        "verify",
        "forget",
        "prune",
        "backup",
        "restore",
        "migrate",
        "stats",
        "rotate",
    ] {
        let output = throughline(&[command, "--help"], b"");
        assert_eq!(output.code, 0);
        assert!(output.out.contains("Examples:"), "{}", output.out);
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = throughline(&["completions", shell], b"");
        assert_eq!(output.code, 0);
        assert!(output.out.contains("translate") && output.out.contains("prune"), "{shell}");
    }
}
