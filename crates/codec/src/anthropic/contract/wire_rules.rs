//! Checks the rules that exist only on Anthropic's own wire.

use throughline_core::{Direction, Item};
use throughline_json::{Json, Node, Tree};

use crate::anthropic::contract::rules;
use crate::anthropic::wire;
use crate::audit::{AuditContext, Edit, Finding, Severity};
use crate::claude::view::{
    ClaudeBlock, ClaudeBlockKind, ClaudeMessage, ClaudeRequest, ClaudeSpeaker,
};
use crate::claude::{Inspection, is_claude};

/// The beta feature that enables `block_binding`.
const BINDING: &str = "thinking-binding-controls-2026-08-01";

pub(super) fn inspect(inspection: &mut Inspection<'_, '_, '_>) {
    let (view, case) = (inspection.view, inspection.case);
    // A changed member order changes the prefix and misses the cache.
    let reordered = || case.comparison()?.cache_finding(&rules::CACHE_PREFIX_BROKEN);
    let found = [check_binding(view), check_exclusive(case), check_config(case, view), reordered()];
    inspection.extend(found.into_iter().flatten());
    check_compactions(inspection);
    if is_claude(case.target()) {
        check_fallbacks(inspection);
        let misplaced = if view.is_partial { Vec::new() } else { check_system_order(view) };
        inspection.extend(misplaced);
    }
}

/// Checks that system messages with content precede an assistant message or end the request. A
/// system message that only sets the effort may be anywhere.
fn check_system_order(view: &ClaudeRequest<'_>) -> Vec<Finding> {
    let runs: Vec<_> = view.messages.chunk_by(|a, b| a.speaker == b.speaker).collect();
    let mut findings = Vec::new();
    let mut start = 0;
    for (index, systems) in runs.iter().enumerate() {
        let users = runs.get(index + 1).copied().unwrap_or_default();
        findings.extend(misplaced_system(systems, users, start));
        start += systems.len();
    }
    findings
}

/// Reports a run of system messages that precedes a run of user messages. `start` is the index of
/// the first system message.
fn misplaced_system(
    systems: &[ClaudeMessage<'_>],
    users: &[ClaudeMessage<'_>],
    start: usize,
) -> Option<Finding> {
    let is_misplaced = systems.first()?.speaker == ClaudeSpeaker::System
        && users.first()?.speaker == ClaudeSpeaker::User;
    let has_content = |message: &ClaudeMessage<'_>| !message.blocks.is_empty();
    let last = systems.iter().rposition(has_content).filter(|_| is_misplaced)?;
    let (number, message) = (start + last, systems.get(last)?);
    let kept = systems.iter().filter(|message| !has_content(message));
    let moved = systems.iter().filter(|message| has_content(message));
    let ordered = kept.chain(users).chain(moved);
    let pairs = systems.iter().chain(users).zip(ordered);
    let edits: Vec<_> = pairs
        .filter(|(old, new)| old.node.range() != new.node.range())
        .map(|(old, new)| Edit::Replace(old.node.range(), new.node.json()))
        .collect();
    let error = format!(
        "messages.{number}: role 'system' must precede an 'assistant' message or end the array"
    );
    let place = message.node.get("role").unwrap_or(message.node);
    let sentence = "a user message follows this system message";
    let finding = Finding::at(&rules::SYSTEM_MESSAGE_ORDER, place, sentence);
    let finding = finding.with_path(format!("messages.{number}")).with_provider_error(error);
    Some(finding.fixed_by("moves the system message after the user message", edits))
}

/// Checks that each `fallback` block is between the thoughts that it separated in its response.
fn check_fallbacks(inspection: &mut Inspection<'_, '_, '_>) {
    let (view, case) = (inspection.view, inspection.case);
    let mut findings = Vec::new();
    for reply in case.prior().exchanges().iter().filter_map(|exchange| exchange.reply.as_ref()) {
        for (index, fallback) in reply.items.iter().enumerate() {
            let Some(issued) = issued_fallback(fallback) else { continue };
            let (earlier, rest) = reply.items.split_at(index);
            let later = rest.get(1..).unwrap_or_default();
            let Some(number) = inspection.message_of_reply(reply) else { continue };
            let Some(turn) = view.turn_of(number) else { continue };
            let blocks: Vec<_> = view.blocks_of_turn(turn).collect();
            let is_of = |items: &[Item], block: &ClaudeBlock<'_>| {
                let is_it = |item: &Item| inspection.replays(block, item);
                block.kind.is_thinking() && items.iter().any(is_it)
            };
            let before = blocks.iter().rposition(|block| is_of(earlier, block));
            let after = blocks.iter().position(|block| is_of(later, block));
            let (Some(before), Some(after)) = (before, after) else { continue };
            let is_fallback =
                |block: &&ClaudeBlock<'_>| block.node.get("type").is_some_and(|t| t.is("fallback"));
            let between = blocks.get(before..after).unwrap_or_default();
            let Some(next) = blocks.get(after).filter(|_| !between.iter().any(is_fallback)) else {
                continue;
            };
            let own = blocks.iter().copied().filter(is_fallback);
            let moved = own.filter(|block| inspection.replays(block, fallback)).last();
            let mut edits = vec![Edit::InsertBefore(next.node.range(), vec![issued])];
            edits.extend(moved.map(|block| Edit::Remove(block.node.range())));
            let message = match moved {
                Some(_) => "a `fallback` block was issued before this block and is elsewhere",
                None => "a `fallback` block was issued before this block and is missing",
            };
            let finding = Finding::at(&rules::FALLBACK_MOVED, next.node, message);
            let finding = finding.with_path(next.path());
            findings.push(finding.fixed_by("restores the `fallback` block", edits));
        }
    }
    inspection.extend(findings);
}

/// Returns a `fallback` block in the form that a request uses; `None` for other Items.
fn issued_fallback(item: &Item) -> Option<Json> {
    let native = item.native_on(&rules::FALLBACK_MOVED.wire)?;
    let is_fallback = native.json.tree().root().get("type").is_some_and(|t| t.is("fallback"));
    is_fallback.then(|| match native.side {
        Direction::Response => wire::project(&native.json),
        Direction::Request => native.json.clone(),
    })
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
