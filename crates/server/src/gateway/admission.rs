//! Authenticates callers by the keys or cookies in their requests, and refuses requests from other
//! sites.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, Uri};
use throughline_core::{Credential, Tenant};
use throughline_json::Name;

use crate::access::{self, Admission, Caller};
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::Gateway;
use crate::gateway::headers::{END_USER_HEADER, PREFIX_HEADER};
use crate::provider_key::{KeyPlace, ProviderKey};

/// The header for keys of Anthropic.
static ANTHROPIC_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The header for keys of Google.
static GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
/// The header for keys of Azure.
static AZURE_KEY: HeaderName = HeaderName::from_static("api-key");

/// Authenticates the caller. If no keys exist, checks that the gateway may serve this caller
/// without a key.
pub(crate) async fn authenticate(
    gateway: &Gateway,
    method: &str,
    headers: &HeaderMap,
    uri: &Uri,
) -> GatewayResult<Caller> {
    let (key, credential) = sent_keys(headers, uri.query());
    let shown = key.as_ref().map(Credential::reveal);
    let sign_in = gateway.sign_in.as_deref().filter(|_| key.is_none());
    let session =
        sign_in.and_then(|it| Some((it, it.admit(headers, gateway.operations.meter.now())?)));
    let (admission, page_token) = match session {
        Some((sign_in, (admission, token))) => {
            check_session_request(sign_in.is_foreign(headers, uri), method, headers, &token)?;
            (admission, Some(token))
        }
        None => (gateway.operations.admit(&*gateway.keyring, shown).await?, None),
    };
    let tenant = match &admission {
        Admission::Key { tenant, .. } => tenant.clone(),
        Admission::Refused if key.is_some() => {
            let message = "this key is unknown or was revoked; see `throughline keys list`";
            return Err(GatewayError::new(401, message));
        }
        Admission::Refused if credential.is_some() => {
            let message = "the key in this request is not a key of this gateway: keys of the \
                           gateway start with `tl_`; create one with `throughline keys create`";
            return Err(GatewayError::new(401, message));
        }
        Admission::Refused => {
            let message =
                "this gateway requires an API key; create one with `throughline keys create`";
            return Err(GatewayError::new(401, message));
        }
        Admission::Open if gateway.sign_in.is_some() => {
            let message = "sign in to the console, or send an API key; create one with `throughline \
                           keys create`";
            return Err(GatewayError::new(401, message));
        }
        Admission::Open => {
            if let Some(message) = open_refusal(gateway, method, headers, uri) {
                return Err(GatewayError::new(403, message));
            }
            Tenant::from("default")
        }
    };
    let text = |name| headers.get(name).and_then(|value| Some(Name::from(value.to_str().ok()?)));
    let (end_user, prefix) = (text(END_USER_HEADER), text(PREFIX_HEADER));
    let address = access::address(headers, uri);
    Ok(Caller { tenant, end_user, prefix, credential, admission, address, page_token })
}

/// Checks that a page of the gateway itself sent a request with the cookie of a session. Browsers
/// also add the cookie to some requests of other sites' pages.
fn check_session_request(
    is_foreign: bool,
    method: &str,
    headers: &HeaderMap,
    token: &str,
) -> GatewayResult<()> {
    if is_foreign {
        let message = "a page of another site sent this request with the cookie of a session";
        return Err(GatewayError::new(403, message));
    }
    let has_token = access::sent_token(headers).is_some_and(|it| access::is_same_token(it, token));
    if access::is_write(method) && !has_token {
        return Err(GatewayError::new(403, access::MISSING_TOKEN));
    }
    Ok(())
}

/// Returns why a gateway without keys refuses this request; `None` if the gateway serves the
/// request.
fn open_refusal(
    gateway: &Gateway,
    method: &str,
    headers: &HeaderMap,
    uri: &Uri,
) -> Option<&'static str> {
    let own = gateway.operations.token();
    let has_token = access::sent_token(headers).is_some_and(|it| access::is_same_token(it, own));
    if !gateway.allow_open && !access::is_local(headers, uri.authority()) {
        Some(
            "this gateway has no keys, so it serves this machine only: connect to localhost, or \
             create a key with `throughline keys create`",
        )
    } else if !gateway.allow_open && access::is_forwarded(headers) {
        Some(
            "this gateway has no keys, so it refuses requests that a reverse proxy forwards: create \
             a key with `throughline keys create`, or start the gateway with --allow-open",
        )
    } else if gateway.allow_open && !access::is_known_host(headers, uri.authority(), &gateway.hosts)
    {
        Some(
            "this gateway has no keys, and this host name is not listed: add it to `hosts` of \
             [server], connect by IP address, or create a key with `throughline keys create`",
        )
    } else if access::is_from_other_site(headers) {
        Some("this gateway has no keys, so it does not serve pages of other sites")
    } else if access::is_page_write(method, headers) && !has_token {
        Some(access::MISSING_TOKEN)
    } else {
        None
    }
}

/// Returns the gateway key and the provider key that a caller sends. Each dialect uses a different
/// header or query parameter.
fn sent_keys(
    headers: &HeaderMap,
    query: Option<&str>,
) -> (Option<Credential>, Option<ProviderKey>) {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(&AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let query = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("key="));
    let keys = [
        (text(&ANTHROPIC_KEY), KeyPlace::Anthropic),
        (text(&GOOGLE_KEY), KeyPlace::Google),
        (text(&AZURE_KEY), KeyPlace::Azure),
        (bearer, KeyPlace::Bearer),
        (query, KeyPlace::Google),
    ];
    let find = |is_ours: bool| {
        let mut keys = keys.iter().filter_map(|(key, place)| Some(((*key)?, *place)));
        keys.find(|(key, _)| key.starts_with(access::KEY) == is_ours)
    };
    let own = find(true).map(|(key, _)| Credential::new(key));
    (own, find(false).map(|(key, place)| ProviderKey::new(key, place)))
}
