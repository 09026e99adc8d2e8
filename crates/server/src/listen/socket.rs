//! A connection that is closed if its client sends no request or stops reading the response.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Number of bytes that a client must send before the first deadline. This is the length of the
/// HTTP/2 preface, and no valid HTTP/1.1 request is shorter.
const PREFACE_BYTES: usize = 24;

/// A connection of a client.
pub(super) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ClientStream {
    /// Performs the TLS handshake on a TCP connection. Other connections stay as they are.
    pub(super) async fn encrypt(self, tls: Arc<ServerConfig>) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => {
                let stream = TlsAcceptor::from(tls).accept(stream).await?;
                Ok(Self::Tls(Box::new(stream)))
            }
            Self::Unix(_) | Self::Tls(_) => Ok(self),
        }
    }

    /// Sends small writes at once. Otherwise each small write of a stream would wait for the
    /// acknowledgement of the previous write.
    fn disable_delay(&self) {
        let result = match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Tls(stream) => stream.get_ref().0.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        };
        drop(result);
    }

    fn reader(&mut self) -> Pin<&mut (dyn AsyncRead + Send + Unpin)> {
        match self {
            Self::Tcp(stream) => Pin::new(stream),
            Self::Unix(stream) => Pin::new(stream),
            Self::Tls(stream) => Pin::new(&mut **stream),
        }
    }

    fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        match self {
            Self::Tcp(stream) => Pin::new(stream),
            Self::Unix(stream) => Pin::new(stream),
            Self::Tls(stream) => Pin::new(&mut **stream),
        }
    }
}

/// A connection with timeouts.
pub(super) struct ClientSocket {
    stream: ClientStream,
    /// How many of the first [`PREFACE_BYTES`] bytes have arrived.
    greeting: usize,
    /// The deadline for the first bytes, and later for a pending write.
    alarm: Pin<Box<Sleep>>,
    slow_reader: Duration,
    /// Whether a write is pending.
    waits: bool,
}

impl ClientSocket {
    pub(super) fn new(stream: ClientStream, greeting: Duration, slow_reader: Duration) -> Self {
        stream.disable_delay();
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

    /// Returns the result of a flush. TLS buffers writes, so the end of a response may be pending
    /// here; other connections have no buffer.
    fn check_flush_timeout(
        &mut self,
        context: &mut Context<'_>,
        flushed: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        match self.stream {
            ClientStream::Tls(_) => self.check_write_timeout(context, flushed),
            ClientStream::Tcp(_) | ClientStream::Unix(_) => flushed,
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.stream.reader().poll_read(context, buffer);
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
        let written = self.stream.writer().poll_write(context, bytes);
        self.check_write_timeout(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.writer().poll_write_vectored(context, pieces);
        self.check_write_timeout(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            ClientStream::Tcp(stream) => stream.is_write_vectored(),
            ClientStream::Unix(stream) => stream.is_write_vectored(),
            ClientStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.stream.writer().poll_flush(context);
        self.check_flush_timeout(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = self.stream.writer().poll_shutdown(context);
        self.check_flush_timeout(context, closed)
    }
}
