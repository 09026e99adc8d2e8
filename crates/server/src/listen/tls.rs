//! TLS settings of the listener, which can be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// Why a certificate and key cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The certificate file has no usable certificate.
    #[error("the certificate file contains no PEM certificate")]
    NoCertificate,
    /// The key file has no usable private key.
    #[error("the key file contains no PEM private key")]
    NoKey,
    /// The private key needs a passphrase.
    #[error(
        "the private key is encrypted; decrypt it with `openssl pkey -in KEY -out DECRYPTED_KEY`"
    )]
    EncryptedKey,
    /// The key belongs to another certificate.
    #[error("the private key does not match the certificate")]
    Mismatch,
    /// The certificate or key is not supported.
    #[error(
        "the certificate or the key is not usable ({0}); create an X.509 certificate of version 3 \
         with an RSA, ECDSA (P-256, P-384) or Ed25519 key"
    )]
    Unusable(String),
}

/// A certificate chain with its private key, ready to use.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    config: Arc<ServerConfig>,
    /// The time until which the certificate is valid, if it is known.
    not_after: Option<Timestamp>,
}

impl TlsSettings {
    /// Parses a certificate chain and a private key in PEM format, and checks that they match.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::NoCertificate)?;
        let is_encrypted = memchr::memmem::find(key, b"ENCRYPTED").is_some();
        let no_key = || if is_encrypted { TlsError::EncryptedKey } else { TlsError::NoKey };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| no_key())?;
        let unusable = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch,
            error => TlsError::Unusable(error.to_string()),
        };
        let not_after = chain.first().and_then(end_of_validity);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth();
        let mut config = config.with_single_cert(chain, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), not_after })
    }

    /// Returns the time at which the certificate expired; `None` if it is still valid.
    pub fn expired_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_after.filter(|end| *end < now)
    }
}

/// Returns the time until which a certificate is valid.
fn end_of_validity(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let end = certificate.tbs_certificate.validity.not_after.to_unix_duration();
    Timestamp::from_second(i64::try_from(end.as_secs()).ok()?).ok()
}

/// A handle to the TLS settings of new connections. Open connections keep the settings with which
/// they were accepted.
#[derive(Clone, Debug)]
pub struct SharedTls(Arc<RwLock<TlsSettings>>);

impl SharedTls {
    /// Creates a handle.
    pub fn new(settings: TlsSettings) -> Self {
        Self(Arc::new(RwLock::new(settings)))
    }

    /// Replaces the settings for all clones of this handle.
    pub fn replace(&self, settings: TlsSettings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    pub(super) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).config)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{
        CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed,
    };

    use super::*;

    /// Returns a certificate and its key in PEM format.
    fn pem() -> (String, String) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (to_pem("CERTIFICATE", cert.der()), to_pem("PRIVATE KEY", &signing_key.serialize_der()))
    }

    fn to_pem(label: &str, der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    fn error(certificate: &str, key: &str) -> Option<TlsError> {
        TlsSettings::from_pem(certificate.as_bytes(), key.as_bytes()).err()
    }

    #[test]
    fn only_a_certificate_with_its_own_key_is_accepted() {
        let ((certificate, key), (_, other)) = (pem(), pem());
        assert_eq!(error(&certificate, &key), None);
        assert_eq!(error(&format!("{certificate}{key}"), &key), None, "one file may have both");
        assert_eq!(error(&certificate, &other), Some(TlsError::Mismatch));
        assert_eq!(error("", &key), Some(TlsError::NoCertificate));
        assert_eq!(error(&key, &key), Some(TlsError::NoCertificate));
        assert_eq!(error(&certificate, ""), Some(TlsError::NoKey));
        assert_eq!(error(&certificate, &certificate), Some(TlsError::NoKey));
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        assert_eq!(error(&certificate, &encrypted), Some(TlsError::EncryptedKey));
        let invalid = certificate.replace("MII", "AAA");
        assert!(matches!(error(&invalid, &key), Some(TlsError::Unusable(_))));
    }

    #[test]
    fn end_of_validity_is_known() {
        let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.not_before = date_time_ymd(2020, 1, 1);
        parameters.not_after = date_time_ymd(2021, 6, 5);
        let signing_key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&signing_key).unwrap();
        let certificate = to_pem("CERTIFICATE", certificate.der());
        let key = to_pem("PRIVATE KEY", &signing_key.serialize_der());
        let settings = TlsSettings::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let end: Timestamp = "2021-06-05T00:00:00Z".parse().unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(settings.expired_at(end + second), Some(end));
        assert_eq!(settings.expired_at(end - second), None);
    }
}
