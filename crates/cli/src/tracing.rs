//! Traces of what this process does: the tracer that the configuration asks for, and who tells it.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::Watcher;
use throughline_core::{Boxed, Credential, EndedCall, Json, LogId, RedactionPolicy, Tenant};
use throughline_server::{RunTraces, Traces};
use throughline_store::Journal;
use throughline_trace::{
    CallTracer, Delivered, Sink, SinkOptions, Status, Telling, Tracer, TracerOptions, session_of,
};

use crate::agent::{Now, now};
use crate::config::TracingSettings;
use crate::failure::Failure;
use crate::text;

/// Who is told, as the configuration says.
pub(crate) fn sinks(settings: &TracingSettings) -> Result<Vec<Arc<dyn Sink>>, Failure> {
    let open = settings.sinks.iter().map(|sink| {
        let header = sink.header.iter();
        let options = SinkOptions {
            kind: sink.kind,
            name: Some(sink.name.clone()),
            to: sink.to.clone(),
            headers: header
                .map(|(name, value)| (name.clone(), Credential::new(value.reveal())))
                .collect(),
        };
        let opened = options.open().map(Arc::from);
        opened.map_err(|problem| {
            Failure::BadData(format!("tracing.sinks.{} cannot be used: {problem}", sink.name))
        })
    });
    open.collect()
}

/// The content of traces: `policy` redacts it, unless `[tracing] redact = false`.
pub(crate) fn telling(settings: &TracingSettings, policy: RedactionPolicy) -> Telling {
    let redaction = if settings.redact { policy } else { RedactionPolicy::nothing() };
    Telling { thread_id: settings.thread_id.clone(), log_data: settings.log_data, redaction }
}

/// Traces of the runs and calls of this process.
pub(crate) struct Traced {
    tracer: Tracer,
    calls: CallTracer,
    patience: Duration,
}

impl Traced {
    /// What the configuration asks for; nothing where it asks for nothing.
    pub(crate) fn of(
        settings: &TracingSettings,
        policy: RedactionPolicy,
        journal: &Journal,
    ) -> Result<Option<Arc<Self>>, Failure> {
        if !settings.is_on() {
            return Ok(None);
        }
        let sinks = sinks(settings)?;
        let calls = CallTracer::new(sinks.clone());
        let tracer = Tracer::new(TracerOptions {
            store: Arc::new(journal.clone()),
            clock: Arc::new(Now),
            mode: settings.mode,
            telling: telling(settings, policy),
            sinks,
            patience: settings.patience,
        });
        Ok(Some(Arc::new(Self { tracer, calls, patience: settings.patience })))
    }

    /// Waits until all is told, and says what was not.
    pub(crate) async fn finish(&self) {
        for delivered in self.tracer.finish().await {
            tell(&delivered);
        }
        self.calls.finish(self.patience).await;
        match self.calls.dropped() {
            0 => {}
            dropped => text::note(&format!("{dropped} calls are missing in the traces")),
        }
    }
}

/// Says what became of a trace, where not all is well with it.
fn tell(delivered: &Delivered) {
    if delivered.status != Status::Partial {
        return;
    }
    let errors: Vec<&str> = delivered.errors.iter().map(|error| &**error).collect();
    text::note(&format!(
        "the trace {} is partial: {}; `throughline traces export` makes it again",
        delivered.session,
        errors.join("; ")
    ));
}

impl Watcher for Traced {
    fn goes_on(&self, tenant: &Tenant, run: &LogId, records: u64) -> Box<dyn Send> {
        Box::new(self.tracer.follow(tenant, run, records))
    }
}

impl Traces for Traced {
    fn ended(&self, call: EndedCall) {
        self.calls.call(call, now());
    }
}

/// The traces that the console shows: what was said is in them, and who looks is not shown the usual secrets.
pub(crate) struct Shown(pub(crate) Journal);

impl RunTraces for Shown {
    fn trace<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: &'a LogId,
        redaction: RedactionPolicy,
    ) -> Boxed<'a, Json> {
        let telling = Telling { thread_id: None, log_data: true, redaction };
        Box::pin(async move { Ok(session_of(&self.0, tenant, run, telling, &Now).await?.json()) })
    }
}
