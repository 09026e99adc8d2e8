//! Maps the roles of a script, such as `read` or `run`, to the tools that a client offers.
//!
//! `agent_tools.toml` describes the tools of the coding agents. The file also lists the tools that
//! a model without a script does not call.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::schema;
use crate::turn::OfferedTool;

#[cfg(test)]
#[path = "agent_tools_tests.rs"]
mod agent_tools_tests;

/// What a scripted call does, independent of the client's tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToolRole {
    Read,
    Edit,
    Write,
    Run,
    Search,
}

/// Values of a scripted call by name, such as `path` and `command`.
pub(crate) type RoleValues = BTreeMap<String, String>;

/// A call that fits a tool of the client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MappedCall {
    pub(crate) name: String,
    /// A JSON object, or a string for a tool that takes free-form text.
    pub(crate) arguments: Value,
}

impl ToolRole {
    /// Returns the role's name in a script.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Write => "write",
            Self::Run => "run",
            Self::Search => "search",
        }
    }

    /// Returns the values that a call with this role takes, each with its default, if any.
    pub(crate) fn values(self) -> &'static [(&'static str, Option<&'static str>)] {
        match self {
            Self::Read => &[("path", None)],
            Self::Edit => &[("path", None), ("old", None), ("new", None)],
            Self::Write => &[("path", None), ("content", None)],
            Self::Run => &[("command", None)],
            Self::Search => &[("pattern", None), ("path", Some("."))],
        }
    }
}

/// Maps a call to the first tool in the table that the client offers; `None` if no offered tool
/// fits the role. Generates the other required arguments of the tool.
pub(crate) fn map_call(
    role: ToolRole,
    values: &RoleValues,
    tools: &[OfferedTool],
    nonce: Digest,
) -> Option<MappedCall> {
    let direct = map_directly(role, values, tools, nonce);
    direct.or_else(|| {
        let command = render(TABLE.shell.get(&role)?, values);
        let values = RoleValues::from([("command".to_owned(), command)]);
        map_directly(ToolRole::Run, &values, tools, nonce)
    })
}

/// Returns whether a model without a script may call this tool.
pub(crate) fn is_callable(tool: &OfferedTool) -> bool {
    // Clients and gateways write a tool of a namespace as `namespace__name`.
    let name = tool.name.rsplit_once("__").map_or(&*tool.name, |(_, name)| name);
    !TABLE.uncalled.values().flatten().any(|known| *known == tool.name || known == name)
}

/// Returns whether the last user message is an agent's request for a summary of the conversation.
pub(crate) fn requests_summary(user_text: &str) -> bool {
    TABLE.summary.values().flatten().any(|text| user_text.contains(text))
}

/// Generates the arguments of a call, with values from the user's message where they fit.
pub(crate) fn sample_arguments(tool: &OfferedTool, user_text: &str, nonce: Digest) -> Value {
    if tool.custom {
        return Value::String("naïve café ☕".to_owned());
    }
    schema::generate_from(&tool.schema, nonce.and(&tool.name), user_text)
}

fn map_directly(
    role: ToolRole,
    values: &RoleValues,
    tools: &[OfferedTool],
    nonce: Digest,
) -> Option<MappedCall> {
    let rows = TABLE.role.get(&role)?;
    rows.iter().find_map(|row| {
        row.names.iter().find_map(|name| {
            let tool = tools.iter().find(|tool| plain_name(&tool.name) == plain_name(name))?;
            let arguments = row.arguments(tool, values, nonce)?;
            Some(MappedCall { name: tool.name.clone(), arguments })
        })
    })
}

