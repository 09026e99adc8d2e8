//! Credentials from the default chain of the AWS SDK.
//!
//! The SDK reads the environment and the shared AWS files itself, and tries these sources in order:
//! environment variables, profiles (with keys, roles, SSO and `credential_process`), web identity,
//! the endpoint of ECS and EKS, and the metadata service of EC2. Each fetch builds a new chain,
//! because a chain keeps the shared files that it has read.

use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_types::sdk_config::SharedHttpClient;
use jiff::Timestamp;
use throughline_core::Credential;
use throughline_json::Name;
use tokio::time::timeout;

use crate::credential::{
    AwsSettings, FETCH_LIMIT, FetchFuture, FetchedSecret, Secret, SecretSource,
};
use crate::redact::redact;
use crate::sigv4::AwsKeys;

/// Interval at which keys without an expiry are read again.
const INTERVAL: Duration = Duration::from_mins(5);

/// Maximum length of the SDK's error text in a message.
const LONGEST_REASON: usize = 400;

pub(super) struct AwsChain {
    settings: AwsSettings,
    /// HTTP client with the TLS library of the other connections.
    client: OnceLock<SharedHttpClient>,
    /// Variables that replace the environment.
    #[cfg(all(test, feature = "aws-tests"))]
    variables: aws_types::os_shim_internal::Env,
}

impl AwsChain {
    pub(super) fn new(settings: AwsSettings) -> Self {
        Self {
            settings,
            client: OnceLock::new(),
            #[cfg(all(test, feature = "aws-tests"))]
            variables: aws_types::os_shim_internal::Env::from_slice(&[]),
        }
    }

    async fn credentials(&self) -> Result<Credentials, String> {
        let create = || {
            let tls = Provider::Rustls(CryptoMode::Ring);
            Builder::new().tls_provider(tls).build_https()
        };
        let client = self.client.get_or_init(create).clone();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(client);
        if let Some(profile) = &self.settings.profile {
            loader = loader.profile_name(&**profile);
        }
        if let Some(region) = &self.settings.region {
            loader = loader.region(Region::new(region.to_string()));
        }
        #[cfg(all(test, feature = "aws-tests"))]
        let loader = loader.env(self.variables.clone());
        let config = loader.load().await;
        let provider =
            config.credentials_provider().ok_or("the SDK has no credentials provider")?;
        provider.provide_credentials().await.map_err(|error| {
            format!("no source of the default chain has credentials ({})", reason(&error))
        })
    }
}

impl SecretSource for AwsChain {
    fn fetch(&self, now: Timestamp) -> FetchFuture<'_> {
        Box::pin(async move {
            let credentials = timeout(FETCH_LIMIT, self.credentials()).await;
            let credentials = credentials
                .map_err(|_| format!("no response within {} s", FETCH_LIMIT.as_secs()))??;
            let keys = Secret::Aws(AwsKeys {
                id: Name::from(credentials.access_key_id()),
                secret: Credential::new(credentials.secret_access_key()),
                session_token: credentials.session_token().map(Credential::new),
                region: self.settings.region.clone(),
            });
            let expiry = credentials.expiry().and_then(|time| Timestamp::try_from(time).ok());
            let fetched = match expiry {
                Some(expires_at) => FetchedSecret::expiring(keys, now, expires_at),
                None => FetchedSecret::lasting(keys, now, INTERVAL),
            };
            Ok(match sources(&credentials) {
                Some(sources) => fetched.provided_by(sources),
                None => fetched,
            })
        })
    }

    fn advice(&self) -> &'static str {
        "configure one of the sources, and test it with `aws sts get-caller-identity`"
    }
}

/// Describes the sources in the chain that provided the credentials.
fn sources(credentials: &Credentials) -> Option<String> {
    let features = credentials.get_property::<Vec<AwsCredentialFeature>>()?;
    let names = features.iter().filter_map(|feature| match feature {
        AwsCredentialFeature::CredentialsEnvVars => Some("environment variables"),
        AwsCredentialFeature::CredentialsProfile => Some("a profile"),
        AwsCredentialFeature::CredentialsProcess => Some("credential_process"),
        AwsCredentialFeature::CredentialsSso => Some("SSO"),
        AwsCredentialFeature::CredentialsStsAssumeRole => Some("an assumed role"),
        AwsCredentialFeature::CredentialsProfileStsWebIdToken
        | AwsCredentialFeature::CredentialsEnvVarsStsWebIdToken
        | AwsCredentialFeature::CredentialsStsAssumeRoleWebId => Some("a web identity"),
        AwsCredentialFeature::CredentialsHttp => Some("the container endpoint"),
        AwsCredentialFeature::CredentialsImds => Some("the EC2 metadata service"),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the texts of an error and its causes, without words that may be secrets.
fn reason(error: &dyn Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
        cause = error.source();
    }
    // The output of a `credential_process` may contain secrets.
    let text = texts.join(": ");
    let text = text.split("Stderr:").next().unwrap_or_default();
    let text: String = text.chars().take(LONGEST_REASON).collect();
    redact(&text).to_string()
}

#[cfg(all(test, feature = "aws-tests"))]
#[path = "aws_tests.rs"]
mod aws_tests;
