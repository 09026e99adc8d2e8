//! Renders metrics in the formats that Prometheus reads.

use std::borrow::Cow;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
    /// Prometheus text format 0.0.4, which has no exemplars.
    Prometheus,
}

impl MetricsFormat {
    /// Selects the format for an `Accept` header. Clients that do not ask for OpenMetrics receive
    /// the Prometheus format.
    pub(crate) fn for_accept(accept: Option<&str>) -> Self {
        let accepts = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let is_it = parts.next() == Some("application/openmetrics-text");
            is_it && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "version=0.0.1"))
        };
        let is_open = accept.is_some_and(|accept| accept.split(',').any(accepts));
        if is_open { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the value of the `Content-Type` header.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub(super) fn render(registry: &Registry, format: MetricsFormat) -> String {
    let mut page = String::new();
    // Writing to a string does not fail, and neither do the metrics of this crate.
    if text::encode(&mut page, registry).is_err() {
        return String::new();
    }
    match format {
        MetricsFormat::OpenMetrics => page,
        MetricsFormat::Prometheus => to_prometheus(&page),
    }
}

/// Converts a page from OpenMetrics to the Prometheus format: metadata of counters has the suffix
/// `_total`, whole bucket bounds have no decimals, and there are no units, exemplars or end marker.
fn to_prometheus(page: &str) -> String {
    let mut converted = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, text)) = help.take() {
                let line = format!("# HELP {name}{suffix} {text}\n");
                converted.push_str(&line);
            }
            let line = format!("# TYPE {name}{suffix} {kind}\n");
            converted.push_str(&line);
        } else if !line.starts_with('#') {
            converted.push_str(&with_short_bound(without_exemplar(line)));
            converted.push('\n');
        }
    }
    converted
}

/// Removes the decimals of a whole bucket bound, which is the first label of its line.
fn with_short_bound(line: &str) -> Cow<'_, str> {
    let bucket = line.split_once("_bucket{le=\"");
    let bound = bucket.and_then(|(name, rest)| Some((name, rest.split_once(".0\"")?)));
    match bound {
        Some((name, (whole, rest))) if whole.bytes().all(|byte| byte.is_ascii_digit()) => {
            Cow::Owned(format!("{name}_bucket{{le=\"{whole}\"{rest}"))
        }
        _ => Cow::Borrowed(line),
    }
}

/// Removes the exemplar from the line of a sample. Label values may contain any text, so the search
/// starts after the last label.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'}' if !is_quoted => {
                let (labels, rest) = line.split_at(at);
                let value = rest.split(" # ").next().unwrap_or(rest);
                return line.get(..labels.len() + value.len()).unwrap_or(line);
            }
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_receives_openmetrics_and_other_clients_plain_text() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5,*/*";
        for (accept, expected) in [
            (Some(prometheus), MetricsFormat::OpenMetrics),
            (Some("application/openmetrics-text"), MetricsFormat::OpenMetrics),
            (Some("application/openmetrics-text; q=0, */*"), MetricsFormat::Prometheus),
            (Some("text/plain"), MetricsFormat::Prometheus),
            (Some("*/*"), MetricsFormat::Prometheus),
            (None, MetricsFormat::Prometheus),
        ] {
            assert_eq!(MetricsFormat::for_accept(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn plain_text_has_no_exemplars_units_or_end_marker() {
        let open = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
            a_seconds_bucket{le=\"1.0\",m=\"x\\\"} # {\"} 2 # {trace_id=\"ab\"} 0.5\n\
            # HELP b Number.\n# TYPE b counter\nb_total 3\nb_total{c=\"d # e\"} 4\n# EOF\n";
        let plain = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n\
            a_seconds_bucket{le=\"1\",m=\"x\\\"} # {\"} 2\n\
            # HELP b_total Number.\n# TYPE b_total counter\nb_total 3\nb_total{c=\"d # e\"} 4\n";
        assert_eq!(to_prometheus(open), plain);
    }
}
