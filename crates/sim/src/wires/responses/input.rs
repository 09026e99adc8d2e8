//! The elements of a request's `input`, and what is checked of each by itself.

use std::borrow::Cow;

use throughline_core::{Json, Node, json};

use crate::digest::Mark;
use crate::keys::Form;
use crate::ledger::{Landmark, Record, Verdict};
use crate::turn::{Asking, Refusal, Turn};
use crate::wires::openai;
use crate::wires::responses::House;
use crate::world::World;

/// One element of the conversation.
#[derive(Clone, Debug)]
pub(super) struct Element {
    /// The element; what was referred to, where it was a reference.
    pub(super) json: Json,
    /// What it is.
    pub(super) kind: Kind,
    /// Its id.
    pub(super) id: Option<String>,
    /// Where it stands in `input`; nothing for what was said in an earlier response that this one goes on from.
    pub(super) at: Option<usize>,
}

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What somebody other than the model said.
    Said,
    /// What the model said.
    Answered,
    Reasoning,
    Call,
    CustomCall,
    Output,
    CustomOutput,
    Compaction,
    /// A reference to a stored item.
    Reference,
    /// A step that the provider ran itself, or something unknown.
    Other,
}

impl Kind {
    fn of(node: Node<'_>) -> Self {
        let is_models = node.get("role").is_some_and(|role| role.is("assistant"));
        match node.text_of("type").as_deref() {
            Some("message") | None if is_models => Self::Answered,
            Some("message") | None => Self::Said,
            Some("reasoning") => Self::Reasoning,
            Some("function_call") => Self::Call,
            Some("custom_tool_call") => Self::CustomCall,
            Some("function_call_output") => Self::Output,
            Some("custom_tool_call_output") => Self::CustomOutput,
            Some("compaction" | "compaction_summary" | "context_compaction") => Self::Compaction,
            Some("item_reference") => Self::Reference,
            Some(_) => Self::Other,
        }
    }

    /// Whether it is something that a model says.
    pub(super) fn is_models(self) -> bool {
        match self {
            Self::Answered
            | Self::Reasoning
            | Self::Call
            | Self::CustomCall
            | Self::Compaction
            | Self::Reference
            | Self::Other => true,
            Self::Said | Self::Output | Self::CustomOutput => false,
        }
    }
}

impl Element {
    pub(super) fn new(json: Json, at: Option<usize>) -> Self {
        let tree = json.tree();
        let (kind, id) = (Kind::of(tree.root()), tree.root().text_of("id").map(Cow::into_owned));
        Self { json, kind, id, at }
    }

    /// The text of a member.
    pub(super) fn text_of(&self, key: &str) -> String {
        self.json.tree().root().text_of(key).map(Cow::into_owned).unwrap_or_default()
    }

    /// By what it is known, where a model said it.
    fn landmark(&self) -> Option<Landmark> {
        match self.kind {
            Kind::Call | Kind::CustomCall => Some(Landmark::Call(self.text_of("call_id"))),
            Kind::Answered => {
                let text = openai::text(self.json.tree().root().get("content"));
                Some(Landmark::Text(None, text))
            }
            Kind::Said
            | Kind::Reasoning
            | Kind::Output
            | Kind::CustomOutput
            | Kind::Compaction
            | Kind::Reference
            | Kind::Other => None,
        }
    }

    /// What a reasoning item before it is known to have led to.
    pub(super) fn said(&self) -> Mark {
        let said = match self.kind {
            Kind::Call => openai::call_said(&self.text_of("name"), &self.text_of("arguments")),
            Kind::CustomCall => openai::call_said(&self.text_of("name"), &self.text_of("input")),
            Kind::Answered => b"message".to_vec(),
            Kind::Said
            | Kind::Reasoning
            | Kind::Output
            | Kind::CustomOutput
            | Kind::Compaction
            | Kind::Reference
            | Kind::Other => self.text_of("type").into_bytes(),
        };
        Mark::of("throughline-sim responses beside", said)
    }
}

/// The elements of `input`, which may be a text only.
pub(super) fn elements(input: Option<Node<'_>>) -> Vec<Element> {
    let Some(input) = input else { return Vec::new() };
    if input.is_string() {
        let message = json::object(|o| {
            o.string("role", "user").node("content", input);
        });
        return vec![Element::new(message, Some(0))];
    }
    let numbered = input.elements().enumerate();
    numbered.map(|(at, node)| Element::new(node.json(), Some(at))).collect()
}

/// Checks what an element says of itself: that it is complete, that its seal is good, and that what it refers to is there.
pub(super) struct Inspector<'a> {
    pub(super) asking: &'a Asking,
    pub(super) world: &'a World,
    pub(super) turn: &'a Turn,
    pub(super) house: House,
    /// Whose store is looked into.
    pub(super) owner: Mark,
    /// Whether the answer will be kept.
    pub(super) stores: bool,
}

