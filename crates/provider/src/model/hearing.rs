//! A streamed answer, read as it comes.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use throughline_codec::{Asked, Codec, StreamDecoder};
use throughline_core::{Chunks, Event, Events, ModelError};
use tokio::time::timeout;

use crate::model::trouble::{of_codec, of_failure, of_upstream};

/// How long the rest of a connection's bytes is waited for when all was said, so that it can be used again.
const GOODBYE: Duration = Duration::from_millis(200);

/// A streamed answer.
pub(super) struct Hearing {
    decoder: StreamDecoder,
    chunks: Chunks,
    /// What was read and not yet told.
    heard: VecDeque<Event>,
    /// Whether nothing more comes.
    is_over: bool,
}

impl Hearing {
    pub(super) fn of(codec: &dyn Codec, asked: &Asked, chunks: Chunks) -> Self {
        let decoder = StreamDecoder::new(codec, asked);
        Self { decoder, chunks, heard: VecDeque::new(), is_over: false }
    }

    /// What the model says. The last of it is the whole answer, or why there is none.
    pub(super) fn events(self) -> Events {
        Box::pin(stream::unfold(self, |mut hearing| async move {
            let event = hearing.next().await?;
            Some((event, hearing))
        }))
    }

    async fn next(&mut self) -> Option<Result<Event, ModelError>> {
        while self.heard.is_empty() && !self.is_over {
            if let Err(error) = self.listen().await {
                self.is_over = true;
                return Some(Err(error));
            }
        }
        let event = self.heard.pop_front()?;
        match event {
            Event::Failed(failure) => {
                self.finish();
                Some(Err(of_failure(&failure)))
            }
            Event::Ended(_) => {
                if !self.is_over {
                    let rest = async { while let Some(Ok(_)) = self.chunks.next().await {} };
                    // Whoever does not come to an end is left.
                    drop(timeout(GOODBYE, rest).await);
                }
                self.finish();
                Some(Ok(event))
            }
            event => Some(Ok(event)),
        }
    }

    /// Reads what comes next.
    async fn listen(&mut self) -> Result<(), ModelError> {
        let decoded = match self.chunks.next().await {
            Some(Ok(bytes)) => self.decoder.push(&bytes),
            Some(Err(error)) => return Err(of_upstream(&error)),
            None => {
                self.is_over = true;
                self.decoder.finish()
            }
        };
        self.heard.extend(decoded.map_err(|error| of_codec(&error))?);
        Ok(())
    }

    fn finish(&mut self) {
        self.is_over = true;
        self.heard.clear();
    }
}
