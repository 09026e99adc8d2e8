//! The nouns of Throughline: what reasoning is, whoever's wire it came over.
//!
//! Everything a provider says is an [`Item`]; reasoning is an Item whose body is a [`Thought`]; whatever is opaque in
//! it is a [`Seal`] with an owner. A [`Call`] asks, a [`Reply`] answers, and a [`Fate`] tells what one Call did with each Item.
//! Each document that the nouns unite has a view here, which prints that document's own JSON and reads it back:
//! [`RawThought`], [`Message`], [`ReasoningMessage`], [`ReasoningItem`], [`ReasoningConfig`], [`SmartState`], [`RunEvent`].
//! A [`RedactionPolicy`] says what people and sinks are not shown of them.
//! This crate does no I/O, reads no clock and knows no provider.

mod archive;
mod bounds;
mod call;
mod document;
mod ended_call;
mod fate;
mod format;
mod identity;
mod instant;
mod item;
pub mod json;
mod model;
mod name;
mod number;
mod origin;
mod profile;
mod reasoning;
mod recall;
mod redaction;
mod replay;
mod reply;
mod run_event;
mod run_fold;
mod seal;
mod settings;
mod state;
mod store;
mod stored;
pub mod tag;
mod thought;
mod trace_parent;
mod upstream;
mod view;
pub mod work;

pub use crate::archive::{Archive, ExportSink, Fault, KeyHead, Proven};
pub use crate::bounds::{OutOfBounds, check_host, within_bounds};
pub use crate::call::{Call, Encoded, Extra, Received, Request, Tool};
pub use crate::document::{InvalidDocument, Nullable, Opaque};
pub use crate::ended_call::EndedCall;
pub use crate::fate::{Did, Evidence, Fate, How, Warning, Why};
pub use crate::format::ReasoningFormat;
pub use crate::identity::{Identifier, Identity, RawIdentity};
pub use crate::instant::{InvalidInstant, RawInstant};
pub use crate::item::{
    Body, Envelope, Hosted, Item, Media, Native, Outcome, Part, Place, Role, Side, ToolCall,
    ToolResult,
};
pub use crate::json::{Json, Node, Shape, SyntaxError, Tree};
pub use crate::model::{
    Asking, Clock, CostEstimator, Events, Ids, Model, ModelError, Models, Saying, Trouble,
};
pub use crate::name::{CallId, Digest, ItemId, Label, Name, Wire};
pub use crate::number::Number;
pub use crate::origin::{Origin, Target};
pub use crate::profile::{
    Binding, Budget, CallIds, Channel, Contract, Dialect, ForcedTools, Mode, Profile, Provider,
    Switch, Vendor, fits,
};
pub use crate::reasoning::{
    Cadence, Effort, Level, NativeConfig, ReasoningConfig, Reflection, ReflectionConfig,
    ReflectionMode, ResolvedReasoning, Section,
};
pub use crate::recall::Recall;
pub use crate::redaction::{InvalidPattern, Pattern, REDACTED, RedactionPolicy, Thoughts};
pub use crate::replay::{Judgement, ReplayPolicy, SIDE_CHANNEL, ThreadSecret};
pub use crate::reply::{Delta, Event, Failure, Reply, Stop, Usage};
pub use crate::run_event::{
    CancelledEvent, EventError, FinalAnswerEvent, GateEvent, GatePhase, GuardrailDisposition,
    GuardrailEvent, GuardrailPhase, HandoffEvent, LimitEvent, MessageEvent, MetadataEvent,
    PlanEvent, PlanOperation, PlanSource, ProgressEvent, ReflectionEvent, ReplayEvent, RunEvent,
    RunStatusEvent, StreamEvent, SubagentEvent, SubagentMode, SubagentPhase, SummarizationEvent,
    ThoughtEvent, ThoughtPhase, ToolApprovalEvent, ToolApprovalEventStatus, ToolCallEvent,
    ToolCallPhase, TurnEvent, TurnPhase, UsageEvent, UserQuestionEvent, UserQuestionEventStatus,
};
pub use crate::run_fold::{Attempt, AttemptChange, AttemptEnd, RunCounts, RunFold};
pub use crate::seal::{Attachment, Bound, Seal};
pub use crate::settings::{Choice, NativeReasoning, Output, Settings};
pub use crate::state::{
    MemoryFact, MemoryScope, PendingToolApproval, PendingUserQuestion, Plan, PlanStepRecord,
    PlanStepStatus, QuestionTool, ReflectionRecord, ReflectionUsage, SmartState, StateChange,
    SummaryFactItem, SummaryIntegrityCheck, SummaryRecord, ThreadState, ToolApprovalResolution,
    ToolApprovalStatus, ToolExecution, ToolExecutionStatus, ToolResponseClassification,
    ToolResponseRetentionPolicy, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionItem,
    UserQuestionOption, UserQuestionResolution, UserQuestionStatus,
};
pub use crate::store::{
    Append, Asked, Batch, Boxed, Content, Era, EventWriter, Fence, Fold, Folded, Follow, ForkPoint,
    Found, Lease, LogHead, LogId, LogKind, LogOpening, NewRecord, NodeId, Pack, Pending,
    PendingStatus, RUNNING, Receipt, Record, Rewind, Sight, Store, StoreError, Tenant, Unattended,
    VaultKey, VaultNode, VaultTurn, Written, kind, pack, split, unpack,
};
pub use crate::stored::{StoredItem, holds_siblings, restore_items, store_items, without_siblings};
pub use crate::thought::{
    PLAIN_TEXT, ReasoningSource, Thought, ThoughtKind, ThoughtRecord, TokenCounter,
};
pub use crate::trace_parent::TraceParent;
pub use crate::upstream::{
    Answer, Answering, Chunks, Credential, Outgoing, Upstream, UpstreamError, Waiting,
};
pub use crate::view::{
    DetailMeta, HiddenReasoningMessage, HiddenState, InvalidThought, LettaHeader, LettaReasoning,
    Message, MessageCall, MessageRole, OpenRouterReasoningCodec, RawThought, ReasoningCodec,
    ReasoningItem, ReasoningMessage, ReplayAudit, ReplayContract, ReplayTurn, ReplayViolation,
    ThinkingBlock, ThinkingKind, audit_replay, parse_details, print_details, raw_thought_json,
};
