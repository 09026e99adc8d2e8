//! What is found when a request is compared with what was issued, on the wire whose parts carry the most.

use bytes::Bytes;
use throughline_core::{Name, Request, Tree, Why};

use crate::audit::{ChangeKind, Comparison, Prior, Transcript};
use crate::{AnthropicMessages, Asked, Catalog};

const MODEL: &str = "claude-sonnet-4-5";

const FIRST: &str = r#"{"model":"claude-sonnet-4-5","max_tokens":9000,"system":"be brief","tools":[{"name":"look","input_schema":{"type":"object"}}],
    "messages":[{"role":"user","content":"find it"}]}"#;
const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[
    {"type":"thinking","thinking":"first I should look around","signature":"c2VhbC1vbmU="},
    {"type":"redacted_thinking","data":"c2VhbC10d28="},
    {"type":"thinking","thinking":"then I should look again","signature":"c2VhbC10aHJlZQ=="},
    {"type":"tool_use","id":"toolu_1","name":"look","input":{}}],
    "stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1}}"#;
const BLOCKS: [&str; 4] = [
    r#"{"type":"thinking","thinking":"first I should look around","signature":"c2VhbC1vbmU="}"#,
    r#"{"type":"redacted_thinking","data":"c2VhbC10d28="}"#,
    r#"{"type":"thinking","thinking":"then I should look again","signature":"c2VhbC10aHJlZQ=="}"#,
    r#"{"type":"tool_use","id":"toolu_1","name":"look","input":{}}"#,
];

fn asked(model: &str, account: &str) -> Asked {
    let catalog = Catalog::builtin();
    Asked::of(catalog.target_for("anthropic", model, account).unwrap())
}

fn request(body: String) -> Request {
    Request { path: Name::from("/v1/messages"), headers: Vec::new(), body: Bytes::from(body) }
}

fn second(blocks: &[&str]) -> String {
    FIRST.replace(
        "}]}",
        &format!(
            r#"}},{{"role":"assistant","content":[{}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_1","content":"here"}}]}}]}}"#,
            blocks.join(",")
        ),
    )
}

/// What happened to what was issued, with the text at the place where it happened.
fn changes_for(body: String, to: &Asked, from: &Asked) -> Vec<(ChangeKind, String)> {
    let mut prior = Prior::new();
    prior.push_request(&AnthropicMessages, &request(FIRST.to_owned()), from.clone()).unwrap();
    prior.push_response(&AnthropicMessages, &Bytes::from(ANSWER), from.clone()).unwrap();
    let request = request(body);
    let transcript = Transcript::of(&AnthropicMessages, &request).after(&prior);
    let tree = Tree::parse(request.body.clone()).unwrap();
    let comparison = Comparison::of(&transcript, &to.target, &tree).unwrap();
    let text = |place: &std::ops::Range<usize>| {
        String::from_utf8(request.body.slice(place.clone()).to_vec()).unwrap()
    };
    comparison
        .changes
        .iter()
        .map(|change| {
            let place = change.seal.as_ref().or(change.part.as_ref());
            (change.kind, place.map_or_else(String::new, text))
        })
        .collect()
}

fn changes(blocks: &[&str]) -> Vec<(ChangeKind, String)> {
    let here = asked(MODEL, "mine");
    changes_for(second(blocks), &here, &here)
}

#[test]
fn what_comes_back_as_it_was_issued_has_not_changed() {
    assert_eq!(changes(&BLOCKS), []);
}

