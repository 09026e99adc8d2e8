//! Sign-in with OpenID Connect: discovery, the authorization code flow with PKCE, and ID tokens.

mod id_token;

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::jwk::JwkSet;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use throughline_core::{
    Credential, IdentityProvider, Person, SignInError, SignInFuture, SignInRequest,
};
use throughline_json::Name;
use url::form_urlencoded::byte_serialize;
use url::{Host, Url};

use crate::credential::Secret;
use crate::credential::token_client::{TokenClient, TokenRequest};
use crate::endpoint::CredentialSource;
use crate::http::Clock;
use crate::oidc::id_token::{IdTokenError, TokenCheck, install_verifier};

/// Time after which the provider's metadata is read again.
const METADATA_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// How the gateway is registered at an identity provider.
#[derive(Clone)]
pub struct OidcSettings {
    /// The provider's id, to which the path of its metadata is appended.
    pub issuer: Name,
    /// The id of the gateway at the provider.
    pub client_id: Name,
    /// The secret of the gateway at the provider. [`CredentialSource::Open`] for a public client,
    /// which has no secret.
    pub secret: CredentialSource,
    /// The requested scopes.
    pub scopes: Vec<Name>,
    /// The claim that contains the person's groups. Dots separate the names of nested claims.
    pub groups_claim: Name,
}

/// An OpenID Connect provider.
pub struct OidcProvider {
    settings: OidcSettings,
    client: TokenClient,
    clock: Clock,
    metadata: Mutex<Option<(Timestamp, Arc<Metadata>)>>,
    keys: Mutex<Option<Arc<JwkSet>>>,
}

/// The addresses of a provider, from its discovery document.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

#[derive(Deserialize)]
struct CodeResponse {
    id_token: String,
}

impl OidcProvider {
    /// Creates a provider. Its metadata is read by the first sign-in.
    pub fn new(settings: OidcSettings, clock: Clock) -> Self {
        install_verifier();
        let (metadata, keys) = (Mutex::default(), Mutex::default());
        Self { settings, client: TokenClient::default(), clock, metadata, keys }
    }

