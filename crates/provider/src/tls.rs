//! TLS configuration with the system's root certificates, or Mozilla's if the system has none.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

/// Returns the configuration for connections to real endpoints.
pub(crate) fn config() -> Result<ClientConfig, rustls::Error> {
    config_with_roots(roots())
}

/// Configures TLS with the ring library, and prefers HTTP/2.
pub(crate) fn config_with_roots(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the trusted root certificates. Minimal containers often have none, so Mozilla's
/// certificates are the fallback.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}
