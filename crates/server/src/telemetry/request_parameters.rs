//! Reads the parameters of a model request that OpenTelemetry's conventions name, in the notation
//! of every wire.

use std::str::FromStr;

use bytes::Bytes;
use throughline_core::RequestParameters;
use throughline_json::{Name, Node, Tree};

/// The path of a member, from the root of a request.
type MemberPath = &'static [&'static str];

const MAX_TOKENS: &[MemberPath] = &[
    &["max_completion_tokens"],
    &["max_tokens"],
    &["max_output_tokens"],
    &["generationConfig", "maxOutputTokens"],
    &["inferenceConfig", "maxTokens"],
];
const CHOICES: &[MemberPath] = &[&["n"], &["generationConfig", "candidateCount"]];
const SEED: &[MemberPath] = &[&["seed"], &["generationConfig", "seed"]];
const TEMPERATURE: &[MemberPath] =
    &[&["temperature"], &["generationConfig", "temperature"], &["inferenceConfig", "temperature"]];
const TOP_P: &[MemberPath] =
    &[&["top_p"], &["generationConfig", "topP"], &["inferenceConfig", "topP"]];
const TOP_K: &[MemberPath] =
    &[&["top_k"], &["generationConfig", "topK"], &["additionalModelRequestFields", "top_k"]];
const FREQUENCY_PENALTY: &[MemberPath] =
    &[&["frequency_penalty"], &["generationConfig", "frequencyPenalty"]];
const PRESENCE_PENALTY: &[MemberPath] =
    &[&["presence_penalty"], &["generationConfig", "presencePenalty"]];
const STOP_SEQUENCES: &[MemberPath] = &[
    &["stop"],
    &["stop_sequences"],
    &["generationConfig", "stopSequences"],
    &["inferenceConfig", "stopSequences"],
];
/// Members that select the format of the output.
const FORMAT: &[MemberPath] = &[
    &["response_format", "type"],
    &["text", "format", "type"],
    &["output_format", "type"],
    &["output_config", "format", "type"],
    &["generationConfig", "responseMimeType"],
];
/// Lists of the kinds of content that the output may contain.
const MODALITIES: &[MemberPath] = &[&["modalities"], &["generationConfig", "responseModalities"]];

/// Returns the parameters of the request with this body.
pub(super) fn read_parameters(body: &Bytes) -> RequestParameters {
    let Ok(tree) = Tree::parse(body.clone()) else { return RequestParameters::default() };
    let root = tree.root();
    RequestParameters {
        max_tokens: find(root, MAX_TOKENS).and_then(Node::u64),
        choices: find(root, CHOICES).and_then(Node::u64),
        seed: find(root, SEED).and_then(Node::u64),
        temperature: number(root, TEMPERATURE),
        top_p: number(root, TOP_P),
        top_k: number(root, TOP_K),
        frequency_penalty: number(root, FREQUENCY_PENALTY),
        presence_penalty: number(root, PRESENCE_PENALTY),
        stop_sequences: find(root, STOP_SEQUENCES).map(texts).unwrap_or_default(),
        output_type: output_type(root),
    }
}

/// Returns the first of these members that the request contains.
fn find<'t>(root: Node<'t>, paths: &[MemberPath]) -> Option<Node<'t>> {
    let member = |path: &MemberPath| path.iter().try_fold(root, |node, name| node.present(name));
    paths.iter().find_map(member)
}

fn number(root: Node<'_>, paths: &[MemberPath]) -> Option<f64> {
    f64::from_str(find(root, paths)?.number()?).ok()
}

/// Returns the strings in a list. A single string is a list of one.
fn texts(node: Node<'_>) -> Vec<Name> {
    match node.name() {
        Some(text) => vec![text],
        None => node.elements().filter_map(Node::name).collect(),
    }
}

fn output_type(root: Node<'_>) -> Option<&'static str> {
    let modalities = find(root, MODALITIES).map(texts).unwrap_or_default();
    let has = |kind: &str| modalities.iter().any(|modality| modality.eq_ignore_ascii_case(kind));
    if has("image") {
        return Some("image");
    }
    if has("audio") {
        return Some("speech");
    }
    match &*find(root, FORMAT)?.text()? {
        "json_object" | "json_schema" | "application/json" => Some("json"),
        "text" | "text/plain" => Some("text"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn read(body: &str) -> RequestParameters {
        read_parameters(&Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn parameters_are_read_on_every_wire() {
        let none = RequestParameters::default();
        let all = RequestParameters {
            max_tokens: Some(9),
            choices: Some(2),
            seed: Some(7),
            temperature: Some(0.5),
            top_p: Some(0.25),
            top_k: Some(40.0),
            frequency_penalty: Some(0.125),
            presence_penalty: Some(-1.0),
            stop_sequences: vec!["END".into()],
            output_type: Some("json"),
        };
        let chat = r#"{"max_completion_tokens":9,"n":2,"seed":7,"temperature":0.5,"top_p":0.25,
            "top_k":40,"frequency_penalty":0.125,"presence_penalty":-1,"stop":"END",
            "response_format":{"type":"json_object"}}"#;
        assert_eq!(read(chat), all);
        let gemini = r#"{"generationConfig":{"maxOutputTokens":9,"candidateCount":2,"seed":7,
            "temperature":0.5,"topP":0.25,"topK":40,"frequencyPenalty":0.125,
            "presencePenalty":-1.0,"stopSequences":["END"],
            "responseMimeType":"application/json"}}"#;
        assert_eq!(read(gemini), all);
        let messages = r#"{"max_tokens":9,"temperature":0.5,"top_p":0.25,"top_k":40,
            "stop_sequences":["END"],"output_config":{"format":{"type":"json_schema"}}}"#;
        let sampling = RequestParameters {
            choices: None,
            seed: None,
            frequency_penalty: None,
            presence_penalty: None,
            ..all.clone()
        };
        assert_eq!(read(messages), sampling);
        let converse = r#"{"inferenceConfig":{"maxTokens":9,"temperature":0.5,"topP":0.25,
            "stopSequences":["END"]},"additionalModelRequestFields":{"top_k":40}}"#;
        assert_eq!(read(converse), RequestParameters { output_type: None, ..sampling });
        let responses = r#"{"max_output_tokens":9,"text":{"format":{"type":"text"}}}"#;
        let text =
            RequestParameters { max_tokens: Some(9), output_type: Some("text"), ..none.clone() };
        assert_eq!(read(responses), text);
        for body in ["", "{}", r#"{"n":null,"stop":7,"temperature":"hot"}"#] {
            assert_eq!(read(body), none, "{body}");
        }
    }

    #[test]
    fn requested_media_are_the_output_type() {
        for (body, expected) in [
            (r#"{"modalities":["text","audio"]}"#, Some("speech")),
            (r#"{"generationConfig":{"responseModalities":["TEXT","IMAGE"]}}"#, Some("image")),
            (r#"{"modalities":["text"]}"#, None),
        ] {
            assert_eq!(read(body).output_type, expected, "{body}");
        }
    }
}
