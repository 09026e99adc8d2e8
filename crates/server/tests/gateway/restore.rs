//! Tests captures and restores on every wire: which evidence restores which values, what stays
//! unchanged, what is reported, and which matches restore nothing.

use crate::common::said::{Message, ModelTurn, WireTarget, seal};
use crate::common::{KEY, ReplayFixture, sealed};
use throughline_codec::DecodeContext;
use throughline_core::{
    Body, Call, Disposition, ElisionReason, EncodedRequest, Evidence, Fate, Item, Reply,
    StopReason, Store, Tenant, TurnId, VaultKey, restore_items,
};
use throughline_replay::{Claims, Conversation, Finding, RestoreIssue, RestoredCall, Turn};

const SYSTEM: &str = "Be brief.";
const PLAIN: Evidence = Evidence::Chain { siblings: 0 };

fn tenant() -> Tenant {
    Tenant::from("acme")
}

fn user(text: &str) -> Message {
    Message::User(text.to_owned())
}

fn text_reply(text: &str, thought_id: u64) -> ModelTurn {
    ModelTurn { text: text.to_owned(), call: None, thought_id }
}

/// Returns a model reply with a tool call. The call id is the same in every reply from this
/// function.
fn calls(text: &str, thought_id: u64) -> ModelTurn {
    ModelTurn {
        call: Some(("call_0".into(), "look".into(), "here".into())),
        ..text_reply(text, thought_id)
    }
}

/// Returns a model reply with a tool call that has this id.
fn call_answer_with_id(id: &str, text: &str, thought_id: u64) -> ModelTurn {
    ModelTurn {
        call: Some((id.into(), "look".into(), "here".into())),
        ..text_reply(text, thought_id)
    }
}

fn result(answer: &ModelTurn, text: &str) -> Message {
    let (id, name, _) = answer.call.clone().unwrap();
    Message::Tool { id, name, text: text.to_owned() }
}

/// Restores and sends a request, and captures `answer` as the reply.
async fn exchange(
    fixture: &ReplayFixture,
    wire_target: &WireTarget,
    call: Call,
    answer: &ModelTurn,
) -> (RestoredCall, EncodedRequest, TurnId) {
    let (restored, encoded) = send(fixture, wire_target, call).await;
    let reply = wire_target.reply_after(answer, encoded.prefix);
    let node = fixture.capture(&tenant(), &restored, &reply, &encoded).await.unwrap();
    (restored, encoded, node)
}

async fn send(
    fixture: &ReplayFixture,
    wire_target: &WireTarget,
    call: Call,
) -> (RestoredCall, EncodedRequest) {
    let restored = fixture.replay.restore(&tenant(), None, call).await.unwrap();
    let mut encoded = wire_target.codec.encode(&restored.call).unwrap();
    restored.account(&mut encoded);
    (restored, encoded)
}

/// Runs a tool loop whose requests contain no reasoning. Returns the messages: two captured
/// replies, the tool result and the next question.
async fn run_tool_loop(fixture: &ReplayFixture, wire_target: &WireTarget) -> Vec<Message> {
    let mut messages = vec![user("Look.")];
    let first = calls("I look.", 1);
    exchange(fixture, wire_target, wire_target.lossy(SYSTEM, &messages), &first).await;
    messages.extend([Message::Model(first.clone()), result(&first, "a door")]);
    let second = text_reply("A door.", 2);
    exchange(fixture, wire_target, wire_target.lossy(SYSTEM, &messages), &second).await;
    messages.extend([Message::Model(second), user("And behind it?")]);
    messages
}

fn seals_sent(wire_target: &WireTarget, encoded: &EncodedRequest) -> Vec<Vec<String>> {
    wire_target.seals_sent(&encoded.request.body)
}

#[tokio::test]
async fn lossy_client_gets_all_seals_restored_on_every_wire() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let messages = run_tool_loop(&fixture, &wire_target).await;
        let (restored, encoded) =
            send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
        let wire = wire_target.codec.wire();
        assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)], [seal(2)]], "{wire}");
        assert_eq!(restored.findings, [], "{wire}");
        let fates = encoded.fates.iter().flat_map(|fate| &fate.seals);
        assert_eq!(fates.collect::<Vec<_>>(), [&Disposition::Restored(PLAIN); 2], "{wire}");
        // The request equals that of a client that dropped nothing: each part, in order.
        let issued =
            [wire_target.reply(&calls("I look.", 1)), wire_target.reply(&text_reply("A door.", 2))];
        let issued: Vec<_> = issued.iter().flat_map(|reply| sealed(&reply.items)).collect();
        assert_eq!(sealed(&restored.call.items), issued, "{wire}");
        // The same holds for a process with empty caches.
        let uncached = fixture.forgetful();
        let uncached =
            uncached.restore(&tenant(), None, wire_target.lossy(SYSTEM, &messages)).await.unwrap();
        let uncached = wire_target.codec.encode(&uncached.call).unwrap();
        assert_eq!(uncached.request, encoded.request, "{wire}");
    }
}

