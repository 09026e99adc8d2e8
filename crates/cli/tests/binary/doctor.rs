//! Tests of `audit`, `repair`, `rules` and `explain`.
//!
//! The tests iterate over all rules: each rule must be listed, explained, found in its example and
//! repaired.

use serde_json::{Value, json};
use throughline_codec::{CODECS, Rule, Severity};
use throughline_core::ReasoningFormat;
use throughline_spec::{ReplayAudit, ReplayViolation};
use throughline_testkit::workspace_root;

use crate::support::{CommandOutput, file, scratch, throughline};

const EXAMPLE: &str = "examples/tool-loop.json";

fn rules() -> impl Iterator<Item = &'static Rule> {
    CODECS.iter().flat_map(|codec| codec.rules().iter().copied())
}

/// Runs a command on a request, with the target and earlier exchanges of a rule's example.
fn on_example(command: &[&str], rule: &Rule, request: &str) -> CommandOutput {
    let example = &rule.example;
    let name = rule.id.replace('/', "-");
    let prior: Vec<String> = example
        .prior
        .iter()
        .enumerate()
        .map(|(number, text)| file(&format!("{name}-{number}.json"), text))
        .collect();
    let mut arguments = command.to_vec();
    arguments.extend(["--wire", rule.wire.as_str(), "--provider", example.provider]);
    arguments.extend(["--model", example.model]);
    arguments.extend(prior.iter().flat_map(|file| ["--prior", file]));
    arguments.push("-");
    throughline(&arguments, request.as_bytes())
}

#[test]
fn audit_accepts_a_valid_request() {
    let output = throughline(&["audit", EXAMPLE], b"");
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    let lines: Vec<&str> = output.out.lines().collect();
    let [verdict, unproved] = lines[..] else { panic!("{}", output.out) };
    assert!(verdict.starts_with("✓ accept:"), "{verdict}");
    assert!(verdict.ends_with("claude-sonnet-4-6 at anthropic"), "{verdict}");
    assert!(unproved.contains("without --prior, seals are not compared"), "{unproved}");
}

#[test]
fn session_is_repaired_on_the_detected_wire() {
    let lines = [
        (
            "gemini-3-pro-preview",
            r#"{"role":"user","parts":[{"text":"Hi"}]}
{"role":"model","parts":[{"functionCall":{"name":"look","args":{}}}]}
{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"result":"seen"}}}]}
"#,
            "gemini/first-call-needs-signature",
        ),
        (
            "deepseek-v4",
            r#"{"role":"user","content":"Hi"}
{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"look","arguments":"{}"}}]}
{"role":"tool","tool_call_id":"call_1","content":"seen"}
"#,
            "deepseek/reasoning-content-missing",
        ),
    ];
    for (model, text, rule) in lines {
        let file = file(&format!("session-{model}.jsonl"), text);
        let output = throughline(&["repair", "--session", &file, "--model", model], b"");
        assert_eq!(output.code, 0, "{}", output.err);
        assert!(output.err.contains(rule), "{}", output.err);
        assert_ne!(output.out, text);
    }
}

#[test]
fn refusal_sets_the_exit_code_with_a_closed_pipe() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(["audit", "--model", "claude-sonnet-4-5", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let body = br#"{"model":"claude-sonnet-4-5","max_tokens":100,"thinking":{"type":"enabled","budget_tokens":10},"messages":[{"role":"user","content":"Hi"}]}"#;
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), body).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn audit_json_has_exactly_the_documented_members() {
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let output = throughline(&["audit", "--format", "json", EXAMPLE], b"");
    let audit: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(keys(&audit), ["wire", "model", "verdict", "summary", "findings"]);
    let summary = ["item_count", "signed_count", "formats", "violations"];
    assert_eq!(keys(&audit["summary"]), summary, "without a violation there is no first one");
    assert_eq!(audit["wire"], "anthropic-messages");
    assert_eq!(audit["model"], "claude-sonnet-4-6");
    assert_eq!(audit["verdict"], "accept");
    for rule in rules() {
        let output = on_example(&["audit", "--format", "json"], rule, rule.example.failing);
        let audit: Value = serde_json::from_str(&output.out).unwrap();
        for finding in audit["findings"].as_array().unwrap() {
            assert_eq!(
                keys(finding),
                ["rule", "severity", "path", "message", "provider_error", "fix", "url", "evidence"]
            );
            let error = &finding["provider_error"];
            assert!(error.is_null() || error.as_str().is_some_and(|text| !text.is_empty()));
            for source in finding["evidence"].as_array().unwrap() {
                let at = if source["url"].is_string() { "url" } else { "source" };
                assert_eq!(keys(source), ["kind", at]);
                let is_address = source[at].as_str().unwrap().starts_with("https://");
                assert_eq!(is_address, at == "url", "{source}");
            }
        }
    }
}

