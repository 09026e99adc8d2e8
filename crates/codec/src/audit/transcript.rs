//! The earlier exchanges of a conversation, which are evidence of issued Seals.

use bytes::Bytes;
use throughline_core::{Call, Event, Reply, Request, Target};

use crate::draft::is_same_endpoint;
use crate::events::StreamDecoder;
use crate::frame::Framing;
use crate::{Codec, CodecError, DecodeContext};

/// The earlier requests and responses of a conversation, in order.
#[derive(Clone, Debug, Default)]
pub struct PriorExchanges {
    exchanges: Vec<Exchange>,
}

/// One request and its response; either may be unknown.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The target and prefix of the request.
    pub asked: DecodeContext,
    /// The decoded request; `None` if only the response is known.
    pub call: Option<Call>,
    /// The decoded response; `None` if only the request is known.
    pub reply: Option<Reply>,
}

/// Lookup of Seals that a target issued in exchanges that are not in [`PriorExchanges`].
pub trait IssuedSeals: Sync {
    /// Returns whether the target issued exactly these Seal bytes.
    fn contains(&self, seal: &[u8]) -> bool;
}

impl PriorExchanges {
    /// Creates an empty history.
    pub const fn new() -> Self {
        Self { exchanges: Vec::new() }
    }

    /// Returns whether no exchange is known.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Returns the exchanges, oldest first.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Returns whether the target issued exactly this Seal in one of these exchanges.
    pub(super) fn has_issued(&self, seal: &[u8], target: &Target) -> bool {
        let is_own = |exchange: &&Exchange| {
            let (was, now) = (&exchange.asked.target.origin, &target.origin);
            is_same_endpoint(was, now) && was.account == now.account
        };
        let replies =
            self.exchanges.iter().filter(is_own).filter_map(|exchange| exchange.reply.as_ref());
        let mut seals = replies.flat_map(|reply| &reply.items).flat_map(|item| &item.seals);
        seals.any(|issued| **issued.reveal_to_tenant() == *seal)
    }

    /// Appends an exchange that is already decoded.
    pub fn push(&mut self, exchange: Exchange) {
        self.exchanges.push(exchange);
    }

    /// Decodes a request and appends it as a new exchange.
    pub fn push_request(
        &mut self,
        codec: &dyn Codec,
        request: &Request,
        context: DecodeContext,
    ) -> Result<(), CodecError> {
        let call = codec.decode_request(request, &context)?;
        self.exchanges.push(Exchange { asked: context, call: Some(call), reply: None });
        Ok(())
    }

    /// Decodes a complete response and adds the response to the last request. If the last request
    /// already has a response, a new exchange is appended.
    pub fn push_response(
        &mut self,
        codec: &dyn Codec,
        body: &Bytes,
        context: DecodeContext,
    ) -> Result<(), CodecError> {
        let reply = codec.decode_reply(body, &context)?;
        self.answer(context, reply);
        Ok(())
    }

    /// Decodes a streamed response and adds the response to the last request. If the last request
    /// already has a response, a new exchange is appended.
    pub fn push_stream(
        &mut self,
        codec: &dyn Codec,
        bytes: &[u8],
        framing: Framing,
        context: DecodeContext,
    ) -> Result<(), CodecError> {
        let mut decoder = StreamDecoder::with_framing(codec, &context, framing);
        let mut events = decoder.push(bytes)?;
        events.extend(decoder.finish()?);
        for event in events {
            if let Event::Ended(reply) = event {
                self.answer(context, *reply);
                break;
            } else if let Event::Failed(failure) = event {
                return Err(CodecError::Provider(Box::new(failure)));
            }
        }
        Ok(())
    }

    fn answer(&mut self, context: DecodeContext, reply: Reply) {
        match self.exchanges.last_mut().filter(|exchange| exchange.reply.is_none()) {
            Some(open) => open.reply = Some(reply),
            None => {
                self.exchanges.push(Exchange { asked: context, call: None, reply: Some(reply) });
            }
        }
    }
}
