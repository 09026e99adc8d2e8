//! Commands that clients send to a run through its inbox.

use bytes::Bytes;
use throughline_core::{
    Body, CallId, Item, ItemPosition, ModelRegistry, Role, ToolResult, restore_items, store_items,
};
use throughline_json::{self as json, Json, Name, Node, StringEnum as _, Tree};
use throughline_spec::{ToolApprovalResolution, UserQuestionResolution};

use crate::action::{Refusal, RefusalKind};
use crate::input::{RunInput, ToolCompletion};
use crate::tool::ToolAnswer;

/// Record kind for commands.
pub(crate) const COMMAND: &str = "word";

/// A command for the owner of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunCommand {
    /// Cancel the run, optionally with a reason.
    Cancel(Option<Name>),
    /// Use another model for later calls.
    Switch(Name),
    /// Approve or reject a tool call.
    Decide(ToolApprovalResolution),
    /// Answer or decline a question.
    Answer(UserQuestionResolution),
    /// Return the results of tools that the caller executes.
    Return(Vec<ToolCompletion>),
}

impl RunCommand {
    /// Converts the command to an input. A command that switches models is rejected if `models`
    /// does not contain the model.
    pub fn into_input(self, models: &dyn ModelRegistry) -> Result<RunInput, Refusal> {
        Ok(match self {
            RunCommand::Cancel(reason) => RunInput::Cancelled(reason),
            RunCommand::Switch(model) => {
                let found = models.model(&model);
                let found = found.map_err(|error| Refusal::not_found(error.message))?;
                RunInput::Switched { model, is_prefix_bound: found.target().profile.bound.prefix }
            }
            RunCommand::Decide(resolution) => RunInput::Decided(resolution),
            RunCommand::Answer(resolution) => RunInput::Answer(resolution),
            RunCommand::Return(completions) => RunInput::Returned(completions),
        })
    }

    pub(crate) fn json(&self) -> Bytes {
        let command = json::object(|out| {
            match self {
                RunCommand::Cancel(reason) => {
                    out.bool("cancel", true).maybe_string("reason", reason.as_deref())
                }
                RunCommand::Switch(model) => out.string("switch", model),
                RunCommand::Decide(resolution) => out.raw("decide", &resolution.json()),
                RunCommand::Answer(resolution) => out.raw("answer", &resolution.json()),
                RunCommand::Return(completions) => {
                    let items: Vec<Item> = completions.iter().map(completion_item).collect();
                    let stored = store_items(&items);
                    out.raw("return", &json::array_of(stored.iter().map(|stored| &stored.json)))
                }
            };
        });
        command.bytes().clone()
    }

    pub(crate) fn parse(bytes: &Bytes) -> Option<Self> {
        let tree = Tree::parse(bytes.clone()).ok()?;
        let root = tree.root();
        let (kind, value) = root.members().next()?;
        match &*kind.text()? {
            "cancel" => Some(RunCommand::Cancel(root.name_of("reason"))),
            "switch" => value.name().map(RunCommand::Switch),
            "decide" => ToolApprovalResolution::parse(&value.json()).ok().map(RunCommand::Decide),
            "answer" => UserQuestionResolution::parse(&value.json()).ok().map(RunCommand::Answer),
            "return" => {
                let stored = value.elements().map(|item| Some(item.json().bytes().clone()));
                let completions =
                    restore_items(stored).ok()?.into_iter().filter_map(completion_from_item);
                Some(RunCommand::Return(completions.collect()))
            }
            _ => None,
        }
    }
}

/// Wraps a tool result in an Item, because the stored form of Items preserves every part of the
/// result.
fn completion_item(completion: &ToolCompletion) -> Item {
    let body = Body::Result(ToolResult {
        call: CallId(completion.call.clone()),
        wire_id: None,
        name: None,
        outcome: completion.answer.outcome,
        parts: completion.answer.parts.clone(),
    });
    Item::new("return", ItemPosition::default(), Role::Tool, body)
}

fn completion_from_item(item: Item) -> Option<ToolCompletion> {
    let Body::Result(ToolResult { call, outcome, parts, .. }) = item.body else { return None };
    Some(ToolCompletion { call: call.0, answer: ToolAnswer { outcome, parts } })
}

/// Builds the event that reports a rejected command.
pub(crate) fn refusal_event(seq: u64, refusal: &Refusal) -> Json {
    json::object(|out| {
        out.string("type", "refused").number("word", seq).string("kind", refusal.kind.as_str());
        out.string("message", &refusal.message);
    })
}

/// Parses an event built by [`refusal_event`] if it belongs to the command with this sequence
/// number.
pub(crate) fn parse_refusal(event: Node<'_>, seq: u64) -> Option<Refusal> {
    let is_match = event.get("word").and_then(Node::u64) == Some(seq);
    if !is_match || !event.get("type")?.is("refused") {
        return None;
    }
    let kinds = RefusalKind::ALL.iter().copied();
    let kind = event.get("kind").and_then(|kind| kinds.into_iter().find(|k| kind.is(k.as_str())));
    let kind = kind.unwrap_or(RefusalKind::Conflict);
    Some(Refusal { kind, message: event.name_of("message").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use throughline_core::{Media, Outcome, Part};

    #[test]
    fn client_tool_results_round_trip_through_json() {
        let picture =
            Media::Inline { mime: "image/png".into(), base64: Bytes::from_static(b"aGk=") };
        let parts = vec![Part::Text("seen".into()), Part::Media(picture)];
        let outcomes = [Outcome::Ok, Outcome::Error, Outcome::Unknown, Outcome::Denied];
        let completions = outcomes.into_iter().map(|outcome| {
            let answer = ToolAnswer { outcome, parts: parts.clone() };
            ToolCompletion { call: format!("{outcome:?}").into(), answer }
        });
        let command = RunCommand::Return(completions.collect());
        assert_eq!(RunCommand::parse(&command.json()), Some(command));
    }
}
