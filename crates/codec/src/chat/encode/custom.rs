//! Custom tools, whose input is free text. Only OpenAI supports them; for other endpoints they
//! become functions with one string argument.

use throughline_core::{Tool, ToolCall, Wire};
use throughline_json::{self as json, Json};

use crate::chat::WIRE;
use crate::cross_wire;
use crate::draft::Draft;

/// The members of a custom tool's declaration that a function declaration does not have.
pub(super) struct CustomTool {
    /// The input format, as this wire represents it.
    format: Option<Json>,
}

/// Returns the declaration of a custom tool; `None` if the tool is not custom.
pub(super) fn custom_declaration(tool: &Tool) -> Option<CustomTool> {
    let native = tool.native.as_ref()?;
    let is_chat = native.wire == WIRE;
    if !is_chat && native.wire != Wire::OPENAI_RESPONSES {
        return None;
    }
    memchr::memmem::find(native.json.bytes(), b"\"custom\"")?;
    let tree = native.json.tree();
    tree.root().get("type").filter(|kind| kind.is("custom"))?;
    let inner = if is_chat { tree.root().get("custom")? } else { tree.root() };
    let format = inner.get("format").map(|format| match format.get("syntax") {
        // The Responses API has one object where this wire nests two.
        Some(syntax) => object! {
            "type": "grammar",
            "grammar": { "syntax": syntax, "definition": format.get("definition") },
        },
        None => format.json(),
    });
    Some(CustomTool { format })
}

impl CustomTool {
    pub(super) fn json(&self, tool: &Tool) -> Json {
        object! {
            "type": "custom",
            "custom": {
                "name": tool.name, "description": tool.description.as_deref(),
                "format": self.format,
            },
        }
    }
}

/// Declares a custom tool as a function with one string argument.
pub(super) fn as_function(draft: &mut Draft<'_>, tool: &Tool) -> Json {
    cross_wire::warn_about_input_format(draft, tool);
    object! {
        "type": "function",
        "function": {
            "name": tool.name, "description": tool.description.as_deref(),
            "parameters": {
                "type": "object", "properties": { "input": { "type": "string" } },
                "required": ["input"],
            },
        },
    }
}

/// Writes the type, name and arguments of a call.
pub(in crate::chat) fn put_call(o: &mut json::Object<'_>, call: &ToolCall, is_custom: bool) {
    let name = &call.name;
    if is_custom {
        let input = custom_input(call);
        o.string("type", "custom").object("custom", members! { "name": name, "input": input });
    } else {
        let text = arguments_text(call);
        o.string("type", "function");
        o.object("function", members! { "name": name, "arguments": text });
    }
}

/// Returns the input of a custom call as a JSON string.
fn custom_input(call: &ToolCall) -> Json {
    if call.args.tree().root().is_string() {
        return call.args.clone();
    }
    json::string(call.args.as_str())
}

/// Returns the arguments of a call as text. Arguments that are not valid JSON are stored as a JSON
/// string, whose text is returned.
pub(in crate::chat) fn arguments_text(call: &ToolCall) -> String {
    if call.custom {
        return object_arguments(call).as_str().to_owned();
    }
    let is_text = call.args.bytes().first() == Some(&b'"');
    let text = is_text.then(|| call.args.tree().root().text().map(std::borrow::Cow::into_owned));
    text.flatten().unwrap_or_else(|| call.args.as_str().to_owned())
}

/// Returns the arguments of a call as an object. A value that is not an object becomes the member
/// `input`.
pub(super) fn object_arguments(call: &ToolCall) -> Json {
    if call.args.tree().root().is_object() && !call.custom {
        return call.args.clone();
    }
    object! { "input": call.args }
}
