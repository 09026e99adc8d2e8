//! Tests of ID tokens with RSA keys. The tests of the binary cover the whole sign-in with an
//! elliptic curve key.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::get_current_timestamp;
use jsonwebtoken::jwk::JwkSet;
use ring::signature::{RsaKeyPair, RsaPublicKeyComponents};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use throughline_json::Name;

use super::OidcProvider;
use super::id_token::{IdTokenError, TokenCheck, install_verifier};
use crate::credential::assertion;

const RSA: &[u8] = include_bytes!("../../tests/keys/rsa.pem");

const CHECK: TokenCheck<'_> =
    TokenCheck { issuer: "https://id.example.com", client_id: "console", nonce: "n-1" };

/// Returns the public key of the test as the provider publishes it.
fn published(changes: Value) -> JwkSet {
    let der = PrivatePkcs8KeyDer::from_pem_slice(RSA).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let public: RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
    let mut key = json!({"kty": "RSA", "use": "sig", "kid": "k1",
        "n": encode(&public.n),
        "e": encode(&public.e)});
    merge(&mut key, changes);
    serde_json::from_value(json!({"keys": [key, {"kty": "unknown", "kid": "k9"}]})).unwrap()
}

/// Signs a token whose claims are valid except for the changes.
fn token(changes: Value) -> String {
    let mut claims = json!({"iss": CHECK.issuer, "aud": ["console", "other"], "azp": "console",
        "sub": "u1", "nonce": "n-1", "exp": get_current_timestamp() + 300,
        "email": "ada@example.com", "email_verified": "true",
        "realm_access": {"roles": ["ops", "dev"]}, "https://example.com/roles": "admins"});
    merge(&mut claims, changes);
    let header = json!({"alg": "RS256", "kid": "k1"});
    assertion::sign(&header, &claims, RSA).unwrap()
}

fn merge(into: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else { panic!("the changes are no object") };
    let into = into.as_object_mut().unwrap();
    for (name, value) in changes {
        into.retain(|known, _| *known != name);
        if !value.is_null() {
            into.insert(name, value);
        }
    }
}

#[test]
fn rsa_tokens_are_verified_and_their_claims_read() {
    install_verifier();
    let claims = |groups: &str| {
        let claims = CHECK.verify(&token(json!({})), &published(json!({}))).unwrap();
        claims.into_person(groups)
    };
    let person = claims("realm_access.roles");
    assert_eq!((&*person.subject, person.email.as_deref()), ("u1", Some("ada@example.com")));
    assert!(person.is_email_verified);
    assert_eq!(person.groups, ["ops", "dev"].map(Name::from));
    assert_eq!(claims("https://example.com/roles").groups, [Name::from("admins")]);
    assert_eq!(claims("groups").groups, [""; 0].map(Name::from));
}

#[test]
fn tokens_that_prove_nothing_are_refused() {
    install_verifier();
    let verify = |changes, key| CHECK.verify(&token(changes), &published(key)).unwrap_err();
    let missing = |claim: &str| IdTokenError::MissingClaim(claim.to_owned());
    let past = get_current_timestamp() - 300;
    for (changes, error) in [
        (json!({"exp": past}), IdTokenError::Expired),
        (json!({"exp": null}), missing("exp")),
        (json!({"nbf": get_current_timestamp() + 300}), IdTokenError::Early),
        (json!({"iss": "https://id.example.org"}), IdTokenError::Issuer),
        (json!({"aud": "other"}), IdTokenError::Audience),
        (json!({"aud": null}), missing("aud")),
        (json!({"azp": "other"}), IdTokenError::Audience),
        (json!({"nonce": "n-2"}), IdTokenError::Nonce),
        (json!({"nonce": null}), missing("nonce")),
        (json!({"sub": null}), missing("sub")),
    ] {
        assert_eq!(verify(changes.clone(), json!({})), error, "{changes}");
    }
    for key in [json!({"kid": "k2"}), json!({"use": "enc"}), json!({"alg": "RS384"})] {
        assert_eq!(verify(json!({}), key.clone()), IdTokenError::UnknownKey, "{key}");
    }
}

#[test]
fn changed_tokens_and_shared_secrets_are_refused() {
    install_verifier();
    let keys = published(json!({}));
    let (own, other) = (token(json!({})), token(json!({"sub": "u2"})));
    let mut parts: Vec<&str> = own.split('.').collect();
    parts[1] = other.split('.').nth(1).unwrap();
    assert_eq!(CHECK.verify(&parts.join("."), &keys).unwrap_err(), IdTokenError::Signature);
    for (header, error) in [
        (json!({"alg": "HS256", "kid": "k1"}), None),
        (json!({"alg": "none"}), Some(IdTokenError::Malformed)),
    ] {
        let header = assertion::encode(header.to_string());
        let text = [&*header, parts[1], ""].join(".");
        let refused = CHECK.verify(&text, &keys).unwrap_err();
        match error {
            Some(error) => assert_eq!(refused, error),
            None => assert!(matches!(refused, IdTokenError::Algorithm(_)), "{refused:?}"),
        }
    }
    for text in ["", "a.b", "a.b.c", "....", "\u{0}"] {
        assert_eq!(CHECK.verify(text, &keys).unwrap_err(), IdTokenError::Malformed, "{text:?}");
    }
}

#[test]
fn issuers_use_tls_except_on_this_machine() {
    for issuer in ["https://id.example.com/realms/a", "http://127.0.0.1:9", "http://localhost:9"] {
        assert_eq!(OidcProvider::issuer_problem(issuer), None, "{issuer}");
    }
    for issuer in ["http://id.example.com", "id.example.com", "https://a/?b", "ftp://localhost"] {
        assert!(OidcProvider::issuer_problem(issuer).is_some(), "{issuer}");
    }
}
