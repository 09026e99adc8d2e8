//! What the Messages API refuses: as far as writing a request must heed it, and as rules that a request is audited by. The
//! rules of the models themselves are in [`crate::claude`], which looks at the request through [`view`].

mod own;
mod rules;
mod view;

use throughline_core::{Choice, Item, Json, Node, Profile, Target, Why};

pub(super) use crate::anthropic::contract::rules::RULES;
use crate::audit::{Case, Findings};
use crate::claude::{self, Asking, Inspection};
use crate::gate;

/// Looks for what a request's provider would refuse.
pub(super) fn inspect(case: &Case<'_>, findings: &mut Findings<'_>) {
    let view = view::of(case);
    let mut inspection = Inspection::new(&view, &rules::BOOK, case, findings);
    inspection.run();
    own::inspect(&mut inspection);
}

/// Why a thinking block without a signature cannot go: a family that signs refuses it, and nobody takes another's. The
/// clones of this wire sign nothing and want their thoughts back as they were.
pub(super) fn refuses_unsigned(item: &Item, target: &Target) -> Option<Why> {
    if gate::why_left(item, target) == Why::Foreign {
        return Some(Why::Foreign);
    }
    target.profile.bound.model.then_some(Why::Unsigned)
}

/// Whether the model refuses to be told which tool to call.
pub(super) fn refuses_choice(profile: &Profile, asking: Asking, choice: &Choice) -> bool {
    claude::refuses_choice(profile, profile.forced_tools, asking, choice)
}

/// Whether the last assistant message is in a tool loop and does not begin with thinking: with a manual budget that
/// is refused.
pub(super) fn needs_thinking_first(messages: &[Json]) -> bool {
    let Some(answers) = messages.last().map(Json::tree) else { return false };
    let is_answer = |block: Node<'_>| block.get("type").is_some_and(|kind| kind.is("tool_result"));
    let is_loop = answers.root().get("content").is_some_and(|c| c.elements().any(is_answer));
    let assistant = messages
        .iter()
        .rev()
        .map(Json::tree)
        .find(|message| message.root().get("role").is_some_and(|role| role.is("assistant")));
    let Some(assistant) = assistant.filter(|_| is_loop) else { return false };
    let first = assistant.root().at("/content/0/type").and_then(Node::text);
    !matches!(first.as_deref(), Some("thinking" | "redacted_thinking"))
}

#[cfg(test)]
#[path = "contract_tests.rs"]
mod contract_tests;
