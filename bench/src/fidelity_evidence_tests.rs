//! Tests of the evidence for better results.

use serde_json::{Value, json};

use super::to_markdown;

fn entry(returned: usize, lost: u64, refused: Option<&str>) -> Value {
    let returned = vec![json!({"seal": "s", "path": "/p", "verdict": "accepted"}); returned];
    json!({"returned": returned, "lost": lost, "refused": refused})
}

fn report(gateway: &str, kept: u64, ledger: &[Value], notes: &[&str]) -> Value {
    let case = json!({
        "wire": "chat", "case": "lossy-client", "streamed": false, "unsupported": null,
        "kept": kept, "ledger": ledger, "notes": notes,
    });
    json!({"gateway": gateway, "cases": [case]})
}

#[test]
fn each_loss_is_shown_beside_the_same_request_through_the_first_gateway() {
    let own = report("Throughline 1", 2, &[entry(0, 0, None), entry(1, 0, None)], &[]);
    let others = [
        report("Silent 2", 0, &[entry(0, 0, None), entry(0, 1, None)], &[]),
        report("Also silent 3", 0, &[entry(0, 0, None), entry(0, 1, None)], &[]),
        report("Refused 4", 1, &[entry(0, 0, None), entry(0, 0, Some("a | b"))], &[]),
        report("Failed 5", 1, &[entry(0, 0, None)], &["502: unreadable"]),
        report("Equal 6", 2, &[], &[]),
    ];
    let reports: Vec<Value> = [own].into_iter().chain(others).collect();
    let table = to_markdown(&reports);
    let lines: Vec<&str> = table.lines().skip(2).collect();
    let own = "request 2: 1 Seal returned, 1 accepted";
    let row = |gateway: &str, loss: &str| {
        format!("| chat | lossy-client | {gateway} | request 2: {loss} | {own} |")
    };
    assert_eq!(
        lines,
        [
            row("Silent 2, Also silent 3", "0 Seals returned, 0 accepted, 1 lost"),
            row("Refused 4", "refused: “a \\| b”; 0 Seals returned, 0 accepted"),
            row("Failed 5", "the gateway failed: 502: unreadable"),
        ]
    );
}
