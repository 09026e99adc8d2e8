//! Tools: what a model may call, and who does it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use throughline_core::{Json, Name, Outcome, Part};

/// What there is to know of a tool before it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolSpec {
    /// Its name.
    pub name: Name,
    /// What it does, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Name>,
    /// The JSON Schema of its arguments; without it, any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// Whether running it twice does no more than running it once. Only then is it run again after a crash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// Whether a person must allow it each time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Whether the caller runs it: the run waits for what it returns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client: bool,
    /// How long it may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl ToolSpec {
    /// A tool of that name, which may have effects and runs at once.
    pub fn new(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            description: None,
            schema: None,
            idempotent: false,
            needs_approval: false,
            client: false,
            timeout_ms: None,
        }
    }

    /// The same, with words for the model.
    #[must_use]
    pub fn description(mut self, description: impl Into<Name>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// The same, with arguments of that type.
    #[must_use]
    pub fn arguments<A: JsonSchema>(mut self) -> Self {
        self.schema = Some(schema_of::<A>());
        self
    }

    /// The same, with arguments of that schema.
    #[must_use]
    pub fn schema(mut self, schema: Json) -> Self {
        self.schema = Some(schema);
        self
    }

    /// The same, and running it twice does no more than running it once.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// The same, and a person must allow it each time.
    #[must_use]
    pub fn needs_approval(mut self) -> Self {
        self.needs_approval = true;
        self
    }

    /// The same, run by the caller.
    #[must_use]
    pub fn client(mut self) -> Self {
        self.client = true;
        self
    }

    /// The same, and it may take that long.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self
    }
}

/// The JSON Schema of a Rust type.
pub fn schema_of<A: JsonSchema>() -> Json {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    schema.remove("$schema");
    Json::from(schema.as_value())
}

/// A tool at work.
pub type Working<'a> = Pin<Box<dyn Future<Output = ToolAnswer> + Send + 'a>>;

/// A tool.
pub trait Tool: Send + Sync {
    /// What there is to know of it.
    fn spec(&self) -> ToolSpec;

    /// Runs it. The arguments fit its schema.
    fn run<'a>(&'a self, args: &'a Json, about: &'a ToolContext) -> Working<'a>;
}

/// What a tool may know of why it runs.
#[derive(Clone)]
pub struct ToolContext {
    /// The run.
    pub run: Name,
    /// The call: the same if an idempotent tool is run again.
    pub call: Name,
    /// The agent that calls.
    pub agent: Name,
    /// Tells how far it is.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
}

impl std::fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolContext")
            .field("run", &self.run)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}

/// What a tool answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolAnswer {
    /// How it went.
    pub outcome: Outcome,
    /// What it says.
    pub parts: Vec<Part>,
}

impl ToolAnswer {
    /// It worked, and says this.
    pub fn text(text: impl Into<Name>) -> Self {
        Self { outcome: Outcome::Ok, parts: vec![Part::Text(text.into())] }
    }

    /// It worked, and gives this value.
    pub fn value(value: &Json) -> Self {
        Self { outcome: Outcome::Ok, parts: vec![Part::Text(Name::from(value.as_str()))] }
    }

    /// It failed, for this reason.
    pub fn error(reason: impl Into<Name>) -> Self {
        Self { outcome: Outcome::Error, parts: vec![Part::Text(reason.into())] }
    }

    /// What it says, as text.
    pub fn said(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.to_string()),
            Part::Value(value) | Part::Unknown(_, value) => Some(value.as_str().to_owned()),
            Part::Media(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A tool made of a function.
pub struct FunctionTool<A, F> {
    spec: ToolSpec,
    function: F,
    arguments: std::marker::PhantomData<fn(A)>,
}

/// A tool made of a function that takes its arguments as a type, whose schema the model is told.
pub fn function_tool<A, F, W>(spec: ToolSpec, function: F) -> FunctionTool<A, F>
where
    A: JsonSchema + DeserializeOwned + Send,
    F: Fn(A) -> W + Send + Sync,
    W: Future<Output = ToolAnswer> + Send + 'static,
{
    FunctionTool { spec: spec.arguments::<A>(), function, arguments: std::marker::PhantomData }
}

impl<A, F, W> Tool for FunctionTool<A, F>
where
    A: JsonSchema + DeserializeOwned + Send,
    F: Fn(A) -> W + Send + Sync,
    W: Future<Output = ToolAnswer> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, _about: &'a ToolContext) -> Working<'a> {
        match serde_json::from_slice(args.bytes()) {
            Ok(args) => Box::pin((self.function)(args)),
            Err(error) => {
                let answer = ToolAnswer::error(format!("the arguments cannot be read: {error}"));
                Box::pin(async move { answer })
            }
        }
    }
}
