//! Law 13, never the wrong mind: whatever clients do, nothing is restored that was not this conversation's own.
//!
//! Small worlds are made up in which everybody says nearly the same: two tenants, end-users and anonymous callers, with equal visible
//! prefixes, answers asked for again, branches, tool-call ids that count from 0 in every answer, edited system prompts and
//! texts, answers whose capture was lost, and claims that are forged or another's. Whole conversations are taken from
//! somebody else, of another tenant or of the same: word for word, with their tool-call ids, their seals and our claims to them.
//! Each request drops all of its own reasoning, is restored and sent; each seal that is sent is looked up in the world's own book, and
//! the turn that an answer is kept behind must be the caller's own.

use std::collections::{HashMap, HashSet};

use crate::common::House;
use crate::common::said::{Answer, Line, Said, seal};
use throughline_core::{NodeId, Tenant};
use throughline_server::{Claims, Restored};
use throughline_testkit::{Dice, cases, figure};

/// Somebody who converses.
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
    said: Vec<Said>,
    /// What was sent for each answer before: what was sent one way is always sent that way.
    sent: HashMap<u64, HashSet<String>>,
    /// Whether every answer was captured behind exactly this, and nothing was edited since.
    is_plain: bool,
    /// The answers that were somebody else's, each with the mind that gave it there.
    taken: HashMap<u64, u64>,
}

/// What a caller sends with answers, by their minds here, that it was never given.
#[derive(Default)]
struct Strange {
    /// In place of their thoughts' seals.
    seals: HashMap<u64, String>,
    /// As the ids of their calls.
    ids: HashMap<u64, String>,
}

/// How many answers were sent with handles of another tenant's.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    ids: usize,
    seals: usize,
    claims: usize,
}

/// Everything visible up to a turn, as the book has it: whose, on which wire, behind what.
type Visible = (Caller, usize, &'static str, Vec<Said>);

struct World<'w> {
    house: &'w House,
    lines: &'w [Line],
    dice: Dice,
    callers: Vec<Caller>,
    conversations: Vec<Conversation>,
    /// The minds that answered behind what is visible.
    book: HashMap<Visible, HashSet<u64>>,
    /// How many minds answered behind what is visible, on whichever wire.
    alike: HashMap<Visible, usize>,
    /// The turns that were captured, whose they are, and which mind gave them.
    nodes: Vec<Captured>,
    minds: u64,
    restored: usize,
    owed: usize,
    taken: Taken,
}

#[derive(Clone)]
struct Captured {
    owner: Caller,
    node: NodeId,
    mind: u64,
}

const SYSTEMS: [&str; 2] = ["Be brief.", "Be thorough."];
const TEXTS: [&str; 3] = ["Go on.", "Why?", "And then?"];
const ANSWERS: [&str; 2] = ["So it is.", "It depends."];
/// The id that every answer may give its call anew.
const COUNTED: &str = "call_0";

