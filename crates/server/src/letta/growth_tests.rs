//! Requests to agents take time in proportion to their size.

use throughline_core::Tree;
use throughline_testkit::grows_in_proportion;

use crate::letta::kept::Members;
use crate::letta::request::SayRequest;

/// A list of elements in which `#` stands for the number.
fn list(count: usize, element: &str) -> String {
    let elements = (0..count).map(|number| element.replace('#', &number.to_string()));
    elements.collect::<Vec<_>>().join(",")
}

#[test]
fn large_requests_to_agents_take_time_in_proportion() {
    const SIZES: (usize, usize) = (1_000, 32_000);
    let members = |count| {
        let body = Tree::parse(format!("{{{}}}", list(count, r#""k#":#"#))).unwrap();
        assert_eq!(Members::of(body.root()).iter().count(), count);
        let mut changed = Members::default();
        changed.merge(body.root().members());
        changed.merge(body.root().members());
        assert_eq!(changed, Members::of(body.root()));
    };
    let returns = |count| {
        let element = r#"{"type":"tool_return","otid":"o#","tool_returns":[{"tool_call_id":"c#","tool_return":"x"},{"tool_call_id":"d#","tool_return":"x"}]}"#;
        let body = format!(r#"{{"messages":[{}]}}"#, list(count, element));
        let body = Tree::parse(body).unwrap();
        let request = SayRequest::parse(body.root()).ok().unwrap();
        assert_eq!((request.decisions.len(), request.otids.len()), (2 * count, count));
    };
    let parts = |count| {
        let parts = list(count, r#"{"type":"text","text":"part #"}"#);
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{parts}]}}]}}"#);
        let body = Tree::parse(body).unwrap();
        assert_eq!(SayRequest::parse(body.root()).ok().unwrap().said.len(), count);
    };
    grows_in_proportion("members of an agent", SIZES, members).unwrap();
    grows_in_proportion("tool returns with otids", SIZES, returns).unwrap();
    grows_in_proportion("parts of one message", SIZES, parts).unwrap();
}
