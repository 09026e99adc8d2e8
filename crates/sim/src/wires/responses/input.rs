//! The input items of a request, and the checks for each item.

use std::borrow::Cow;
use std::collections::HashSet;

use throughline_codec::COMPACTION_TYPES;
use throughline_json::{self as json, Json, Node};

use crate::digest::Digest;
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::{ReplyKey, Verdict};
use crate::turn::{Refusal, Turn};
use crate::wires::responses::StorageMode;
use crate::wires::{Exchange, member_is, openai};

/// One input item of the conversation.
#[derive(Clone, Debug)]
pub(super) struct InputItem {
    /// The item as JSON. A reference is replaced by the stored item.
    pub(super) json: Json,
    pub(super) kind: ItemKind,
    pub(super) id: Option<String>,
    /// Index in the request's `input`; `None` for items of a previous response.
    pub(super) at: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A message from the user, system or developer.
    Message,
    /// A message from the model.
    Reply,
    Reasoning,
    Call,
    CustomCall,
    Output,
    CustomOutput,
    Compaction,
    /// New settings, which hold until a later item replaces them.
    Configuration,
    /// A request for a compaction.
    Trigger,
    /// Tools that the client offers in addition to the request's `tools`.
    Tools,
    /// A reference to a stored item.
    Reference,
    /// A step that the provider ran itself, or an item of unknown type.
    Other,
}

impl ItemKind {
    fn from_node(node: Node<'_>) -> Self {
        let is_models = member_is(node, "role", "assistant");
        match node.text_of("type").as_deref() {
            Some("message") | None if is_models => Self::Reply,
            Some("message") | None => Self::Message,
            Some("reasoning") => Self::Reasoning,
            Some("function_call") => Self::Call,
            Some("custom_tool_call") => Self::CustomCall,
            Some("function_call_output") => Self::Output,
            Some("custom_tool_call_output") => Self::CustomOutput,
            Some(kind) if COMPACTION_TYPES.contains(&kind) => Self::Compaction,
            Some("configuration_update") => Self::Configuration,
            Some("compaction_trigger") => Self::Trigger,
            Some("additional_tools") => Self::Tools,
            Some("item_reference") => Self::Reference,
            Some(_) => Self::Other,
        }
    }

    /// Returns whether items of this type are model output.
    pub(super) fn is_model_output(self) -> bool {
        let is_clients =
            matches!(self, Self::Message | Self::Configuration | Self::Trigger | Self::Tools);
        !is_clients && !self.is_output()
    }

    pub(super) fn is_call(self) -> bool {
        matches!(self, Self::Call | Self::CustomCall)
    }

    pub(super) fn is_output(self) -> bool {
        matches!(self, Self::Output | Self::CustomOutput)
    }

    pub(super) fn is_custom(self) -> bool {
        matches!(self, Self::CustomCall | Self::CustomOutput)
    }
}

impl InputItem {
    pub(super) fn new(json: Json, at: Option<usize>) -> Self {
        let tree = json.tree();
        let (kind, id) =
            (ItemKind::from_node(tree.root()), tree.root().text_of("id").map(Cow::into_owned));
        Self { json, kind, id, at }
    }

    /// Returns a string member; empty if the member is missing.
    pub(super) fn text_of(&self, key: &str) -> String {
        self.json.tree().root().text_of(key).map(Cow::into_owned).unwrap_or_default()
    }

    /// Returns whether the item is an output that the client sends without a call. Codex does so
    /// for goals: the output names a tool, and has no call id.
    pub(super) fn is_notification(&self) -> bool {
        let tree = self.json.tree();
        let has = |key: &str| tree.root().present(key).is_some();
        self.kind.is_output() && has("name") && !has("call_id")
    }

    /// Returns the encrypted content, if the item has any.
    fn sealed(&self) -> Option<String> {
        let tree = self.json.tree();
        tree.root().present("encrypted_content").and_then(Node::text).map(Cow::into_owned)
    }

