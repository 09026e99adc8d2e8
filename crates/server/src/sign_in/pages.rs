//! The routes of a sign-in. They serve callers who are not signed in yet.

use axum::http::request::Parts;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use throughline_core::{Credential, SignInError, SignInRequest};
use throughline_json::Name;

use crate::access;
use crate::object::object;
use crate::response::GatewayResponse;
use crate::sign_in::cookie::{find_cookie, set_cookie};
use crate::sign_in::{AccessRule, ConsoleSession, SESSION, SignIn};
use crate::telemetry::Telemetry;
use crate::url::Query;

/// Reports the signed-in person, and whether people can sign in.
const STATE: &str = "/v1/throughline/session";
const START: &str = "/v1/throughline/session/start";
const CALLBACK: &str = "/v1/throughline/session/callback";
const END: &str = "/v1/throughline/session/end";

/// The paths that [`serve`] handles.
pub(crate) const PATHS: [&str; 4] = [STATE, START, CALLBACK, END];

/// The method, path and summary of each route.
pub(crate) const ROUTES: [(&str, &str, &str); 4] = [
    ("GET", STATE, "Return the signed-in person, and the name of the identity provider."),
    ("GET", START, "Redirect to the sign-in page of the identity provider."),
    ("GET", CALLBACK, "Complete a sign-in. The identity provider redirects to this address."),
    ("POST", END, "Sign out: delete the cookie of the session."),
];

/// Name of the cookie that contains a sign-in in progress.
const PENDING: &str = "throughline_sign_in";

/// Time in seconds within which a sign-in must be completed.
const PENDING_LIFETIME: u32 = 600;

/// Maximum length of the page to which a sign-in returns.
const LONGEST_RETURN: usize = 500;

/// Content security policy of the page about a failed sign-in, which loads nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// A sign-in in progress. `state`, `nonce` and the PKCE verifier are derived from the id, so the
/// cookie contains none of them.
#[derive(Debug, Serialize, Deserialize)]
struct PendingSignIn {
    id: Name,
    /// Seconds since 1970.
    expires: i64,
    /// The scheme and host under which the browser reaches the gateway.
    address: Name,
    /// The page of the console that opens after the sign-in, such as `#/runs`.
    page: Name,
}

/// Why a sign-in failed, with the status of the response.
struct SignInFailure(u16, String);

impl From<SignInError> for SignInFailure {
    fn from(error: SignInError) -> Self {
        match error {
            SignInError::Unavailable(message) => Self(502, message),
            SignInError::Refused(message) => Self(403, message),
        }
    }
}

/// Serves a route of a sign-in. `sign_in` is `None` if the gateway has no identity provider.
pub(crate) async fn serve(
    sign_in: Option<&SignIn>,
    operations: &Telemetry,
    parts: &Parts,
) -> GatewayResponse {
    let now = operations.meter.now();
    let method = if parts.method == "HEAD" { "GET" } else { parts.method.as_str() };
    let response = match (sign_in, method, parts.uri.path()) {
        (None, "GET", STATE) => GatewayResponse::json(200, &throughline_json::object(|_| {})),
        (Some(sign_in), "GET", STATE) => sign_in.state(parts, now),
        (Some(sign_in), "GET", START) => match sign_in.start(parts, now).await {
            Ok(response) => response,
            Err(failure) => failed(operations, &failure),
        },
        (Some(sign_in), "GET", CALLBACK) => match sign_in.complete(parts, now).await {
            Ok((session, rule, response)) => {
                let email = session.email.as_deref();
                operations.record_sign_in(&session.user, email, rule.role, &rule.tenant);
                response
            }
            Err(failure) => failed(operations, &failure)
                .with_header("set-cookie", set_cookie((PENDING, ""), STATE, 0, false)),
        },
        (Some(sign_in), "POST", END) => sign_in.end(parts, now),
        (None, _, _) => refuse(404, "this gateway has no identity provider: see [console.oidc]"),
        (Some(_), _, _) => refuse(405, "sign-in routes accept GET, except session/end: POST"),
    };
    response.with_header("cache-control", "no-store")
}

fn refuse(status: u16, message: &str) -> GatewayResponse {
    GatewayResponse::json(status, &object! { "detail": message })
}

impl SignIn {
    fn state(&self, parts: &Parts, now: Timestamp) -> GatewayResponse {
        let user = self.session(&parts.headers, now).map(|(session, rule)| {
            object! {
                "id": session.user, "email"? session.email, "name"? session.name,
                "role": rule.role.as_str(), "tenant": rule.tenant.0,
                "expires": Timestamp::from_second(session.expires).unwrap_or(now).to_string(),
            }
        });
        let provider = object! { "name": self.settings.name };
        GatewayResponse::json(200, &object! { "provider": provider, "user"? user })
    }

    async fn start(&self, parts: &Parts, now: Timestamp) -> Result<GatewayResponse, SignInFailure> {
        let address = match &self.settings.url {
            Some(url) => Name::from(url.trim_end_matches('/')),
            None => access::address(&parts.headers, &parts.uri)
                .ok_or_else(|| SignInFailure(400, "the request has no `Host` header".to_owned()))?,
        };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let page = query.get("page").filter(|page| is_console_page(page)).cloned();
        let pending = PendingSignIn {
            id: random_id()?,
            expires: now.as_second() + i64::from(PENDING_LIFETIME),
            address,
            page: page.unwrap_or_default(),
        };
        let url = self.provider.authorization_url(&self.request(&pending)).await?;
        let cookie = self.signer.seal(PENDING, &pending);
        let is_https = pending.address.starts_with("https://");
        let cookie = set_cookie((PENDING, &cookie), STATE, PENDING_LIFETIME.into(), is_https);
        Ok(redirect(&url).with_header("set-cookie", cookie))
    }

