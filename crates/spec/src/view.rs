//! Views: each reads and prints the JSON of one document.
//!
//! The Items are authoritative: they hold the order of parts, the Seals with their owners, and the
//! native JSON. Each view documents what it omits.

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
