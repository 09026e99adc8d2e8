//! Views: each view parses and writes the JSON of one document type.
//!
//! The Items are authoritative: they contain the order of parts, the Seals with their owners, and
//! the native JSON. Each view documents which of these data it omits.

mod details;
mod letta;
mod message;
mod message_items;
mod raw_thought;
mod replay_audit;

pub use crate::view::details::*;
pub use crate::view::letta::*;
pub use crate::view::message::*;
pub use crate::view::raw_thought::*;
pub use crate::view::replay_audit::*;
