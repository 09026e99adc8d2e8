//! Throughline keeps a model's train of thought unbroken.
//!
//! Reasoning models hand back state that must return untouched: signed thinking blocks, encrypted reasoning items, part
//! signatures. This crate reads it from any provider, holds it as one typed thing, and writes it back exactly, to its owner
//! and to nobody else.
//!
//! ```
//! use bytes::Bytes;
//! use throughline::{Asked, Call, Catalog, Did, Item, Place, Role, Body, Wire, codec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Claude thought, signed its thought, and calls a tool.
//! let claude = Catalog::builtin().target_for("anthropic", "claude-sonnet-4-5", "work")?;
//! let answer = Bytes::from_static(br#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5",
//!   "content":[{"type":"thinking","thinking":"I need the weather.","signature":"c2lnbmVk"},
//!              {"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Paris"}}],
//!   "stop_reason":"tool_use","usage":{"input_tokens":9,"output_tokens":20}}"#);
//! let anthropic = codec(&Wire::ANTHROPIC_MESSAGES).ok_or("built in")?;
//! let reply = anthropic.decode_reply(&answer, &Asked::of(claude.clone()))?;
//!
//! // The next request to Claude carries the thought and its signature, as they came.
//! let mut call = Call::new(claude);
//! call.extend([Item::new("question", Place::default(), Role::User, Body::Text("Weather in Paris?".into()))]);
//! call.extend(reply.items);
//! let request = anthropic.encode(&call)?;
//! assert!(String::from_utf8_lossy(&request.request.body).contains("c2lnbmVk"));
//!
//! // To Gemini it does not go: the Fate says so, and the thought stays in the Thread for the way back.
//! call.target = Catalog::builtin().target_for("gemini", "gemini-3-pro-preview", "work")?;
//! let request = codec(&Wire::GEMINI).ok_or("built in")?.encode(&call)?;
//! assert!(!String::from_utf8_lossy(&request.request.body).contains("c2lnbmVk"));
//! assert!(matches!(request.fates[1].visible, Did::Elided(_)));
//! # Ok(())
//! # }
//! ```

pub mod models;

pub use throughline_codec::{
    Asked, CODECS, Catalog, CatalogError, Codec, CodecError, Decoder, Document, Encoder, Frame,
    FrameError, FrameWriter, Framer, Framing, Guess, StreamDecoder, StreamEncoder, codec,
    events_of, guess,
};
// The doctor: what a provider would refuse, and the smallest change after which it would not.
pub use throughline_codec::{
    Audit, Breach, Case, Change, ChangeKind, Comparison, Edit, Example, Exchange, Finding,
    Findings, Issued, Mend, Mended, PathStyle, PrefixChange, Prior, Reach, Reordered, Repair, Rule,
    Severity, Source, SourceKind, Transcript, Verdict, audit, repair,
};
pub use throughline_core::*;
// The store: durable threads in one append-only, tamper-evident journal.
pub use throughline_store::{
    ApiKey, Broken, Destroyed, Durability, Exported, Head, Imported, Journal, KeyLimits, Manifest,
    MasterKey, NewApiKey, Options as StoreOptions, Order, Page, Progress, Proof, Retention,
    RunEvents, Statement, Stats, about_item, open as open_store, parse_manifest, verify_export,
};

/// Durable agents: who takes part in a run, what they may use, and the runner that keeps each step.
pub mod agent {
    pub use throughline_agent::{
        AgentConfig, AgentKind, AgentLimits, Agents, AskUser, Begun, BreakerConfig, ByLength,
        CallDenial, CallPermit, Casting, ContextPolicy, Decision, FunctionTool, Gate, GateRule,
        Handoff, HumanInTheLoop, InvalidConfig, Listener, OutputContract, Permitting, Ports,
        Refusal, RefusalKind, RunError, RunStatus, Runner, RuntimeProfile, Snapshot, Start, State,
        Tool, ToolAnswer, ToolContext, ToolSpec, UnknownOutcome, Word, Working, function_tool,
        narrate, schema_of, sentence,
    };

    use std::sync::Arc;

    use throughline_core::{Json, LogId, Store as _, unpack};
    use throughline_core::{Models, RunEvent, StoreError, Tenant};
    use throughline_store::Journal;

    /// A runner over a store, by the clock of this machine. Whoever opens the same store can go on with its runs.
    pub fn runner(store: &Journal, models: impl Models + 'static) -> Runner {
        let ports = Ports::usual(store.derived_key("agent threads"));
        Runner::new(Arc::new(store.clone()), Arc::new(models), ports)
    }

    /// All that a run told so far.
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
            let packed = records.iter().flat_map(|record| unpack(record).unwrap_or_default());
            let read = packed.filter_map(|(_, event)| Json::parse(event).ok());
            events.extend(read.filter_map(|event| RunEvent::parse(&event).ok()));
        }
    }
}

/// Traces: what runs and calls did, told to the tools that operators have; and the trait for a sink of one's own.
pub mod trace {
    pub use throughline_trace::{
        Again, Delivered, FileSink, HttpSink, InvalidSink, Mode, OtlpSink, Parcel, Phase, Session,
        Sink, SinkError, SinkKind, SinkOptions, Span, SpanKind, Status, Taking, Telling, Tracer,
        TracerOptions, Value, send, session_of,
    };
}

/// Tools that come from elsewhere: MCP servers, and HTTP endpoints that are declared as data.
pub mod tools {
    pub use throughline_tools::{
        Approval, Declared, HttpBody, HttpConfig, HttpTool, InvalidTool, McpConfig, McpError,
        McpServer, McpTrouble, OpenError, Problem, Problems, Reach, Variables,
    };
}
