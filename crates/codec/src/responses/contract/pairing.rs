//! Checks id pairs: an endpoint that stores its responses pairs reasoning with the item that
//! follows it.

use std::collections::HashSet;

use throughline_json::{Json, Node};

use crate::responses::contract::replay_history::PriorOutput;
use crate::responses::contract::rules;
use crate::responses::contract::view::{ResponsesElement, ResponsesRequest};
use crate::responses::wire::{IdPolicy, ResponsesElementKind};
use crate::{Edit, Finding, Findings, Fix};

impl ResponsesRequest<'_> {
    pub(super) fn check_pairs(&self, findings: &mut Findings<'_>) {
        if !self.is_paired {
            return;
        }
        let named = self.reasoning().filter(|element| element.id.is_some());
        findings.extend(named.filter_map(|reasoning| self.check_following_item(reasoning)));
        if !self.is_resumed {
            self.check_required_reasoning(findings);
        }
        self.check_duplicate_ids(findings);
    }

    /// Reports a reasoning item that is not followed by the item it led to.
    fn check_following_item(&self, reasoning: &ResponsesElement<'_>) -> Option<Finding> {
        let next = reasoning.next.and_then(|next| self.elements.get(next));
        let prior = self.past.for_element(reasoning);
        let following = prior.and_then(|prior| self.past.following(prior));
        if prior.is_some_and(|prior| !prior.is_kept || following.is_none()) {
            // Unstored ids are not paired, and reasoning at the end of a response has no following
            // item.
            return None;
        }
        let problem = match (next, following.and_then(|following| following.id)) {
            (None, _) => "nothing follows it".to_owned(),
            (Some(next), _) if !next.is_models => {
                format!("the next item, `{}`, is not from the model", next.name())
            }
            (Some(next), Some(following)) if next.id.is_none_or(|id| !id.is(following)) => {
                format!("the next item is not `{following}`, which it led to")
            }
            (Some(next), None) if next.id.is_none() => {
                format!("the next item, `{}`, has no id", next.name())
            }
            (Some(_), _) => return None,
        };
        let id = reasoning.id_text();
        let error = format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        );
        let message = format!("this reasoning item is sent without the item it led to: {problem}");
        let finding =
            Finding::at(&rules::REASONING_WITHOUT_FOLLOWING_ITEM, reasoning.node, message);
        let fix = self.rejoin(reasoning, next, following);
        Some(finding.with_provider_error(error).with_auto_fix(fix))
    }

    /// Builds a fix that restores a pair if the item that the reasoning led to is present, and
    /// removes the reasoning otherwise.
    fn rejoin(
        &self,
        reasoning: &ResponsesElement<'_>,
        next: Option<&ResponsesElement<'_>>,
        following: Option<&PriorOutput<'_>>,
    ) -> Fix {
        if let (Some(next), Some(following)) = (next, following)
            && next.id.is_none()
            && has_same_content(next.node, following)
        {
            let description = "restores the id of the item after the reasoning";
            return Fix::replacement(next.node, following.to_request(IdPolicy::Kept), description);
        }
        let find = |following: &PriorOutput<'_>| {
            self.elements.iter().find(|element| following.is_named_by(element))
        };
        match following.and_then(find) {
            Some(led) => move_before(reasoning, led),
            None => {
                let description = "removes the reasoning item whose pair is missing";
                Fix::removal(reasoning.node, description)
            }
        }
    }

    /// Reports items that have a stored id but lack their preceding reasoning item.
    fn check_required_reasoning(&self, findings: &mut Findings<'_>) {
        let ids = self.ids();
        let seals: HashSet<Vec<u8>> =
            self.reasoning().filter_map(|e| Some(e.seal?.text_bytes()?.to_vec())).collect();
        let is_here = |output: &PriorOutput<'_>| {
            output.id.is_some_and(|id| ids.contains(id))
                || output.seals.iter().any(|seal| seals.contains(*seal))
        };
        let mut missed = HashSet::new();
        let models = self.elements.iter().filter(|element| element.is_models);
        for element in models.filter(|element| !element.is_reasoning()) {
            let prior = self.past.for_element(element).filter(|prior| prior.is_kept);
            let Some(prior) = prior else { continue };
            let run = self.past.reasoning_before(prior);
            let Some(needed) = run.last().filter(|needed| !is_here(needed)) else { continue };
            if !missed.insert(needed.number) {
                continue;
            }
            let (id, name) = (element.id_text(), element.name());
            let needed_id = needed.id.unwrap_or("…");
            let leads_here =
                self.past.following(needed).is_some_and(|led| led.number == prior.number);
            let fix = if leads_here {
                let missing = run.iter().filter(|output| !is_here(output));
                let missing: Vec<Json> = missing.map(|o| o.to_request(IdPolicy::Kept)).collect();
                let description = format!("restores the reasoning item `{needed_id}` before it");
                Fix::new(description, [Edit::InsertBefore(element.node.range(), missing)])
            } else {
                Fix::new("removes the id whose pair is missing", id_removal_edits(element))
            };
            let message = format!(
                "this `{name}` is sent by its stored id, but the reasoning item that led to it, `{needed_id}`, is not in the request"
            );
            let error = format!(
                "Item '{id}' of type '{name}' was provided without its required 'reasoning' item: '{needed_id}'."
            );
            let finding = Finding::at(&rules::ITEM_WITHOUT_ITS_REASONING, element.node, message);
            findings.add(finding.with_provider_error(error).with_auto_fix(fix));
        }
    }

    fn check_duplicate_ids(&self, findings: &mut Findings<'_>) {
        let mut seen = HashSet::new();
        for element in &self.elements {
            let Some(id) = element.id.and_then(Node::text) else { continue };
            if seen.insert(id.clone()) {
                continue;
            }
            let message = format!("the item `{id}` is repeated in the request");
            findings.add(
                Finding::at(&rules::ITEM_DUPLICATED, element.node, message)
                    .with_provider_error(format!("Duplicate item found with id {id}."))
                    .fixed_by_removing(element.node, "removes the second copy of the item"),
            );
        }
    }
}

