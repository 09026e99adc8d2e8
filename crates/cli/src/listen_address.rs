//! The address that the gateway listens on.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Prefix of the path of a Unix socket.
const UNIX: &str = "unix:";

/// Where the gateway accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Address(SocketAddr),
    /// A host name, such as `localhost`, which is resolved at startup.
    HostName {
        host: String,
        port: u16,
    },
    /// All interfaces.
    Port(u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A text that is not an address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected HOST:PORT such as localhost:4400, 127.0.0.1:4400 or [::1]:4400, :PORT for all \
     interfaces, or unix:/PATH for a Unix socket"
)]
pub(crate) struct InvalidListenAddress;

impl FromStr for ListenAddress {
    type Err = InvalidListenAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix(UNIX) {
            let path = PathBuf::from(path);
            let has_name = path.file_name().is_some();
            return if has_name { Ok(Self::Unix(path)) } else { Err(InvalidListenAddress) };
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(InvalidListenAddress)?;
        let port = port.parse().map_err(|_| InvalidListenAddress)?;
        if host.is_empty() {
            return Ok(Self::Port(port));
        }
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        // A name in the form of an IPv4 address is an invalid address.
        let is_name =
            host.chars().all(is_letter) && host.contains(|c: char| c.is_ascii_alphabetic());
        if is_name {
            Ok(Self::HostName { host: host.to_owned(), port })
        } else {
            Err(InvalidListenAddress)
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::HostName { host, port } => write!(f, "{host}:{port}"),
            Self::Port(port) => write!(f, ":{port}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn addresses_are_parsed_and_displayed() {
        let name = |host: &str, port| ListenAddress::HostName { host: host.to_owned(), port };
        for (text, address) in [
            ("127.0.0.1:4400", ListenAddress::Address("127.0.0.1:4400".parse().unwrap())),
            ("[::1]:0", ListenAddress::Address("[::1]:0".parse().unwrap())),
            ("localhost:4400", name("localhost", 4400)),
            ("gateway.example.com:80", name("gateway.example.com", 80)),
            (":4400", ListenAddress::Port(4400)),
            ("unix:/run/throughline.sock", ListenAddress::Unix("/run/throughline.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(address.clone()), "{text}");
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "4400",
            "localhost",
            "localhost:",
            "localhost:http",
            "127.0.0.1",
            "1.2.3:80",
            "::1:4400",
            "http://localhost:4400",
            "a b:80",
            ":65536",
            "unix:",
            "unix:/",
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(InvalidListenAddress), "{text}");
        }
    }
}
