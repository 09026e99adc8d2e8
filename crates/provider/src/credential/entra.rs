//! Access tokens of Microsoft Entra, for Azure OpenAI and Foundry.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use throughline_core::Credential;
use throughline_json::Name;

use crate::credential::token_client::{TokenClient, TokenRequest, TokenResponse};
use crate::credential::{FetchFuture, SecretSource, assertion, file};
use crate::lookup::{EnvLookup, non_empty};

/// Default scope: Azure AI services, which include Azure OpenAI.
const SCOPE: &str = "https://cognitiveservices.azure.com/.default";

/// Address of Entra in the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com";

/// Address of the metadata service of virtual machines.
const METADATA: &str = "http://169.254.169.254";

/// Credentials for Microsoft Entra, and the scope of their tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntraSettings {
    /// How the process proves its identity.
    pub login: EntraLogin,
    /// Scope of the tokens, such as `https://ai.azure.com/.default`.
    pub scope: Name,
}

/// How a process proves its identity to Microsoft Entra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntraLogin {
    /// A service principal with a secret.
    Secret(ServicePrincipal, Credential),
    /// A service principal with a PEM file that contains a certificate and its RSA key.
    Certificate(ServicePrincipal, PathBuf),
    /// Workload identity: a file with a token that a federated identity provider renews.
    Federated(ServicePrincipal, PathBuf),
    /// The managed identity of an App Service or a container app.
    AppService {
        /// Address of the identity endpoint.
        endpoint: Name,
        /// Value of the header `x-identity-header`.
        header: Credential,
        /// Id of a user-assigned identity.
        client_id: Option<Name>,
    },
    /// The managed identity of a virtual machine.
    VirtualMachine {
        /// Base URL of the metadata service.
        endpoint: Name,
        /// Id of a user-assigned identity.
        client_id: Option<Name>,
    },
}

/// An application in a tenant of Microsoft Entra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePrincipal {
    /// Base URL of Entra.
    pub authority: Name,
    /// Id of the tenant.
    pub tenant_id: Name,
    /// Id of the application.
    pub client_id: Name,
}

impl EntraSettings {
    /// Reads the usual variables: `AZURE_TENANT_ID`, `AZURE_CLIENT_ID`, `AZURE_AUTHORITY_HOST`,
    /// and `AZURE_CLIENT_SECRET`, `AZURE_CLIENT_CERTIFICATE_PATH` or `AZURE_FEDERATED_TOKEN_FILE`.
    /// Without one of the last three, the process uses its managed identity: that of
    /// `IDENTITY_ENDPOINT` and `IDENTITY_HEADER`, or that of the virtual machine.
    pub fn from_env(scope: Option<&str>, lookup: EnvLookup<'_>) -> Self {
        let scope = Name::from(scope.unwrap_or(SCOPE));
        Self { login: EntraLogin::from_env(lookup), scope }
    }

    /// Returns the scope in the form that managed identities expect.
    fn resource(&self) -> &str {
        self.scope.strip_suffix("/.default").unwrap_or(&self.scope)
    }
}

impl EntraLogin {
    fn from_env(lookup: EnvLookup<'_>) -> Self {
        let name = |variable: &str| non_empty(variable, lookup).map(Name::from);
        let path = |variable: &str| non_empty(variable, lookup).map(PathBuf::from);
        let client_id = name("AZURE_CLIENT_ID");
        if let (Some(tenant_id), Some(client_id)) = (name("AZURE_TENANT_ID"), client_id.clone()) {
            let authority = name("AZURE_AUTHORITY_HOST");
            let authority = authority.unwrap_or_else(|| Name::from(AUTHORITY));
            let principal = ServicePrincipal { authority, tenant_id, client_id };
            if let Some(secret) = non_empty("AZURE_CLIENT_SECRET", lookup) {
                return Self::Secret(principal, Credential::new(secret));
            }
            if let Some(path) = path("AZURE_CLIENT_CERTIFICATE_PATH") {
                return Self::Certificate(principal, path);
            }
            if let Some(path) = path("AZURE_FEDERATED_TOKEN_FILE") {
                return Self::Federated(principal, path);
            }
        }
        if let (Some(endpoint), Some(header)) = (name("IDENTITY_ENDPOINT"), name("IDENTITY_HEADER"))
        {
            return Self::AppService { endpoint, header: Credential::new(&*header), client_id };
        }
        let endpoint = name("AZURE_POD_IDENTITY_AUTHORITY_HOST");
        let endpoint = endpoint.unwrap_or_else(|| Name::from(METADATA));
        Self::VirtualMachine { endpoint, client_id }
    }
}

impl fmt::Display for EntraSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.login {
            EntraLogin::Secret(..) => "Microsoft Entra with $AZURE_CLIENT_SECRET",
            EntraLogin::Certificate(..) => "Microsoft Entra with $AZURE_CLIENT_CERTIFICATE_PATH",
            EntraLogin::Federated(..) => "Microsoft Entra with $AZURE_FEDERATED_TOKEN_FILE",
            EntraLogin::AppService { .. } => "the managed identity of $IDENTITY_ENDPOINT",
            EntraLogin::VirtualMachine { .. } => "the managed identity of the virtual machine",
        })
    }
}