impl<'w> World<'w> {
    fn new(house: &'w House, lines: &'w [Line], seed: u64) -> Self {
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
        let dice = Dice::new(seed);
        let alike = HashMap::new();
        Self {
            house,
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
            taken: Taken::default(),
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
            // Most speak on the same wire, so that they look alike.
            let line = if self.dice.below(3) == 0 {
                self.dice.below(self.lines.len())
            } else {
                self.line()
            };
            let system = SYSTEMS[usize::from(self.dice.below(4) == 0)];
            let conversation = Conversation {
                caller,
                line,
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
            // What was taken is not taken back.
            5 if self.conversations[number].taken.is_empty() => {
                self.take(number);
                return self.ask(self.conversations.len() - 1).await;
            }
            _ => {}
        }
        self.ask(number).await;
    }

    /// The wire that most of this world speaks.
    fn line(&self) -> usize {
        usize::try_from(self.minds / 1_000).unwrap() % self.lines.len()
    }

    fn branch(&mut self, number: usize) {
        let copy = self.conversations[number].clone();
        self.conversations.push(copy);
    }

    /// Goes back to before the last answer.
    fn regenerate(&mut self, number: usize) {
        let said = &mut self.conversations[number].said;
        if let Some(last) = said.iter().rposition(|said| matches!(said, Said::Model(_))) {
            said.truncate(last);
        }
    }

    /// Somebody else says all of a conversation again, with the ids of its calls.
    fn take(&mut self, number: usize) {
        let mut copy = self.conversations[number].clone();
        let mut others = self.callers.clone();
        others.retain(|caller| *caller != copy.caller);
        copy.caller = self.pick(&others);
        (copy.sent, copy.is_plain) = (HashMap::new(), false);
        for said in &mut copy.said {
            let Said::Model(answer) = said else { continue };
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
            conversation.system = "Be somebody else.";
            return;
        }
        let is_user = which == 1;
        let edited = conversation.said.iter_mut().find_map(|said| match said {
            Said::User(text) if is_user => Some(text),
            Said::Model(answer) if !is_user => Some(&mut answer.text),
            Said::User(_) | Said::Model(_) | Said::Tool { .. } => None,
        });
        if let Some(text) = edited {
            *text = String::from("That was edited.");
        }
    }

    /// Says the next thing, sends everything without reasoning, checks what goes out, and hears the answer.
    async fn ask(&mut self, number: usize) {
        let text = self.pick(&TEXTS).to_owned();
        let mut conversation = self.conversations[number].clone();
        match conversation.said.last() {
            Some(Said::Model(Answer { call: Some((id, name, _)), .. })) => {
                let (id, name) = (id.clone(), name.clone());
                conversation.said.push(Said::Tool { id, name, text });
            }
            Some(Said::User(_) | Said::Tool { .. }) => {}
            Some(Said::Model(_)) | None => conversation.said.push(Said::User(text)),
        }
        let line = &self.lines[conversation.line];
        let strange = self.strange(&conversation);
        let said = renamed(&conversation.said, &strange.ids);
        let seal_of = |answer: &Answer| strange.seals.get(&answer.mind).cloned();
        let call = line.sealed(conversation.system, &said, seal_of);
        let caller = conversation.caller.clone();
        let restored =
            self.house.replay.restore(&caller.tenant, caller.end_user, call).await.unwrap();
        let encoded = line.codec.encode(&restored.call).unwrap();
        self.check_parent(&conversation, &restored);
        self.check(&mut conversation, &strange, &encoded.request.body);
        let answer = self.answer();
        let visible = visible(&conversation, conversation.said.len());
        let reply = line.reply_behind(&answer, encoded.prefix);
        if self.dice.below(8) == 0 {
            conversation.is_plain = false;
        } else {
            let node = self.capture(&caller, &restored, &reply, &encoded).await;
            self.nodes.push(Captured { owner: caller, node, mind: answer.mind });
        }
        let key = with(visible, &answer);
        *self.alike.entry(on_any_wire(&key)).or_default() += 1;
        self.book.entry(key).or_default().insert(answer.mind);
        conversation.said.push(Said::Model(answer));
        self.conversations[number] = conversation;
    }

    async fn capture(
        &self,
        caller: &Caller,
        restored: &Restored,
        reply: &throughline_core::Reply,
        encoded: &throughline_core::Encoded,
    ) -> NodeId {
        self.house.capture(&caller.tenant, restored, reply, encoded).await.unwrap()
    }

    /// What the caller sends that it was never given.
    fn strange(&mut self, conversation: &Conversation) -> Strange {
        let mut strange = Strange::default();
        let caller = &conversation.caller;
        let minds: Vec<u64> = answers(&conversation.said).map(|answer| answer.mind).collect();
        // A strange claim stands where the thought of some answer was.
        let claim = self.strange_claim(caller);
        let at = self.dice.below(4);
        strange.seals.extend(minds.get(at).copied().zip(claim));
        let claims = Claims::new(crate::common::KEY);
        for answer in answers(&conversation.said) {
            let Some(theirs) = conversation.taken.get(&answer.mind) else { continue };
            let Some(theirs) = self.nodes.iter().find(|known| known.mind == *theirs) else {
                continue;
            };
            let Captured { owner, node, mind } = theirs;
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
                // Its call has the id that it had there.
                _ => {
                    let is_unique = answer.call.as_ref().is_some_and(|(id, ..)| id != COUNTED);
                    self.taken.ids += is_counted * usize::from(is_unique);
                }
            }
        }
        strange
    }

    /// A claim that this caller was never given.
    fn strange_claim(&mut self, caller: &Caller) -> Option<String> {
        let claims = Claims::new(crate::common::KEY);
        let Captured { owner, node, .. } = self.dice.pick(&self.nodes)?.clone();
        match self.dice.below(8) {
            // Another tenant's, or another end-user's, with a good authenticator.
            0 if owner != *caller => Some(claims.claim(&owner.tenant, &node).to_string()),
            // Made by somebody who has not the key.
            1 => Some(Claims::new([9; 32]).claim(&caller.tenant, &node).to_string()),
            2 => Some(format!("tl1c{node}00000000000000000")),
            _ => None,
        }
    }

    fn answer(&mut self) -> Answer {
        self.minds += 1;
        let text = self.pick(&ANSWERS).to_owned();
        let call = match self.dice.below(4) {
            // Ids that begin anew with each answer.
            0 | 1 => Some(COUNTED.to_owned()),
            // Ids that are unique in the world.
            2 => Some(format!("call_{:x}a1b2c3d4", self.minds)),
            _ => None,
        };
        let call = call.map(|id| (id, "look".to_owned(), self.pick(&["here", "there"]).to_owned()));
        Answer { text, call, mind: self.minds }
    }

