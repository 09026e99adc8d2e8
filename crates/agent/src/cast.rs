//! Who takes part in a run, and what they may use: all that is declared before it begins and does not change while it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throughline_core::{
    Json, Name, Reflection, ResolvedReasoning, TokenCounter, Tool as Offered, fits,
};

use crate::config::{AgentConfig, Agents, InvalidConfig};
use crate::limits::AgentLimits;
use crate::plan::MANAGE_TODO_LIST;
use crate::question::ASK_USER_QUESTION;
use crate::tool::ToolSpec;

/// The tool by which the model asks for an answer that was archived.
pub const GET_TOOL_RESPONSE: &str = "get_tool_response";

/// Who takes part in a run, as it is kept with the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Casting {
    /// The agent that begins.
    pub first: Name,
    /// The agents.
    pub agents: Agents,
    /// The tools that all of them may use.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// The models whose seals are bound to all that was sent before them.
    #[serde(default)]
    pub prefix_bound: BTreeSet<Name>,
    /// What whoever began the run wants to find with it, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Json>,
}

impl Casting {
    /// One agent, with its tools.
    pub fn solo(agent: AgentConfig, tools: Vec<ToolSpec>) -> Self {
        let first = agent.name.clone();
        let agents = Agents::from([(first.clone(), agent)]);
        Self { first, agents, tools, prefix_bound: BTreeSet::new(), note: None }
    }
}

/// Who takes part in a run, checked and ready.
pub struct Cast {
    /// What it was made from.
    pub casting: Casting,
    roles: BTreeMap<Name, Part>,
    checks: BTreeMap<Name, jsonschema::Validator>,
    counter: Arc<dyn TokenCounter>,
}

/// One agent, with what is not said filled in.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) config: AgentConfig,
    pub(crate) limits: AgentLimits,
    pub(crate) reasoning: ResolvedReasoning,
    pub(crate) output: Option<jsonschema::Validator>,
    /// What the model is told it may use.
    pub(crate) offered: Vec<Offered>,
}

impl std::fmt::Debug for Cast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cast").field("casting", &self.casting).finish_non_exhaustive()
    }
}

impl Cast {
    /// Checks who takes part. `counter` counts the tokens of this run alone.
    pub fn new(casting: Casting, counter: Arc<dyn TokenCounter>) -> Result<Self, InvalidConfig> {
        if !casting.agents.contains_key(&casting.first) {
            let problem = format!("there is no agent of that name: {}", names(&casting.agents));
            return Err(InvalidConfig::new("first", problem));
        }
        let mut checks = BTreeMap::new();
        for spec in &casting.tools {
            let field = || format!("tools.{}", spec.name);
            if is_builtin(&spec.name) || spec.name.is_empty() {
                return Err(InvalidConfig::new(field(), "is a name that no tool may have"));
            }
            let validator = match &spec.schema {
                Some(schema) => validator(schema, &field())?,
                None => validator(&Json::from(&serde_json::json!({"type": "object"})), &field())?,
            };
            if checks.insert(spec.name.clone(), validator).is_some() {
                return Err(InvalidConfig::new(field(), "two tools have that name"));
            }
        }
        let mut roles = BTreeMap::new();
        for (name, config) in &casting.agents {
            roles.insert(name.clone(), Part::new(name, config, &casting)?);
        }
        for builtin in builtins() {
            let schema = builtin.schema.as_ref();
            let schema = schema.ok_or_else(|| InvalidConfig::new("tools", "has no schema"))?;
            checks.insert(builtin.name.clone(), validator(schema, &builtin.name)?);
        }
        Ok(Self { casting, roles, checks, counter })
    }

    pub(crate) fn part(&self, agent: &str) -> Option<&Part> {
        self.roles.get(agent)
    }

    /// What is known of a tool, if it is one that somebody runs.
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.casting.tools.iter().find(|spec| *spec.name == *name)
    }

    /// What is wrong with the arguments of a call, and where.
    pub(crate) fn check(&self, tool: &str, args: &Json) -> Result<(), String> {
        let Some(validator) = self.checks.get(tool) else { return Ok(()) };
        let value = serde_json::from_slice(args.bytes())
            .map_err(|error| format!("the arguments are not JSON: {error}"))?;
        let problems: Vec<String> =
            validator.iter_errors(&value).take(4).map(|e| told(&e)).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    /// How many tokens a text has, by this run's reckoning.
    pub(crate) fn tokens(&self, text: &str) -> u64 {
        self.counter.count(text)
    }

    /// Whether a model's seals are bound to all that was sent before them.
    pub(crate) fn is_prefix_bound(&self, model: &str) -> bool {
        self.casting.prefix_bound.contains(model)
    }
}

