//! A word that somebody leaves for whoever holds a run.

use bytes::Bytes;
use throughline_core::{
    Json, Models, Name, Node, ToolApprovalResolution, Tree, UserQuestionResolution, json,
};

use crate::action::Refusal;
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
                    for Ended { call, answer } in ended {
                        list.object(|out| {
                            out.string("call", call).string("text", &answer.said());
                            out.bool("ok", answer.outcome == throughline_core::Outcome::Ok);
                        });
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
        let ended = root.get("return")?.elements().filter_map(|ended| {
            let text = ended.name_of("text")?;
            let is_ok = ended.get("ok").and_then(Node::bool).unwrap_or(true);
            let answer = if is_ok { ToolAnswer::text(text) } else { ToolAnswer::error(text) };
            Some(Ended { call: ended.name_of("call")?, answer })
        });
        Some(Word::Return(ended.collect()))
    }
}

/// The event that tells that a word was refused.
pub(crate) fn refused(seq: u64, message: &str) -> Json {
    json::object(|out| {
        out.string("type", "refused").number("word", seq).string("message", message);
    })
}