/// A client may change the ids of tool calls. The gateway restores the issued ids in the calls and
/// in their results.
#[tokio::test]
async fn results_follow_renamed_calls_to_the_issued_id() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let mut messages = run_tool_loop(&fixture, &wire_target).await;
        for message in &mut messages {
            match message {
                Message::Model(ModelTurn { call: Some((id, ..)), .. })
                | Message::Tool { id, .. } => {
                    id.insert_str(0, "clients-own-");
                }
                Message::Model(_) | Message::User(_) => {}
            }
        }
        let (_, encoded) = send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
        let wire = wire_target.codec.wire();
        assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)], [seal(2)]], "{wire}");
        let sent = wire_target
            .codec
            .decode_request(&encoded.request, &DecodeContext::of(wire_target.target.clone()));
        let sent = sent.unwrap().items;
        let calls = sent.iter().filter_map(Item::call).map(|call| call.wire_id.as_deref());
        let answers = sent.iter().filter_map(|item| match &item.body {
            Body::Result(result) => Some(result.wire_id.as_deref()),
            _ => None,
        });
        assert_eq!(calls.collect::<Vec<_>>(), [Some("call_0")], "{wire}");
        assert_eq!(answers.collect::<Vec<_>>(), [Some("call_0")], "{wire}");
    }
}

/// Tests invariant 9: each request to the provider extends the previous request, although the
/// client always drops the reasoning.
#[tokio::test]
async fn the_next_request_extends_the_last() {
    let wire_target = WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let fixture = ReplayFixture::new().await;
    let mut history = run_tool_loop(&fixture, &wire_target).await;
    let (_, first) = send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &history)).await;
    let third = text_reply("A garden.", 3);
    exchange(&fixture, &wire_target, wire_target.lossy(SYSTEM, &history), &third).await;
    history.extend([Message::Model(third), user("Thanks.")]);
    let (_, next) = send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &history)).await;
    let messages = |encoded: &EncodedRequest| {
        let body: serde_json::Value = serde_json::from_slice(&encoded.request.body).unwrap();
        body["messages"].as_array().unwrap().clone()
    };
    let (first, next) = (messages(&first), messages(&next));
    assert_eq!(next[..first.len()], first);
}

#[tokio::test]
async fn intact_turns_stay_unchanged() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let messages = run_tool_loop(&fixture, &wire_target).await;
        let call = wire_target.sealed(SYSTEM, &messages, |answer| Some(seal(answer.thought_id)));
        let received = call.source.as_ref().unwrap().request.clone();
        let (restored, encoded) = send(&fixture, &wire_target, call).await;
        let wire = wire_target.codec.wire();
        assert_eq!(encoded.request, received, "{wire}");
        assert_eq!(restored.findings, [], "{wire}");
        let is_kept = |did: &Disposition| *did == Disposition::Kept;
        let fates = encoded.fates.iter();
        assert!(
            fates.clone().all(|f| is_kept(&f.visible) && f.seals.iter().all(is_kept)),
            "{wire}"
        );
        assert!(restored.conversation.parent.is_some(), "{wire}");
    }
}

#[tokio::test]
async fn tampering_is_repaired_and_reported() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let messages = run_tool_loop(&fixture, &wire_target).await;
        let call = wire_target.sealed(SYSTEM, &messages, |answer| {
            Some(if answer.thought_id == 2 { "c3BvaWxlZA==".to_owned() } else { seal(1) })
        });
        let (restored, encoded) = send(&fixture, &wire_target, call).await;
        let wire = wire_target.codec.wire();
        assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)], [seal(2)]], "{wire}");
        let problems: Vec<_> = restored.findings.iter().map(|finding| finding.problem).collect();
        assert_eq!(problems, [RestoreIssue::Altered], "{wire}");
    }
}