    /// Returns the key of the reply that contained this item; `None` for items that identify no
    /// reply.
    fn reply_key(&self) -> Option<ReplyKey> {
        if self.kind.is_call() {
            return Some(ReplyKey::Call(self.text_of("call_id")));
        }
        let text = || openai::text(self.json.tree().root().get("content"));
        (self.kind == ItemKind::Reply).then(|| ReplyKey::Text(None, text()))
    }

    /// Returns whether the Seal of a reasoning item was issued directly before this item. A call is
    /// recognised by its id or by its content: some clients add default values to the arguments,
    /// and others replace the id.
    fn is_beside(&self, claims: &SealClaims) -> bool {
        let call = self.call_digest();
        claims.beside == Some(self.bound_digest()) || (call.is_some() && claims.beside_call == call)
    }

    /// Returns the digest of a call's id; `None` for other items.
    pub(super) fn call_digest(&self) -> Option<Digest> {
        let id = || self.text_of("call_id");
        self.kind.is_call().then(|| Digest::new("throughline-sim responses beside call", id()))
    }

    /// Returns the digest of this item. The Seal of the reasoning item before this item is bound to
    /// the digest.
    pub(super) fn bound_digest(&self) -> Digest {
        let content = if self.kind.is_call() {
            let arguments = if self.kind.is_custom() { "input" } else { "arguments" };
            openai::call_identity(&self.text_of("name"), &self.text_of(arguments))
        } else if self.kind == ItemKind::Reply {
            b"message".to_vec()
        } else {
            self.text_of("type").into_bytes()
        };
        Digest::new("throughline-sim responses beside", content)
    }

    fn path(&self) -> String {
        let at = self.at.map(|at| format!("input[{at}]"));
        at.unwrap_or_else(|| "previous_response_id".to_owned())
    }
}

/// Parses `input`, which is a list of items or a string.
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

/// Checks each item: required members, Seals, and references to stored items.
pub(super) struct InputChecker<'a, 'e> {
    pub(super) exchange: &'a mut Exchange<'e>,
    pub(super) turn: &'a Turn,
    pub(super) storage: StorageMode,
    /// Owner of the stored responses: a digest of the account and the provider.
    pub(super) owner: Digest,
    /// Whether a reasoning item and the item after it must be sent together. True if the provider
    /// requires this and the response is stored.
    pub(super) checks_pairs: bool,
    /// Encrypted contents of the items that were already checked.
    pub(super) seen: Vec<String>,
}

impl InputChecker<'_, '_> {
    pub(super) fn check(&mut self, items: &mut [InputItem]) -> Result<(), Refusal> {
        if self.checks_pairs {
            check_duplicates(items)?;
        }
        for at in 0..items.len() {
            let rest = items.get(at + 1..).unwrap_or_default();
            let next = rest.iter().find(|next| next.kind != ItemKind::Reasoning).cloned();
            let Some(item) = items.get_mut(at) else { continue };
            if item.kind == ItemKind::Reasoning {
                check_summary(item)?;
                self.check_sealed(item, next.as_ref())?;
                self.resolve_empty_reasoning(item)?;
            } else if item.kind == ItemKind::Compaction {
                self.check_sealed(item, None)?;
            } else if item.kind == ItemKind::Reference {
                self.resolve(item)?;
            }
        }
        Ok(())
    }

