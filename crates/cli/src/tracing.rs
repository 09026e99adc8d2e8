//! Sends traces of this process to the configured sinks, and provides traces to the console.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::Watcher;
use throughline_core::{CompletedCall, LogId, StoreFuture, Tenant};
use throughline_json::Json;
use throughline_server::{CallTraces, RunTraces};
use throughline_spec::RedactionPolicy;
use throughline_store::Journal;
use throughline_trace::{
    CallTracer, OtlpOptions, Sampler, Sink, SinkOptions, Status, TraceOptions, Tracer,
    TracerOptions, load_session, run_trace_id,
};

use crate::clock::{SystemClock, now};
use crate::config::TracingSettings;
use crate::print::failure::{Failure, Result};
use crate::print::text;

pub(crate) fn sinks(settings: &TracingSettings) -> Result<Vec<Arc<dyn Sink>>> {
    if let Some(problem) = &settings.problem {
        return Err(Failure::Usage(problem.clone()));
    }
    let open = settings.sinks.iter().map(|sink| {
        let options = SinkOptions {
            kind: sink.kind,
            name: Some(sink.name.clone()),
            to: sink.to.clone(),
            headers: sink.headers.clone(),
            otlp: OtlpOptions { resource: settings.resource.clone(), ..sink.otlp.clone() },
        };
        let opened = options.open().map(Arc::from);
        opened
            .map_err(|problem| Failure::BadData(format!("tracing.sinks.{}: {problem}", sink.name)))
    });
    open.collect()
}

/// Returns the options for the content of traces. Content is redacted with `policy`, unless
/// `[tracing] redact = false` is set.
pub(crate) fn trace_options(settings: &TracingSettings, policy: RedactionPolicy) -> TraceOptions {
    let redaction = if settings.redact { policy } else { RedactionPolicy::nothing() };
    TraceOptions { thread_id: settings.thread_id.clone(), log_data: settings.log_data, redaction }
}

/// Traces the runs and calls of this process.
pub(crate) struct ProcessTraces {
    tracer: Tracer,
    calls: CallTracer,
    sampler: Sampler,
    patience: Duration,
    /// Whether `[redaction]` applies to traces.
    redacts: bool,
}

impl ProcessTraces {
    /// Creates the configured tracer; `None` if tracing is disabled. Without configured sinks, only
    /// agents with their own sink are traced. `accepts_agent_sinks` is whether the user of this
    /// process declares the agents.
    pub(crate) fn new(
        settings: &TracingSettings,
        policy: RedactionPolicy,
        journal: &Journal,
        accepts_agent_sinks: bool,
    ) -> Result<Option<Arc<Self>>> {
        if !settings.enabled {
            return Ok(None);
        }
        let sinks = sinks(settings)?;
        if sinks.is_empty() && !accepts_agent_sinks {
            return Ok(None);
        }
        let calls = CallTracer::new(sinks.clone());
        let tracer = Tracer::new(TracerOptions {
            store: Arc::new(journal.clone()),
            clock: Arc::new(SystemClock),
            mode: settings.mode,
            content: trace_options(settings, policy),
            sinks,
            named_sinks: Vec::new(),
            accepts_agent_sinks,
            patience: settings.patience,
        });
        let TracingSettings { sampler, patience, redact: redacts, .. } = *settings;
        Ok(Some(Arc::new(Self { tracer, calls, sampler, patience, redacts })))
    }

    /// Sets the redaction policy of the runs that are traced from now on, unless `[tracing] redact
    /// = false` is set.
    pub(crate) fn set_redaction(&self, policy: RedactionPolicy) {
        if self.redacts {
            self.tracer.set_redaction(policy);
        }
    }

    /// Waits until all traces are sent, and prints notes about lost traces.
    pub(crate) async fn finish(&self) {
        let reports = self.tracer.finish().await.into_iter();
        for report in reports.filter(|report| report.status == Status::Partial) {
            let (session, errors) = (&report.session, report.errors.join("; "));
            text::note(&format!(
                "the trace {session} is partial: {errors}; `throughline traces export` exports it again"
            ));
        }
        self.calls.finish(self.patience).await;
        if let dropped @ 1.. = self.calls.dropped() {
            text::note(&format!("{dropped} calls are missing from the traces"));
        }
    }
}

impl Watcher for ProcessTraces {
    fn on_drive(&self, tenant: &Tenant, run: &LogId, records: u64) -> Box<dyn Send> {
        if !self.sampler.is_sampled(&run_trace_id(tenant, run), None) {
            return Box::new(());
        }
        Box::new(self.tracer.follow(tenant, run, records))
    }
}

impl CallTraces for ProcessTraces {
    fn call_ended(&self, call: CompletedCall) {
        if call.own.is_sampled {
            self.calls.call(call, now());
        }
    }

    fn is_sampled(&self, trace: &[u8; 16], parent: Option<bool>) -> bool {
        self.sampler.is_sampled(trace, parent)
    }
}

/// Provides the console with traces that include redacted message content.
pub(crate) struct ConsoleTraces(pub(crate) Journal);

impl RunTraces for ConsoleTraces {
    fn trace<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: &'a LogId,
        redaction: RedactionPolicy,
    ) -> StoreFuture<'a, Json> {
        let content = TraceOptions { thread_id: None, log_data: true, redaction };
        Box::pin(async move {
            Ok(load_session(&self.0, tenant, run, content, &SystemClock).await?.to_json())
        })
    }
}
