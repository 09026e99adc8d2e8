//! Tests that parsing agent requests takes time proportional to their size.

use throughline_json::Tree;
use throughline_testkit::assert_linear_growth;

use crate::letta::agent_store::Members;
use crate::letta::message_request::MessageRequest;

/// Returns `count` copies of an element, in which `#` is replaced by the index.
fn list(count: usize, element: &str) -> String {
    let elements = (0..count).map(|number| element.replace('#', &number.to_string()));
    elements.collect::<Vec<_>>().join(",")
}

#[test]
fn large_requests_are_parsed_in_linear_time() {
    const SIZES: (usize, usize) = (1_000, 32_000);
    let members = |count| {
        let body = Tree::parse(format!("{{{}}}", list(count, r#""k#":#"#))).unwrap();
        assert_eq!(Members::new(body.root()).iter().count(), count);
        let mut changed = Members::default();
        changed.merge(body.root().members());
        changed.merge(body.root().members());
        assert_eq!(changed, Members::new(body.root()));
    };
    let returns = |count| {
        let element = r#"{"type":"tool_return","otid":"o#","tool_returns":[{"tool_call_id":"c#","tool_return":"x"},{"tool_call_id":"d#","tool_return":"x"}]}"#;
        let body = format!(r#"{{"messages":[{}]}}"#, list(count, element));
        let body = Tree::parse(body).unwrap();
        let request = MessageRequest::parse(body.root()).ok().unwrap();
        assert_eq!((request.decisions.len(), request.otids.len()), (2 * count, count));
    };
    let parts = |count| {
        let parts = list(count, r#"{"type":"text","text":"part #"}"#);
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{parts}]}}]}}"#);
        let body = Tree::parse(body).unwrap();
        assert_eq!(MessageRequest::parse(body.root()).ok().unwrap().parts.len(), count);
    };
    assert_linear_growth("members of an agent", SIZES, members).unwrap();
    assert_linear_growth("tool returns with otids", SIZES, returns).unwrap();
    assert_linear_growth("parts of one message", SIZES, parts).unwrap();
}
