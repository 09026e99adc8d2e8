//! Tests invariant 13: only a conversation's own reasoning is restored, whatever clients send.
//!
//! A thought id is a number that identifies the Thoughts of one model reply.
//!
//! Each generated world contains callers with almost equal conversations: two tenants, end users
//! and anonymous callers, equal visible prefixes, repeated replies, and branches. Tool-call ids
//! restart at 0, prompts and texts are edited, captures are lost, and Claims are forged or foreign.
//! Whole conversations are copied from another caller of the same or another tenant, with the
//! original call ids, Seals and Claims.
//!
//! Each request arrives without reasoning and is sent with the restored reasoning. The test looks
//! up every Seal sent in the world's own records. The parent turn of every reply must belong to the
//! caller.

use std::collections::{HashMap, HashSet};

use crate::common::ReplayFixture;
use crate::common::said::{Message, ModelTurn, WireTarget, seal};
use throughline_core::{Tenant, TurnId};
use throughline_replay::{Claims, RestoredCall};
use throughline_testkit::{TestRng, cases, figure};

/// A tenant, or an end user of a tenant, with its own conversations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Caller {
    tenant: Tenant,
    end_user: Option<&'static str>,
}

#[derive(Clone, Debug)]
struct Conversation {
    caller: Caller,
    /// The index of the conversation's wire target.
    wire: usize,
    system: &'static str,
    messages: Vec<Message>,
    /// The Seals sent so far for each reply, by mind. Later requests may send these Seals again.
    sent: HashMap<u64, HashSet<String>>,
    /// Whether the conversation is unedited and every reply was captured after exactly the visible
    /// prefix.
    is_plain: bool,
    /// Maps the thought id of each reply copied from another caller to the original id.
    taken: HashMap<u64, u64>,
}

/// Foreign handles that a caller sends back with its replies, by the reply's thought id.
#[derive(Default)]
struct ForeignHandles {
    /// Values that are sent in place of a reply's Seals.
    seals: HashMap<u64, String>,
    /// Values that are sent in place of a reply's call ids.
    ids: HashMap<u64, String>,
}

/// Number of replies sent back with another tenant's handles, by kind of handle.
#[derive(Clone, Copy, Debug, Default)]
struct ForeignCounts {
    ids: usize,
    seals: usize,
    claims: usize,
}

/// Everything visible up to a turn: caller, wire, system prompt and messages.
type VisiblePrefix = (Caller, usize, &'static str, Vec<Message>);

struct World<'w> {
    fixture: &'w ReplayFixture,
    targets: &'w [WireTarget],
    rng: TestRng,
    callers: Vec<Caller>,
    conversations: Vec<Conversation>,
    /// The thought ids of the replies issued for each visible prefix.
    book: HashMap<VisiblePrefix, HashSet<u64>>,
    /// The number of replies issued for each visible prefix, on any wire.
    alike: HashMap<VisiblePrefix, usize>,
    /// The captured turns, each with its owner and thought id.
    nodes: Vec<CapturedTurn>,
    last_thought_id: u64,
    restored: usize,
    expected: usize,
    taken: ForeignCounts,
}

#[derive(Clone)]
struct CapturedTurn {
    owner: Caller,
    node: TurnId,
    thought_id: u64,
}

const SYSTEMS: [&str; 2] = ["Be brief.", "Be thorough."];
const TEXTS: [&str; 3] = ["Go on.", "Why?", "And then?"];
const ANSWERS: [&str; 2] = ["So it is.", "It depends."];
/// A call id that any reply may reuse.
const REUSED_CALL_ID: &str = "call_0";

impl<'w> World<'w> {
    fn new(fixture: &'w ReplayFixture, targets: &'w [WireTarget], seed: u64) -> Self {
        let caller = |tenant: &str, end_user| Caller {
            tenant: Tenant::from(format!("{tenant}-{seed}")),
            end_user,
        };
        let callers = vec![
            caller("one", None),
            caller("one", Some("ada")),
            caller("one", Some("bob")),
            caller("two", None),
            caller("two", Some("ada")),
        ];
        let (conversations, book, nodes) = (Vec::new(), HashMap::new(), Vec::new());
        let (last_thought_id, restored, expected) = (seed * 1_000, 0, 0);
        let rng = TestRng::new(seed);
        let alike = HashMap::new();
        Self {
            fixture,
            targets,
            rng,
            callers,
            conversations,
            book,
            alike,
            nodes,
            last_thought_id,
            restored,
            expected,
            taken: ForeignCounts::default(),
        }
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        self.rng.pick(list).unwrap().clone()
    }

