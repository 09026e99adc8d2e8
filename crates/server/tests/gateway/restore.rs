//! Capture and restore, case by case, on every wire: what is put back and on what grounds, what stays as it came, what is
//! reported, and what restores nothing.

use crate::common::said::{Answer, Line, Said, seal};
use crate::common::{House, KEY, sealed};
use throughline_codec::Asked;
use throughline_core::{
    Body, Call, Did, Encoded, Evidence, Fate, Item, NodeId, Reply, Stop, Store, Tenant, VaultKey,
    Why, restore_items,
};
use throughline_server::{Claims, Conversation, Finding, Problem, Restored, Turn};

const SYSTEM: &str = "Be brief.";
const PLAIN: Evidence = Evidence::Chain { siblings: 0 };

fn tenant() -> Tenant {
    Tenant::from("acme")
}

fn user(text: &str) -> Said {
    Said::User(text.to_owned())
}

fn says(text: &str, mind: u64) -> Answer {
    Answer { text: text.to_owned(), call: None, mind }
}

/// An answer that calls a tool, under an id that each such answer has.
fn calls(text: &str, mind: u64) -> Answer {
    Answer { call: Some(("call_0".into(), "look".into(), "here".into())), ..says(text, mind) }
}

/// An answer that calls a tool under an id of its own.
fn calls_as(id: &str, text: &str, mind: u64) -> Answer {
    Answer { call: Some((id.into(), "look".into(), "here".into())), ..says(text, mind) }
}

fn result(answer: &Answer, text: &str) -> Said {
    let (id, name, _) = answer.call.clone().unwrap();
    Said::Tool { id, name, text: text.to_owned() }
}

/// One exchange: a request is restored, sent and answered, and the answer is captured.
async fn exchange(
    house: &House,
    line: &Line,
    call: Call,
    answer: &Answer,
) -> (Restored, Encoded, NodeId) {
    let (restored, encoded) = send(house, line, call).await;
    let reply = line.reply_behind(answer, encoded.prefix);
    let node = house.capture(&tenant(), &restored, &reply, &encoded).await.unwrap();
    (restored, encoded, node)
}

async fn send(house: &House, line: &Line, call: Call) -> (Restored, Encoded) {
    let restored = house.replay.restore(&tenant(), None, call).await.unwrap();
    let mut encoded = line.codec.encode(&restored.call).unwrap();
    restored.account(&mut encoded);
    (restored, encoded)
}

/// A loop with a tool, each request of which drops all reasoning: two captured answers, and what is said behind them.
async fn conversed(house: &House, line: &Line) -> Vec<Said> {
    let mut said = vec![user("Look.")];
    let first = calls("I look.", 1);
    exchange(house, line, line.lossy(SYSTEM, &said), &first).await;
    said.extend([Said::Model(first.clone()), result(&first, "a door")]);
    let second = says("A door.", 2);
    exchange(house, line, line.lossy(SYSTEM, &said), &second).await;
    said.extend([Said::Model(second), user("And behind it?")]);
    said
}

fn minds(line: &Line, encoded: &Encoded) -> Vec<Vec<String>> {
    line.seals_sent(&encoded.request.body)
}

#[tokio::test]
async fn a_lossy_client_gets_every_seal_back_in_place_on_every_wire() {
    for line in Line::all() {
        let house = House::new().await;
        let said = conversed(&house, &line).await;
        let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
        let wire = line.codec.wire();
        assert_eq!(minds(&line, &encoded), [[seal(1)], [seal(2)]], "{wire}");
        assert_eq!(restored.findings, [], "{wire}");
        let fates = encoded.fates.iter().flat_map(|fate| &fate.seals);
        assert_eq!(fates.collect::<Vec<_>>(), [&Did::Restored(PLAIN); 2], "{wire}");
        // What goes out is what would go out had the client kept it: each part, and their order.
        let issued = [line.reply(&calls("I look.", 1)), line.reply(&says("A door.", 2))];
        let issued: Vec<_> = issued.iter().flat_map(|reply| sealed(&reply.items)).collect();
        assert_eq!(sealed(&restored.call.items), issued, "{wire}");
        // And so it is for a process that remembers nothing.
        let again = house.forgetful();
        let again = again.restore(&tenant(), None, line.lossy(SYSTEM, &said)).await.unwrap();
        let again = line.codec.encode(&again.call).unwrap();
        assert_eq!(again.request, encoded.request, "{wire}");
    }
}

