//! A word that somebody leaves for whoever holds a run.

use bytes::Bytes;
use throughline_core::{
    Body, CallId, Item, Json, Models, Name, Node, Place, Role, ToolApprovalResolution, ToolResult,
    Tree, UserQuestionResolution, json, restore_items, store_items,
};

use crate::action::{Refusal, RefusalKind};
use crate::input::{Ended, What};
use crate::tool::ToolAnswer;

/// The kind of the record that keeps a word.
pub(crate) const WORD: &str = "word";

/// A word for whoever holds a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// Stop.
    Cancel(Option<Name>),
    /// Ask another model from now on.
    Switch(Name),
    /// A decision on a tool call.
    Decide(ToolApprovalResolution),
    /// An answer to a question.
    Answer(UserQuestionResolution),
    /// What the caller's own tools returned.
    Return(Vec<Ended>),
}

impl Word {
    /// What it is to the run. A model that is to be asked must be among these.
    pub fn what(self, models: &dyn Models) -> Result<What, Refusal> {
        Ok(match self {
            Word::Cancel(reason) => What::Cancelled(reason),
            Word::Switch(model) => {
                let found = models.model(&model);
                let found = found.map_err(|error| Refusal::not_found(error.message))?;
                What::Switched { model, is_prefix_bound: found.target().profile.bound.prefix }
            }
            Word::Decide(resolution) => What::Decided(resolution),
            Word::Answer(resolution) => What::Answer(resolution),
            Word::Return(ended) => What::Returned(ended),
        })
    }

    pub(crate) fn json(&self) -> Bytes {
        let word = json::object(|out| match self {
            Word::Cancel(reason) => {
                out.bool("cancel", true).maybe_string("reason", reason.as_deref());
            }
            Word::Switch(model) => {
                out.string("switch", model);
            }
            Word::Decide(resolution) => {
                out.raw("decide", &resolution.json());
            }
            Word::Answer(resolution) => {
                out.raw("answer", &resolution.json());
            }
            Word::Return(ended) => {
                out.array("return", |list| {
                    for stored in store_items(&ended.iter().map(item_of).collect::<Vec<_>>()) {
                        list.raw(&stored.json);
                    }
                });
            }
        });
        word.bytes().clone()
    }

    pub(crate) fn parse(bytes: &Bytes) -> Option<Self> {
        let tree = Tree::parse(bytes.clone()).ok()?;
        let root = tree.root();
        if root.get("cancel").is_some() {
            return Some(Word::Cancel(root.name_of("reason")));
        }
        if let Some(model) = root.name_of("switch") {
            return Some(Word::Switch(model));
        }
        if let Some(resolution) = root.get("decide").map(Node::json) {
            return ToolApprovalResolution::parse(&resolution).ok().map(Word::Decide);
        }
        if let Some(resolution) = root.get("answer").map(Node::json) {
            return UserQuestionResolution::parse(&resolution).ok().map(Word::Answer);
        }
        let stored = root.get("return")?.elements().map(|item| Some(item.json().bytes().clone()));
        let items = restore_items(stored).ok()?;
        Some(Word::Return(items.into_iter().filter_map(ended_of).collect()))
    }
}

/// What a tool answered, as it is kept in a Thread: so nothing of it is lost on the way.
fn item_of(ended: &Ended) -> Item {
    let body = Body::Result(ToolResult {
        call: CallId(ended.call.clone()),
        wire_id: None,
        name: None,
        outcome: ended.answer.outcome,
        parts: ended.answer.parts.clone(),
    });
    Item::new("return", Place::default(), Role::Tool, body)
}

fn ended_of(item: Item) -> Option<Ended> {
    let Body::Result(ToolResult { call, outcome, parts, .. }) = item.body else { return None };
    Some(Ended { call: call.0, answer: ToolAnswer { outcome, parts } })
}

/// The event that tells that a word was refused.
pub(crate) fn refused(seq: u64, refusal: &Refusal) -> Json {
    json::object(|out| {
        out.string("type", "refused").number("word", seq).string("kind", refusal.kind.as_str());
        out.string("message", &refusal.message);
    })
}

/// What that event says, if it is about that word.
pub(crate) fn refusal_of(event: Node<'_>, seq: u64) -> Option<Refusal> {
    let is_it = event.get("word").and_then(Node::u64) == Some(seq);
    if !is_it || !event.get("type").is_some_and(|kind| kind.is("refused")) {
        return None;
    }
    let kind = event.text_of("kind").and_then(|word| RefusalKind::parse(&word));
    let kind = kind.unwrap_or(RefusalKind::Conflict);
    Some(Refusal { kind, message: event.name_of("message").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use throughline_core::{Media, Outcome, Part};

    #[test]
    fn what_the_callers_tools_returned_loses_nothing_on_its_way() {
        let picture =
            Media::Inline { mime: "image/png".into(), base64: Bytes::from_static(b"aGk=") };
        let parts = vec![Part::Text("seen".into()), Part::Media(picture)];
        let outcomes = [Outcome::Ok, Outcome::Error, Outcome::Unknown, Outcome::Denied];
        let ended = outcomes.into_iter().map(|outcome| {
            let answer = ToolAnswer { outcome, parts: parts.clone() };
            Ended { call: format!("{outcome:?}").into(), answer }
        });
        let word = Word::Return(ended.collect());
        assert_eq!(Word::parse(&word.json()), Some(word));
    }
}
