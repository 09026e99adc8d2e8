//! Encodes a reply for a caller of another dialect.

use throughline_codec::StreamEncoder;
use throughline_core::Event;
use throughline_replay::ClaimRewriter;

/// Encodes events in the caller's dialect.
pub(super) struct ReplyWriter {
    pub(super) rewriter: ClaimRewriter,
    pub(super) encoder: StreamEncoder,
}

impl ReplyWriter {
    pub(super) fn write(&mut self, event: Event, out: &mut Vec<u8>) {
        // Unknown frames are native to the provider's dialect and may contain its Seals.
        if matches!(event, Event::Alien(_)) {
            return;
        }
        for event in self.rewriter.events(event) {
            // Events that this dialect cannot express are left out.
            drop(self.encoder.push(&event, out));
        }
    }
}
