//! Core types of Throughline: a provider-neutral model of reasoning and conversations.
//!
//! Everything that a provider returns is an [`Item`]. Reasoning is an Item whose body is a
//! [`Thought`], and each opaque value in it is a [`Seal`] with an owner. A [`Call`] is a model
//! request, a [`Reply`] its response, and a [`Fate`] reports what one Call did with an Item.
//!
//! The ports are traits that other crates implement: [`Model`], [`Upstream`], [`Store`],
//! [`IdentityProvider`].
//!
//! This crate does no I/O and contains no provider-specific code. It reads no clock, except to
//! measure stages with the feature `profile`: see [`Stage`].

mod budget;
mod call;
mod completed_call;
mod egress;
mod fate;
mod format;
pub mod gen_ai;
mod identity;
mod item;
mod item_json;
mod key_role;
mod memoized;
mod model;
mod name;
mod origin;
mod pattern;
mod profile;
mod replay;
mod reply;
mod seal;
mod settings;
mod sign_in;
mod stage;
mod store;
pub mod tag;
mod thought;
mod trace_parent;
mod upstream;

pub use crate::budget::{BudgetPeriod, BudgetWindow};
pub use crate::call::{Call, EncodedRequest, Extra, ReceivedRequest, Request, Tool};
pub use crate::completed_call::{CompletedCall, RequestParameters};
pub use crate::egress::{BlockedAddress, allowed_addresses, check_host};
pub use crate::fate::{Disposition, ElisionReason, Evidence, Fate, ReshapeKind, Warning};
pub use crate::format::ReasoningFormat;
pub use crate::identity::{Identifier, Identity, RawIdentity};
pub use crate::item::{
    Body, Direction, Envelope, HostedStep, Item, ItemPosition, Media, NativePart, Outcome, Part,
    Role, ToolCall, ToolResult,
};
pub use crate::item_json::{
    StoredItem, holds_siblings, restore_items, store_items, without_siblings,
};
pub use crate::key_role::KeyRole;
pub use crate::memoized::Memoized;
pub use crate::model::{
    Clock, CostEstimator, EventStream, IdGenerator, Model, ModelError, ModelErrorKind, ModelFuture,
    ModelRegistry, ModelStream,
};
pub use crate::name::{CallId, Digest, ItemId, Wire};
pub use crate::origin::{ACCOUNT_SEPARATOR, Origin, Target};
pub use crate::pattern::{ModelMatch, ModelVersion, best_match, is_valid_pattern, matches_pattern};
pub use crate::profile::{
    AppendedChanges, Binding, CallIds, Contract, Dialect, ForcedTools, Mode, PlainReasoning,
    PlainReplay, Profile, Provider, ReasoningChannel, ReasoningSwitch, TokenBudget, Vendor,
};
pub use crate::replay::{ReplayForm, ReplayPolicy, SIDE_CHANNEL, ThreadSecret};
pub use crate::reply::{Delta, Event, Failure, Reply, StopReason, Usage};
pub use crate::seal::{Attachment, Seal, SealBinding};
pub use crate::settings::{NativeReasoning, OutputFormat, Settings, ToolChoice};
pub use crate::sign_in::{IdentityProvider, Person, SignInError, SignInFuture, SignInRequest};
pub use crate::stage::Stage;
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
    BodyStream, Credential, RestingEndpoint, TimeoutPhase, Upstream, UpstreamError, UpstreamFuture,
    UpstreamRequest, UpstreamResponse,
};
