//! Requirements of the Messages API: predicates for the encoder, and rules for audits. The Claude
//! rules are in [`crate::claude`], which inspects the request through [`view`].

mod rules;
mod view;
mod wire_rules;

use throughline_core::{ElisionReason, Item, Profile, Target, ToolChoice};
use throughline_json::{Json, Node, Tree};

pub(super) use crate::anthropic::contract::rules::RULES;
use crate::audit::{AuditContext, Findings};
use crate::claude::{self, Inspection, ThinkingMode};
use crate::seal_policy;

/// Reports where a request violates the Messages rules or the Claude rules.
pub(super) fn inspect(case: &AuditContext<'_>, findings: &mut Findings<'_>) {
    let view = view::build(case);
    let mut inspection = Inspection::new(&view, &rules::BOOK, case, findings);
    inspection.run();
    wire_rules::inspect(&mut inspection);
}

/// Returns why an unsigned thinking block must be omitted; `None` if the block can be sent. Model
/// families that sign their thinking reject unsigned blocks, and no family accepts another family's
/// blocks. Vendors that do not sign expect their own thoughts back unchanged.
pub(super) fn unsigned_elision(item: &Item, target: &Target) -> Option<ElisionReason> {
    if seal_policy::elision_reason(item, target) == ElisionReason::Foreign {
        return Some(ElisionReason::Foreign);
    }
    target.profile.bound.model.then_some(ElisionReason::Unsigned)
}

pub(super) fn rejects_tool_choice(
    profile: &Profile,
    mode: ThinkingMode,
    choice: &ToolChoice,
) -> bool {
    claude::rejects_tool_choice(profile, profile.forced_tools, mode, choice)
}

/// Returns whether the last assistant message is in a tool loop and does not begin with thinking.
/// If the request also sets a manual thinking budget, the provider rejects the request.
pub(super) fn lacks_leading_thinking(messages: &[Json]) -> bool {
    let has_role =
        |message: &Tree, role: &str| message.root().get("role").is_some_and(|r| r.is(role));
    let mut latest = messages.iter().rev().map(Json::tree);
    let Some(answers) = latest.find(|message| !has_role(message, "system")) else { return false };
    let is_answer = |block: Node<'_>| block.get("type").is_some_and(|kind| kind.is("tool_result"));
    let is_loop = answers.root().get("content").is_some_and(|c| c.elements().any(is_answer));
    let assistant =
        messages.iter().rev().map(Json::tree).find(|message| has_role(message, "assistant"));
    let Some(assistant) = assistant.filter(|_| is_loop) else { return false };
    let first = assistant.root().at("/content/0/type").and_then(Node::text);
    !matches!(first.as_deref(), Some("thinking" | "redacted_thinking"))
}

#[cfg(test)]
#[path = "contract_tests.rs"]
mod contract_tests;
