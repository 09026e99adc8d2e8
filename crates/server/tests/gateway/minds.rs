//! Tests invariant 13: only a conversation's own reasoning is restored, whatever clients send.
//!
//! A mind is a number that identifies the Thoughts of one model reply.
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
    line: usize,
    system: &'static str,
    said: Vec<Message>,
    /// The Seals sent so far for each reply, by mind. Later requests may send these Seals again.
    sent: HashMap<u64, HashSet<String>>,
    /// Whether the conversation is unedited and every reply was captured after exactly the visible
    /// prefix.
    is_plain: bool,
    /// Maps the mind of each reply copied from another caller to the original mind.
    taken: HashMap<u64, u64>,
}

/// Foreign handles that a caller sends back with its replies, by the mind of the reply.
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
    lines: &'w [WireTarget],
    dice: TestRng,
    callers: Vec<Caller>,
    conversations: Vec<Conversation>,
    /// The minds of the replies issued for each visible prefix.
    book: HashMap<VisiblePrefix, HashSet<u64>>,
    /// The number of replies issued for each visible prefix, on any wire.
    alike: HashMap<VisiblePrefix, usize>,
    /// The captured turns, each with its owner and mind.
    nodes: Vec<CapturedTurn>,
    minds: u64,
    restored: usize,
    owed: usize,
    taken: ForeignCounts,
}

#[derive(Clone)]
struct CapturedTurn {
    owner: Caller,
    node: TurnId,
    mind: u64,
}

const SYSTEMS: [&str; 2] = ["Be brief.", "Be thorough."];
const TEXTS: [&str; 3] = ["Go on.", "Why?", "And then?"];
const ANSWERS: [&str; 2] = ["So it is.", "It depends."];
/// A call id that any reply may reuse.
const REUSED_CALL_ID: &str = "call_0";

impl<'w> World<'w> {
    fn new(fixture: &'w ReplayFixture, lines: &'w [WireTarget], seed: u64) -> Self {
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
        let (minds, restored, owed) = (seed * 1_000, 0, 0);
        let dice = TestRng::new(seed);
        let alike = HashMap::new();
        Self {
            fixture,
            lines,
            dice,
            callers,
            conversations,
            book,
            alike,
            nodes,
            minds,
            restored,
            owed,
            taken: ForeignCounts::default(),
        }
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        self.dice.pick(list).unwrap().clone()
    }

    async fn step(&mut self) {
        let number = self.dice.below(self.conversations.len().max(1));
        let choice = self.dice.below(10);
        if self.conversations.is_empty() || choice < 2 {
            let caller = self.pick(&self.callers.clone());
            // Most callers use the same wire, so that they look alike.
            let wire_target = if self.dice.below(3) == 0 {
                self.dice.below(self.lines.len())
            } else {
                self.line()
            };
            let system = SYSTEMS[usize::from(self.dice.below(4) == 0)];
            let conversation = Conversation {
                caller,
                line: wire_target,
                system,
                said: Vec::new(),
                sent: HashMap::new(),
                is_plain: true,
                taken: HashMap::new(),
            };
            self.conversations.push(conversation);
            let last = self.conversations.len() - 1;
            return self.ask(last).await;
        }
        match choice {
            2 => self.branch(number),
            3 => self.regenerate(number),
            4 => self.edit(number),
            // A copied conversation is not copied back.
            5 if self.conversations[number].taken.is_empty() => {
                self.take(number);
                return self.ask(self.conversations.len() - 1).await;
            }
            _ => {}
        }
        self.ask(number).await;
    }

    /// Returns the index of the wire that most callers in this world use.
    fn line(&self) -> usize {
        usize::try_from(self.minds / 1_000).unwrap() % self.lines.len()
    }

    fn branch(&mut self, number: usize) {
        let copy = self.conversations[number].clone();
        self.conversations.push(copy);
    }

    /// Removes the last reply and all later messages.
    fn regenerate(&mut self, number: usize) {
        let said = &mut self.conversations[number].said;
        if let Some(last) = said.iter().rposition(|said| matches!(said, Message::Model(_))) {
            said.truncate(last);
        }
    }

    /// Copies a conversation, including its call ids, to another caller.
    fn take(&mut self, number: usize) {
        let mut copy = self.conversations[number].clone();
        let mut others = self.callers.clone();
        others.retain(|caller| *caller != copy.caller);
        copy.caller = self.pick(&others);
        (copy.sent, copy.is_plain) = (HashMap::new(), false);
        for said in &mut copy.said {
            let Message::Model(answer) = said else { continue };
            self.minds += 1;
            copy.taken.insert(self.minds, answer.mind);
            answer.mind = self.minds;
        }
        self.conversations.push(copy);
    }

