//! Tests turns that are found by the turn before them, after a changed system prompt.

use std::sync::Arc;

use crate::common::ReplayFixture;
use crate::common::said::{Message, ModelTurn, WireTarget, seal};
use throughline_core::{Call, Disposition, EncodedRequest, Evidence, Tenant, TurnId};
use throughline_replay::{RestoreIssue, RestoredCall};

const SYSTEM: &str = "Be brief.";
const OTHER_SYSTEM: &str = "Be thorough.";

/// A caller of the gateway: a tenant and the end user that its requests name.
#[derive(Clone)]
struct Caller {
    tenant: Tenant,
    end_user: Option<&'static str>,
}

impl Caller {
    fn new(tenant: &str, end_user: Option<&'static str>) -> Self {
        Self { tenant: Tenant::from(tenant), end_user }
    }

    async fn send(
        &self,
        fixture: &ReplayFixture,
        wire_target: &WireTarget,
        call: Call,
    ) -> (RestoredCall, EncodedRequest) {
        let restored = fixture.replay.restore(&self.tenant, self.end_user, call).await.unwrap();
        let mut encoded = wire_target.codec.encode(&restored.call).unwrap();
        restored.account(&mut encoded);
        (restored, encoded)
    }

    /// Sends the messages without reasoning, and captures `answer` as the reply.
    async fn exchange(
        &self,
        fixture: &ReplayFixture,
        wire_target: &WireTarget,
        (system, messages): (&str, &[Message]),
        answer: &ModelTurn,
    ) -> TurnId {
        let call = wire_target.lossy(system, messages);
        let (restored, encoded) = self.send(fixture, wire_target, call).await;
        let reply = wire_target.reply_after(answer, encoded.prefix);
        fixture.capture(&self.tenant, &restored, &reply, &encoded).await.unwrap()
    }

    /// Sends the messages without reasoning, and returns the Seals of each model turn as sent to
    /// the provider.
    async fn seals(
        &self,
        fixture: &ReplayFixture,
        wire_target: &WireTarget,
        system: &str,
        messages: &[Message],
    ) -> Vec<Vec<String>> {
        let call = wire_target.lossy(system, messages);
        let (_, encoded) = self.send(fixture, wire_target, call).await;
        wire_target.seals_sent(&encoded.request.body)
    }
}

fn acme() -> Caller {
    Caller::new("acme", None)
}

/// Returns one target per wire, except targets whose Seals are bound to the system prompt.
fn targets() -> Vec<WireTarget> {
    let mut targets = WireTarget::all();
    targets.retain(|wire_target| !wire_target.target.profile.bound.prefix);
    assert!(targets.len() >= 3, "{}", targets.len());
    targets
}

fn user(text: &str) -> Message {
    Message::User(text.to_owned())
}

/// Returns a reply with a call whose id identifies it.
fn look(thought_id: u64) -> ModelTurn {
    let call = Some(("call_9f8e7d6c5b4a".into(), "look".into(), "here".into()));
    ModelTurn { text: "I look.".to_owned(), call, thought_id }
}

fn text_reply(text: &str, thought_id: u64) -> ModelTurn {
    ModelTurn { text: text.to_owned(), call: None, thought_id }
}

/// Returns a question, the reply with a call, and the result of the call.
fn tool_step(looked: &ModelTurn, result: &str) -> Vec<Message> {
    let (id, name, _) = looked.call.clone().unwrap();
    let result = Message::Tool { id, name, text: result.to_owned() };
    vec![user("Look."), Message::Model(looked.clone()), result]
}

/// Returns the messages with a reply and the next question.
fn with_reply(messages: &[Message], reply: &ModelTurn) -> Vec<Message> {
    let next = [Message::Model(reply.clone()), user("And then?")];
    messages.iter().cloned().chain(next).collect()
}