#[test]
fn audit_json_has_the_specified_summary() {
    for rule in rules() {
        let output = on_example(&["audit", "--format", "json"], rule, rule.example.failing);
        let audit: Value = serde_json::from_str(&output.out).unwrap();
        let summary = &audit["summary"];
        let violations = summary["violations"].as_array().unwrap();
        assert_eq!(summary.get("violation"), violations.first(), "{}", rule.id);
        let is_violated = rule.breach.is_some() && audit["verdict"] == "refuse";
        assert_eq!(!violations.is_empty(), is_violated, "{}: {summary}", rule.id);
    }
    let rule = rules().find(|rule| rule.id == "anthropic/signature-missing").unwrap();
    let output = on_example(&["audit", "--format", "json"], rule, rule.example.failing);
    let format = ReasoningFormat::AnthropicClaudeV1;
    let expected = ReplayAudit {
        item_count: 1,
        signed_count: 0,
        formats: vec![format.clone()],
        violations: vec![ReplayViolation::Unsigned { item: 0, format }],
    };
    let summary = format!("\"summary\":{}", expected.json().as_str());
    assert!(output.out.contains(&summary), "{}", output.out);
}

#[test]
fn every_rule_flags_its_example_and_sets_the_exit_code() {
    for rule in rules() {
        let output = on_example(&["audit", "--format", "json"], rule, rule.example.failing);
        let audit: Value = serde_json::from_str(&output.out)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", rule.id, output.err));
        let findings = audit["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["rule"] == rule.id);
        assert!(found.is_some(), "{} is not in {findings:?}", rule.id);
        let code = i32::from(audit["verdict"] == "refuse");
        assert_eq!(output.code, code, "{}", rule.id);
        let is_refused = findings.iter().any(|finding| finding["severity"] == "refuse");
        assert_eq!(audit["verdict"] == "refuse", is_refused, "{}", rule.id);
    }
}

#[test]
fn audit_text_marks_the_place_and_names_the_rule() {
    for rule in rules() {
        let output = on_example(&["audit"], rule, rule.example.failing);
        for expected in
            [format!("[{}]: ", rule.id), format!("= see: throughline explain {}", rule.id)]
        {
            assert!(
                output.out.contains(&expected),
                "{}: {expected:?} is not in\n{}",
                rule.id,
                output.out
            );
        }
        assert!(output.out.contains("--> standard input:"), "{}", output.out);
        assert!(output.out.contains('^'), "{}", output.out);
        assert!(!output.out.contains('\u{1b}'), "colours went into a pipe");
        let widest = output
            .out
            .lines()
            .filter(|line| !line.contains("://"))
            .map(unicode_width::UnicodeWidthStr::width);
        assert!(widest.max().unwrap_or_default() <= 100, "{}", output.out);
    }
}

#[test]
fn repair_fixes_every_example_or_reports_failure() {
    for rule in rules().filter(|rule| rule.severity == Severity::Refuse) {
        let output = on_example(&["repair"], rule, rule.example.failing);
        assert!(
            output.code == 0 || output.err.contains("not fixed"),
            "{}: {}",
            rule.id,
            output.err
        );
        if output.code == 0 {
            let audited = on_example(&["audit"], rule, &output.out);
            assert_eq!(audited.code, 0, "{}: {}", rule.id, audited.out);
        }
    }
}

#[test]
fn repair_keeps_valid_requests_byte_for_byte() {
    let example = std::fs::read(workspace_root().join(EXAMPLE)).unwrap();
    let output = throughline(&["repair", "-"], &example);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(output.out.as_bytes(), example);
    assert!(output.err.contains("unchanged"), "{}", output.err);
    for rule in rules() {
        let output = on_example(&["repair"], rule, rule.example.fixed);
        assert_eq!((output.code, output.out.as_str()), (0, rule.example.fixed), "{}", rule.id);
    }
}

#[test]
fn repair_report_lists_changes_with_rules() {
    let report = scratch("changes.json");
    for rule in rules().filter(|rule| rule.severity == Severity::Refuse) {
        let command = ["repair", "--report", report.to_str().unwrap()];
        let output = on_example(&command, rule, rule.example.failing);
        let changes: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        let changes = changes.as_array().unwrap();
        assert_eq!(changes.is_empty(), output.out == rule.example.failing, "{}", rule.id);
        for change in changes {
            let keys: Vec<&String> = change.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["rule", "path", "message", "change"]);
        }
    }
    let request = file("kept.json", std::fs::read(workspace_root().join(EXAMPLE)).unwrap());
    let output = throughline(&["repair", "--report", &request, &request], b"");
    assert_eq!((output.code, output.out.as_str()), (2, ""));
    assert!(output.err.contains("would overwrite the request"), "{}", output.err);
}

