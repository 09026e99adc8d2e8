//! The methods of [`Codec`](crate::Codec) that every wire implements by calling its modules.

/// Implements them in the `mod.rs` of a wire, which has the modules `wire`, `decode`, `encode` and
/// `stream`.
macro_rules! codec_methods {
    ($decoder:ty, $encoder:ty) => {
        fn recognise(&self, document: ::throughline_json::Node<'_>) -> Option<$crate::Document> {
            wire::recognise(document)
        }

        fn encode(
            &self,
            call: &::throughline_core::Call,
        ) -> Result<::throughline_core::EncodedRequest, $crate::CodecError> {
            Ok(encode::encode(call))
        }

        fn decode_request(
            &self,
            request: &::throughline_core::Request,
            context: &$crate::DecodeContext,
        ) -> Result<::throughline_core::Call, $crate::CodecError> {
            let tree = ::throughline_json::Tree::parse(request.body.clone())?;
            decode::decode_request(request, &tree, context)
        }

        fn decode_parsed(
            &self,
            request: &::throughline_core::Request,
            body: &::throughline_json::Tree,
            context: &$crate::DecodeContext,
        ) -> Result<::throughline_core::Call, $crate::CodecError> {
            decode::decode_request(request, body, context)
        }

        fn decode_reply(
            &self,
            body: &::bytes::Bytes,
            context: &$crate::DecodeContext,
        ) -> Result<::throughline_core::Reply, $crate::CodecError> {
            decode::decode_reply(body, context)
        }

        fn encode_reply(
            &self,
            reply: &::throughline_core::Reply,
        ) -> Result<::bytes::Bytes, $crate::CodecError> {
            let reply = $crate::empty_text::without_empty_texts(reply, &self.wire());
            Ok(encode::encode_reply(&reply).bytes().clone())
        }

        fn decoder(&self, context: &$crate::DecodeContext) -> Box<dyn $crate::Decoder> {
            Box::new(<$decoder>::new(context.clone()))
        }

        fn encoder(&self) -> Box<dyn $crate::Encoder> {
            Box::new(<$encoder>::default())
        }
    };
}
