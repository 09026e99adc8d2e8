//! Application Default Credentials of Google Cloud.
//!
//! The sources are tried in Google's order: the file in `GOOGLE_APPLICATION_CREDENTIALS`, the file
//! that `gcloud auth application-default login` writes, and the metadata server. A file contains a
//! service account, an authorised user, a workload identity federation or an impersonation. It is
//! read again for each token.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use throughline_json::Name;

use crate::credential::google_external::{ExternalAccount, impersonate};
use crate::credential::token_client::{TokenClient, TokenRequest, TokenResponse};
use crate::credential::{FetchFuture, FetchedSecret, SecretSource, assertion, file};
use crate::lookup::{EnvLookup, non_empty};

/// OAuth scope that covers all Google Cloud services.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Token endpoint for files that do not name one.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

/// Address of the metadata server. Its name is `metadata.google.internal`; the address works
/// without DNS.
const METADATA_HOST: &str = "169.254.169.254";
const METADATA_NAME: &str = "metadata.google.internal";

/// Path of the file that `gcloud` writes, in its configuration directory.
const GCLOUD_FILE: &str = "application_default_credentials.json";

/// Where to find Google's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoogleSettings {
    /// File with credentials, which must exist.
    pub file: Option<PathBuf>,
    /// File that `gcloud` writes. It is used if it exists and `file` is `None`.
    pub gcloud_file: Option<PathBuf>,
    /// Host and port of the metadata server.
    pub metadata_host: Name,
}

impl GoogleSettings {
    /// Reads the usual variables: `GOOGLE_APPLICATION_CREDENTIALS`, `CLOUDSDK_CONFIG`, `HOME` and
    /// `GCE_METADATA_HOST`.
    pub fn from_env(lookup: EnvLookup<'_>) -> Self {
        let folder = non_empty("CLOUDSDK_CONFIG", lookup).map(PathBuf::from);
        let home = || Some(PathBuf::from(non_empty("HOME", lookup)?).join(".config/gcloud"));
        let host = non_empty("GCE_METADATA_HOST", lookup).filter(|host| host != METADATA_NAME);
        Self {
            file: non_empty("GOOGLE_APPLICATION_CREDENTIALS", lookup).map(PathBuf::from),
            gcloud_file: folder.or_else(home).map(|folder| folder.join(GCLOUD_FILE)),
            metadata_host: Name::from(host.as_deref().unwrap_or(METADATA_HOST)),
        }
    }
}

impl fmt::Display for GoogleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "the Google credentials in {}", file.display()),
            None => f.write_str("the Application Default Credentials of Google"),
        }
    }
}

pub(super) struct GoogleIdentity {
    settings: GoogleSettings,
    client: TokenClient,
}

/// Contents of a credentials file.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CredentialsFile {
    ServiceAccount(ServiceAccount),
    AuthorizedUser(AuthorizedUser),
    ExternalAccount(ExternalAccount),
    ImpersonatedServiceAccount {
        service_account_impersonation_url: String,
        source_credentials: Box<CredentialsFile>,
    },
}

#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: Option<String>,
}

#[derive(Deserialize)]
struct AuthorizedUser {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    token_uri: Option<String>,
}

impl CredentialsFile {
    fn description(&self) -> &'static str {
        match self {
            Self::ServiceAccount(_) => "a service account",
            Self::AuthorizedUser(_) => "a user",
            Self::ExternalAccount(_) => "workload identity federation",
            Self::ImpersonatedServiceAccount { .. } => "an impersonated service account",
        }
    }
}

impl GoogleIdentity {
    pub(super) fn new(settings: GoogleSettings) -> Self {
        Self { settings, client: TokenClient::default() }
    }

