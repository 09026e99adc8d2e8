//! Tests of the sign-in to the console at an OpenID Connect provider.

use serde_json::{Value, json};
use throughline_testkit::oidc::{CLIENT_ID, CLIENT_SECRET, OidcServer};

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, wait_until};

const START: &str = "/v1/throughline/session/start";
const SESSION: &str = "throughline_session";
const PENDING: &str = "throughline_sign_in";

/// Rules of the tests: operators by their group, and viewers of another tenant by their address.
const RULES: &str = "[[console.oidc.rules]]\ngroups = [\"ops\"]\nrole = \"operator\"\n\
    [[console.oidc.rules]]\nemails = [\"*@example.com\"]\nrole = \"viewer\"\ntenant = \"acme\"\n";

/// A gateway whose console uses a local identity provider.
pub(crate) struct SignInFixture {
    pub(crate) provider: OidcServer,
    pub(crate) gateway: GatewayProcess,
    pub(crate) store: TestStore,
}

impl SignInFixture {
    pub(crate) fn start(name: &str) -> Self {
        let provider = OidcServer::start().expect("a local identity provider");
        let store = TestStore::without_database(name);
        write_config(&store, &provider, RULES);
        let gateway = start_node(&store);
        Self { provider, gateway, store }
    }

    /// Starts a sign-in and returns the address of the provider's page and the cookie.
    fn begin(&self) -> (String, String) {
        let target = format!("{START}?page=%23%2Fruns%3Fstatus%3Dfailed");
        let response = self.gateway.send("GET", &target, "", "");
        assert!(response.starts_with("HTTP/1.1 303"), "{response}");
        (header(&response, "location"), cookie(&response, PENDING))
    }

    /// Signs in and returns the response to the provider's redirect.
    fn complete(&self) -> String {
        let (url, pending) = self.begin();
        follow(&self.gateway, &self.provider.authorize(&url), &pending)
    }

    /// Signs in a person with these claims and returns the session's cookie.
    fn sign_in(&self, claims: Value) -> String {
        self.provider.set_claims(claims);
        let response = self.complete();
        assert!(response.starts_with("HTTP/1.1 303"), "{response}");
        cookie(&response, SESSION)
    }
}

fn write_config(store: &TestStore, provider: &OidcServer, rules: &str) {
    let config = format!(
        "[console.oidc]\nname = \"Example ID\"\nissuer = \"{}\"\nclient_id = \"{CLIENT_ID}\"\n\
         client_secret_env = \"CONSOLE_SECRET\"\n{rules}",
        provider.issuer
    );
    std::fs::write(store.folder.join("throughline.toml"), config).unwrap();
}

fn start_node(store: &TestStore) -> GatewayProcess {
    GatewayProcess::start(&store.folder, &[("CONSOLE_SECRET", CLIENT_SECRET)], &[])
}

pub(crate) fn operator() -> Value {
    json!({"email": "ada@example.org", "email_verified": true, "name": "Ada", "groups": ["ops"]})
}

fn viewer() -> Value {
    json!({"sub": "subject-2", "email": "Bob@example.com", "email_verified": true})
}

/// Sends the request that the provider's redirect causes.
fn follow(gateway: &GatewayProcess, redirect: &str, pending: &str) -> String {
    let (_, rest) = redirect.split_once("://").unwrap();
    let target = &rest[rest.find('/').unwrap()..];
    gateway.send("GET", target, &format!("cookie: {pending}\r\n"), "")
}

fn header(response: &str, name: &str) -> String {
    let head = response.split("\r\n\r\n").next().unwrap();
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("no {name} in {response}")).1.to_owned()
}

/// Returns the `set-cookie` header for a cookie.
fn set_cookie(response: &str, name: &str) -> String {
    let start = format!("set-cookie: {name}=");
    let line = response.lines().find(|line| line.to_lowercase().starts_with(&start));
    line.unwrap_or_else(|| panic!("no {name} in {response}")).to_owned()
}