impl Inspector<'_> {
    pub(super) fn check(
        &self,
        elements: &mut [Element],
        record: &mut Record,
    ) -> Result<(), Refusal> {
        let mut seen = Vec::new();
        self.once_each(elements)?;
        for at in 0..elements.len() {
            let rest = elements.get(at + 1..).unwrap_or_default();
            let next = rest.iter().find(|next| next.kind != Kind::Reasoning).cloned();
            let Some(element) = elements.get_mut(at) else { continue };
            match element.kind {
                Kind::Reasoning => {
                    summarised(element)?;
                    self.sealed(element, next.as_ref(), &mut seen, record)?;
                    self.found(element, record)?;
                }
                Kind::Compaction => self.sealed(element, None, &mut seen, record)?,
                Kind::Reference => self.refer(element, record)?,
                Kind::Said
                | Kind::Answered
                | Kind::Call
                | Kind::CustomCall
                | Kind::Output
                | Kind::CustomOutput
                | Kind::Other => {}
            }
        }
        Ok(())
    }

    /// Where items are kept and paired, none may come twice.
    fn once_each(&self, elements: &[Element]) -> Result<(), Refusal> {
        let mut ids = std::collections::HashSet::new();
        let named = elements.iter().filter(|element| element.kind.is_models());
        for id in named.filter_map(|element| element.id.as_deref()) {
            if !ids.insert(id) && self.house == House::Pairs && self.stores {
                let message = format!(
                    "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
                );
                return Err(Refusal::invalid(message).param("input"));
            }
        }
        Ok(())
    }

    /// Verifies the ciphertext, where there is one.
    fn sealed(
        &self,
        element: &Element,
        next: Option<&Element>,
        seen: &mut Vec<String>,
        record: &mut Record,
    ) -> Result<(), Refusal> {
        let tree = element.json.tree();
        if self.house == House::Forgets {
            self.read_aloud(element, record);
            return Ok(());
        }
        let Some(sealed) = tree.root().present("encrypted_content").and_then(Node::text) else {
            return Ok(());
        };
        let beside = next.map(Element::said);
        let path = match element.at {
            Some(at) => format!("input[{at}]"),
            None => "previous_response_id".to_owned(),
        };
        let opened = self.world.keys.open(&self.asking.row.name, Form::Fernet, &sealed);
        let bound = &self.turn.target.profile.bound;
        let reason = match &opened {
            Err(_) => Some("Encrypted content could not be decrypted or parsed."),
            Ok(claims) if bound.account && claims.account != self.asking.account => {
                Some("Encrypted content organization_id did not match the target organization.")
            }
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            record.give_back(&sealed, path, Verdict::Refused("invalid_encrypted_content".into()));
            let named = match &element.id {
                Some(id) => format!("for item {id}"),
                None => shortened(&sealed),
            };
            let message =
                format!("The encrypted content {named} could not be verified. Reason: {reason}");
            return Err(Refusal::invalid(message).code("invalid_encrypted_content"));
        }
        let is_apart =
            |next: &Landmark| self.world.book.are_apart(&Landmark::Seal(sealed.to_string()), next);
        let is_moved = opened
            .is_ok_and(|claims| claims.beside.is_some() && claims.beside != beside)
            || next.and_then(Element::landmark).is_some_and(|next| is_apart(&next));
        let verdict = if seen.iter().any(|earlier| **earlier == *sealed) {
            Verdict::Dropped("duplicate".into())
        } else if is_moved {
            Verdict::Dropped("moved".into())
        } else {
            Verdict::Accepted
        };
        record.give_back(&sealed, path, verdict);
        seen.push(sealed.into_owned());
        Ok(())
    }

    /// Reads a thought that comes as text, where nothing is sealed. Nobody refuses it; a changed one is not what was thought.
    fn read_aloud(&self, element: &Element, record: &mut Record) {
        let tree = element.json.tree();
        let text = openai::text(tree.root().get("content"));
        if text.is_empty() {
            return;
        }
        let is_known = self.world.book.was_thought(&text);
        let verdict = if is_known { Verdict::Accepted } else { Verdict::Dropped("altered".into()) };
        let path = format!("input[{}]", element.at.unwrap_or_default());
        record.give_back(&text, path, verdict);
    }

    /// Finds a reasoning item that says nothing by itself.
    fn found(&self, element: &mut Element, record: &mut Record) -> Result<(), Refusal> {
        let says_something = ["encrypted_content", "content"].iter().any(|key| {
            let tree = element.json.tree();
            tree.root().present(key).is_some_and(|said| said.raw() != b"[]")
        });
        if says_something || element.at.is_none() || self.house == House::Forgets {
            return Ok(());
        }
        let Some(id) = element.id.clone() else { return Ok(()) };
        self.resolve(element, &id, record)
    }

    fn refer(&self, element: &mut Element, record: &mut Record) -> Result<(), Refusal> {
        let id = element.id.clone().unwrap_or_default();
        self.resolve(element, &id, record)
    }

    /// Puts what is stored in the place of what refers to it.
    fn resolve(&self, element: &mut Element, id: &str, record: &mut Record) -> Result<(), Refusal> {
        let Some(kept) = self.world.stored.item(self.owner, id) else {
            let message = format!(
                "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
            );
            return Err(Refusal::new(404, message).param("input"));
        };
        let at = element.at;
        *element = Element::new(kept.json.clone(), at);
        let tree = element.json.tree();
        if let Some(sealed) = tree.root().present("encrypted_content").and_then(Node::text) {
            let path = format!("input[{}]", at.unwrap_or_default());
            record.give_back(&sealed, path, Verdict::Accepted);
        }
        Ok(())
    }
}

fn summarised(element: &Element) -> Result<(), Refusal> {
    let Some(at) = element.at else { return Ok(()) };
    if element.json.tree().root().present("summary").is_some() {
        return Ok(());
    }
    let param = format!("input[{at}].summary");
    let message = format!("Missing required parameter: '{param}'.");
    Err(Refusal::invalid(message).param(param).code("missing_required_parameter"))
}

/// A long value as error messages show it.
fn shortened(text: &str) -> String {
    let tail: String = text.chars().rev().take(4).collect();
    let head: String = text.chars().take(4).collect();
    format!("{head}...{}", tail.chars().rev().collect::<String>())
}
