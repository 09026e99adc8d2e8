//! Reuses the Items of an earlier request, so that only the new messages of a growing conversation
//! are decoded.
//!
//! A message is decoded to the same Items as in the earlier request if all bytes before its end are
//! equal and the request has the same target. The reused Items share the texts of the earlier
//! Items, but are slices of the new body, so that the earlier body can be freed.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Body, Envelope, Item};
use throughline_json::{Json, Node, Tree};

use crate::edit::range_in;
use crate::item_reader::ItemReader;
use crate::known_request::KnownBeginning;

/// Which of the equal messages are reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReusedMessages {
    /// All of them.
    All,
    /// All but the last one, whose Items depend on whether another message follows.
    AllButLast,
}

impl ItemReader<'_> {
    /// Adds the Items of the messages that an earlier request also contains to `items`, and returns
    /// the number of these messages. `list` is the member `name` of the body, which contains the
    /// messages.
    pub(crate) fn reuse_items(
        &mut self,
        body: &Tree,
        (name, list): (&str, Node<'_>),
        messages: ReusedMessages,
        items: &mut Vec<Item>,
    ) -> usize {
        let Some(KnownBeginning { request, shared }) = &self.context.known else { return 0 };
        let known_list = request.body.root().get(name).map(|list| list.range().start);
        if request.wire != self.wire
            || !request.has_target(&self.context.target)
            || known_list != Some(list.range().start)
        {
            return 0;
        }
        // The byte after a message is equal too, so both lists have a complete message there.
        let equal = list.elements().take_while(|message| message.range().end < *shared).count();
        let count = match messages {
            ReusedMessages::All => equal,
            ReusedMessages::AllButLast => equal.saturating_sub(1),
        };
        debug_assert_eq!(
            request.body.bytes().get(..*shared),
            body.bytes().get(..*shared),
            "the beginnings are equal"
        );
        let is_equal = |item: &&Item| (item.place.message as usize) < count;
        let mut mover = SliceMover { from: request.body.bytes(), to: body.bytes(), latest: None };
        for item in request.items.iter().take_while(is_equal) {
            self.record_calls(item);
            items.push(mover.moved(item));
        }
        count
    }

    /// Records the tool call or the tool result in an Item, as decoding it does.
    fn record_calls(&mut self, item: &Item) {
        match &item.body {
            Body::Call(call) => {
                let id = self.calls.open(call.wire_id.as_ref(), &call.name, item.place);
                debug_assert_eq!(id, call.id, "equal calls have equal ids");
            }
            Body::Result(result) => {
                self.calls.answer(result.wire_id.as_deref(), result.name.as_deref());
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => {}
        }
    }
}

/// Replaces slices of one body by the equal slices of another body.
struct SliceMover<'b> {
    from: &'b Bytes,
    to: &'b Bytes,
    /// The last envelope that was moved, before and after. The Items of a message share it.
    latest: Option<(Arc<Envelope>, Arc<Envelope>)>,
}

impl SliceMover<'_> {
    fn moved(&mut self, item: &Item) -> Item {
        let mut item = item.clone();
        item.for_each_slice(&mut |slice| self.move_slice(slice));
        if let Some(envelope) = item.native.as_mut().and_then(|native| native.envelope.as_mut()) {
            *envelope = self.moved_envelope(envelope);
        }
        item
    }

    fn move_slice(&self, slice: &mut Bytes) {
        if let Some(range) = range_in(self.from, slice) {
            *slice = self.to.slice(range);
        }
    }

    fn moved_envelope(&mut self, envelope: &Arc<Envelope>) -> Arc<Envelope> {
        if let Some((before, after)) = &self.latest
            && Arc::ptr_eq(before, envelope)
        {
            return Arc::clone(after);
        }
        let mut bytes = envelope.json.bytes().clone();
        self.move_slice(&mut bytes);
        let after = Arc::new(Envelope { json: Json::from_trusted(bytes), parts: envelope.parts });
        self.latest = Some((Arc::clone(envelope), Arc::clone(&after)));
        after
    }
}
