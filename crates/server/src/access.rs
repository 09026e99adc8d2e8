//! Controls which callers may use the gateway.
//!
//! If keys exist, every caller needs a key. Without keys, the gateway serves only this machine. A
//! reverse proxy on this machine may forward requests from other machines, so forwarded requests
//! are refused. A local browser may show pages from other sites, so requests with a foreign `Host`
//! or `Origin` are refused. A page that changes data must send a token, which only the gateway's
//! own pages can read.
//!
//! Instead of a key, a request of the console may have a cookie of a person who signed in.

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, Uri};
use throughline_core::{BudgetPeriod, KeyRole, StoreFuture, Tenant, matches_pattern};
use throughline_json::Name;

use crate::error::{GatewayError, GatewayResult};
use crate::provider_key::ProviderKey;

/// Authenticates callers by their gateway keys.
pub trait Keyring: Send + Sync {
    /// Authenticates a request by its key; `key` is `None` if the request has no key.
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission>;

    /// Returns the current admission of the key with this id, or [`Admission::Refused`] if the key
    /// was revoked or does not exist. Runs are checked by id, because a run stores the id of its
    /// key but not the key itself. The default implementation refuses every key, which ends all
    /// runs that keys started.
    fn admit_id<'a>(&'a self, _tenant: &'a Tenant, _id: &'a Name) -> StoreFuture<'a, Admission> {
        Box::pin(async { Ok(Admission::Refused) })
    }
}

/// The result of authenticating a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// No keys exist, so callers are not authenticated.
    Open,
    /// The request was authenticated with this key.
    Key {
        /// The role of the key; `None` if the key has no role.
        role: Option<KeyRole>,
        /// The tenant whose conversations the key may use.
        tenant: Tenant,
        /// The id of the key, as shown in logs and reports.
        id: Name,
        /// Patterns of the models that the key may use; all models if empty.
        models: Vec<Name>,
        /// The key's limits on cost, tokens and request rate.
        allowance: Allowance,
    },
    /// Keys exist, but the request contains no valid key.
    Refused,
}

impl Admission {
    /// Returns whether the caller authenticated with a gateway key.
    pub(crate) fn is_key(&self) -> bool {
        matches!(self, Admission::Key { .. })
    }

    /// Id of the caller's gateway key; `None` if the caller has no key.
    pub(crate) fn key_id(&self) -> Option<&Name> {
        match self {
            Admission::Key { id, .. } => Some(id),
            Admission::Open | Admission::Refused => None,
        }
    }

    /// Returns whether the caller's role includes the permission. Callers without a key have all
    /// permissions.
    pub(crate) fn has(&self, permission: Permission) -> bool {
        match self {
            Admission::Key { role, .. } => permission.is_granted_to(*role),
            Admission::Open | Admission::Refused => true,
        }
    }

    /// The role of the caller's key; `None` if the caller has no key or the key has no role.
    pub(crate) fn role(&self) -> Option<KeyRole> {
        match self {
            Admission::Key { role, .. } => *role,
            Admission::Open | Admission::Refused => None,
        }
    }

    /// Returns the names of the caller's permissions. On a gateway without keys, no caller can
    /// create the first key or change routes.
    pub(crate) fn permissions(&self) -> Vec<&'static str> {
        let is_open = matches!(self, Admission::Open);
        let needs_key = |permission: Permission| {
            matches!(permission, Permission::ManageKeys | Permission::ManageRoutes)
        };
        let granted = Permission::ALL
            .into_iter()
            .filter(|permission| self.has(*permission) && !(is_open && needs_key(*permission)));
        granted.map(Permission::as_str).collect()
    }

    /// Returns whether the caller's key restricts models, cost, tokens or rates.
    pub(crate) fn is_limited(&self) -> bool {
        match self {
            Admission::Key { models, allowance, .. } => {
                !models.is_empty() || *allowance != Allowance::default()
            }
            Admission::Open | Admission::Refused => false,
        }
    }

    pub(crate) fn allows(&self, model: &str) -> bool {
        match self {
            Admission::Key { models, .. } => {
                models.is_empty() || models.iter().any(|pattern| matches_pattern(pattern, model))
            }
            Admission::Open | Admission::Refused => true,
        }
    }

    /// Returns whether the caller's key has a cost or token limit.
    pub(crate) fn has_budget(&self) -> bool {
        matches!(self, Admission::Key { allowance, .. } if allowance.is_budget())
    }
}

/// What a route lets its callers do. The role of a key decides which permissions it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Call models, run agents, and change their data.
    Use,
    /// Read lists of models, agents, their messages and runs, and the usage of the key.
    Read,
    /// Read everything that the tenant's keys have stored: calls, Threads, runs, keys and usage.
    Inspect,
    /// Approve tool calls and answer questions.
    Approve,
    /// Export Threads and snapshots of runs.
    Export,
    /// Verify the Journal.
    Verify,
    /// Create, change and revoke keys, and reset their budgets.
    ManageKeys,
    /// Create, change and delete routes.
    ManageRoutes,
}