/// Contents of `agent_tools.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolTable {
    role: BTreeMap<ToolRole, Vec<ToolRow>>,
    /// Shell commands for the roles of clients that offer only a shell.
    shell: BTreeMap<ToolRole, String>,
    text: BTreeMap<String, String>,
    /// Names of the properties that take a value, in order of preference.
    property: BTreeMap<String, Vec<String>>,
    /// Elements before a value that goes into an array.
    array: BTreeMap<String, Vec<String>>,
    /// Texts that mark an agent's request for a summary, by agent.
    summary: BTreeMap<String, Vec<String>>,
    /// Tools that a model without a script does not call, by reason.
    uncalled: BTreeMap<String, Vec<String>>,
}

/// Tools that take the same arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ToolRow {
    names: Vec<String>,
    values: BTreeMap<String, String>,
    optional: BTreeMap<String, String>,
    input: Option<String>,
}

static TABLE: LazyLock<ToolTable> =
    LazyLock::new(|| toml::from_str(include_str!("agent_tools.toml")).unwrap_or_default());

impl ToolRow {
    /// Returns the arguments of a call; `None` if the tool cannot take them.
    fn arguments(&self, tool: &OfferedTool, values: &RoleValues, nonce: Digest) -> Option<Value> {
        if tool.custom {
            return self.input.as_ref().map(|input| Value::String(render(input, values)));
        }
        if self.values.is_empty() {
            return None;
        }
        let mut members = Map::new();
        for (name, template) in &self.values {
            let (property, value) = argument(tool, name, &render(template, values))?;
            members.insert(property, value);
        }
        for (name, template) in &self.optional {
            members.extend(argument(tool, name, &render(template, values)));
        }
        for (property, value) in schema::required_members(&tool.schema, nonce.and(&tool.name)) {
            members.entry(property).or_insert(value);
        }
        Some(Value::Object(members))
    }
}

/// Returns the property of a tool that takes a value, and the value in the property's type.
fn argument(tool: &OfferedTool, name: &str, text: &str) -> Option<(String, Value)> {
    let properties = tool.schema.get("properties")?.as_object()?;
    let named = TABLE.property.get(name)?.iter();
    named.filter_map(|property| properties.get_key_value(property)).find_map(
        |(property, schema)| {
            let value = match schema.get("type").and_then(Value::as_str) {
                Some(kind) if kind.eq_ignore_ascii_case("array") => {
                    let before = TABLE.array.get(name).cloned().unwrap_or_default();
                    before.into_iter().chain([text.to_owned()]).map(Value::String).collect()
                }
                Some(kind) if !kind.eq_ignore_ascii_case("string") => return None,
                Some(_) | None => Value::from(text),
            };
            Some((property.clone(), value))
        },
    )
}

/// Returns a tool's name without case and separators.
fn plain_name(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Replaces each `{name}` and `{name:filter}` with the value or the text of that name. Other braces
/// stay unchanged.
fn render(template: &str, values: &RoleValues) -> String {
    render_with(template, |name| {
        let text = || Some(render_with(TABLE.text.get(name)?, |name| values.get(name).cloned()));
        values.get(name).cloned().or_else(text)
    })
}

fn render_with(template: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut rendered = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        rendered.push_str(before);
        let replaced = after.split_once('}').and_then(|(place, after)| {
            let (name, filter) = place.split_once(':').unwrap_or((place, ""));
            Some((apply_filter(filter, lookup(name)?)?, after))
        });
        match replaced {
            Some((text, after)) => {
                rendered.push_str(&text);
                rest = after;
            }
            None => {
                rendered.push('{');
                rest = after;
            }
        }
    }
    rendered + rest
}

/// Applies a filter of the table; `None` if there is no such filter.
fn apply_filter(filter: &str, text: String) -> Option<String> {
    let with_prefix = |prefix: char| {
        let lines: Vec<String> = text.lines().map(|line| format!("{prefix}{line}")).collect();
        lines.join("\n")
    };
    match filter {
        "" => Some(text),
        "shell" => Some(format!("'{}'", text.replace('\'', r"'\''"))),
        "json" => Some(Value::String(text).to_string()),
        "removed" => Some(with_prefix('-')),
        "added" => Some(with_prefix('+')),
        _ => None,
    }
}
