//! Tests of the names, types and labels of the metrics.
//!
//! Source of the `gen_ai_*` metrics: `docs/gen-ai/gen-ai-metrics.md` of
//! <https://github.com/open-telemetry/semantic-conventions-genai>, commit
//! `004902b8cb70aa5ae6ca4ae07132b7daabcd3e10` (see [`gen_ai::SCHEMA_URL`]). Their names in
//! Prometheus follow
//! <https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/>: dots
//! become underscores, and the unit `s` becomes the suffix `_seconds`.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Origin, Reply, StopReason, Tenant, TurnId, UpstreamRequest};
use throughline_testkit::workspace_root;

use super::*;
use crate::telemetry::metrics::page::MetricsFormat::{OpenMetrics, Prometheus};

/// All metrics with their types in the Prometheus format. The names are stable.
const METRICS: [(&str, &str); 24] = [
    ("gen_ai_client_operation_duration_seconds", "histogram"),
    ("gen_ai_client_operation_time_to_first_chunk_seconds", "histogram"),
    ("gen_ai_client_token_usage", "histogram"),
    ("throughline_account_calls_total", "counter"),
    ("throughline_account_cooldowns_total", "counter"),
    ("throughline_call_seconds", "histogram"),
    ("throughline_calls_total", "counter"),
    ("throughline_capture_failures_total", "counter"),
    ("throughline_captures_total", "counter"),
    ("throughline_cost_usd_total", "counter"),
    ("throughline_fallbacks_total", "counter"),
    ("throughline_fates_total", "counter"),
    ("throughline_first_byte_seconds", "histogram"),
    ("throughline_input_transformations_total", "counter"),
    ("throughline_last_reload_timestamp_seconds", "gauge"),
    ("throughline_open_streams", "gauge"),
    ("throughline_open_websockets", "gauge"),
    ("throughline_reloads_total", "counter"),
    ("throughline_retention_deleted_bytes_total", "counter"),
    ("throughline_retention_deleted_total", "counter"),
    ("throughline_retention_runs_total", "counter"),
    ("throughline_retries_total", "counter"),
    ("throughline_tokens_total", "counter"),
    ("throughline_verdicts_total", "counter"),
];

/// Returns the record of a stream from Gemini that ended.
fn stream() -> CallRecord {
    let mut record = CallRecord::new(Tenant::from("default"), None, Wire::OPENAI_CHAT);
    record.node = Some(TurnId(Name::from("call_1")));
    (record.provider, record.model) =
        (Some(Name::from("google")), Some(Name::from("gemini-3-pro")));
    let origin = Arc::new(Origin {
        provider: Name::from("gemini"),
        endpoint: Name::from("https://generativelanguage.googleapis.com/v1beta"),
        account: Name::default(),
        wire: Wire::GEMINI,
        asked: Name::from("gemini-3-pro"),
        answered: Name::from("gemini-3-pro-001"),
        family: Name::from("gemini"),
        routed: None,
    });
    let request = UpstreamRequest {
        endpoint: Name::from("google"),
        model: None,
        method: Name::from("POST"),
        path: Name::from("/v1beta/models/gemini-3-pro:streamGenerateContent"),
        headers: Vec::new(),
        body: Bytes::new(),
        credential: None,
    };
    record.set_sent(&request, &origin);
    record.set_first_byte(200);
    record.is_stream = true;
    let usage = Usage { input: 100, cached: 0, written: 0, output: 20, thought: 5 };
    record.set_reply(&Reply {
        origin,
        usage,
        stop: StopReason::Done,
        id: Some(Name::from("resp_1")),
        items: Vec::new(),
        extras: Vec::new(),
    });
    record
}

fn count(metrics: &Metrics, record: &CallRecord, span: Option<TraceParent>) {
    if record.is_stream {
        metrics.stream_opened();
    }
    let usage = record.usage.unwrap_or_default();
    let used = UsageAmount { calls: 1, unpriced: 0, tokens: usage, pico_usd: 140_000_000 };
    let (took, end) = (Duration::from_millis(30), Instant::now());
    metrics.count(record, &CallFacts { used: &used, reported: record.usage, took, end, span });
}

