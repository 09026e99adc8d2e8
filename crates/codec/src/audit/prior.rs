//! What was asked and answered before, as evidence of what was issued.

use bytes::Bytes;
use throughline_core::{Call, Event, Reply, Request, Target};

use crate::events::StreamDecoder;
use crate::frame::Framing;
use crate::{Asked, Codec, CodecError};

/// The earlier requests and responses of a conversation, in order.
#[derive(Clone, Debug, Default)]
pub struct Prior {
    exchanges: Vec<Exchange>,
}

/// One request and what was answered; either may be unknown.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Who was asked.
    pub asked: Asked,
    /// What was asked.
    pub call: Option<Call>,
    /// What was answered.
    pub reply: Option<Reply>,
}

/// Seals that a target is known to have issued, from elsewhere than a [`Prior`].
pub trait IssuedSeals: Sync {
    /// Whether that seal is one of them, bit for bit.
    fn contains(&self, seal: &[u8]) -> bool;
}

impl Prior {
    /// Nothing known.
    pub const fn new() -> Self {
        Self { exchanges: Vec::new() }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// The exchanges, the oldest first.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Whether that target issued this seal, bit for bit, in one of these exchanges.
    pub(super) fn has_issued(&self, seal: &[u8], target: &Target) -> bool {
        let is_own = |exchange: &&Exchange| {
            let (was, now) = (&exchange.asked.target.origin, &target.origin);
            was.provider == now.provider
                && was.endpoint == now.endpoint
                && was.account == now.account
        };
        let replies = self.exchanges.iter().filter(is_own).filter_map(|said| said.reply.as_ref());
        let mut seals = replies.flat_map(|reply| &reply.items).flat_map(|item| &item.seals);
        seals.any(|issued| **issued.reveal_to_tenant() == *seal)
    }

    /// Adds an exchange that was read elsewhere.
    pub fn push(&mut self, exchange: Exchange) {
        self.exchanges.push(exchange);
    }

    /// Adds a request.
    pub fn push_request(
        &mut self,
        codec: &dyn Codec,
        request: &Request,
        asked: Asked,
    ) -> Result<(), CodecError> {
        let call = codec.decode_request(request, &asked)?;
        self.exchanges.push(Exchange { asked, call: Some(call), reply: None });
        Ok(())
    }

    /// Adds a whole response, to the last request if that has none yet.
    pub fn push_response(
        &mut self,
        codec: &dyn Codec,
        body: &Bytes,
        asked: Asked,
    ) -> Result<(), CodecError> {
        let reply = codec.decode_reply(body, &asked)?;
        self.answer(asked, reply);
        Ok(())
    }

    /// Adds a streamed response, to the last request if that has none yet.
    pub fn push_stream(
        &mut self,
        codec: &dyn Codec,
        bytes: &[u8],
        framing: Framing,
        asked: Asked,
    ) -> Result<(), CodecError> {
        let mut decoder = StreamDecoder::framed(codec, &asked, framing);
        let mut events = decoder.push(bytes)?;
        events.extend(decoder.finish()?);
        for event in events {
            match event {
                Event::Ended(reply) => {
                    self.answer(asked, *reply);
                    return Ok(());
                }
                Event::Failed(failure) => return Err(CodecError::Provider(Box::new(failure))),
                Event::Began { .. }
                | Event::Opened { .. }
                | Event::Delta { .. }
                | Event::Closed { .. }
                | Event::Usage(_)
                | Event::Alien(_) => {}
            }
        }
        Ok(())
    }

    fn answer(&mut self, asked: Asked, reply: Reply) {
        match self.exchanges.last_mut().filter(|exchange| exchange.reply.is_none()) {
            Some(open) => open.reply = Some(reply),
            None => self.exchanges.push(Exchange { asked, call: None, reply: Some(reply) }),
        }
    }
}
