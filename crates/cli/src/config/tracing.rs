//! `[tracing]`: where traces are sent and what they contain.

use std::time::Duration;

use throughline_core::Credential;
use throughline_json::Name;
use throughline_tools::reader::{Diagnostics, Section};
use throughline_trace::{COGNIPEER_URL, Mode, OtlpOptions, Resource, Sampler, SinkKind, bearer};

use super::shown_variable;

/// Where traces are sent and what they contain.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings of the file")]
pub(crate) struct TracingSettings {
    pub(crate) enabled: bool,
    pub(crate) mode: Mode,
    /// Conversation id for all traces; `None` means the id of the traced thread.
    pub(crate) thread_id: Option<Name>,
    /// Whether traces contain messages, thoughts and tool data.
    pub(crate) log_data: bool,
    /// Whether the file sets `log_data`.
    pub(super) sets_log_data: bool,
    /// Whether common secrets in traces are redacted.
    pub(crate) redact: bool,
    /// Time limit for sending one batch to a sink, including retries.
    pub(crate) patience: Duration,
    pub(crate) sinks: Vec<SinkSettings>,
    /// Attributes of this process for OpenTelemetry collectors.
    pub(crate) resource: Resource,
    /// Selects the traces to send.
    pub(crate) sampler: Sampler,
    /// An invalid environment variable, reported when the sinks are opened.
    pub(crate) problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkSettings {
    pub(crate) name: Name,
    pub(crate) kind: SinkKind,
    pub(crate) to: String,
    pub(crate) headers: Vec<(Name, Credential)>,
    pub(crate) otlp: OtlpOptions,
}

impl Default for TracingSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: Mode::default(),
            thread_id: None,
            log_data: true,
            sets_log_data: false,
            redact: true,
            patience: Duration::from_secs(20),
            sinks: Vec::new(),
            resource: Resource::default(),
            sampler: Sampler::default(),
            problem: None,
        }
    }
}

impl TracingSettings {
    pub(crate) fn is_on(&self) -> bool {
        self.enabled && !self.sinks.is_empty()
    }
}