    async fn complete(
        &self,
        parts: &Parts,
        now: Timestamp,
    ) -> Result<(ConsoleSession, &AccessRule, GatewayResponse), SignInFailure> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let pending = find_cookie(&parts.headers, PENDING);
        let pending: Option<PendingSignIn> =
            pending.and_then(|pending| self.signer.open(PENDING, pending));
        let pending = pending.filter(|pending| now.as_second() < pending.expires);
        let Some(pending) = pending else {
            let message = "this browser has not started this sign-in, or the sign-in took longer \
                           than 10 minutes; sign in again";
            return Err(SignInFailure(400, message.to_owned()));
        };
        let request = self.request(&pending);
        let state = query.get("state");
        if !state.is_some_and(|state| access::is_same_token(state, &request.state)) {
            let message = "the response belongs to another sign-in (`state`); sign in again";
            return Err(SignInFailure(400, message.to_owned()));
        }
        let provider = &self.settings.name;
        if let Some(error) = query.get("error") {
            let description = query.get("error_description").map(|text| format!(": {text}"));
            let description = description.unwrap_or_default();
            let message = format!("{provider} refused the sign-in: {error}{description}");
            return Err(SignInFailure(403, message));
        }
        let code = query.get("code").ok_or_else(|| {
            SignInFailure(400, format!("the response of {provider} contains no code"))
        })?;
        let person = self.provider.redeem(code, &request).await?;
        let session = self.open_session(&person, random_id()?, now);
        let rule = session.as_ref().and_then(|one| self.rule(one.email.as_deref(), &one.groups));
        let (Some(session), Some(rule)) = (session, rule) else {
            let who = person.email.as_deref().unwrap_or(&person.subject);
            let hint = if person.email.is_some() && !person.is_email_verified {
                format!(" {provider} has not verified this address.")
            } else {
                String::new()
            };
            let message = format!(
                "{who} has no access to this gateway: no rule in [console.oidc] matches.{hint} Ask \
                 the operator of the gateway."
            );
            return Err(SignInFailure(403, message));
        };
        let is_https = pending.address.starts_with("https://");
        let cookie = self.signer.seal(SESSION, &session);
        let lifetime = self.settings.lifetime.as_secs();
        let response = redirect(&format!("{}/{}", pending.address, pending.page))
            .with_header("set-cookie", set_cookie((SESSION, &cookie), "/", lifetime, is_https))
            .with_header("set-cookie", set_cookie((PENDING, ""), STATE, 0, is_https));
        Ok((session, rule, response))
    }

    fn end(&self, parts: &Parts, now: Timestamp) -> GatewayResponse {
        let headers = &parts.headers;
        let is_confirmed = self.session(headers, now).is_none_or(|(session, _)| {
            let own = self.page_token(&session);
            access::sent_token(headers).is_some_and(|it| access::is_same_token(it, &own))
        });
        if self.is_foreign(headers, &parts.uri) || !is_confirmed {
            return refuse(403, access::MISSING_TOKEN);
        }
        let address = access::address(headers, &parts.uri).unwrap_or_default();
        let cookie = set_cookie((SESSION, ""), "/", 0, address.starts_with("https://"));
        GatewayResponse::json(200, &object! { "signed_out": true })
            .with_header("set-cookie", cookie)
    }

    /// Returns the values that bind the provider's response to a sign-in.
    fn request(&self, pending: &PendingSignIn) -> SignInRequest {
        let id = &pending.id;
        SignInRequest {
            state: self.signer.derive("state", id),
            nonce: self.signer.derive("nonce", id),
            verifier: Credential::new(&*self.signer.derive("verifier", id)),
            redirect_uri: Name::from(format!("{}{CALLBACK}", pending.address)),
        }
    }
}

/// Returns whether a text names a page of the console. Any other text could lead to another site.
fn is_console_page(page: &str) -> bool {
    page.starts_with("#/")
        && page.len() <= LONGEST_RETURN
        && page.bytes().all(|b| b.is_ascii_graphic())
}

fn random_id() -> Result<Name, SignInFailure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|_| SignInFailure(503, "the system provides no randomness".to_owned()))?;
    Ok(Name::from(&*blake3::hash(&bytes).to_hex()))
}

fn redirect(url: &str) -> GatewayResponse {
    let response = GatewayResponse::text("text/plain; charset=utf-8", "");
    GatewayResponse { status: 303, ..response }
        .with_header("location", url)
        .with_header("referrer-policy", "no-referrer")
}

/// Logs a failed sign-in and returns a page that explains the failure.
fn failed(operations: &Telemetry, failure: &SignInFailure) -> GatewayResponse {
    let SignInFailure(status, message) = failure;
    operations.record_failed_sign_in(*status, message);
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Sign-in failed</title>\n\
         <style>:root{{color-scheme:light dark;background:light-dark(#f7f8f8,#0f1414);\
         color:light-dark(#16201f,#e6edec)}}a{{color:light-dark(#0f6b66,#56c3b8)}}\
         body{{font:16px/1.5 system-ui;margin:4rem auto;max-width:40rem;padding:0 1rem}}</style>\n\
         <main>\n<h1>Sign-in failed</h1>\n<p>{}</p>\n\
         <p><a href=\"/\">Back to the console</a></p>\n</main>\n</html>\n",
        escaped(message)
    );
    let response = GatewayResponse::text("text/html; charset=utf-8", page)
        .with_header("content-security-policy", POLICY)
        .with_header("x-content-type-options", "nosniff")
        .with_header("referrer-policy", "no-referrer");
    GatewayResponse { status: *status, ..response }
}

/// Replaces the characters that have a meaning in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
