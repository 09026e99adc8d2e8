//! Checks for settings that the model does not support, and for conflicting ways to continue a
//! conversation.

use throughline_core::Wire;
use throughline_json::{self as json, Json, Node, Tree};

use crate::responses::contract;
use crate::responses::contract::replay_history::was_stored;
use crate::responses::contract::rules;
use crate::responses::contract::view::ResponsesRequest;
use crate::responses::wire::IdPolicy;
use crate::{Edit, Exchange, Finding, Findings, Fix, Severity, effort};

impl ResponsesRequest<'_> {
    pub(super) fn check_settings(&self, findings: &mut Findings<'_>) {
        let effort = self.root.at("/reasoning/effort").filter(|effort| effort.is_string());
        findings.extend(effort.and_then(|effort| self.check_effort(effort)));
        let effort_name = effort.and_then(Node::text);
        if contract::rejects_sampling(self.case.profile(), effort_name.as_deref()) {
            let keys = ["temperature", "top_p"].into_iter();
            findings.extend(keys.filter_map(|key| self.check_sampling(key)));
        }
        findings.extend(self.check_continuation());
    }

    fn check_effort(&self, effort: Node<'_>) -> Option<Finding> {
        let profile = self.case.profile();
        let effort_name = effort.text().unwrap_or_default();
        // Check only models with known efforts, and models that are known to have none.
        let is_known = profile.name != "unknown"
            && (!profile.efforts.is_empty() || profile.always_thinks || !profile.can_think());
        if !is_known || profile.efforts.iter().any(|supported| **supported == *effort_name) {
            return None;
        }
        let model = self.case.target().model();
        let series = |quote: char| effort::quoted_series(&profile.efforts, quote);
        let (message, error) = if profile.efforts.is_empty() {
            (
                format!("`{model}` has no effort setting"),
                "Unsupported parameter: 'reasoning.effort' is not supported with this model."
                    .to_owned(),
            )
        } else {
            (
                format!(
                    "`{model}` does not support the effort `{effort_name}`; it supports {}",
                    series('`')
                ),
                format!(
                    "Unsupported value: '{effort_name}' is not supported with the '{model}' model. Supported values are: {}.",
                    series('\'')
                ),
            )
        };
        let fix = match effort::closest(&effort_name, &profile.efforts) {
            Some(nearest) => {
                let description = format!("uses the effort `{nearest}` instead");
                Fix::replacement(effort, json::string(nearest), description)
            }
            None => Fix::removal(effort, "omits the effort"),
        };
        let finding = Finding::at(&rules::EFFORT_NOT_SUPPORTED, effort, message);
        Some(finding.with_provider_error(error).with_auto_fix(fix))
    }

    fn check_sampling(&self, key: &str) -> Option<Finding> {
        let (value, name) = (self.root.present(key)?, &self.case.profile().name);
        let is_default = value.number().and_then(|number| number.parse::<f64>().ok()) == Some(1.0);
        let (message, severity) = if is_default {
            (format!("`{key}` has no effect on {name}"), Severity::Note)
        } else {
            (format!("{name} does not support another `{key}`"), Severity::Refuse)
        };
        let error = format!("Unsupported parameter: '{key}' is not supported with this model.");
        let finding = Finding::at(&rules::SAMPLING_FIXED, value, message).with_severity(severity);
        let finding = finding.with_provider_error(error);
        Some(finding.fixed_by_removing(value, format!("omits `{key}`")))
    }

    /// Reports a `previous_response_id` that conflicts with `conversation`, refers to a response
    /// that was not stored, or is sent together with reasoning items.
    fn check_continuation(&self) -> Option<Finding> {
        let previous = self.root.present("previous_response_id")?;
        if let Some(conversation) = self.root.present("conversation") {
            let message = "the request continues both a response and a conversation";
            let finding =
                Finding::at(&rules::PREVIOUS_RESPONSE_AND_CONVERSATION, conversation, message);
            let description = "continues the conversation, not the response";
            return Some(finding.fixed_by_removing(previous, description));
        }
        let is_previous = |exchange: &Exchange| {
            let id = exchange.reply.as_ref().and_then(|reply| reply.id.as_deref());
            id.is_some_and(|id| previous.is(id))
        };
        let mut exchanges = self.case.prior().exchanges().iter().enumerate();
        let found = exchanges.find(|(_, exchange)| is_previous(exchange));
        if let Some((number, exchange)) = found.filter(|(_, exchange)| !was_stored(exchange)) {
            let id = previous.text().unwrap_or_default();
            let message = format!(
                "the response `{id}` was created with `store` set to false, so it was not stored"
            );
            let finding = Finding::at(&rules::PREVIOUS_RESPONSE_NOT_FOUND, previous, message)
                .with_provider_error(format!("Previous response with id '{id}' not found."));
            return Some(finding.with_auto_fix(self.resend_items(number, exchange, previous)));
        }
        let message =
            "this reasoning item is sent again, although the continued response already has it";
        self.reasoning().next().map(|e| Finding::at(&rules::REASONING_RESENT, e.node, message))
    }

    /// Builds a fix that replaces the id of a response that was not stored with the items of that
    /// response.
    fn resend_items(&self, number: usize, exchange: &Exchange, previous: Node<'_>) -> Option<Fix> {
        let source = exchange.call.as_ref()?.source_on(&Wire::OPENAI_RESPONSES)?;
        let before = Tree::parse(source.request.body.clone()).ok()?;
        if before.root().present("previous_response_id").is_some() {
            // The earlier request continues another response, whose items would be needed too.
            return None;
        }
        let as_elements = |input: Node<'_>| -> Vec<Json> {
            if input.is_string() {
                return vec![object! { "role": "user", "content": input }];
            }
            input.elements().map(Node::json).collect()
        };
        let mut elements = before.root().present("input").map(as_elements).unwrap_or_default();
        let outputs = self.past.outputs.iter().filter(|output| output.exchange == number);
        elements.extend(outputs.map(|output| output.to_request(IdPolicy::Dropped)));
        let edit = match (self.elements.first(), self.root.present("input")) {
            (Some(first), _) => Edit::InsertBefore(first.node.range(), elements),
            (None, Some(input)) => {
                elements.extend(as_elements(input));
                Edit::Replace(input.range(), json::array_of(&elements))
            }
            (None, None) => return None,
        };
        let edits = [Edit::Remove(previous.range()), edit];
        Some(Fix::new("sends the earlier items instead of the id of the missing response", edits))
    }
}
