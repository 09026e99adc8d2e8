//! Opens the socket that the gateway listens on.

use std::fs::Metadata;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use throughline_server::GatewayListener;
use tokio::net::{TcpListener, UnixListener, UnixStream, lookup_host};

use crate::listen_address::ListenAddress;
use crate::print::failure::{Failure, Result};

/// The addresses to try for a [`ListenAddress`], after name resolution.
pub(crate) enum ResolvedAddress {
    /// The first address that this machine supports is used.
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
}

/// An open socket, and how clients reach it.
pub(crate) struct BoundListener {
    pub(crate) listener: GatewayListener,
    /// Host and port for URLs.
    pub(crate) authority: String,
    /// Removes the file of a Unix socket when dropped.
    pub(crate) file: Option<SocketFile>,
}

impl ResolvedAddress {
    /// Resolves a host name. Of several addresses, the IPv4 addresses come first.
    pub(crate) async fn resolve(listen: &ListenAddress) -> Result<Self> {
        Ok(match listen {
            ListenAddress::Address(address) => Self::Tcp(vec![*address]),
            ListenAddress::Port(port) => {
                // An IPv6 socket also accepts IPv4 connections; some machines have only IPv4.
                let (v6, v4) = (IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into());
                Self::Tcp(vec![SocketAddr::new(v6, *port), SocketAddr::new(v4, *port)])
            }
            ListenAddress::HostName { host, port } => {
                let found = lookup_host((host.as_str(), *port)).await.map_err(|error| {
                    Failure::Outside(anyhow::anyhow!(
                        "cannot resolve the host name {host}: {error}; use an IP address of this \
                         machine, such as 127.0.0.1:{port}"
                    ))
                })?;
                let mut addresses: Vec<SocketAddr> = found.collect();
                addresses.sort_by_key(SocketAddr::is_ipv6);
                Self::Tcp(addresses)
            }
            ListenAddress::Unix(path) => Self::Unix(path.clone()),
        })
    }

    /// Returns whether only this machine can connect.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(addresses) => addresses.iter().all(|address| address.ip().is_loopback()),
            Self::Unix(_) => true,
        }
    }

    /// Opens the socket. `listen` is the address that was resolved.
    pub(crate) async fn bind(self, listen: &ListenAddress) -> Result<BoundListener> {
        let addresses = match self {
            Self::Tcp(addresses) => addresses,
            Self::Unix(path) => {
                let listener = bind_unix(&path).await?;
                let file = Some(SocketFile::new(path));
                let authority = "localhost".to_owned();
                return Ok(BoundListener { listener: listener.into(), authority, file });
            }
        };
        let listener = bind_tcp(&addresses).await?;
        let address =
            listener.local_addr().context("cannot determine the address the server listens on")?;
        let authority = match listen {
            ListenAddress::HostName { host, .. } => format!("{host}:{}", address.port()),
            ListenAddress::Port(_) => format!("localhost:{}", address.port()),
            ListenAddress::Address(_) | ListenAddress::Unix(_) => address.to_string(),
        };
        Ok(BoundListener { listener: listener.into(), authority, file: None })
    }
}

/// Listens on the first address that this machine supports.
async fn bind_tcp(addresses: &[SocketAddr]) -> Result<TcpListener> {
    let mut failure = Failure::Outside(anyhow::anyhow!("the host name has no address"));
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                failure = Failure::from_listen(*address, &error);
                if matches!(
                    error.kind(),
                    io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
                ) {
                    break;
                }
            }
        }
    }
    Err(failure)
}

/// Listens on a Unix socket. Replaces a socket file only if no process listens on it.
async fn bind_unix(path: &Path) -> Result<UnixListener> {
    let name = path.display();
    let failed = |error: io::Error| {
        Failure::Outside(anyhow::anyhow!(
            "cannot listen on unix:{name}: {error}; check that the folder exists and that this \
             user may write to it"
        ))
    };
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return bound.map_err(failed),
    }
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if !is_socket {
        return Err(Failure::Outside(anyhow::anyhow!(
            "{name} exists and is not a socket; choose another path with --listen"
        )));
    }
    match UnixStream::connect(path).await {
        // A crashed process left the file.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)
        }
        Ok(_) | Err(_) => Err(Failure::Outside(anyhow::anyhow!(
            "unix:{name} is in use; stop the process that listens on it, or choose another path \
             with --listen"
        ))),
    }
}

/// The file of a Unix socket. It is removed on drop, unless another process has replaced it.
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        let identity = identity(&path);
        Self { path, identity }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && self.identity == identity(&self.path) {
            // The file may already be gone.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Returns the device and inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let of = |metadata: Metadata| (metadata.dev(), metadata.ino());
    std::fs::symlink_metadata(path).ok().map(of)
}
