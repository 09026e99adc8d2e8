//! TLS to the server: which certificates are trusted, the client's own certificate, and the texts
//! of errors. The parameters have the names and meanings that libpq gives them.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::rejection::{Result, invalid};
use crate::sql::timestamp;

/// The value of `sslrootcert` that stands for the system's root certificates.
const SYSTEM: &str = "system";

/// The TLS parameters of a store URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PostgresTls {
    pub(super) sslmode: Option<String>,
    pub(super) sslrootcert: Option<String>,
    pub(super) sslcert: Option<PathBuf>,
    pub(super) sslkey: Option<PathBuf>,
}

/// How much of the server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateCheck {
    /// Encrypts the connection, but accepts every certificate.
    Nothing,
    /// Checks that a trusted CA issued the certificate.
    Issuer,
    /// Also checks that the certificate is for the host in the URL.
    IssuerAndHost,
}

impl PostgresTls {
    /// Returns whether the connection uses TLS, and what is checked.
    pub(super) fn mode(&self) -> Result<(SslMode, CertificateCheck)> {
        let is_system = self.sslrootcert.as_deref() == Some(SYSTEM);
        let default = if is_system { "verify-full" } else { "prefer" };
        let name = self.sslmode.as_deref().unwrap_or(default);
        // As in libpq, a given root certificate is always checked.
        let issuer = match self.sslrootcert {
            Some(_) => CertificateCheck::Issuer,
            None => CertificateCheck::Nothing,
        };
        let mode = match name {
            "disable" => (SslMode::Disable, CertificateCheck::Nothing),
            "prefer" => (SslMode::Prefer, issuer),
            "require" => (SslMode::Require, issuer),
            "verify-ca" => (SslMode::Require, CertificateCheck::Issuer),
            "verify-full" => (SslMode::Require, CertificateCheck::IssuerAndHost),
            "allow" => {
                return Err(invalid!(
                    "sslmode=allow in the database URL is not supported, because it prefers \
                     unencrypted connections; use sslmode=prefer or sslmode=require"
                ));
            }
            _ => {
                return Err(invalid!(
                    "sslmode in the database URL must be disable, prefer, require, verify-ca or \
                     verify-full"
                ));
            }
        };
        if mode.1 == CertificateCheck::Issuer && self.sslrootcert.is_none() {
            return Err(invalid!(
                "sslmode=verify-ca in the database URL needs sslrootcert=FILE, the certificate of \
                 the CA to trust"
            ));
        }
        // Anyone can get a certificate from a public CA, so the issuer alone proves nothing.
        if is_system && mode.1 != CertificateCheck::IssuerAndHost && mode.0 != SslMode::Disable {
            return Err(invalid!(
                "sslrootcert=system in the database URL needs sslmode=verify-full, because public \
                 CAs issue certificates to everyone"
            ));
        }
        Ok(mode)
    }