    fn edit(&mut self, number: usize) {
        let which = self.dice.below(3);
        let conversation = &mut self.conversations[number];
        conversation.is_plain = false;
        if which == 0 {
            conversation.system = "Be another assistant.";
            return;
        }
        let is_user = which == 1;
        let edited = conversation.said.iter_mut().find_map(|said| match said {
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
    async fn ask(&mut self, number: usize) {
        let text = self.pick(&TEXTS).to_owned();
        let mut conversation = self.conversations[number].clone();
        match conversation.said.last() {
            Some(Message::Model(ModelTurn { call: Some((id, name, _)), .. })) => {
                let (id, name) = (id.clone(), name.clone());
                conversation.said.push(Message::Tool { id, name, text });
            }
            Some(Message::User(_) | Message::Tool { .. }) => {}
            Some(Message::Model(_)) | None => conversation.said.push(Message::User(text)),
        }
        let wire_target = &self.lines[conversation.line];
        let strange = self.strange(&conversation);
        let said = renamed(&conversation.said, &strange.ids);
        let seal_of = |answer: &ModelTurn| strange.seals.get(&answer.mind).cloned();
        let call = wire_target.sealed(conversation.system, &said, seal_of);
        let caller = conversation.caller.clone();
        let restored =
            self.fixture.replay.restore(&caller.tenant, caller.end_user, call).await.unwrap();
        let encoded = wire_target.codec.encode(&restored.call).unwrap();
        self.check_parent(&conversation, &restored);
        self.check(&mut conversation, &strange, &encoded.request.body);
        let answer = self.answer();
        let visible = visible(&conversation, conversation.said.len());
        let reply = wire_target.reply_after(&answer, encoded.prefix);
        if self.dice.below(8) == 0 {
            conversation.is_plain = false;
        } else {
            let node = self.capture(&caller, &restored, &reply, &encoded).await;
            self.nodes.push(CapturedTurn { owner: caller, node, mind: answer.mind });
        }
        let key = with(visible, &answer);
        *self.alike.entry(on_any_wire(&key)).or_default() += 1;
        self.book.entry(key).or_default().insert(answer.mind);
        conversation.said.push(Message::Model(answer));
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
    fn strange(&mut self, conversation: &Conversation) -> ForeignHandles {
        let mut strange = ForeignHandles::default();
        let caller = &conversation.caller;
        let minds: Vec<u64> = answers(&conversation.said).map(|answer| answer.mind).collect();
        // A foreign Claim replaces the thought of one answer.
        let claim = self.foreign_claim(caller);
        let at = self.dice.below(4);
        strange.seals.extend(minds.get(at).copied().zip(claim));
        let claims = Claims::new(crate::common::KEY);
        for answer in answers(&conversation.said) {
            let Some(theirs) = conversation.taken.get(&answer.mind) else { continue };
            let Some(theirs) = self.nodes.iter().find(|known| known.mind == *theirs) else {
                continue;
            };
            let CapturedTurn { owner, node, mind } = theirs;
            let is_counted = usize::from(owner.tenant != caller.tenant);
            match self.dice.below(5) {
                0 => {
                    self.taken.seals += is_counted;
                    strange.seals.insert(answer.mind, seal(*mind));
                }
                1 => {
                    self.taken.claims += is_counted;
                    let claim = claims.claim(&owner.tenant, node).to_string();
                    strange.seals.insert(answer.mind, claim);
                }
                2 if answer.call.is_some() => {
                    self.taken.claims += is_counted;
                    let id = claims.call_id(&owner.tenant, node, 0).to_string();
                    strange.ids.insert(answer.mind, id);
                }
                // The call keeps the id of the original conversation.
                _ => {
                    let is_unique =
                        answer.call.as_ref().is_some_and(|(id, ..)| id != REUSED_CALL_ID);
                    self.taken.ids += is_counted * usize::from(is_unique);
                }
            }
        }
        strange
    }

    /// Returns a Claim that this caller never received.
    fn foreign_claim(&mut self, caller: &Caller) -> Option<String> {
        let claims = Claims::new(crate::common::KEY);
        let CapturedTurn { owner, node, .. } = self.dice.pick(&self.nodes)?.clone();
        match self.dice.below(8) {
            // A valid Claim of another tenant or end user.
            0 if owner != *caller => Some(claims.claim(&owner.tenant, &node).to_string()),
            // A Claim made with another key.
            1 => Some(Claims::new([9; 32]).claim(&caller.tenant, &node).to_string()),
            2 => Some(format!("tl1c{node}00000000000000000")),
            _ => None,
        }
    }

    fn answer(&mut self) -> ModelTurn {
        self.minds += 1;
        let text = self.pick(&ANSWERS).to_owned();
        let call = match self.dice.below(4) {
            // Ids that restart with each answer.
            0 | 1 => Some(REUSED_CALL_ID.to_owned()),
            // Globally unique ids.
            2 => Some(format!("call_{:x}a1b2c3d4", self.minds)),
            _ => None,
        };
        let call = call.map(|id| (id, "look".to_owned(), self.pick(&["here", "there"]).to_owned()));
        ModelTurn { text, call, mind: self.minds }
    }

    /// Returns whether no other turn has the same visible content as any reply of this
    /// conversation.
    fn is_alone(&self, conversation: &Conversation) -> bool {
        (0..conversation.said.len()).all(|at| match &conversation.said[at] {
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
        let known = self.nodes.iter().find(|known| known.node == parent.node);
        let is_own = known.is_some_and(|known| known.owner == conversation.caller);
        assert!(is_own, "{parent:?} belongs to another caller: {conversation:#?}");
    }

    /// Checks each Seal sent to the provider. The Seal must have been issued to this caller for
    /// this turn or for a turn with the same visible prefix. Seals that this conversation sent
    /// earlier, and Seals in the caller's own request, are also allowed.
    fn check(&mut self, conversation: &mut Conversation, strange: &ForeignHandles, body: &[u8]) {
        let sent = String::from_utf8_lossy(body);
        assert!(!sent.contains("tl1"), "a claim reached a provider: {sent}");
        let wire_target = &self.lines[conversation.line];
        let turns = wire_target.seals_sent(body);
        let places = conversation.said.iter().enumerate();
        let models = places.filter(|(_, said)| matches!(said, Message::Model(_)));
        let models: Vec<usize> = models.map(|(at, _)| at).collect();
        assert_eq!(turns.len(), models.len(), "{sent}");
        for (seals, at) in turns.iter().zip(models) {
            let Message::Model(answer) = &conversation.said[at] else { continue };
            let key = with(visible(conversation, at), answer);
            let alike = self.book.get(&key).into_iter().flatten();
            let own = Some(&answer.mind).filter(|mind| !conversation.taken.contains_key(mind));
            let mut legal: HashSet<String> = alike.chain(own).map(|mind| seal(*mind)).collect();
            let before = conversation.sent.entry(answer.mind).or_default();
            legal.extend(before.iter().cloned());
            before.extend(seals.iter().filter(|seal| legal.contains(*seal)).cloned());
            for sent in seals {
                let is_callers = strange.seals.get(&answer.mind) == Some(sent);
                let is_restored = legal.contains(sent);
                assert!(is_restored || is_callers, "{sent} at {at} of {conversation:#?}");
                self.restored += usize::from(is_restored);
            }
            // If another turn looks the same, that turn may be newer and have other ancestors.
            if conversation.is_plain && self.is_alone(conversation) {
                self.owed += 1;
                assert_eq!(seals.len(), 1, "nothing was restored at {at} of {conversation:#?}");
            }
        }
    }
}

fn answers(said: &[Message]) -> impl Iterator<Item = &ModelTurn> {
    said.iter().filter_map(|said| match said {
        Message::Model(answer) => Some(answer),
        Message::User(_) | Message::Tool { .. } => None,
    })
}

/// Replaces the call ids in the replies with these minds, and in the results of those calls.
fn renamed(said: &[Message], ids: &HashMap<u64, String>) -> Vec<Message> {
    let (mut said, mut open) = (said.to_vec(), None);
    for said in &mut said {
        match said {
            Message::Model(answer) => {
                open = ids.get(&answer.mind);
                if let (Some((id, ..)), Some(strange)) = (&mut answer.call, open) {
                    id.clone_from(strange);
                }
            }
            Message::Tool { id, .. } => {
                if let Some(strange) = open {
                    id.clone_from(strange);
                }
            }
            Message::User(_) => open = None,
        }
    }
    said
}

/// Returns everything visible before this message index, without minds and ids.
fn visible(conversation: &Conversation, at: usize) -> VisiblePrefix {
    let said = conversation.said[..at].iter().map(seen).collect();
    (conversation.caller.clone(), conversation.line, conversation.system, said)
}

fn with(
    (caller, wire_target, system, mut said): VisiblePrefix,
    answer: &ModelTurn,
) -> VisiblePrefix {
    said.push(seen(&Message::Model(answer.clone())));
    (caller, wire_target, system, said)
}

fn on_any_wire((caller, _, system, said): &VisiblePrefix) -> VisiblePrefix {
    (caller.clone(), 0, system, said.clone())
}

fn seen(said: &Message) -> Message {
    match said {
        Message::User(text) => Message::User(text.clone()),
        Message::Tool { name, text, .. } => {
            Message::Tool { id: String::new(), name: name.clone(), text: text.clone() }
        }
        Message::Model(answer) => {
            let call = answer.call.clone().map(|(_, name, of)| (String::new(), name, of));
            Message::Model(ModelTurn { text: answer.text.clone(), call, mind: 0 })
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_reasoning_is_restored() {
    let fixture = ReplayFixture::new().await;
    let lines = WireTarget::all();
    let (mut restored, mut owed, mut taken) = (0, 0, ForeignCounts::default());
    let count = cases(150);
    for seed in 1..=u64::from(count) {
        let mut world = World::new(&fixture, &lines, seed);
        for _ in 0..14 {
            world.step().await;
        }
        restored += world.restored;
        owed += world.owed;
        taken.ids += world.taken.ids;
        taken.seals += world.taken.seals;
        taken.claims += world.taken.claims;
    }
    figure("worlds without foreign reasoning", count);
    figure("seals restored in them", restored);
    figure("answers in them with a call id of another tenant's", taken.ids);
    figure("answers in them with a seal of another tenant's", taken.seals);
    figure("answers in them with a claim of another tenant's", taken.claims);
    assert!(owed > 0 && restored >= owed);
    assert!(taken.ids > 0 && taken.seals > 0 && taken.claims > 0, "{taken:?}");
}
