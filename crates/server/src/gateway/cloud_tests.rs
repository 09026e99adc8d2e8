//! Tests the classification of the clouds' paths.

use super::*;

fn parse(path: &str) -> Option<(CloudOperation, String)> {
    let parsed = CloudRequest::parse("POST", path)?;
    Some((parsed.operation, parsed.model.to_string()))
}

#[test]
fn bedrock_paths_name_the_operation_and_the_model() {
    let id = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
    for (action, operation) in [
        ("invoke", Invoke { stream: false }),
        ("invoke-with-response-stream", Invoke { stream: true }),
        ("converse", Converse { stream: false }),
        ("converse-stream", Converse { stream: true }),
        ("count-tokens", BedrockCount),
    ] {
        for path in [id.to_owned(), id.replace(':', "%3A")] {
            let found = parse(&format!("/model/{path}/{action}"));
            assert_eq!(found, Some((operation, id.to_owned())), "{path} {action}");
        }
    }
    let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.amazon.nova";
    let encoded = arn.replace(':', "%3A").replace('/', "%2F");
    for path in [arn, &encoded] {
        let found = parse(&format!("/model/{path}/converse?x=1"));
        assert_eq!(found, Some((Converse { stream: false }, arn.to_owned())));
    }
    for other in ["/model/a", "/model//invoke", "/model/a/async-invoke", "/models/a/invoke"] {
        assert_eq!(parse(other), None, "{other}");
    }
    assert_eq!(CloudRequest::parse("GET", "/model/a/invoke"), None);
}

#[test]
fn vertex_paths_name_the_operation_and_the_model() {
    let claude = "publishers/anthropic/models/claude-sonnet-4-5@20250929";
    let project = "projects/p/locations/us-east5";
    for lead in ["", "/v1", "/v1beta1"] {
        for path in [format!("{lead}/{project}/{claude}"), format!("{lead}/{claude}")] {
            for (method, stream) in [("rawPredict", false), ("streamRawPredict", true)] {
                let found = parse(&format!("{path}:{method}"));
                let model = "claude-sonnet-4-5@20250929".to_owned();
                assert_eq!(found, Some((RawPredict { stream }, model)), "{path}");
            }
        }
        let gemini = format!("{lead}/{project}/publishers/google/models/gemini-3-pro");
        let found = parse(&format!("{gemini}:streamGenerateContent?alt=sse"));
        let expected = Some((Gemini("streamGenerateContent"), "gemini-3-pro".to_owned()));
        assert_eq!(found, expected, "{gemini}");
        let count = format!("{lead}/{project}/publishers/anthropic/models/count-tokens:rawPredict");
        assert_eq!(parse(&count), Some((VertexCount, "count-tokens".to_owned())));
    }
    let other = parse("/v1beta1/publishers/sim/models/gemini-3-pro:generateContent");
    assert_eq!(other, Some((Gemini("generateContent"), "sim/gemini-3-pro".to_owned())));
    for path in [
        "/v1/projects/p",
        "/v1/projects/p/locations/l/publishers/google/models/m",
        "/v1/projects/p/locations/l/publishers/google/models/m:predict",
        "/v1/models/m:generateContent",
    ] {
        assert_eq!(parse(path), None, "{path}");
    }
}
