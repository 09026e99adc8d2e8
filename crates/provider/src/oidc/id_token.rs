//! Verifies ID tokens. `jsonwebtoken` parses the tokens and checks their claims, and `ring`, which
//! TLS uses too, checks the signatures.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::jwk::{Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation, decode, decode_header,
};
use ring::signature::{self as ring_signature, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Map, Value};
use throughline_core::Person;
use throughline_json::Name;

/// What an ID token must contain.
pub(super) struct TokenCheck<'c> {
    pub(super) issuer: &'c str,
    pub(super) client_id: &'c str,
    pub(super) nonce: &'c str,
}

/// Why an ID token is not accepted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdTokenError {
    #[error("the ID token is not signed with a key of the provider")]
    UnknownKey,
    #[error(
        "the ID token is signed with the algorithm {0:?}; use RS256, PS256, ES256, ES384 or EdDSA"
    )]
    Algorithm(Algorithm),
    #[error("the signature of the ID token is invalid")]
    Signature,
    #[error("the ID token has expired; compare the clocks of the gateway and the provider")]
    Expired,
    #[error("the ID token is not valid yet; compare the clocks of the gateway and the provider")]
    Early,
    #[error("the ID token is from another issuer")]
    Issuer,
    #[error("the ID token is for another client; check `client_id` of [console.oidc]")]
    Audience,
    #[error("the ID token belongs to another sign-in (`nonce`); sign in again")]
    Nonce,
    #[error("the ID token has no claim `{0}`")]
    MissingClaim(String),
    #[error("the ID token is malformed")]
    Malformed,
}

impl From<Error> for IdTokenError {
    fn from(error: Error) -> Self {
        match error.into_kind() {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::Early,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::MissingRequiredClaim(claim) => Self::MissingClaim(claim),
            _ => Self::Malformed,
        }
    }
}

impl TokenCheck<'_> {
    /// Checks the signature and the claims of a token.
    pub(super) fn verify(&self, token: &str, keys: &JwkSet) -> Result<IdClaims, IdTokenError> {
        let header = decode_header(token)?;
        if header.alg.family() == AlgorithmFamily::Hmac {
            return Err(IdTokenError::Algorithm(header.alg));
        }
        let key = match &header.kid {
            Some(id) => keys.find(id),
            None => only_key(keys, header.alg),
        };
        let key = key.filter(|key| is_usable(key, header.alg)).ok_or(IdTokenError::UnknownKey)?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[self.issuer]);
        validation.set_audience(&[self.client_id]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        let claims: Map<String, Value> =
            decode(token, &DecodingKey::from_jwk(key)?, &validation)?.claims;
        let claims = IdClaims(claims);
        // A token for several clients names the client that requested it.
        if claims.text("azp").is_some_and(|client| client != self.client_id) {
            return Err(IdTokenError::Audience);
        }
        match claims.text("nonce") {
            Some(nonce) if nonce == self.nonce => Ok(claims),
            Some(_) => Err(IdTokenError::Nonce),
            None => Err(IdTokenError::MissingClaim("nonce".to_owned())),
        }
    }
}

/// Returns the provider's key for an algorithm if it has exactly one.
fn only_key(keys: &JwkSet, algorithm: Algorithm) -> Option<&Jwk> {
    let mut usable = keys.keys.iter().filter(|key| is_usable(key, algorithm));
    usable.next().filter(|_| usable.next().is_none())
}

/// Returns whether a key may sign tokens with an algorithm.
fn is_usable(key: &Jwk, algorithm: Algorithm) -> bool {
    let is_for_signatures =
        key.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
    let declared = key.common.key_algorithm;
    let is_for_algorithm = declared.is_none_or(|own| own == KeyAlgorithm::from(algorithm));
    let family = DecodingKey::from_jwk(key).map(|key| key.family());
    is_for_signatures && is_for_algorithm && family.is_ok_and(|it| it == algorithm.family())
}

/// The claims of a verified ID token.
#[derive(Debug)]
pub(super) struct IdClaims(Map<String, Value>);

impl IdClaims {
    fn text(&self, claim: &str) -> Option<&str> {
        self.0.get(claim)?.as_str().filter(|text| !text.is_empty())
    }

    pub(super) fn into_person(self, groups_claim: &str) -> Person {
        let name = |claim: &str| self.text(claim).map(Name::from);
        let is_email_verified = match self.0.get("email_verified") {
            Some(Value::Bool(is_verified)) => *is_verified,
            // Some providers write Booleans as strings.
            Some(Value::String(text)) => text == "true",
            _ => false,
        };
        Person {
            subject: name("sub").unwrap_or_default(),
            email: name("email"),
            is_email_verified,
            name: name("name").or_else(|| name("preferred_username")),
            groups: self.groups(groups_claim),
        }
    }

    /// Returns the strings in a claim. The name of a claim may contain dots itself.
    fn groups(&self, claim: &str) -> Vec<Name> {
        let nested = || {
            let mut parts = claim.split('.');
            let first = self.0.get(parts.next()?)?;
            parts.try_fold(first, |value, part| value.get(part))
        };
        match self.0.get(claim).or_else(nested) {
            Some(Value::String(group)) => vec![Name::from(&**group)],
            Some(Value::Array(groups)) => {
                groups.iter().filter_map(Value::as_str).map(Name::from).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Lets `jsonwebtoken` check signatures with `ring` in this process. If the process has installed
/// another implementation, that one is used.
pub(super) fn install_verifier() {
    static RING: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
        verifier_factory: |algorithm, key| {
            let (algorithm, key) = (*algorithm, key.clone());
            if key.family() != algorithm.family() {
                return Err(new_error(ErrorKind::InvalidKeyFormat));
            }
            Ok(Box::new(RingVerifier { algorithm, key }))
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    RING.install_default().ok();
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let rsa = |parameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            DecodingKeyKind::SecretOrDer(_) => Err(ring::error::Unspecified),
        };
        let other = |algorithm: &'static dyn ring_signature::VerificationAlgorithm| {
            let key = self.key.try_get_as_bytes().map_err(|_| ring::error::Unspecified)?;
            UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        let verified = match self.algorithm {
            Algorithm::RS256 => rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&ring_signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&ring_signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&ring_signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => other(&ring_signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => other(&ring_signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => other(&ring_signature::ED25519),
            // Shared secrets and unknown algorithms prove nothing.
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| SignatureError::new())
    }
}
