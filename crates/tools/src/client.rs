//! HTTP client for tools and trace sinks. The client contacts only the configured origin.
//!
//! Link-local addresses and metadata services are blocked. Redirects are followed within the same
//! origin only, proxy settings are ignored, and requests are never retried.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use reqwest::dns::{Addrs, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rustls::{ClientConfig, RootCertStore};
use throughline_core::{BlockedAddress, Credential, allowed_addresses, check_host};
use throughline_json::Name;

const MAX_REDIRECTS: usize = 5;

/// Creates a client with its own connection pool and the restrictions of this module.
pub fn client() -> Result<Client, String> {
    let tls = tls().map_err(|error| format!("TLS is unavailable: {error}"))?;
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(FilteredResolver)
        .redirect(same_origin_redirects())
        .retry(reqwest::retry::never())
        .no_proxy();
    builder.build().map_err(|error| error_message(&error))
}

/// Checks that a URL is safe to contact. The error text continues a sentence that starts with the
/// name of a setting, such as `url`.
pub fn check(url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "must not contain a user name or password; send credentials in a header".to_owned()
        );
    }
    check_host(url.host_str().unwrap_or_default())
        .map_err(|error| format!("points to a blocked address: {error}"))
}

/// Parses a URL and applies [`check`] to it.
pub fn parse(url: &str) -> Result<Url, String> {
    let url = Url::parse(url).map_err(|error| format!("is not a valid URL: {error}"))?;
    check(&url).map(|()| url)
}

/// Converts configured headers. The error names the first invalid header.
pub fn headers(configured: &[(Name, Credential)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let key = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_str(value.reveal());
        let (Ok(key), Ok(mut value)) = (key, value) else {
            return Err(format!("contains the header `{name}`, whose name or value is invalid"));
        };
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

/// Returns the innermost message of an error. The outer messages contain URLs, which may contain
/// keys.
pub fn error_message(error: &(dyn Error + 'static)) -> String {
    if let Some(blocked) = cause::<BlockedAddress>(error) {
        return format!("the address is blocked: {blocked}");
    }
    let inner = chain(error).last().unwrap_or(error);
    match inner.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_timeout() => "the request timed out".to_owned(),
        Some(error) => match error.status() {
            Some(status) => format!("HTTP {status}"),
            None => "the request failed".to_owned(),
        },
        None => inner.to_string(),
    }
}

/// Returns whether the request failed before any part of it was sent.
pub fn was_not_sent(error: &(dyn Error + 'static)) -> bool {
    cause::<BlockedAddress>(error).is_some()
        || cause::<reqwest::Error>(error)
            .is_some_and(|error| error.is_connect() || error.is_builder())
}

/// Returns the first cause of type `E` in an error chain.
fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// Iterates over an error and its causes, including the client error that rmcp does not expose as a
/// source.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => Some(error),
        _ => error.source(),
    })
}

/// Returns a policy that follows redirects within the same origin. All other redirects are not
/// followed, and the caller receives the redirect response.
fn same_origin_redirects() -> Policy {
    Policy::custom(|attempt| {
        let from = attempt.previous();
        let is_same_origin =
            from.first().is_some_and(|from| from.origin() == attempt.url().origin());
        if is_same_origin && from.len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// DNS resolver that filters out blocked addresses.
struct FilteredResolver;

impl Resolve for FilteredResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(allowed_addresses(name.as_str(), found)?.into_iter()) as Addrs)
        })
    }
}

/// Returns the TLS configuration, based on ring. The system certificates are loaded only once.
fn tls() -> Result<ClientConfig, rustls::Error> {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots())
        .with_no_client_auth();
    Ok(CONFIG.get_or_init(|| config).clone())
}

/// Returns the system's certificate authorities, or Mozilla's if the system has none.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}
