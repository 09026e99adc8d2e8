//! Lists the models that a caller may use, or returns a single model, in the format of the caller's
//! dialect.
//!
//! The list contains the names that the configuration defines, then the models of each provider
//! that the gateway has a key for. A key that is restricted to some models sees only these.

mod discovery;
mod format;
mod listed;
mod page;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use throughline_codec::{Catalog, KnownModel};
use throughline_json::Name;

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::Gateway;
pub(crate) use crate::gateway::models::discovery::ModelDiscovery;
use crate::gateway::models::discovery::ProviderModel;
pub use crate::gateway::models::discovery::model_list_request;
use crate::gateway::models::listed::ListedModel;
pub(crate) use crate::gateway::models::listed::ModelFormat;
use crate::gateway::models::page::Page;
use crate::response::GatewayResponse;
use crate::routing::ModelSource;
use crate::tenant_routes::read_routes;
use crate::url::Query;

/// Returns the models that the caller may use, in this format.
pub(crate) async fn list(
    gateway: &Gateway,
    discovery: &ModelDiscovery,
    caller: &Caller,
    format: ModelFormat,
    query: &str,
) -> GatewayResult {
    let models = listed_models(gateway, discovery, caller, format, None).await;
    let page = Page::select(&models, format, &Query::parse(query))?;
    Ok(GatewayResponse::json(200, &format::list(format, &page)))
}

/// Returns one model by name. Returns 404 if the model does not exist or the caller may not use it.
pub(crate) async fn one(
    gateway: &Gateway,
    discovery: &ModelDiscovery,
    caller: &Caller,
    format: ModelFormat,
    name: &str,
) -> GatewayResult {
    let models = listed_models(gateway, discovery, caller, format, Some(name)).await;
    if let Some(model) = models.first() {
        return Ok(GatewayResponse::json(200, &format::one(format, model)));
    }
    let message = match format {
        ModelFormat::Gemini | ModelFormat::Vertex => format!("models/{name} is not found"),
        ModelFormat::Anthropic => format!("model: {name}"),
        ModelFormat::BedrockModels | ModelFormat::BedrockProfiles => {
            format!("Could not resolve the model {name}")
        }
        ModelFormat::OpenAi | ModelFormat::Codex => {
            format!("The model '{name}' does not exist")
        }
    };
    let code = Some(("model", "model_not_found"));
    Err(GatewayError { code, ..GatewayError::new(404, message) })
}

/// Returns all models that the caller may use, each name once. With `name`, returns only the model
/// with this name.
async fn listed_models(
    gateway: &Gateway,
    discovery: &ModelDiscovery,
    caller: &Caller,
    format: ModelFormat,
    name: Option<&str>,
) -> Vec<ListedModel> {
    let is_wanted = |id: &str| name.is_none_or(|name| name == id) && caller.admission.allows(id);
    if name.is_some_and(|name| !is_wanted(name)) {
        return Vec::new();
    }
    let catalog = gateway.catalog.current();
    let sources = gateway.directory.sources().into_iter();
    // A caller's key is most likely a key of the provider that defined the caller's dialect.
    let own = catalog.default_provider(&format.provider_wire()).filter(|own| {
        let key = caller.credential.as_ref();
        key.is_some_and(|key| key.for_provider(own, &format.provider_wire()).is_some())
    });
    let is_usable = |source: &ModelSource| {
        let provider = &source.target.provider.name;
        !source.needs_callers_key || own.as_ref().is_some_and(|own| own.name == *provider)
    };
    let sources: Vec<ModelSource> = sources.filter(is_usable).collect();
    let fetching = sources.iter().map(|source| discovery.models(gateway, source));
    let lists: Vec<Arc<Vec<ProviderModel>>> = join_all(fetching).await;
    let known = sources.iter().zip(&lists);
    let mut seen = BTreeSet::new();
    let mut models = Vec::new();
    let mut add = |id: Name, model: &str, provider: Option<&ProviderModel>| {
        if is_wanted(&id) && seen.insert(id.clone()) {
            models.push(listed_model(&catalog, id, model, provider));
        }
    };
    for id in gateway.directory.models().into_iter().filter(|id| is_wanted(id)) {
        let Some(target) = gateway.directory.first_target(&id) else { continue };
        let source = known.clone().find(|(it, _)| it.target.endpoint == target.endpoint);
        let own = source.and_then(|(_, list)| list.iter().find(|it| it.id == target.model));
        add(id, &target.model, own);
    }
    // While the store fails, the list contains only the models of the configuration.
    let routes = read_routes(gateway.replay.store(), &caller.tenant).await.unwrap_or_default();
    for (id, targets) in &routes {
        let first = targets.iter().find_map(|target| gateway.directory.first_target(target));
        if let Some(target) = first {
            add(id.clone(), &target.model, None);
        }
    }
    for (source, list) in known {
        for model in list.iter() {
            let prefixed = Name::from(format!("{}/{}", source.name, model.id));
            if !is_wanted(&model.id) && !is_wanted(&prefixed) {
                continue;
            }
            if let Some(id) = requested_name(gateway, source, &model.id, prefixed) {
                add(id, &model.id, Some(model));
            }
        }
    }
    models
}

/// Returns the name under which clients request a model of a provider: the model's own name, if it
/// leads to this provider, or `prefixed`, which is `NAME/model`.
fn requested_name(
    gateway: &Gateway,
    source: &ModelSource,
    model: &Name,
    prefixed: Name,
) -> Option<Name> {
    let leads_to_it = |name: &str| {
        let first = gateway.directory.first_target(name);
        first.is_some_and(|it| it.endpoint == source.target.endpoint && it.model == *model)
    };
    if leads_to_it(model) {
        return Some(model.clone());
    }
    Some(prefixed).filter(|name| leads_to_it(name))
}

/// Describes a model. The provider's own list takes precedence over the table of known models.
fn listed_model(
    catalog: &Catalog,
    id: Name,
    model: &str,
    provider: Option<&ProviderModel>,
) -> ListedModel {
    let known = KnownModel::find(model);
    let exact = known.filter(|known| known.is_named(model));
    let own_title = provider.and_then(|it| it.title.clone());
    let title = own_title.or_else(|| exact.map(|known| Name::from(&*known.title)));
    let released = provider.and_then(|it| it.released.clone());
    ListedModel {
        title: title.unwrap_or_else(|| id.clone()),
        context: provider.and_then(|it| it.context).or_else(|| known?.context),
        output: provider.and_then(|it| it.output).or_else(|| known?.output),
        released: released.or_else(|| Some(Name::from(&**exact?.released.as_ref()?))),
        profile: catalog.profile(model),
        id,
    }
}
