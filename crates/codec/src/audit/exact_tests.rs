//! Tests the comparison of replayed and issued content on the Messages wire, which has the most
//! kinds of parts.

use bytes::Bytes;
use throughline_core::{ElisionReason, Request};
use throughline_json::{Name, Tree};

use crate::audit::{ChangeKind, Comparison, PriorExchanges, Transcript};
use crate::{AnthropicMessages, Catalog, DecodeContext};

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

fn context(model: &str, account: &str) -> DecodeContext {
    let catalog = Catalog::builtin();
    DecodeContext::of(catalog.target_for("anthropic", model, account).unwrap())
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

/// Returns the kind of each change and the request text at the change's position.
fn changes_for(
    body: String,
    to: &DecodeContext,
    from: &DecodeContext,
) -> Vec<(ChangeKind, String)> {
    let mut prior = PriorExchanges::new();
    prior.push_request(&AnthropicMessages, &request(FIRST.to_owned()), from.clone()).unwrap();
    prior.push_response(&AnthropicMessages, &Bytes::from(ANSWER), from.clone()).unwrap();
    let request = request(body);
    let transcript = Transcript::new(&AnthropicMessages, &request).with_prior(&prior);
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
    let here = context(MODEL, "mine");
    changes_for(second(blocks), &here, &here)
}

#[test]
fn exact_replay_reports_no_change() {
    assert_eq!(changes(&BLOCKS), []);
}

#[test]
fn altered_seal_is_reported_with_its_first_differing_byte() {
    let altered = BLOCKS[0].replace("c2VhbC1vbmU=", "c2VhbC1vbmY=");
    let found = changes(&[&altered, BLOCKS[1], BLOCKS[2], BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::SealAltered { first: 10 }, r#""c2VhbC1vbmY=""#.to_owned())]);
}

#[test]
fn edited_text_is_reported_with_its_first_differing_character() {
    let edited = BLOCKS[2].replace("look again", "look away");
    let found = changes(&[BLOCKS[0], BLOCKS[1], &edited, BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::TextEdited { first: 20 }, edited)]);
}

#[test]
fn seal_without_padding_is_reported_as_reencoded() {
    let unpadded = BLOCKS[0].replace("bmU=", "bmU");
    let found = changes(&[&unpadded, BLOCKS[1], BLOCKS[2], BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::SealReencoded, r#""c2VhbC1vbmU""#.to_owned())]);
}

#[test]
fn dropped_seals_and_dropped_parts_are_reported() {
    let unsigned = BLOCKS[0].replace(r#","signature":"c2VhbC1vbmU=""#, "");
    let found = changes(&[&unsigned, BLOCKS[2], BLOCKS[3]]);
    assert_eq!(
        found,
        [(ChangeKind::PartDropped, String::new()), (ChangeKind::SealDropped, unsigned)]
    );
}

#[test]
fn swapped_seals_are_reported_as_moved() {
    let first = BLOCKS[0].replace("c2VhbC1vbmU=", "c2VhbC10aHJlZQ==");
    let third = BLOCKS[2].replace("c2VhbC10aHJlZQ==", "c2VhbC1vbmU=");
    let found = changes(&[&first, BLOCKS[1], &third, BLOCKS[3]]);
    let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.contains(&ChangeKind::SealMoved), "{kinds:?}");
}

#[test]
fn merged_blocks_are_reported() {
    let merged = r#"{"type":"thinking","thinking":"first I should look around then I should look again","signature":"c2VhbC10aHJlZQ=="}"#;
    let found = changes(&[BLOCKS[1], merged, BLOCKS[3]]);
    assert!(found.contains(&(ChangeKind::Merged, merged.to_owned())), "{found:?}");
}

#[test]
fn reordered_blocks_are_reported() {
    let found = changes(&[BLOCKS[2], BLOCKS[1], BLOCKS[0], BLOCKS[3]]);
    assert!(found.contains(&(ChangeKind::Reordered, BLOCKS[0].to_owned())), "{found:?}");
    let behind = changes(&[BLOCKS[0], BLOCKS[1], BLOCKS[3], BLOCKS[2]]);
    assert!(behind.contains(&(ChangeKind::Reordered, BLOCKS[2].to_owned())), "{behind:?}");
}

#[test]
fn duplicate_is_reported() {
    let found = changes(&[BLOCKS[0], BLOCKS[0], BLOCKS[1], BLOCKS[2], BLOCKS[3]]);
    assert_eq!(found, [(ChangeKind::Duplicated, r#""c2VhbC1vbmU=""#.to_owned())]);
}

#[test]
fn unknown_seal_is_reported_as_not_issued() {
    let forged = r#"{"type":"thinking","thinking":"I was never thought","signature":"Zm9yZ2Vk"}"#;
    let found = changes(&[BLOCKS[0], BLOCKS[1], BLOCKS[2], BLOCKS[3], forged]);
    assert_eq!(found, [(ChangeKind::Unissued, r#""Zm9yZ2Vk""#.to_owned())]);
}

#[test]
fn thought_sent_as_text_is_reported() {
    let text_block = r#"{"type":"text","text":"<think>first I should look around</think>"}"#;
    let found = changes(&[text_block, BLOCKS[3]]);
    assert!(found.contains(&(ChangeKind::SentAsText, text_block.to_owned())), "{found:?}");
}

#[test]
fn account_bound_seal_of_another_account_is_foreign() {
    let (mine, theirs) =
        (context("claude-sonnet-5-5", "mine"), context("claude-sonnet-5-5", "theirs"));
    let found = changes_for(second(&BLOCKS), &mine, &theirs);
    let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, vec![ChangeKind::Foreign(ElisionReason::OtherAccount); 3]);
}

#[test]
fn unreplayed_reply_is_not_reported_as_missing() {
    let here = context(MODEL, "mine");
    let other = FIRST.replace("find it", "never mind");
    assert_eq!(changes_for(other, &here, &here), []);
}
