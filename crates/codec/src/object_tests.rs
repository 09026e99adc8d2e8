//! Tests the macros that write JSON objects.

use throughline_json::{self as json, Json, Name};

#[test]
fn all_members_are_written_in_order() {
    let (key, name, none) = ("key", Name::from("a\"b"), None::<Json>);
    let inner = json::string("inner");
    let object = object! {
        "text": "t", (key): name, "count": 3, "flag": true, "null": null, "none": none,
        "some": Some(&inner), "object": { "raw": inner }, "empty": {}, "list": [],
        "objects": [{ "a": 1 }], "words": ["w"], "values": [inner],
    };
    assert_eq!(
        object.as_str(),
        r#"{"text":"t","key":"a\"b","count":3,"flag":true,"null":null,"some":"inner","object":{"raw":"inner"},"empty":{},"list":[],"objects":[{"a":1}],"words":["w"],"values":["inner"]}"#
    );
    assert_eq!(object! {}.as_str(), "{}");
}
