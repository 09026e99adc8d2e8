//! Tests of the check of Throughline's own results, of the tables and of the peers' versions.

use serde_json::{Value, json};

use super::first_failed_case;
use crate::fidelity_table::to_markdown;

fn case() -> Value {
    json!({
        "wire": "chat", "case": "tool-loop", "unsupported": null,
        "kept": 8, "lost": 0, "altered": 0, "refused": 0, "errors": 0,
    })
}

#[test]
fn complete_results_have_no_failed_case() {
    assert_eq!(first_failed_case(&json!({"cases": [case(), case()]})), None);
}

#[test]
fn lossy_unsupported_and_empty_results_fail() {
    let failures = [
        ("lost", json!(1)),
        ("altered", json!(1)),
        ("refused", json!(1)),
        ("errors", json!(1)),
        ("unsupported", json!("the gateway returned 404")),
    ];
    for (name, value) in failures {
        let mut failed = case();
        failed[name] = value;
        let failure = first_failed_case(&json!({"cases": [case(), failed]}));
        let expected = "Throughline failed the case tool-loop on chat; see the raw results";
        assert_eq!(failure.as_deref(), Some(expected), "{name}");
    }
    assert!(first_failed_case(&json!({"cases": []})).is_some());
    assert!(first_failed_case(&json!({})).is_some());
}

#[test]
fn tables_name_each_gateway_with_its_version() {
    let mut lossy = case();
    lossy["lost"] = json!(2);
    let reports = [
        json!({"gateway": "Throughline 0.1.0", "cases": [case(), case()]}),
        json!({"gateway": "Other 1.2.3", "cases": [case(), lossy]}),
    ];
    let tables = to_markdown(&reports);
    for line in [
        "| Throughline 0.1.0 | 16 | 0 | 0 | 0 | 0 | 0 | – | – |",
        "| wire | case | Throughline 0.1.0 | Other 1.2.3 |",
        "| chat | tool-loop | 16 kept | 16 kept, **2 lost** |",
    ] {
        assert!(tables.lines().any(|other| other == line), "{line} is not in\n{tables}");
    }
}

#[test]
fn measured_versions_are_those_that_the_script_installs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = std::fs::read_to_string(root.join("scripts/peers")).unwrap();
    let page = std::fs::read_to_string(root.join("docs/fidelity.md")).unwrap();
    for (variable, name) in [
        ("litellm", "LiteLLM"),
        ("portkey", "Portkey"),
        ("claude_code_router", "Claude Code Router"),
        ("smg", "SMG"),
    ] {
        let start = format!("{variable}=");
        let version = script.lines().find_map(|line| line.strip_prefix(&start));
        let version = version.unwrap_or_else(|| panic!("scripts/peers does not pin {name}"));
        let row = format!("| {name} {version} |");
        assert!(page.contains(&row), "docs/fidelity.md has no results of {name} {version}");
    }
}

#[test]
fn published_tables_have_the_sums_of_the_raw_results() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = std::fs::read_to_string(root.join("fidelity.md")).unwrap();
    let raw = std::fs::read_to_string(root.join("fidelity-results.csv")).unwrap();
    let header = "gateway,wire,case,responses,supported,requests,kept,lost,altered,refused,errors,";
    assert!(raw.starts_with(header), "{raw}");
    let mut sums: Vec<(&str, [u64; 5])> = Vec::new();
    for line in raw.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        if sums.last().is_none_or(|(gateway, _)| *gateway != cells[0]) {
            sums.push((cells[0], [0; 5]));
        }
        for (sum, cell) in sums.last_mut().unwrap().1.iter_mut().zip(&cells[6..11]) {
            *sum += cell.parse::<u64>().unwrap();
        }
    }
    assert!(sums.len() >= 4, "{sums:?}");
    for (gateway, [kept, lost, altered, refused, errors]) in sums {
        let row = format!("| {gateway} | {kept} | {lost} | {altered} | {refused} | {errors} |");
        assert!(page.contains(&row), "docs/fidelity.md does not have the row {row}");
    }
}