/// Returns a cookie that a response sets, as browsers send it.
fn cookie(response: &str, name: &str) -> String {
    let line = set_cookie(response, name);
    line["set-cookie: ".len()..].split(';').next().unwrap().to_owned()
}

fn body(response: &str) -> Value {
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap()
}

/// Returns the token that pages of a session send to change data.
fn token(gateway: &GatewayProcess, session: &str) -> String {
    let headers = format!("cookie: {session}\r\n");
    let token = body(&gateway.send("GET", "/v1/throughline/token", &headers, ""));
    token["token"].as_str().unwrap().to_owned()
}

/// Returns the headers of a page that changes data.
fn page_headers(gateway: &GatewayProcess, session: &str) -> String {
    let token = token(gateway, session);
    let origin = &gateway.address;
    format!("cookie: {session}\r\norigin: http://{origin}\r\nx-throughline-token: {token}\r\n")
}

#[test]
fn person_signs_in_with_a_role_and_signs_out() {
    let fixture = SignInFixture::start("sign-in");
    let gateway = &fixture.gateway;
    // Without keys, callers still need a key or a session.
    let refused = gateway.send("GET", "/v1/throughline/runs", "", "");
    assert!(status(&refused) == "401" && refused.contains("sign in"), "{refused}");
    let state = body(&gateway.send("GET", "/v1/throughline/session", "", ""));
    assert_eq!(state, json!({"provider": {"name": "Example ID"}}));

    fixture.provider.set_claims(operator());
    let response = fixture.complete();
    let address = &gateway.address;
    assert_eq!(header(&response, "location"), format!("http://{address}/#/runs?status=failed"));
    let set = set_cookie(&response, SESSION);
    assert!(set.ends_with("; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax"), "{set}");
    assert!(set_cookie(&response, PENDING).contains("Max-Age=0"), "{response}");
    let session = cookie(&response, SESSION);
    let own = format!("cookie: {session}\r\n");
    let state = body(&gateway.send("GET", "/v1/throughline/session", &own, ""));
    let user = &state["user"];
    let expected = (json!("ada@example.org"), json!("operator"), json!("default"));
    assert_eq!(
        (&user["email"], &user["role"], &user["tenant"]),
        (&expected.0, &expected.1, &expected.2)
    );
    assert_eq!(fixture.provider.problems(), [""; 0]);
    let user = user["id"].as_str().unwrap();
    let is_logged = || gateway.errors().lines().any(|line| line.contains("\"signed_in\""));
    wait_until("the sign-in", is_logged);
    let errors = gateway.errors();
    let line = errors.lines().find(|line| line.contains("\"signed_in\"")).unwrap();
    assert!(line.contains(user) && line.contains("ada@example.org"), "{line}");
    assert!(!errors.contains(CLIENT_SECRET));

    let page = page_headers(gateway, &session);
    let signed_out = gateway.send("POST", "/v1/throughline/session/end", &own, "");
    assert_eq!(status(&signed_out), "403", "{signed_out}");
    let signed_out = gateway.send("POST", "/v1/throughline/session/end", &page, "");
    assert_eq!(status(&signed_out), "200", "{signed_out}");
    assert!(set_cookie(&signed_out, SESSION).contains("=; Path=/; Max-Age=0"), "{signed_out}");
}

