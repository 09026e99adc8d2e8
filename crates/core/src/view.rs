//! Views: each prints one document's own JSON and reads it back.
//!
//! A view is only a view. The Items are the truth: they hold the order of the parts, the Seals with their owners,
//! and what the wire said. Each view says in its own words what it leaves out.

mod details;
mod letta;
mod message;
mod message_items;
mod raw_thought;
mod replay_audit;

pub use crate::view::details::{DetailMeta, ReasoningItem, parse_details, print_details};
pub use crate::view::letta::{
    HiddenReasoningMessage, HiddenState, LettaHeader, LettaReasoning, ReasoningMessage,
};
pub use crate::view::message::{Message, MessageCall, MessageRole, ThinkingBlock, ThinkingKind};
pub use crate::view::raw_thought::{InvalidThought, RawThought, raw_thought_json};
pub use crate::view::replay_audit::{
    OpenRouterReasoningCodec, ReasoningCodec, ReplayAudit, ReplayContract, ReplayTurn,
    ReplayViolation, audit_replay,
};
