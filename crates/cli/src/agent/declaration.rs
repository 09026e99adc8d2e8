//! Reads an agent declaration (`agent.toml`) and merges it with the command-line options.

use std::path::Path;
use std::sync::Arc;

use throughline_agent::{AgentConfig, RunSpec, Tool, ToolSpec};
use throughline_json::{Json, Name};
use throughline_tools::ToolDeclarations;
use toml::{Table, Value};

use super::program::ShellTool;
use crate::args::AgentArgs;
use crate::config::environment::readable_variable;
use crate::print::failure::{Failure, Result};
use crate::print::text::{self, plain};

/// Top-level keys of an agent file that declare external tools.
const EXTERNAL_TOOL_KEYS: [&str; 2] = ["http", "mcp"];

/// Builds the run specification from the agent file and the command-line options.
pub(crate) fn run_spec(
    using: &AgentArgs,
    model: Option<&str>,
    approve: &[String],
) -> Result<RunSpec> {
    let mut table = using.agent.as_deref().map(read).transpose()?.unwrap_or_default();
    table.retain(|key, _| key != "tools" && !EXTERNAL_TOOL_KEYS.contains(&key));
    let name = using.agent.as_deref().map_or_else(String::new, |file| format!("{}: ", shown(file)));
    let invalid = |problem: String| Failure::BadData(format!("{name}{problem}"));
    let mut spec = match table.remove("agents") {
        Some(Value::Table(agents)) => {
            let first = table.remove("first").and_then(|first| first.as_str().map(str::to_owned));
            let first = first.or_else(|| agents.keys().next().cloned()).unwrap_or_default();
            if let Some(other) = table.keys().next() {
                return Err(invalid(format!(
                    "`{other}` is not allowed next to `agents` and `first`"
                )));
            }
            let mut spec = RunSpec::single_agent(AgentConfig::smart(""), Vec::new());
            spec.agents.clear();
            for (agent, value) in agents {
                let Value::Table(mut table) = value else {
                    return Err(invalid(format!("agents.{agent} must be a table")));
                };
                table.entry("name").or_insert_with(|| Value::String(agent.clone()));
                let model = model.filter(|_| agent == first);
                let agent = agent_config(table, model, &format!("{name}agents.{agent}: "))?;
                spec.agents.insert(agent.name.clone(), agent);
            }
            spec.first = first.into();
            spec
        }
        Some(_) => return Err(invalid("`agents` must be a table".to_owned())),
        None => RunSpec::single_agent(agent_config(table, model, &name)?, Vec::new()),
    };
    for agent in spec.agents.values_mut() {
        agent.human_in_the_loop.approve.extend(approve.iter().map(|tool| Name::from(&**tool)));
    }
    Ok(spec)
}

/// Tools declared in the agent file and on the command line.
#[derive(Default)]
pub(crate) struct Tools {
    programs: Vec<Arc<dyn Tool>>,
    /// Tools of MCP servers and HTTP endpoints.
    external: ToolDeclarations,
}

impl Tools {
    /// Collects the declared tools without connecting to their servers.
    pub(crate) fn declared(using: &AgentArgs) -> Result<Self> {
        let mut tools = Self::default();
        if let Some(file) = &using.agent {
            tools.read(file)?;
        }
        for text in &using.tool {
            if text.starts_with("mcp:") || text.starts_with("http:") {
                let line = ToolDeclarations::line(text, &readable_variable)
                    .map_err(|problems| Failure::Usage(format!("invalid --tool: {problems}")))?;
                tools.external = tools.external.merge(line);
            } else {
                tools.add(parse_program(text)?, Failure::Usage)?;
            }
        }
        Ok(tools)
    }

    fn read(&mut self, file: &Path) -> Result<()> {
        let name = shown(file);
        let invalid = |problem: String| Failure::BadData(format!("{name}: {problem}"));
        let mut table = read(file)?;
        let listed = match table.remove("tools") {
            None => Vec::new(),
            Some(Value::Array(listed)) => listed,
            Some(_) => {
                return Err(invalid(
                    "`tools` must be a list; write each tool as [[tools]]".to_owned(),
                ));
            }
        };
        for tool in listed {
            let program = parse_listed_program(tool);
            let program = program.map_err(|problem| invalid(format!("tools: {problem}")))?;
            self.add(program, invalid)?;
        }
        let mut others: Vec<&str> = table.keys().map(String::as_str).collect();
        others.retain(|key| !EXTERNAL_TOOL_KEYS.contains(key));
        others.push("tools");
        let declared = ToolDeclarations::toml(&text::read_file(file)?, &others, &readable_variable);
        let declared = declared.map_err(|problems| invalid(problems.to_string()))?;
        self.external = std::mem::take(&mut self.external).merge(declared);
        Ok(())
    }