    async fn step(&mut self) {
        let number = self.rng.below(self.conversations.len().max(1));
        let choice = self.rng.below(10);
        if self.conversations.is_empty() || choice < 2 {
            let caller = self.pick(&self.callers.clone());
            // Most callers use the same wire, so that they look alike.
            let wire = if self.rng.below(3) == 0 {
                self.rng.below(self.targets.len())
            } else {
                self.common_wire()
            };
            let system = SYSTEMS[usize::from(self.rng.below(4) == 0)];
            let conversation = Conversation {
                caller,
                wire,
                system,
                messages: Vec::new(),
                sent: HashMap::new(),
                is_plain: true,
                taken: HashMap::new(),
            };
            self.conversations.push(conversation);
            let last = self.conversations.len() - 1;
            return self.send_next(last).await;
        }
        match choice {
            2 => self.branch(number),
            3 => self.regenerate(number),
            4 => self.edit(number),
            // A copied conversation is not copied back.
            5 if self.conversations[number].taken.is_empty() => {
                self.take(number);
                return self.send_next(self.conversations.len() - 1).await;
            }
            _ => {}
        }
        self.send_next(number).await;
    }

    /// Returns the index of the wire that most callers in this world use.
    fn common_wire(&self) -> usize {
        usize::try_from(self.last_thought_id / 1_000).unwrap() % self.targets.len()
    }

    fn branch(&mut self, number: usize) {
        let copy = self.conversations[number].clone();
        self.conversations.push(copy);
    }

    /// Removes the last reply and all later messages.
    fn regenerate(&mut self, number: usize) {
        let messages = &mut self.conversations[number].messages;
        if let Some(last) =
            messages.iter().rposition(|message| matches!(message, Message::Model(_)))
        {
            messages.truncate(last);
        }
    }

    /// Copies a conversation, including its call ids, to another caller.
    fn take(&mut self, number: usize) {
        let mut copy = self.conversations[number].clone();
        let mut others = self.callers.clone();
        others.retain(|caller| *caller != copy.caller);
        copy.caller = self.pick(&others);
        (copy.sent, copy.is_plain) = (HashMap::new(), false);
        for message in &mut copy.messages {
            let Message::Model(answer) = message else { continue };
            self.last_thought_id += 1;
            copy.taken.insert(self.last_thought_id, answer.thought_id);
            answer.thought_id = self.last_thought_id;
        }
        self.conversations.push(copy);
    }

    fn edit(&mut self, number: usize) {
        let which = self.rng.below(3);
        let conversation = &mut self.conversations[number];
        conversation.is_plain = false;
        if which == 0 {
            conversation.system = "Be another assistant.";
            return;
        }
        let is_user = which == 1;
        let edited = conversation.messages.iter_mut().find_map(|message| match message {
            Message::User(text) if is_user => Some(text),
            Message::Model(answer) if !is_user => Some(&mut answer.text),
            Message::User(_) | Message::Model(_) | Message::Tool { .. } => None,
        });
        if let Some(text) = edited {
            *text = String::from("That was edited.");
        }
    }

    /// Sends the next message without reasoning, checks the request that reaches the provider, and
    /// adds the reply.
    async fn send_next(&mut self, number: usize) {
        let text = self.pick(&TEXTS).to_owned();
        let mut conversation = self.conversations[number].clone();
        match conversation.messages.last() {
            Some(Message::Model(ModelTurn { call: Some((id, name, _)), .. })) => {
                let (id, name) = (id.clone(), name.clone());
                conversation.messages.push(Message::Tool { id, name, text });
            }
            Some(Message::User(_) | Message::Tool { .. }) => {}
            Some(Message::Model(_)) | None => conversation.messages.push(Message::User(text)),
        }
        let wire_target = &self.targets[conversation.wire];
        let foreign = self.choose_foreign_handles(&conversation);
        let messages = renamed(&conversation.messages, &foreign.ids);
        let seal_of = |answer: &ModelTurn| foreign.seals.get(&answer.thought_id).cloned();
        let call = wire_target.sealed(conversation.system, &messages, seal_of);
        let caller = conversation.caller.clone();
        let restored =
            self.fixture.replay.restore(&caller.tenant, caller.end_user, call).await.unwrap();
        let encoded = wire_target.codec.encode(&restored.call).unwrap();
        self.check_parent(&conversation, &restored);
        self.check(&mut conversation, &foreign, &encoded.request.body);
        let answer = self.answer();
        let visible = visible(&conversation, conversation.messages.len());
        let reply = wire_target.reply_after(&answer, encoded.prefix);
        if self.rng.below(8) == 0 {
            conversation.is_plain = false;
        } else {
            let node = self.capture(&caller, &restored, &reply, &encoded).await;
            self.nodes.push(CapturedTurn { owner: caller, node, thought_id: answer.thought_id });
        }
        let key = with(visible, &answer);
        *self.alike.entry(on_any_wire(&key)).or_default() += 1;
        self.book.entry(key).or_default().insert(answer.thought_id);
        conversation.messages.push(Message::Model(answer));
        self.conversations[number] = conversation;
    }