    /// Reads the certificate files and returns the TLS connector.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let failed = |error| invalid!("cannot configure TLS: {error}");
        let (_, check) = self.mode()?;
        let issuer = match check {
            CertificateCheck::Nothing => None,
            CertificateCheck::Issuer | CertificateCheck::IssuerAndHost => {
                let roots = Arc::new(self.roots()?);
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                Some(
                    verifier
                        .build()
                        .map_err(|error| invalid!("cannot use sslrootcert: {error}"))?,
                )
            }
        };
        let verifier = CertificateVerifier { check, issuer, provider: Arc::clone(&provider) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.client_certificate()? {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
                invalid!("sslcert and sslkey in the database URL do not match: {error}")
            })?,
        };
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match self.sslrootcert.as_deref().filter(|file| *file != SYSTEM) {
            Some(file) => {
                for certificate in certificates("sslrootcert", Path::new(file))? {
                    roots.add(certificate).map_err(|error| {
                        invalid!("the certificate in sslrootcert={file} is invalid: {error}")
                    })?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(invalid!(
                        "the system has no root certificates; set sslrootcert=FILE in the database \
                         URL to the certificate of the CA to trust"
                    ));
                }
            }
        }
        Ok(roots)
    }

    fn client_certificate(
        &self,
    ) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
        let (certificate, key) = match (&self.sslcert, &self.sslkey) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) | (None, Some(_)) => {
                return Err(invalid!(
                    "a client certificate needs both sslcert=FILE and sslkey=FILE in the database \
                     URL"
                ));
            }
        };
        let chain = certificates("sslcert", certificate)?;
        check_permissions(key)?;
        let shown = key.display();
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
            invalid!(
                "cannot read the private key sslkey={shown}: {error}; it must be an unencrypted \
                 key in PEM format"
            )
        })?;
        Ok(Some((chain, key)))
    }

    /// Returns a sentence for an error in the TLS handshake, with advice. Returns `None` if TLS is
    /// not the cause.
    pub(super) fn explain(&self, error: &tokio_postgres::Error) -> Option<String> {
        let source = error.source()?;
        if source.to_string() == "server does not support TLS" {
            let mode = self.sslmode.as_deref().unwrap_or("verify-full");
            return Some(format!(
                "the server does not support TLS, but sslmode={mode} requires it; set `ssl = on` \
                 on the server"
            ));
        }
        let error = tls_error(source)?;
        Some(match error {
            rustls::Error::InvalidCertificate(problem) => self.explain_certificate(problem),
            rustls::Error::AlertReceived(
                alert @ (AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateRequired),
            ) => format!(
                "the server rejected the client certificate ({alert:?}); check sslcert and sslkey \
                 in the database URL, and ssl_ca_file on the server"
            ),
            error => format!("the TLS handshake failed: {error}"),
        })
    }

    fn explain_certificate(&self, problem: &CertificateError) -> String {
        let roots = match self.sslrootcert.as_deref() {
            Some(file) if file != SYSTEM => format!("sslrootcert={file}"),
            Some(_) | None => "the system's root certificates".to_owned(),
        };
        match problem {
            CertificateError::UnknownIssuer => format!(
                "the server's certificate was not issued by a CA in {roots}; set sslrootcert to \
                 the certificate of the CA that issued it"
            ),
            CertificateError::Expired => {
                "the server's certificate has expired; renew the certificate".to_owned()
            }
            CertificateError::ExpiredContext { not_after, .. } => {
                let end = timestamp(milliseconds(*not_after));
                format!("the server's certificate expired at {end}; renew the certificate")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet; check the clocks of both machines"
                    .to_owned()
            }
            CertificateError::NotValidForName => {
                "the server's certificate is for another host; connect to a host name in the \
                 certificate, or use sslmode=verify-ca"
                    .to_owned()
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                let expected = expected.to_str();
                let names: Vec<&str> = presented.iter().map(|name| plain_name(name)).collect();
                let names = match &*names {
                    [] => "names no host in its subjectAltName".to_owned(),
                    names => format!("is for {}, not for {expected}", names.join(", ")),
                };
                format!(
                    "the server's certificate {names}; connect to a host name in the certificate, \
                     or use sslmode=verify-ca"
                )
            }
            problem if format!("{problem:?}").contains("CaUsedAsEndEntity") => {
                "the server uses a CA certificate as its own certificate; issue a server \
                 certificate that is not a CA (basicConstraints=CA:FALSE)"
                    .to_owned()
            }
            problem => format!("the server's certificate is invalid: {problem}"),
        }
    }
}

/// Returns the name in a text such as `DnsName("db.example.com")`.
fn plain_name(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

fn milliseconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX).saturating_mul(1000)
}

/// Returns the TLS error that caused an I/O error.
fn tls_error<'e>(source: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let inner = source.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.and_then(|inner| inner.downcast_ref())
}

fn certificates(parameter: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let shown = file.display();
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error: rustls::pki_types::pem::Error| {
        invalid!("cannot read the certificates in {parameter}={shown}: {error}")
    })?;
    if read.is_empty() {
        return Err(invalid!("{parameter}={shown} contains no certificate in PEM format"));
    }
    Ok(read)
}

/// Refuses a private key that other users can read, with the same rule as libpq: only the owner
/// may read the file, or also its group if the file belongs to root.
#[cfg(unix)]
fn check_permissions(key: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let shown = key.display();
    let metadata = std::fs::metadata(key);
    let metadata = metadata
        .map_err(|error| invalid!("cannot read the private key sslkey={shown}: {error}"))?;
    let forbidden = if metadata.uid() == 0 { 0o027 } else { 0o077 };
    if metadata.mode() & forbidden == 0 {
        return Ok(());
    }
    Err(invalid!("other users can read the private key sslkey={shown}; run chmod 0600 {shown}"))
}

#[cfg(not(unix))]
fn check_permissions(_: &Path) -> Result<()> {
    Ok(())
}

/// Verifies the server's certificate as far as the mode requires.
#[derive(Debug)]
struct CertificateVerifier {
    check: CertificateCheck,
    /// `None` if every certificate is accepted.
    issuer: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(issuer) = &self.issuer else { return Ok(ServerCertVerified::assertion()) };
        let verified =
            issuer.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The host name is checked last, after the chain and the dates.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == CertificateCheck::Issuer => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
