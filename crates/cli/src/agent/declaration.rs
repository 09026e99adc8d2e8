//! Reads an `agent.toml` and merges the options of the command line.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use throughline_agent::{AgentConfig, RunSpec, Tool, ToolSpec};
use throughline_json::{Json, Name};
use throughline_tools::ToolDeclarations;
use toml::{Table, Value};

use super::program::ShellTool;
use crate::args::AgentArgs;
use crate::config::environment::variable;
use crate::print::failure::Failure;
use crate::print::text::plain;

/// Members of an agent file that declare external tools.
const EXTERNAL_TOOL_KEYS: [&str; 2] = ["http", "mcp"];

/// Builds the run specification from the file and the command line.
pub(crate) fn run_spec(
    using: &AgentArgs,
    model: Option<&str>,
    approve: &[String],
) -> Result<RunSpec, Failure> {
    let mut table = match &using.agent {
        Some(file) => read(file)?,
        None => Table::new(),
    };
    table.retain(|key, _| key != "tools" && !EXTERNAL_TOOL_KEYS.contains(&key));
    let several = table.remove("agents");
    let name = using.agent.as_deref().map_or_else(String::new, |file| format!("{}: ", shown(file)));
    let mut casting = match several {
        Some(Value::Table(agents)) => {
            let first = table.remove("first").and_then(|first| first.as_str().map(str::to_owned));
            let first = first.or_else(|| agents.keys().next().cloned()).unwrap_or_default();
            if let Some(other) = table.keys().next() {
                let message =
                    format!("{name}`{other}` is not allowed next to `agents` and `first`");
                return Err(Failure::BadData(message));
            }
            let mut casting = RunSpec::single_agent(AgentConfig::smart(""), Vec::new());
            casting.agents.clear();
            for (agent, said) in agents {
                let Value::Table(mut said) = said else {
                    return Err(Failure::BadData(format!("{name}agents.{agent} must be a table")));
                };
                said.entry("name").or_insert_with(|| Value::String(agent.clone()));
                let model = model.filter(|_| agent == first);
                let agent = one(said, model, &format!("{name}agents.{agent}: "))?;
                casting.agents.insert(agent.name.clone(), agent);
            }
            casting.first = first.into();
            casting
        }
        Some(_) => return Err(Failure::BadData(format!("{name}`agents` must be a table"))),
        None => RunSpec::single_agent(one(table, model, &name)?, Vec::new()),
    };
    for agent in casting.agents.values_mut() {
        agent.human_in_the_loop.approve.extend(approve.iter().map(|tool| Name::from(&**tool)));
    }
    Ok(casting)
}

/// Tools declared by the file and the command line.
#[derive(Default)]
pub(crate) struct Tools {
    programs: Vec<Arc<dyn Tool>>,
    /// MCP servers and HTTP endpoints.
    elsewhere: ToolDeclarations,
}

impl Tools {
    /// Collects the declared tools; opens no connection yet.
    pub(crate) fn of(using: &AgentArgs) -> Result<Self, Failure> {
        let mut tools = Self::default();
        if let Some(file) = &using.agent {
            tools.read(file)?;
        }
        for text in &using.tool {
            if text.starts_with("mcp:") || text.starts_with("http:") {
                let line = ToolDeclarations::line(text, &env_variable)
                    .map_err(|problems| Failure::Usage(format!("invalid --tool: {problems}")))?;
                tools.elsewhere = tools.elsewhere.merge(line);
            } else {
                tools.add(parse_program(text)?, Failure::Usage)?;
            }
        }
        Ok(tools)
    }

