//! Tests of scoring a conversation from ledger entries.

use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_sim::{IssuedSeal, LedgerEntry, ReturnedSeal, Verdict};

use super::{CaseScore, ScoredRequest, Tally};

const CLAUDE: &str = "claude-sonnet-5-5";

fn entry(model: &str, issued: &[&str], returned: &[(&str, Verdict)]) -> LedgerEntry {
    LedgerEntry {
        provider: "anthropic".to_owned(),
        model: model.to_owned(),
        status: 200,
        issued: issued
            .iter()
            .map(|seal| IssuedSeal { seal: (*seal).to_owned(), kind: "thinking".to_owned() })
            .collect(),
        returned: returned
            .iter()
            .map(|(seal, verdict)| ReturnedSeal {
                seal: (*seal).to_owned(),
                path: String::new(),
                verdict: verdict.clone(),
            })
            .collect(),
        input: 100,
        cached: 80,
        ..LedgerEntry::default()
    }
}

fn add(score: &mut CaseScore, entries: &[LedgerEntry]) {
    score.add_request(&ScoredRequest {
        entries,
        received: None,
        complete: None,
        catalog: Catalog::builtin(),
    });
}

fn seals(tally: &Tally) -> (usize, usize, usize) {
    (tally.kept, tally.lost, tally.altered)
}

#[test]
fn seals_are_counted_in_the_next_request() {
    let mut score = CaseScore::default();
    add(&mut score, &[entry(CLAUDE, &["a", "b", "c", "d"], &[])]);
    assert_eq!(seals(&score.tally), (0, 0, 0));
    let dropped = Verdict::Dropped("moved".to_owned());
    let forged = Verdict::Refused("forged".to_owned());
    let returned = [("a", Verdict::Accepted), ("b", dropped), ("x", forged)];
    add(&mut score, &[entry(CLAUDE, &["e"], &returned)]);
    // `b` moved, `x` is a changed `c` or `d`, and the other one is lost.
    assert_eq!(seals(&score.tally), (1, 1, 2));
    add(&mut score, &[entry(CLAUDE, &[], &[("e", Verdict::Accepted)])]);
    assert_eq!(seals(&score.tally), (2, 1, 2));
    assert!(!score.tally.is_faithful());
}

#[test]
fn seals_wait_for_a_model_that_can_read_them() {
    let mut score = CaseScore::default();
    add(&mut score, &[entry(CLAUDE, &["a"], &[])]);
    add(&mut score, &[entry("gemini-3.8-flash", &["g"], &[])]);
    assert_eq!(seals(&score.tally), (0, 0, 0));
    add(&mut score, &[entry(CLAUDE, &[], &[("a", Verdict::Accepted)])]);
    assert_eq!(seals(&score.tally), (1, 0, 0));
}

#[test]
fn changed_prefix_and_compaction_release_seals() {
    let mut score = CaseScore::default();
    add(&mut score, &[entry(CLAUDE, &["a"], &[])]);
    score.change_prefix();
    add(&mut score, &[entry(CLAUDE, &["b"], &[])]);
    assert_eq!(seals(&score.tally), (0, 0, 0));
    assert_eq!((score.tally.prefix_kept, score.tally.prefix_total), (0, 0));
    score.compact();
    add(&mut score, &[entry(CLAUDE, &["c"], &[])]);
    assert_eq!(seals(&score.tally), (0, 0, 0));
    add(&mut score, &[entry(CLAUDE, &[], &[])]);
    assert_eq!(seals(&score.tally), (0, 1, 0));
    assert_eq!((score.tally.prefix_kept, score.tally.prefix_total), (80, 100));
}

#[test]
fn plain_reasoning_is_due_only_if_the_provider_uses_it() {
    let mut score = CaseScore::default();
    let chat = |stop: &str, seal: &str| LedgerEntry {
        wire: "openai-chat".to_owned(),
        stop: Some(stop.to_owned()),
        ..entry("deepseek-v4-pro", &[seal], &[])
    };
    add(&mut score, &[chat("done", "a")]);
    add(&mut score, &[chat("tools", "b")]);
    assert_eq!(seals(&score.tally), (0, 0, 0));
    add(&mut score, &[chat("tools", "c")]);
    assert_eq!(seals(&score.tally), (0, 1, 0));
    // The answer after the calls belongs to their turn, and the next answer does not.
    add(&mut score, &[chat("done", "d")]);
    assert_eq!(seals(&score.tally), (0, 2, 0));
    add(&mut score, &[chat("done", "e")]);
    assert_eq!(seals(&score.tally), (0, 3, 0));
    add(&mut score, &[chat("done", "f")]);
    assert_eq!(seals(&score.tally), (0, 3, 0));
}

#[test]
fn retried_refusals_count_once() {
    let mut score = CaseScore::default();
    let refused = LedgerEntry {
        status: 400,
        refused: Some("Invalid signature".to_owned()),
        ..entry(CLAUDE, &[], &[])
    };
    add(&mut score, &[refused.clone(), refused, entry(CLAUDE, &["a"], &[])]);
    assert_eq!((score.tally.refused, score.requests, score.ledger.len()), (1, 1, 3));
    assert_eq!(score.notes, ["anthropic refused a request: Invalid signature"]);
}

#[test]
fn changed_bytes_are_those_of_the_differing_tokens() {
    let mut score = CaseScore::default();
    let sent = json!({"messages": [{"role": "user", "content": "Hello"}], "model": "a"});
    let received: Value = json!({"messages": [{"role": "user", "content": "Hi"}], "model": "b"});
    let entries = [entry(CLAUDE, &[], &[])];
    score.add_request(&ScoredRequest {
        entries: &entries,
        received: Some(received),
        complete: Some(&sent),
        catalog: Catalog::builtin(),
    });
    assert_eq!(score.tally.bytes_changed, Some(7 + 4));
}
