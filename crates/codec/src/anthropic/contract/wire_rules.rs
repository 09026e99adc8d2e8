//! Checks the rules that exist only on Anthropic's own wire.

use throughline_json::{Node, Tree};

use crate::anthropic::contract::rules;
use crate::audit::{AuditContext, Edit, Finding, Severity};
use crate::claude::Inspection;
use crate::claude::view::{ClaudeBlockKind, ClaudeRequest};

/// The beta feature that enables `block_binding`.
const BINDING: &str = "thinking-binding-controls-2026-08-01";

pub(super) fn inspect(inspection: &mut Inspection<'_, '_, '_>) {
    let (view, case) = (inspection.view, inspection.case);
    // A changed member order changes the prefix and misses the cache.
    let reordered = || case.comparison()?.cache_finding(&rules::CACHE_PREFIX_BROKEN);
    let found = [check_binding(view), check_exclusive(case), check_config(case, view), reordered()];
    inspection.extend(found.into_iter().flatten());
    check_compactions(inspection);
}

fn check_binding(view: &ClaudeRequest<'_>) -> Option<Finding> {
    let thinking = view.settings.thinking?;
    let binding = thinking.present("block_binding")?;
    let (severity, message) = match view.settings.has_beta(BINDING) {
        Some(true) => return None,
        Some(false) => (Severity::Refuse, "the headers do not request its beta"),
        None => (Severity::Note, "the headers, which must request its beta, are unknown"),
    };
    let kind = thinking.text_of("type").unwrap_or("adaptive".into());
    let error = format!("thinking.{kind}.block_binding: Extra inputs are not permitted");
    let finding = Finding::at(&rules::BINDING_NEEDS_BETA, binding, message);
    let finding = finding.with_severity(severity).with_provider_error(error);
    Some(finding.fixed_by_removing(binding, "omits `block_binding`"))
}

fn check_exclusive(case: &AuditContext<'_>) -> Option<Finding> {
    let compaction = case.body().present("compaction")?;
    let management = case.body().present("context_management")?;
    let message = "`context_management` is set as well";
    let finding = Finding::at(&rules::COMPACTION_EXCLUSIVE, compaction, message);
    let description = "omits `context_management`, because `compaction` is set";
    Some(finding.fixed_by_removing(management, description))
}

fn check_compactions(inspection: &mut Inspection<'_, '_, '_>) {
    let view = inspection.view;
    for block in view.assistant_blocks().filter(|block| block.kind == ClaudeBlockKind::Compaction) {
        let Some(content) = block.text.filter(|content| content.is("")) else { continue };
        let fix = inspection
            .restore_fix(block, inspection.change_of(block))
            .or_else(|| inspection.removal_fix(&[block], "removes the empty compaction block"));
        let message = "the content must be a summary or `null`, not an empty text";
        let finding = Finding::at(&rules::COMPACTION_BLOCK_EMPTY, content, message);
        inspection.report(block, finding.with_auto_fix(fix));
    }
}

/// Checks that the thinking configuration is unchanged since the open tool loop began, because a
/// tool loop counts as one turn.
fn check_config(case: &AuditContext<'_>, view: &ClaudeRequest<'_>) -> Option<Finding> {
    let turn = view.open_loop()?;
    let is_called = |id: &str| {
        let mut calls =
            view.blocks_of_turn(turn).filter(|block| block.kind == ClaudeBlockKind::Call);
        calls.any(|call| call.id.is_some_and(|own| own.is(id)))
    };
    let exchange = case.prior().exchanges().iter().rev().find(|exchange| {
        let mut items = exchange.reply.iter().flat_map(|reply| &reply.items);
        items
            .any(|item| item.call().and_then(|call| call.wire_id.as_deref()).is_some_and(is_called))
    })?;
    let source = exchange.call.as_ref()?.source_on(&rules::CONFIG_CHANGED_IN_LOOP.wire)?;
    // Do not compare the configurations of different models.
    if source.target.profile.name != case.profile().name {
        return None;
    }
    let before = Tree::parse(source.request.body.clone()).ok()?;
    let was = before.root().present("thinking");
    let is = view.settings.thinking;
    let member =
        |node: Option<Node<'_>>, key: &str| node.and_then(|node| node.get(key)).map(Node::json);
    let is_same = |key: &str| match (member(was, key), member(is, key)) {
        (Some(was), Some(is)) => was.is_equivalent_to(&is),
        (was, is) => was.is_none() && is.is_none(),
    };
    if is_same("type") && is_same("budget_tokens") {
        return None;
    }
    let edit = match (was, is) {
        (Some(was), _) => Edit::Set(case.body().range(), "thinking".to_owned(), was.json()),
        (None, Some(is)) => Edit::Remove(is.range()),
        (None, None) => return None,
    };
    let description = "restores the thinking setting of the start of this tool loop";
    let began = |key: &str| member(was, key).map(|value| value.as_str().to_owned());
    let message = match (began("type"), began("budget_tokens")) {
        (Some(kind), _) if !is_same("type") => {
            format!("this tool loop began with thinking type {kind}")
        }
        (Some(_), Some(budget)) => format!("this tool loop began with a budget of {budget}"),
        (Some(_), None) => "this tool loop began without a budget".to_owned(),
        (None, _) => "this tool loop began without `thinking`".to_owned(),
    };
    let finding = Finding::at(&rules::CONFIG_CHANGED_IN_LOOP, is.unwrap_or(case.body()), message);
    Some(finding.with_path("thinking").fixed_by(description, [edit]))
}