    /// Verifies the encrypted content of an item, if the item has any.
    fn check_sealed(&mut self, item: &InputItem, next: Option<&InputItem>) -> Result<(), Refusal> {
        if self.storage == StorageMode::Stateless {
            self.check_plain_reasoning(item);
            return Ok(());
        }
        let Some(sealed) = item.sealed() else { return Ok(()) };
        let Exchange { request, state, record } = &mut *self.exchange;
        let opened = state.keys.open(&request.row.name, SealFormat::Fernet, &sealed);
        let bound = &self.turn.target.profile.bound;
        let reason = match &opened {
            Err(_) => Some("Encrypted content could not be decrypted or parsed."),
            Ok(claims) if bound.account && claims.account != request.account => {
                Some("Encrypted content organization_id did not match the target organization.")
            }
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            let verdict = Verdict::refused("invalid_encrypted_content");
            record.record_returned(&sealed, item.path(), verdict);
            let subject = match &item.id {
                Some(id) => format!("for item {id}"),
                None => shortened(&sealed),
            };
            let message =
                format!("The encrypted content {subject} could not be verified. Reason: {reason}");
            return Err(Refusal::invalid(message).code("invalid_encrypted_content"));
        }
        let seal = ReplyKey::Seal(sealed.clone());
        let is_beside = |claims: &SealClaims| next.is_some_and(|next| next.is_beside(claims));
        let is_moved = opened.is_ok_and(|claims| claims.beside.is_some() && !is_beside(&claims))
            || next
                .and_then(InputItem::reply_key)
                .is_some_and(|next| state.ledger.are_apart(&seal, &next));
        let verdict = if self.seen.contains(&sealed) {
            Verdict::dropped("duplicate")
        } else if is_moved {
            Verdict::dropped("moved")
        } else {
            Verdict::Accepted
        };
        record.record_returned(&sealed, item.path(), verdict);
        self.seen.push(sealed);
        Ok(())
    }

    /// Checks a plain-text thought, for providers that issue no Seals. Such providers never reject
    /// a thought, so an edited thought is recorded as dropped.
    fn check_plain_reasoning(&mut self, item: &InputItem) {
        let text = openai::text(item.json.tree().root().get("content"));
        if text.is_empty() {
            return;
        }
        let is_known = self.exchange.state.ledger.contains_thought(&text);
        let verdict = if is_known { Verdict::Accepted } else { Verdict::dropped("altered") };
        let path = format!("input[{}]", item.at.unwrap_or_default());
        self.exchange.record.record_returned(&text, path, verdict);
    }

    /// If a reasoning item has an id but no content, replaces it with the stored item.
    fn resolve_empty_reasoning(&mut self, item: &mut InputItem) -> Result<(), Refusal> {
        let tree = item.json.tree();
        let has_content = ["encrypted_content", "content"]
            .iter()
            .any(|key| tree.root().present(key).is_some_and(|content| content.raw() != b"[]"));
        let is_stored = item.at.is_some() && item.id.is_some();
        if has_content || !is_stored || self.storage == StorageMode::Stateless {
            return Ok(());
        }
        self.resolve(item)
    }

    /// Replaces a reference with the stored item.
    fn resolve(&mut self, item: &mut InputItem) -> Result<(), Refusal> {
        let id = item.id.clone().unwrap_or_default();
        let Some(stored) = self.exchange.state.stored.item(self.owner, &id) else {
            let message = format!(
                "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
            );
            return Err(Refusal::new(404, message).param("input"));
        };
        *item = InputItem::new(stored.json.clone(), item.at);
        if let Some(sealed) = item.sealed() {
            let path = format!("input[{}]", item.at.unwrap_or_default());
            self.exchange.record.record_returned(&sealed, path, Verdict::Accepted);
        }
        Ok(())
    }
}

fn check_duplicates(items: &[InputItem]) -> Result<(), Refusal> {
    let mut ids = HashSet::new();
    let outputs = items.iter().filter(|item| item.kind.is_model_output());
    for id in outputs.filter_map(|item| item.id.as_deref()) {
        if !ids.insert(id) {
            let message = format!(
                "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
            );
            return Err(Refusal::invalid(message).param("input"));
        }
    }
    Ok(())
}

fn check_summary(item: &InputItem) -> Result<(), Refusal> {
    match item.at {
        Some(at) if item.json.tree().root().present("summary").is_none() => {
            Err(openai::missing(&format!("input[{at}].summary")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Shortens a value for an error message, as OpenAI does.
fn shortened(text: &str) -> String {
    let tail: String = text.chars().rev().take(4).collect();
    let head: String = text.chars().take(4).collect();
    format!("{head}...{}", tail.chars().rev().collect::<String>())
}