    fn add(&mut self, program: ShellTool, failure: impl FnOnce(String) -> Failure) -> Result<()> {
        let name = program.spec().name;
        if self.programs.iter().any(|known| known.spec().name == name) {
            let name = plain(&name);
            return Err(failure(format!("two tools are named {name}; rename one of them")));
        }
        self.programs.push(Arc::new(program));
        Ok(())
    }

    /// Connects to the tool servers and returns all tools.
    pub(crate) async fn open(self) -> Result<Vec<Arc<dyn Tool>>> {
        let mut tools = self.programs;
        let external_tools = self.external.open().await;
        tools.extend(external_tools.map_err(|error| Failure::Outside(anyhow::anyhow!(error)))?);
        Ok(tools)
    }
}

fn parse_listed_program(tool: Value) -> Result<ShellTool, String> {
    let Value::Table(mut table) = tool else {
        return Err("each tool must be a table; write it as [[tools]]".to_owned());
    };
    let command = table.remove("command");
    let spec: ToolSpec = from_toml(&table)?;
    let Some(Value::String(command)) = command else {
        return Err(format!("the tool {} has no `command`", spec.name));
    };
    Ok(ShellTool { spec, command })
}

/// Parses a tool given as `NAME=COMMAND`.
fn parse_program(text: &str) -> Result<ShellTool> {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    let (name, command) = text
        .split_once('=')
        .map(|(name, command)| (name.trim(), command.trim()))
        .filter(|(name, command)| is_name(name) && !command.is_empty())
        .ok_or_else(|| {
            let text = plain(text);
            Failure::Usage(format!(
                "invalid --tool {text}: use NAME=COMMAND (such as now=date), mcp:… or http:…"
            ))
        })?;
    let schema = r#"{"type":"object","properties":{"input":{"type":"string"}}}"#;
    let schema = Json::parse(schema).map_err(|error| Failure::Usage(error.to_string()))?;
    let description = format!("Runs `{command}`, which reads its arguments as JSON.");
    let spec = ToolSpec::new(name).description(description).schema(schema);
    Ok(ShellTool { spec, command: command.to_owned() })
}

/// Builds the configuration of one agent from its TOML table.
fn agent_config(mut table: Table, model: Option<&str>, source: &str) -> Result<AgentConfig> {
    if let Some(model) = model {
        table.insert("model".to_owned(), Value::String(model.to_owned()));
    }
    if !table.contains_key("model") {
        return Err(Failure::Usage(format!(
            "{source}no model is set; use --model, such as --model sim/claude-sonnet-5-5"
        )));
    }
    from_toml(&table).map_err(|problem| Failure::BadData(format!("{source}{problem}")))
}

/// Deserializes a TOML table by its JSON field names. Errors omit the position, because it would
/// refer to JSON that the user never wrote.
fn from_toml<T: serde::de::DeserializeOwned>(table: &Table) -> Result<T, String> {
    if let Some(member) = table.iter().find_map(|(key, value)| find_non_finite(key, value)) {
        return Err(format!("{member} is not a finite number"));
    }
    let value = serde_json::to_value(table).and_then(serde_json::from_value);
    value.map_err(|error| error.to_string())
}

/// Returns the key path of a `nan` or `inf` value, which JSON cannot represent.
fn find_non_finite(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Float(number) => (!number.is_finite()).then(|| name.to_owned()),
        Value::Array(list) => list.iter().find_map(|value| find_non_finite(name, value)),
        Value::Table(table) => {
            table.iter().find_map(|(key, value)| find_non_finite(&format!("{name}.{key}"), value))
        }
        _ => None,
    }
}

fn read(file: &Path) -> Result<Table> {
    let table = toml::from_str(&text::read_file(file)?);
    table.map_err(|error| Failure::BadData(format!("{}: {error}", shown(file))))
}

fn shown(file: &Path) -> String {
    plain(&file.display().to_string())
}