/// A client may call its calls what it likes. They are put back as they were issued, and the answers to them follow.
#[tokio::test]
async fn the_answer_to_a_call_follows_it_to_its_own_id() {
    for line in Line::all() {
        let house = House::new().await;
        let mut said = conversed(&house, &line).await;
        for said in &mut said {
            match said {
                Said::Model(Answer { call: Some((id, ..)), .. }) | Said::Tool { id, .. } => {
                    id.insert_str(0, "clients-own-");
                }
                Said::Model(_) | Said::User(_) => {}
            }
        }
        let (_, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
        let wire = line.codec.wire();
        assert_eq!(minds(&line, &encoded), [[seal(1)], [seal(2)]], "{wire}");
        let sent = line.codec.decode_request(&encoded.request, &Asked::of(line.target.clone()));
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

/// Law 9: each request extends the one before, though the client lost something in each.
#[tokio::test]
async fn the_next_request_extends_the_last() {
    let line = Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let house = House::new().await;
    let mut said = conversed(&house, &line).await;
    let (_, first) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    let third = says("A garden.", 3);
    exchange(&house, &line, line.lossy(SYSTEM, &said), &third).await;
    said.extend([Said::Model(third), user("Thanks.")]);
    let (_, next) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    let messages = |encoded: &Encoded| {
        let body: serde_json::Value = serde_json::from_slice(&encoded.request.body).unwrap();
        body["messages"].as_array().unwrap().clone()
    };
    let (first, next) = (messages(&first), messages(&next));
    assert_eq!(next[..first.len()], first);
}

#[tokio::test]
async fn what_came_intact_stays_as_it_came() {
    for line in Line::all() {
        let house = House::new().await;
        let said = conversed(&house, &line).await;
        let call = line.sealed(SYSTEM, &said, |answer| Some(seal(answer.mind)));
        let came = call.source.as_ref().unwrap().request.clone();
        let (restored, encoded) = send(&house, &line, call).await;
        let wire = line.codec.wire();
        assert_eq!(encoded.request, came, "{wire}");
        assert_eq!(restored.findings, [], "{wire}");
        let is_kept = |did: &Did| *did == Did::Kept;
        let fates = encoded.fates.iter();
        assert!(
            fates.clone().all(|f| is_kept(&f.visible) && f.seals.iter().all(is_kept)),
            "{wire}"
        );
        assert!(restored.conversation.parent.is_some(), "{wire}");
    }
}

#[tokio::test]
async fn tampering_is_mended_and_reported() {
    for line in Line::all() {
        let house = House::new().await;
        let said = conversed(&house, &line).await;
        let call = line.sealed(SYSTEM, &said, |answer| {
            Some(if answer.mind == 2 { "c3BvaWxlZA==".to_owned() } else { seal(1) })
        });
        let (restored, encoded) = send(&house, &line, call).await;
        let wire = line.codec.wire();
        assert_eq!(minds(&line, &encoded), [[seal(1)], [seal(2)]], "{wire}");
        let problems: Vec<_> = restored.findings.iter().map(|finding| finding.problem).collect();
        assert_eq!(problems, [Problem::Altered], "{wire}");
    }
}

#[tokio::test]
async fn a_unique_id_finds_a_turn_behind_an_edited_prompt() {
    for line in Line::all() {
        let house = House::new().await;
        let first = calls_as("call_9f8e7d6c5b4a", "I look.", 1);
        exchange(&house, &line, line.lossy(SYSTEM, &[user("Look.")]), &first).await;
        let said = [user("Look!"), Said::Model(first.clone()), result(&first, "a door")];
        let (_, encoded) = send(&house, &line, line.lossy("Be thorough.", &said)).await;
        let wire = line.codec.wire();
        let sent = minds(&line, &encoded);
        let restored = encoded.fates.iter().flat_map(|fate| &fate.seals).next();
        // A model that binds its seals to their prefix takes none behind another prefix: law 10.
        if line.target.profile.bound.prefix {
            assert_eq!(sent, [Vec::<String>::new()], "{wire}");
            assert_eq!(restored, Some(&Did::Elided(Why::PrefixChanged)), "{wire}");
        } else {
            assert_eq!(sent, [[seal(1)]], "{wire}");
            assert_eq!(restored, Some(&Did::Restored(Evidence::UniqueId)), "{wire}");
        }
        // The id alone is not enough: with other arguments it is another call.
        let other = Answer {
            call: Some(("call_9f8e7d6c5b4a".into(), "look".into(), "there".into())),
            ..first.clone()
        };
        let said = [user("Look!"), Said::Model(other.clone()), result(&other, "a door")];
        let (_, encoded) = send(&house, &line, line.lossy("Be thorough.", &said)).await;
        assert!(!has_mind(&encoded), "{wire}");
    }
}

fn has_mind(encoded: &Encoded) -> bool {
    String::from_utf8_lossy(&encoded.request.body).contains("bWluZC")
}

#[tokio::test]
async fn ids_that_count_anew_in_each_answer_name_nothing() {
    let house = House::new().await;
    for line in Line::all() {
        let first = calls("I look.", 1);
        exchange(&house, &line, line.lossy(SYSTEM, &[user("Look.")]), &first).await;
        let said =
            [user("Somebody else looks."), Said::Model(first.clone()), result(&first, "a door")];
        let (_, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
        assert!(!has_mind(&encoded), "{}", line.codec.wire());
    }
}

#[tokio::test]
async fn of_turns_that_look_alike_the_newest_wins_and_the_others_are_counted() {
    let line = Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let house = House::new().await;
    let mut said = vec![user("Look.")];
    for mind in 1..=3 {
        exchange(&house, &line, line.lossy(SYSTEM, &said), &says("A door.", mind)).await;
    }
    said.extend([Said::Model(says("A door.", 0)), user("Go on.")]);
    let (_, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    assert_eq!(minds(&line, &encoded), [[seal(3)]]);
    let restored = Did::Restored(Evidence::Chain { siblings: 2 });
    assert!(encoded.fates.iter().any(|fate| fate.seals == [restored.clone()]));
    // Who still has the seal of an older one goes on with that.
    let with = |mind: u64| {
        let mut kept = said.clone();
        kept[1] = Said::Model(says("A door.", mind));
        line.sealed(SYSTEM, &kept, |answer| Some(seal(answer.mind)))
    };
    let (restored, encoded) = send(&house, &line, with(1)).await;
    assert_eq!(minds(&line, &encoded), [[seal(1)]]);
    assert_eq!(restored.findings, []);
}

/// Two branches look alike until their last turn: each is restored from its own.
#[tokio::test]
async fn branches_never_mix() {
    for line in Line::all() {
        let house = House::new().await;
        let start = vec![user("Look.")];
        let mut branches = Vec::new();
        for (first, last) in [(1, "Left."), (2, "Right.")] {
            exchange(&house, &line, line.lossy(SYSTEM, &start), &says("A door.", first)).await;
            let mut said = start.clone();
            said.extend([Said::Model(says("A door.", first)), user("Where?")]);
            exchange(&house, &line, line.lossy(SYSTEM, &said), &says(last, first + 10)).await;
            said.extend([Said::Model(says(last, first + 10)), user("Go.")]);
            branches.push((said, first));
        }
        for (said, first) in branches {
            let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
            assert_eq!(
                minds(&line, &encoded),
                [[seal(first)], [seal(first + 10)]],
                "{}",
                line.codec.wire()
            );
            assert_eq!(restored.findings, []);
        }
    }
}

#[tokio::test]
async fn an_edited_text_stays_where_its_turn_can_still_be_replayed() {
    for line in Line::all() {
        let house = House::new().await;
        let first = calls_as("call_9f8e7d6c5b4a", "I look.", 1);
        exchange(&house, &line, line.lossy(SYSTEM, &[user("Look.")]), &first).await;
        let edited = Answer { text: "I edit.".to_owned(), ..first.clone() };
        let said = [user("Look."), Said::Model(edited), result(&first, "a door")];
        let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
        let (wire, body) =
            (line.codec.wire(), String::from_utf8_lossy(&encoded.request.body).into_owned());
        assert!(body.contains("I edit.") && !body.contains("I look."), "{wire}: {body}");
        // On this wire the reasoning leads to the very message that was edited.
        if wire.as_str() == "openai-responses" {
            assert!(!has_mind(&encoded), "{wire}: {body}");
            let problems: Vec<_> =
                restored.findings.iter().map(|finding| finding.problem).collect();
            assert_eq!(problems, [Problem::Edited], "{wire}");
        } else {
            assert_eq!(minds(&line, &encoded), [[seal(1)]], "{wire}");
            assert_eq!(restored.findings, [], "{wire}");
        }
    }
}

#[tokio::test]
async fn a_reply_that_was_cut_restores_nothing() {
    for line in Line::all() {
        let house = House::new().await;
        let mut said = vec![user("Look.")];
        let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
        let reply = Reply { stop: Stop::Cut, ..line.reply(&says("A door.", 1)) };
        assert_eq!(house.capture(&tenant(), &restored, &reply, &encoded).await, None);
        said.extend([Said::Model(says("A door.", 1)), user("Go on.")]);
        let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
        assert!(!has_mind(&encoded), "{}", line.codec.wire());
        assert_eq!(restored.conversation.parent, None);
    }
}

#[tokio::test]
async fn what_was_forgotten_is_not_restored_and_says_why() {
    let line = Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let house = House::new().await;
    let said = conversed(&house, &line).await;
    // It is remembered by the process, too.
    let (restored, before) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    assert!(has_mind(&before));
    let log = restored.conversation.parent.unwrap().log;
    house.journal.forget(&tenant(), &log, None).await.unwrap();
    let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    assert!(!has_mind(&encoded));
    let problems: Vec<_> = restored.findings.iter().map(|finding| finding.problem).collect();
    assert_eq!(problems, [Problem::Gone(Why::Forgotten); 2]);
    // The conversation goes on, in a thread of its own.
    let reply = line.reply(&says("A garden.", 3));
    let node = house.capture(&tenant(), &restored, &reply, &encoded).await.unwrap();
    let found = house.journal.find(&tenant(), &[VaultKey::Claim(node.0)]).await.unwrap().found;
    assert_ne!(found[0].as_ref().unwrap().turn.log, log);
}

/// The last turn stands, and the one before it is remembered: only the store knows that it is no more.
#[tokio::test]
async fn what_another_process_forgot_is_not_restored() {
    let line = Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let house = House::new().await;
    let said = conversed(&house, &line).await;
    let (restored, before) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    assert_eq!(minds(&line, &before), [[seal(1)], [seal(2)]]);
    let log = restored.conversation.parent.unwrap().log;
    let records = house.journal.read(&tenant(), &log, 0, 100).await.unwrap();
    let items = records.iter().filter(|record| &*record.kind == "item");
    let items = items.filter_map(|record| record.content.bytes().cloned()).map(Some);
    let first = restore_items(items).unwrap()[0].id.to_string();
    house.another().await.forget(&tenant(), &log, Some(&first)).await.unwrap();
    let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    assert_eq!(minds(&line, &encoded).concat(), [seal(2)]);
    let problems: Vec<_> = restored.findings.iter().map(|finding| finding.problem).collect();
    assert_eq!(problems, [Problem::Gone(Why::Forgotten)]);
}

/// A chat client in front of Claude: the reply carried a claim and ids of ours, and both come back.
#[tokio::test]
async fn a_claim_makes_restoring_exact_across_dialects() {
    let claude = Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let chat = Line::of("anthropic", "openai-chat", "claude-sonnet-4-5");
    let house = House::new().await;
    let claims = Claims::new(KEY);
    // What the client says in its dialect is read for the model that is asked.
    let ask = |said: &[Said], claim: Option<String>| {
        let call = chat.sealed(SYSTEM, said, |_| claim.clone());
        Call { target: claude.target.clone(), ..call }
    };
    let (restored, encoded) = send(&house, &claude, ask(&[user("Look.")], None)).await;
    let node = Claims::fresh_node().unwrap();
    let issued = calls_as("toolu_01ABCDEF23", "I look.", 1);
    let reply = claude.reply_behind(&issued, encoded.prefix);
    house.capture_as(node.clone(), &tenant(), &restored, &reply, &encoded).await.unwrap();
    let id = claims.call_id(&tenant(), &node, 0).to_string();
    let shown = calls_as(&id, "I look.", 0);
    let said = [user("Look!"), Said::Model(shown.clone()), result(&shown, "a door")];
    let claim = claims.claim(&tenant(), &node).to_string();
    let (restored, encoded) = send(&house, &claude, ask(&said, Some(claim))).await;
    let body = String::from_utf8_lossy(&encoded.request.body).into_owned();
    assert_eq!(minds(&claude, &encoded), [[seal(1)]], "{body}");
    assert!(!body.contains("tl1"), "{body}");
    assert_eq!(body.matches("toolu_01ABCDEF23").count(), 2, "the call and its answer: {body}");
    assert!(encoded.fates.iter().any(|fate| fate.seals == [Did::Restored(Evidence::Claim)]));
    assert_eq!(restored.findings, []);
    // The same from somebody else's mouth restores nothing, and is reported.
    let theirs = Tenant::from("other");
    let claim = claims.claim(&tenant(), &node).to_string();
    let restored =
        house.replay.restore(&theirs, None, ask(&said, Some(claim.clone()))).await.unwrap();
    let problem = Problem::ForeignClaim;
    assert!(restored.findings.iter().all(|finding: &Finding| finding.problem == problem));
    assert!(!restored.findings.is_empty());
    let encoded = claude.codec.encode(&restored.call).unwrap();
    assert!(!has_mind(&encoded) && !String::from_utf8_lossy(&encoded.request.body).contains("tl1"));
    let other_user =
        house.replay.restore(&tenant(), Some("bob"), ask(&said, Some(claim))).await.unwrap();
    assert!(other_user.findings.iter().any(|finding| finding.problem == problem));
    let encoded = claude.codec.encode(&other_user.call).unwrap();
    assert!(!has_mind(&encoded));
}

/// Every dialect in front of every provider: the claim and the ids come back, the turn is exact, and nothing of ours is sent.
#[tokio::test]
async fn claims_work_in_every_dialect_in_front_of_every_provider() {
    let claims = Claims::new(KEY);
    for line in Line::all() {
        for dialect in Line::all() {
            let house = House::new().await;
            let ask = |said: &[Said], claim: Option<&str>| {
                let call = dialect.sealed(SYSTEM, said, |_| claim.map(ToOwned::to_owned));
                Call { target: line.target.clone(), ..call }
            };
            let (restored, encoded) = send(&house, &line, ask(&[user("Look.")], None)).await;
            let node = Claims::fresh_node().unwrap();
            let reply = line.reply_behind(&calls("I look.", 1), encoded.prefix);
            house.capture_as(node.clone(), &tenant(), &restored, &reply, &encoded).await.unwrap();
            let shown = calls_as(&claims.call_id(&tenant(), &node, 0), "I look.", 0);
            let said = [user("Look."), Said::Model(shown.clone()), result(&shown, "a door")];
            let claim = claims.claim(&tenant(), &node);
            let (restored, encoded) = send(&house, &line, ask(&said, Some(&claim))).await;
            let what = format!("{} in front of {}", dialect.codec.wire(), line.codec.wire());
            let body = String::from_utf8_lossy(&encoded.request.body).into_owned();
            assert_eq!(minds(&line, &encoded), [[seal(1)]], "{what}: {body}");
            assert!(!body.contains("tl1"), "{what}: {body}");
            assert!(body.contains("a door"), "{what}: {body}");
            assert_eq!(restored.findings, [], "{what}");
            let by_claim = |fate: &Fate| fate.seals.contains(&Did::Restored(Evidence::Claim));
            assert!(encoded.fates.iter().any(by_claim), "{what}");
        }
    }
}

/// Claude, then GPT, then Gemini, then Claude again, for a chat client that keeps no reasoning.
#[tokio::test]
async fn switching_back_replays_the_first_models_seals() {
    let chat = Line::of("anthropic", "openai-chat", "claude-sonnet-4-5");
    let lines = [
        Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5"),
        Line::of("openai", "openai-responses", "gpt-5.2"),
        Line::of("gemini", "gemini", "gemini-3-pro-preview"),
        Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5"),
    ];
    let house = House::new().await;
    let mut said = vec![user("Look.")];
    let mut sent = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let call = Call { target: line.target.clone(), ..chat.lossy(SYSTEM, &said) };
        let answer = calls_as(&format!("call_{number}a9f8e7d6c5b4"), "I look.", number as u64 + 1);
        let (_, encoded, _) = exchange(&house, line, call, &answer).await;
        sent.push(String::from_utf8_lossy(&encoded.request.body).into_owned());
        said.extend([Said::Model(answer.clone()), result(&answer, "a door")]);
    }
    for (number, body) in sent.iter().enumerate() {
        let carried: Vec<u64> = (1..=4).filter(|mind| body.contains(&seal(*mind))).collect();
        let expected: &[u64] = if number == 3 { &[1] } else { &[] };
        assert_eq!(carried, expected, "request {number}: {body}");
    }
}

/// An answer that goes on with the model's own turn is captured as one turn with it.
#[tokio::test]
async fn an_answer_that_goes_on_is_one_turn_with_its_beginning() {
    let line = Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let house = House::new().await;
    let paused = says("A door,", 1);
    exchange(&house, &line, line.lossy(SYSTEM, &[user("Look.")]), &paused).await;
    let said = [user("Look."), Said::Model(paused.clone())];
    let (restored, encoded, _) =
        exchange(&house, &line, line.lossy(SYSTEM, &said), &says(" and a garden.", 2)).await;
    assert_eq!(minds(&line, &encoded), [[seal(1)]]);
    assert_eq!(restored.conversation.parent, None);
    let whole = [user("Look."), Said::Model(says("A door, and a garden.", 0)), user("Go on.")];
    let (restored, encoded) = send(&house, &line, line.lossy(SYSTEM, &whole)).await;
    assert_eq!(minds(&line, &encoded), [[seal(1), seal(2)]]);
    assert_eq!(restored.findings, []);
}

/// With replay switched off, answers are still captured, for whoever switches it on.
#[tokio::test]
async fn a_conversation_that_nobody_looked_for_can_be_captured() {
    let line = Line::of("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let house = House::new().await;
    let call = line.lossy(SYSTEM, &[user("Look.")]);
    let conversation = Conversation::of(&call, &tenant(), None);
    let reply = line.reply(&says("A door.", 1));
    let node = Claims::fresh_node().unwrap();
    let turn = Turn {
        node,
        conversation: &conversation,
        reply: &reply,
        prefix: None,
        ids: &[],
        story: None,
        response: None,
    };
    house.replay.capture(&tenant(), &turn).await.unwrap().unwrap();
    let said = [user("Look."), Said::Model(says("A door.", 1)), user("Go on.")];
    let (_, encoded) = send(&house, &line, line.lossy(SYSTEM, &said)).await;
    assert_eq!(minds(&line, &encoded), [[seal(1)]]);
}
