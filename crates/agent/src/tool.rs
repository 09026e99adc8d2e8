//! Tools that a model may call, and the trait for implementing them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use throughline_core::{Outcome, Part};
use throughline_json::{Json, Name};

/// Declaration of a tool for the model and the runner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolSpec {
    /// Name that the model uses to call the tool.
    pub name: Name,
    /// Explains to the model when and how to use the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Name>,
    /// JSON Schema of the arguments. Without a schema, any object is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// Whether the tool can safely run twice. Only idempotent tools are repeated after a crash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// Whether a person must approve each call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Whether the caller executes the tool. The run waits for the caller's result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client: bool,
    /// Time in milliseconds after which the runner aborts a call; no timeout by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl ToolSpec {
    /// Creates the declaration of a tool that is not idempotent and needs no approval.
    pub fn new(name: impl Into<Name>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the text that explains to the model when and how to use the tool.
    #[must_use]
    pub fn description(mut self, description: impl Into<Name>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Derives the argument schema from a Rust type.
    #[must_use]
    pub fn arguments<A: JsonSchema>(mut self) -> Self {
        self.schema = Some(schema_of::<A>());
        self
    }

    /// Sets the JSON Schema for the arguments.
    #[must_use]
    pub fn schema(mut self, schema: Json) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Declares that the tool can safely run twice. Interrupted calls of the tool are repeated
    /// after a crash.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Requires a person's approval for each call.
    #[must_use]
    pub fn needs_approval(mut self) -> Self {
        self.needs_approval = true;
        self
    }

    /// Declares that the caller executes the tool instead of the runner.
    #[must_use]
    pub fn client(mut self) -> Self {
        self.client = true;
        self
    }

    /// Sets the time after which the runner aborts a call.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self
    }
}

/// Returns the JSON Schema of a Rust type, with all subschemas inlined.
pub fn schema_of<A: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    schema.remove("$schema");
    Json::from(schema.as_value())
}

/// Future returned by [`Tool::run`].
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolAnswer> + Send + 'a>>;

/// A tool that the runner can execute.
pub trait Tool: Send + Sync {
    /// Returns the declaration shown to models. The runner registers the tool under the declared
    /// name.
    fn spec(&self) -> ToolSpec;

    /// Executes a call. The arguments match the schema.
    fn run<'a>(&'a self, args: &'a Json, context: &'a ToolContext) -> ToolFuture<'a>;
}

/// Information about a tool call, passed to the tool.
#[derive(Clone)]
pub struct ToolContext {
    /// Id of the run that makes the call.
    pub run: Name,
    /// Id of the call. A repeated call keeps its id, so a tool can use the id to detect duplicates.
    pub call: Name,
    /// Name of the agent that makes the call.
    pub agent: Name,
    /// Values that callers stored in the `ctx` of the documented state, by key.
    pub ctx: Arc<BTreeMap<Name, Json>>,
    /// Callback that reports progress to listeners as text.
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

/// Result of a tool call, as stored in the Thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolAnswer {
    /// Whether the call succeeded, failed, was denied, or has an unknown outcome.
    pub outcome: Outcome,
    /// Texts, JSON values and media for the model.
    pub parts: Vec<Part>,
}

impl ToolAnswer {
    /// Creates a successful result that contains one text.
    pub fn text(text: impl Into<Name>) -> Self {
        Self { outcome: Outcome::Ok, parts: vec![Part::Text(text.into())] }
    }

    /// Creates a successful result that contains a JSON value as text.
    pub fn value(value: &Json) -> Self {
        Self { outcome: Outcome::Ok, parts: vec![Part::Text(Name::from(value.as_str()))] }
    }

    /// Creates a failed result. The model receives the reason.
    pub fn error(reason: impl Into<Name>) -> Self {
        Self { outcome: Outcome::Error, parts: vec![Part::Text(reason.into())] }
    }

    /// Creates the result of a call that was denied.
    pub(crate) fn denied(reason: impl Into<Name>) -> Self {
        Self { outcome: Outcome::Denied, ..Self::error(reason) }
    }

    /// Creates the result of a call that may or may not have taken effect.
    pub(crate) fn unknown(reason: impl Into<Name>) -> Self {
        Self { outcome: Outcome::Unknown, ..Self::error(reason) }
    }

    /// Returns the texts and JSON values joined into one string, without media.
    pub fn to_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.to_string()),
            Part::Value(value) | Part::Unknown(_, value) => Some(value.as_str().to_owned()),
            Part::Media(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A tool implemented by a Rust function. Created by [`function_tool`].
pub struct FunctionTool {
    spec: ToolSpec,
    run: Box<dyn Fn(&Json) -> ToolFuture<'static> + Send + Sync>,
}

/// Creates a tool from a function. The argument schema is derived from the type `A`.
pub fn function_tool<A, F, W>(spec: ToolSpec, function: F) -> FunctionTool
where
    A: JsonSchema + DeserializeOwned,
    F: Fn(A) -> W + Send + Sync + 'static,
    W: Future<Output = ToolAnswer> + Send + 'static,
{
    let run = move |args: &Json| -> ToolFuture<'static> {
        match serde_json::from_slice(args.bytes()) {
            Ok(args) => Box::pin(function(args)),
            Err(error) => {
                let answer = ToolAnswer::error(format!("cannot parse the arguments: {error}"));
                Box::pin(std::future::ready(answer))
            }
        }
    };
    FunctionTool { spec: spec.arguments::<A>(), run: Box::new(run) }
}

impl Tool for FunctionTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, _about: &'a ToolContext) -> ToolFuture<'a> {
        (self.run)(args)
    }
}