/// Builds a fix that moves reasoning directly before the item it led to.
pub(super) fn move_before(reasoning: &ResponsesElement<'_>, led: &ResponsesElement<'_>) -> Fix {
    let place = Edit::InsertBefore(led.node.range(), vec![reasoning.node.json()]);
    let description = "moves the reasoning item directly before the item it led to";
    Fix::new(description, [Edit::Remove(reasoning.node.range()), place])
}

/// Returns whether a request element is a call or message with the same content as an earlier
/// output. Ids are ignored.
pub(super) fn has_same_content(element: Node<'_>, prior: &PriorOutput<'_>) -> bool {
    let tree = prior.json.tree();
    let was = tree.root();
    ResponsesElementKind::from_element(element) == prior.kind
        && match prior.kind {
            ResponsesElementKind::Call | ResponsesElementKind::CustomCall => {
                let call = element.text_of("call_id");
                call.is_some() && call == was.text_of("call_id")
            }
            kind => kind == ResponsesElementKind::Message && text_of(element) == text_of(was),
        }
}

/// Returns the text of a message, whose content is a string or a list of parts.
pub(super) fn text_of(message: Node<'_>) -> String {
    let Some(content) = message.get("content") else { return String::new() };
    if let Some(text) = content.text() {
        return text.into_owned();
    }
    content.elements().filter_map(|part| part.text_of("text")).collect()
}

/// Builds edits that remove an element's id, and its status, which is valid only with an id.
pub(super) fn id_removal_edits(element: &ResponsesElement<'_>) -> Vec<Edit> {
    let status =
        element.node.get("status").filter(|_| element.kind == ResponsesElementKind::Message);
    element.id.into_iter().chain(status).map(|member| Edit::Remove(member.range())).collect()
}
