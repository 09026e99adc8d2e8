//! Tests of the credentials of Google and Microsoft Entra against local identity services.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use throughline_core::{Upstream as _, UpstreamError};
use throughline_provider::{
    CredentialSettings, CredentialSource, DynamicCredential, EntraSettings, GoogleSettings,
};
use url::form_urlencoded;

use crate::server::{ReceivedRequest, Server, client, endpoint, outgoing, response};

/// An RSA key and its certificate, used only by these tests.
const RSA: &str = include_str!("../keys/rsa.pem");

/// Sends a request with the credential, and returns the `authorization` header that the provider
/// received.
async fn authorization(row: &str, settings: &CredentialSettings) -> Result<String, UpstreamError> {
    let provider = Server::start(vec![response(200, "", "ok")]).await;
    let source = CredentialSource::Dynamic(Arc::new(DynamicCredential::new(settings, None)));
    client(endpoint(row, &provider.address, source)).send(outgoing("/path")).await?;
    let request = provider.requests().remove(0);
    assert_eq!(request.all("x-goog-api-key").len() + request.all("api-key").len(), 0);
    Ok(request.all("authorization")[0].to_owned())
}

fn variables<'v>(all: &'v [(&'v str, &'v str)]) -> impl Fn(&str) -> Option<String> + 'v {
    |name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

fn google(all: &[(&str, &str)]) -> CredentialSettings {
    CredentialSettings::Google(GoogleSettings::from_env(&variables(all)))
}

fn entra(all: &[(&str, &str)]) -> CredentialSettings {
    CredentialSettings::Entra(EntraSettings::from_env(None, &variables(all)))
}

/// Sends a request with the Google credentials in a file.
async fn with_file(folder: &Path, contents: &Value) -> Result<String, UpstreamError> {
    let path = folder.join("credentials.json");
    std::fs::write(&path, contents.to_string()).unwrap();
    let path = path.to_str().unwrap();
    authorization("vertex", &google(&[("GOOGLE_APPLICATION_CREDENTIALS", path)])).await
}

fn token_response(token: &str) -> crate::server::Reaction {
    let body = json!({ "access_token": token, "expires_in": 3600, "token_type": "Bearer" });
    response(200, "content-type: application/json\r\n", body.to_string())
}

/// Returns the form fields of a request, in the order in which they were sent.
fn form(request: &ReceivedRequest) -> Vec<(String, String)> {
    form_urlencoded::parse(&request.body).into_owned().collect()
}

fn field<'f>(fields: &'f [(String, String)], name: &str) -> &'f str {
    &fields.iter().find(|(known, _)| known == name).unwrap().1
}

/// Verifies a signed token and returns its header and claims.
fn verified(token: &str) -> (Value, Value) {
    let key = PrivatePkcs8KeyDer::from_pem_slice(RSA.as_bytes()).unwrap();
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    public.verify(signed.as_bytes(), &decode(signature)).unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let json = |text: &str| serde_json::from_slice(&decode(text)).unwrap();
    (json(header), json(claims))
}

