//! Builds the model request for each purpose.
//!
//! A turn sends the conversation unchanged, so each request extends the previous one. A reflection
//! that shares this prefix appends its question after the conversation. The next turn omits the
//! reflection's question.

use throughline_core::{
    Call, Item, NativeReasoning, OutputFormat, Role, Target, ThreadSecret, ToolChoice,
};
use throughline_json::Name;
use throughline_spec::ReflectionMode;

use crate::compact::{self, speaker, text_item};
use crate::progress::Purpose;
use crate::roster::ResolvedAgent;
use crate::state::State;
use crate::window::{may_be_quoted, readable_text};

/// Number of recent messages that a separate reflection quotes.
const REFLECTION_MESSAGES: usize = 8;

const SMART: &str = "Work step by step. For work of several steps keep a plan with manage_todo_list, one step in progress \
at a time. What a summary says of earlier parts of this conversation is settled; answers of tools that it mentions can be \
brought back with get_tool_response.";

const REFLECT: &str = "Before you go on: in a few sentences, note what the latest results mean for the task, what is still \
unknown, and what you will do next. Do not call tools, and do not address the user.";

impl State {
    /// Builds the model request for `purpose`. `secret` is the secret of this run's Thread.
    pub fn call(&self, purpose: Purpose, target: Target, secret: &ThreadSecret) -> Call {
        let mut call = Call::new(target);
        call.stream = true;
        let Some(part) = self.current_agent() else { return call };
        call.replay.me = part.config.identity();
        call.replay.secret = Some(secret.clone());
        call.settings.reasoning.clone_from(&part.reasoning.native);
        match purpose {
            Purpose::Turn => self.build_turn(part, &mut call),
            Purpose::Final => {
                self.build_turn(part, &mut call);
                call.settings.choice = (!call.tools.is_empty()).then_some(ToolChoice::None);
            }
            Purpose::Reflection => self.build_reflection(part, &mut call),
            Purpose::Summary => {
                call.settings.reasoning = reasoning_off(&call);
                compact::build_request(self, &mut call);
            }
        }
        call
    }

    fn build_turn(&self, part: &ResolvedAgent, call: &mut Call) {
        call.system = system(part);
        call.tools.clone_from(&part.offered);
        call.items = self.window.visible_to(&call.replay.me);
        call.settings.max_tokens = part.config.max_tokens;
        call.settings.temperature.clone_from(&part.config.temperature);
        let output = part.config.output.as_ref().filter(|output| output.native);
        call.settings.output = output.map(|output| {
            let (name, schema) = (output.name.clone(), output.schema.clone());
            OutputFormat::Schema { name, schema, strict: None }
        });
        let exchange = self.progress.gate.iter().flat_map(|gate| &gate.exchange);
        for (number, message) in exchange.enumerate() {
            call.extend([ephemeral_item(number, message.by_model, &message.text)]);
        }
    }

    fn build_reflection(&self, part: &ResolvedAgent, call: &mut Call) {
        let Some(reflection) = &part.reasoning.reflection else { return };
        let template = reflection.prompt_template.as_deref().unwrap_or(REFLECT);
        if reflection.mode == ReflectionMode::Piggyback {
            self.build_turn(part, call);
            call.settings.choice = (!call.tools.is_empty()).then_some(ToolChoice::None);
            call.settings.output = None;
            call.extend([ephemeral_item(0, false, template)]);
        } else {
            // A separate reflection quotes a few messages as text, which is cheap and leaves the
            // cached prefix untouched.
            call.settings.reasoning = reasoning_off(call);
            call.system = system(part);
            let items = self.window.items.iter().rev().map(|entry| &entry.item);
            let latest = items.filter(|item| may_be_quoted(item)).take(REFLECTION_MESSAGES);
            let latest = latest.map(|item| format!("{}: {}", speaker(item), readable_text(item)));
            let mut latest: Vec<String> = latest.collect();
            latest.reverse();
            let text = format!("{}\n\n{template}", latest.join("\n"));
            call.items = vec![text_item("reflection", Role::User, &text)];
        }
        call.settings.max_tokens = Some(reflection.max_tokens.max(reasoning_budget(call)));
    }
}

/// Returns the smallest output limit that leaves room for an answer after the reasoning budget,
/// because providers count reasoning as output. Returns 0 if there is no budget.
fn reasoning_budget(call: &Call) -> u64 {
    let reasoning = call.settings.reasoning.as_ref().filter(|reasoning| !reasoning.is_off());
    let budget = reasoning.and_then(|reasoning| reasoning.budget_tokens);
    budget.map_or(0, |budget| budget.saturating_add(1024))
}

fn reasoning_off(call: &Call) -> Option<NativeReasoning> {
    let reasoning = call.settings.reasoning.as_ref()?;
    Some(NativeReasoning {
        effort: Some(Name::from("low")),
        budget_tokens: None,
        ..reasoning.clone()
    })
}

/// Returns the system message, which is identical in every request.
fn system(part: &ResolvedAgent) -> Vec<Item> {
    let instructions = part.config.instructions.as_deref();
    let smart = (part.config.kind == crate::config::AgentKind::Smart).then_some(SMART);
    let texts: Vec<&str> = instructions.into_iter().chain(smart).collect();
    if texts.is_empty() {
        return Vec::new();
    }
    vec![text_item("system", Role::System, &texts.join("\n\n"))]
}

fn ephemeral_item(number: usize, is_by_model: bool, text: &str) -> Item {
    let role = if is_by_model { Role::Assistant } else { Role::User };
    let mut item = text_item(&format!("ephemeral-{number}"), role, text);
    item.ephemeral = true;
    item
}
