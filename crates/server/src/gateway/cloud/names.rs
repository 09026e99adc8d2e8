//! Maps the clouds' names of models to names that the gateway can route.

use throughline_json::Name;

use crate::gateway::Gateway;

/// Returns the name under which the gateway routes a model of Bedrock or Vertex.
///
/// A name that a route or a provider of the cloud serves stays as it is. Otherwise, the name of the
/// model inside an ARN is used, and Anthropic's spelling of a version that Vertex writes after `@`.
pub(super) fn resolve_name(gateway: &Gateway, name: &Name) -> Name {
    let directory = &gateway.directory;
    if let Some(model) = arn_model(name) {
        let is_routed = directory.reach(name).is_ok();
        return if is_routed { name.clone() } else { Name::from(model) };
    }
    let Some(dashed) = dashed_version(name) else { return name.clone() };
    // A provider gets the name as it is, unless a route or its own row gives the name a meaning.
    let is_native = directory.reach(name).is_ok_and(|targets| {
        targets.iter().all(|it| it.provider.dialect.model_in_path || *it.model != **name)
    });
    if is_native || directory.reach(&dashed).is_err() { name.clone() } else { dashed.into() }
}

/// Returns the model in the ARN of a foundation model or of a system-defined inference profile.
fn arn_model(name: &str) -> Option<&str> {
    let (lead, model) = name.strip_prefix("arn:")?.split_once('/')?;
    let kind = lead.rsplit(':').next()?;
    let is_model = matches!(kind, "foundation-model" | "inference-profile");
    (is_model && !model.is_empty()).then_some(model)
}

/// Rewrites `claude-sonnet-4-5@20250929` as `claude-sonnet-4-5-20250929`, and removes `@default`.
fn dashed_version(name: &str) -> Option<String> {
    let (model, version) = name.rsplit_once('@')?;
    match version {
        "default" | "latest" => Some(model.to_owned()),
        _ => Some(format!("{model}-{version}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_contain_the_model() {
        let arn = |kind: &str, id: &str| format!("arn:aws:bedrock:us-east-1:123:{kind}/{id}");
        let profile = arn("inference-profile", "us.anthropic.claude-sonnet-4-5-v1:0");
        assert_eq!(arn_model(&profile), Some("us.anthropic.claude-sonnet-4-5-v1:0"));
        let model = "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-v1:0";
        assert_eq!(arn_model(model), Some("anthropic.claude-3-haiku-v1:0"));
        // The id of an application's profile does not name the model.
        assert_eq!(arn_model(&arn("application-inference-profile", "a1b2")), None);
        assert_eq!(arn_model("us.anthropic.claude-sonnet-4-5-v1:0"), None);
    }

    #[test]
    fn versions_after_an_at_sign_get_anthropics_spelling() {
        let dashed = |name: &str| dashed_version(name);
        let dated = dashed("claude-sonnet-4-5@20250929");
        assert_eq!(dated.as_deref(), Some("claude-sonnet-4-5-20250929"));
        assert_eq!(dashed("claude-opus-4-6@default").as_deref(), Some("claude-opus-4-6"));
        assert_eq!(dashed("claude-opus-4-6"), None);
    }
}
