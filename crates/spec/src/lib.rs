//! Throughline's documented JSON formats, as views of the types in `throughline-core`.
//!
//! Each supported document has a type that parses and writes the document's JSON: [`RawThought`],
//! [`Message`], [`ReasoningMessage`], [`ReasoningItem`], [`ReasoningConfig`],
//! [`TracingConfig`], [`SmartState`], [`RunEvent`]. A [`RedactionPolicy`] defines which content is
//! hidden in views, logs and exports.
//!
//! This crate does no I/O and reads no clock.

mod archive;
mod instant;
mod reasoning;
mod redaction;
mod run_event;
mod run_fold;
mod state;
mod tracing;
mod view;

pub use crate::archive::{
    Archive, CreatedKey, ExportSink, Fault, KeyHead, KeyManager, VerifySummary,
};
pub use crate::instant::{InvalidInstant, RawInstant};
pub use crate::reasoning::{
    Cadence, Effort, Level, NativeConfig, ReasoningConfig, Reflection, ReflectionConfig,
    ReflectionMode, ResolvedReasoning, Section,
};
pub use crate::redaction::{
    InvalidPattern, Pattern, REDACTED, RedactionPolicy, StreamRedactor, ThoughtRedaction,
};
pub use crate::run_event::{
    CancelledEvent, EventError, FinalAnswerEvent, GateEvent, GatePhase, GuardrailDisposition,
    GuardrailEvent, GuardrailPhase, HandoffEvent, LimitEvent, MessageEvent, MetadataEvent,
    PlanEvent, PlanOperation, PlanSource, ProgressEvent, ReflectionEvent, ReplayEvent, RunEvent,
    RunStatusEvent, StreamEvent, SubagentEvent, SubagentMode, SubagentPhase, SummarizationEvent,
    ThoughtEvent, ThoughtPhase, ToolApprovalEvent, ToolApprovalEventStatus, ToolCallEvent,
    ToolCallPhase, TurnEvent, TurnPhase, UsageEvent, UserQuestionEvent, UserQuestionEventStatus,
};
pub use crate::run_fold::{Attempt, AttemptChange, AttemptEnd, RunCounts, RunFold};
pub use crate::state::{
    MemoryFact, MemoryScope, PendingToolApproval, PendingUserQuestion, Plan, PlanStepRecord,
    PlanStepStatus, QuestionTool, ReflectionRecord, ReflectionUsage, SmartState, StateChange,
    SummaryFactItem, SummaryIntegrityCheck, SummaryRecord, ThreadState, ToolApprovalResolution,
    ToolApprovalStatus, ToolExecution, ToolExecutionStatus, ToolResponseClassification,
    ToolResponseRetentionPolicy, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionItem,
    UserQuestionOption, UserQuestionResolution, UserQuestionStatus,
};
pub use crate::tracing::{TraceSinkConfig, TraceSinkType, TracingConfig, TracingMode};
pub use crate::view::{
    DetailMeta, HiddenReasoningMessage, HiddenState, InvalidThought, LettaHeader, LettaReasoning,
    Message, MessageCall, MessageRole, OpenRouterReasoningCodec, RawThought, ReasoningCodec,
    ReasoningItem, ReasoningMessage, ReplayAudit, ReplayContract, ReplayTurn, ReplayViolation,
    ThinkingBlock, ThinkingKind, audit_replay, parse_details, print_details, raw_thought_json,
};