impl Permission {
    const ALL: [Self; 8] = [
        Self::Use,
        Self::Read,
        Self::Inspect,
        Self::Approve,
        Self::Export,
        Self::Verify,
        Self::ManageKeys,
        Self::ManageRoutes,
    ];

    /// Returns the name of the permission in responses.
    fn as_str(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Read => "read",
            Self::Inspect => "inspect",
            Self::Approve => "approve",
            Self::Export => "export",
            Self::Verify => "verify",
            Self::ManageKeys => "manage_keys",
            Self::ManageRoutes => "manage_routes",
        }
    }

    /// Returns whether keys with this role have the permission. Keys without a role have the
    /// permissions that all keys had before there were roles.
    fn is_granted_to(self, role: Option<KeyRole>) -> bool {
        match role {
            Some(KeyRole::Operator) => true,
            Some(KeyRole::App) => matches!(self, Self::Use | Self::Read),
            Some(KeyRole::Viewer) => matches!(self, Self::Read | Self::Inspect),
            None => !matches!(self, Self::ManageKeys | Self::ManageRoutes),
        }
    }

    /// Returns what the permission allows, as an object of `may not`.
    fn action(self) -> &'static str {
        match self {
            Self::Use => "call models or change data",
            Self::Read => "read data",
            Self::Inspect => "read the data of other keys",
            Self::Approve => "decide on approvals and questions",
            Self::Export => "export data",
            Self::Verify => "verify the journal",
            Self::ManageKeys => "manage keys",
            Self::ManageRoutes => "manage routes",
        }
    }
}

/// The usage limits of a key; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Maximum cost in one period, in millionths of a dollar.
    pub micro_usd: Option<u64>,
    /// Maximum number of input and output tokens in one period.
    pub tokens: Option<u64>,
    /// The period of the cost and token limits; `None` means in total.
    pub period: Option<BudgetPeriod>,
    /// The share of a cost or token limit, in percent, at which an alert is sent.
    pub soft_percent: Option<u32>,
    /// Maximum number of requests per minute.
    pub per_minute: Option<u32>,
    /// Maximum number of input and output tokens per minute.
    pub tokens_per_minute: Option<u64>,
}

impl Allowance {
    /// Returns whether cost or tokens are limited.
    pub(crate) fn is_budget(&self) -> bool {
        self.micro_usd.is_some() || self.tokens.is_some()
    }
}

/// The authenticated caller of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// The end user that the caller names in the header `x-throughline-user`.
    pub(crate) end_user: Option<Name>,
    /// The prefix policy that the caller names in the header `x-throughline-prefix`.
    pub(crate) prefix: Option<Name>,
    /// The caller's own key for a provider.
    pub(crate) credential: Option<ProviderKey>,
    pub(crate) admission: Admission,
    /// The scheme and host under which the caller reaches the gateway, such as
    /// `http://localhost:4400`.
    pub(crate) address: Option<Name>,
    /// The token that the pages of a person who signed in must send to change data; `None` if the
    /// caller did not sign in.
    pub(crate) page_token: Option<Name>,
}

impl Caller {
    /// Returns an error if the role of the caller's key lacks a permission. Callers of a gateway
    /// without keys have all permissions.
    pub(crate) fn require(&self, permission: Permission) -> GatewayResult<()> {
        if self.admission.has(permission) {
            return Ok(());
        }
        let role = self.admission.role();
        if let (Some(role), true) = (role, self.page_token.is_some()) {
            let message = format!(
                "a person with the role {role} may not {}; the rules in [console.oidc] determine \
                 the role",
                permission.action()
            );
            return Err(GatewayError::new(403, message));
        }
        let role = role
            .map_or_else(|| "without a role".to_owned(), |role| format!("with the role {role}"));
        let message = format!(
            "a key {role} may not {}; use another key, or change the role with `throughline keys \
             update --role`",
            permission.action()
        );
        Err(GatewayError::new(403, message))
    }
}

/// Prefix that distinguishes gateway keys from provider keys.
pub(crate) const KEY: &str = "tl_";

/// Prefix that distinguishes the ids of people who signed in from the ids of keys.
pub(crate) const USER: &str = "user_";

/// The header in which the console's pages send their token. Pages of other sites cannot read the
/// token.
pub(crate) const TOKEN_HEADER: &str = "x-throughline-token";

/// The message for a page that changes data without the token.
pub(crate) const MISSING_TOKEN: &str = "a page that changes data must send the token from GET \
    /v1/throughline/token in the header x-throughline-token";

/// Returns whether a request comes from this machine, and not from another site's page in a local
/// browser.
pub(crate) fn is_local(headers: &HeaderMap, authority: Option<&Authority>) -> bool {
    is_loopback(host(headers, authority)) && !has_foreign_origin(headers, authority)
}

/// Returns whether a page of another site sent the request (`Origin`).
pub(crate) fn has_foreign_origin(headers: &HeaderMap, authority: Option<&Authority>) -> bool {
    let origin = headers.get(ORIGIN).map(|value| value.to_str().unwrap_or_default());
    let host = host(headers, authority);
    origin.is_some_and(|origin| origin.split_once("://").map(|(_, site)| site) != Some(host))
}

