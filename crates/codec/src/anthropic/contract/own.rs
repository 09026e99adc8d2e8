//! What only Anthropic's own wire refuses, or does less with.

use throughline_core::{Body, Node, Tree};

use crate::anthropic::contract::rules;
use crate::audit::{Case, Edit, Finding, Mend, Severity};
use crate::claude::Inspection;
use crate::claude::view::{Kind, View};

/// The beta that makes `block_binding` known.
const BINDING: &str = "thinking-binding-controls-2026-08-01";

/// Looks at the request with the wire's own rules.
pub(super) fn inspect(inspection: &mut Inspection<'_, '_, '_>) {
    let (view, case) = (inspection.view, inspection.case);
    let found = [binding(view), exclusive(case), config(case, view), reordered(case)];
    for finding in found.into_iter().flatten() {
        inspection.add(finding);
    }
    compactions(inspection);
}

fn binding(view: &View<'_>) -> Option<Finding> {
    let thinking = view.knobs.thinking?;
    let binding = thinking.present("block_binding")?;
    let severity = match view.knobs.has_beta(BINDING) {
        Some(true) => return None,
        Some(false) => Severity::Refuse,
        None => Severity::Note,
    };
    let kind = thinking.text_of("type").unwrap_or("adaptive".into());
    let message = match severity {
        Severity::Refuse => "the headers do not ask for its beta",
        Severity::Degrade | Severity::Note => {
            "the headers, which must ask for its beta, are not known"
        }
    };
    let error = format!("thinking.{kind}.block_binding: Extra inputs are not permitted");
    let mend = Mend::new("leaves `block_binding` out", [Edit::Remove(binding.range())]);
    let finding = Finding::at(&rules::BINDING_NEEDS_BETA, binding, message);
    Some(finding.as_grave_as(severity).answered(error).mended(Some(mend)))
}

fn exclusive(case: &Case<'_>) -> Option<Finding> {
    let compaction = case.body().present("compaction")?;
    let management = case.body().present("context_management")?;
    let mend = Mend::new(
        "leaves `context_management` out, since `compaction` is asked for",
        [Edit::Remove(management.range())],
    );
    let message = "`context_management` is asked for as well";
    let finding = Finding::at(&rules::COMPACTION_EXCLUSIVE, compaction, message);
    Some(finding.mended(Some(mend)))
}

fn compactions(inspection: &mut Inspection<'_, '_, '_>) {
    let view = inspection.view;
    for block in view.models_blocks().filter(|block| block.kind == Kind::Compaction) {
        let Some(content) = block.text.filter(|content| content.is("")) else { continue };
        let mend = inspection
            .restored(block, inspection.change_of(block))
            .or_else(|| inspection.removed(&[block], "removes the compaction block that is empty"));
        let message = "a summary or `null` may stand here, but no empty text";
        let finding = Finding::at(&rules::COMPACTION_BLOCK_EMPTY, content, message);
        inspection.report(block, finding.mended(mend));
    }
}

/// The thinking of an open tool loop is one turn's, and so has one configuration.
fn config(case: &Case<'_>, view: &View<'_>) -> Option<Finding> {
    let turn = view.open_loop()?;
    let is_called = |id: &str| {
        let mut calls = view.said_in(turn).filter(|block| block.kind == Kind::Call);
        calls.any(|call| call.id.is_some_and(|own| own.is(id)))
    };
    let exchange = case.prior().exchanges().iter().rev().find(|exchange| {
        let items = exchange.reply.iter().flat_map(|reply| &reply.items);
        let mut ids = items.filter_map(|item| match &item.body {
            Body::Call(call) => call.wire_id.as_deref(),
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => None,
        });
        ids.any(is_called)
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
        (Some(was), Some(is)) => was.says_the_same_as(&is),
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
    let what = "asks for thinking as at the start of this tool loop";
    let began = |key: &str| said(was, key).map(|value| value.as_str().to_owned());
    let message = match (began("type"), began("budget_tokens")) {
        (Some(kind), _) if !is_same("type") => format!("this tool loop began with the type {kind}"),
        (Some(_), Some(budget)) => format!("this tool loop began with a budget of {budget}"),
        (Some(_), None) => "this tool loop began without a budget".to_owned(),
        (None, _) => "this tool loop began without `thinking`".to_owned(),
    };
    let finding = Finding::at(&rules::CONFIG_CHANGED_IN_LOOP, is.unwrap_or(case.body()), message);
    Some(finding.under("thinking").mended(Some(Mend::new(what, [edit]))))
}

/// What says the same in another order is another prefix to the cache.
fn reordered(case: &Case<'_>) -> Option<Finding> {
    case.comparison()?.broken_cache(&rules::CACHE_PREFIX_BROKEN)
}
