//! The replay engine: captures what models answer, and restores what clients lose of it.
//!
//! The crate has no HTTP server and no HTTP client. A program that sends its own requests calls
//! [`Replay::restore_request`] before it sends a request, and [`Replay::capture_response`] when the
//! response has ended. With a codec of its own, it calls [`Replay::restore`] and
//! [`Replay::capture`].
//!
//! # Capture
//! Each reply becomes a turn of the Vault: its Items as they came, the turn before it, and the keys
//! that find it again. The keys are its own name, which a [claim](Claims) carries; the ids and
//! Seals that the provider issued; and the [`Chain`] of the visible conversation up to it. A reply
//! whose stream was cut is not captured.
//!
//! # Restore
//! The engine looks for the turns of a request, the last one first, by the best evidence it has:
//!
//! 1. a claim;
//! 2. an id or a Seal that names exactly one captured turn of the tenant, with equal calls;
//! 3. the complete chain: the system prompt and every visible turn. Of equal turns the newest wins,
//!    and the others are counted.
//!
//! The engine then follows the ancestry of the turn it found, so the branches of a conversation
//! never mix. A turn must belong to the same end user, whatever the evidence. A turn that the
//! client sent intact is not changed. Any other turn is replaced by what was issued, or keeps the
//! client's edited text where the provider allows that. Weaker evidence restores nothing.
//!
//! | module | contents |
//! |---|---|
//! | `engine` | capture, restore, the Vault as one search sees it, caches, write-behind |
//! | `claim` | handles that only this deployment can make |
//! | `claimed` | replies as a client of another dialect receives them, with claims |
//! | `finding` | what a client did to the turns it was given |
//! | `objects` | ids of provider-held objects and their owners |
//! | `byte_lru` | a cache with a limit in bytes |
//! | `stored` | stored responses: `store` and `previous_response_id` |
//! | `call_record` | the record of one call |
//! | `turn` | where a captured turn is stored |

mod byte_lru;
mod call_record;
mod claim;
mod claimed;
mod engine;
mod finding;
mod objects;
mod stored;
mod turn;

pub use crate::call_record::{
    Bodies, CallLog, CallRecord, CaptureOutcome, DeltaBase, DisconnectLimiter, FateCounts,
    call_json, report_json,
};
pub use crate::claim::{Claims, RandomnessError};
pub use crate::claimed::ClaimRewriter;
pub use crate::engine::{
    CapturedSeals, Chain, ChainTurn, Conversation, OwnedTurn, Replay, ReplayError, RestoredCall,
    RestoredRequest, Turn, VisibleDigests,
};
pub use crate::finding::{Finding, RestoreIssue};
pub use crate::objects::{
    Family, LOG as OBJECT_LOG, ObjectId, ObjectKind, account_of, bare_name, id_of, ids_at,
    ids_of_reply, text_of,
};
pub use crate::stored::{
    InputItemsQuery, Lookup, PREVIOUS_RESPONSE_ID, StoreOptions, StoredResponse, echoed,
    find as find_response, list as list_items, listed_position, read as read_response,
    record as response_record,
};
pub use crate::turn::{CALL_RECORD, ParentTurn, TURN, response_log};
