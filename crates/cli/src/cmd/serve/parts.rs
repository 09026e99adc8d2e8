//! Builds the gateway from a configuration. A reload builds a new gateway from the same services.

use std::path::Path;
use std::sync::Arc;

use throughline_core::Upstream;
use throughline_provider::{OidcProvider, OidcSettings};
use throughline_replay::Replay;
use throughline_server::{Gateway, Keyring, Passthrough, SignIn, Telemetry, TlsSettings};
use throughline_sim::Simulator;
use throughline_store::Journal;

use crate::config::prices::SharedPrices;
use crate::config::{Config, TlsFiles};
use crate::credentials::SharedCredentials;
use crate::print::failure::{Failure, Result};
use crate::router::ConfigRouter;

/// The services that a gateway keeps while its configuration changes.
pub(super) struct GatewayParts {
    pub(super) replay: Arc<Replay>,
    pub(super) keyring: Arc<dyn Keyring>,
    pub(super) operations: Arc<Telemetry>,
    /// The prices of `operations`, which a reload replaces.
    pub(super) prices: Arc<SharedPrices>,
    pub(super) simulator: Simulator,
    pub(super) credentials: SharedCredentials,
    /// Provides the key that signs the cookies of the console.
    pub(super) journal: Journal,
}

impl GatewayParts {
    /// Builds the HTTP client for the configured providers.
    pub(super) fn upstream(&self, config: &Config) -> Result<Arc<dyn Upstream>> {
        Ok(Arc::new(crate::agent::upstream(config, &self.simulator, &self.credentials)?))
    }

    /// Builds the sign-in of the console; `None` if the configuration has no identity provider.
    fn sign_in(&self, config: &Config) -> Option<Arc<SignIn>> {
        let oidc = config.console.as_ref()?;
        let settings = OidcSettings {
            issuer: oidc.issuer.clone(),
            client_id: oidc.client_id.clone(),
            secret: self.credentials.source(&oidc.secret),
            scopes: oidc.scopes.clone(),
            groups_claim: oidc.groups_claim.clone(),
        };
        let purpose = format!("console sign-in {} {}", oidc.issuer, oidc.client_id);
        let key = self.journal.derived_key(&purpose);
        let provider = OidcProvider::new(settings, Arc::new(crate::clock::now));
        Some(Arc::new(SignIn::new(Arc::new(provider), oidc.sign_in.clone(), key)))
    }

    /// Builds a gateway. The agent API adds the redaction policy.
    pub(super) fn gateway(
        &self,
        config: &Config,
        router: Arc<ConfigRouter>,
        upstream: Arc<dyn Upstream>,
    ) -> Result<Gateway> {
        let patterns = config.gateway.passthrough.iter().map(|pattern| &**pattern);
        let passthrough = Passthrough::new(patterns);
        let passthrough = passthrough.map_err(|error| Failure::BadData(error.to_string()))?;
        Ok(Gateway {
            replay: Arc::clone(&self.replay),
            upstream,
            directory: router,
            catalog: config.catalog.shared.clone(),
            mode: config.gateway.replay,
            prefix: config.gateway.prefix,
            keyring: Arc::clone(&self.keyring),
            sign_in: self.sign_in(config),
            allow_open: config.server.allow_open,
            hosts: config.server.hosts.clone(),
            passthrough,
            body_limit: usize::try_from(config.gateway.body_limit).unwrap_or(usize::MAX),
            depth_limit: config.gateway.depth_limit,
            operations: Arc::clone(&self.operations),
            redaction: None,
        })
    }
}

/// Loads the certificate and the key of the listener.
pub(crate) fn load_tls(files: &TlsFiles) -> Result<TlsSettings> {
    let TlsFiles { cert, key } = files;
    let read = |file: &Path| {
        std::fs::read(file).map_err(|error| {
            Failure::unreadable(&format!("cannot read the TLS file {}", file.display()), &error)
        })
    };
    TlsSettings::from_pem(&read(cert)?, &read(key)?).map_err(|error| {
        let (cert, key) = (cert.display(), key.display());
        Failure::BadData(format!("cannot use the TLS files {cert} and {key}: {error}"))
    })
}