#[tokio::test]
async fn google_service_account_signs_an_assertion() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Server::start(vec![token_response("token")]).await;
    let account = json!({
        "type": "service_account",
        "client_email": "gateway@example.iam.gserviceaccount.com",
        "private_key": RSA,
        "private_key_id": "id",
        "token_uri": format!("{}/token", identity.address),
    });
    assert_eq!(with_file(folder.path(), &account).await.unwrap(), "Bearer token");
    let fields = form(&identity.requests()[0]);
    assert_eq!(field(&fields, "grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let (header, claims) = verified(field(&fields, "assertion"));
    assert_eq!(header, json!({ "alg": "RS256", "typ": "JWT", "kid": "id" }));
    assert_eq!(claims["iss"], "gateway@example.iam.gserviceaccount.com");
    assert_eq!(claims["aud"], account["token_uri"]);
    assert_eq!(claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
}

#[tokio::test]
async fn google_user_and_impersonation_use_the_refresh_token() {
    let folder = tempfile::tempdir().unwrap();
    let body = json!({ "accessToken": "borrowed", "expireTime": "2026-11-15T13:00:00Z" });
    let identity = Server::start(vec![
        token_response("token"),
        token_response("token"),
        response(200, "", body.to_string()),
    ])
    .await;
    let user = json!({
        "type": "authorized_user",
        "client_id": "client",
        "client_secret": "secret",
        "refresh_token": "refresh",
        "token_uri": format!("{}/token", identity.address),
    });
    assert_eq!(with_file(folder.path(), &user).await.unwrap(), "Bearer token");
    let fields = form(&identity.requests()[0]);
    assert_eq!(field(&fields, "grant_type"), "refresh_token");
    assert_eq!(field(&fields, "refresh_token"), "refresh");
    assert_eq!(field(&fields, "client_secret"), "secret");

    let impersonated = json!({
        "type": "impersonated_service_account",
        "service_account_impersonation_url": format!("{}/borrow", identity.address),
        "source_credentials": user,
    });
    assert_eq!(with_file(folder.path(), &impersonated).await.unwrap(), "Bearer borrowed");
    let request = identity.requests().remove(2);
    assert_eq!(request.all("authorization"), ["Bearer token"]);
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["scope"], json!(["https://www.googleapis.com/auth/cloud-platform"]));
}

#[tokio::test]
async fn google_federation_exchanges_tokens_from_a_file_and_a_url() {
    let folder = tempfile::tempdir().unwrap();
    let subject = folder.path().join("subject");
    std::fs::write(&subject, "from-file\n").unwrap();
    let identity = Server::with_reaction(|_, request| {
        if request.request_line.starts_with("GET /subject ") {
            assert_eq!(request.all("x-proof"), ["yes"]);
            return response(200, "", r#"{"value": "from-url"}"#);
        }
        if request.request_line.starts_with("POST /borrow ") {
            assert_eq!(request.all("authorization"), ["Bearer federated"]);
            let body = r#"{"accessToken": "borrowed", "expireTime": "2026-11-15T13:00:00Z"}"#;
            return response(200, "", body);
        }
        token_response("federated")
    })
    .await;
    let url = json!({
        "url": format!("{}/subject", identity.address),
        "headers": { "x-proof": "yes" },
        "format": { "type": "json", "subject_token_field_name": "value" },
    });
    for (source, subject, borrow, expected) in [
        (json!({ "file": subject }), "from-file", None, "Bearer federated"),
        (url, "from-url", Some(format!("{}/borrow", identity.address)), "Bearer borrowed"),
    ] {
        let account = json!({
            "type": "external_account",
            "audience": "//iam.googleapis.com/pool",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": format!("{}/exchange", identity.address),
            "service_account_impersonation_url": borrow,
            "credential_source": source,
        });
        assert_eq!(with_file(folder.path(), &account).await.unwrap(), expected);
        let requests = identity.requests();
        let mut exchanges = requests.iter().filter(|it| it.request_line.contains("/exchange"));
        let fields = form(exchanges.next_back().unwrap());
        assert_eq!(field(&fields, "subject_token"), subject);
        assert_eq!(field(&fields, "audience"), "//iam.googleapis.com/pool");
        let grant = "urn:ietf:params:oauth:grant-type:token-exchange";
        assert_eq!(field(&fields, "grant_type"), grant);
    }
}

#[tokio::test]
async fn google_metadata_server_is_the_last_source() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().to_str().unwrap();
    let identity = Server::start(vec![token_response("token")]).await;
    let host = identity.address.strip_prefix("http://").unwrap();
    let settings = google(&[("CLOUDSDK_CONFIG", config), ("GCE_METADATA_HOST", host)]);
    assert_eq!(authorization("vertex", &settings).await.unwrap(), "Bearer token");
    let request = identity.requests().remove(0);
    let path = "/computeMetadata/v1/instance/service-accounts/default/token?scopes=";
    assert!(request.request_line.starts_with(&format!("GET {path}")));
    assert_eq!(request.all("metadata-flavor"), ["Google"]);
    // The file of `gcloud` takes precedence as soon as it exists.
    let file = folder.path().join("application_default_credentials.json");
    std::fs::write(file, r#"{"type": "unknown"}"#).unwrap();
    let error = authorization("vertex", &settings).await.unwrap_err().to_string();
    assert!(error.contains("application_default_credentials.json is not a credentials file"));
}

const PRINCIPAL: [(&str, &str); 2] = [("AZURE_TENANT_ID", "tenant"), ("AZURE_CLIENT_ID", "client")];

#[tokio::test]
async fn entra_accepts_secrets_certificates_and_workload_identity() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, token) = (folder.path().join("certificate"), folder.path().join("token"));
    std::fs::write(&certificate, RSA).unwrap();
    std::fs::write(&token, "federated\n").unwrap();
    let identity = Server::start(vec![token_response("token")]).await;
    for (variable, value) in [
        ("AZURE_CLIENT_SECRET", "secret"),
        ("AZURE_CLIENT_CERTIFICATE_PATH", certificate.to_str().unwrap()),
        ("AZURE_FEDERATED_TOKEN_FILE", token.to_str().unwrap()),
    ] {
        let authority = ("AZURE_AUTHORITY_HOST", identity.address.as_str());
        let settings = entra(&[PRINCIPAL[0], PRINCIPAL[1], authority, (variable, value)]);
        assert_eq!(authorization("azure", &settings).await.unwrap(), "Bearer token");
        let request = identity.requests().pop().unwrap();
        assert_eq!(request.request_line, "POST /tenant/oauth2/v2.0/token HTTP/1.1");
        let fields = form(&request);
        assert_eq!(field(&fields, "grant_type"), "client_credentials");
        assert_eq!(field(&fields, "client_id"), "client");
        assert_eq!(field(&fields, "scope"), "https://cognitiveservices.azure.com/.default");
        match variable {
            "AZURE_CLIENT_SECRET" => assert_eq!(field(&fields, "client_secret"), "secret"),
            "AZURE_FEDERATED_TOKEN_FILE" => {
                assert_eq!(field(&fields, "client_assertion"), "federated");
            }
            _ => {
                let (header, claims) = verified(field(&fields, "client_assertion"));
                assert_eq!(header["x5t#S256"].as_str().unwrap().len(), 43);
                assert_eq!((&claims["iss"], &claims["sub"]), (&json!("client"), &json!("client")));
                let audience = format!("{}/tenant/oauth2/v2.0/token", identity.address);
                assert_eq!(claims["aud"], audience);
            }
        }
    }
}

