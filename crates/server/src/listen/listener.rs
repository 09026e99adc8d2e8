//! The listening socket: TCP, with or without TLS, or Unix.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::listen::socket::ClientStream;
use crate::listen::tls::SharedTls;
use crate::listen::watchdog::Watchdog;

/// A socket that accepts the connections of clients.
#[derive(Debug)]
pub struct GatewayListener {
    socket: ListenSocket,
    tls: Option<SharedTls>,
}

#[derive(Debug)]
enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl From<TcpListener> for GatewayListener {
    fn from(listener: TcpListener) -> Self {
        Self { socket: ListenSocket::Tcp(listener), tls: None }
    }
}

impl From<UnixListener> for GatewayListener {
    fn from(listener: UnixListener) -> Self {
        Self { socket: ListenSocket::Unix(listener), tls: None }
    }
}

impl GatewayListener {
    /// Encrypts all TCP connections. Each new connection uses the current settings of the handle.
    #[must_use]
    pub fn with_tls(mut self, tls: SharedTls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(super) async fn accept(&self) -> io::Result<ClientStream> {
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(ClientStream::Tcp(stream))
            }
            ListenSocket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(ClientStream::Unix(stream))
            }
        }
    }

    /// Returns the TLS settings for a new connection; `None` if connections are not encrypted.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(SharedTls::current)
    }

    /// Starts the watchdog for a TCP socket. It answers probes only on connections without TLS.
    pub(super) fn start_watchdog(&self) -> Option<(Watchdog, UnboundedReceiver<StdTcpStream>)> {
        match &self.socket {
            ListenSocket::Tcp(listener) => Watchdog::start(listener).ok(),
            ListenSocket::Unix(_) => None,
        }
    }
}