    async fn capture(
        &self,
        caller: &Caller,
        restored: &RestoredCall,
        reply: &throughline_core::Reply,
        encoded: &throughline_core::EncodedRequest,
    ) -> TurnId {
        self.fixture.capture(&caller.tenant, restored, reply, encoded).await.unwrap()
    }

    /// Chooses the foreign handles to send with a request.
    fn choose_foreign_handles(&mut self, conversation: &Conversation) -> ForeignHandles {
        let mut foreign = ForeignHandles::default();
        let caller = &conversation.caller;
        let thought_ids: Vec<u64> =
            answers(&conversation.messages).map(|answer| answer.thought_id).collect();
        // A foreign Claim replaces the thought of one answer.
        let claim = self.foreign_claim(caller);
        let at = self.rng.below(4);
        foreign.seals.extend(thought_ids.get(at).copied().zip(claim));
        let claims = Claims::new(crate::common::KEY);
        for answer in answers(&conversation.messages) {
            let Some(original) = conversation.taken.get(&answer.thought_id) else { continue };
            let Some(original) = self.nodes.iter().find(|turn| turn.thought_id == *original) else {
                continue;
            };
            let CapturedTurn { owner, node, thought_id } = original;
            let is_counted = usize::from(owner.tenant != caller.tenant);
            match self.rng.below(5) {
                0 => {
                    self.taken.seals += is_counted;
                    foreign.seals.insert(answer.thought_id, seal(*thought_id));
                }
                1 => {
                    self.taken.claims += is_counted;
                    let claim = claims.claim(&owner.tenant, node).to_string();
                    foreign.seals.insert(answer.thought_id, claim);
                }
                2 if answer.call.is_some() => {
                    self.taken.claims += is_counted;
                    let id = claims.call_id(&owner.tenant, node, 0).to_string();
                    foreign.ids.insert(answer.thought_id, id);
                }
                // The call keeps the id of the original conversation.
                _ => {
                    let is_unique =
                        answer.call.as_ref().is_some_and(|(id, ..)| id != REUSED_CALL_ID);
                    self.taken.ids += is_counted * usize::from(is_unique);
                }
            }
        }
        foreign
    }

    /// Returns a Claim that this caller never received.
    fn foreign_claim(&mut self, caller: &Caller) -> Option<String> {
        let claims = Claims::new(crate::common::KEY);
        let CapturedTurn { owner, node, .. } = self.rng.pick(&self.nodes)?.clone();
        match self.rng.below(8) {
            // A valid Claim of another tenant or end user.
            0 if owner != *caller => Some(claims.claim(&owner.tenant, &node).to_string()),
            // A Claim made with another key.
            1 => Some(Claims::new([9; 32]).claim(&caller.tenant, &node).to_string()),
            2 => Some(format!("tl1c{node}00000000000000000")),
            _ => None,
        }
    }

    fn answer(&mut self) -> ModelTurn {
        self.last_thought_id += 1;
        let text = self.pick(&ANSWERS).to_owned();
        let call = match self.rng.below(4) {
            // Ids that restart with each answer.
            0 | 1 => Some(REUSED_CALL_ID.to_owned()),
            // Globally unique ids.
            2 => Some(format!("call_{:x}a1b2c3d4", self.last_thought_id)),
            _ => None,
        };
        let call = call.map(|id| (id, "look".to_owned(), self.pick(&["here", "there"]).to_owned()));
        ModelTurn { text, call, thought_id: self.last_thought_id }
    }

    /// Returns whether no other turn has the same visible content as any reply of this
    /// conversation.
    fn is_alone(&self, conversation: &Conversation) -> bool {
        (0..conversation.messages.len()).all(|at| match &conversation.messages[at] {
            Message::Model(answer) => {
                let key = with(visible(conversation, at), answer);
                self.alike.get(&on_any_wire(&key)) == Some(&1)
            }
            Message::User(_) | Message::Tool { .. } => true,
        })
    }

    /// Checks that the parent turn of a reply was issued to this caller.
    fn check_parent(&self, conversation: &Conversation, restored: &RestoredCall) {
        let Some(parent) = &restored.conversation.parent else { return };
        let turn = self.nodes.iter().find(|turn| turn.node == parent.node);
        let is_own = turn.is_some_and(|turn| turn.owner == conversation.caller);
        assert!(is_own, "{parent:?} belongs to another caller: {conversation:#?}");
    }

