//! The replay engine: captures model replies and restores reasoning that clients lose.
//!
//! The crate has no HTTP server and no HTTP client. A program that sends its own requests calls
//! [`Replay::restore_request`] before it sends a request, and [`Replay::capture_response`] when the
//! response has ended. A program with its own codec calls [`Replay::restore`] and
//! [`Replay::capture`] instead.
//!
//! # Capture
//! Each reply becomes a Vault turn, which consists of the Items as received, a link to the previous
//! turn, and lookup keys. The keys are the turn's id (contained in a [Claim](Claims)), the
//! provider's ids and Seals, and the [`Chain`] of the visible conversation. Truncated replies are
//! not captured.
//!
//! # Restore
//! The engine looks up the turns in a request, newest first, by the strongest available evidence:
//!
//! 1. a Claim;
//! 2. an id or a Seal that identifies exactly one of the tenant's captured turns, if the tool calls
//!    of both turns are equal. The id may also be in the client's next Items, such as the id of an
//!    approval request;
//! 3. the complete chain: the system prompt and every visible turn. If several captured turns
//!    match, the newest is used and the others are counted;
//! 4. the turn before it, if that turn was found: the turn before it, the caller's Items in between
//!    and the visible content of the turn must be equal. The system prompt may differ.
//!
//! The engine then follows the parent links of the turn it found, so branches of a conversation are
//! never mixed. A captured turn is used only if it belongs to the request's end user. A turn that
//! the client sent intact is not changed. Any other turn is replaced by the captured turn, with the
//! client's edited text where the provider allows edits. Weaker evidence restores nothing.
//!
//! Reasoning without a Seal is restored only if the model uses it or the provider demands it. The
//! target's profile and its provider's `replay_plain` decide. Otherwise the Thought gets a Fate
//! with the reason.
//!
//! | module | contents |
//! |---|---|
//! | `engine` | capture, restore, the Vault as one search sees it, caches, write-behind |
//! | `claim` | handles that only this deployment can make |
//! | `claimed` | replies as a client of another dialect receives them, with claims |
//! | `finding` | what a client did to the turns it was given |
//! | `objects` | ids of provider-held objects and their owners |
//! | `body_cache` | parsed request bodies, so that only new content is parsed |
//! | `byte_lru` | a cache with a limit in bytes |
//! | `stored` | stored responses: `store` and `previous_response_id` |
//! | `call_record` | the record of one call |
//! | `turn` | where a captured turn is stored |

mod body_cache;
mod byte_lru;
mod call_record;
mod claim;
mod claimed;
mod engine;
mod finding;
mod objects;
mod stored;
mod turn;

pub use crate::body_cache::{BodyCache, KnownFacts, ParsedBody};
pub use crate::call_record::{
    Bodies, CallLog, CallRecord, CaptureOutcome, DeltaBase, DisconnectLimiter, FateCounts,
    InputTransformation, ProviderCall, appended_messages, call_json, report_json,
};
pub use crate::claim::{Claims, RandomnessError};
pub use crate::claimed::ClaimRewriter;
pub use crate::engine::{
    CapturedSeals, Chain, ChainTurn, CompactedInput, Conversation, DEFAULT_CACHE_SIZE, Expansion,
    OwnedTurn, Replay, ReplayError, RestoredCall, RestoredRequest, Turn, VisibleDigests,
};
pub use crate::finding::{Finding, RestoreIssue};
pub use crate::objects::{
    Family, LOG as OBJECT_LOG, ObjectId, ObjectKind, account_of, bare_name, id_of, ids_at,
    ids_of_reply, names_thread, text_of,
};
pub use crate::stored::{
    InputItemsQuery, Lookup, PREVIOUS_RESPONSE_ID, StoreOptions, StoredResponse, echoed,
    find as find_response, list as list_items, listed_position, read as read_response,
    record as response_record,
};
pub use crate::turn::{
    CALL_RECORD, CONVERSATION_PREFIX, ParentTurn, TURN, UNANSWERED_PREFIX, is_conversation,
    response_log,
};
