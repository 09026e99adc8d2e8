//! Finds the objects of the operator's AWS account that a Converse request references.
//!
//! Bedrock reads S3 objects, guardrails and prompts with the identity that the gateway uses. The
//! gateway creates none of these objects, so no tenant owns them. A caller with a gateway key may
//! reference only the objects that the operator lists in `passthrough`.

use throughline_json::{Name, Tree};
use throughline_replay::text_of;

/// An object of the operator's AWS account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwsObject {
    noun: &'static str,
    id: Name,
    /// The object in the form used by the `passthrough` setting.
    pub(crate) path: String,
}

impl AwsObject {
    fn in_s3(uri: Name) -> Self {
        Self { noun: "S3 object", path: uri.to_string(), id: uri }
    }

    fn guardrail(id: Name) -> Self {
        Self { noun: "guardrail", path: format!("/guardrails/{id}"), id }
    }

    /// Returns the prompt that a model name refers to; `None` if the name refers to a model.
    pub(crate) fn prompt(model: &str) -> Option<Self> {
        let (_, arn) = model.split_at(model.find("arn:")?);
        let id = arn.contains(":prompt/").then(|| Name::from(arn))?;
        Some(Self { noun: "prompt", path: format!("/prompts/{id}"), id })
    }

    /// Returns the message for a caller that may not use the object.
    pub(crate) fn refusal(&self) -> String {
        let AwsObject { noun, id, path } = self;
        format!(
            "{noun} not found: {id}. With a gateway key, Bedrock can read it only if the operator \
             lists \"{path}\" in `passthrough` of [gateway]"
        )
    }
}

/// Returns the objects that a Converse body references. Tool arguments, JSON results and schemas
/// contain the caller's data, which Bedrock does not interpret.
pub(crate) fn aws_objects(body: &Tree) -> Vec<AwsObject> {
    let mut found = Vec::new();
    let mut left = vec![(body.root(), false)];
    while let Some((node, is_tool_use)) = left.pop() {
        left.extend(node.elements().map(|element| (element, false)));
        for (key, value) in node.members() {
            if key.is("json") || (is_tool_use && key.is("input")) {
                continue;
            }
            if key.is("s3Location") {
                let uris = value.members().filter(|(name, _)| name.is("uri"));
                found.extend(uris.filter_map(|(_, uri)| text_of(uri)).map(AwsObject::in_s3));
            } else if key.is("guardrailIdentifier") {
                found.extend(text_of(value).map(AwsObject::guardrail));
            }
            left.push((value, key.is("toolUse")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(body: &str) -> Vec<String> {
        let mut paths: Vec<String> = aws_objects(&Tree::parse(body.to_owned()).unwrap())
            .into_iter()
            .map(|it| it.path)
            .collect();
        paths.sort();
        paths
    }

    #[test]
    fn objects_are_found_in_every_block() {
        let body = r#"{"messages":[{"role":"user","content":[
            {"image":{"format":"png","source":{"s3Location":{"uri":"s3://a/1.png"}}}},
            {"toolResult":{"toolUseId":"t","content":[
                {"document":{"source":{"s3Location":{"uri":"s3://a/2.pdf","bucketOwner":"1"}}}}]}},
            {"video":{"source":{"s3Location":{"uri":"s3://a/3.mp4","uri":"s3://a/4.mp4"}}}}]}],
            "guardrailConfig":{"guardrailIdentifier":"g1","guardrailVersion":"1"}}"#;
        let expected =
            ["/guardrails/g1", "s3://a/1.png", "s3://a/2.pdf", "s3://a/3.mp4", "s3://a/4.mp4"];
        assert_eq!(paths(body), expected);
        let counted = format!(r#"{{"input":{{"converse":{body}}}}}"#);
        assert_eq!(paths(&counted), expected);
    }

    #[test]
    fn data_of_the_caller_is_not_a_reference() {
        let body = r#"{"messages":[{"role":"assistant","content":[
            {"toolUse":{"toolUseId":"t","name":"n","input":{"s3Location":{"uri":"s3://a/1"}}}}]},
            {"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[
                {"json":{"guardrailIdentifier":"g"}}]}}]}],
            "toolConfig":{"tools":[{"toolSpec":{"name":"n","inputSchema":{"json":{
                "s3Location":{"uri":"s3://a/2"}}}}}]}}"#;
        assert_eq!(paths(body), Vec::<String>::new());
    }

    #[test]
    fn only_arns_of_prompts_are_prompts() {
        let prompt = "arn:aws:bedrock:us-east-1:123456789012:prompt/P1:2";
        let found = AwsObject::prompt(&format!("bedrock/{prompt}")).map(|it| it.path);
        assert_eq!(found, Some(format!("/prompts/{prompt}")));
        let profile = "arn:aws:bedrock:us-east-1:1:application-inference-profile/x";
        assert_eq!(AwsObject::prompt(profile), None);
        assert_eq!(AwsObject::prompt("us.anthropic.claude-sonnet-4-5-20250929-v1:0"), None);
    }
}
