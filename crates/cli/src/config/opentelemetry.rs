//! OpenTelemetry's environment variables, as specified in
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use throughline_core::Credential;
use throughline_json::Name;
use throughline_tools::reader::Variables;
use throughline_trace::{OtlpEncoding, OtlpOptions, Sampler, SinkKind};

use super::tracing::{SinkSettings, TracingSettings};

/// Name of the sink that the environment variables declare.
const SINK: &str = "otel";
/// The collector's address if `OTEL_TRACES_EXPORTER` is `otlp` and no variable sets an address.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// Applies the environment variables to the settings of the file. A sink of kind `otlp` in the file
/// takes precedence over the variables that declare a sink.
pub(super) fn apply(settings: &mut TracingSettings, variables: Variables<'_>) {
    for (key, value) in pairs(variables("OTEL_RESOURCE_ATTRIBUTES")) {
        settings.resource.set(&key, &value);
    }
    if let Some(name) = variables("OTEL_SERVICE_NAME") {
        settings.resource.set("service.name", &name);
    }
    if is_true(variables("OTEL_SDK_DISABLED")) {
        settings.sinks.retain(|sink| sink.kind != SinkKind::Otlp);
        return;
    }
    if let Some(name) = variables("OTEL_TRACES_SAMPLER") {
        let argument = variables("OTEL_TRACES_SAMPLER_ARG");
        match Sampler::parse(&name, argument.as_deref()) {
            Ok(sampler) => settings.sampler = sampler,
            Err(problem) => settings.problem = Some(problem),
        }
    }
    if settings.sinks.iter().any(|sink| sink.kind == SinkKind::Otlp) {
        return;
    }
    match sink(variables) {
        Ok(None) => {}
        Ok(Some(sink)) => {
            // The conventions leave content out unless the operator asks for it. A file with its
            // own sinks has its own default.
            if settings.sinks.is_empty() && !settings.sets_log_data {
                settings.log_data = captures_content(variables);
            }
            settings.sinks.push(sink);
        }
        Err(problem) => settings.problem = Some(problem),
    }
}

