//! Custom tools, whose input is a text of any form: `OpenAI`'s own. Elsewhere they are functions with one text to fill in.

use throughline_core::{Json, Tool, ToolCall, Wire, json};

use crate::chat::encode::WIRE;
use crate::draft::Draft;

/// The argument that holds the whole input where a custom tool is said as a function.
const INPUT: &str = "input";

/// What is known of a custom tool besides its name.
pub(super) struct Custom {
    /// The form of the input, in this wire's words.
    format: Option<Json>,
}

/// A tool's declaration, if it is a custom one of a wire that has them.
pub(super) fn declared(tool: &Tool) -> Option<Custom> {
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
        // The Responses API says in one object what this wire says in two.
        Some(syntax) => json::object(|o| {
            o.string("type", "grammar").object("grammar", |o| {
                o.node("syntax", syntax);
                if let Some(definition) = format.get("definition") {
                    o.node("definition", definition);
                }
            });
        }),
        None => format.json(),
    });
    Some(Custom { format })
}

impl Custom {
    pub(super) fn json(&self, tool: &Tool) -> Json {
        json::object(|o| {
            o.string("type", "custom").object("custom", |o| {
                o.string("name", &tool.name);
                o.maybe_string("description", tool.description.as_deref());
                if let Some(format) = &self.format {
                    o.raw("format", format);
                }
            });
        })
    }

    pub(super) fn as_function(&self, draft: &mut Draft<'_>, tool: &Tool) -> Json {
        if self.format.is_some() {
            let name = &tool.name;
            draft.warn("tools", format!("nothing here holds `{name}` to the form of its input"));
        }
        json::object(|o| {
            o.string("type", "function").object("function", |o| {
                o.string("name", &tool.name);
                o.maybe_string("description", tool.description.as_deref());
                o.object("parameters", |o| {
                    o.string("type", "object").object("properties", |o| {
                        o.object(INPUT, |o| {
                            o.string("type", "string");
                        });
                    });
                    o.array("required", |a| {
                        a.string(INPUT);
                    });
                });
            });
        })
    }
}

/// The input of a custom call, which is a string.
pub(in crate::chat) fn input(call: &ToolCall) -> Json {
    if call.args.tree().root().is_string() {
        return call.args.clone();
    }
    json::string(call.args.as_str())
}

/// The arguments of a call, as the text that this wire wants. What is no JSON was kept as a string, and is its text.
pub(in crate::chat) fn arguments(call: &ToolCall) -> String {
    if call.custom {
        return argument(call).as_str().to_owned();
    }
    let is_text = call.args.bytes().first() == Some(&b'"');
    let text = is_text.then(|| call.args.tree().root().text().map(std::borrow::Cow::into_owned));
    text.flatten().unwrap_or_else(|| call.args.as_str().to_owned())
}

/// Whatever a call has for arguments, as an object.
pub(super) fn argument(call: &ToolCall) -> Json {
    if call.args.tree().root().is_object() && !call.custom {
        return call.args.clone();
    }
    json::object(|o| {
        o.raw(INPUT, &call.args);
    })
}
