//! Throughline keeps a model's reasoning state intact.
//!
//! Reasoning models return state that must come back unchanged: signed thinking blocks, encrypted
//! reasoning items, part signatures. This crate decodes that state from any provider and stores it
//! in typed form. It replays the state exactly, and only to the endpoint that issued it.
//!
//! The domain types are at the crate root. Each module is an entry point:
//!
//! | module | contents |
//! |---|---|
//! | [`codec`] | translation between provider protocols and [`Call`], [`Reply`] and [`Event`] |
//! | [`doctor`] | prediction and repair of requests that a provider would reject |
//! | [`replay`] | capture and restore around your own HTTP client |
//! | [`store`] | durable Threads in one append-only, tamper-evident Journal |
//! | [`agent`] | durable agents, their tools, events and progress |
//! | [`tools`] | MCP servers and HTTP endpoints as tools |
//! | [`trace`] | traces of runs and calls, and custom sinks |
//! | [`models`] | models of the providers' endpoints, by name |
//! | [`spec`] | the documented types: messages, states, run events, redaction |
//! | [`json`] | JSON that keeps its bytes |
//!
//! # Example
//! ```
//! use bytes::Bytes;
//! use throughline::codec::{Catalog, DecodeContext, codec};
//! use throughline::{Body, Call, Disposition, Item, ItemPosition, Role, Wire};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A response from Claude: a signed Thought and a tool call.
//! let claude = Catalog::builtin().target_for("anthropic", "claude-sonnet-5-5", "work")?;
//! let answer = Bytes::from_static(br#"{"id":"msg_1","type":"message","role":"assistant",
//!   "model":"claude-sonnet-5-5",
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
//! call.target = Catalog::builtin().target_for("gemini", "gemini-3.8-flash", "work")?;
//! let request = codec(&Wire::GEMINI).ok_or("built in")?.encode(&call)?;
//! assert!(!String::from_utf8_lossy(&request.request.body).contains("c2lnbmVk"));
//! assert!(matches!(request.fates[1].visible, Disposition::Elided(_)));
//! # Ok(())
//! # }
//! ```

pub mod agent;
pub mod models;
pub mod replay;
pub mod trace;

pub use throughline_core::Tool as ToolDefinition;
pub use throughline_core::{
    Attachment, Binding, Body, Call, CallId, CallIds, Delta, Dialect, Digest, Direction,
    Disposition, ElisionReason, EncodedRequest, Envelope, Event, Evidence, Extra, Failure, Fate,
    ForcedTools, HostedStep, Identifier, Identity, Item, ItemId, ItemPosition, LogId, Media, Mode,
    NativePart, NativeReasoning, Origin, Outcome, OutputFormat, PLAIN_TEXT, Part, PlainReasoning,
    PlainReplay, Profile, Provider, RawIdentity, ReasoningChannel, ReasoningFormat,
    ReasoningSource, ReasoningSwitch, ReceivedRequest, ReplayForm, ReplayPolicy, Reply, Request,
    ReshapeKind, Role, SIDE_CHANNEL, Seal, SealBinding, Settings, StopReason, Target, Tenant,
    Thought, ThoughtKind, ThoughtRecord, ThreadSecret, TokenBudget, TokenCounter, ToolCall,
    ToolChoice, ToolResult, Usage, Vendor, Warning, Wire,
};
pub use throughline_json::{Label, Name, Number};

/// Translation between provider protocols and Calls, Replies and Events. A custom codec implements
/// [`codec::Codec`].
pub mod codec {
    pub use throughline_codec::{
        AnthropicMessages, BedrockConverse, CODECS, Catalog, CatalogError, CatalogKey,
        CatalogProblem, CatalogSecret, CatalogUpdate, CatalogVersion, Codec, CodecError,
        DecodeContext, Decoder, Detection, Document, Encoder, Frame, FrameError, FrameWriter,
        Framer, Framing, Gemini, History, HistoryError, HistoryFormat, HistoryOwner, HistoryTurn,
        InvalidCatalogKey, InvalidCatalogSecret, InvalidVersion, KnownModel, OpenAiChat,
        OpenAiResponses, SharedCatalog, SignatureError, StreamDecoder, StreamEncoder, codec,
        continuation_seal, continuation_token, continued_body, detect, error_message,
        events_from_reply, join_replies, read_history, sign_catalog, verify_catalog,
    };
}

/// The doctor: predicts what a provider would reject, and computes the smallest fix.
pub mod doctor {
    pub use throughline_codec::{
        AppliedFix, Audit, AuditContext, AuditOutcome, Change, ChangeKind, Comparison, Edit,
        Example, Exchange, Finding, Findings, Fix, IssuedItem, IssuedSeals, PathStyle,
        PrefixChange, Preparation, PreparedCall, PriorExchanges, ReorderedElement, Repair,
        RepairLevel, Rule, Severity, Source, SourceKind, Transcript, Verdict, ViolationKind,
        applied_fixes_json, audit, audit_json, describe, fates_json, repair,
    };
}

