//! A connection that is closed if its client sends no request or stops reading the response.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Number of bytes that a client must send before the first deadline. This is the length of the
/// HTTP/2 preface, and no valid HTTP/1.1 request is shorter.
const PREFACE_BYTES: usize = 24;

/// A TCP connection with timeouts.
pub(super) struct ClientSocket {
    stream: TcpStream,
    /// How many of the first [`PREFACE_BYTES`] bytes have arrived.
    greeting: usize,
    /// The deadline for the first bytes, and later for a pending write.
    alarm: Pin<Box<Sleep>>,
    slow_reader: Duration,
    /// Whether a write is pending.
    waits: bool,
}

impl ClientSocket {
    pub(super) fn new(stream: TcpStream, greeting: Duration, slow_reader: Duration) -> Self {
        Self { stream, greeting: 0, alarm: Box::pin(sleep(greeting)), slow_reader, waits: false }
    }

    /// Returns the result of a write, or a timeout error if the write was pending for too long.
    fn check_write_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.alarm.as_mut().reset(Instant::now() + self.slow_reader);
        }
        if self.alarm.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.greeting >= PREFACE_BYTES {
            return read;
        }
        if read.is_ready() {
            self.greeting += buffer.filled().len().saturating_sub(before);
        } else if !self.waits && self.alarm.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_write_timeout(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.check_write_timeout(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
