//! Lists and manages the routes of the caller's tenant.

use throughline_json::{Name, Node};

use crate::access::Admission;
use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::object::object;
use crate::tenant_routes::{change_routes, read_routes, route_json};

/// Maximum length of a route's name in bytes.
const LONGEST_NAME: usize = 200;
/// Maximum number of targets of a route.
const MOST_TARGETS: usize = 16;
/// Maximum number of routes of a tenant.
const MOST_ROUTES: usize = 1000;

/// Lists the routes of the tenant. `GET /v1/throughline/settings` lists those of the configuration.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let routes = read_routes(request.api.store(), &request.caller.tenant).await?;
    let rows = routes.iter().map(|(model, targets)| route_json(model, targets));
    Ok(json_response(&object! { "routes": rows.collect::<Vec<_>>() }))
}

/// Creates or replaces a route.
pub(crate) async fn set(request: &ApiRequest<'_>) -> ApiResult {
    check_operator(request)?;
    let model = route_name(request)?;
    let targets = targets(request)?;
    change_routes(request.api.store(), &request.caller.tenant, |routes| {
        if routes.len() >= MOST_ROUTES && !routes.contains_key(&model) {
            let message = format!("a tenant can have at most {MOST_ROUTES} routes; delete one");
            return Err(ApiError::new(422, message));
        }
        routes.insert(model.clone(), targets.clone());
        Ok(())
    })
    .await?;
    Ok(json_response(&route_json(&model, &targets)))
}

/// Deletes a route.
pub(crate) async fn delete(request: &ApiRequest<'_>) -> ApiResult {
    check_operator(request)?;
    let model = Name::from(path_name(request));
    change_routes(request.api.store(), &request.caller.tenant, |routes| {
        let removed = routes.remove(&model).map(drop);
        let message = "your tenant has no route with this name; see GET /v1/throughline/routes";
        removed.ok_or_else(|| ApiError::new(404, message))
    })
    .await?;
    Ok(json_response(&object! { "deleted": model }))
}

/// A key with limits could give itself a route to a model that it may not use. A gateway without
/// keys cannot identify its operator.
fn check_operator(request: &ApiRequest<'_>) -> ApiResult<()> {
    let admission = &request.caller.admission;
    if matches!(admission, Admission::Open) {
        let message = "this gateway has no keys, so it cannot identify its operator; write the \
                       route to throughline.toml, or create a key with `throughline keys create \
                       --role operator`";
        return Err(ApiError::new(403, message));
    }
    if admission.is_limited() {
        let message = "this key has limits, so it may not change routes; use an operator key \
                       without limits";
        return Err(ApiError::new(403, message));
    }
    Ok(())
}

fn path_name<'a>(request: &'a ApiRequest<'_>) -> &'a str {
    request.ids.first().map_or("", |id| &**id)
}

/// Returns the route's name, if the configuration does not define it.
fn route_name(request: &ApiRequest<'_>) -> ApiResult<Name> {
    let name = path_name(request);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_name) {
        let message = format!(
            "a route's name consists of letters, digits and `-_.:@`, and has at most \
             {LONGEST_NAME} characters"
        );
        return Err(ApiError::new(422, message));
    }
    if request.gateway.directory.reach(name).is_ok() {
        let message = format!(
            "the configuration of the gateway already defines the model `{name}`; choose another \
             name"
        );
        return Err(ApiError::new(409, message));
    }
    Ok(Name::from(name))
}

/// Returns the targets in the body, if the configuration defines all of them.
fn targets(request: &ApiRequest<'_>) -> ApiResult<Vec<Name>> {
    let invalid = || {
        let message = format!("`targets` must be a list of 1 to {MOST_TARGETS} model names");
        ApiError::new(422, message)
    };
    if let Some((name, _)) = request.body.root().members().find(|(key, _)| !key.is("targets")) {
        let name = name.text().unwrap_or_default();
        let message = format!("`{name}` is not a member of a route; the only one is `targets`");
        return Err(ApiError::new(422, message));
    }
    let list = request.body.root().present("targets").filter(|list| list.is_array());
    let list = list.ok_or_else(invalid)?;
    let targets: Option<Vec<Name>> = list.elements().map(Node::name).collect();
    let targets = targets.filter(|targets| (1..=MOST_TARGETS).contains(&targets.len()));
    let targets = targets.ok_or_else(invalid)?;
    for target in &targets {
        request.gateway.directory.reach(target).map_err(|error| ApiError::new(422, error))?;
    }
    Ok(targets)
}
