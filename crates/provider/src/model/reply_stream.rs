//! Decodes a streamed response to Events.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use throughline_codec::{Codec, DecodeContext, StreamDecoder};
use throughline_core::{BodyStream, Event, EventStream, ModelError};
use tokio::time::timeout;

use crate::model::error_map::{from_codec, from_failure, from_upstream};

/// Time limit for reading the rest of the body after the last event, so that the connection can be
/// reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// A streamed response that is being read.
pub(super) struct ReplyStream {
    decoder: StreamDecoder,
    chunks: BodyStream,
    /// Events that were decoded but not returned yet.
    pending: VecDeque<Event>,
    /// Whether the stream has ended.
    is_over: bool,
}

impl ReplyStream {
    pub(super) fn new(codec: &dyn Codec, context: &DecodeContext, chunks: BodyStream) -> Self {
        let decoder = StreamDecoder::new(codec, context);
        Self { decoder, chunks, pending: VecDeque::new(), is_over: false }
    }

    /// Returns the Events. The last Event is the complete reply; if the reply is incomplete, the
    /// stream ends with an error instead.
    pub(super) fn events(self) -> EventStream {
        Box::pin(stream::unfold(self, |mut state| async move {
            let event = state.next().await?;
            Some((event, state))
        }))
    }

    async fn next(&mut self) -> Option<Result<Event, ModelError>> {
        while self.pending.is_empty() && !self.is_over {
            if let Err(error) = self.read_chunk().await {
                self.is_over = true;
                return Some(Err(error));
            }
        }
        let event = self.pending.pop_front()?;
        match event {
            Event::Failed(failure) => {
                self.finish();
                Some(Err(from_failure(&failure)))
            }
            Event::Ended(_) => {
                if !self.is_over {
                    let rest = async { while let Some(Ok(_)) = self.chunks.next().await {} };
                    // If the body does not end in time, it is dropped.
                    drop(timeout(DRAIN_TIMEOUT, rest).await);
                }
                self.finish();
                Some(Ok(event))
            }
            event => Some(Ok(event)),
        }
    }

    /// Reads a chunk of the body and decodes its events.
    async fn read_chunk(&mut self) -> Result<(), ModelError> {
        let decoded = match self.chunks.next().await {
            Some(Ok(bytes)) => self.decoder.push(&bytes),
            Some(Err(error)) => return Err(from_upstream(&error)),
            None => {
                self.is_over = true;
                self.decoder.finish()
            }
        };
        self.pending.extend(decoded.map_err(|error| from_codec(&error))?);
        Ok(())
    }

    fn finish(&mut self) {
        self.is_over = true;
        self.pending.clear();
    }
}
