//! Reads Letta's messages. Consecutive messages of one step form one assistant turn.

use throughline_core::{
    Body, CallId, Item, ItemPosition, Outcome, Part, ReasoningSource, Role, ToolResult,
};
use throughline_json::{InvalidDocument, Json, Name, Node};
use throughline_spec::{
    HiddenReasoningMessage, Message, MessageCall, MessageRole, ReasoningMessage, ThinkingBlock,
};

use crate::history::turn::{AssistantTurn, text_of};
use crate::history::{HistoryBuilder, HistoryError};

/// The assistant turn that is being collected, with the Items of its thoughts.
struct OpenTurn {
    message: Message,
    thoughts: Vec<Item>,
    step: Option<Name>,
}

impl HistoryBuilder<'_> {
    pub(super) fn push_letta<'t>(
        &mut self,
        list: impl Iterator<Item = Node<'t>>,
    ) -> Result<(), HistoryError> {
        let mut open: Option<OpenTurn> = None;
        for (index, entry) in list.enumerate() {
            self.entry = index;
            let step = entry.name_of("step_id");
            let is_other =
                |turn: &OpenTurn| step.is_some() && turn.step.is_some() && turn.step != step;
            if open.as_ref().is_some_and(is_other) {
                self.close(open.take())?;
            }
            let turn = |step: &Option<Name>| OpenTurn {
                message: Message::new(MessageRole::Assistant, ""),
                thoughts: Vec::new(),
                step: step.clone(),
            };
            let kind = entry.name_of("message_type");
            match kind.as_deref() {
                None | Some("reasoning_message" | "hidden_reasoning_message") => {
                    let (block, thought) = self.read_thought(entry, kind.as_deref())?;
                    let plain = thought_is_plain(&thought);
                    let turn = open.get_or_insert_with(|| turn(&step));
                    if !plain {
                        turn.message.thinking_blocks.push(block);
                    }
                    turn.thoughts.push(thought);
                }
                Some("assistant_message") => {
                    let text = text_of(entry.get("content"));
                    let turn = open.get_or_insert_with(|| turn(&step));
                    turn.message.content = format!("{}{text}", turn.message.content).into();
                }
                Some("tool_call_message" | "approval_request_message") => {
                    let calls = self.read_calls(entry)?;
                    let turn = open.get_or_insert_with(|| turn(&step));
                    turn.message.tool_calls.extend(calls);
                }
                Some("user_message" | "system_message") => {
                    self.close(open.take())?;
                    let role = if kind.as_deref() == Some("user_message") {
                        MessageRole::User
                    } else {
                        MessageRole::System
                    };
                    self.push_neutral(&Message::new(role, text_of(entry.get("content"))))?;
                }
                Some("tool_return_message") => {
                    self.close(open.take())?;
                    self.push_tool_return(entry)?;
                }
                Some(other) => {
                    let problem = format!(
                        "message_type {other} is not supported; use reasoning, assistant, \
                         tool_call, tool_return, user and system messages"
                    );
                    return Err(self.error(problem));
                }
            }
        }
        self.close(open)
    }

    fn read_thought(
        &self,
        entry: Node<'_>,
        kind: Option<&str>,
    ) -> Result<(ThinkingBlock, Item), HistoryError> {
        let invalid = |error: InvalidDocument| self.error(error.to_string());
        if kind == Some("hidden_reasoning_message") {
            let hidden = HiddenReasoningMessage::parse(&entry.json()).map_err(invalid)?;
            let block = ThinkingBlock::redacted(hidden.hidden_reasoning.clone());
            return Ok((block, hidden.item(None)));
        }
        let shown = ReasoningMessage::parse(&entry.json()).map_err(invalid)?;
        let block = ThinkingBlock::thinking(shown.reasoning.clone(), shown.signature.clone());
        Ok((block, shown.item(None)))
    }

    fn read_calls(&self, entry: Node<'_>) -> Result<Vec<MessageCall>, HistoryError> {
        let one = entry.get("tool_call").filter(|call| call.is_object());
        let several = entry.get("tool_calls").into_iter().flat_map(Node::elements);
        let several: Vec<_> = several.collect();
        let calls = if several.is_empty() { one.into_iter().collect() } else { several };
        let call = |call: Node<'_>| {
            let required = |key: &str| {
                call.name_of(key).ok_or_else(|| self.error(format!("tool_call.{key} is missing")))
            };
            let arguments = required("arguments")?;
            let args = Json::parse(arguments.to_string());
            Ok(MessageCall {
                id: required("tool_call_id")?,
                name: required("name")?,
                args: args.unwrap_or_else(|_| throughline_json::string(&arguments)),
                provider_meta: None,
                extras: Vec::new(),
            })
        };
        calls.into_iter().map(call).collect()
    }

    fn push_tool_return(&mut self, entry: Node<'_>) -> Result<(), HistoryError> {
        let Some(id) = entry.name_of("tool_call_id") else {
            return Err(self.error("tool_call_id is missing; a tool return must name its call"));
        };
        let is_error = entry.get("status").is_some_and(|status| status.is("error"));
        let body = Body::Result(ToolResult {
            call: CallId(id.clone()),
            wire_id: Some(id),
            name: entry.name_of("name"),
            outcome: if is_error { Outcome::Error } else { Outcome::Ok },
            parts: vec![Part::Text(text_of(entry.get("tool_return")))],
        });
        let place = ItemPosition { message: self.next, part: 0 };
        let id = format!("message-{}-0", self.next);
        self.append(vec![Item::new(id, place, Role::Tool, body)]);
        Ok(())
    }

    /// Appends the collected turn. Prompted reasoning, which no model issued, becomes plain
    /// thoughts before the turn.
    fn close(&mut self, turn: Option<OpenTurn>) -> Result<(), HistoryError> {
        let Some(OpenTurn { message, thoughts, .. }) = turn else { return Ok(()) };
        let (mut plain, issued): (Vec<Item>, Vec<Item>) =
            thoughts.into_iter().partition(thought_is_plain);
        for (part, item) in (0..).zip(&mut plain) {
            item.place = ItemPosition { message: self.next, part };
        }
        self.append(plain);
        let has_visible = !message.content.is_empty() || !message.tool_calls.is_empty();
        if issued.is_empty() && !has_visible {
            return Ok(());
        }
        if let Some(owner) = self.owner {
            let records = issued.iter().filter_map(|item| match &item.body {
                Body::Thought(thought) => thought.record.as_deref().cloned(),
                _ => None,
            });
            let records = records.collect();
            let turn = AssistantTurn { records, ..AssistantTurn::from_message(&message, owner) };
            return self.push_turn(&turn);
        }
        let visible = Message { thinking_blocks: Vec::new(), ..message };
        let mut items = issued;
        if has_visible {
            let index = usize::try_from(self.next).unwrap_or(usize::MAX);
            let shown =
                visible.items(index, None).map_err(|error| self.error(error.to_string()))?;
            items.extend(shown);
        }
        for (part, item) in (0..).zip(&mut items) {
            item.place = ItemPosition { message: self.next, part };
        }
        self.append(items);
        Ok(())
    }
}

/// Returns whether a prompt requested the reasoning, so that every model may read it.
fn thought_is_plain(item: &Item) -> bool {
    matches!(&item.body, Body::Thought(thought)
        if thought.is_plain() && thought.source == ReasoningSource::NonReasonerModel)
}
