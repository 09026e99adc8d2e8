//! Tests of the fields and paths that reference objects.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use throughline_core::Wire;
use throughline_replay::Family;

fn refs(family: Family, body: &str) -> Vec<String> {
    let tree = Tree::parse(body.to_owned()).unwrap();
    let mut found: Vec<String> = object_ids(family, &tree)
        .into_iter()
        .map(|named| format!("{} {}", named.object.kind.as_str(), named.object.id))
        .collect();
    found.sort();
    found
}

#[test]
fn caller_data_names_no_objects() {
    let openai = r#"{"metadata":{"file_id":"x"},"tools":[{"type":"function","parameters":{"properties":{"file_id":{"type":"string"}},"file_id":"x"}}],
        "input":[{"type":"function_call","id":"fc_1","arguments":"{\"file_id\":\"x\"}"},
                 {"type":"file_search_call","id":"fs_1","results":[{"file_id":"x"}]},
                 {"type":"reasoning","id":"rs_1","encrypted_content":"sealed"},
                 {"type":"message","role":"assistant","id":"msg_1","content":[{"type":"output_text","annotations":[{"file_id":"x"}]}]}]}"#;
    assert_eq!(refs(Family::OpenAi, openai), [""; 0]);
    let anthropic = r#"{"metadata":{"user_id":"x"},"tools":[{"input_schema":{"file_id":"x"}}],
        "container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]},
        "messages":[{"content":[{"type":"tool_use","input":{"file_id":"x","container":"x"}}]}]}"#;
    assert_eq!(refs(Family::Anthropic, anthropic), [""; 0]);
    let gemini = r#"{"contents":[{"parts":[{"functionCall":{"args":{"fileUri":"files/x"}}},
        {"functionResponse":{"response":{"uri":"files/x"}}},
        {"functionResponse":{"response":{"uri":"gs://bucket/x"}}},{"text":"gs://bucket/x"},
        {"fileData":{"fileUri":"https://www.youtube.com/watch?v=1"}}]}]}"#;
    assert_eq!(refs(Family::Gemini, gemini), [""; 0]);
}

#[test]
fn member_is_found_in_any_spelling() {
    // Of two members with one name, some parsers use the second.
    let twice = r#"{"previous_response_id":"resp_1","previous_response_id":"resp_2"}"#;
    assert_eq!(refs(Family::OpenAi, twice), ["response resp_1", "response resp_2"]);
    let escaped = r#"{"previous\u005fresponse_id":"resp\u005f1"}"#;
    assert_eq!(refs(Family::OpenAi, escaped), ["response resp_1"]);
    let items = r#"{"input":[{"id":"rs_1"},{"type":null,"id":"rs_2"},{"type":"item_reference","id":"rs_3"},
        {"type":"reasoning","id":"rs_4","encrypted_content":""},{"type":"message","type":"item_reference","id":"rs_5"}]}"#;
    let found = ["item rs_1", "item rs_2", "item rs_3", "item rs_4", "item rs_5"];
    assert_eq!(refs(Family::OpenAi, items), found);
    let nested = r#"{"contents":[{"parts":[{"function_response":{"response":{},"parts":[{"file_data":{"file_uri":"https://generativelanguage.googleapis.com/v1beta/files/a:b"}}]}}]}]}"#;
    assert_eq!(refs(Family::Gemini, nested), ["file a"]);
    let stored = r#"{"contents":[{"parts":[{"fileData":{"fileUri":"gs://bucket/files/x.pdf"}},
        {"file_data":{"file_uri":"GS://bucket/y"}},{"fileData":{"fileUri":"gs%3A//bucket/z"}}]}]}"#;
    let found = ["file GS://bucket/y", "file gs://bucket/files/x.pdf", "file gs://bucket/z"];
    assert_eq!(refs(Family::Gemini, stored), found);
}

#[test]
fn path_matches_one_route() {
    let at = |wire: &Wire, method: &str, path: &str| {
        let found = find_route(wire, method, path)?;
        Some((found.0.path, found.1.into_iter().map(|named| named.object.id.to_string()).collect()))
    };
    let one = |path, id: &str| Some((path, vec![id.to_owned()]));
    let (openai, gemini) = (Wire::OPENAI_CHAT, Wire::GEMINI);
    assert_eq!(at(&openai, "GET", "/v1/files/file-1"), one("/v1/files/{file}", "file-1"));
    assert_eq!(at(&openai, "GET", "/v1/files/a+b%2Fc"), one("/v1/files/{file}", "a+b/c"));
    assert_eq!(at(&openai, "GET", "/v1/files/"), None);
    assert_eq!(at(&openai, "GET", "/v1/files/a/b/c"), None);
    assert_eq!(at(&openai, "PUT", "/v1/files/a"), None);
    assert_eq!(methods_of(&openai, "/v1/files/a"), ["GET", "DELETE"]);
    let download = "/v1beta/files/{file}:download";
    assert_eq!(at(&gemini, "GET", "/v1beta/files/a:download"), one(download, "a"));
    assert_eq!(at(&gemini, "GET", "/v1beta/files/a:other"), None);
    let batch = at(&gemini, "POST", "/v1beta/models/google/gemini-3:batchGenerateContent");
    assert_eq!(batch.map(|(path, _)| path), Some("/v1beta/models/{**}:batchGenerateContent"));
}

#[test]
fn event_ids_are_found_for_any_chunking() {
    let text = b"event: x\ndata: {\"interaction\":{\"id\":\"int-1\"}}\n\ndata: [DONE]\n\n";
    for cut in 0..text.len() {
        let mut ids =
            EventIdScanner::new(Family::Gemini, &[("interaction.id", ObjectKind::Interaction)]);
        let (first, second) = text.split_at(cut);
        let mut found = ids.push(first);
        found.extend(ids.push(second));
        assert_eq!(found.len(), 1, "cut at {cut}");
    }
}