#[tokio::test]
async fn turns_after_a_found_turn_are_restored_with_another_system_prompt() {
    for wire_target in targets() {
        let wire = wire_target.codec.wire();
        let (fixture, caller) = (ReplayFixture::new().await, acme());
        let looked = look(1);
        caller.exchange(&fixture, &wire_target, (SYSTEM, &[user("Look.")]), &looked).await;
        let mut messages = tool_step(&looked, "a door");
        // Two turns without an id follow the turn with an id.
        for (thought_id, text) in [(2, "A door."), (3, "It is open.")] {
            let reply = text_reply(text, thought_id);
            caller.exchange(&fixture, &wire_target, (SYSTEM, &messages), &reply).await;
            messages = with_reply(&messages, &reply);
        }
        let call = wire_target.lossy(OTHER_SYSTEM, &messages);
        let (restored, encoded) = caller.send(&fixture, &wire_target, call).await;
        let all = [[seal(1)], [seal(2)], [seal(3)]];
        assert_eq!(wire_target.seals_sent(&encoded.request.body), all, "{wire}");
        let by_chain = Disposition::Restored(Evidence::Chain { siblings: 0 });
        let fates = encoded.fates.iter().flat_map(|fate| &fate.seals);
        assert_eq!(fates.filter(|fate| **fate == by_chain).count(), 2, "{wire}");
        assert_eq!(restored.findings, [], "{wire}");
        // A process with empty caches restores the same.
        let uncached = fixture.forgetful();
        let call = wire_target.lossy(OTHER_SYSTEM, &messages);
        let uncached = uncached.restore(&caller.tenant, None, call).await.unwrap();
        let uncached = wire_target.codec.encode(&uncached.call).unwrap();
        assert_eq!(uncached.request, encoded.request, "{wire}");
        // The conversation continues after the newest turn, and its next request finds all turns.
        let reply = text_reply("A garden.", 4);
        caller.exchange(&fixture, &wire_target, (OTHER_SYSTEM, &messages), &reply).await;
        let messages = with_reply(&messages, &reply);
        let sent = caller.seals(&fixture, &wire_target, OTHER_SYSTEM, &messages).await;
        assert_eq!(sent, [[seal(1)], [seal(2)], [seal(3)], [seal(4)]], "{wire}");
    }
}

/// opencode shortens the call ids that it sends to Mistral.
#[tokio::test]
async fn turns_with_rewritten_call_ids_are_restored_after_a_found_turn() {
    for wire_target in targets() {
        let wire = wire_target.codec.wire();
        let (fixture, caller, looked) = (ReplayFixture::new().await, acme(), look(1));
        caller.exchange(&fixture, &wire_target, (SYSTEM, &[user("Look.")]), &looked).await;
        let opened = |id: &str| {
            let call = Some((id.to_owned(), "open".to_owned(), "door".to_owned()));
            ModelTurn { text: "I open it.".to_owned(), call, thought_id: 2 }
        };
        let before = tool_step(&looked, "a door");
        let issued = opened("call_1a2b3c4d5e6f");
        caller.exchange(&fixture, &wire_target, (SYSTEM, &before), &issued).await;
        let rewritten = tool_step(&opened("mOqL7tXzA"), "It is open.");
        // The result of the call follows its turn.
        let messages: Vec<_> = before.into_iter().chain(rewritten.into_iter().skip(1)).collect();
        let sent = caller.seals(&fixture, &wire_target, OTHER_SYSTEM, &messages).await;
        assert_eq!(sent, [[seal(1)], [seal(2)]], "{wire}");
    }
}

/// Two branches have the same turn with an id and the same visible reply, but another tool result.
#[tokio::test]
async fn equal_steps_of_conversations_that_differ_earlier_restore_nothing() {
    for wire_target in targets() {
        let wire = wire_target.codec.wire();
        let (fixture, caller) = (ReplayFixture::new().await, acme());
        let looked = look(1);
        caller.exchange(&fixture, &wire_target, (SYSTEM, &[user("Look.")]), &looked).await;
        // The first question of the second conversation was edited.
        for (first, thought_id) in [("Look.", 2), ("Look there.", 3)] {
            let mut messages = tool_step(&looked, "a door");
            messages[0] = user(first);
            let reply = text_reply("A door.", thought_id);
            caller.exchange(&fixture, &wire_target, (SYSTEM, &messages), &reply).await;
        }
        let messages = with_reply(&tool_step(&looked, "a door"), &text_reply("A door.", 2));
        let call = wire_target.lossy(OTHER_SYSTEM, &messages);
        let (_, encoded) = caller.send(&fixture, &wire_target, call).await;
        let sent = wire_target.seals_sent(&encoded.request.body);
        let sent: Vec<_> = sent.into_iter().flatten().collect();
        assert_eq!(sent, [seal(1)], "{wire}");
    }
}

