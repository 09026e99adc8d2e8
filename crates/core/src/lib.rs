//! Core types of Throughline: a provider-neutral model of reasoning and conversations.
//!
//! Everything that a provider returns is an [`Item`]. Reasoning is an Item whose body is a
//! [`Thought`], and each opaque value in it is a [`Seal`] with an owner. A [`Call`] is a model
//! request, a [`Reply`] its response, and a [`Fate`] reports what one Call did with each Item.
//!
//! Each supported document has a view that reads and prints its JSON: [`RawThought`], [`Message`],
//! [`ReasoningMessage`], [`ReasoningItem`], [`ReasoningConfig`], [`SmartState`], [`RunEvent`]. A
//! [`RedactionPolicy`] defines what people and sinks do not see.
//!
//! This crate does no I/O, reads no clock and contains no provider-specific code.

mod archive;
mod call;
mod completed_call;
mod document;
mod egress;
mod fate;
mod format;
mod identity;
mod instant;
mod item;
mod item_json;
pub mod json;
mod memoized;
mod model;
mod name;
mod number;
mod origin;
mod profile;
mod reasoning;
mod redaction;
mod replay;
mod reply;
mod run_event;
mod run_fold;
mod seal;
mod settings;
mod state;
mod store;
pub mod tag;
mod thought;
mod trace_parent;
mod upstream;
mod view;
pub mod work;

pub use crate::archive::{Archive, ExportSink, Fault, KeyHead, VerifySummary};
pub use crate::call::{Call, EncodedRequest, Extra, ReceivedRequest, Request, Tool};
pub use crate::completed_call::CompletedCall;
pub use crate::document::{InvalidDocument, Nullable, Opaque};
pub use crate::egress::{BlockedAddress, allowed_addresses, check_host};
pub use crate::fate::{Disposition, ElisionReason, Evidence, Fate, ReshapeKind, Warning};
pub use crate::format::ReasoningFormat;
pub use crate::identity::{Identifier, Identity, RawIdentity};
pub use crate::instant::{InvalidInstant, RawInstant};
pub use crate::item::{
    Body, Direction, Envelope, HostedStep, Item, ItemPosition, Media, NativePart, Outcome, Part,
    Role, ToolCall, ToolResult,
};
pub use crate::item_json::{
    StoredItem, holds_siblings, restore_items, store_items, without_siblings,
};
pub use crate::json::{Json, JsonKind, Node, SyntaxError, Tree};
pub use crate::memoized::Memoized;
pub use crate::model::{
    Clock, CostEstimator, EventStream, IdGenerator, Model, ModelError, ModelErrorKind, ModelFuture,
    ModelRegistry, ModelStream,
};
pub use crate::name::{CallId, Digest, ItemId, Label, Name, Wire};
pub use crate::number::Number;
pub use crate::origin::{Origin, Target};
pub use crate::profile::{
    Binding, CallIds, Contract, Dialect, ForcedTools, Mode, Profile, Provider, ReasoningChannel,
    ReasoningSwitch, TokenBudget, Vendor, matches_pattern,
};
pub use crate::reasoning::{
    Cadence, Effort, Level, NativeConfig, ReasoningConfig, Reflection, ReflectionConfig,
    ReflectionMode, ResolvedReasoning, Section,
};
pub use crate::redaction::{InvalidPattern, Pattern, REDACTED, RedactionPolicy, ThoughtRedaction};
pub use crate::replay::{ReplayForm, ReplayPolicy, SIDE_CHANNEL, ThreadSecret};
pub use crate::reply::{Delta, Event, Failure, Reply, StopReason, Usage};
pub use crate::run_event::{
    CancelledEvent, EventError, FinalAnswerEvent, GateEvent, GatePhase, GuardrailDisposition,
    GuardrailEvent, GuardrailPhase, HandoffEvent, LimitEvent, MessageEvent, MetadataEvent,
    PlanEvent, PlanOperation, PlanSource, ProgressEvent, ReflectionEvent, ReplayEvent, RunEvent,
    RunStatusEvent, StreamEvent, SubagentEvent, SubagentMode, SubagentPhase, SummarizationEvent,
    ThoughtEvent, ThoughtPhase, ToolApprovalEvent, ToolApprovalEventStatus, ToolCallEvent,
    ToolCallPhase, TurnEvent, TurnPhase, UsageEvent, UserQuestionEvent, UserQuestionEventStatus,
};
pub use crate::run_fold::{Attempt, AttemptChange, AttemptEnd, RunCounts, RunFold};
pub use crate::seal::{Attachment, Seal, SealBinding};
pub use crate::settings::{NativeReasoning, OutputFormat, Settings, ToolChoice};
pub use crate::state::{
    MemoryFact, MemoryScope, PendingToolApproval, PendingUserQuestion, Plan, PlanStepRecord,
    PlanStepStatus, QuestionTool, ReflectionRecord, ReflectionUsage, SmartState, StateChange,
    SummaryFactItem, SummaryIntegrityCheck, SummaryRecord, ThreadState, ToolApprovalResolution,
    ToolApprovalStatus, ToolExecution, ToolExecutionStatus, ToolResponseClassification,
    ToolResponseRetentionPolicy, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionItem,
    UserQuestionOption, UserQuestionResolution, UserQuestionStatus,
};
pub use crate::store::{
    Append, Batch, Content, ErasureEpoch, EventWriter, Fence, Fold, FoldedLog, ForkPoint, Lease,
    LogFollower, LogHead, LogId, LogKind, LogOpening, NewRecord, NewVaultTurn, Pack, PendingEntry,
    PendingRequest, PendingStatus, RUNNING, Receipt, Record, Rewind, StaleRun, Store, StoreError,
    StoreFuture, Tenant, TurnId, VaultKey, VaultLookup, VaultMatch, VaultTurn, WrittenRange, kind,
    pack_events, split_pack, unpack_events,
};
pub use crate::thought::{
    PLAIN_TEXT, ReasoningSource, Thought, ThoughtKind, ThoughtRecord, TokenCounter,
};
pub use crate::trace_parent::TraceParent;
pub use crate::upstream::{
    BodyStream, Credential, TimeoutPhase, Upstream, UpstreamError, UpstreamFuture, UpstreamRequest,
    UpstreamResponse,
};
pub use crate::view::{
    DetailMeta, HiddenReasoningMessage, HiddenState, InvalidThought, LettaHeader, LettaReasoning,
    Message, MessageCall, MessageRole, OpenRouterReasoningCodec, RawThought, ReasoningCodec,
    ReasoningItem, ReasoningMessage, ReplayAudit, ReplayContract, ReplayTurn, ReplayViolation,
    ThinkingBlock, ThinkingKind, audit_replay, parse_details, print_details, raw_thought_json,
};