    fn read(&mut self, file: &Path) -> Result<(), Failure> {
        let name = shown(file);
        let mut table = read(file)?;
        let listed = match table.remove("tools") {
            None => Vec::new(),
            Some(Value::Array(listed)) => listed,
            Some(_) => {
                return Err(Failure::BadData(format!("{name}: write each tool as [[tools]]")));
            }
        };
        for tool in listed {
            self.add(parse_listed_program(tool, &name)?, |problem| {
                Failure::BadData(format!("{name}: {problem}"))
            })?;
        }
        let mut others: Vec<&str> = table.keys().map(String::as_str).collect();
        others.retain(|key| !EXTERNAL_TOOL_KEYS.contains(key));
        others.push("tools");
        let declared = ToolDeclarations::toml(&text_of(file)?, &others, &env_variable);
        let declared =
            declared.map_err(|problems| Failure::BadData(format!("{name}: {problems}")))?;
        self.elsewhere = std::mem::take(&mut self.elsewhere).merge(declared);
        Ok(())
    }

    fn add(
        &mut self,
        program: ShellTool,
        bad: impl FnOnce(String) -> Failure,
    ) -> Result<(), Failure> {
        let name = program.spec().name;
        if self.programs.iter().any(|known| known.spec().name == name) {
            let name = plain(&name);
            return Err(bad(format!("two tools are named {name}; rename one of them")));
        }
        self.programs.push(Arc::new(program));
        Ok(())
    }

    /// Connects to the servers and returns all tools.
    pub(crate) async fn open(self) -> Result<Vec<Arc<dyn Tool>>, Failure> {
        let mut tools = self.programs;
        let opened = self.elsewhere.open().await;
        tools.extend(opened.map_err(|error| Failure::Outside(anyhow::anyhow!(error)))?);
        Ok(tools)
    }
}

/// Returns an environment variable if it is set and readable.
fn env_variable(name: &str) -> Option<String> {
    variable(name).ok().flatten()
}

fn parse_listed_program(tool: Value, file: &str) -> Result<ShellTool, Failure> {
    let bad = |problem: String| Failure::BadData(format!("{file}: tools: {problem}"));
    let Value::Table(mut said) = tool else { return Err(bad("a tool must be a table".to_owned())) };
    let command = said.remove("command");
    let command = command.as_ref().and_then(Value::as_str).map(str::to_owned);
    let spec: ToolSpec = from_toml(&said).map_err(bad)?;
    let missing = || bad(format!("{} has no `command`", spec.name));
    let command = command.ok_or_else(missing)?;
    Ok(ShellTool::new(spec, command))
}

/// Parses a tool given as `NAME=COMMAND`.
fn parse_program(text: &str) -> Result<ShellTool, Failure> {
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
    Ok(ShellTool::new(spec, command))
}

/// Builds one agent from its table.
fn one(mut said: Table, model: Option<&str>, place: &str) -> Result<AgentConfig, Failure> {
    if let Some(model) = model {
        said.insert("model".to_owned(), Value::String(model.to_owned()));
    }
    if !said.contains_key("model") {
        return Err(Failure::Usage(format!(
            "{place}no model is set; use --model, such as --model sim/claude-sonnet-4-5"
        )));
    }
    from_toml(&said).map_err(|problem| Failure::BadData(format!("{place}{problem}")))
}

/// Deserializes a table by its JSON names. Errors omit the position, which would refer to the
/// generated JSON.
fn from_toml<T: serde::de::DeserializeOwned>(said: &Table) -> Result<T, String> {
    if let Some(member) = said.iter().find_map(|(key, value)| find_non_finite(key, value)) {
        return Err(format!("{member} is not a finite number"));
    }
    let said = serde_json::to_value(said).map_err(|error| error.to_string())?;
    serde_json::from_value(said).map_err(|error| error.to_string())
}

/// Returns the path of a `nan` or `inf` value, which JSON cannot represent.
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

fn read(file: &Path) -> Result<Table, Failure> {
    let text = text_of(file)?;
    toml::from_str(&text).map_err(|error| Failure::BadData(format!("{}: {error}", shown(file))))
}

fn text_of(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    Ok(text.with_context(|| format!("{} cannot be read", shown(file)))?)
}

fn shown(file: &Path) -> String {
    plain(&file.display().to_string())
}