/// Sends the messages with another system prompt. Returns whether the provider receives `thought`.
/// Requires that a removed text is reported and that no Seal is restored.
async fn sends_thought(
    caller: &Caller,
    fixture: &ReplayFixture,
    wire_target: &WireTarget,
    messages: &[Message],
    thought: &str,
) -> bool {
    let call = wire_target.lossy(OTHER_SYSTEM, messages);
    let (restored, encoded) = caller.send(fixture, wire_target, call).await;
    let is_sent = String::from_utf8_lossy(&encoded.request.body).contains(thought);
    let mut problems = restored.findings.iter().map(|finding| &finding.problem);
    let is_reported = problems.any(|problem| *problem == RestoreIssue::ThoughtAsText);
    assert_eq!(is_reported, !is_sent, "{}", wire_target.codec.wire());
    let seals = wire_target.seals_sent(&encoded.request.body).concat();
    assert_eq!(seals, Vec::<String>::new(), "an ambiguous turn must not be restored");
    is_sent
}

#[tokio::test]
async fn thoughts_as_text_are_found_in_conversations_with_equal_openings() {
    let mut readable = targets();
    // The replies of the other wires contain no readable Thoughts in these tests.
    let wires = ["anthropic-messages", "openai-chat", "bedrock-converse"];
    readable.retain(|wire_target| wires.contains(&wire_target.codec.wire().as_str()));
    for wire_target in readable {
        let wire = wire_target.codec.wire();
        let (fixture, caller) = (ReplayFixture::new().await, acme());
        let opening = [user("Hello.")];
        // The last two conversations have equal Thoughts.
        for (number, system) in [(1, "Be kind."), (2, "Be calm."), (3, "Be fair."), (3, "Be fun.")]
        {
            let hi = text_reply("Hi.", number);
            caller.exchange(&fixture, &wire_target, (system, &opening), &hi).await;
            let (messages, then) = (with_reply(&opening, &hi), text_reply("Then.", number + 10));
            caller.exchange(&fixture, &wire_target, (system, &messages), &then).await;
        }
        let as_text = |number: u64, text: &str| {
            let thought = format!("I think of {number}.");
            (text_reply(&format!("<think>{thought}</think>{text}"), 0), thought)
        };
        for number in [1, 2, 3] {
            let (first, thought) = as_text(number, "Hi.");
            let messages = with_reply(&opening, &first);
            let is_sent = sends_thought(&caller, &fixture, &wire_target, &messages, &thought).await;
            assert!(!is_sent, "{wire}, {number}");
            // Only the Thought of the second turn identifies the conversation.
            let (second, thought) = as_text(number + 10, "Then.");
            let messages = with_reply(&with_reply(&opening, &text_reply("Hi.", 0)), &second);
            let is_sent = sends_thought(&caller, &fixture, &wire_target, &messages, &thought).await;
            assert!(!is_sent, "{wire}, {number}");
        }
        let (unknown, thought) = as_text(4, "Hi.");
        let messages = with_reply(&opening, &unknown);
        let is_sent = sends_thought(&caller, &fixture, &wire_target, &messages, &thought).await;
        assert!(is_sent, "{wire}: the text of no captured Thought is removed");
    }
}

#[tokio::test]
async fn edited_branches_restore_only_their_own_reasoning() {
    for wire_target in targets() {
        let wire = wire_target.codec.wire();
        let (fixture, caller, looked) = (ReplayFixture::new().await, acme(), look(1));
        caller.exchange(&fixture, &wire_target, (SYSTEM, &[user("Look.")]), &looked).await;
        let branch = |result: &str| tool_step(&looked, result);
        for (thought_id, result) in [(2, "a door"), (3, "a wall")] {
            let reply = text_reply("Done.", thought_id);
            caller.exchange(&fixture, &wire_target, (SYSTEM, &branch(result)), &reply).await;
        }
        let reply = text_reply("Done.", 0);
        let sent = async |messages: &[Message]| {
            let messages = with_reply(messages, &reply);
            caller.seals(&fixture, &wire_target, OTHER_SYSTEM, &messages).await
        };
        assert_eq!(sent(&branch("a door")).await, [[seal(1)], [seal(2)]], "{wire}");
        assert_eq!(sent(&branch("a wall")).await, [[seal(1)], [seal(3)]], "{wire}");
        let unknown = sent(&branch("a gate")).await;
        assert_eq!(unknown.concat(), [seal(1)], "{wire}");
        // An additional message of the user makes another branch.
        let mut longer = branch("a door");
        longer.push(user("Look closely."));
        assert_eq!(sent(&longer).await.concat(), [seal(1)], "{wire}");
        // So does an edit of the turn before.
        let edited = ModelTurn { text: "I edit.".to_owned(), ..looked.clone() };
        let sent = sent(&tool_step(&edited, "a door")).await.concat();
        assert!(!sent.contains(&seal(2)) && !sent.contains(&seal(3)), "{wire}: {sent:?}");
    }
}