#[test]
fn cookies_change_data_only_with_the_token_of_their_page() {
    let fixture = SignInFixture::start("sign-in-token");
    let gateway = &fixture.gateway;
    let session = fixture.sign_in(operator());
    let other = fixture.sign_in(viewer());
    let keys = "/v1/throughline/keys";
    let own = format!("cookie: {session}\r\n");
    let key = r#"{"label": "a", "role": "app"}"#;
    let page = page_headers(gateway, &session);
    for (headers, expected) in [
        (own.clone(), "403"),
        (format!("{own}x-throughline-token: none\r\n"), "403"),
        (page.replace(&token(gateway, &session), &token(gateway, &other)), "403"),
        (page.replace(&format!("http://{}", gateway.address), "https://evil.example"), "403"),
        (format!("{page}sec-fetch-site: cross-site\r\n"), "403"),
        (format!("{page}sec-fetch-site: same-origin\r\n"), "200"),
    ] {
        let response = gateway.send("POST", keys, &headers, key);
        assert_eq!(status(&response), expected, "{headers}: {response}");
    }
    let list = gateway.send("GET", keys, &format!("{own}sec-fetch-site: cross-site\r\n"), "");
    assert_eq!(status(&list), "403", "{list}");
    assert_eq!(body(&gateway.send("GET", keys, &own, ""))["keys"].as_array().unwrap().len(), 1);
}

#[test]
fn people_have_the_permissions_of_their_role_in_their_tenant_only() {
    let fixture = SignInFixture::start("sign-in-roles");
    let gateway = &fixture.gateway;
    let (operator, viewer) = (fixture.sign_in(operator()), fixture.sign_in(viewer()));
    let send = |session: &str, method: &str, path: &str, value: Value| {
        let text = if value.is_null() { String::new() } else { value.to_string() };
        gateway.send(method, path, &page_headers(gateway, session), &text)
    };
    // An operator runs an agent, which checks the person before each model call.
    let agent = json!({"name": "helper", "model": "sim/claude-sonnet-4-5"});
    let agent = body(&send(&operator, "POST", "/v1/agents/", agent));
    let messages = format!("/v1/agents/{}/messages", agent["id"].as_str().unwrap());
    let message = json!({"input": "Hello"});
    let answered = send(&operator, "POST", &messages, message.clone());
    assert!(status(&answered) == "200" && answered.contains("end_turn"), "{answered}");
    let usage = body(&send(&operator, "GET", "/v1/throughline/usage", Value::Null));
    assert!(usage["key"].as_str().unwrap().starts_with("user_"), "{usage}");
    assert_eq!(usage["used"]["calls"], 1, "{usage}");

    // A viewer of another tenant reads only its own tenant, and changes nothing.
    let agents = body(&send(&viewer, "GET", "/v1/agents/", Value::Null));
    assert_eq!(agents, json!([]));
    for path in [&*messages, "/v1/throughline/keys", "/v1/messages"] {
        let refused = send(&viewer, "POST", path, message.clone());
        assert!(status(&refused) == "403", "{path}: {refused}");
        assert!(refused.contains("a person with the role viewer may not"), "{refused}");
    }
    let exported = send(&viewer, "GET", "/v1/throughline/journal/export", Value::Null);
    assert_eq!(status(&exported), "403", "{exported}");
    let runs = body(&send(&viewer, "GET", "/v1/throughline/runs", Value::Null));
    assert_eq!(runs["runs"], json!([]));
}

#[test]
fn tokens_that_do_not_prove_the_person_are_refused() {
    let fixture = SignInFixture::start("sign-in-refused");
    let changed = |changes: Value| {
        let mut claims = operator();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        claims
    };
    let refused = |claims: Value, expected: &str| {
        fixture.provider.set_claims(claims);
        let response = fixture.complete();
        assert_eq!(status(&response), "403", "{expected}: {response}");
        assert!(response.contains(expected), "{expected}: {response}");
        assert!(!response.contains(SESSION), "{response}");
    };
    refused(changed(json!({"nonce": "other"})), "belongs to another sign-in (`nonce`)");
    refused(changed(json!({"nonce": null})), "has no claim `nonce`");
    refused(changed(json!({"aud": "other"})), "for another client");
    refused(changed(json!({"exp": 1_700_000_000})), "has expired");
    refused(changed(json!({"iss": "https://other.example"})), "from another issuer");
    refused(changed(json!({"groups": ["dev"]})), "ada@example.org has no access");
    let unverified = json!({"email": "bob@example.com", "email_verified": false});
    refused(unverified, "Example ID has not verified this address");
    let hostile = json!({"email": "<script>alert(1)</script>@example.org"});
    refused(hostile, "&lt;script&gt;alert(1)&lt;/script&gt;@example.org has no access");
    fixture.provider.forge_signatures(true);
    refused(operator(), "the signature of the ID token is invalid");
    fixture.provider.forge_signatures(false);
    fixture.sign_in(operator());
    // The provider publishes another key, which the gateway does not know yet.
    fixture.provider.rotate_key();
    fixture.sign_in(operator());
}

