//! Capture and restore for programs that send requests with their own HTTP client.

use bytes::Bytes;
use throughline_codec::{Codec, CodecError, DecodeContext, Framing, StreamDecoder, codec};
use throughline_core::{
    EncodedRequest, Event, Reply, Request, StoreError, Target, Tenant, TurnId, Wire,
};

use crate::claim::{Claims, RandomnessError};
use crate::engine::{Conversation, Replay, RestoredCall, Turn};
use crate::finding::Finding;

/// A request with its lost reasoning restored. Send `encoded.request`, then pass the response to
/// [`Replay::capture_response`].
#[derive(Debug)]
pub struct RestoredRequest {
    /// The request to send, with the Fate of every Item and Seal.
    pub encoded: EncodedRequest,
    /// The client's alterations, and the turns that can no longer be restored.
    pub findings: Vec<Finding>,
    /// The context for decoding the response.
    pub context: DecodeContext,
    tenant: Tenant,
    conversation: Conversation,
    is_streamed: bool,
}

/// A request could not be restored, or a response could not be captured.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The target's wire has no built-in codec. With your own codec, use [`Replay::restore`] and
    /// [`Replay::capture`].
    #[error("no codec registered for wire `{0}`")]
    UnknownWire(Wire),
    /// The request cannot be decoded or encoded, or the response cannot be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system's random number generator failed, so the turn has no id.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}

impl Replay {
    /// Restores the content that a request has lost, and encodes the request again for its target.
    /// The request must use the target's wire. Unaffected parts of the request stay byte-identical.
    pub async fn restore_request(
        &self,
        tenant: &Tenant,
        end_user: Option<&str>,
        target: &Target,
        request: &Request,
    ) -> Result<RestoredRequest, ReplayError> {
        let codec = codec_of(target)?;
        let mut context = DecodeContext::of(target.clone());
        let call = codec.decode_request(request, &context)?;
        let is_streamed = call.stream;
        let restored = self.restore(tenant, end_user, call).await?;
        let mut encoded = codec.encode(&restored.call)?;
        restored.account(&mut encoded);
        context.prefix = encoded.prefix;
        let RestoredCall { conversation, findings, .. } = restored;
        let tenant = tenant.clone();
        Ok(RestoredRequest { encoded, findings, context, tenant, conversation, is_streamed })
    }

    /// Captures the complete body of a successful response, streamed or not. Returns the new turn's
    /// id; `None` for truncated and empty responses, which are not stored.
    pub async fn capture_response(
        &self,
        request: &RestoredRequest,
        body: &Bytes,
    ) -> Result<Option<TurnId>, ReplayError> {
        let codec = codec_of(&request.context.target)?;
        let reply = if request.is_streamed {
            decode_stream(codec, &request.context, body)?
        } else {
            Some(codec.decode_reply(body, &request.context)?)
        };
        match reply {
            Some(reply) => self.capture_reply(request, &reply).await,
            None => Ok(None),
        }
    }

    /// Captures a response that the caller has already decoded with the request's
    /// [context](RestoredRequest::context), for example while relaying the stream.
    pub async fn capture_reply(
        &self,
        request: &RestoredRequest,
        reply: &Reply,
    ) -> Result<Option<TurnId>, ReplayError> {
        let turn = Turn {
            node: Claims::new_turn_id()?,
            conversation: &request.conversation,
            reply,
            prefix: request.encoded.prefix,
            ids: &[],
            record: None,
            response: None,
        };
        Ok(self.capture(&request.tenant, &turn).await?)
    }
}

fn codec_of(target: &Target) -> Result<&'static dyn Codec, ReplayError> {
    let wire = &target.origin.wire;
    codec(wire).ok_or_else(|| ReplayError::UnknownWire(wire.clone()))
}

/// Decodes the collected bytes of a stream. Returns `None` if the stream contains no reply.
fn decode_stream(
    codec: &dyn Codec,
    context: &DecodeContext,
    body: &[u8],
) -> Result<Option<Reply>, CodecError> {
    // Gemini streams a JSON array unless the request asks for server-sent events.
    let framing = if body.first() == Some(&b'[') { Framing::JsonArray } else { codec.framing() };
    let mut decoder = StreamDecoder::with_framing(codec, context, framing);
    let mut events = decoder.push(body)?;
    events.extend(decoder.finish()?);
    let reply = |event| if let Event::Ended(reply) = event { Some(*reply) } else { None };
    Ok(events.into_iter().find_map(reply))
}