/// A client inserts an empty message of the user into a reply. The reply then contains an Item of
/// another role, so the captured turn must not replace it.
#[tokio::test]
async fn turns_with_items_of_other_roles_are_not_restored_by_their_step() {
    for wire_target in targets() {
        let wire = wire_target.codec.wire();
        let (fixture, caller, looked) = (ReplayFixture::new().await, acme(), look(1));
        caller.exchange(&fixture, &wire_target, (SYSTEM, &[user("Look.")]), &looked).await;
        let before = tool_step(&looked, "a door");
        let reply = text_reply("A door.", 2);
        caller.exchange(&fixture, &wire_target, (SYSTEM, &before), &reply).await;
        let sent = async |reply: &[Message]| {
            let messages = [before.as_slice(), reply, &[user("And then?")]].concat();
            caller.seals(&fixture, &wire_target, OTHER_SYSTEM, &messages).await.concat()
        };
        let model = |text: &str| Message::Model(text_reply(text, 0));
        assert_eq!(sent(&[model("A door.")]).await, [seal(1), seal(2)], "{wire}");
        let divided = [model("A"), user(" "), model("door.")];
        assert_eq!(sent(&divided).await, [seal(1)], "{wire}");
    }
}

#[tokio::test]
async fn steps_of_other_tenants_and_end_users_restore_nothing() {
    let callers = [
        acme(),
        Caller::new("other", None),
        Caller::new("acme", Some("alice")),
        Caller::new("acme", Some("bob")),
    ];
    // Each caller has received its own first reply, with a call id that no other caller has.
    let looked = |number: u64| {
        let call = Some((format!("call_9f8e7d6c5b{number}"), "look".into(), "here".into()));
        ModelTurn { text: "I look.".to_owned(), call, thought_id: number + 1 }
    };
    let conversation = |number: u64| tool_step(&looked(number), "a door");
    let done = text_reply("Done.", 0);
    for wire_target in targets() {
        let wire = wire_target.codec.wire();
        let fixture = ReplayFixture::new().await;
        for (caller, number) in callers.iter().zip([10, 20, 30, 40]) {
            let opening = [user("Look.")];
            caller.exchange(&fixture, &wire_target, (SYSTEM, &opening), &looked(number)).await;
            // The last caller received only the first reply.
            if number < 40 {
                let (messages, reply) = (conversation(number), text_reply("Done.", number + 2));
                caller.exchange(&fixture, &wire_target, (SYSTEM, &messages), &reply).await;
            }
        }
        for (caller, own) in callers.iter().zip([10, 20, 30, 40]) {
            // Every caller sends every conversation, as if it had learned the ids of the others.
            for number in [10, 20, 30, 40] {
                let messages = with_reply(&conversation(number), &done);
                let sent =
                    caller.seals(&fixture, &wire_target, OTHER_SYSTEM, &messages).await.concat();
                let expected = match number {
                    _ if number != own => vec![],
                    40 => vec![seal(41)],
                    _ => vec![seal(number + 1), seal(number + 2)],
                };
                assert_eq!(sent, expected, "{wire}, {own} sends {number}");
            }
        }
    }
}

/// A pool keeps a conversation at the account that answered last, although only a step finds that
/// account's turn.
#[tokio::test]
async fn account_of_the_last_turn_is_found_by_its_step() {
    for wire_target in targets() {
        let wire = wire_target.codec.wire();
        let at_account = |name: &str| {
            let mut target = wire_target.target.clone();
            Arc::make_mut(&mut target.origin).account = name.into();
            WireTarget { codec: wire_target.codec, target }
        };
        let (fixture, caller, looked) = (ReplayFixture::new().await, acme(), look(1));
        let (first, second) = (at_account("first"), at_account("second"));
        caller.exchange(&fixture, &first, (SYSTEM, &[user("Look.")]), &looked).await;
        let before = tool_step(&looked, "a door");
        let reply = text_reply("A door.", 2);
        caller.exchange(&fixture, &second, (SYSTEM, &before), &reply).await;
        let messages = with_reply(&before, &reply);
        for (system, messages, account) in [
            (SYSTEM, &messages, "second"),
            (OTHER_SYSTEM, &messages, "second"),
            (OTHER_SYSTEM, &before, "first"),
        ] {
            let call = wire_target.lossy(system, messages);
            let origin = fixture.replay.last_origin(&caller.tenant, None, &call).await.unwrap();
            let found = origin.as_ref().map(|origin| &*origin.account);
            assert_eq!(found, Some(account), "{wire}, {system}");
        }
    }
}
