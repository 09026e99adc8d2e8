//! The gateway accepts requests in five dialects and sends them to any provider.
//!
//! | file | contents |
//! |---|---|
//! | `admission.rs` | authentication of callers |
//! | `headers.rs` | the headers and the path that are forwarded to a provider |
//! | `dialect.rs` | classification of a request by method, path and headers |
//! | `cloud.rs` | requests on the paths of Amazon Bedrock and Vertex AI |
//! | `exchange.rs` | one model call, from the request to the response |
//! | `accounts.rs` | which of a provider's accounts a request tries |
//! | `summary_fallback.rs` | a second attempt if the provider refuses a reasoning summary |
//! | `prepare.rs`, `prefix.rs`, `references.rs` | decoding, restoring, auditing and encoding a request |
//! | `pass_through.rs` | requests that are sent without decoding them |
//! | `answer.rs`, `stream.rs`, `capture.rs` | relaying and capturing a response |
//! | `compaction.rs` | requests to compact a conversation |
//! | `continuation.rs` | replies that the provider interrupts |
//! | `compression.rs`, `decompress.rs` | compressed responses and requests |
//! | `model_name.rs` | the model name as the client wrote it |
//! | `previous.rs`, `call_record.rs` | stored responses; records of calls |
//! | `count.rs`, `models.rs`, `forward.rs` | token counts; model lists; every other path |
//! | `websocket.rs`, `warm_up.rs` | the Responses API on a WebSocket; requests without a model call |
//! | `objects.rs` | ownership of objects that providers store |

mod accounts;
mod admission;
mod answer;
mod call_record;
mod capture;
mod cloud;
mod compaction;
mod compression;
mod continuation;
mod count;
mod decompress;
mod dialect;
mod estimate;
mod exchange;
mod forward;
mod headers;
mod model_name;
pub(crate) mod models;
mod objects;
mod pass_through;
mod prefix;
mod prepare;
mod previous;
mod references;
mod removed_tools;
mod repeated_results;
mod stream;
mod summary_fallback;
mod warm_up;
pub(crate) mod websocket;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use throughline_codec::SharedCatalog;
use throughline_core::{Stage, Tenant, Upstream};
use throughline_json::{Measure, Name, SharedBeginning, SizeLimitExceeded, SizeLimits, Tree};
use throughline_replay::{ParsedBody, Replay};
use throughline_spec::RedactionPolicy;

use crate::access::{Caller, Keyring};
use crate::error::{GatewayError, GatewayResult};
pub(crate) use crate::gateway::admission::authenticate;
pub(crate) use crate::gateway::cloud::CloudRequest;
use crate::gateway::decompress::decompress;
pub(crate) use crate::gateway::dialect::{
    FIXED_PATHS, GatewayRoute, classify, error_wire, with_key_format,
};
pub(crate) use crate::gateway::exchange::Exchange;
pub(crate) use crate::gateway::forward::method_not_allowed;
pub(crate) use crate::gateway::headers::{forwarded_headers, without_key};
pub use crate::gateway::models::model_list_request;
pub use crate::gateway::objects::{InvalidPattern, Passthrough, object_members, object_routes};
pub(crate) use crate::gateway::objects::{METHODS, object_ids};
pub use crate::gateway::prefix::PrefixPolicy;
use crate::routing::ModelRouter;
use crate::sign_in::SignIn;
use crate::telemetry::{LARGE, RequestScope, Telemetry, read_body};

/// How the gateway handles a request that the provider would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayMode {
    /// Forward requests without changes and capture no replies.
    Off,
    /// Report findings, but forward the request without changes.
    Observe,
    /// Restore lost reasoning and repair requests that the provider would refuse.
    #[default]
    Repair,
    /// Restore lost reasoning and refuse requests that the provider would refuse. The error names
    /// the rule and the fix.
    Enforce,
}

/// The gateway's configuration and the services its handlers share.
pub struct Gateway {
    /// Captures replies and restores lost reasoning.
    pub replay: Arc<Replay>,
    /// Sends requests to providers.
    pub upstream: Arc<dyn Upstream>,
    /// Resolves model names to endpoints.
    pub directory: Arc<dyn ModelRouter>,
    /// The catalog of models and providers. A request keeps the catalog with which it started.
    pub catalog: SharedCatalog,
    /// How to handle a request that the provider would refuse.
    pub mode: ReplayMode,
    /// How to handle a change in the content before prefix-bound Seals.
    pub prefix: PrefixPolicy,
    /// Authenticates callers.
    pub keyring: Arc<dyn Keyring>,
    /// Lets people sign in to the console; `None` if they need a key. With a sign-in, every caller
    /// needs a key or a session, even while no keys exist.
    pub sign_in: Option<Arc<SignIn>>,
    /// Whether to serve other machines while no keys exist.
    pub allow_open: bool,
    /// Host names under which other machines may connect without a key.
    pub hosts: Vec<Name>,
    /// Unrecognised paths that the gateway forwards anyway.
    pub passthrough: Passthrough,
    /// Maximum size of a request body in bytes.
    pub body_limit: usize,
    /// Maximum nesting depth of a JSON request body.
    pub depth_limit: u32,
    /// Metrics, logs, limits and usage accounting.
    pub operations: Arc<Telemetry>,
    /// Redaction policy for the call records that callers read; `None` leaves them unredacted.
    pub redaction: Option<Arc<RedactionPolicy>>,
}