#[tokio::test]
async fn unique_id_finds_a_turn_after_an_edited_prompt() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let first = call_answer_with_id("call_9f8e7d6c5b4a", "I look.", 1);
        exchange(&fixture, &wire_target, wire_target.lossy(SYSTEM, &[user("Look.")]), &first).await;
        let messages = [user("Look!"), Message::Model(first.clone()), result(&first, "a door")];
        let (_, encoded) =
            send(&fixture, &wire_target, wire_target.lossy("Be thorough.", &messages)).await;
        let wire = wire_target.codec.wire();
        let sent = seals_sent(&wire_target, &encoded);
        let restored = encoded.fates.iter().flat_map(|fate| &fate.seals).next();
        // Invariant 10: a prefix-bound Seal is not sent after a changed prefix.
        if wire_target.target.profile.bound.prefix {
            assert_eq!(sent, [Vec::<String>::new()], "{wire}");
            assert_eq!(
                restored,
                Some(&Disposition::Elided(ElisionReason::PrefixChanged)),
                "{wire}"
            );
        } else {
            assert_eq!(sent, [[seal(1)]], "{wire}");
            assert_eq!(restored, Some(&Disposition::Restored(Evidence::UniqueId)), "{wire}");
        }
        // The id alone is not enough: other arguments make it another call.
        let other = ModelTurn {
            call: Some(("call_9f8e7d6c5b4a".into(), "look".into(), "there".into())),
            ..first.clone()
        };
        let messages = [user("Look!"), Message::Model(other.clone()), result(&other, "a door")];
        let (_, encoded) =
            send(&fixture, &wire_target, wire_target.lossy("Be thorough.", &messages)).await;
        assert!(!has_seal(&encoded), "{wire}");
    }
}

fn has_seal(encoded: &EncodedRequest) -> bool {
    String::from_utf8_lossy(&encoded.request.body).contains("bWluZC")
}

#[tokio::test]
async fn counter_ids_identify_no_turn() {
    let fixture = ReplayFixture::new().await;
    for wire_target in WireTarget::all() {
        let first = calls("I look.", 1);
        exchange(&fixture, &wire_target, wire_target.lossy(SYSTEM, &[user("Look.")]), &first).await;
        let messages = [
            user("Another client looks."),
            Message::Model(first.clone()),
            result(&first, "a door"),
        ];
        let (_, encoded) = send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
        assert!(!has_seal(&encoded), "{}", wire_target.codec.wire());
    }
}

#[tokio::test]
async fn newest_of_equal_turns_wins_and_siblings_are_counted() {
    let wire_target = WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let fixture = ReplayFixture::new().await;
    let mut messages = vec![user("Look.")];
    for thought_id in 1..=3 {
        exchange(
            &fixture,
            &wire_target,
            wire_target.lossy(SYSTEM, &messages),
            &text_reply("A door.", thought_id),
        )
        .await;
    }
    messages.extend([Message::Model(text_reply("A door.", 0)), user("Go on.")]);
    let (_, encoded) = send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
    assert_eq!(seals_sent(&wire_target, &encoded), [[seal(3)]]);
    let restored = Disposition::Restored(Evidence::Chain { siblings: 2 });
    assert!(encoded.fates.iter().any(|fate| fate.seals == [restored.clone()]));
    // A client that still has the Seal of an older turn continues that turn.
    let with = |thought_id: u64| {
        let mut kept = messages.clone();
        kept[1] = Message::Model(text_reply("A door.", thought_id));
        wire_target.sealed(SYSTEM, &kept, |answer| Some(seal(answer.thought_id)))
    };
    let (restored, encoded) = send(&fixture, &wire_target, with(1)).await;
    assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)]]);
    assert_eq!(restored.findings, []);
}

/// Two branches are equal up to their last turn. Each branch is restored from its own history.
#[tokio::test]
async fn branches_never_mix() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let start = vec![user("Look.")];
        let mut branches = Vec::new();
        for (first, last) in [(1, "Left."), (2, "Right.")] {
            exchange(
                &fixture,
                &wire_target,
                wire_target.lossy(SYSTEM, &start),
                &text_reply("A door.", first),
            )
            .await;
            let mut messages = start.clone();
            messages.extend([Message::Model(text_reply("A door.", first)), user("Where?")]);
            exchange(
                &fixture,
                &wire_target,
                wire_target.lossy(SYSTEM, &messages),
                &text_reply(last, first + 10),
            )
            .await;
            messages.extend([Message::Model(text_reply(last, first + 10)), user("Go.")]);
            branches.push((messages, first));
        }
        for (messages, first) in branches {
            let (restored, encoded) =
                send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
            assert_eq!(
                seals_sent(&wire_target, &encoded),
                [[seal(first)], [seal(first + 10)]],
                "{}",
                wire_target.codec.wire()
            );
            assert_eq!(restored.findings, []);
        }
    }
}

