//! The HTTP client of both kinds of tools, and of the sinks of traces: it goes where it was sent, and nowhere else.
//!
//! Nothing is sent to link-local addresses and metadata services. A redirect is followed within the same origin only, no
//! proxy is looked up, and nothing is sent twice.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use reqwest::dns::{Addrs, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rustls::{ClientConfig, RootCertStore};
use throughline_core::{Credential, Name, OutOfBounds, check_host, within_bounds};

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 5;

/// A client with connections of its own.
pub fn client() -> Result<Client, String> {
    let tls = tls().map_err(|error| format!("TLS is not there: {error}"))?;
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Guarded)
        .redirect(within_origin())
        .retry(reqwest::retry::never())
        .no_proxy();
    builder.build().map_err(|error| told(&error))
}

/// What is wrong with an address before anything is sent to it.
pub fn check(url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or a password: write them as a header".to_owned());
    }
    check_host(url.host_str().unwrap_or_default())
        .map_err(|refused| format!("leads where nothing is sent: {refused}"))
}

/// Headers as they are sent, or the one that cannot be.
pub fn headers(configured: &[(Name, Credential)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let key = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_str(value.reveal());
        let (Ok(key), Ok(mut value)) = (key, value) else {
            return Err(format!("has `{name}`, which cannot be sent as it is written"));
        };
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

/// What an error says, in its innermost words. Those further out tell addresses, and so may tell keys.
pub fn told(error: &(dyn Error + 'static)) -> String {
    if let Some(refused) = cause::<OutOfBounds>(error) {
        return format!("nothing is sent there: {refused}");
    }
    let mut inner = error;
    while let Some(within) = within(inner) {
        inner = within;
    }
    match inner.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_timeout() => "it took too long".to_owned(),
        Some(error) if error.status().is_some() => {
            error.status().map(|status| format!("HTTP {status}")).unwrap_or_default()
        }
        Some(_) => "the request failed".to_owned(),
        None => inner.to_string(),
    }
}

/// Whether nothing of a request can have been heard.
pub fn was_not_sent(error: &(dyn Error + 'static)) -> bool {
    cause::<OutOfBounds>(error).is_some()
        || cause::<reqwest::Error>(error)
            .is_some_and(|error| error.is_connect() || error.is_builder())
}

/// The cause of that type, if it is among those of an error.
fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = within(error);
    }
    None
}

/// What an error was caused by. rmcp does not name the client's own error as the cause of its own.
fn within<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => Some(error),
        _ => error.source(),
    }
}

/// Redirects that stay with the same scheme, host and port. Another one is the answer.
fn within_origin() -> Policy {
    Policy::custom(|attempt| {
        let from = attempt.previous();
        let stays = from.first().is_some_and(|from| from.origin() == attempt.url().origin());
        if stays && from.len() <= MOST_REDIRECTS { attempt.follow() } else { attempt.stop() }
    })
}

/// Looks names up, and leaves out what is out of bounds.
struct Guarded;

impl Resolve for Guarded {
    fn resolve(&self, name: reqwest::dns::Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(within_bounds(name.as_str(), found)?.into_iter()) as Addrs)
        })
    }
}

/// TLS with ring. The machine's certificates are read once.
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

/// The machine's own authorities, or Mozilla's where the machine has none.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}
