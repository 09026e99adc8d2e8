//! The agents and tools of a run. They are declared before the run starts and never change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use throughline_core::{TokenCounter, Tool as OfferedTool, matches_pattern};
use throughline_json::{Json, Name};
use throughline_spec::{ResolvedReasoning, TracingConfig};

use crate::config::{AgentConfig, Agents, InvalidConfig};
use crate::limits::AgentLimits;
use crate::plan::MANAGE_TODO_LIST;
use crate::question::ASK_USER_QUESTION;
use crate::tool::ToolSpec;

/// Name of the tool that the model uses to retrieve an archived tool result.
pub const GET_TOOL_RESPONSE: &str = "get_tool_response";

/// Declaration of the agents and tools of a run, as stored with the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunSpec {
    /// Name of the agent that starts the run.
    pub first: Name,
    /// Declarations of all agents, by name.
    pub agents: Agents,
    /// Tools that all agents of the run may use.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// Names of the models whose Seals are bound to the whole prefix before them.
    #[serde(default)]
    pub prefix_bound: BTreeSet<Name>,
    /// Data that the caller attaches to the run, stored verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Json>,
    /// Values for the `ctx` of the Thread, which the run's tools can read. When the run starts,
    /// they are moved to the documented state, where they replace values with the same keys. Keys
    /// that start with `__` are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ctx: BTreeMap<Name, Json>,
    /// Tracing settings of this run, as a `TracingConfig` JSON document. They replace the settings
    /// of the agent that starts the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Json>,
}

impl RunSpec {
    /// Creates the declaration of a run with a single agent and that agent's tools.
    pub fn single_agent(agent: AgentConfig, tools: Vec<ToolSpec>) -> Self {
        let first = agent.name.clone();
        let agents = Agents::from([(first.clone(), agent)]);
        let (prefix_bound, note, ctx, tracing) = (BTreeSet::new(), None, BTreeMap::new(), None);
        Self { first, agents, tools, prefix_bound, note, ctx, tracing }
    }
}

/// Validated agents and tools of a run, with defaults applied.
pub struct ResolvedRun {
    /// The declaration that was validated.
    pub casting: RunSpec,
    roles: BTreeMap<Name, ResolvedAgent>,
    checks: BTreeMap<Name, Validator>,
    counter: Arc<dyn TokenCounter>,
}

/// One agent with all defaults applied.
#[derive(Debug)]
pub(crate) struct ResolvedAgent {
    pub(crate) config: AgentConfig,
    pub(crate) limits: AgentLimits,
    pub(crate) reasoning: ResolvedReasoning,
    pub(crate) output: Option<Validator>,
    /// Tools offered to the model, in a fixed order.
    pub(crate) offered: Vec<OfferedTool>,
}

impl std::fmt::Debug for ResolvedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cast").field("casting", &self.casting).finish_non_exhaustive()
    }
}

impl ResolvedRun {
    /// Validates a declaration and applies defaults. `counter` estimates the token counts of the
    /// run.
    pub fn new(casting: RunSpec, counter: Arc<dyn TokenCounter>) -> Result<Self, InvalidConfig> {
        if !casting.agents.contains_key(&casting.first) {
            let problem = format!("is not a declared agent; {}", names(&casting.agents));
            return Err(InvalidConfig::new("first", problem));
        }
        if let Some(key) = casting.ctx.keys().find(|key| is_reserved_key(key)) {
            let problem =
                "is not a valid key; use a key that is not empty and does not start with `__`";
            return Err(InvalidConfig::new(format!("ctx.{key}"), problem));
        }
        check_tracing(casting.tracing.as_ref())?;
        let any_object = Json::from(&serde_json::json!({"type": "object"}));
        let (builtins, mut checks) = (builtins(), BTreeMap::new());
        for spec in casting.tools.iter().chain(&builtins) {
            let field = format!("tools.{}", spec.name);
            let check = validator(spec.schema.as_ref().unwrap_or(&any_object), &field)?;
            let is_declared_before = checks.insert(spec.name.clone(), check).is_some();
            let is_reserved = builtins.iter().any(|builtin| builtin.name == spec.name);
            if spec.name.is_empty() || is_declared_before && is_reserved {
                let problem = "is a reserved tool name; rename the tool";
                return Err(InvalidConfig::new(field, problem));
            }
            if is_declared_before {
                let problem = "is declared twice; rename one of the tools";
                return Err(InvalidConfig::new(field, problem));
            }
        }
        let mut roles = BTreeMap::new();
        for (name, config) in &casting.agents {
            roles.insert(name.clone(), ResolvedAgent::new(name, config, &casting)?);
        }
        Ok(Self { casting, roles, checks, counter })
    }

    pub(crate) fn agent(&self, agent: &str) -> Option<&ResolvedAgent> {
        self.roles.get(agent)
    }

    /// Returns the specification of a tool that the runner or the caller executes; `None` for
    /// built-in tools.
    pub(crate) fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.casting.tools.iter().find(|spec| *spec.name == *name)
    }

    /// Validates the arguments of a call against the tool's schema. The error lists the violations.
    pub(crate) fn check(&self, tool: &str, args: &Json) -> Result<(), String> {
        let Some(validator) = self.checks.get(tool) else { return Ok(()) };
        let value = serde_json::from_slice(args.bytes())
            .map_err(|error| format!("the arguments are not JSON: {error}"))?;
        check_schema(validator, &value)
    }

    pub(crate) fn tokens(&self, text: &str) -> u64 {
        self.counter.count(text)
    }

    /// Returns whether Seals of this model are bound to the whole prefix before them.
    pub(crate) fn is_prefix_bound(&self, model: &str) -> bool {
        self.casting.prefix_bound.contains(model)
    }
}