#[test]
fn session_repair_keeps_unchanged_lines() {
    let lines = concat!(
        "{\"role\": \"user\",  \"content\": \"Paris?\"}\r\n",
        "\n",
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"Hm.\",\"signature\":\"RXhhbXBsZQ==\"},{\"type\":\"text\",\"text\":\"Yes.\"}]}\n",
        "  {\"role\":\"user\",\"content\":\"And Lyon?\"}",
    );
    let session = file("session.jsonl", lines);
    let command = ["repair", "--session", &session, "--wire", "anthropic-messages"];
    let output = throughline(&[&command[..], &["--model", "claude-sonnet-4-5"]].concat(), b"");
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(output.out, lines.replace("\n\n", "\n"), "only blank lines are removed");
    let broken = file("broken.jsonl", "{\"role\":\"user\",\"content\":\"a\"}\n\n{\"role\":\n");
    let output = throughline(&["repair", "--session", &broken], b"");
    assert_eq!((output.code, output.out.as_str()), (65, ""));
    assert!(output.err.contains("broken.jsonl:3:9: not JSON"), "{}", output.err);
}

#[test]
fn rules_lists_every_rule_completely() {
    let output = throughline(&["rules", "--format", "json"], b"");
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let listed: Value = serde_json::from_str(&output.out).unwrap();
    let ids: Vec<&str> =
        listed.as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    let expected: Vec<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(ids, expected);
    for (listed, rule) in listed.as_array().unwrap().iter().zip(rules()) {
        let evidence: Vec<Value> = rule
            .evidence
            .iter()
            .map(|source| {
                let at = if source.url().is_some() { "url" } else { "source" };
                json!({"kind": source.kind.as_str(), at: source.at})
            })
            .collect();
        assert_eq!(listed["evidence"], Value::from(evidence));
        assert_eq!(listed["severity"], rule.severity.as_str());
        assert_eq!(listed["provider_error"], json!(rule.provider_error));
        assert_eq!(listed["example"]["failing"], rule.example.failing);
        let profiles = listed["profiles"].as_array().unwrap();
        assert!(!profiles.is_empty(), "{} applies to no model", rule.id);
    }
    let text = throughline(&["rules"], b"");
    for rule in rules() {
        assert!(text.out.contains(rule.id), "{} is not in\n{}", rule.id, text.out);
    }
    for codec in CODECS {
        let output = throughline(&["rules", "--wire", codec.wire().as_str()], b"");
        assert_eq!(output.code, 0);
        for rule in rules() {
            assert_eq!(output.out.contains(rule.id), rule.wire == codec.wire(), "{}", rule.id);
        }
    }
}

#[test]
fn explain_covers_every_rule() {
    for rule in rules() {
        let output = throughline(&["explain", rule.id], b"");
        assert_eq!((output.code, output.err.as_str()), (0, ""));
        let expected = ["A request that breaks it", "Fix", "Evidence", "Why"];
        for expected in expected.into_iter().chain(rule.evidence.iter().map(|source| source.at)) {
            assert!(
                output.out.contains(expected),
                "{}: {expected:?} is not in\n{}",
                rule.id,
                output.out
            );
        }
        assert!(output.out.contains('^'), "{}: the place is not marked\n{}", rule.id, output.out);
    }
}

