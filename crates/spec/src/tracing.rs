//! `TracingConfig`: an agent's or a run's settings for its traces.
//!
//! The settings are stored with the agent, so they never contain credentials. A sink that needs a
//! credential is declared where the process is configured, and the settings refer to it by name.

use throughline_json::{self as json, Fields, InvalidDocument, Json, Name, words};

words! {
    /// When a trace is delivered.
    TracingMode {
        /// Once, as a whole, when the run ends.
        Batched = "batched",
        /// In batches, while the run is in progress.
        Streaming = "streaming",
    }

    /// The family of a sink.
    TraceSinkType {
        /// A folder with one subfolder per trace.
        File = "file",
        /// An HTTP endpoint that accepts traces as JSON.
        Http = "http",
        /// Cognipeer's console.
        Cognipeer = "cognipeer",
        /// An OpenTelemetry collector.
        Otlp = "otlp",
        /// A sink that the process implements.
        Custom = "custom",
    }
}

/// Settings for the traces of an agent or of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// Whether traces are recorded.
    pub enabled: bool,
    /// When traces are delivered; by default, the mode of the process.
    pub mode: Option<TracingMode>,
    /// The conversation id in the traces; by default, the id of the Thread.
    pub thread_id: Option<Name>,
    /// `false` leaves the text of messages, Thoughts and tool calls out of the traces.
    pub log_data: Option<bool>,
    /// The only sink that receives the traces; by default, the sinks of the process.
    pub sink: Option<TraceSinkConfig>,
}

/// A reference to a sink: the name of a sink that the process declares, or the address of a sink
/// that needs no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSinkConfig {
    /// The family of the sink.
    pub kind: TraceSinkType,
    /// The name of a sink that the process declares.
    pub name: Option<Name>,
    /// The folder of a file sink.
    pub path: Option<Name>,
    /// The URL of an HTTP endpoint or of a collector.
    pub url: Option<Name>,
}

impl TracingConfig {
    /// Creates settings that turn traces on or off and change nothing else.
    pub fn new(enabled: bool) -> Self {
        Self { enabled, mode: None, thread_id: None, log_data: None, sink: None }
    }

    /// Parses the settings. An unknown member is an error.
    pub fn parse(document: &Json) -> Result<Self, InvalidDocument> {
        let tree = document.tree();
        let fields = Fields::from_node(tree.root(), "tracing")?;
        fields.refuse_unknown(&["enabled", "mode", "threadId", "logData", "sink"])?;
        let missing = || fields.error("enabled", "is missing; set it to true or false");
        let sink = fields.present("sink").map(|node| {
            let inner = Fields::from_node(node, fields.path("sink"))?;
            TraceSinkConfig::read(&inner)
        });
        Ok(Self {
            enabled: fields.bool("enabled")?.ok_or_else(missing)?,
            mode: fields.string_enum("mode")?,
            thread_id: fields.text("threadId")?,
            log_data: fields.bool("logData")?,
            sink: sink.transpose()?,
        })
    }

    /// Returns the settings as JSON, without absent members.
    pub fn json(&self) -> Json {
        json::object(|out| {
            out.bool("enabled", self.enabled);
            out.maybe_string("mode", self.mode.map(TracingMode::as_str));
            out.maybe_string("threadId", self.thread_id.as_deref());
            out.maybe("logData", self.log_data);
            if let Some(sink) = &self.sink {
                out.object("sink", |out| {
                    out.string("type", sink.kind.as_str());
                    out.maybe_string("name", sink.name.as_deref());
                    out.maybe_string("path", sink.path.as_deref());
                    out.maybe_string("url", sink.url.as_deref());
                });
            }
        })
    }
}

impl TraceSinkConfig {
    /// Creates a reference to a sink that the process declares.
    pub fn named(kind: TraceSinkType, name: impl Into<Name>) -> Self {
        Self { kind, name: Some(name.into()), path: None, url: None }
    }

    fn read(fields: &Fields<'_>) -> Result<Self, InvalidDocument> {
        for key in ["apiKey", "headers"] {
            if fields.present(key).is_some() {
                let problem = "is a credential, which is not stored with an agent; declare the \
                               sink for the process, and write its `name` here";
                return Err(fields.error(key, problem));
            }
        }
        fields.refuse_unknown(&["type", "name", "path", "url"])?;
        let families = "is missing; use file, http, cognipeer, otlp or custom";
        let kind = fields.string_enum("type")?.ok_or_else(|| fields.error("type", families))?;
        let sink = Self {
            kind,
            name: fields.text("name")?,
            path: fields.text("path")?,
            url: fields.text("url")?,
        };
        let address = match kind {
            TraceSinkType::File => Some("path"),
            TraceSinkType::Http | TraceSinkType::Otlp => Some("url"),
            TraceSinkType::Cognipeer | TraceSinkType::Custom => None,
        };
        for (key, value) in [("path", &sink.path), ("url", &sink.url)] {
            if value.is_some() && address != Some(key) {
                let problem = format!("does not apply to a sink of type {kind}");
                return Err(fields.error(key, problem));
            }
            if value.is_some() && sink.name.is_some() {
                return Err(fields.error(key, "cannot be combined with `name`; keep one of them"));
            }
        }
        if sink.name.is_none() && sink.path.is_none() && sink.url.is_none() {
            let alternative = address.map(|key| format!(", or write `{key}`")).unwrap_or_default();
            let problem = format!("is missing; name a sink that the process declares{alternative}");
            return Err(fields.error("name", problem));
        }
        Ok(sink)
    }
}
