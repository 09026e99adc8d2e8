//! Who may ask.
//!
//! Where there are keys, a caller needs one. Where there are none, the gateway answers this machine only: a page of another site that a
//! browser shows must not use it, so a foreign `Host` or `Origin` is refused; and a page of this machine that changes something shows a
//! token, which it reads from us and no other site's page can.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use throughline_core::{Boxed, Name, Tenant, fits};

use crate::operations::Allowance;

/// The keys of the gateway.
pub trait Keyring: Send + Sync {
    /// Who has that key.
    fn admit<'a>(&'a self, key: Option<&'a str>) -> Boxed<'a, Admission>;

    /// What the key of that id admits to now: [`Admission::Refused`] where it was revoked or does not exist. Runs are
    /// checked by it, because a run knows the id of its key and not the key. A keyring that does not implement it ends
    /// the runs of its keys.
    fn admit_id<'a>(&'a self, _tenant: &'a Tenant, _id: &'a Name) -> Boxed<'a, Admission> {
        Box::pin(async { Ok(Admission::Refused) })
    }
}

/// What a key admits to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There are no keys at all.
    Open,
    /// Whoever has this key.
    Key {
        /// Whose conversations it may go on with.
        tenant: Tenant,
        /// Its id, by which it is told.
        id: Name,
        /// The models that it may ask for, as patterns; all without any.
        models: Vec<Name>,
        /// How much it may use.
        allowance: Allowance,
    },
    /// There are keys, and this is none of them.
    Refused,
}

impl Admission {
    /// Whether it may ask for some models only.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self, Admission::Key { models, .. } if !models.is_empty())
    }

    /// Whether a gateway key admits the caller.
    pub(crate) fn is_key(&self) -> bool {
        matches!(self, Admission::Key { .. })
    }

    /// The id of the key, if it is by one.
    pub(crate) fn key_id(&self) -> Option<&Name> {
        match self {
            Admission::Key { id, .. } => Some(id),
            Admission::Open | Admission::Refused => None,
        }
    }

    /// Whether it may ask for the model of that name.
    pub(crate) fn allows(&self, model: &str) -> bool {
        match self {
            Admission::Key { models, .. } => {
                models.is_empty() || models.iter().any(|pattern| fits(pattern, model))
            }
            Admission::Open | Admission::Refused => true,
        }
    }

    /// Whether what it may use ends at some sum.
    pub(crate) fn has_budget(&self) -> bool {
        matches!(self, Admission::Key { allowance, .. } if allowance.is_budget())
    }
}

/// What keys of ours begin with.
pub(crate) const KEY: &str = "tl_";

/// Whether a request comes from this machine, and from no other site's page.
pub(crate) fn is_local(headers: &HeaderMap, authority: Option<&Authority>) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = host(headers, authority);
    let is_foreign = |origin: &str| {
        let site = origin.split_once("://").map(|(_, site)| site);
        site != Some(host)
    };
    is_loopback(host) && !text(ORIGIN).is_some_and(is_foreign)
}

/// Whether a page in a browser asks for something to be changed.
pub(crate) fn is_change_by_page(method: &str, headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) && !matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// Whether a browser says that a page of another site makes the request.
pub(crate) fn is_from_other_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    matches!(site, Some("cross-site" | "same-site"))
}

/// Whether the gateway is asked by a name that no other site can have: an address, a name without a dot, or one of `hosts`. A
/// page of another site can let its own name point to this machine, and then reads what a browser gets there.
pub(crate) fn is_known_host(
    headers: &HeaderMap,
    authority: Option<&Authority>,
    hosts: &[Name],
) -> bool {
    let host = host(headers, authority);
    let name = name_in(host);
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    is_address || !name.contains('.') || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The scheme and host under which a request came.
pub(crate) fn address(headers: &HeaderMap, authority: Option<&Authority>) -> Option<Name> {
    let host = host(headers, authority);
    let proto = headers.get("x-forwarded-proto").and_then(|proto| proto.to_str().ok());
    let scheme = if proto == Some("https") { "https" } else { "http" };
    (!host.is_empty()).then(|| Name::from(format!("{scheme}://{host}")))
}

/// The host of a request. HTTP/2 names it beside the path.
fn host<'h>(headers: &'h HeaderMap, authority: Option<&'h Authority>) -> &'h str {
    let header = headers.get(HOST).map(|value| value.to_str().unwrap_or_default());
    header.or(authority.map(Authority::as_str)).unwrap_or_default()
}

/// The name or address in a host, without its port.
fn name_in(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Whether a `Host` header names this machine.
fn is_loopback(host: &str) -> bool {
    let name = name_in(host);
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn local(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
        is_local(&headers, None)
    }

    #[test]
    fn only_this_machine_is_local() {
        for host in ["localhost:4400", "127.0.0.1:4400", "127.9.9.9", "[::1]:4400", "LOCALHOST"] {
            assert!(local(host, None), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com:4400",
            "10.0.0.1",
            "[::2]",
            "127.0.0.1.example.com",
        ] {
            assert!(!local(host, None), "{host}");
        }
    }

    #[test]
    fn http_2_says_it_beside_the_path() {
        let is_local =
            |authority: &str| is_local(&HeaderMap::new(), Some(&authority.parse().unwrap()));
        assert!(is_local("127.0.0.1:4400"));
        assert!(!is_local("example.com"));
    }

    #[test]
    fn a_page_of_another_site_is_not() {
        assert!(local("localhost:4400", Some("http://localhost:4400")));
        assert!(!local("localhost:4400", Some("http://localhost:5173")));
        assert!(!local("localhost:4400", Some("https://example.com")));
        assert!(!local("localhost:4400", Some("null")));
    }
}