pub(super) struct EntraIdentity {
    settings: EntraSettings,
    client: TokenClient,
}

impl EntraIdentity {
    pub(super) fn new(settings: EntraSettings) -> Self {
        Self { settings, client: TokenClient::default() }
    }

    async fn request(&self, now: Timestamp) -> Result<TokenRequest, String> {
        let resource = ("resource", self.settings.resource());
        let with_client_id = |request: TokenRequest, client_id: &Option<Name>| match client_id {
            Some(client_id) => request.query(&[("client_id", client_id)]),
            None => request,
        };
        match &self.settings.login {
            EntraLogin::Secret(principal, secret) => {
                self.token_request(principal, &[("client_secret", secret.reveal())])
            }
            EntraLogin::Certificate(principal, path) => {
                let pem = read(path).await?;
                let token = certificate_assertion(principal, &pem, now);
                let token = token.map_err(|problem| format!("{}: {problem}", path.display()))?;
                self.assertion_request(principal, &token)
            }
            EntraLogin::Federated(principal, path) => {
                let token = String::from_utf8(read(path).await?);
                let token = token.map_err(|_| format!("{} is not UTF-8", path.display()))?;
                self.assertion_request(principal, token.trim())
            }
            EntraLogin::AppService { endpoint, header, client_id } => {
                let request = TokenRequest::get(endpoint)?
                    .query(&[("api-version", "2019-08-01"), resource])
                    .header("x-identity-header", header.reveal())?;
                Ok(with_client_id(request, client_id))
            }
            EntraLogin::VirtualMachine { endpoint, client_id } => {
                let endpoint = endpoint.trim_end_matches('/');
                let url = format!("{endpoint}/metadata/identity/oauth2/token");
                let request = TokenRequest::get(&url)?
                    .query(&[("api-version", "2018-02-01"), resource])
                    .header("metadata", "true")?;
                Ok(with_client_id(request, client_id))
            }
        }
    }

    fn assertion_request(
        &self,
        principal: &ServicePrincipal,
        token: &str,
    ) -> Result<TokenRequest, String> {
        let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        self.token_request(
            principal,
            &[("client_assertion_type", kind), ("client_assertion", token)],
        )
    }

    fn token_request(
        &self,
        principal: &ServicePrincipal,
        proof: &[(&str, &str)],
    ) -> Result<TokenRequest, String> {
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_id", &principal.client_id),
            ("scope", &self.settings.scope),
        ];
        fields.extend_from_slice(proof);
        TokenRequest::form(&principal.token_url(), &fields)
    }
}

impl SecretSource for EntraIdentity {
    fn fetch(&self, now: Timestamp) -> FetchFuture<'_> {
        Box::pin(async move {
            let request = self.request(now).await?;
            let response: TokenResponse = self.client.fetch(request).await?;
            Ok(response.into_secret(now))
        })
    }

    fn advice(&self) -> &'static str {
        match &self.settings.login {
            EntraLogin::Secret(..) => {
                "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
            }
            EntraLogin::Certificate(..) => {
                "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_CERTIFICATE_PATH"
            }
            EntraLogin::Federated(..) => {
                "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE"
            }
            EntraLogin::AppService { .. } => {
                "assign a managed identity to the app, and set AZURE_CLIENT_ID if it has several"
            }
            EntraLogin::VirtualMachine { .. } => {
                "assign a managed identity to the machine; outside Azure, set AZURE_TENANT_ID, \
                 AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
            }
        }
    }
}

impl ServicePrincipal {
    fn token_url(&self) -> String {
        let authority = self.authority.trim_end_matches('/');
        format!("{authority}/{}/oauth2/v2.0/token", self.tenant_id)
    }
}

/// Creates a token that proves the possession of a certificate's key.
fn certificate_assertion(
    principal: &ServicePrincipal,
    pem: &[u8],
    now: Timestamp,
) -> Result<String, String> {
    let certificate = CertificateDer::from_pem_slice(pem);
    let certificate = certificate.map_err(|_| "the file contains no certificate in PEM format")?;
    let digest = assertion::encode(Sha256::digest(&certificate));
    let header = json!({ "alg": "RS256", "typ": "JWT", "x5t#S256": digest });
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|_| "the system provides no randomness for an id")?;
    let claims = json!({
        "aud": principal.token_url(),
        "iss": &*principal.client_id,
        "sub": &*principal.client_id,
        "jti": assertion::encode(id),
        "nbf": now.as_second(),
        "exp": now.as_second() + 600,
    });
    assertion::sign(&header, &claims, pem)
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    file::read(path).await.map_err(|problem| format!("{}: {problem}", path.display()))
}
