//! An OpenID Connect provider on a local port, for tests of the sign-in.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Map, Value, json};

/// The id under which the gateway is registered.
pub const CLIENT_ID: &str = "console";

/// The secret of the gateway at the provider.
pub const CLIENT_SECRET: &str = "a+secret/with:marks";

/// A running provider. It signs tokens with ES256, and stops with the test process.
pub struct OidcServer {
    /// The issuer, which is the base URL of the provider.
    pub issuer: String,
    state: Arc<Mutex<ProviderState>>,
}

struct ProviderState {
    issuer: String,
    key: SigningKey,
    /// Signs tokens instead of `key` under the id of `key`.
    forged: Option<SigningKey>,
    /// Claims of the tokens; `null` removes a claim.
    claims: Map<String, Value>,
    /// Sign-ins whose code was not exchanged, by code.
    codes: HashMap<String, HashMap<String, String>>,
    issued: usize,
    problems: Vec<String>,
}

struct SigningKey {
    id: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    fn generate(id: String) -> Option<Self> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).ok()?;
        Some(Self { id, pair })
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (point.get(1..33), point.get(33..65));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": encode(x.unwrap_or_default()), "y": encode(y.unwrap_or_default())})
    }

    fn sign(&self, id: &str, claims: &Value) -> Option<String> {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": id});
        let text = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).ok()?;
        Some(format!("{text}.{}", encode(signature)))
    }
}

impl OidcServer {
    /// Starts a provider; `None` if the system has no free port or no randomness.
    pub fn start() -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").ok()?;
        let issuer = format!("http://{}", listener.local_addr().ok()?);
        let state = ProviderState {
            issuer: issuer.clone(),
            key: SigningKey::generate("key-1".to_owned())?,
            forged: None,
            claims: Map::new(),
            codes: HashMap::new(),
            issued: 0,
            problems: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &state));
            }
        });
        Some(Self { issuer, state })
    }

    /// Replaces the claims about the person. They are added to the required claims, or replace
    /// them; `null` removes a claim.
    pub fn set_claims(&self, claims: Value) {
        if let Value::Object(claims) = claims {
            lock(&self.state).claims = claims;
        }
    }

    /// Signs further tokens with a new key, and publishes only this key.
    pub fn rotate_key(&self) {
        let mut state = lock(&self.state);
        let id = format!("{}-next", state.key.id);
        if let Some(key) = SigningKey::generate(id) {
            state.key = key;
        }
    }

    /// Signs further tokens with a key that is not published, under the id of the published key.
    pub fn forge_signatures(&self, is_forged: bool) {
        let mut state = lock(&self.state);
        state.forged = is_forged.then(|| SigningKey::generate(String::new())).flatten();
    }

    /// Signs the person in and returns the address to which the provider redirects the browser.
    /// `authorization_url` is the address to which the gateway redirected the browser.
    pub fn authorize(&self, authorization_url: &str) -> String {
        let query = authorization_url.split_once('?').map(|(_, query)| query).unwrap_or_default();
        lock(&self.state).authorize(fields(query))
    }

    /// Returns what was wrong with the requests of the gateway.
    pub fn problems(&self) -> Vec<String> {
        lock(&self.state).problems.clone()
    }
}

impl ProviderState {
    fn metadata(&self) -> Value {
        let issuer = &self.issuer;
        json!({"issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"]})
    }

    fn authorize(&mut self, request: HashMap<String, String>) -> String {
        self.issued += 1;
        let code = format!("code-{}", self.issued);
        let value = |name: &str| request.get(name).cloned().unwrap_or_default();
        let url = format!("{}?code={code}&state={}", value("redirect_uri"), value("state"));
        self.codes.insert(code, request);
        url
    }

    /// Exchanges a code for tokens, or returns an OAuth error.
    fn exchange(&mut self, authorization: &str, form: &HashMap<String, String>) -> (u16, Value) {
        let value = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let Some(request) = self.codes.remove(value("code")) else {
            return (400, json!({"error": "invalid_grant", "error_description": "unknown code"}));
        };
        let asked = |name: &str| request.get(name).map(String::as_str).unwrap_or_default();
        let secret = "a%2Bsecret%2Fwith%3Amarks";
        let basic = BASE64_STANDARD.encode(format!("{CLIENT_ID}:{secret}"));
        let challenge = encode(digest(&SHA256, value("code_verifier").as_bytes()));
        let checks = [
            ("client authentication", authorization == format!("Basic {basic}")),
            ("grant_type", value("grant_type") == "authorization_code"),
            ("redirect_uri", value("redirect_uri") == asked("redirect_uri")),
            ("client_id", asked("client_id") == CLIENT_ID),
            ("code_verifier", challenge == asked("code_challenge")),
            ("code_challenge_method", asked("code_challenge_method") == "S256"),
            ("scope", asked("scope").split(' ').any(|scope| scope == "openid")),
        ];
        let wrong = checks.iter().filter(|(_, is_right)| !is_right).map(|(name, _)| *name);
        let wrong: Vec<&str> = wrong.collect();
        if !wrong.is_empty() {
            self.problems.push(wrong.join(", "));
            return (400, json!({"error": "invalid_request", "error_description": "wrong"}));
        }
        let mut claims = Map::new();
        for (name, value) in [
            ("iss", json!(self.issuer)),
            ("aud", json!(CLIENT_ID)),
            ("sub", json!("subject-1")),
            ("exp", json!(4_000_000_000_u64)),
            ("iat", json!(1_700_000_000)),
            ("nonce", json!(asked("nonce"))),
        ] {
            claims.insert(name.to_owned(), value);
        }
        claims.extend(self.claims.clone());
        claims.retain(|_, value| !value.is_null());
        let key = self.forged.as_ref().unwrap_or(&self.key);
        let token = key.sign(&self.key.id, &Value::Object(claims));
        (200, json!({"access_token": "opaque", "token_type": "Bearer", "id_token": token}))
    }
}

fn serve(stream: TcpStream, state: &Mutex<ProviderState>) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Some((target, authorization, body)) = read_request(&mut reader) {
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut state = lock(state);
        let (status, kind, body) = match path {
            "/.well-known/openid-configuration" => (200, "application/json", state.metadata()),
            "/keys" => (200, "application/json", json!({"keys": [state.key.public()]})),
            "/token" => {
                let (status, body) = state.exchange(&authorization, &fields(&body));
                (status, "application/json", body)
            }
            // The sign-in page of the provider: the person only has to confirm.
            "/authorize" => (200, "text/html", json!(state.authorize(fields(query)))),
            _ => (404, "application/json", json!({})),
        };
        let body = match (kind, body.as_str()) {
            ("text/html", Some(url)) => {
                let url = url.replace('&', "&amp;");
                format!(
                    "<!doctype html><title>Provider</title><link rel=icon href=\"data:,\"><a href=\"{url}\">Continue as Ada</a>"
                )
            }
            _ => body.to_string(),
        };
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
        if write!(writer, "{head}\r\n{body}").is_err() {
            return;
        }
    }
}

/// Reads a request: its target, its `authorization` header and its body.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, String, String)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let target = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|length| *length > 0)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => value.trim().clone_into(&mut authorization),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((target, authorization, String::from_utf8(body).ok()?))
}

/// Parses and decodes the fields of a form or a query.
fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decode(value))).collect()
}

/// Decodes percent-encoding.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let decoded = match byte {
            b'+' => Some(b' '),
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
                _ => None,
            },
            _ => Some(byte),
        };
        bytes.extend(decoded);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn lock(state: &Mutex<ProviderState>) -> MutexGuard<'_, ProviderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
