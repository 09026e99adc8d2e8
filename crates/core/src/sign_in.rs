//! The port through which people sign in at an identity provider.

use std::future::Future;
use std::pin::Pin;

use throughline_json::Name;

use crate::upstream::Credential;

/// Authenticates people at an identity provider, with an authorization code.
pub trait IdentityProvider: Send + Sync {
    /// Returns the address of the provider's sign-in page for a new sign-in.
    fn authorization_url<'a>(&'a self, request: &'a SignInRequest) -> SignInFuture<'a, String>;

    /// Exchanges the code of a completed sign-in for the verified claims about the person.
    fn redeem<'a>(&'a self, code: &'a str, request: &'a SignInRequest) -> SignInFuture<'a, Person>;
}

/// A future of an [`IdentityProvider`].
pub type SignInFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SignInError>> + Send + 'a>>;

/// The values that bind the response of an identity provider to one sign-in in one browser.
#[derive(Clone, Debug)]
pub struct SignInRequest {
    /// The provider returns this value with the code.
    pub state: Name,
    /// The provider writes this value to the ID token.
    pub nonce: Name,
    /// The PKCE code verifier, which the provider receives only with the code.
    pub verifier: Credential,
    /// The address that receives the code.
    pub redirect_uri: Name,
}

/// The verified claims of an identity provider about a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The provider's id of the person, which never changes.
    pub subject: Name,
    /// The person's address, which may not be verified.
    pub email: Option<Name>,
    /// Whether the provider has verified the address.
    pub is_email_verified: bool,
    /// The person's name for display.
    pub name: Option<Name>,
    /// The person's groups or roles at the provider.
    pub groups: Vec<Name>,
}

/// Why a sign-in failed. The messages contain no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The identity provider cannot be used at the moment, or its settings are wrong.
    #[error("{0}")]
    Unavailable(String),
    /// The identity provider's response does not prove who signed in.
    #[error("{0}")]
    Refused(String),
}