/// Returns whether a browser page sent the request and the method may change data.
pub(crate) fn is_page_write(method: &str, headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) && is_write(method)
}

/// Returns whether requests with this method may change data.
pub(crate) fn is_write(method: &str) -> bool {
    !matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// Returns whether two tokens are equal. Hashes are compared, so that timing does not reveal where
/// the texts differ.
pub(crate) fn is_same_token(token: &str, other: &str) -> bool {
    blake3::hash(token.as_bytes()) == blake3::hash(other.as_bytes())
}

/// Returns the token that a page sends.
pub(crate) fn sent_token(headers: &HeaderMap) -> Option<&str> {
    headers.get(TOKEN_HEADER).and_then(|token| token.to_str().ok())
}

/// Returns whether the browser marks the request as sent by another site's page (`Sec-Fetch-Site`).
pub(crate) fn is_from_other_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    matches!(site, Some("cross-site" | "same-site"))
}

/// Returns whether a reverse proxy forwarded the request, according to the headers that proxies
/// add.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    let is_proxy_header = |name: &str| {
        matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
    };
    headers.keys().any(|name| is_proxy_header(name.as_str()))
}

/// Returns whether the request's host name cannot belong to another site: an IP address, a name
/// without a dot, or one of `hosts`. Otherwise a page of another site could resolve its own name to
/// this machine (DNS rebinding) and read the responses.
pub(crate) fn is_known_host(
    headers: &HeaderMap,
    authority: Option<&Authority>,
    hosts: &[Name],
) -> bool {
    let host = host(headers, authority);
    let name = host_name(host);
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    is_address || !name.contains('.') || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns the scheme and host that the client used. The scheme is `https` if the connection uses
/// TLS or a proxy reports it.
pub(crate) fn address(headers: &HeaderMap, uri: &Uri) -> Option<Name> {
    let host = host(headers, uri.authority());
    let proto = headers.get("x-forwarded-proto").and_then(|proto| proto.to_str().ok());
    let is_https = proto == Some("https") || uri.scheme() == Some(&Scheme::HTTPS);
    let scheme = if is_https { "https" } else { "http" };
    (!host.is_empty()).then(|| Name::from([scheme, "://", host].concat()))
}

/// Returns the request's host. HTTP/2 sends the host in the URI instead of a `Host` header.
fn host<'h>(headers: &'h HeaderMap, authority: Option<&'h Authority>) -> &'h str {
    let header = headers.get(HOST).map(|value| value.to_str().unwrap_or_default());
    header.or(authority.map(Authority::as_str)).unwrap_or_default()
}

/// Returns the host name or address without the port.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Returns whether a `Host` header names this machine.
fn is_loopback(host: &str) -> bool {
    let name = host_name(host);
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

    fn key(role: Option<KeyRole>, models: &[&str], allowance: Allowance) -> Admission {
        let models = models.iter().copied().map(Name::from).collect();
        Admission::Key { tenant: "acme".into(), id: "key_1".into(), models, allowance, role }
    }

    #[test]
    fn keys_with_models_budgets_or_rates_are_limited() {
        let none = Allowance::default();
        let operator = Some(KeyRole::Operator);
        assert!(!key(operator, &[], none).is_limited());
        assert!(!Admission::Open.is_limited());
        assert!(key(operator, &["claude-*"], none).is_limited());
        assert!(key(operator, &[], Allowance { tokens: Some(9), ..none }).is_limited());
        assert!(key(operator, &[], Allowance { per_minute: Some(9), ..none }).is_limited());
    }

    #[test]
    fn viewers_may_not_call_models() {
        let none = Allowance::default();
        assert!(!key(Some(KeyRole::Viewer), &[], none).has(Permission::Use));
        assert!(key(Some(KeyRole::App), &[], none).has(Permission::Use));
        assert!(key(None, &[], none).has(Permission::Use));
    }

    #[test]
    fn loopback_hosts_are_local() {
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
    fn headers_of_proxies_mark_forwarded_requests() {
        let is_forwarded = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, "203.0.113.9".parse().unwrap());
            super::is_forwarded(&headers)
        };
        for name in ["forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-proto"] {
            assert!(is_forwarded(name), "{name}");
        }
        for name in ["host", "x-request-id", "x-forwarder"] {
            assert!(!is_forwarded(name), "{name}");
        }
    }

    #[test]
    fn http2_authority_decides_locality() {
        let is_local =
            |authority: &str| is_local(&HeaderMap::new(), Some(&authority.parse().unwrap()));
        assert!(is_local("127.0.0.1:4400"));
        assert!(!is_local("example.com"));
    }

    #[test]
    fn pages_of_other_sites_are_not_local() {
        assert!(local("localhost:4400", Some("http://localhost:4400")));
        assert!(!local("localhost:4400", Some("http://localhost:5173")));
        assert!(!local("localhost:4400", Some("https://example.com")));
        assert!(!local("localhost:4400", Some("null")));
    }
}
