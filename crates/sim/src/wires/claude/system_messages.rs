//! Checks system messages inside a conversation, and applies the tool changes that they contain.
//!
//! A system message follows the user's messages and precedes the reply. Besides text, the message
//! may contain `tool_addition` and `tool_removal` blocks, which require a beta.

use throughline_json::Node;

use crate::turn::{Refusal, ensure};
use crate::wires::claude::settings::Settings;
use crate::wires::claude::{Dialogue, Role};
use crate::wires::{list, string};

/// Beta for tools that are added or removed by name.
const TOOL_CHANGES_BETA: &str = "mid-conversation-tool-changes-2026-07-01";

/// Beta for tools that are defined in a message. It also allows changes by name.
const INLINE_TOOLS_BETA: &str = "inline-tools-2026-09-15";

/// Checks that no user message follows a system message. System messages without content only
/// change settings and may be anywhere.
pub(crate) fn check_order(dialogue: &Dialogue) -> Result<(), Refusal> {
    let mut pending = None;
    for (number, message) in dialogue.messages.iter().enumerate() {
        match (message.role, pending) {
            (Role::System, _) if message.blocks.is_empty() => {}
            (Role::System, _) => pending = Some(number),
            (Role::Assistant, _) | (Role::User, None) => pending = None,
            (Role::User, Some(system)) => {
                return Err(Refusal::invalid(format!(
                    "messages.{system}: role 'system' must precede an 'assistant' message or end \
                     the array"
                )));
            }
        }
    }
    Ok(())
}

/// Returns the definitions of the tools that the model is offered after the last message.
pub(crate) fn offered_tools<'t>(
    body: Node<'t>,
    settings: &Settings<'_>,
) -> Result<Vec<Node<'t>>, Refusal> {
    let mut tools = ToolSet { known: Vec::new(), offered: Vec::new() };
    for tool in list(body, "tools") {
        tools.define(tool);
    }
    for (number, message) in list(body, "messages").enumerate() {
        for (place, block) in list(message, "content").enumerate() {
            let kind = block.text_of("type").unwrap_or_default();
            let is_addition = match &*kind {
                "tool_addition" => true,
                "tool_removal" => false,
                _ => continue,
            };
            let path = format!("messages.{number}.content.{place}");
            let is_allowed =
                settings.has_beta(TOOL_CHANGES_BETA) || settings.has_beta(INLINE_TOOLS_BETA);
            ensure!(
                is_allowed && message.text_of("role").as_deref() == Some("system"),
                "{path}: Input tag '{kind}' found using 'type' does not match any of the expected \
                 tags"
            );
            let Some(tool) = block.present("tool") else {
                return Err(Refusal::invalid(format!("{path}.{kind}.tool: Field required")));
            };
            tools.change(tool, is_addition, settings, &format!("{path}.{kind}.tool"))?;
        }
    }
    Ok(tools.offered)
}

struct ToolSet<'t> {
    /// Every tool that was defined so far, with its newest definition.
    known: Vec<Node<'t>>,
    offered: Vec<Node<'t>>,
}

impl<'t> ToolSet<'t> {
    fn define(&mut self, tool: Node<'t>) {
        for tools in [&mut self.known, &mut self.offered] {
            let name = string(tool, "name");
            tools.retain(|known| name.is_none() || string(*known, "name") != name);
            tools.push(tool);
        }
    }

    fn change(
        &mut self,
        tool: Node<'t>,
        is_addition: bool,
        settings: &Settings<'_>,
        path: &str,
    ) -> Result<(), Refusal> {
        let kind = tool.text_of("type").unwrap_or_default();
        match &*kind {
            "tool_definition" if is_addition && settings.has_beta(INLINE_TOOLS_BETA) => {
                let definition = tool.present("definition").filter(|definition| {
                    string(*definition, "name").is_some_and(|name| !name.is_empty())
                });
                let Some(definition) = definition else {
                    return Err(Refusal::invalid(format!(
                        "{path}.tool_definition.definition.name: Field required"
                    )));
                };
                ensure!(
                    definition.present("cache_control").is_none(),
                    "{path}.tool_definition.definition.cache_control: Extra inputs are not \
                     permitted"
                );
                self.define(definition);
            }
            "tool_reference" => {
                let name = string(tool, "name").unwrap_or_default();
                let is_named =
                    |tool: &Node<'_>| string(*tool, "name").is_some_and(|known| known == name);
                let known = self.known.iter().copied().find(is_named);
                let Some(known) = known else {
                    return Err(Refusal::invalid(format!(
                        "{path}.tool_reference.name: Tool '{name}' not found in provided tools"
                    )));
                };
                self.offered.retain(|tool| !is_named(tool));
                if is_addition {
                    self.offered.push(known);
                }
            }
            _ => {
                return Err(Refusal::invalid(format!(
                    "{path}: Input tag '{kind}' found using 'type' does not match any of the \
                     expected tags"
                )));
            }
        }
        Ok(())
    }
}