#[tokio::test]
async fn metrics_have_stable_names_and_types() {
    let metrics = Metrics::default();
    let mut record = stream();
    record.account = Some(Name::from("work"));
    count(&metrics, &record, None);
    metrics.count_cooldown(&Name::from("google"), "work");
    metrics.count_reload(ReloadKind::Config, Some(Timestamp::UNIX_EPOCH));
    metrics.count_retention(RetentionResult::Completed);
    metrics.count_deleted("bodies", 2, 500);
    let labels = [("type", Name::from(OTHER)), ("reason", Name::from(OTHER))];
    metrics.transformations.get_or_create(&labels).inc();
    metrics.verdicts.get_or_create(&[("verdict", Name::from("accept"))]).inc();
    let page = metrics.render(Prometheus, 3, 2);
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut types: Vec<(&str, &str)> = types.collect();
    types.retain(|(name, _)| *name != "throughline_stage_microseconds_total");
    types.sort_unstable();
    assert_eq!(types, METRICS);
    for line in [
        "throughline_calls_total{dialect=\"openai-chat\",provider=\"google\",model=\"gemini-3-pro\",status=\"200\"} 1",
        "throughline_tokens_total{provider=\"google\",model=\"gemini-3-pro\",kind=\"thought\"} 5",
        "throughline_cost_usd_total{provider=\"google\",model=\"gemini-3-pro\"} 0.00014",
        "throughline_fates_total{fate=\"restored\"} 0",
        "throughline_call_seconds_bucket{le=\"1\",dialect=\"openai-chat\",provider=\"google\"} 1",
        "throughline_retention_runs_total{result=\"completed\"} 1",
        "throughline_retention_runs_total{result=\"failed\"} 0",
        "throughline_retention_deleted_total{class=\"bodies\"} 2",
        "throughline_retention_deleted_bytes_total{class=\"bodies\"} 500",
        "throughline_retries_total 3",
        "throughline_open_websockets 2",
        "throughline_open_streams 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
}

#[tokio::test]
async fn gen_ai_metrics_have_the_attributes_and_buckets_of_the_conventions() {
    let metrics = Metrics::default();
    count(&metrics, &stream(), None);
    let mut failed = stream();
    failed.is_stream = false;
    failed.status = Some(429);
    count(&metrics, &failed, None);
    let page = metrics.render(Prometheus, 0, 0);
    let attributes = "gen_ai_operation_name=\"generate_content\",gen_ai_provider_name=\"gcp.gemini\",\
        gen_ai_request_model=\"gemini-3-pro\",gen_ai_response_model=\"gemini-3-pro-001\",\
        server_address=\"generativelanguage.googleapis.com\",server_port=\"443\"";
    for line in [
        format!("gen_ai_client_operation_duration_seconds_count{{{attributes}}} 1"),
        format!(
            "gen_ai_client_operation_duration_seconds_count{{{attributes},error_type=\"429\"}} 1"
        ),
        // Only the stream has a first chunk.
        format!("gen_ai_client_operation_time_to_first_chunk_seconds_count{{{attributes}}} 1"),
        format!("gen_ai_client_token_usage_sum{{{attributes},gen_ai_token_type=\"input\"}} 200.0"),
        format!("gen_ai_client_token_usage_sum{{{attributes},gen_ai_token_type=\"output\"}} 40.0"),
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
    let bounds = |name: &str| -> Vec<f64> {
        let prefix = format!("{name}_bucket{{");
        let lines = page.lines().filter(|line| line.starts_with(&prefix));
        let lines = lines.filter(|line| line.contains(attributes));
        let lines = lines.filter(|line| !line.contains("output") && !line.contains("error_type"));
        let bound = |line: &str| line.split_once("le=\"")?.1.split_once('"')?.0.parse().ok();
        lines.filter_map(bound).filter(|bound: &f64| bound.is_finite()).collect()
    };
    assert_eq!(bounds("gen_ai_client_operation_duration_seconds"), GEN_AI_SECONDS);
    assert_eq!(bounds("gen_ai_client_operation_time_to_first_chunk_seconds"), GEN_AI_SECONDS);
    assert_eq!(bounds("gen_ai_client_token_usage"), GEN_AI_TOKENS);
}

#[tokio::test]
async fn openmetrics_buckets_name_the_span_of_a_call() {
    let metrics = Metrics::default();
    let span = TraceParent { trace: [0xab; 16], span: [0xcd; 8], is_sampled: true };
    count(&metrics, &stream(), Some(span));
    let open = metrics.render(OpenMetrics, 0, 0);
    let exemplar =
        format!(" # {{trace_id=\"{}\",span_id=\"{}\"}} 0.03", "ab".repeat(16), "cd".repeat(8));
    let bucket = open.lines().find(|line| {
        line.starts_with("throughline_call_seconds_bucket") && line.contains("le=\"0.05\"")
    });
    assert!(bucket.unwrap().ends_with(&exemplar), "{open}");
    assert!(open.contains("# TYPE throughline_calls counter\n"), "{open}");
    assert!(open.contains("# UNIT throughline_call_seconds seconds\n"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    let plain = metrics.render(Prometheus, 0, 0);
    assert!(!plain.contains("trace_id") && !plain.contains("# EOF"), "{plain}");
}

#[tokio::test]
async fn model_labels_are_bounded() {
    let metrics = Metrics::default();
    let mut record = stream();
    record.is_stream = false;
    for number in 0..MOST_MODELS + 10 {
        record.model = Some(Name::from(format!("model-{number}")));
        count(&metrics, &record, None);
    }
    let page = metrics.render(Prometheus, 0, 0);
    let calls = page.lines().filter(|line| line.starts_with("throughline_calls_total{"));
    assert!(calls.count() <= MOST_MODELS + 1);
    assert!(page.contains("model=\"other\""));
}

/// Returns the names of metrics in a PromQL expression.
fn metric_names(expression: &str) -> Vec<&str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = expression.split(|character| !is_part(character));
    words
        .filter(|word| word.starts_with("throughline_") || word.starts_with("gen_ai_client_"))
        .collect()
}

/// Returns whether the gateway exports a series with this name.
fn is_exported(series: &str) -> bool {
    METRICS.iter().any(|(name, kind)| match *kind {
        "histogram" => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| series.strip_suffix(suffix) == Some(name)),
        _ => series == *name,
    })
}

#[test]
fn dashboard_and_alerts_query_exported_metrics() {
    let packaging = workspace_root().join("packaging");
    let read = |path: &str| std::fs::read_to_string(packaging.join(path)).unwrap();
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("grafana/throughline.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = HashSet::new();
    let mut queries = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has the id of another panel");
        for key in ["x", "y", "w", "h"] {
            assert!(panel["gridPos"][key].is_u64(), "{title} has no {key}");
        }
        assert!(
            panel["gridPos"]["x"].as_u64().unwrap() + panel["gridPos"]["w"].as_u64().unwrap() <= 24
        );
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} has no query");
        for target in targets {
            queries.push((title.to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    assert!(queries.len() >= 12, "the dashboard has only {} queries", queries.len());
    let alerts: Vec<String> = read("prometheus/alerts.yml")
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: ").map(str::to_owned))
        .collect();
    assert!(alerts.len() >= 6, "{alerts:?}");
    queries.extend(alerts.into_iter().map(|alert| ("alert".to_owned(), alert)));
    for (title, query) in &queries {
        let names = metric_names(query);
        assert!(!names.is_empty() || query.contains("up{"), "{title}: {query} names no metric");
        for name in names {
            assert!(is_exported(name), "{title}: {name} is not exported");
        }
    }
}
