//! Replies that Gemini interrupts above its output limit and continues on request.
//!
//! An interrupted reply has the finish reason `CONTINUATION` and a `continuationToken`. A request
//! with this token and the same contents continues the reply. The replies of all these requests
//! form one turn of the model.

use std::collections::HashSet;

use bytes::Bytes;
use throughline_core::{
    Body, Call, CallId, Extra, ItemId, Reply, Seal, SealBinding, StopReason, Usage,
};
use throughline_json::{self as json, Json};

use crate::draft;
use crate::gemini::WIRE;
use crate::gemini::wire;

/// The finish reason of a reply that a further request continues.
const CONTINUATION: &str = "CONTINUATION";
/// The member with the token, in a candidate and in a request.
const TOKEN: &str = "continuationToken";
/// The format of the token's Seal.
const FORMAT: &str = "gemini.continuation_token";

/// Returns the token that continues an interrupted reply; `None` for any other reply. The token is
/// opaque, and only the account that received it may send it back.
pub fn continuation_seal(reply: &Reply) -> Option<Seal> {
    let is_interrupted =
        matches!(&reply.stop, StopReason::Other(reason) if **reason == *CONTINUATION);
    if reply.origin.wire != WIRE || !is_interrupted {
        return None;
    }
    let (_, candidates) = reply.extras.iter().find(|(key, _)| &**key == "candidates")?;
    let tree = candidates.tree();
    let token = wire::present(tree.root().elements().next()?, TOKEN)?.text_bytes()?;
    let seal = Seal::new(token, FORMAT, reply.origin.clone(), "/continuationToken");
    (!seal.is_empty())
        .then(|| seal.bound_to(SealBinding { account: true, ..SealBinding::default() }))
}

/// Returns the token in a request that continues an interrupted reply. If a request names several
/// tokens, the result is all of them joined, which equals no issued token.
pub fn continuation_token(call: &Call) -> Option<Bytes> {
    let is_token = |extra: &&Extra| {
        extra.wire.as_ref().is_some_and(|wire| *wire == WIRE) && wire::is_spelled(&extra.key, TOKEN)
    };
    let values = call.extras.iter().filter(is_token).map(|extra| extra.value.tree());
    let mut tokens: Vec<Bytes> =
        values.filter_map(|tree| tree.root().text_bytes()).filter(|it| !it.is_empty()).collect();
    if tokens.len() > 1 {
        return Some(tokens.concat().into());
    }
    tokens.pop()
}

/// Returns the body of the request that continues an interrupted reply. `body` is the request that
/// the reply answers.
pub fn continued_body(body: &Bytes, token: &[u8]) -> Option<Bytes> {
    let body = Json::parse(body.clone()).ok()?;
    let token = json::string(std::str::from_utf8(token).ok()?);
    Some(draft::with_member(&body, TOKEN, token).bytes().clone())
}

/// Joins an interrupted reply and its continuation to one reply.
pub fn join_replies(mut first: Reply, next: Reply) -> Reply {
    let mut ids: HashSet<ItemId> = first.items.iter().map(|item| item.id.clone()).collect();
    let calls: HashSet<CallId> =
        first.items.iter().filter_map(|item| item.call()).map(|call| call.id.clone()).collect();
    let offset = first.items.iter().map(|item| item.place.part + 1).max().unwrap_or_default();
    for mut item in next.items {
        item.place.part = item.place.part.saturating_add(offset);
        if !ids.insert(item.id.clone()) {
            item.id = ItemId::from(format!("{}.{offset}", item.id));
            ids.insert(item.id.clone());
        }
        if let Body::Call(call) = &mut item.body
            && calls.contains(&call.id)
        {
            call.id = CallId::from(format!("{}.{offset}", call.id));
        }
        first.items.push(item);
    }
    // The provider charges each request for the prompt.
    let (before, after) = (first.usage, next.usage);
    first.usage = Usage {
        input: before.input.saturating_add(after.input),
        cached: before.cached.saturating_add(after.cached),
        written: before.written.saturating_add(after.written),
        output: before.output.saturating_add(after.output),
        thought: before.thought.saturating_add(after.thought),
    };
    let has_calls = first.items.iter().any(|item| item.call().is_some());
    first.stop = match next.stop {
        StopReason::Done if has_calls => StopReason::Tools,
        stop => stop,
    };
    first.extras = next.extras;
    first
}