/// Receives a request body within the limits, decompresses it if it has a `content-encoding`, and
/// parses it once, so that all handlers share the parsed tree. The tree is `None` if the body is
/// not JSON. The bodies of model calls are cached.
pub(crate) async fn receive(
    gateway: &Gateway,
    caller: &Caller,
    scope: &RequestScope,
    encoding: Option<&str>,
    body: Body,
    is_model_call: bool,
) -> GatewayResult<(Bytes, Option<ParsedBody>)> {
    let operations = &gateway.operations;
    let mut room = operations.new_reservation(caller);
    let limit = gateway.body_limit;
    let mut body = read_body(body, limit, operations.limits.body, &mut room).await?;
    if let Some(encoding) = encoding {
        let text = decompress(operations, caller, encoding, body, limit, &mut room);
        body = Box::pin(text).await?;
    }
    let (deepest, sizes) = (gateway.depth_limit, &operations.limits.sizes);
    let parse = || {
        let parse =
            |shared: Option<SharedBeginning<'_>>| limited_tree_after(shared, &body, deepest, sizes);
        if !is_model_call {
            return Ok(parse(None)?.map(ParsedBody::new));
        }
        let owner = body_owner(gateway, caller);
        gateway.replay.bodies().parse(&owner, &body, parse, pass_through::must_be_decoded)
    };
    let parsing = async { Stage::Parse.run(parse) };
    let parsed = operations.heavy.run(caller, body.len(), parsing).await??;
    room.reserve_entries(parsed.as_ref().map_or(0, |body| body.tree.entries())).await?;
    scope.hold_memory(room);
    Ok((body, parsed))
}

/// Returns the tenant whose cached bodies a request may use. Callers without a gateway key share a
/// tenant, so their own provider keys distinguish them.
fn body_owner(gateway: &Gateway, caller: &Caller) -> Tenant {
    let key = caller.credential.as_ref().filter(|_| !caller.admission.is_key());
    let own = key.map(|key| Tenant(gateway.replay.claims().caller_tenant(key.reveal())));
    own.unwrap_or_else(|| caller.tenant.clone())
}

/// Minimum average size of an item in bytes, for requests with more than a quarter of the allowed
/// items.
const ITEM: usize = 192;

/// Indexes a body if it is JSON. A large body is measured before it is indexed completely, unless
/// it has so few entries that it cannot exceed a limit.
pub(crate) fn limited_tree(
    body: &Bytes,
    deepest: u32,
    sizes: &SizeLimits,
) -> GatewayResult<Option<Tree>> {
    limited_tree_after(None, body, deepest, sizes)
}

/// Indexes a body like [`limited_tree`], but only what differs from an earlier body.
fn limited_tree_after(
    shared: Option<SharedBeginning<'_>>,
    body: &Bytes,
    deepest: u32,
    sizes: &SizeLimits,
) -> GatewayResult<Option<Tree>> {
    let most = sizes.items;
    // An item takes about the same memory however short it is. A quarter of the limit is therefore
    // always allowed, and a request with more items needs some text per item.
    let items = most.min((most / 4).max(body.len() / ITEM));
    let sizes = &SizeLimits { items, ..*sizes };
    let too_many = |error: SizeLimitExceeded| {
        let is_short = matches!(error, SizeLimitExceeded::Items(limit) if limit < most);
        let hint = is_short
            .then(|| format!("; up to {most} are accepted if they have {ITEM} bytes on average"));
        GatewayError::new(
            413,
            format!("{error}{}; send a smaller request", hint.unwrap_or_default()),
        )
    };
    // A body has at most as many items and tools as entries, so most bodies need no second pass.
    let entries = sizes.items.min(sizes.tools).min(sizes.entries);
    let after = shared.and_then(|shared| shared.parse(deepest, sizes.entries).ok()).flatten();
    let tree = if after.is_some() || body.len() < LARGE {
        let tree = after.map_or_else(|| Tree::parse_within(deepest, body.clone()), Ok);
        if tree.as_ref().is_ok_and(|tree| tree.entries() > entries) {
            Measure::count(body, sizes).map_err(too_many)?;
        }
        tree
    } else if let Ok(Some(tree)) = Tree::parse_bounded(deepest, entries, body.clone()) {
        Ok(tree)
    } else {
        let measured = Measure::count(body, sizes).map_err(too_many)?;
        Tree::parse_measured(deepest, measured.entries, body.clone())
    };
    match tree {
        Err(error) if error.is_too_deep() => {
            let message =
                format!("the body is nested deeper than {deepest} levels; reduce the nesting");
            Err(GatewayError::new(400, message))
        }
        parsed => Ok(parsed.ok()),
    }
}

#[cfg(test)]
#[path = "gateway/limited_tree_tests.rs"]
mod limited_tree_tests;