    /// Whether nothing that was answered in this conversation has a double.
    fn is_alone(&self, conversation: &Conversation) -> bool {
        (0..conversation.said.len()).all(|at| match &conversation.said[at] {
            Said::Model(answer) => {
                let key = with(visible(conversation, at), answer);
                self.alike.get(&on_any_wire(&key)) == Some(&1)
            }
            Said::User(_) | Said::Tool { .. } => true,
        })
    }

    /// What an answer is kept behind must be a turn that this caller was given.
    fn check_parent(&self, conversation: &Conversation, restored: &Restored) {
        let Some(parent) = &restored.conversation.parent else { return };
        let known = self.nodes.iter().find(|known| known.node == parent.node);
        let is_own = known.is_some_and(|known| known.owner == conversation.caller);
        assert!(is_own, "{parent:?} is somebody else's, of {conversation:#?}");
    }

    /// Each seal that is sent must be one that this caller was given for this very turn, or for one that looks the same behind
    /// all that is visible; or one that was sent here before; or one that the caller sent there itself.
    fn check(&mut self, conversation: &mut Conversation, strange: &Strange, body: &[u8]) {
        let sent = String::from_utf8_lossy(body);
        assert!(!sent.contains("tl1"), "a claim reached a provider: {sent}");
        let line = &self.lines[conversation.line];
        let turns = line.seals_sent(body);
        let places = conversation.said.iter().enumerate();
        let models = places.filter(|(_, said)| matches!(said, Said::Model(_)));
        let models: Vec<usize> = models.map(|(at, _)| at).collect();
        assert_eq!(turns.len(), models.len(), "{sent}");
        for (seals, at) in turns.iter().zip(models) {
            let Said::Model(answer) = &conversation.said[at] else { continue };
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
            // Where another turn looks the same, that one may be the newest, and its ancestry another.
            if conversation.is_plain && self.is_alone(conversation) {
                self.owed += 1;
                assert_eq!(seals.len(), 1, "nothing was restored at {at} of {conversation:#?}");
            }
        }
    }
}

fn answers(said: &[Said]) -> impl Iterator<Item = &Answer> {
    said.iter().filter_map(|said| match said {
        Said::Model(answer) => Some(answer),
        Said::User(_) | Said::Tool { .. } => None,
    })
}

/// The same with other ids for the calls of these minds, and in the answers to them.
fn renamed(said: &[Said], ids: &HashMap<u64, String>) -> Vec<Said> {
    let (mut said, mut open) = (said.to_vec(), None);
    for said in &mut said {
        match said {
            Said::Model(answer) => {
                open = ids.get(&answer.mind);
                if let (Some((id, ..)), Some(strange)) = (&mut answer.call, open) {
                    id.clone_from(strange);
                }
            }
            Said::Tool { id, .. } => {
                if let Some(strange) = open {
                    id.clone_from(strange);
                }
            }
            Said::User(_) => open = None,
        }
    }
    said
}

/// Everything visible before that place: without minds and ids.
fn visible(conversation: &Conversation, at: usize) -> Visible {
    let said = conversation.said[..at].iter().map(seen).collect();
    (conversation.caller.clone(), conversation.line, conversation.system, said)
}

fn with((caller, line, system, mut said): Visible, answer: &Answer) -> Visible {
    said.push(seen(&Said::Model(answer.clone())));
    (caller, line, system, said)
}

fn on_any_wire((caller, _, system, said): &Visible) -> Visible {
    (caller.clone(), 0, system, said.clone())
}

fn seen(said: &Said) -> Said {
    match said {
        Said::User(text) => Said::User(text.clone()),
        Said::Tool { name, text, .. } => {
            Said::Tool { id: String::new(), name: name.clone(), text: text.clone() }
        }
        Said::Model(answer) => {
            let call = answer.call.clone().map(|(_, name, of)| (String::new(), name, of));
            Said::Model(Answer { text: answer.text.clone(), call, mind: 0 })
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_restored_that_was_not_this_conversations_own() {
    let house = House::new().await;
    let lines = Line::all();
    let (mut restored, mut owed, mut taken) = (0, 0, Taken::default());
    let count = cases(150);
    for seed in 1..=u64::from(count) {
        let mut world = World::new(&house, &lines, seed);
        for _ in 0..14 {
            world.step().await;
        }
        restored += world.restored;
        owed += world.owed;
        taken.ids += world.taken.ids;
        taken.seals += world.taken.seals;
        taken.claims += world.taken.claims;
    }
    figure("worlds in which everybody kept their own mind", count);
    figure("seals restored in them", restored);
    figure("answers in them with a call id of another tenant's", taken.ids);
    figure("answers in them with a seal of another tenant's", taken.seals);
    figure("answers in them with a claim of another tenant's", taken.claims);
    assert!(owed > 0 && restored >= owed);
    assert!(taken.ids > 0 && taken.seals > 0 && taken.claims > 0, "{taken:?}");
}