#[test]
fn response_belongs_to_the_browser_that_started_the_sign_in() {
    let fixture = SignInFixture::start("sign-in-browser");
    let gateway = &fixture.gateway;
    fixture.provider.set_claims(operator());
    let (url, pending) = fixture.begin();
    let redirect = fixture.provider.authorize(&url);
    let (_, other) = fixture.begin();
    for (redirect, pending, expected) in [
        (redirect.clone(), "a=b", "has not started this sign-in"),
        (redirect.clone(), &*other, "another sign-in (`state`)"),
        (redirect.replace("state=", "state=0"), &*pending, "another sign-in (`state`)"),
        (redirect.replace("code=", "none="), &*pending, "contains no code"),
    ] {
        let response = follow(gateway, &redirect, pending);
        assert!(status(&response) == "400" && response.contains(expected), "{response}");
    }
    let denied = redirect.replace("code=", "error=access_denied&error_description=%3Cb%3E&none=");
    let response = follow(gateway, &denied, &pending);
    assert!(
        status(&response) == "403" && response.contains("access_denied: &lt;b&gt;"),
        "{response}"
    );
    // The sign-in completes on another node, once.
    let second = start_node(&fixture.store);
    let response = follow(&second, &redirect, &pending);
    let own = format!("cookie: {}\r\n", cookie(&response, SESSION));
    for node in [gateway, &second] {
        assert_eq!(status(&node.send("GET", "/v1/throughline/runs", &own, "")), "200");
    }
    let again = follow(gateway, &redirect, &pending);
    assert!(status(&again) == "502" && again.contains("invalid_grant"), "{again}");
}

#[test]
fn removed_rules_end_sessions_and_pages_stay_on_the_gateway() {
    let fixture = SignInFixture::start("sign-in-reload");
    let gateway = &fixture.gateway;
    let own = format!("cookie: {}\r\n", fixture.sign_in(operator()));
    assert_eq!(status(&gateway.send("GET", "/v1/throughline/runs", &own, "")), "200");
    for page in ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%23%2Fa%0d%0aset-cookie:"] {
        let target = format!("{START}?page={page}");
        let response = gateway.send("GET", &target, "", "");
        let pending = cookie(&response, PENDING);
        let redirect = fixture.provider.authorize(&header(&response, "location"));
        let response = follow(gateway, &redirect, &pending);
        assert_eq!(header(&response, "location"), format!("http://{}/", gateway.address), "{page}");
    }
    write_config(&fixture.store, &fixture.provider, &RULES.replace("\"ops\"", "\"admins\""));
    gateway.signal("HUP");
    wait_until("the end of the session", || {
        status(&gateway.send("GET", "/v1/throughline/runs", &own, "")) == "401"
    });
}

#[test]
fn gateway_without_identity_provider_has_no_sign_in() {
    let store = TestStore::without_database("sign-in-none");
    let gateway = GatewayProcess::start(&store.folder, &[], &[]);
    assert_eq!(body(&gateway.send("GET", "/v1/throughline/session", "", "")), json!({}));
    let response = gateway.send("GET", START, "", "");
    assert!(status(&response) == "404" && response.contains("[console.oidc]"), "{response}");
}
