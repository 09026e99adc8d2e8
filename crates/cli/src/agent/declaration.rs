//! Reads an agent declaration (`agent.toml`) and merges it with the command-line options.

use std::path::Path;
use std::sync::Arc;

use throughline_agent::{AgentConfig, RunSpec, Tool, ToolSpec};
use throughline_json::{Json, Name};
use throughline_tools::ToolDeclarations;
use toml::{Table, Value};

use super::agent_file::{AgentFile, InvalidKey, from_toml};
use super::program::ShellTool;
use crate::args::AgentArgs;
use crate::config::environment::readable_variable;
use crate::print::failure::{Failure, Result};
use crate::print::text::plain;

/// Top-level keys of an agent file that declare external tools.
const EXTERNAL_TOOL_KEYS: [&str; 2] = ["http", "mcp"];

/// Builds the run specification from the agent file and the command-line options.
pub(crate) fn run_spec(
    using: &AgentArgs,
    model: Option<&str>,
    approve: &[String],
) -> Result<RunSpec> {
    let file = using.agent.as_deref().map(AgentFile::read).transpose()?.unwrap_or_default();
    let mut table = file.table.clone();
    table.retain(|key, _| key != "tools" && !EXTERNAL_TOOL_KEYS.contains(&key));
    let mut spec = match table.remove("agents") {
        Some(Value::Table(agents)) => {
            let first = table.remove("first").and_then(|first| first.as_str().map(str::to_owned));
            let first = first.or_else(|| agents.keys().next().cloned()).unwrap_or_default();
            if let Some(other) = table.keys().next() {
                let problem = format!("`{other}` is not allowed next to `agents` and `first`");
                return Err(file.invalid(std::slice::from_ref(other), &problem));
            }
            let mut spec = RunSpec::single_agent(AgentConfig::smart(""), Vec::new());
            spec.agents.clear();
            for (agent, value) in agents {
                let path = ["agents".to_owned(), agent.clone()];
                let Value::Table(mut table) = value else {
                    return Err(file.invalid(&path, &format!("agents.{agent} must be a table")));
                };
                table.entry("name").or_insert_with(|| Value::String(agent.clone()));
                let model = model.filter(|_| agent == first);
                let agent = agent_config(table, model, &file, &path)?;
                spec.agents.insert(agent.name.clone(), agent);
            }
            spec.first = first.into();
            spec
        }
        Some(_) => return Err(file.invalid(&["agents".to_owned()], "`agents` must be a table")),
        None => RunSpec::single_agent(agent_config(table, model, &file, &[])?, Vec::new()),
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
        const KEY: &str = "tools";
        let file = AgentFile::read(file)?;
        let listed: &[Value] = match file.table.get(KEY) {
            None => &[],
            Some(Value::Array(listed)) => listed,
            Some(_) => {
                let problem = "`tools` must be a list; write each tool as [[tools]]";
                return Err(file.invalid(&[KEY.to_owned()], problem));
            }
        };
        for (index, tool) in listed.iter().enumerate() {
            let mut path = vec![KEY.to_owned(), index.to_string()];
            let program = parse_listed_program(tool);
            let program = program.map_err(|InvalidKey { path: inner, problem }| {
                file.invalid(&[path.clone(), inner].concat(), &format!("tools: {problem}"))
            })?;
            path.push("name".to_owned());
            self.add(program, |problem| file.invalid(&path, &problem))?;
        }
        let mut others: Vec<&str> = file.table.keys().map(String::as_str).collect();
        others.retain(|key| !EXTERNAL_TOOL_KEYS.contains(key));
        let declared = ToolDeclarations::toml(&file.text, &others, &readable_variable);
        let declared = declared.map_err(|problems| file.invalid_tools(&problems))?;
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

fn parse_listed_program(tool: &Value) -> Result<ShellTool, InvalidKey> {
    let invalid = |problem: String| InvalidKey { path: Vec::new(), problem };
    let Value::Table(table) = tool else {
        return Err(invalid("each tool must be a table; write it as [[tools]]".to_owned()));
    };
    let mut table = table.clone();
    let command = table.remove("command");
    let spec: ToolSpec = from_toml(&table)?;
    let Some(Value::String(command)) = command else {
        return Err(invalid(format!("the tool {} has no `command`", spec.name)));
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

/// Builds the configuration of one agent from its TOML table, which is at `path` in the file.
fn agent_config(
    mut table: Table,
    model: Option<&str>,
    file: &AgentFile,
    path: &[String],
) -> Result<AgentConfig> {
    let label = if path.is_empty() { String::new() } else { format!("{}: ", path.join(".")) };
    if let Some(model) = model {
        table.insert("model".to_owned(), Value::String(model.to_owned()));
    }
    if !table.contains_key("model") {
        let prefix = file.prefix(path);
        return Err(Failure::Usage(format!(
            "{prefix}{label}no model is set; use --model, such as --model sim/claude-sonnet-5-5"
        )));
    }
    from_toml(&table).map_err(|InvalidKey { path: inner, problem }| {
        file.invalid(&[path, inner.as_slice()].concat(), &format!("{label}{problem}"))
    })
}
