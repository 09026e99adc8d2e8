//! Whom we trust: the machine's own certificate authorities, or Mozilla's where the machine has none.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

/// TLS as everybody outside speaks it.
pub(crate) fn config() -> Result<ClientConfig, rustls::Error> {
    trusting(roots())
}

/// TLS with ring, offering HTTP/2 first.
pub(crate) fn trusting(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A small container often has no certificates at all, and calls should work there too.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}