#[test]
fn an_altered_seal_is_named_with_its_first_differing_byte() {
    let altered = BLOCKS[0].replace("c2VhbC1vbmU=", "c2VhbC1vbmY=");
    let found = changes(&[&altered, BLOCKS[1], BLOCKS[2], BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::SealAltered { first: 10 }, r#""c2VhbC1vbmY=""#.to_owned())]);
}

#[test]
fn an_edited_text_is_named_with_its_first_differing_character() {
    let edited = BLOCKS[2].replace("look again", "look away");
    let found = changes(&[BLOCKS[0], BLOCKS[1], &edited, BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::TextEdited { first: 20 }, edited)]);
}

#[test]
fn a_seal_that_lost_its_padding_was_written_anew() {
    let bare = BLOCKS[0].replace("bmU=", "bmU");
    let found = changes(&[&bare, BLOCKS[1], BLOCKS[2], BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::SealReencoded, r#""c2VhbC1vbmU""#.to_owned())]);
}

#[test]
fn a_dropped_seal_is_missed_on_its_part_and_a_dropped_part_altogether() {
    let unsigned = BLOCKS[0].replace(r#","signature":"c2VhbC1vbmU=""#, "");
    let found = changes(&[&unsigned, BLOCKS[2], BLOCKS[3]]);
    assert_eq!(
        found,
        [(ChangeKind::PartDropped, String::new()), (ChangeKind::SealDropped, unsigned)]
    );
}

#[test]
fn swapped_seals_are_each_on_anothers_part() {
    let first = BLOCKS[0].replace("c2VhbC1vbmU=", "c2VhbC10aHJlZQ==");
    let third = BLOCKS[2].replace("c2VhbC10aHJlZQ==", "c2VhbC1vbmU=");
    let found = changes(&[&first, BLOCKS[1], &third, BLOCKS[3]]);
    let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.contains(&ChangeKind::SealMoved), "{kinds:?}");
}

#[test]
fn merged_blocks_hold_what_was_issued_as_several() {
    let merged = r#"{"type":"thinking","thinking":"first I should look around then I should look again","signature":"c2VhbC10aHJlZQ=="}"#;
    let found = changes(&[BLOCKS[1], merged, BLOCKS[3]]);
    assert!(found.contains(&(ChangeKind::Merged, merged.to_owned())), "{found:?}");
}

#[test]
fn what_stands_in_another_order_is_named() {
    let found = changes(&[BLOCKS[2], BLOCKS[1], BLOCKS[0], BLOCKS[3]]);
    assert!(found.contains(&(ChangeKind::Reordered, BLOCKS[0].to_owned())), "{found:?}");
    let behind = changes(&[BLOCKS[0], BLOCKS[1], BLOCKS[3], BLOCKS[2]]);
    assert!(behind.contains(&(ChangeKind::Reordered, BLOCKS[2].to_owned())), "{behind:?}");
}

#[test]
fn a_second_copy_is_named() {
    let found = changes(&[BLOCKS[0], BLOCKS[0], BLOCKS[1], BLOCKS[2], BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::Duplicated, r#""c2VhbC1vbmU=""#.to_owned())]);
}

#[test]
fn a_seal_from_nowhere_was_issued_by_nobody() {
    let forged = r#"{"type":"thinking","thinking":"I was never thought","signature":"Zm9yZ2Vk"}"#;
    let found = changes(&[BLOCKS[0], BLOCKS[1], BLOCKS[2], BLOCKS[3], forged]);
    assert_eq!(found, [(ChangeKind::Unissued, r#""Zm9yZ2Vk""#.to_owned())]);
}

#[test]
fn a_thought_said_aloud_is_recognised() {
    let aloud = r#"{"type":"text","text":"<think>first I should look around</think>"}"#;
    let found = changes(&[aloud, BLOCKS[3]]);
    assert!(found.contains(&(ChangeKind::SaidAloud, aloud.to_owned())), "{found:?}");
}

#[test]
fn another_accounts_seal_is_foreign_where_seals_are_bound_to_accounts() {
    let (mine, theirs) = (asked("claude-sonnet-5-5", "mine"), asked("claude-sonnet-5-5", "theirs"));
    let found = changes_for(second(&BLOCKS), &mine, &theirs);
    let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, vec![ChangeKind::Foreign(Why::OtherAccount); 3]);
}

#[test]
fn an_answer_of_which_nothing_comes_back_is_not_missed() {
    let here = asked(MODEL, "mine");
    let other = FIRST.replace("find it", "never mind");
    assert_eq!(changes_for(other, &here, &here), []);
}
