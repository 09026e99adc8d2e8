//! Tests of rules, sessions and cookies. The tests of the binary cover the routes.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use throughline_core::{
    IdentityProvider, KeyRole, Person, SignInError, SignInFuture, SignInRequest, Tenant,
};
use throughline_json::Name;

use super::{AccessRule, SESSION, SignIn, SignInSettings};
use crate::access::Admission;

struct NoProvider;

impl IdentityProvider for NoProvider {
    fn authorization_url<'a>(&'a self, _: &'a SignInRequest) -> SignInFuture<'a, String> {
        Box::pin(async { Err(SignInError::Unavailable("no provider".to_owned())) })
    }

    fn redeem<'a>(&'a self, _: &'a str, _: &'a SignInRequest) -> SignInFuture<'a, Person> {
        Box::pin(async { Err(SignInError::Unavailable("no provider".to_owned())) })
    }
}

fn rule(emails: &[&str], groups: &[&str], role: KeyRole, tenant: &str) -> AccessRule {
    let names = |names: &[&str]| names.iter().copied().map(Name::from).collect();
    AccessRule { emails: names(emails), groups: names(groups), role, tenant: tenant.into() }
}

fn sign_in(rules: &[AccessRule]) -> SignIn {
    let settings = SignInSettings {
        name: "Example".into(),
        url: None,
        rules: rules.to_vec(),
        lifetime: Duration::from_hours(1),
        needs_verified_email: true,
    };
    SignIn::new(Arc::new(NoProvider), settings, [7; 32])
}

fn person(email: &str, groups: &[&str]) -> Person {
    Person {
        subject: "subject-1".into(),
        email: Some(email.into()),
        is_email_verified: true,
        name: None,
        groups: groups.iter().copied().map(Name::from).collect(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// Returns the headers of a request in the person's session; `None` without access.
fn session(sign_in: &SignIn, person: &Person) -> Option<HeaderMap> {
    let session = sign_in.open_session(person, "id".into(), now())?;
    let mut headers = HeaderMap::new();
    let cookie = format!("a=b; {SESSION}={}", sign_in.signer.seal(SESSION, &session));
    headers.insert("cookie", cookie.parse().unwrap());
    Some(headers)
}

/// Returns the role and tenant that a person gets.
fn access(sign_in: &SignIn, person: &Person) -> Option<(KeyRole, Tenant)> {
    let (admission, _) = sign_in.admit(&session(sign_in, person)?, now())?;
    let Admission::Key { role, tenant, id, .. } = admission else { panic!("{admission:?}") };
    assert!(id.starts_with("user_") && id.len() == 21, "{id}");
    Some((role?, tenant))
}

#[test]
fn first_matching_rule_decides_and_others_have_no_access() {
    let sign_in = sign_in(&[
        rule(&[], &["ops"], KeyRole::Operator, "default"),
        rule(&["*@Example.com"], &[], KeyRole::Viewer, "acme"),
    ]);
    let access = |person: &Person| access(&sign_in, person);
    let operator = Some((KeyRole::Operator, "default".into()));
    let viewer = Some((KeyRole::Viewer, "acme".into()));
    assert_eq!(access(&person("ada@example.com", &["dev", "ops"])), operator);
    assert_eq!(access(&person("Ada@EXAMPLE.com", &["dev"])), viewer);
    for email in ["ada@example.org", "ada@example.com.org", "\"a@evil.org\"@example.com", ""] {
        assert_eq!(access(&person(email, &["OPS", "op"])), None, "{email}");
    }
    let unverified = Person { is_email_verified: false, ..person("ada@example.com", &[]) };
    assert_eq!(access(&unverified), None);
    let grouped = Person { is_email_verified: false, ..person("ada@example.com", &["ops"]) };
    assert_eq!(access(&grouped), operator);
}

#[test]
fn sessions_expire_and_follow_the_current_rules() {
    let rules = [rule(&[], &["ops"], KeyRole::Operator, "default")];
    let first = sign_in(&rules);
    let headers = session(&first, &person("ada@example.com", &["ops"])).unwrap();
    assert!(first.admit(&headers, now()).is_some());
    let later = now() + SignedDuration::from_hours(1);
    assert!(first.admit(&headers, later).is_none());
    // Another node with the same key accepts the session, and a changed rule applies to it.
    let changed = sign_in(&[rule(&[], &["ops"], KeyRole::Viewer, "acme")]);
    let (admission, _) = changed.admit(&headers, now()).unwrap();
    assert!(matches!(admission, Admission::Key { role: Some(KeyRole::Viewer), .. }));
    assert!(sign_in(&[]).admit(&headers, now()).is_none());
}

#[test]
fn changed_cookies_and_cookies_for_other_purposes_are_refused() {
    let sign_in = sign_in(&[rule(&["*@example.com"], &[], KeyRole::Operator, "default")]);
    let session = sign_in.open_session(&person("ada@example.com", &[]), "id".into(), now());
    let session = session.unwrap();
    let sealed = sign_in.signer.seal(SESSION, &session);
    let is_admitted = |cookie: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("cookie", format!("{SESSION}={cookie}").parse().unwrap());
        sign_in.admit(&headers, now()).is_some()
    };
    assert!(is_admitted(&sealed));
    let other = SignIn::new(Arc::new(NoProvider), sign_in.settings.clone(), [8; 32]);
    let (text, signature) = sealed.split_once('.').unwrap();
    for cookie in [
        String::new(),
        text.to_owned(),
        format!("{text}."),
        format!("{text}A.{signature}"),
        format!("{text}.{}", &signature[1..]),
        sign_in.signer.seal("throughline_sign_in", &session),
        other.signer.seal(SESSION, &session),
    ] {
        assert!(!is_admitted(&cookie), "{cookie}");
    }
}

#[test]
fn pages_of_the_configured_url_are_own_pages() {
    let rules = [rule(&["*@example.com"], &[], KeyRole::Operator, "default")];
    let mut sign_in = sign_in(&rules);
    let is_foreign = |sign_in: &SignIn, origin: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("host", "10.0.0.7:4400".parse().unwrap());
        headers.insert("origin", origin.parse().unwrap());
        sign_in.is_foreign(&headers, &"/v1/runs/".parse().unwrap())
    };
    assert!(!is_foreign(&sign_in, "http://10.0.0.7:4400"));
    assert!(is_foreign(&sign_in, "https://gateway.example.com"));
    sign_in.settings.url = Some("https://gateway.example.com/".into());
    assert!(!is_foreign(&sign_in, "https://gateway.example.com"));
    assert!(is_foreign(&sign_in, "https://example.com") && is_foreign(&sign_in, "null"));
}

#[test]
fn runs_of_people_need_a_rule_that_allows_runs_in_their_tenant() {
    let sign_in = sign_in(&[
        rule(&[], &["ops"], KeyRole::App, "acme"),
        rule(&[], &["all"], KeyRole::Viewer, "default"),
    ]);
    let user = Name::from("user_1");
    let is_admitted = |tenant: &str| sign_in.admit_run(&tenant.into(), &user).is_key();
    assert!(is_admitted("acme"));
    assert!(!is_admitted("default") && !is_admitted("other"));
}