pub(super) fn read(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> TracingSettings {
    let keys = ["enabled", "mode", "thread_id", "log_data", "redact", "patience", "sinks"];
    section.reject_unknown_keys(&keys, notes);
    let defaults = TracingSettings::default();
    let sinks = section.section("sinks", notes);
    let sinks = sinks.map(|sinks| sinks.sections(notes)).unwrap_or_default();
    TracingSettings {
        enabled: section.flag("enabled", notes).unwrap_or(defaults.enabled),
        mode: section.choice("mode", Mode::ALL, notes).unwrap_or(defaults.mode),
        thread_id: section.text("thread_id", "shop", notes).map(Name::from),
        log_data: section.flag("log_data", notes).unwrap_or(defaults.log_data),
        sets_log_data: section.has("log_data"),
        redact: section.flag("redact", notes).unwrap_or(defaults.redact),
        patience: section.time("patience", notes).unwrap_or(defaults.patience),
        sinks: sinks.iter().filter_map(|(name, section)| sink(name, section, notes)).collect(),
        ..defaults
    }
}

fn sink(name: &str, section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<SinkSettings> {
    let keys = ["kind", "url", "folder", "header", "value", "value_env", "api_key", "api_key_env"];
    section.reject_unknown_keys(&keys, notes);
    if !section.has("kind") {
        let kinds: Vec<&str> = SinkKind::ALL.iter().map(|(kind, _)| *kind).collect();
        let kinds = kinds.join(", ");
        notes.error(section.at, format!("a sink needs a `kind`: one of {kinds}"));
    }
    let kind = section.choice("kind", SinkKind::ALL, notes)?;
    let (key, other, example) = match kind {
        SinkKind::File => ("folder", "url", "traces"),
        SinkKind::Http | SinkKind::Cognipeer => {
            ("url", "folder", "https://traces.example/sessions")
        }
        SinkKind::Otlp => ("url", "folder", "http://127.0.0.1:4318"),
    };
    if section.has(other) {
        let kind = kind.as_str();
        let message =
            format!("a sink of kind {kind} does not take `{other}`: write {key} = \"{example}\"");
        notes.error(section.key_at(other), message);
    }
    let is_cognipeer = kind == SinkKind::Cognipeer;
    let to = section.text(key, example, notes);
    if to.is_none() && !section.has(key) && !is_cognipeer {
        notes.error(section.at, format!("this sink needs `{key}`: write {key} = \"{example}\""));
    }
    // Cognipeer's hosted console has a default URL.
    let is_hosted = is_cognipeer && !section.has(key);
    let to = to.or(is_hosted.then_some(COGNIPEER_URL));
    let key = api_key(section, kind, notes).map(|key| bearer(&Credential::new(key)));
    let headers = header(section, notes).or(key).into_iter().collect();
    if is_hosted && !["api_key", "api_key_env", "header"].iter().any(|key| section.has(key)) {
        let message = "a sink of kind cognipeer needs `api_key_env`: \
                       write api_key_env = \"COGNIPEER_API_KEY\"";
        notes.error(section.at, message.to_owned());
    }
    let (name, otlp) = (Name::from(name), OtlpOptions::default());
    Some(SinkSettings { name, kind, to: to?.to_owned(), headers, otlp })
}

/// Returns the API key of a Cognipeer sink.
fn api_key(section: &Section<'_>, kind: SinkKind, notes: &mut Diagnostics<'_>) -> Option<String> {
    let keys = ["api_key", "api_key_env"];
    if kind != SinkKind::Cognipeer {
        for key in keys.into_iter().filter(|key| section.has(key)) {
            let message = format!("`{key}` applies only to a sink of kind cognipeer: use `header`");
            notes.error(section.key_at(key), message);
        }
        return None;
    }
    if let Some(other) = ["api_key", "header"].into_iter().find(|key| section.has(key))
        && section.has("api_key_env")
    {
        let message = format!("`{other}` is also set: keep only one of them");
        notes.error(section.value_at("api_key_env"), message);
    }
    let value = section.text("api_key", "…", notes).map(str::to_owned);
    value.or_else(|| {
        let variable = section.text("api_key_env", "COGNIPEER_API_KEY", notes)?;
        read_variable(section, "api_key_env", variable, notes)
    })
}

/// Reads an environment variable that a key names, and warns if the variable is not set.
fn read_variable(
    section: &Section<'_>,
    key: &str,
    variable: &str,
    notes: &mut Diagnostics<'_>,
) -> Option<String> {
    let value = (notes.variables)(variable);
    if value.is_none() {
        let message = format!("{} is not set; the header is not sent", shown_variable(variable));
        notes.warning(section.value_at(key), message);
    }
    value
}

/// Returns the additional HTTP header of a sink. The configuration contains the header's value or
/// names an environment variable that holds the value.
fn header(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<(Name, Credential)> {
    let header = section.text("header", "authorization", notes);
    let value = section.text("value", "Bearer …", notes);
    let variable = section.text("value_env", "TRACES_KEY", notes);
    let Some(header) = header else {
        for key in ["value", "value_env"].into_iter().filter(|key| section.has(key)) {
            notes.error(
                section.key_at(key),
                format!("`{key}` needs `header`: write header = \"authorization\""),
            );
        }
        return None;
    };
    let value = match (value, variable) {
        (Some(_), Some(_)) => {
            let message = "`value` is also set: keep only one of them";
            notes.error(section.value_at("value_env"), message);
            None
        }
        (Some(value), None) => Some(value.to_owned()),
        (None, Some(variable)) => read_variable(section, "value_env", variable, notes),
        (None, None) => {
            let message = "`header` needs a `value` or a `value_env`";
            notes.error(section.value_at("header"), message);
            None
        }
    };
    Some((Name::from(header), Credential::new(value?)))
}