    async fn token(&self, now: Timestamp) -> Result<FetchedSecret, String> {
        let GoogleSettings { file, gcloud_file, .. } = &self.settings;
        if let Some(path) = file.as_ref().or(gcloud_file.as_ref()) {
            let shown = path.display();
            let text = file::read_if_present(path).await;
            match text.map_err(|problem| format!("{shown}: {problem}"))? {
                Some(text) => return self.token_from_text(&text, path, now).await,
                None if file.is_some() => return Err(format!("{shown} does not exist")),
                None => {}
            }
        }
        let token = self.token_from_metadata(now).await.map_err(|problem| {
            format!("there is no credentials file, and the metadata server failed: {problem}")
        })?;
        Ok(token.provided_by("the metadata server"))
    }

    /// Exchanges the text of a file for a token.
    async fn token_from_text(
        &self,
        text: &[u8],
        path: &Path,
        now: Timestamp,
    ) -> Result<FetchedSecret, String> {
        let shown = path.display();
        // The parser's message may contain a part of the file.
        let parsed: CredentialsFile = serde_json::from_slice(text).map_err(|_| {
            format!(
                "{shown} is not a credentials file of the type service_account, authorized_user, \
                 external_account or impersonated_service_account"
            )
        })?;
        let token = self.token_from_file(&parsed, now).await;
        let token = token.map_err(|problem| format!("{shown}: {problem}"))?;
        Ok(token.provided_by(format!("{} in {shown}", parsed.description())))
    }

    /// Exchanges the contents of a file for a token.
    async fn token_from_file(
        &self,
        mut file: &CredentialsFile,
        now: Timestamp,
    ) -> Result<FetchedSecret, String> {
        let mut impersonations = Vec::new();
        let mut token = loop {
            match file {
                CredentialsFile::ServiceAccount(account) => {
                    let request = account.request(now)?;
                    let response: TokenResponse = self.client.fetch(request).await?;
                    break response.into_secret(now);
                }
                CredentialsFile::AuthorizedUser(user) => {
                    let response: TokenResponse = self.client.fetch(user.request()?).await?;
                    break response.into_secret(now);
                }
                CredentialsFile::ExternalAccount(account) => {
                    break account.token(&self.client, now).await?;
                }
                CredentialsFile::ImpersonatedServiceAccount {
                    service_account_impersonation_url: url,
                    source_credentials,
                } => {
                    impersonations.push(url);
                    file = source_credentials;
                }
            }
        };
        for url in impersonations.iter().rev() {
            token = impersonate(&self.client, url, &token, now).await?;
        }
        Ok(token)
    }

    async fn token_from_metadata(&self, now: Timestamp) -> Result<FetchedSecret, String> {
        let host = &self.settings.metadata_host;
        let path = "computeMetadata/v1/instance/service-accounts/default/token";
        let request = TokenRequest::get(&format!("http://{host}/{path}"))?
            .query(&[("scopes", SCOPE)])
            .header("metadata-flavor", "Google")?;
        let response: TokenResponse = self.client.fetch(request).await?;
        Ok(response.into_secret(now))
    }
}

impl SecretSource for GoogleIdentity {
    fn fetch(&self, now: Timestamp) -> FetchFuture<'_> {
        Box::pin(self.token(now))
    }

    fn advice(&self) -> &'static str {
        "set GOOGLE_APPLICATION_CREDENTIALS to a valid file, or run `gcloud auth \
         application-default login`"
    }
}

impl ServiceAccount {
    fn request(&self, now: Timestamp) -> Result<TokenRequest, String> {
        let url = self.token_uri.as_deref().unwrap_or(TOKEN_URI);
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": self.private_key_id });
        let claims = json!({
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": url,
            "iat": now.as_second(),
            "exp": now.as_second() + 3600,
        });
        let assertion = assertion::sign(&header, &claims, self.private_key.as_bytes())?;
        let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
        TokenRequest::form(url, &[("grant_type", grant), ("assertion", &assertion)])
    }
}

impl AuthorizedUser {
    fn request(&self) -> Result<TokenRequest, String> {
        let url = self.token_uri.as_deref().unwrap_or(TOKEN_URI);
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", &self.client_id),
            ("client_secret", &self.client_secret),
            ("refresh_token", &self.refresh_token),
        ];
        TokenRequest::form(url, &fields)
    }
}
