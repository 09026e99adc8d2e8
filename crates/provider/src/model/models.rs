//! Resolves models by name. A name may have several targets, which are tried in order.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{
    Call, Model, ModelError, ModelErrorKind, ModelFuture, ModelRegistry, ModelStream, Profile,
    Provider, Target, Upstream,
};
use throughline_json::Name;

use crate::endpoint::{CredentialSource, Endpoint, InvalidEndpoint};
use crate::environment::{EnvKey, address_from_env, key_from_env, needs_key};
use crate::http::{Clock, Http};
use crate::lookup::EnvLookup;
use crate::model::EndpointModel;

/// Resolves a model name to endpoint names and targets, in the order in which they are tried.
pub type ModelResolver = Arc<dyn Fn(&str) -> Result<Vec<(Name, Target)>, ModelError> + Send + Sync>;

/// Chooses which targets of a model are tried for a Call: their indices, in order.
pub type TargetOrder = Arc<dyn Fn(&Call, &[EndpointModel]) -> Vec<usize> + Send + Sync>;

/// Models at HTTP endpoints, found by name.
#[derive(Clone)]
pub struct EndpointModels {
    upstream: Arc<dyn Upstream>,
    find: ModelResolver,
    order: Option<TargetOrder>,
}

impl EndpointModels {
    /// Creates a registry that resolves names with `find` and sends requests through `upstream`.
    pub fn new(
        upstream: Arc<dyn Upstream>,
        find: impl Fn(&str) -> Result<Vec<(Name, Target)>, ModelError> + Send + Sync + 'static,
    ) -> Self {
        Self { upstream, find: Arc::new(find), order: None }
    }

    /// Chooses the order of the targets for each Call. By default, all targets are tried in the
    /// order in which the resolver returns them.
    #[must_use]
    pub fn with_order(
        self,
        order: impl Fn(&Call, &[EndpointModel]) -> Vec<usize> + Send + Sync + 'static,
    ) -> Self {
        Self { order: Some(Arc::new(order)), ..self }
    }

    /// Creates a registry for model names of the form `ENDPOINT/MODEL`, such as
    /// `anthropic/claude-sonnet-4-5`.
    pub fn from_endpoints(
        catalog: Catalog,
        endpoints: impl IntoIterator<Item = Endpoint>,
        clock: Clock,
    ) -> Result<Self, InvalidEndpoint> {
        let endpoints: Vec<Endpoint> = endpoints.into_iter().collect();
        let rows =
            endpoints.iter().map(|endpoint| (endpoint.name.clone(), Arc::clone(&endpoint.row)));
        let rows: Vec<(Name, Arc<Provider>)> = rows.collect();
        let upstream = Arc::new(Http::new(endpoints, clock)?);
        Ok(Self::new(upstream, move |name| {
            let found = name.split_once('/').and_then(|(endpoint, model)| {
                let (_, row) = rows.iter().find(|(known, _)| **known == *endpoint)?;
                Some((Name::from(endpoint), catalog.target(row, model, endpoint)))
            });
            let no_model = || {
                let known: Vec<&str> = rows.iter().map(|(known, _)| &**known).collect();
                let hint = format!("use PROVIDER/MODEL with one of {}", known.join(", "));
                let message = format!("model `{name}` is not configured; {hint}");
                ModelError::new(ModelErrorKind::Other, message)
            };
            found.map(|target| vec![target]).ok_or_else(no_model)
        }))
    }

    /// Creates a registry of all providers that need no key or whose key is set in the environment.
    pub fn from_env(lookup: EnvLookup<'_>, clock: Clock) -> Result<Self, InvalidEndpoint> {
        let catalog = Catalog::builtin().clone();
        let mut endpoints = Vec::new();
        for row in catalog.providers() {
            let source = match key_from_env(row, lookup) {
                Some(EnvKey::Key(key, _)) => CredentialSource::Key(key),
                Some(EnvKey::Aws(keys)) => CredentialSource::Aws(keys),
                None if needs_key(row) => continue,
                None => CredentialSource::Open,
            };
            let found_address = address_from_env(row, lookup).ok().flatten();
            let address = found_address
                .map_or_else(|| row.base_url.clone(), |found_address| found_address.base_url);
            // Skip addresses with a placeholder that is not filled in, such as an account.
            if !address.contains('{') {
                endpoints.push(Endpoint::new(&*row.name, Arc::clone(row), &address, source)?);
            }
        }
        Self::from_endpoints(catalog, endpoints, clock)
    }
}

impl ModelRegistry for EndpointModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let models = (self.find)(name)?.into_iter().map(|(endpoint, target)| {
            EndpointModel::new(Arc::clone(&self.upstream), endpoint, target)
        });
        let models = models.collect::<Result<Vec<_>, _>>()?;
        if let [model] = &*models {
            return Ok(Arc::new(model.clone()));
        }
        let first = models.first().ok_or_else(|| no_target(name))?;
        let target = first.target().clone();
        Ok(Arc::new(FallbackModel::new(target, models, self.order.clone())))
    }
}

fn no_target(name: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Other, format!("model `{name}` is not configured"))
}

impl std::fmt::Debug for EndpointModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointModels").finish_non_exhaustive()
    }
}

/// Several targets for one model name. Each attempt is encoded for its own target, so a Seal is
/// sent only to its issuer.
struct FallbackModel {
    models: Vec<EndpointModel>,
    order: Option<TargetOrder>,
    target: Target,
}

impl FallbackModel {
    /// Creates a model with several targets. `target` is the first of them.
    fn new(mut target: Target, models: Vec<EndpointModel>, order: Option<TargetOrder>) -> Self {
        // If any target has prefix-bound Seals, the prefix must stay unchanged for all targets.
        if models.iter().any(|model| model.target().profile.bound.prefix) {
            let mut profile = Profile::clone(&target.profile);
            profile.bound.prefix = true;
            target.profile = Arc::new(profile);
        }
        Self { models, order, target }
    }

    async fn send_with_fallback(&self, call: Call) -> Result<ModelStream, ModelError> {
        let order = match &self.order {
            Some(order) => order(&call, &self.models),
            None => (0..self.models.len()).collect(),
        };
        let mut outcome = Err(no_target(self.target.model()));
        for model in order.into_iter().filter_map(|index| self.models.get(index)) {
            // Another target may accept the Call, because it is encoded anew.
            outcome = model.send(Call { target: model.target().clone(), ..call.clone() }).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl Model for FallbackModel {
    fn target(&self) -> &Target {
        &self.target
    }

    fn send(&self, call: Call) -> ModelFuture<'_> {
        Box::pin(self.send_with_fallback(call))
    }
}
