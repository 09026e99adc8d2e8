//! Workload identity federation and impersonation at Google Cloud.
//!
//! A token of another identity provider, from a file or a URL, is exchanged for a token of Google.
//! The executable and AWS sources of federation are not supported.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use throughline_core::Credential;

use crate::credential::google::SCOPE;
use crate::credential::token_client::{TokenClient, TokenRequest, TokenResponse};
use crate::credential::{FetchedSecret, Secret, file};

/// A file of the type `external_account`.
#[derive(Deserialize)]
pub(super) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    credential_source: SubjectSource,
}

/// Where the token of the other identity provider comes from.
#[derive(Deserialize)]
struct SubjectSource {
    file: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    format: SubjectFormat,
}

/// The format of the source: plain text, or JSON with the token in a field.
#[derive(Default, Deserialize)]
struct SubjectFormat {
    #[serde(rename = "type")]
    kind: Option<String>,
    subject_token_field_name: Option<String>,
}

impl ExternalAccount {
    pub(super) async fn token(
        &self,
        client: &TokenClient,
        now: Timestamp,
    ) -> Result<FetchedSecret, String> {
        let subject_token = self.credential_source.token(client).await?;
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", self.audience.as_str()),
            ("scope", SCOPE),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", &self.subject_token_type),
            ("subject_token", subject_token.reveal()),
        ];
        let request = TokenRequest::form(&self.token_url, &fields)?;
        let response: TokenResponse = client.fetch(request).await?;
        let token = response.into_secret(now);
        match &self.service_account_impersonation_url {
            Some(url) => impersonate(client, url, &token, now).await,
            None => Ok(token),
        }
    }
}

impl SubjectSource {
    async fn token(&self, client: &TokenClient) -> Result<Credential, String> {
        let bytes = match (&self.file, &self.url) {
            (Some(path), _) => {
                let bytes = file::read(Path::new(path)).await;
                bytes.map_err(|problem| format!("subject token in {path}: {problem}"))?
            }
            (None, Some(url)) => {
                let mut request = TokenRequest::get(url)?;
                for (name, value) in &self.headers {
                    request = request.header(name, value)?;
                }
                client.fetch_bytes(request).await?.to_vec()
            }
            (None, None) => {
                let problem = "`credential_source` must contain `file` or `url`; AWS and \
                               executable sources are not supported";
                return Err(problem.to_owned());
            }
        };
        let text = String::from_utf8(bytes).map_err(|_| "the subject token is not UTF-8")?;
        if self.format.kind.as_deref() != Some("json") {
            return Ok(Credential::new(text.trim()));
        }
        let name = self.format.subject_token_field_name.as_deref().unwrap_or("access_token");
        let value: Option<Value> = serde_json::from_str(&text).ok();
        let token = value.as_ref().and_then(|value| value.get(name)).and_then(Value::as_str);
        let missing = || format!("the subject token is not in the field `{name}` of its JSON");
        token.map(Credential::new).ok_or_else(missing)
    }
}

/// Response of `generateAccessToken`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImpersonationResponse {
    access_token: String,
    /// Time in RFC 3339 format.
    expire_time: String,
}

/// Exchanges a token for a token of a service account.
pub(super) async fn impersonate(
    client: &TokenClient,
    url: &str,
    token: &FetchedSecret,
    now: Timestamp,
) -> Result<FetchedSecret, String> {
    let Secret::Token(token) = &token.secret else {
        return Err("impersonation needs an access token".to_owned());
    };
    let body = json!({ "scope": [SCOPE], "lifetime": "3600s" });
    let request = TokenRequest::json(url, &body)?.bearer(token)?;
    let response: ImpersonationResponse = client.fetch(request).await?;
    let token = Secret::Token(Credential::new(response.access_token));
    let expires_at = response.expire_time.parse();
    let expires_at = expires_at.map_err(|_| "the response contains an invalid `expireTime`")?;
    Ok(FetchedSecret::expiring(token, now, expires_at))
}
