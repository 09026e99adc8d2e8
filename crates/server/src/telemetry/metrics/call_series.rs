//! The time series that count a call. They are looked up once per call, because calls with equal
//! labels share all of them.

use std::sync::OnceLock;

use prometheus_client::metrics::counter::Counter;
use throughline_core::{Usage, Wire, gen_ai};
use throughline_json::Name;
use throughline_replay::{CallRecord, ProviderCall};

use crate::telemetry::metrics::{
    Attributes, CallFacts, Dollars, GenAiMetrics, Histogram, Metrics, observe,
};
use crate::telemetry::usage::UsageAmount;

/// The properties of a call from which the labels of its series follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallLabels {
    pub(super) dialect: Wire,
    pub(super) provider: Name,
    pub(super) model: Name,
    /// The account of a pool.
    pub(super) account: Option<Name>,
    pub(super) status: u16,
    /// The class of the call's error, if it failed.
    pub(super) error: Option<Name>,
    /// The provider's side of the call, if a provider served the call.
    pub(super) served: Option<ServedLabels>,
}

/// The properties of a call that a provider served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServedLabels {
    wire: Wire,
    provider: Name,
    endpoint: Name,
    answered: Option<Name>,
}

impl ServedLabels {
    /// `answered` is the label of the model that the response names.
    pub(super) fn new(call: &ProviderCall<'_>, answered: Option<Name>) -> Self {
        let (wire, provider) = (call.origin.wire.clone(), call.origin.provider.clone());
        Self { wire, provider, endpoint: call.origin.endpoint.clone(), answered }
    }
}

/// The series of calls with equal labels. A series that not every call adds to is created by the
/// first call that does.
pub(super) struct CallSeries {
    calls: Counter,
    account_calls: Option<Counter>,
    tokens: [Counter; 5],
    cost: Counter<f64, Dollars>,
    call_seconds: Histogram,
    first_byte_seconds: OnceLock<Histogram>,
    served: Option<ServedSeries>,
}

/// The series of OpenTelemetry's conventions.
struct ServedSeries {
    attributes: Attributes,
    duration: Histogram,
    first_chunk: OnceLock<Histogram>,
    /// Input and output tokens.
    tokens: OnceLock<[Histogram; 2]>,
}

impl CallSeries {
    pub(super) fn new(metrics: &Metrics, labels: &CallLabels) -> Self {
        let CallLabels { dialect, provider, model, account, status, error, served } = labels;
        let dialect = Name::from(dialect.as_str());
        let status = Name::from(status.to_string());
        let token_counter = |kind| {
            let kind = ("kind", Name::from(kind));
            let labels = [("provider", provider.clone()), ("model", model.clone()), kind];
            metrics.tokens.get_or_create_owned(&labels)
        };
        let account_calls = account.as_ref().map(|account| {
            let account = ("account", account.clone());
            let labels = [("provider", provider.clone()), account, ("status", status.clone())];
            metrics.account_calls.get_or_create_owned(&labels)
        });
        let times = [("dialect", dialect.clone()), ("provider", provider.clone())];
        let of_model = [("provider", provider.clone()), ("model", model.clone())];
        let served = served.as_ref().map(|served| {
            ServedSeries::new(&metrics.gen_ai, served, Name::clone(model), error.as_ref())
        });
        Self {
            calls: metrics.calls.get_or_create_owned(&[
                ("dialect", dialect),
                ("provider", provider.clone()),
                ("model", model.clone()),
                ("status", status),
            ]),
            account_calls,
            tokens: ["input", "cached", "written", "output", "thought"].map(token_counter),
            cost: metrics.cost.get_or_create_owned(&of_model),
            call_seconds: metrics.call_seconds.get_or_create_owned(&times),
            first_byte_seconds: OnceLock::new(),
            served,
        }
    }

    /// Counts a call with these labels.
    pub(super) fn count(
        &self,
        metrics: &Metrics,
        labels: &CallLabels,
        record: &CallRecord,
        facts: &CallFacts<'_>,
    ) {
        self.count_usage(facts.used);
        if let Some(account_calls) = &self.account_calls {
            account_calls.inc();
        }
        if let Some(first_byte) = record.time_to_first_byte() {
            let histogram = self.first_byte_seconds.get_or_init(|| {
                let dialect = ("dialect", Name::from(labels.dialect.as_str()));
                let labels = [dialect, ("provider", labels.provider.clone())];
                metrics.first_byte_seconds.get_or_create_owned(&labels)
            });
            observe(histogram, first_byte.as_secs_f64(), facts);
        }
        observe(&self.call_seconds, facts.took.as_secs_f64(), facts);
        if let (Some(served), Some(call)) = (&self.served, record.provider_call()) {
            served.count(&metrics.gen_ai, record, &call, facts);
        }
        self.calls.inc();
    }

    fn count_usage(&self, used: &UsageAmount) {
        let Usage { input, cached, written, output, thought } = used.tokens;
        for (counter, number) in self.tokens.iter().zip([input, cached, written, output, thought]) {
            counter.inc_by(number);
        }
        self.cost.inner().add_pico_usd(used.pico_usd);
    }
}

impl ServedSeries {
    fn new(
        metrics: &GenAiMetrics,
        labels: &ServedLabels,
        model: Name,
        error: Option<&Name>,
    ) -> Self {
        let ServedLabels { wire, provider, endpoint, answered } = labels;
        let mut attributes = vec![
            ("gen_ai_operation_name", Name::from(gen_ai::operation_name(wire))),
            ("gen_ai_provider_name", Name::from(gen_ai::provider_name(provider))),
            ("gen_ai_request_model", model),
        ];
        let answered = answered.iter().cloned();
        attributes.extend(answered.map(|answered| ("gen_ai_response_model", answered)));
        if let Some((address, port)) = gen_ai::server_address(endpoint) {
            attributes.push(("server_address", Name::from(address)));
            attributes.push(("server_port", Name::from(port.to_string())));
        }
        let mut of_duration = attributes.clone();
        of_duration.extend(error.cloned().map(|error| ("error_type", error)));
        let duration = metrics.duration.get_or_create_owned(&of_duration);
        let (first_chunk, tokens) = (OnceLock::new(), OnceLock::new());
        Self { attributes, duration, first_chunk, tokens }
    }

    /// Counts a call that a provider served. The gateway is the client of the operation, so times
    /// start when the request is sent.
    fn count(
        &self,
        metrics: &GenAiMetrics,
        record: &CallRecord,
        call: &ProviderCall<'_>,
        facts: &CallFacts<'_>,
    ) {
        if let Some(usage) = facts.reported {
            let histograms = self.tokens.get_or_init(|| {
                ["input", "output"].map(|kind| {
                    let mut attributes = self.attributes.clone();
                    attributes.push(("gen_ai_token_type", Name::from(kind)));
                    metrics.tokens.get_or_create_owned(&attributes)
                })
            });
            for (histogram, number) in histograms.iter().zip([usage.input, usage.output]) {
                // Numbers of tokens are far below 2^32, beyond which only the buckets differ.
                let number = f64::from(u32::try_from(number).unwrap_or(u32::MAX));
                observe(histogram, number, facts);
            }
        }
        if let Some(first_chunk) = call.first_byte.filter(|_| record.is_stream) {
            let create = || metrics.first_chunk.get_or_create_owned(&self.attributes);
            observe(self.first_chunk.get_or_init(create), first_chunk.as_secs_f64(), facts);
        }
        let took = facts.end.saturating_duration_since(call.sent).as_secs_f64();
        observe(&self.duration, took, facts);
    }
}
