//! Tests which tool results are removed.

use throughline_core::{Body, CallId, Item, ItemId, ItemPosition, Outcome, Part, Role, ToolResult};

use super::remove_repeated_results;

fn item(id: &str, body: Body) -> Item {
    Item::new(ItemId::from(id), ItemPosition::default(), Role::User, body)
}

/// Returns a result. As in decoded requests, every result has its own call.
fn result(id: &str, call: &str, text: &str) -> Item {
    let result = ToolResult {
        call: CallId(format!("{id} of {call}").into()),
        wire_id: Some(call.into()),
        name: None,
        outcome: Outcome::Ok,
        parts: vec![Part::Text(text.into())],
    };
    item(id, Body::Result(result))
}

#[test]
fn only_equal_results_of_the_same_call_are_removed() {
    let mut items = vec![
        result("1", "a", "rain"),
        result("2", "b", "rain"),
        result("3", "a", "rain"),
        result("4", "a", "snow"),
        item("5", Body::Text("On.".into())),
        result("6", "a", "rain"),
    ];
    let fates = remove_repeated_results(&mut items);
    let kept: Vec<String> = items.iter().map(|item| item.id.0.to_string()).collect();
    assert_eq!(kept, ["1", "2", "4", "5", "6"]);
    let removed: Vec<String> = fates.iter().map(|fate| fate.item.0.to_string()).collect();
    assert_eq!(removed, ["3"]);
}