#[tokio::test]
async fn edited_text_is_kept_if_the_turn_can_be_replayed() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let first = call_answer_with_id("call_9f8e7d6c5b4a", "I look.", 1);
        exchange(&fixture, &wire_target, wire_target.lossy(SYSTEM, &[user("Look.")]), &first).await;
        let edited = ModelTurn { text: "I edit.".to_owned(), ..first.clone() };
        let messages = [user("Look."), Message::Model(edited), result(&first, "a door")];
        let (restored, encoded) =
            send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
        let (wire, body) =
            (wire_target.codec.wire(), String::from_utf8_lossy(&encoded.request.body).into_owned());
        assert!(body.contains("I edit.") && !body.contains("I look."), "{wire}: {body}");
        // On this wire the reasoning leads directly to the edited message.
        if wire.as_str() == "openai-responses" {
            assert!(!has_seal(&encoded), "{wire}: {body}");
            let problems: Vec<_> =
                restored.findings.iter().map(|finding| finding.problem).collect();
            assert_eq!(problems, [RestoreIssue::Edited], "{wire}");
        } else {
            assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)]], "{wire}");
            assert_eq!(restored.findings, [], "{wire}");
        }
    }
}

#[tokio::test]
async fn truncated_reply_restores_nothing() {
    for wire_target in WireTarget::all() {
        let fixture = ReplayFixture::new().await;
        let mut messages = vec![user("Look.")];
        let (restored, encoded) =
            send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
        let reply = Reply { stop: StopReason::Cut, ..wire_target.reply(&text_reply("A door.", 1)) };
        assert_eq!(fixture.capture(&tenant(), &restored, &reply, &encoded).await, None);
        messages.extend([Message::Model(text_reply("A door.", 1)), user("Go on.")]);
        let (restored, encoded) =
            send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
        assert!(!has_seal(&encoded), "{}", wire_target.codec.wire());
        assert_eq!(restored.conversation.parent, None);
    }
}

#[tokio::test]
async fn forgotten_turn_is_not_restored_and_reported() {
    let wire_target = WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let fixture = ReplayFixture::new().await;
    let messages = run_tool_loop(&fixture, &wire_target).await;
    // The process caches the turn as well.
    let (restored, before) =
        send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
    assert!(has_seal(&before));
    let log = restored.conversation.parent.unwrap().log;
    fixture.journal.forget(&tenant(), &log, None).await.unwrap();
    let (restored, encoded) =
        send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
    assert!(!has_seal(&encoded));
    let problems: Vec<_> = restored.findings.iter().map(|finding| finding.problem).collect();
    assert_eq!(problems, [RestoreIssue::Gone(ElisionReason::Forgotten); 2]);
    // The conversation continues in a new thread.
    let reply = wire_target.reply(&text_reply("A garden.", 3));
    let node = fixture.capture(&tenant(), &restored, &reply, &encoded).await.unwrap();
    let found = fixture.journal.find(&tenant(), &[VaultKey::Claim(node.0)]).await.unwrap().found;
    assert_ne!(found[0].as_ref().unwrap().turn.log, log);
}

/// The last turn still exists, and its parent turn is cached. Only a read from the store can show
/// that the parent was erased.
#[tokio::test]
async fn turn_forgotten_by_another_process_is_not_restored() {
    let wire_target = WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let fixture = ReplayFixture::new().await;
    let messages = run_tool_loop(&fixture, &wire_target).await;
    let (restored, before) =
        send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
    assert_eq!(seals_sent(&wire_target, &before), [[seal(1)], [seal(2)]]);
    let log = restored.conversation.parent.unwrap().log;
    let records = fixture.journal.read(&tenant(), &log, 0, 100).await.unwrap();
    let items = records.iter().filter(|record| &*record.kind == "item");
    let items = items.filter_map(|record| record.content.bytes().cloned()).map(Some);
    let first = restore_items(items).unwrap()[0].id.to_string();
    fixture.another().await.forget(&tenant(), &log, Some(&first)).await.unwrap();
    let (restored, encoded) =
        send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
    assert_eq!(seals_sent(&wire_target, &encoded).concat(), [seal(2)]);
    let problems: Vec<_> = restored.findings.iter().map(|finding| finding.problem).collect();
    assert_eq!(problems, [RestoreIssue::Gone(ElisionReason::Forgotten)]);
}