impl Part {
    fn new(name: &Name, config: &AgentConfig, casting: &Casting) -> Result<Self, InvalidConfig> {
        let of = |error: InvalidConfig| InvalidConfig {
            field: format!("agents.{name}.{}", error.field).into(),
            ..error
        };
        if config.name != *name {
            return Err(of(InvalidConfig::new("name", "is not the name that it is listed under")));
        }
        if config.model.is_empty() {
            return Err(of(InvalidConfig::new("model", "is empty: name the model to ask")));
        }
        for handoff in &config.handoffs {
            if !casting.agents.contains_key(&handoff.to) {
                let problem = format!("{} is no agent: {}", handoff.to, names(&casting.agents));
                return Err(of(InvalidConfig::new("handoffs", problem)));
            }
        }
        let output = config.output.as_ref();
        let output = output.map(|output| validator(&output.schema, "output.schema")).transpose();
        Ok(Self {
            limits: config.resolved_limits(),
            reasoning: config.resolved_reasoning().map_err(of)?,
            output: output.map_err(of)?,
            offered: offered(config, casting),
            config: config.clone(),
        })
    }

    /// How it reflects, if it does.
    pub(crate) fn reflection(&self) -> Option<&Reflection> {
        self.reasoning.reflection.as_ref()
    }

    /// Whether a person must allow a tool.
    pub(crate) fn needs_approval(&self, spec: &ToolSpec) -> bool {
        let listed = &self.config.human_in_the_loop.approve;
        spec.needs_approval || listed.iter().any(|pattern| fits(pattern, &spec.name))
    }

    /// The agent that a tool hands over to.
    pub(crate) fn handoff(&self, tool: &str) -> Option<&Name> {
        let handoff = self.config.handoffs.iter().find(|handoff| *handoff.tool() == *tool);
        handoff.map(|handoff| &handoff.to)
    }
}

/// What the model is told it may use: always the same, in the same order, so that what stands before its seals does not change.
fn offered(config: &AgentConfig, casting: &Casting) -> Vec<Offered> {
    let own = |spec: &ToolSpec| Offered {
        name: spec.name.clone(),
        description: spec.description.clone(),
        schema: spec
            .schema
            .clone()
            .or_else(|| Some(Json::from(&serde_json::json!({"type": "object", "properties": {}})))),
        hosted: false,
        native: None,
    };
    let builtins = builtins().into_iter().filter(|spec| match &*spec.name {
        ASK_USER_QUESTION => config.human_in_the_loop.ask_user.is_some(),
        MANAGE_TODO_LIST => config.plans(),
        _ => config.summarises(),
    });
    let handoffs = config.handoffs.iter().map(|handoff| {
        let description = handoff.description.clone().unwrap_or_else(|| {
            Name::from(format!("Hands the conversation over to {}.", handoff.to))
        });
        let schema = Json::from(&serde_json::json!({
            "type": "object",
            "properties": {"reason": {"type": "string", "description": "Why, in a sentence."}},
            "additionalProperties": false
        }));
        ToolSpec::new(handoff.tool()).description(description).schema(schema)
    });
    let specs = casting.tools.iter().cloned().chain(builtins).chain(handoffs);
    specs.map(|spec| own(&spec)).collect()
}

fn is_builtin(name: &str) -> bool {
    [ASK_USER_QUESTION, MANAGE_TODO_LIST, GET_TOOL_RESPONSE].contains(&name)
}

fn builtins() -> Vec<ToolSpec> {
    let archived = Json::from(&serde_json::json!({
        "type": "object",
        "properties": {"executionId": {"type": "string", "description": "As the summary names it."}},
        "required": ["executionId"],
        "additionalProperties": false
    }));
    let archived = ToolSpec::new(GET_TOOL_RESPONSE)
        .description("Brings back the answer of an earlier tool call that a summary mentions.")
        .schema(archived);
    vec![crate::plan::spec(), crate::question::spec(), archived]
}

fn validator(schema: &Json, field: &str) -> Result<jsonschema::Validator, InvalidConfig> {
    let invalid =
        |problem: String| InvalidConfig::new(field, format!("is no JSON Schema: {problem}"));
    let schema =
        serde_json::from_slice(schema.bytes()).map_err(|error| invalid(error.to_string()))?;
    jsonschema::validator_for(&schema).map_err(|error| invalid(error.to_string()))
}

fn told(error: &jsonschema::ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
}

/// What is wrong with a value, by a schema, and where.
pub(crate) fn problems(
    validator: &jsonschema::Validator,
    value: &serde_json::Value,
) -> Vec<String> {
    validator.iter_errors(value).take(4).map(|error| told(&error)).collect()
}

fn names(agents: &Agents) -> String {
    let names: Vec<&str> = agents.keys().map(|name| &**name).collect();
    format!("there are {}", names.join(", "))
}

/// Counts a token for every four bytes: for estimates where nobody brings a better counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByLength;

impl TokenCounter for ByLength {
    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
    }
}
