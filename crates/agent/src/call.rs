//! What a model is asked, for each purpose.
//!
//! A turn is asked with the conversation as it is, so each request extends the one before. A reflection that rides on it puts
//! its question behind all of that and leaves nothing there: the next turn is asked as if it had never been.

use throughline_core::{
    Body, Call, Choice, Item, Name, NativeReasoning, Output, Place, ReflectionMode, Role, Target,
    ThreadSecret,
};

use crate::cast::Part;
use crate::compact;
use crate::progress::{Ephemeral, Purpose};
use crate::state::State;
use crate::window::{may_be_quoted, readable};

/// How many messages a reflection of its own is shown.
const SHOWN_TO_REFLECTION: usize = 8;

const SMART: &str = "Work step by step. For work of several steps keep a plan with manage_todo_list, one step in progress \
at a time. What a summary says of earlier parts of this conversation is settled; answers of tools that it mentions can be \
brought back with get_tool_response.";

const REFLECT: &str = "Before you go on: in a few sentences, note what the latest results mean for the task, what is still \
unknown, and what you will do next. Do not call tools, and do not address the user.";

impl State {
    /// What the model is asked. `secret` is the Thread's own.
    pub fn call(&self, purpose: Purpose, target: Target, secret: &ThreadSecret) -> Call {
        let mut call = Call::new(target);
        call.stream = true;
        let Some(part) = self.part() else { return call };
        call.replay.me = part.config.identity();
        call.replay.secret = Some(secret.clone());
        call.settings.reasoning.clone_from(&part.reasoning.native);
        match purpose {
            Purpose::Turn => self.turn(part, &mut call),
            Purpose::Final => {
                self.turn(part, &mut call);
                call.settings.choice = (!call.tools.is_empty()).then_some(Choice::None);
            }
            Purpose::Reflection => self.reflection(part, &mut call),
            Purpose::Summary => {
                call.settings.reasoning = off(&call);
                compact::ask(self, &mut call);
            }
        }
        call
    }

    fn turn(&self, part: &Part, call: &mut Call) {
        call.system = system(part);
        call.tools.clone_from(&part.offered);
        call.items = self.window.shown_to(&call.replay.me);
        call.settings.max_tokens = part.config.max_tokens;
        call.settings.temperature.clone_from(&part.config.temperature);
        call.settings.output =
            part.config.output.as_ref().filter(|output| output.native).map(|output| {
                Output::Schema {
                    name: output.name.clone(),
                    schema: output.schema.clone(),
                    strict: None,
                }
            });
        let trial = self.progress.gate.iter().flat_map(|gate| &gate.exchange).enumerate();
        call.extend_each(trial.map(|(number, said)| ephemeral(number, said)));
    }

    fn reflection(&self, part: &Part, call: &mut Call) {
        let Some(reflection) = part.reflection() else { return };
        let template = reflection.prompt_template.as_deref().unwrap_or(REFLECT);
        if reflection.mode == ReflectionMode::Piggyback {
            self.turn(part, call);
            call.settings.choice = (!call.tools.is_empty()).then_some(Choice::None);
            call.settings.output = None;
            let ask = Ephemeral { by_model: false, text: Name::from(template) };
            call.extend_each([ephemeral(0, &ask)]);
        } else {
            // What it costs is small and what it may spoil is nothing: it is shown a few messages as text.
            call.settings.reasoning = off(call);
            call.system = system(part);
            let items = self.window.items.iter().rev().map(|kept| &kept.item);
            let latest = items.filter(|item| may_be_quoted(item)).take(SHOWN_TO_REFLECTION);
            let latest = latest.map(|item| format!("{}: {}", speaker(item), readable(item)));
            let mut latest: Vec<String> = latest.collect();
            latest.reverse();
            let text = format!("{}\n\n{template}", latest.join("\n"));
            call.items = vec![said("reflection", 0, Role::User, &text)];
        }
        call.settings.max_tokens = Some(reflection.max_tokens.max(thinking(call)));
    }
}

/// Where thinking counts towards the answer's length, there must be room for both.
fn thinking(call: &Call) -> u64 {
    let reasoning = call.settings.reasoning.as_ref().filter(|reasoning| !reasoning.is_off());
    let budget = reasoning.and_then(|reasoning| reasoning.budget_tokens);
    budget.map_or(0, |budget| budget.saturating_add(1024))
}

fn off(call: &Call) -> Option<NativeReasoning> {
    let asked = call.settings.reasoning.as_ref()?;
    Some(NativeReasoning { effort: Some(Name::from("low")), budget_tokens: None, ..asked.clone() })
}

/// What an agent is told before anything else: the same in every request.
fn system(part: &Part) -> Vec<Item> {
    let instructions = part.config.instructions.as_deref();
    let smart = (part.config.kind == crate::config::AgentKind::Smart).then_some(SMART);
    let texts: Vec<&str> = instructions.into_iter().chain(smart).collect();
    if texts.is_empty() {
        return Vec::new();
    }
    vec![said("system", 0, Role::System, &texts.join("\n\n"))]
}

fn ephemeral(number: usize, said_: &Ephemeral) -> Item {
    let role = if said_.by_model { Role::Assistant } else { Role::User };
    let mut item = said(&format!("ephemeral-{number}"), 0, role, &said_.text);
    item.ephemeral = true;
    item
}

pub(crate) fn said(id: &str, message: usize, role: Role, text: &str) -> Item {
    Item::new(id, Place::new(message, 0), role, Body::Text(text.into()))
}

/// Who says an Item, for a reader.
pub(crate) fn speaker(item: &Item) -> &'static str {
    match (&item.body, item.role) {
        (Body::Thought(_), _) => "assistant (thinking)",
        (Body::Call(_), _) => "assistant calls",
        (Body::Result(_), _) => "tool",
        (Body::Summary { .. }, _) => "summary",
        (_, Role::Assistant) => "assistant",
        (_, Role::System | Role::Developer) => "system",
        (_, Role::User | Role::Tool) => "user",
    }
}

/// Adds Items, each of which is a message.
trait ExtendEach {
    fn extend_each(&mut self, items: impl IntoIterator<Item = Item>);
}

impl ExtendEach for Call {
    fn extend_each(&mut self, items: impl IntoIterator<Item = Item>) {
        for item in items {
            self.extend([item]);
        }
    }
}