/// A client of the chat dialect uses Claude and sends back both the Claim and the gateway ids
/// of the reply.
#[tokio::test]
async fn claim_restores_exactly_across_dialects() {
    let claude = WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let chat = WireTarget::of("anthropic", "openai-chat", "claude-sonnet-4-5");
    let fixture = ReplayFixture::new().await;
    let claims = Claims::new(KEY);
    // A request in the client's dialect is decoded for the requested model.
    let request = |messages: &[Message], claim: Option<String>| {
        let call = chat.sealed(SYSTEM, messages, |_| claim.clone());
        Call { target: claude.target.clone(), ..call }
    };
    let (restored, encoded) = send(&fixture, &claude, request(&[user("Look.")], None)).await;
    let node = Claims::new_turn_id().unwrap();
    let issued = call_answer_with_id("toolu_01ABCDEF23", "I look.", 1);
    let reply = claude.reply_after(&issued, encoded.prefix);
    fixture.capture_as(node.clone(), &tenant(), &restored, &reply, &encoded).await.unwrap();
    let id = claims.call_id(&tenant(), &node, 0).to_string();
    let shown = call_answer_with_id(&id, "I look.", 0);
    let messages = [user("Look!"), Message::Model(shown.clone()), result(&shown, "a door")];
    let claim = claims.claim(&tenant(), &node).to_string();
    let (restored, encoded) = send(&fixture, &claude, request(&messages, Some(claim))).await;
    let body = String::from_utf8_lossy(&encoded.request.body).into_owned();
    assert_eq!(seals_sent(&claude, &encoded), [[seal(1)]], "{body}");
    assert!(!body.contains("tl1"), "{body}");
    assert_eq!(body.matches("toolu_01ABCDEF23").count(), 2, "the call and its answer: {body}");
    assert!(
        encoded.fates.iter().any(|fate| fate.seals == [Disposition::Restored(Evidence::Claim)])
    );
    assert_eq!(restored.findings, []);
    // The same request from another tenant restores nothing and is reported.
    let theirs = Tenant::from("other");
    let claim = claims.claim(&tenant(), &node).to_string();
    let restored = fixture
        .replay
        .restore(&theirs, None, request(&messages, Some(claim.clone())))
        .await
        .unwrap();
    let problem = RestoreIssue::ForeignClaim;
    assert!(restored.findings.iter().all(|finding: &Finding| finding.problem == problem));
    assert!(!restored.findings.is_empty());
    let encoded = claude.codec.encode(&restored.call).unwrap();
    assert!(!has_seal(&encoded) && !String::from_utf8_lossy(&encoded.request.body).contains("tl1"));
    let other_user = fixture
        .replay
        .restore(&tenant(), Some("bob"), request(&messages, Some(claim)))
        .await
        .unwrap();
    assert!(other_user.findings.iter().any(|finding| finding.problem == problem));
    let encoded = claude.codec.encode(&other_user.call).unwrap();
    assert!(!has_seal(&encoded));
}

/// For every dialect and every provider, a returned Claim and call id match the turn exactly, and
/// no handle is sent to the provider.
#[tokio::test]
async fn claims_work_in_every_dialect_in_front_of_every_provider() {
    let claims = Claims::new(KEY);
    for wire_target in WireTarget::all() {
        for dialect in WireTarget::all() {
            let fixture = ReplayFixture::new().await;
            let request = |messages: &[Message], claim: Option<&str>| {
                let call = dialect.sealed(SYSTEM, messages, |_| claim.map(ToOwned::to_owned));
                Call { target: wire_target.target.clone(), ..call }
            };
            let (restored, encoded) =
                send(&fixture, &wire_target, request(&[user("Look.")], None)).await;
            let node = Claims::new_turn_id().unwrap();
            let reply = wire_target.reply_after(&calls("I look.", 1), encoded.prefix);
            fixture.capture_as(node.clone(), &tenant(), &restored, &reply, &encoded).await.unwrap();
            let shown = call_answer_with_id(&claims.call_id(&tenant(), &node, 0), "I look.", 0);
            let messages = [user("Look."), Message::Model(shown.clone()), result(&shown, "a door")];
            let claim = claims.claim(&tenant(), &node);
            let (restored, encoded) =
                send(&fixture, &wire_target, request(&messages, Some(&claim))).await;
            let label =
                format!("{} in front of {}", dialect.codec.wire(), wire_target.codec.wire());
            let body = String::from_utf8_lossy(&encoded.request.body).into_owned();
            assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)]], "{label}: {body}");
            assert!(!body.contains("tl1"), "{label}: {body}");
            assert!(body.contains("a door"), "{label}: {body}");
            assert_eq!(restored.findings, [], "{label}");
            let by_claim =
                |fate: &Fate| fate.seals.contains(&Disposition::Restored(Evidence::Claim));
            assert!(encoded.fates.iter().any(by_claim), "{label}");
        }
    }
}