#[test]
fn unknown_rule_gets_suggestions() {
    let Some(rule) = rules().next() else { return };
    let mistyped = format!("{}x", rule.id);
    let output = throughline(&["explain", &mistyped], b"");
    assert_eq!((output.code, output.out.as_str()), (2, ""));
    assert!(output.err.contains(&format!("`{}`", rule.id)), "{}", output.err);
    let output = throughline(&["explain", "qqqqqqqqqqqqqqqq"], b"");
    assert_eq!(output.code, 2);
    assert!(output.err.contains("`throughline rules` lists all rules"), "{}", output.err);
    // The part before the slash is optional if the rest identifies one rule.
    let short = |rule: &Rule| rule.id.split_once('/').unwrap().1.to_owned();
    let alone =
        rules().find(|rule| rules().filter(|other| short(other) == short(rule)).count() == 1);
    if let Some(rule) = alone {
        let output = throughline(&["explain", &short(rule)], b"");
        assert!(output.out.contains(rule.id), "{}", output.err);
    }
}

#[test]
fn credential_headers_are_rejected_and_not_printed() {
    for header in [
        "Authorization: Bearer hunter2",
        "x-api-key: hunter2",
        "X-Goog-Api-Key:hunter2",
        "cookie: session=hunter2",
        "api-key: hunter2",
        "x-note: sk-hunter2",
        "hunter2",
        "bad name: hunter2",
    ] {
        let output = throughline(&["audit", "--header", header, EXAMPLE], b"");
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{header}");
        assert!(output.err.contains("--header"), "{}", output.err);
        assert!(!output.err.contains("hunter2"), "{}", output.err);
    }
    let header = "anthropic-beta: interleaved-thinking-2025-05-14";
    let output = throughline(&["audit", "--header", header, EXAMPLE], b"");
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn prior_is_read_in_every_format() {
    let request = r#"{"model":"claude-sonnet-4-5","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[{"role":"user","content":"Paris?"}]}"#;
    let response = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929","content":[{"type":"thinking","thinking":"Hm.","signature":"RXhhbXBsZQ=="},{"type":"text","text":"Yes."}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
    let next = r#"{"model":"claude-sonnet-4-5","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048},"messages":[{"role":"user","content":"Paris?"},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"RXhhbXBsZQ=="},{"type":"text","text":"Yes."}]},{"role":"user","content":"Lyon?"}]}"#;
    let stream = concat!(
        "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[]}}\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
    );
    let refused = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#;
    let exchange = |request: &str, response: &str, status: u16| {
        json!({"path": "/v1/messages", "request": request, "response": response,
               "response_base64": false, "status": status, "stream": false})
    };
    let recording = |exchanges: Vec<Value>| {
        json!({"wire": "anthropic-messages", "provider": "anthropic",
               "model": "claude-sonnet-4-5", "exchanges": exchanges})
        .to_string()
    };
    let with_refusal =
        recording(vec![exchange(request, response, 200), exchange(request, refused, 400)]);
    let before = [
        file("prior-request.json", request),
        file("prior-response.json", response),
        file("prior-stream.sse", stream),
        file("prior-recording.json", with_refusal),
    ];
    let next_file = file("next.json", next);
    let mut arguments = vec!["audit", "--prior-account", "default"];
    arguments.extend(before.iter().flat_map(|file| ["--prior", file]));
    arguments.push(&next_file);
    let output = throughline(&arguments, b"");
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    // If the input is a recording, its last request is audited.
    let recorded = recording(vec![exchange(request, response, 200), exchange(next, response, 200)]);
    let recorded = file("recorded.json", recorded);
    let output = throughline(&["audit", "--format", "json", &recorded], b"");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(
        output.err.contains("auditing request 2 of 2, with 1 earlier exchange as prior"),
        "{}",
        output.err
    );
    let audit: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(audit["model"], "claude-sonnet-4-5");
    let error = file("error.json", refused);
    let output = throughline(&["audit", "--prior", &error, &next_file], b"");
    assert_eq!(output.code, 0);
    assert!(output.err.contains("it contains no reply"), "{}", output.err);
}

#[test]
fn custom_profiles_are_used_and_errors_have_a_line() {
    let rows = file("rows.toml", "[[profile]]\nname = \"mine\"\nmodels = [\"mine-*\"]\n");
    let request = br#"{"model":"mine-1","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}"#;
    let command = ["audit", "--wire", "anthropic-messages", "-"];
    let output = throughline(&command, request);
    assert!(output.err.contains("unknown model `mine-1`"), "{}", output.err);
    let output = throughline(&[&command[..], &["--profiles", &rows]].concat(), request);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    // The vendor makes the model a Claude model, whatever its name.
    let claude = "[[profile]]\nname = \"mine\"\nmodels = [\"mine-*\"]\nvendor = \"anthropic\"\nbound = { model = true }\n";
    let claude = file("claude.toml", claude);
    let unsigned = br#"{"model":"mine-1","max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Hello."}]},{"role":"user","content":"Well?"}]}"#;
    let output = throughline(&[&command[..], &["--profiles", &rows]].concat(), unsigned);
    assert_eq!(output.code, 0, "{}", output.out);
    let output = throughline(&[&command[..], &["--profiles", &claude]].concat(), unsigned);
    assert_eq!(output.code, 1, "{}", output.out);
    assert!(output.out.contains("[anthropic/signature-missing]"), "{}", output.out);
    let bad = file("bad.toml", "[[profile]]\nname = \"mine\"\nmodel = \"x\"\n");
    let output = throughline(&[&command[..], &["--profiles", &bad]].concat(), request);
    assert_eq!((output.code, output.out.as_str()), (2, ""));
    assert!(output.err.contains("bad.toml:3: unknown field `model`"), "{}", output.err);
}

#[test]
fn seals_stay_masked_on_very_long_lines() {
    for rule in rules() {
        let mut request: Value = serde_json::from_str(rule.example.failing).unwrap();
        request["metadata"] = json!({"padding": "so and so on, ".repeat(8_000)});
        let output = on_example(&["audit"], rule, &request.to_string());
        for line in output.out.lines().filter(|line| !line.contains("://")) {
            assert!(unicode_width::UnicodeWidthStr::width(line) <= 100, "{}: {line}", rule.id);
        }
    }
}

#[test]
fn bad_input_gets_a_clear_sentence_and_the_right_code() {
    let folder = scratch("another-folder");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let empty = file("empty.json", "");
    let response = file("response.json", "{\"type\":\"message\",\"content\":[]}");
    let cases: Vec<(Vec<&str>, &[u8], i32, &str)> = vec![
        (vec!["-"], b"", 65, "standard input is empty"),
        (vec![&empty], b"", 65, "empty.json is empty"),
        (vec!["-"], b"{\"model\":\"x\",\n\"messages\":[", 65, "standard input:2:13: not JSON"),
        (vec!["-"], b"hello", 65, "does not look like a request, response or stream"),
        (vec!["-"], b"\xff\xfe\x00", 65, "does not look like a request, response or stream"),
        (vec!["-"], b"{\"exchanges\":[]}", 65, "is a recording without a request"),
        (vec![&response], b"", 65, "is a response, not a request"),
        (vec!["--wire", "gemini", EXAMPLE], b"", 65, "it looks like anthropic-messages"),
        (vec!["--wire", "morse", EXAMPLE], b"", 2, "possible values: anthropic-messages"),
        (vec![folder], b"", 2, "is a directory"),
        (vec!["no-such-file.json"], b"", 2, "cannot open no-such-file.json: No such file"),
        (vec![], b"", 2, "required arguments were not provided"),
        (vec!["--model", "", EXAMPLE], b"", 2, "a value is required"),
        (
            vec!["--provider", "unknown", EXAMPLE],
            b"",
            2,
            "provider `unknown` does not support anthropic-messages",
        ),
        (
            vec!["--account-created", "yesterday", EXAMPLE],
            b"",
            2,
            "expected a date such as 2026-08-31",
        ),
        (vec!["--prior", &empty, EXAMPLE], b"", 65, "empty.json is empty"),
        (vec!["--prior", "", EXAMPLE], b"", 2, "a value is required"),
        (vec!["--prior", "gone.json", EXAMPLE], b"", 2, "cannot open gone.json"),
        (vec!["--profiles", "gone.toml", EXAMPLE], b"", 2, "cannot read gone.toml"),
    ];
    for command in ["audit", "repair"] {
        for (arguments, input, code, message) in &cases {
            let output = throughline(&[&[command], arguments.as_slice()].concat(), input);
            assert_eq!(output.code, *code, "{command} {arguments:?}: {}", output.err);
            assert!(output.err.contains(message), "{command} {arguments:?}: {}", output.err);
            assert!(!output.err.contains("panicked") && output.out.is_empty(), "{}", output.err);
        }
    }
    let output = throughline(&["audit", "--model", "nobodys-model-9", EXAMPLE], b"");
    assert_eq!(output.code, 0);
    assert!(output.err.contains("unknown model `nobodys-model-9`"), "{}", output.err);
    let output = throughline(&["audit", "-"], br#"{"contents":[{"parts":[{"text":"Hi"}]}]}"#);
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("specify it with --model"), "{}", output.err);
}
