//! Implements the methods of [`Codec`](crate::Codec) that have the same body on every wire.

/// The names that `codec_methods!` and the `mod.rs` of each wire import.
pub(crate) mod prelude {
    pub(crate) use bytes::Bytes;
    pub(crate) use throughline_core::{Call, EncodedRequest, Reply, Request, Target, Wire};
    pub(crate) use throughline_json::{Name, Node, Tree};
    pub(crate) use throughline_spec::ReasoningCodec;

    pub(crate) use crate::{
        AuditContext, Codec, CodecError, DecodeContext, Decoder, Document, Encoder, Findings,
        Framing, PathStyle, Rule,
    };
}

/// Expands to the shared [`Codec`](crate::Codec) methods. The invoking `mod.rs` must have the
/// modules `wire`, `decode`, `encode`, `stream` and `contract`.
macro_rules! codec_methods {
    ($wire:expr, $decoder:ty, $encoder:ty) => {
        fn wire(&self) -> Wire {
            $wire
        }

        fn recognise(&self, document: Node<'_>) -> Option<Document> {
            wire::recognise(document)
        }

        fn encode(&self, call: &Call) -> Result<EncodedRequest, CodecError> {
            Ok(encode::encode(call))
        }

        fn decode_request(
            &self,
            request: &Request,
            context: &DecodeContext,
        ) -> Result<Call, CodecError> {
            decode::decode_request(request, &Tree::parse(request.body.clone())?, context)
        }

        fn decode_parsed(
            &self,
            request: &Request,
            body: &Tree,
            context: &DecodeContext,
        ) -> Result<Call, CodecError> {
            decode::decode_request(request, body, context)
        }

        fn decode_reply(&self, body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
            decode::decode_reply(body, context)
        }

        fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError> {
            let reply = crate::empty_text::without_empty_texts(reply, &self.wire());
            Ok(encode::encode_reply(&reply).bytes().clone())
        }

        fn decoder(&self, context: &DecodeContext) -> Box<dyn Decoder> {
            Box::new(<$decoder>::new(context.clone()))
        }

        fn encoder(&self) -> Box<dyn Encoder> {
            Box::new(<$encoder>::default())
        }

        fn reasoning(&self) -> &dyn ReasoningCodec {
            self
        }

        fn rules(&self) -> &'static [&'static Rule] {
            &contract::RULES
        }

        fn inspect(&self, case: &AuditContext<'_>, findings: &mut Findings<'_>) {
            contract::inspect(case, findings);
        }
    };
}