/// JSON values that keep their exact bytes, an index over these values, and writers.
pub mod json {
    pub use throughline_json::{
        Array, Elements, Json, JsonKind, Measure, Members, Node, Object, SizeLimitExceeded,
        SizeLimits, SyntaxError, Tree, array, array_of, object, object_of, push_number,
        push_string, string,
    };
}

/// The documented types: Thoughts, messages, agent states and run events, and the redaction policy
/// for views and exports.
pub mod spec {
    pub use throughline_json::{InvalidDocument, Nullable, Opaque};
    pub use throughline_spec::{
        Attempt, AttemptChange, AttemptEnd, Cadence, CancelledEvent, DetailMeta, Effort,
        EventError, FinalAnswerEvent, GateEvent, GatePhase, GuardrailDisposition, GuardrailEvent,
        GuardrailPhase, HandoffEvent, HiddenReasoningMessage, HiddenState, InvalidInstant,
        InvalidPattern, InvalidThought, LettaHeader, LettaReasoning, Level, LimitEvent, MemoryFact,
        MemoryScope, Message, MessageCall, MessageEvent, MessageRole, MetadataEvent, NativeConfig,
        OpenRouterReasoningCodec, Pattern, PendingToolApproval, PendingUserQuestion, Plan,
        PlanEvent, PlanOperation, PlanSource, PlanStepRecord, PlanStepStatus, ProgressEvent,
        QuestionTool, REDACTED, RawInstant, RawThought, ReasoningCodec, ReasoningConfig,
        ReasoningItem, ReasoningMessage, RedactionPolicy, Reflection, ReflectionConfig,
        ReflectionEvent, ReflectionMode, ReflectionRecord, ReflectionUsage, ReplayAudit,
        ReplayContract, ReplayEvent, ReplayTurn, ReplayViolation, ResolvedReasoning, RunCounts,
        RunEvent, RunFold, RunStatusEvent, Section, SmartState, StateChange, StreamEvent,
        StreamRedactor, SubagentEvent, SubagentMode, SubagentPhase, SummarizationEvent,
        SummaryFactItem, SummaryIntegrityCheck, SummaryRecord, ThinkingBlock, ThinkingKind,
        ThoughtEvent, ThoughtPhase, ThoughtRedaction, ThreadState, ToolApprovalEvent,
        ToolApprovalEventStatus, ToolApprovalResolution, ToolApprovalStatus, ToolCallEvent,
        ToolCallPhase, ToolExecution, ToolExecutionStatus, ToolResponseClassification,
        ToolResponseRetentionPolicy, TurnEvent, TurnPhase, UsageEvent, UserQuestionAnswer,
        UserQuestionAnswerSet, UserQuestionEvent, UserQuestionEventStatus, UserQuestionItem,
        UserQuestionOption, UserQuestionResolution, UserQuestionStatus, audit_replay,
        parse_details, print_details, raw_thought_json,
    };
}

/// Durable Threads in one append-only, tamper-evident Journal. All other modules use the store
/// through the port [`store::Store`].
pub mod store {
    pub use throughline_core::{
        Append, Batch, Content, ErasureEpoch, EventWriter, Fence, Fold, FoldedLog, ForkPoint,
        Lease, LogFollower, LogHead, LogKind, LogOpening, NewRecord, NewVaultTurn, Pack,
        PendingEntry, PendingRequest, PendingStatus, Receipt, Record, Rewind, StaleRun, Store,
        StoreError, StoreFuture, StoredItem, TurnId, VaultKey, VaultLookup, VaultMatch, VaultTurn,
        WrittenRange, kind, pack_events, restore_items, split_pack, store_items, unpack_events,
    };
    pub use throughline_spec::{Archive, ExportSink, Fault, KeyHead, VerifySummary};
    pub use throughline_store::Progress as ProgressCallback;
    pub use throughline_store::Warning as VerifyWarning;
    pub use throughline_store::{
        ApiKey, Durability, ErasureReport, ExportSummary, Head, ImportSummary, Journal, KeyCheck,
        KeyLimits, Manifest, MasterKey, MigrationProgress, MigrationReport, MigrationStep,
        NewApiKey, Options, Order, Page, RestoreSummary, Retention, RotationReport, RowState,
        RunEvents, Statement, Stats, StoreProof, VerifyFailure, VerifyReport, about_item,
        key_file_of, migrate, open, parse_manifest, restore, verify_export, without_password,
    };
}

/// External tools: MCP servers, and HTTP endpoints that are declared as data.
pub mod tools {
    pub use throughline_tools::{
        Approval, HttpBody, HttpConfig, HttpTool, InvalidTool, McpConfig, McpError, McpErrorKind,
        McpServer, OpenError, Problem, Problems, ToolDeclarations, Transport, Variables,
    };
}