/// A chat client that keeps no reasoning switches from Claude to GPT, to Gemini, and back to
/// Claude.
#[tokio::test]
async fn switching_back_replays_the_first_model() {
    let chat = WireTarget::of("anthropic", "openai-chat", "claude-sonnet-4-5");
    let lines = [
        WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5"),
        WireTarget::of("openai", "openai-responses", "gpt-5.2"),
        WireTarget::of("gemini", "gemini", "gemini-3-pro-preview"),
        WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5"),
    ];
    let fixture = ReplayFixture::new().await;
    let mut messages = vec![user("Look.")];
    let mut sent = Vec::new();
    for (number, wire_target) in lines.iter().enumerate() {
        let call = Call { target: wire_target.target.clone(), ..chat.lossy(SYSTEM, &messages) };
        let answer = call_answer_with_id(
            &format!("call_{number}a9f8e7d6c5b4"),
            "I look.",
            number as u64 + 1,
        );
        let (_, encoded, _) = exchange(&fixture, wire_target, call, &answer).await;
        sent.push(String::from_utf8_lossy(&encoded.request.body).into_owned());
        messages.extend([Message::Model(answer.clone()), result(&answer, "a door")]);
    }
    for (number, body) in sent.iter().enumerate() {
        let carried: Vec<u64> =
            (1..=4).filter(|thought_id| body.contains(&seal(*thought_id))).collect();
        let expected: &[u64] = if number == 3 { &[1] } else { &[] };
        assert_eq!(carried, expected, "request {number}: {body}");
    }
}

/// A reply that continues the model's unfinished turn is captured together with the unfinished part
/// as one turn.
#[tokio::test]
async fn continued_answer_is_captured_as_one_turn() {
    let wire_target = WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let fixture = ReplayFixture::new().await;
    let paused = text_reply("A door,", 1);
    exchange(&fixture, &wire_target, wire_target.lossy(SYSTEM, &[user("Look.")]), &paused).await;
    let messages = [user("Look."), Message::Model(paused.clone())];
    let (restored, encoded, _) = exchange(
        &fixture,
        &wire_target,
        wire_target.lossy(SYSTEM, &messages),
        &text_reply(" and a garden.", 2),
    )
    .await;
    assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)]]);
    assert_eq!(restored.conversation.parent, None);
    let joined =
        [user("Look."), Message::Model(text_reply("A door, and a garden.", 0)), user("Go on.")];
    let (restored, encoded) =
        send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &joined)).await;
    assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1), seal(2)]]);
    assert_eq!(restored.findings, []);
}

/// With replay switched off, the gateway still captures replies for later use.
#[tokio::test]
async fn conversation_without_lookup_can_be_captured() {
    let wire_target = WireTarget::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let fixture = ReplayFixture::new().await;
    let call = wire_target.lossy(SYSTEM, &[user("Look.")]);
    let conversation = Conversation::of(&call, &tenant(), None);
    let reply = wire_target.reply(&text_reply("A door.", 1));
    let node = Claims::new_turn_id().unwrap();
    let turn = Turn {
        node,
        conversation: &conversation,
        reply: &reply,
        prefix: None,
        ids: &[],
        record: None,
        response: None,
    };
    fixture.replay.capture(&tenant(), &turn).await.unwrap().unwrap();
    let messages = [user("Look."), Message::Model(text_reply("A door.", 1)), user("Go on.")];
    let (_, encoded) = send(&fixture, &wire_target, wire_target.lossy(SYSTEM, &messages)).await;
    assert_eq!(seals_sent(&wire_target, &encoded), [[seal(1)]]);
}