impl ResolvedAgent {
    fn new(name: &Name, config: &AgentConfig, casting: &RunSpec) -> Result<Self, InvalidConfig> {
        let of = |error: InvalidConfig| InvalidConfig {
            field: format!("agents.{name}.{}", error.field).into(),
            ..error
        };
        if config.name != *name {
            let problem = "must match the agent's key in `agents`";
            return Err(of(InvalidConfig::new("name", problem)));
        }
        if config.model.is_empty() {
            return Err(of(InvalidConfig::new("model", "is empty; name a model")));
        }
        for handoff in &config.handoffs {
            let (to, agents) = (&handoff.to, &casting.agents);
            if !agents.contains_key(to) {
                let problem = format!("{to} is not a declared agent; {}", names(agents));
                return Err(of(InvalidConfig::new("handoffs", problem)));
            }
        }
        check_tracing(config.tracing.as_ref()).map_err(of)?;
        let output = config.output.as_ref();
        let output = output.map(|output| validator(&output.schema, "output.schema")).transpose();
        Ok(Self {
            limits: config.resolved_limits(),
            reasoning: config.resolved_reasoning().map_err(of)?,
            output: output.map_err(of)?,
            offered: offered_tools(config, casting),
            config: config.clone(),
        })
    }

    /// Returns whether each call of this tool needs a person's approval.
    pub(crate) fn needs_approval(&self, spec: &ToolSpec) -> bool {
        let listed = &self.config.human_in_the_loop.approve;
        spec.needs_approval || listed.iter().any(|pattern| matches_pattern(pattern, &spec.name))
    }

    /// Returns the agent that takes over the conversation when the model calls this handoff tool.
    pub(crate) fn handoff(&self, tool: &str) -> Option<&Name> {
        let handoff = self.config.handoffs.iter().find(|handoff| *handoff.tool() == *tool);
        handoff.map(|handoff| &handoff.to)
    }
}

/// Builds the list of tools for the model. The list and its order never change, so the prefix
/// before the model's Seals stays stable.
fn offered_tools(config: &AgentConfig, casting: &RunSpec) -> Vec<OfferedTool> {
    let offered = |ToolSpec { name, description, schema, .. }: ToolSpec| {
        let any = || Json::from(&serde_json::json!({"type": "object", "properties": {}}));
        let schema = Some(schema.unwrap_or_else(any));
        OfferedTool { name, description, schema, hosted: false, native: None }
    };
    let builtins = builtins().into_iter().filter(|spec| match &*spec.name {
        ASK_USER_QUESTION => config.human_in_the_loop.ask_user.is_some(),
        MANAGE_TODO_LIST => config.is_planning_enabled(),
        _ => config.is_compaction_enabled(),
    });
    let handoffs = config.handoffs.iter().map(|handoff| {
        let usual = || format!("Hands the conversation over to {}.", handoff.to).into();
        let description: Name = handoff.description.clone().unwrap_or_else(usual);
        let schema = Json::from(&serde_json::json!({
            "type": "object",
            "properties": {"reason": {"type": "string", "description": "Why, in a sentence."}},
            "additionalProperties": false
        }));
        ToolSpec::new(handoff.tool()).description(description).schema(schema)
    });
    let specs = casting.tools.iter().cloned().chain(builtins).chain(handoffs);
    specs.map(offered).collect()
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

/// Returns whether only the runtime may set this key of `ctx`.
pub(crate) fn is_reserved_key(key: &str) -> bool {
    key.is_empty() || key.starts_with("__")
}

fn check_tracing(document: Option<&Json>) -> Result<(), InvalidConfig> {
    let parsed = document.map(TracingConfig::parse).transpose();
    parsed.map(drop).map_err(|error| InvalidConfig::new("tracing", error.to_string()))
}

fn validator(schema: &Json, field: &str) -> Result<Validator, InvalidConfig> {
    let invalid = |problem: String| {
        InvalidConfig::new(field, format!("is not a valid JSON Schema: {problem}"))
    };
    let schema = serde_json::from_slice(schema.bytes());
    let schema = schema.map_err(|error| invalid(error.to_string()))?;
    jsonschema::validator_for(&schema).map_err(|error| invalid(error.to_string()))
}

/// Validates a value against a schema. The error lists the first violations with their JSON paths.
pub(crate) fn check_schema(schema: &Validator, value: &serde_json::Value) -> Result<(), String> {
    let describe = |error: jsonschema::ValidationError<'_>| {
        let path = error.instance_path().to_string();
        if path.is_empty() { error.to_string() } else { format!("{path}: {error}") }
    };
    let problems: Vec<String> = schema.iter_errors(value).take(4).map(describe).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn names(agents: &Agents) -> String {
    let names: Vec<&str> = agents.keys().map(|name| &**name).collect();
    format!("the agents are {}", names.join(", "))
}

/// Token counter that assumes four bytes per token. This counter is used if no other counter is
/// configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct LengthTokenCounter;

impl TokenCounter for LengthTokenCounter {
    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
    }
}
