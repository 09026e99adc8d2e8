//! The models behind the endpoints, by name. A name may stand for several: the next is asked where one does not answer.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{
    Asking, Call, Model, ModelError, Models, Name, Profile, Provider, Saying, Target, Trouble,
    Upstream,
};

use crate::endpoint::{Endpoint, InvalidEndpoint, Source};
use crate::environment::{Lookup, UsualKey, needs_key, usual_address, usual_key};
use crate::http::{Clock, Http};
use crate::model::EndpointModel;

/// Says where a model of some name is: the endpoints, and whom one asks there, in the order in which they are tried.
pub type Whereabouts = Arc<dyn Fn(&str) -> Result<Vec<(Name, Target)>, ModelError> + Send + Sync>;

/// The models behind the endpoints, by name.
#[derive(Clone)]
pub struct EndpointModels {
    upstream: Arc<dyn Upstream>,
    find: Whereabouts,
}

impl EndpointModels {
    /// The models that `find` finds, behind these endpoints.
    pub fn new(
        upstream: Arc<dyn Upstream>,
        find: impl Fn(&str) -> Result<Vec<(Name, Target)>, ModelError> + Send + Sync + 'static,
    ) -> Self {
        Self { upstream, find: Arc::new(find) }
    }

    /// The models behind these endpoints, by names as `anthropic/claude-sonnet-4-5`: the endpoint's, and the provider's own for
    /// the model.
    pub fn at(
        catalog: Catalog,
        endpoints: impl IntoIterator<Item = Endpoint>,
        clock: Clock,
    ) -> Result<Self, InvalidEndpoint> {
        let endpoints: Vec<Endpoint> = endpoints.into_iter().collect();
        let rows = endpoints.iter().map(|one| (one.name.clone(), Arc::clone(&one.row)));
        let rows: Vec<(Name, Arc<Provider>)> = rows.collect();
        let upstream = Arc::new(Http::new(endpoints, clock)?);
        Ok(Self::new(upstream, move |name| {
            let found = name.split_once('/').and_then(|(endpoint, model)| {
                let (_, row) = rows.iter().find(|(known, _)| **known == *endpoint)?;
                Some((Name::from(endpoint), catalog.target(row, model, endpoint)))
            });
            let known: Vec<&str> = rows.iter().map(|(known, _)| &**known).collect();
            let nobody = || {
                let known = known.join(", ");
                ModelError::new(
                    Trouble::Other,
                    format!("nobody answers to {name}: name a model of {known}, as PROVIDER/model"),
                )
            };
            found.map(|one| vec![one]).ok_or_else(nobody)
        }))
    }

    /// The models of all providers whose keys the usual variables hold, and of those that need none.
    pub fn usual(lookup: Lookup<'_>, clock: Clock) -> Result<Self, InvalidEndpoint> {
        let catalog = Catalog::builtin().clone();
        let mut endpoints = Vec::new();
        for row in catalog.providers() {
            let source = match usual_key(row, lookup) {
                Some(UsualKey::Key(key, _)) => Source::Key(key),
                Some(UsualKey::Aws(keys)) => Source::Aws(keys),
                None if needs_key(row) => continue,
                None => Source::Open,
            };
            let said = usual_address(row, lookup).ok().flatten();
            let address = said.map_or_else(|| row.base_url.clone(), |said| said.base_url);
            // An address that wants to know an account, which nobody named, is nobody's.
            if !address.contains('{') {
                endpoints.push(Endpoint::new(&*row.name, Arc::clone(row), &address, source)?);
            }
        }
        Self::at(catalog, endpoints, clock)
    }
}

impl Models for EndpointModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let mut found = (self.find)(name)?.into_iter().map(|(endpoint, target)| {
            EndpointModel::new(Arc::clone(&self.upstream), endpoint, target)
        });
        let nobody = || ModelError::new(Trouble::Other, format!("nobody answers to {name}"));
        let first = found.next().ok_or_else(nobody)??;
        let others = found.collect::<Result<Vec<_>, _>>()?;
        if others.is_empty() {
            return Ok(Arc::new(first));
        }
        Ok(Arc::new(InTurn::of(first, others)))
    }
}

impl std::fmt::Debug for EndpointModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointModels").finish_non_exhaustive()
    }
}

/// Several models of one name. Each is asked with what is its own: seals go to whom they belong to.
struct InTurn {
    first: EndpointModel,
    others: Vec<EndpointModel>,
    target: Target,
}

impl InTurn {
    fn of(first: EndpointModel, others: Vec<EndpointModel>) -> Self {
        let mut target = first.target().clone();
        // Whoever answers, nothing that its seals may be bound to is changed.
        if others.iter().any(|other| other.target().profile.bound.prefix) {
            let mut profile = Profile::clone(&target.profile);
            profile.bound.prefix = true;
            target.profile = Arc::new(profile);
        }
        Self { first, others, target }
    }

    async fn ask_in_turn(&self, call: Call) -> Result<Saying, ModelError> {
        let put = |model: &EndpointModel| Call { target: model.target().clone(), ..call.clone() };
        let mut said = self.first.ask(put(&self.first)).await;
        for other in &self.others {
            if said.is_ok() {
                break;
            }
            // What one refuses, another may take: it is asked in its own words.
            said = other.ask(put(other)).await;
        }
        said
    }
}

impl Model for InTurn {
    fn target(&self) -> &Target {
        &self.target
    }

    fn ask(&self, call: Call) -> Asking<'_> {
        Box::pin(self.ask_in_turn(call))
    }
}
