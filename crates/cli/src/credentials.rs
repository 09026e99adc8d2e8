//! Credentials from sources, such as files and clouds, which endpoints and reloads share.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use throughline_provider::{CredentialSettings, CredentialSource, DynamicCredential, FailureLog};

use crate::config::{Credential, shown_variable};

/// The credentials in use. Endpoints with the same source share a credential, so that the source is
/// read once. A reload keeps the credentials whose settings are the same, with their valid tokens.
#[derive(Default)]
pub(crate) struct SharedCredentials {
    known: Mutex<Vec<(CredentialSettings, Weak<DynamicCredential>)>>,
    on_failure: Option<FailureLog>,
}

impl SharedCredentials {
    /// Creates an empty set; `on_failure` records each source that fails.
    pub(crate) fn with_log(on_failure: FailureLog) -> Self {
        Self { known: Mutex::default(), on_failure: Some(on_failure) }
    }

    /// Converts a configured credential to the form that the HTTP client uses.
    pub(crate) fn source(&self, credential: &Credential) -> CredentialSource {
        match credential {
            Credential::Callers => CredentialSource::Caller,
            Credential::Open => CredentialSource::Open,
            Credential::Own { key, .. } => CredentialSource::Key(key.clone()),
            Credential::Aws(keys) => CredentialSource::Aws(keys.clone()),
            Credential::Dynamic(settings) => CredentialSource::Dynamic(self.shared(settings)),
            Credential::Missing { variable } => {
                let variable = shown_variable(variable);
                CredentialSource::Missing(format!("no API key: {variable} is not set").into())
            }
        }
    }

    fn shared(&self, settings: &CredentialSettings) -> Arc<DynamicCredential> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, credential)| credential.strong_count() > 0);
        let found = known.iter().find(|(other, _)| other == settings);
        if let Some(credential) = found.and_then(|(_, credential)| credential.upgrade()) {
            return credential;
        }
        let credential = Arc::new(DynamicCredential::new(settings, self.on_failure.clone()));
        known.push((settings.clone(), Arc::downgrade(&credential)));
        credential
    }
}