    /// Checks each Seal sent to the provider. The Seal must have been issued to this caller for
    /// this turn or for a turn with the same visible prefix. Seals that this conversation sent
    /// earlier, and Seals in the caller's own request, are also allowed.
    fn check(&mut self, conversation: &mut Conversation, foreign: &ForeignHandles, body: &[u8]) {
        let sent = String::from_utf8_lossy(body);
        assert!(!sent.contains("tl1"), "a claim reached a provider: {sent}");
        let wire_target = &self.targets[conversation.wire];
        let turns = wire_target.seals_sent(body);
        let positions = conversation.messages.iter().enumerate();
        let models = positions.filter(|(_, message)| matches!(message, Message::Model(_)));
        let models: Vec<usize> = models.map(|(at, _)| at).collect();
        assert_eq!(turns.len(), models.len(), "{sent}");
        for (seals, at) in turns.iter().zip(models) {
            let Message::Model(answer) = &conversation.messages[at] else { continue };
            let key = with(visible(conversation, at), answer);
            let alike = self.book.get(&key).into_iter().flatten();
            let own = Some(&answer.thought_id)
                .filter(|thought_id| !conversation.taken.contains_key(thought_id));
            let mut legal: HashSet<String> =
                alike.chain(own).map(|thought_id| seal(*thought_id)).collect();
            let before = conversation.sent.entry(answer.thought_id).or_default();
            legal.extend(before.iter().cloned());
            before.extend(seals.iter().filter(|seal| legal.contains(*seal)).cloned());
            for sent in seals {
                let is_callers = foreign.seals.get(&answer.thought_id) == Some(sent);
                let is_restored = legal.contains(sent);
                assert!(is_restored || is_callers, "{sent} at {at} of {conversation:#?}");
                self.restored += usize::from(is_restored);
            }
            // If another turn looks the same, that turn may be newer and have other ancestors.
            if conversation.is_plain && self.is_alone(conversation) {
                self.expected += 1;
                assert_eq!(seals.len(), 1, "nothing was restored at {at} of {conversation:#?}");
            }
        }
    }
}

fn answers(messages: &[Message]) -> impl Iterator<Item = &ModelTurn> {
    messages.iter().filter_map(|message| match message {
        Message::Model(answer) => Some(answer),
        Message::User(_) | Message::Tool { .. } => None,
    })
}

/// Replaces the call ids in the replies with these thought ids, and in the results of those calls.
fn renamed(messages: &[Message], ids: &HashMap<u64, String>) -> Vec<Message> {
    let (mut messages, mut open) = (messages.to_vec(), None);
    for message in &mut messages {
        match message {
            Message::Model(answer) => {
                open = ids.get(&answer.thought_id);
                if let (Some((id, ..)), Some(foreign)) = (&mut answer.call, open) {
                    id.clone_from(foreign);
                }
            }
            Message::Tool { id, .. } => {
                if let Some(foreign) = open {
                    id.clone_from(foreign);
                }
            }
            Message::User(_) => open = None,
        }
    }
    messages
}

/// Returns everything visible before this message index, without thought ids and call ids.
fn visible(conversation: &Conversation, at: usize) -> VisiblePrefix {
    let messages = conversation.messages[..at].iter().map(without_ids).collect();
    (conversation.caller.clone(), conversation.wire, conversation.system, messages)
}

fn with((caller, wire, system, mut messages): VisiblePrefix, answer: &ModelTurn) -> VisiblePrefix {
    messages.push(without_ids(&Message::Model(answer.clone())));
    (caller, wire, system, messages)
}

fn on_any_wire((caller, _, system, messages): &VisiblePrefix) -> VisiblePrefix {
    (caller.clone(), 0, system, messages.clone())
}

fn without_ids(message: &Message) -> Message {
    match message {
        Message::User(text) => Message::User(text.clone()),
        Message::Tool { name, text, .. } => {
            Message::Tool { id: String::new(), name: name.clone(), text: text.clone() }
        }
        Message::Model(answer) => {
            let call = answer.call.clone().map(|(_, name, of)| (String::new(), name, of));
            Message::Model(ModelTurn { text: answer.text.clone(), call, thought_id: 0 })
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_reasoning_is_restored() {
    let fixture = ReplayFixture::new().await;
    let targets = WireTarget::all();
    let (mut restored, mut expected, mut taken) = (0, 0, ForeignCounts::default());
    let count = cases(150);
    for seed in 1..=u64::from(count) {
        let mut world = World::new(&fixture, &targets, seed);
        for _ in 0..14 {
            world.step().await;
        }
        restored += world.restored;
        expected += world.expected;
        taken.ids += world.taken.ids;
        taken.seals += world.taken.seals;
        taken.claims += world.taken.claims;
    }
    figure("worlds without foreign reasoning", count);
    figure("seals restored in them", restored);
    figure("answers in them with a call id of another tenant's", taken.ids);
    figure("answers in them with a seal of another tenant's", taken.seals);
    figure("answers in them with a claim of another tenant's", taken.claims);
    assert!(expected > 0 && restored >= expected);
    assert!(taken.ids > 0 && taken.seals > 0 && taken.claims > 0, "{taken:?}");
}
