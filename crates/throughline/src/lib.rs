//! Throughline keeps a model's reasoning state intact.
//!
//! Reasoning models return state that must come back unchanged: signed thinking blocks, encrypted
//! reasoning items, part signatures. This crate decodes that state from any provider, stores it in
//! typed form, and replays it exactly, and only to the endpoint that issued it.
//!
//! ```
//! use bytes::Bytes;
//! use throughline::{
//!     Body, Call, Catalog, DecodeContext, Disposition, Item, ItemPosition, Role, Wire, codec,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A response from Claude: a signed Thought and a tool call.
//! let claude = Catalog::builtin().target_for("anthropic", "claude-sonnet-4-5", "work")?;
//! let answer = Bytes::from_static(br#"{"id":"msg_1","type":"message","role":"assistant",
//!   "model":"claude-sonnet-4-5",
//!   "content":[{"type":"thinking","thinking":"I need the weather.","signature":"c2lnbmVk"},
//!              {"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Paris"}}],
//!   "stop_reason":"tool_use","usage":{"input_tokens":9,"output_tokens":20}}"#);
//! let anthropic = codec(&Wire::ANTHROPIC_MESSAGES).ok_or("built in")?;
//! let reply = anthropic.decode_reply(&answer, &DecodeContext::of(claude.clone()))?;
//!
//! // The next request to Claude carries the Thought and its signature unchanged.
//! let mut call = Call::new(claude);
//! let question = Body::Text("Weather in Paris?".into());
//! call.extend([Item::new("question", ItemPosition::default(), Role::User, question)]);
//! call.extend(reply.items);
//! let request = anthropic.encode(&call)?;
//! assert!(String::from_utf8_lossy(&request.request.body).contains("c2lnbmVk"));
//!
//! // A request to Gemini omits the Thought, and the Fate reports it. The Thread keeps the Thought.
//! call.target = Catalog::builtin().target_for("gemini", "gemini-3-pro-preview", "work")?;
//! let request = codec(&Wire::GEMINI).ok_or("built in")?.encode(&call)?;
//! assert!(!String::from_utf8_lossy(&request.request.body).contains("c2lnbmVk"));
//! assert!(matches!(request.fates[1].visible, Disposition::Elided(_)));
//! # Ok(())
//! # }
//! ```

pub mod models;

pub use throughline_codec::{
    CODECS, Catalog, CatalogError, Codec, CodecError, DecodeContext, Decoder, Detection, Document,
    Encoder, Frame, FrameError, FrameWriter, Framer, Framing, StreamDecoder, StreamEncoder, codec,
    detect, events_from_reply,
};
// The doctor: predicts what a provider would reject, and computes the smallest fix.
pub use throughline_codec::{
    AppliedFix, Audit, AuditContext, Change, ChangeKind, Comparison, Edit, Example, Exchange,
    Finding, Findings, Fix, IssuedItem, PathStyle, PrefixChange, PriorExchanges, ReorderedElement,
    Repair, RepairLevel, Rule, Severity, Source, SourceKind, Transcript, Verdict, ViolationKind,
    audit, repair,
};
pub use throughline_core::*;
// The store: durable Threads in one append-only, tamper-evident Journal.
pub use throughline_store::{
    ApiKey, Durability, ErasureReport, ExportSummary, Head, ImportSummary, Journal, KeyLimits,
    Manifest, MasterKey, NewApiKey, Options as StoreOptions, Order, Page, Progress, Retention,
    RunEvents, Statement, Stats, VerifyFailure, VerifyReport, about_item, open as open_store,
    parse_manifest, verify_export,
};

/// Durable agents: configuration, tools, and the runner that stores each step.
pub mod agent {
    pub use throughline_agent::{
        AgentConfig, AgentKind, AgentLimits, Agents, AskUser, BreakerConfig, CallDenial,
        CallPermit, ContextPolicy, Decision, FunctionTool, Gate, GateRule, Handoff, HumanInTheLoop,
        InvalidConfig, LengthTokenCounter, Listener, OutputContract, PermitFuture, Ports, Refusal,
        RefusalKind, RunCommand, RunError, RunRequest, RunSpec, RunStatus, Runner, RuntimeProfile,
        Snapshot, StartedRun, State, Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec,
        UnknownOutcome, function_tool, narrate, schema_of, sentence,
    };

    use std::sync::Arc;

    use throughline_core::{Json, LogId, Store as _, unpack_events};
    use throughline_core::{ModelRegistry, RunEvent, StoreError, Tenant};
    use throughline_store::Journal;

    /// Creates a runner over a store, using the system clock. Any process that opens the same store
    /// can resume its runs.
    pub fn runner(store: &Journal, models: impl ModelRegistry + 'static) -> Runner {
        let ports = Ports::with_system_clock(store.derived_key("agent threads"));
        Runner::new(Arc::new(store.clone()), Arc::new(models), ports)
    }

    /// Returns all events of a run so far.
    pub async fn events(
        store: &Journal,
        tenant: &Tenant,
        run: &LogId,
    ) -> Result<Vec<RunEvent>, StoreError> {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let records = store.read(tenant, run, after, 256).await?;
            let Some(last) = records.last() else { return Ok(events) };
            after = last.seq;
            let packed =
                records.iter().flat_map(|record| unpack_events(record).unwrap_or_default());
            let read = packed.filter_map(|(_, event)| Json::parse(event).ok());
            events.extend(read.filter_map(|event| RunEvent::parse(&event).ok()));
        }
    }
}

/// Traces of runs and calls for common observability tools, and the trait for custom sinks.
pub mod trace {
    pub use throughline_trace::{
        BatchPhase, DeliveryReport, FileSink, HttpSink, InvalidSink, Mode, OtlpSink, Retry,
        SendFuture, Session, Sink, SinkError, SinkKind, SinkOptions, Span, SpanKind, Status,
        TraceBatch, TraceOptions, Tracer, TracerOptions, Value, load_session, send,
    };
}

/// External tools: MCP servers, and HTTP endpoints that are declared as data.
pub mod tools {
    pub use throughline_tools::{
        Approval, HttpBody, HttpConfig, HttpTool, InvalidTool, McpConfig, McpError, McpErrorKind,
        McpServer, OpenError, Problem, Problems, ToolDeclarations, Transport, Variables,
    };
}
