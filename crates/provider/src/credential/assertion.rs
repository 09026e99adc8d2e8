//! Signs JSON Web Tokens with RSA, for service accounts and client certificates.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

/// Encodes and signs a token with the private RSA key in a PEM text. The signature algorithm in
/// `header` must be RS256.
pub(crate) fn sign(header: &Value, claims: &Value, pem: &[u8]) -> Result<String, String> {
    let invalid = || "the private key is not an RSA key in PEM format".to_owned();
    let key = match PrivateKeyDer::from_pem_slice(pem).map_err(|_| invalid())? {
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        _ => return Err(invalid()),
    };
    let key = key.map_err(|_| invalid())?;
    let mut token = [encode(header.to_string()), encode(claims.to_string())].join(".");
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), token.as_bytes(), &mut signature)
        .map_err(|_| "the system provides no randomness for a signature".to_owned())?;
    token.push('.');
    token.push_str(&encode(signature));
    Ok(token)
}

/// Encodes bytes as the parts of a token are encoded.
pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
