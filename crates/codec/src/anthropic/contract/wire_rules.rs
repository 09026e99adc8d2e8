//! Rules that exist only on Anthropic's own wire.

use throughline_core::Body;
use throughline_json::{Node, Tree};

use crate::anthropic::contract::rules;
use crate::audit::{AuditContext, Edit, Finding, Fix, Severity};
use crate::claude::Inspection;
use crate::claude::view::{ClaudeBlockKind, ClaudeRequest};

/// The beta that enables `block_binding`.
const BINDING: &str = "thinking-binding-controls-2026-08-01";

/// Applies the wire's own rules to the request.
pub(super) fn inspect(inspection: &mut Inspection<'_, '_, '_>) {
    let (view, case) = (inspection.view, inspection.case);
    let found =
        [check_binding(view), check_exclusive(case), check_config(case, view), reordered(case)];
    for finding in found.into_iter().flatten() {
        inspection.add(finding);
    }
    check_compactions(inspection);
}

fn check_binding(view: &ClaudeRequest<'_>) -> Option<Finding> {
    let thinking = view.knobs.thinking?;
    let binding = thinking.present("block_binding")?;
    let severity = match view.knobs.has_beta(BINDING) {
        Some(true) => return None,
        Some(false) => Severity::Refuse,
        None => Severity::Note,
    };
    let kind = thinking.text_of("type").unwrap_or("adaptive".into());
    let message = match severity {
        Severity::Refuse => "the headers do not request its beta",
        Severity::Degrade | Severity::Note => {
            "the headers, which must request its beta, are unknown"
        }
    };
    let error = format!("thinking.{kind}.block_binding: Extra inputs are not permitted");
    let fix = Fix::new("omits `block_binding`", [Edit::Remove(binding.range())]);
    let finding = Finding::at(&rules::BINDING_NEEDS_BETA, binding, message);
    Some(finding.with_severity(severity).with_provider_error(error).with_auto_fix(fix))
}

fn check_exclusive(case: &AuditContext<'_>) -> Option<Finding> {
    let compaction = case.body().present("compaction")?;
    let management = case.body().present("context_management")?;
    let fix = Fix::new(
        "omits `context_management`, because `compaction` is set",
        [Edit::Remove(management.range())],
    );
    let message = "`context_management` is set as well";
    let finding = Finding::at(&rules::COMPACTION_EXCLUSIVE, compaction, message);
    Some(finding.with_auto_fix(fix))
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

/// An open tool loop is one turn and therefore has one thinking configuration.
fn check_config(case: &AuditContext<'_>, view: &ClaudeRequest<'_>) -> Option<Finding> {
    let turn = view.open_loop()?;
    let is_called = |id: &str| {
        let mut calls =
            view.blocks_of_turn(turn).filter(|block| block.kind == ClaudeBlockKind::Call);
        calls.any(|call| call.id.is_some_and(|own| own.is(id)))
    };
    let exchange = case.prior().exchanges().iter().rev().find(|exchange| {
        let mut items = exchange.reply.iter().flat_map(|reply| &reply.items);
        items.any(|item| {
            let id = if let Body::Call(call) = &item.body { call.wire_id.as_deref() } else { None };
            id.is_some_and(is_called)
        })
    })?;
    let source = exchange.call.as_ref()?.source_on(&rules::CONFIG_CHANGED_IN_LOOP.wire)?;
    // Another model has another configuration.
    if source.target.profile.name != case.profile().name {
        return None;
    }
    let before = Tree::parse(source.request.body.clone()).ok()?;
    let was = before.root().present("thinking");
    let is = view.knobs.thinking;
    let said =
        |node: Option<Node<'_>>, key: &str| node.and_then(|node| node.get(key)).map(Node::json);
    let is_same = |key: &str| match (said(was, key), said(is, key)) {
        (Some(was), Some(is)) => was.is_equivalent_to(&is),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_same("type") && is_same("budget_tokens") {
        return None;
    }
    let edit = match (was, is) {
        (Some(was), _) => Edit::Set(case.body().range(), "thinking".to_owned(), was.json()),
        (None, Some(is)) => Edit::Remove(is.range()),
        (None, None) => return None,
    };
    let what = "restores the thinking setting of the start of this tool loop";
    let began = |key: &str| said(was, key).map(|value| value.as_str().to_owned());
    let message = match (began("type"), began("budget_tokens")) {
        (Some(kind), _) if !is_same("type") => {
            format!("this tool loop began with thinking type {kind}")
        }
        (Some(_), Some(budget)) => format!("this tool loop began with a budget of {budget}"),
        (Some(_), None) => "this tool loop began without a budget".to_owned(),
        (None, _) => "this tool loop began without `thinking`".to_owned(),
    };
    let finding = Finding::at(&rules::CONFIG_CHANGED_IN_LOOP, is.unwrap_or(case.body()), message);
    Some(finding.with_path("thinking").with_auto_fix(Fix::new(what, [edit])))
}

/// Another member order is another prefix for the cache.
fn reordered(case: &AuditContext<'_>) -> Option<Finding> {
    case.comparison()?.cache_finding(&rules::CACHE_PREFIX_BROKEN)
}