    /// Returns why an address cannot be that of an issuer; `None` if it can. The tokens of an
    /// issuer without TLS could be replaced, except on this machine.
    pub fn issuer_problem(issuer: &str) -> Option<&'static str> {
        let Ok(url) = Url::parse(issuer) else { return Some("is not a URL") };
        if url.query().is_some() || url.fragment().is_some() {
            return Some("has a query or a fragment");
        }
        (!is_protected(&url)).then_some("does not start with https://")
    }

    async fn metadata(&self) -> Result<Arc<Metadata>, SignInError> {
        let now = (self.clock)();
        let cached = lock(&self.metadata).clone();
        if let Some((read, metadata)) = cached
            && now.duration_since(read) < METADATA_LIFETIME
        {
            return Ok(metadata);
        }
        let metadata = Arc::new(self.read_metadata().await.map_err(SignInError::Unavailable)?);
        *lock(&self.metadata) = Some((now, Arc::clone(&metadata)));
        Ok(metadata)
    }

    async fn read_metadata(&self) -> Result<Metadata, String> {
        let issuer = &*self.settings.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let metadata: Metadata = self.client.fetch(TokenRequest::get(&url)?).await?;
        if metadata.issuer != issuer {
            return Err(format!(
                "the issuer at {url} is `{}`; write this value as `issuer` of [console.oidc]",
                shown(&metadata.issuer)
            ));
        }
        let Metadata { authorization_endpoint, token_endpoint, jwks_uri, .. } = &metadata;
        for address in [authorization_endpoint, token_endpoint, jwks_uri] {
            if !Url::parse(address).is_ok_and(|address| is_protected(&address)) {
                let address = shown(address);
                return Err(format!(
                    "the metadata at {url} contain the address `{address}`, which does not use https"
                ));
            }
        }
        Ok(metadata)
    }

    /// Reads the provider's current public keys.
    async fn read_keys(&self, metadata: &Metadata) -> Result<Arc<JwkSet>, SignInError> {
        let read = async { self.client.fetch(TokenRequest::get(&metadata.jwks_uri)?).await };
        let keys: Arc<JwkSet> = Arc::new(read.await.map_err(SignInError::Unavailable)?);
        *lock(&self.keys) = Some(Arc::clone(&keys));
        Ok(keys)
    }

    /// Exchanges a code for an ID token.
    async fn exchange(
        &self,
        metadata: &Metadata,
        code: &str,
        request: &SignInRequest,
    ) -> Result<String, String> {
        let client_id = &*self.settings.client_id;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &*request.redirect_uri),
            ("client_id", client_id),
            ("code_verifier", request.verifier.reveal()),
        ];
        let secret = self.secret().await?;
        let methods = &metadata.token_endpoint_auth_methods_supported;
        // Without a list, the provider supports only the header.
        let uses_header =
            methods.is_empty() || methods.iter().any(|it| it == "client_secret_basic");
        let request = match &secret {
            Some(secret) if uses_header => {
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encoded(client_id), encoded(secret.reveal()));
                let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
                let request = TokenRequest::form(&metadata.token_endpoint, &fields)?;
                request.header("authorization", &value)?
            }
            Some(secret) => {
                fields.push(("client_secret", secret.reveal()));
                TokenRequest::form(&metadata.token_endpoint, &fields)?
            }
            None => TokenRequest::form(&metadata.token_endpoint, &fields)?,
        };
        let response: CodeResponse = self.client.fetch(request).await?;
        Ok(response.id_token)
    }

    /// Returns the client secret; `None` for a public client.
    async fn secret(&self) -> Result<Option<Credential>, String> {
        match &self.settings.secret {
            CredentialSource::Open => Ok(None),
            CredentialSource::Key(key) => Ok(Some(key.clone())),
            CredentialSource::Dynamic(credential) => {
                let fetched = credential.current((self.clock)()).await;
                match &fetched.map_err(|error| error.to_string())?.secret {
                    Secret::Key(key) | Secret::Token(key) => Ok(Some(key.clone())),
                    Secret::Aws(_) => Err("AWS keys cannot be a client secret".to_owned()),
                }
            }
            CredentialSource::Missing(reason) => Err(reason.to_string()),
            CredentialSource::Aws(_) | CredentialSource::Caller => {
                Err("the client secret has an unsupported source".to_owned())
            }
        }
    }

    async fn verified(&self, code: &str, request: &SignInRequest) -> Result<Person, SignInError> {
        let metadata = self.metadata().await?;
        let token = self.exchange(&metadata, code, request).await;
        let token = token.map_err(SignInError::Unavailable)?;
        let OidcSettings { issuer, client_id, groups_claim, .. } = &self.settings;
        let check = TokenCheck { issuer, client_id, nonce: &request.nonce };
        let known = lock(&self.keys).clone();
        let (keys, is_new) = match known {
            Some(keys) => (keys, false),
            None => (self.read_keys(&metadata).await?, true),
        };
        let claims = match check.verify(&token, &keys) {
            // The provider may have replaced its keys since they were read.
            Err(IdTokenError::UnknownKey) if !is_new => {
                check.verify(&token, &*self.read_keys(&metadata).await?)
            }
            verified => verified,
        };
        let claims = claims.map_err(|error| SignInError::Refused(error.to_string()))?;
        Ok(claims.into_person(groups_claim))
    }
}

impl IdentityProvider for OidcProvider {
    fn authorization_url<'a>(&'a self, request: &'a SignInRequest) -> SignInFuture<'a, String> {
        Box::pin(async move {
            let metadata = self.metadata().await?;
            let invalid = || SignInError::Unavailable("the provider's address is invalid".into());
            let mut url = Url::parse(&metadata.authorization_endpoint).map_err(|_| invalid())?;
            let digest = Sha256::digest(request.verifier.reveal().as_bytes());
            url.query_pairs_mut().extend_pairs([
                ("response_type", "code"),
                ("client_id", &*self.settings.client_id),
                ("redirect_uri", &*request.redirect_uri),
                ("scope", &*self.settings.scopes.join(" ")),
                ("state", &*request.state),
                ("nonce", &*request.nonce),
                ("code_challenge", &*BASE64_URL_SAFE_NO_PAD.encode(digest)),
                ("code_challenge_method", "S256"),
            ]);
            Ok(url.into())
        })
    }

    fn redeem<'a>(&'a self, code: &'a str, request: &'a SignInRequest) -> SignInFuture<'a, Person> {
        Box::pin(self.verified(code, request))
    }
}

/// Returns whether a connection to the address cannot be changed by others: it uses TLS or stays on
/// this machine.
fn is_protected(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_local)
}

/// Shortens a text of the provider for a message.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "oidc/oidc_tests.rs"]
mod oidc_tests;