/// Returns the sink that the variables declare; `None` if they declare none.
fn sink(variables: Variables<'_>) -> Result<Option<SinkSettings>, String> {
    let exporters = variables("OTEL_TRACES_EXPORTER");
    let exporters = exporters.as_deref();
    for exporter in exporters.into_iter().flat_map(|list| list.split(',')).map(str::trim) {
        match exporter {
            "none" => return Ok(None),
            "otlp" => {}
            _ => {
                let message =
                    format!("OTEL_TRACES_EXPORTER is \"{exporter}\"; use \"otlp\" or \"none\"");
                return Err(message);
            }
        }
    }
    let complete = variables("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let is_complete_url = complete.is_some();
    let to = complete.or_else(|| variables("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let to = to.or_else(|| exporters.map(|_| DEFAULT_ENDPOINT.to_owned()));
    let Some(to) = to else { return Ok(None) };
    let of_traces = |name: &str| {
        let traces = variables(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"));
        traces.or_else(|| variables(&format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let encoding = match of_traces("PROTOCOL").as_deref() {
        None | Some("http/protobuf") => OtlpEncoding::Protobuf,
        Some("http/json") => OtlpEncoding::Json,
        Some(other) => {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is \"{other}\"; use \"http/protobuf\" or \
                 \"http/json\", on the collector's HTTP port (4318 by default)"
            ));
        }
    };
    let timeout = match of_traces("TIMEOUT").map(|timeout| (timeout.parse(), timeout)) {
        None => None,
        Some((Ok(milliseconds), _)) => Some(Duration::from_millis(milliseconds)),
        Some((Err(_), timeout)) => {
            let message = format!("OTEL_EXPORTER_OTLP_TIMEOUT is \"{timeout}\"; use milliseconds");
            return Err(message);
        }
    };
    let headers = pairs(of_traces("HEADERS")).into_iter();
    let headers = headers.map(|(name, value)| (Name::from(name), Credential::new(value)));
    let otlp = OtlpOptions { encoding, is_complete_url, timeout, ..OtlpOptions::default() };
    let (name, headers) = (Name::from(SINK), headers.collect());
    Ok(Some(SinkSettings { name, kind: SinkKind::Otlp, to, headers, otlp }))
}

fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Returns whether spans may contain messages.
fn captures_content(variables: Variables<'_>) -> bool {
    let value = variables("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT");
    let value = value.unwrap_or_default().to_ascii_lowercase();
    matches!(&*value, "true" | "span_only" | "span_and_event")
}

/// Parses `key=value` pairs that are separated by commas. Values are percent-encoded. Invalid pairs
/// are ignored, as the specification requires.
fn pairs(text: Option<String>) -> Vec<(String, String)> {
    let decode = |text: &str| {
        percent_decode_str(text.trim()).decode_utf8().ok().map(std::borrow::Cow::into_owned)
    };
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((decode(key)?, decode(value)?)).filter(|(key, _)| !key.is_empty())
    };
    text.unwrap_or_default().split(',').filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use throughline_trace::Resource;

    use super::*;

    fn apply_to(mut settings: TracingSettings, variables: &[(&str, &str)]) -> TracingSettings {
        let find = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        apply(&mut settings, &find);
        settings
    }

    fn apply_alone(variables: &[(&str, &str)]) -> TracingSettings {
        apply_to(TracingSettings::default(), variables)
    }

    fn configured() -> TracingSettings {
        let sink = SinkSettings {
            name: Name::from("own"),
            kind: SinkKind::Otlp,
            to: "http://own".to_owned(),
            headers: Vec::new(),
            otlp: OtlpOptions::default(),
        };
        TracingSettings { sinks: vec![sink], ..TracingSettings::default() }
    }

    #[test]
    fn no_variables_change_nothing() {
        assert_eq!(apply_alone(&[]), TracingSettings::default());
    }

    #[test]
    fn endpoint_headers_and_protocol_declare_a_sink() {
        let settings = apply_alone(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=shop, authorization=Bearer%20abc,bad"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
        ]);
        assert_eq!(settings.problem, None);
        let sink = &settings.sinks[0];
        assert_eq!((&*sink.name, &*sink.to), ("otel", "http://collector:4318"));
        let headers = sink.headers.iter().map(|(name, value)| (&**name, value.reveal()));
        let expected = [("x-team", "shop"), ("authorization", "Bearer abc")];
        assert_eq!(headers.collect::<Vec<_>>(), expected);
        assert_eq!(sink.otlp.encoding, OtlpEncoding::Json);
        assert_eq!(sink.otlp.timeout, Some(Duration::from_millis(1500)));
        assert!(!sink.otlp.is_complete_url);
        // Content is left out unless the operator asks for it.
        assert!(!settings.log_data);
        let settings = apply_alone(&[
            ("OTEL_TRACES_EXPORTER", "otlp"),
            ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
        ]);
        assert!(settings.log_data);
        assert_eq!(settings.sinks[0].to, DEFAULT_ENDPOINT);
    }

    #[test]
    fn variables_for_traces_take_precedence() {
        let settings = apply_alone(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/spans"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2"),
        ]);
        assert_eq!(settings.problem, None);
        let sink = &settings.sinks[0];
        assert_eq!((&*sink.to, sink.otlp.is_complete_url), ("http://b/spans", true));
        assert_eq!((sink.headers.len(), &*sink.headers[0].0), (1, "b"));
    }

    #[test]
    fn configured_collector_takes_precedence_but_keeps_the_resource() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
            ("OTEL_SERVICE_NAME", "shop"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=a%2Cb"),
        ];
        let settings = apply_to(configured(), &variables);
        assert_eq!((settings.sinks.len(), &*settings.sinks[0].to), (1, "http://own"));
        assert!(settings.log_data);
        let mut resource = Resource::default();
        resource.set("service.name", "shop");
        resource.set("team", "a,b");
        assert_eq!(settings.resource, resource);
    }

    #[test]
    fn sdk_disabled_removes_collectors_and_exporter_none_declares_none() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a");
        for disabled in ["true", "TRUE"] {
            let variables = [endpoint, ("OTEL_SDK_DISABLED", disabled)];
            assert!(apply_to(configured(), &variables).sinks.is_empty());
        }
        assert_eq!(apply_alone(&[endpoint, ("OTEL_SDK_DISABLED", "1")]).sinks.len(), 1);
        assert!(apply_alone(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).sinks.is_empty());
    }

    #[test]
    fn sampler_is_read_and_invalid_values_are_reported() {
        let ratio = [
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let expected = Sampler::parse("parentbased_traceidratio", Some("0.25")).unwrap();
        assert_eq!(apply_alone(&ratio).sampler, expected);
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a");
        for (variable, value) in [
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ] {
            let problem = apply_alone(&[endpoint, (variable, value)]).problem.unwrap();
            assert!(problem.contains(variable) && problem.contains(value), "{problem}");
        }
    }
}