#[tokio::test]
async fn entra_uses_managed_identities() {
    // The services write numbers as strings.
    let body = r#"{"access_token": "token", "expires_on": "1800000000"}"#;
    let identity = Server::start(vec![response(200, "", body)]).await;
    let endpoint = format!("{}/identity", identity.address);
    let app = entra(&[("IDENTITY_ENDPOINT", &endpoint), ("IDENTITY_HEADER", "proof")]);
    assert_eq!(authorization("azure", &app).await.unwrap(), "Bearer token");
    let machine = entra(&[
        ("AZURE_POD_IDENTITY_AUTHORITY_HOST", &identity.address),
        ("AZURE_CLIENT_ID", "client"),
    ]);
    assert_eq!(authorization("azure-anthropic", &machine).await.unwrap(), "Bearer token");
    let requests = identity.requests();
    let resource = "resource=https%3A%2F%2Fcognitiveservices.azure.com";
    let line = format!("GET /identity?api-version=2019-08-01&{resource} HTTP/1.1");
    assert_eq!(requests[0].request_line, line);
    assert_eq!(requests[0].all("x-identity-header"), ["proof"]);
    let path = "/metadata/identity/oauth2/token?api-version=2018-02-01";
    let line = format!("GET {path}&{resource}&client_id=client HTTP/1.1");
    assert_eq!(requests[1].request_line, line);
    assert_eq!(requests[1].all("metadata"), ["true"]);
}

#[tokio::test]
async fn failed_logins_report_the_source_and_hide_secrets() {
    let error = r#"{"error": "invalid_client", "error_description": "AADSTS7000215: wrong secret sEcretCanary0123456789sEcretCanary0123456789"}"#;
    let identity = Server::start(vec![response(401, "", error)]).await;
    let authority = ("AZURE_AUTHORITY_HOST", identity.address.as_str());
    let secret = ("AZURE_CLIENT_SECRET", "client-canary");
    let settings = entra(&[PRINCIPAL[0], PRINCIPAL[1], authority, secret]);
    assert!(!format!("{settings:?}").contains("canary"));
    let error = authorization("azure", &settings).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no credential for here: cannot get the credential from Microsoft Entra with \
         $AZURE_CLIENT_SECRET: 127.0.0.1 responded with status 401: invalid_client: \
         AADSTS7000215: wrong secret …; check AZURE_TENANT_ID, AZURE_CLIENT_ID and \
         AZURE_CLIENT_SECRET"
    );
}
