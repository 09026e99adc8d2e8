//! The elements of a request's `input`, and the checks of each element.

use std::borrow::Cow;

use throughline_json::{self as json, Json, Node};

use crate::digest::Digest;
use crate::keys::SealFormat;
use crate::ledger::{EntryBuilder, ReplyKey, Verdict};
use crate::state::SimState;
use crate::turn::{Refusal, SimRequest, Turn};
use crate::wires::openai;
use crate::wires::responses::StorageMode;

/// One element of the conversation.
#[derive(Clone, Debug)]
pub(super) struct InputItem {
    /// The element; for a reference, the stored item.
    pub(super) json: Json,
    pub(super) kind: ItemKind,
    pub(super) id: Option<String>,
    /// Index in `input`; `None` for elements of a previous response.
    pub(super) at: Option<usize>,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A message that the model did not write.
    Said,
    /// A message of the model.
    Answered,
    Reasoning,
    Call,
    CustomCall,
    Output,
    CustomOutput,
    Compaction,
    /// A reference to a stored item.
    Reference,
    /// A step that the provider ran itself, or an unknown element.
    Other,
}

impl ItemKind {
    fn from_node(node: Node<'_>) -> Self {
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

    /// Returns whether a model produces this type.
    pub(super) fn is_model_output(self) -> bool {
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

impl InputItem {
    pub(super) fn new(json: Json, at: Option<usize>) -> Self {
        let tree = json.tree();
        let (kind, id) =
            (ItemKind::from_node(tree.root()), tree.root().text_of("id").map(Cow::into_owned));
        Self { json, kind, id, at }
    }

    /// Returns a text member, or an empty string.
    pub(super) fn text_of(&self, key: &str) -> String {
        self.json.tree().root().text_of(key).map(Cow::into_owned).unwrap_or_default()
    }

    /// Returns the key of an element that a model produced.
    fn landmark(&self) -> Option<ReplyKey> {
        match self.kind {
            ItemKind::Call | ItemKind::CustomCall => Some(ReplyKey::Call(self.text_of("call_id"))),
            ItemKind::Answered => {
                let text = openai::text(self.json.tree().root().get("content"));
                Some(ReplyKey::Text(None, text))
            }
            ItemKind::Said
            | ItemKind::Reasoning
            | ItemKind::Output
            | ItemKind::CustomOutput
            | ItemKind::Compaction
            | ItemKind::Reference
            | ItemKind::Other => None,
        }
    }

    /// Returns the digest of the content that a preceding reasoning item is bound to.
    pub(super) fn bound_digest(&self) -> Digest {
        let said = match self.kind {
            ItemKind::Call => {
                openai::call_identity(&self.text_of("name"), &self.text_of("arguments"))
            }
            ItemKind::CustomCall => {
                openai::call_identity(&self.text_of("name"), &self.text_of("input"))
            }
            ItemKind::Answered => b"message".to_vec(),
            ItemKind::Said
            | ItemKind::Reasoning
            | ItemKind::Output
            | ItemKind::CustomOutput
            | ItemKind::Compaction
            | ItemKind::Reference
            | ItemKind::Other => self.text_of("type").into_bytes(),
        };
        Digest::new("throughline-sim responses beside", said)
    }
}

/// Returns the elements of `input`, which may also be a string.
pub(super) fn elements(input: Option<Node<'_>>) -> Vec<InputItem> {
    let Some(input) = input else { return Vec::new() };
    if input.is_string() {
        let message = json::object(|o| {
            o.string("role", "user").node("content", input);
        });
        return vec![InputItem::new(message, Some(0))];
    }
    let numbered = input.elements().enumerate();
    numbered.map(|(at, node)| InputItem::new(node.json(), Some(at))).collect()
}

/// Checks that each element is complete, its Seal is valid, and its reference resolves.
pub(super) struct InputChecker<'a> {
    pub(super) asking: &'a SimRequest,
    pub(super) world: &'a SimState,
    pub(super) turn: &'a Turn,
    pub(super) house: StorageMode,
    /// Owner of the stored items.
    pub(super) owner: Digest,
    /// Whether the response will be stored.
    pub(super) stores: bool,
}

impl InputChecker<'_> {
    pub(super) fn check(
        &self,
        elements: &mut [InputItem],
        record: &mut EntryBuilder,
    ) -> Result<(), Refusal> {
        let mut seen = Vec::new();
        self.check_duplicates(elements)?;
        for at in 0..elements.len() {
            let rest = elements.get(at + 1..).unwrap_or_default();
            let next = rest.iter().find(|next| next.kind != ItemKind::Reasoning).cloned();
            let Some(element) = elements.get_mut(at) else { continue };
            match element.kind {
                ItemKind::Reasoning => {
                    summarised(element)?;
                    self.sealed(element, next.as_ref(), &mut seen, record)?;
                    self.resolve_empty_reasoning(element, record)?;
                }
                ItemKind::Compaction => self.sealed(element, None, &mut seen, record)?,
                ItemKind::Reference => self.refer(element, record)?,
                ItemKind::Said
                | ItemKind::Answered
                | ItemKind::Call
                | ItemKind::CustomCall
                | ItemKind::Output
                | ItemKind::CustomOutput
                | ItemKind::Other => {}
            }
        }
        Ok(())
    }

    /// Rejects duplicate items, on endpoints that store items and check pairs.
    fn check_duplicates(&self, elements: &[InputItem]) -> Result<(), Refusal> {
        let mut ids = std::collections::HashSet::new();
        let named = elements.iter().filter(|element| element.kind.is_model_output());
        for id in named.filter_map(|element| element.id.as_deref()) {
            if !ids.insert(id) && self.house == StorageMode::Pairs && self.stores {
                let message = format!(
                    "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
                );
                return Err(Refusal::invalid(message).param("input"));
            }
        }
        Ok(())
    }

    /// Verifies the ciphertext, if there is one.
    fn sealed(
        &self,
        element: &InputItem,
        next: Option<&InputItem>,
        seen: &mut Vec<String>,
        record: &mut EntryBuilder,
    ) -> Result<(), Refusal> {
        let tree = element.json.tree();
        if self.house == StorageMode::Forgets {
            self.check_plain_reasoning(element, record);
            return Ok(());
        }
        let Some(sealed) = tree.root().present("encrypted_content").and_then(Node::text) else {
            return Ok(());
        };
        let beside = next.map(InputItem::bound_digest);
        let path = match element.at {
            Some(at) => format!("input[{at}]"),
            None => "previous_response_id".to_owned(),
        };
        let opened = self.world.keys.open(&self.asking.row.name, SealFormat::Fernet, &sealed);
        let bound = &self.turn.target.profile.bound;
        let reason = match &opened {
            Err(_) => Some("Encrypted content could not be decrypted or parsed."),
            Ok(claims) if bound.account && claims.account != self.asking.account => {
                Some("Encrypted content organization_id did not match the target organization.")
            }
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            record.record_returned(
                &sealed,
                path,
                Verdict::Refused("invalid_encrypted_content".into()),
            );
            let named = match &element.id {
                Some(id) => format!("for item {id}"),
                None => shortened(&sealed),
            };
            let message =
                format!("The encrypted content {named} could not be verified. Reason: {reason}");
            return Err(Refusal::invalid(message).code("invalid_encrypted_content"));
        }
        let is_apart =
            |next: &ReplyKey| self.world.book.are_apart(&ReplyKey::Seal(sealed.to_string()), next);
        let is_moved = opened
            .is_ok_and(|claims| claims.beside.is_some() && claims.beside != beside)
            || next.and_then(InputItem::landmark).is_some_and(|next| is_apart(&next));
        let verdict = if seen.iter().any(|earlier| **earlier == *sealed) {
            Verdict::Dropped("duplicate".into())
        } else if is_moved {
            Verdict::Dropped("moved".into())
        } else {
            Verdict::Accepted
        };
        record.record_returned(&sealed, path, verdict);
        seen.push(sealed.into_owned());
        Ok(())
    }

    /// Verifies a plain-text thought, on endpoints that issue no Seals. Providers do not reject it;
    /// an edited text counts as dropped.
    fn check_plain_reasoning(&self, element: &InputItem, record: &mut EntryBuilder) {
        let tree = element.json.tree();
        let text = openai::text(tree.root().get("content"));
        if text.is_empty() {
            return;
        }
        let is_known = self.world.book.contains_thought(&text);
        let verdict = if is_known { Verdict::Accepted } else { Verdict::Dropped("altered".into()) };
        let path = format!("input[{}]", element.at.unwrap_or_default());
        record.record_returned(&text, path, verdict);
    }

    /// Resolves a reasoning item without content by its id.
    fn resolve_empty_reasoning(
        &self,
        element: &mut InputItem,
        record: &mut EntryBuilder,
    ) -> Result<(), Refusal> {
        let says_something = ["encrypted_content", "content"].iter().any(|key| {
            let tree = element.json.tree();
            tree.root().present(key).is_some_and(|said| said.raw() != b"[]")
        });
        if says_something || element.at.is_none() || self.house == StorageMode::Forgets {
            return Ok(());
        }
        let Some(id) = element.id.clone() else { return Ok(()) };
        self.resolve(element, &id, record)
    }

    fn refer(&self, element: &mut InputItem, record: &mut EntryBuilder) -> Result<(), Refusal> {
        let id = element.id.clone().unwrap_or_default();
        self.resolve(element, &id, record)
    }

    /// Replaces a reference with the stored item.
    fn resolve(
        &self,
        element: &mut InputItem,
        id: &str,
        record: &mut EntryBuilder,
    ) -> Result<(), Refusal> {
        let Some(kept) = self.world.stored.item(self.owner, id) else {
            let message = format!(
                "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
            );
            return Err(Refusal::new(404, message).param("input"));
        };
        let at = element.at;
        *element = InputItem::new(kept.json.clone(), at);
        let tree = element.json.tree();
        if let Some(sealed) = tree.root().present("encrypted_content").and_then(Node::text) {
            let path = format!("input[{}]", at.unwrap_or_default());
            record.record_returned(&sealed, path, Verdict::Accepted);
        }
        Ok(())
    }
}

fn summarised(element: &InputItem) -> Result<(), Refusal> {
    let Some(at) = element.at else { return Ok(()) };
    if element.json.tree().root().present("summary").is_some() {
        return Ok(());
    }
    let param = format!("input[{at}].summary");
    let message = format!("Missing required parameter: '{param}'.");
    Err(Refusal::invalid(message).param(param).code("missing_required_parameter"))
}

/// Shortens a value as OpenAI's error messages do.
fn shortened(text: &str) -> String {
    let tail: String = text.chars().rev().take(4).collect();
    let head: String = text.chars().take(4).collect();
    format!("{head}...{}", tail.chars().rev().collect::<String>())
}
