//! Lets people sign in to the console at an identity provider.
//!
//! | file | contents |
//! |---|---|
//! | `cookie.rs` | signed cookies |
//! | `pages.rs` | the routes of a sign-in, and the pages about its failures |
//!
//! The state of a sign-in and of a session is in signed cookies, so every node of a gateway accepts
//! them. A session contains the person's address and groups, and the current rules decide about
//! each request. A rule that is removed therefore ends the access of its sessions.

mod cookie;
mod pages;

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, Uri};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use throughline_core::{IdentityProvider, KeyRole, Person, StoreFuture, Tenant, matches_pattern};
use throughline_json::Name;

use crate::access::{self, Admission, Allowance, Keyring, USER};
use crate::sign_in::cookie::{CookieSigner, find_cookie};
pub(crate) use crate::sign_in::pages::{PATHS, ROUTES, serve};

/// Name of the cookie that contains a session.
const SESSION: &str = "throughline_session";

/// Maximum length of a name in the cookie, in bytes. A longer name is left out.
const LONGEST_NAME: usize = 200;

/// How people sign in, and what they may do.
#[derive(Clone, Debug)]
pub struct SignInSettings {
    /// Name of the identity provider on the sign-in page.
    pub name: Name,
    /// Base URL under which browsers reach the gateway; `None` for the URL of each request.
    pub url: Option<Name>,
    /// The first matching rule decides. A person without a matching rule has no access.
    pub rules: Vec<AccessRule>,
    /// Time after which a person must sign in again.
    pub lifetime: Duration,
    /// Whether rules match an address only if the identity provider has verified it.
    pub needs_verified_email: bool,
}

/// Gives people a role in a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// Patterns of addresses, such as `*@example.com`.
    pub emails: Vec<Name>,
    /// Groups of the identity provider.
    pub groups: Vec<Name>,
    /// What the person may do.
    pub role: KeyRole,
    /// The tenant whose data the person may use.
    pub tenant: Tenant,
}

impl AccessRule {
    fn matches(&self, email: Option<&str>, groups: &[Name]) -> bool {
        let has_group = self.groups.iter().any(|group| groups.contains(group));
        // An address with two @ could match the pattern of another domain.
        let email = email.filter(|email| email.matches('@').count() == 1);
        let has_email = |email: &str| {
            let email = email.to_lowercase();
            self.emails.iter().any(|pattern| matches_pattern(&pattern.to_lowercase(), &email))
        };
        has_group || email.is_some_and(has_email)
    }
}

/// Sign-in at an identity provider.
pub struct SignIn {
    provider: Arc<dyn IdentityProvider>,
    settings: SignInSettings,
    signer: CookieSigner,
}

/// A signed-in person. The session's cookie contains these members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConsoleSession {
    id: Name,
    /// The id of the person in logs and reports, which replaces the id of a key.
    user: Name,
    /// The address that rules may match.
    email: Option<Name>,
    name: Option<Name>,
    /// The groups that occurred in a rule when the person signed in.
    groups: Vec<Name>,
    /// Seconds since 1970.
    expires: i64,
}

impl SignIn {
    /// Creates a sign-in. `key` signs the cookies, so all nodes need the same key. A key that
    /// depends on the provider ends the sessions of another provider.
    pub fn new(
        provider: Arc<dyn IdentityProvider>,
        settings: SignInSettings,
        key: [u8; 32],
    ) -> Self {
        Self { provider, settings, signer: CookieSigner::new(key) }
    }

    /// Returns the session in the request's cookie, with the rule that gives access; `None` if the
    /// request has no valid session.
    fn session(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Option<(ConsoleSession, &AccessRule)> {
        let session: ConsoleSession = self.signer.open(SESSION, find_cookie(headers, SESSION)?)?;
        let rule = self.rule(session.email.as_deref(), &session.groups)?;
        (now.as_second() < session.expires).then_some((session, rule))
    }

    /// Authenticates a request by the session in its cookie; `None` if it has no valid session.
    /// Also returns the token that a page must send to change data.
    pub(crate) fn admit(&self, headers: &HeaderMap, now: Timestamp) -> Option<(Admission, Name)> {
        let (session, rule) = self.session(headers, now)?;
        let token = self.page_token(&session);
        Some((admission(rule.tenant.clone(), session.user, rule.role), token))
    }

    /// Returns whether a page of another site sent the request. Behind a proxy, the origin of the
    /// console's pages may be `url` instead of the request's host.
    pub(crate) fn is_foreign(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
        let own = self.settings.url.as_deref().map(|url| url.trim_end_matches('/'));
        let is_own = own.is_some() && own == origin;
        access::is_from_other_site(headers)
            || (!is_own && access::has_foreign_origin(headers, uri.authority()))
    }

    /// Returns the token that a page of this session must send to change data.
    fn page_token(&self, session: &ConsoleSession) -> Name {
        self.signer.derive("token", &session.id)
    }

    fn rule(&self, email: Option<&str>, groups: &[Name]) -> Option<&AccessRule> {
        self.settings.rules.iter().find(|rule| rule.matches(email, groups))
    }

    /// Creates the session of a person; `None` if no rule gives the person access.
    fn open_session(&self, person: &Person, id: Name, now: Timestamp) -> Option<ConsoleSession> {
        let is_trusted = person.is_email_verified || !self.settings.needs_verified_email;
        let email = person.email.clone().filter(|_| is_trusted);
        let is_named =
            |group: &&Name| self.settings.rules.iter().any(|rule| rule.groups.contains(group));
        let groups: Vec<Name> = person.groups.iter().filter(is_named).cloned().collect();
        self.rule(email.as_deref(), &groups)?;
        let user = self.signer.derive("user", &person.subject);
        let user = Name::from([USER, user.get(..16).unwrap_or_default()].concat());
        let lifetime = i64::try_from(self.settings.lifetime.as_secs()).unwrap_or(i64::MAX);
        let expires = now.as_second().saturating_add(lifetime);
        // A browser ignores a cookie of more than 4 KB.
        let name = person.name.clone().filter(|name| name.len() <= LONGEST_NAME);
        Some(ConsoleSession { id, user, email, name, groups, expires })
    }

    /// Returns the admission of a run that a person started. The run continues after the session
    /// ends, while a rule allows people of the tenant to run agents.
    fn admit_run(&self, tenant: &Tenant, user: &Name) -> Admission {
        let may_run = |rule: &&AccessRule| rule.tenant == *tenant && rule.role != KeyRole::Viewer;
        match self.settings.rules.iter().find(may_run) {
            Some(rule) => admission(tenant.clone(), user.clone(), rule.role),
            None => Admission::Refused,
        }
    }
}

fn admission(tenant: Tenant, id: Name, role: KeyRole) -> Admission {
    let (models, allowance) = (Vec::new(), Allowance::default());
    Admission::Key { role: Some(role), tenant, id, models, allowance }
}

/// A keyring that also admits the runs of people who signed in.
pub(crate) struct SignInKeyring {
    pub(crate) keyring: Arc<dyn Keyring>,
    pub(crate) sign_in: Arc<SignIn>,
}

impl Keyring for SignInKeyring {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        self.keyring.admit(key)
    }

    fn admit_id<'a>(&'a self, tenant: &'a Tenant, id: &'a Name) -> StoreFuture<'a, Admission> {
        if id.starts_with(USER) {
            return Box::pin(async move { Ok(self.sign_in.admit_run(tenant, id)) });
        }
        self.keyring.admit_id(tenant, id)
    }
}

#[cfg(test)]
#[path = "sign_in/sign_in_tests.rs"]
mod sign_in_tests;
