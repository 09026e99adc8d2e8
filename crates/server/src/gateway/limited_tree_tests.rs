//! Tests for the limits of bodies that begin like an earlier body.

use super::*;

const SIZES: SizeLimits = SizeLimits { entries: 9_000, items: 4_000, tools: 20 };

/// A request with this many messages of 200 bytes and this many tools.
fn request(messages: usize, tools: usize) -> Bytes {
    let message = format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(200));
    let (messages, tools) = (vec![message; messages].join(","), vec!["{}"; tools].join(","));
    Bytes::from(format!(r#"{{"messages":[{messages}],"tools":[{tools}]}}"#))
}

/// Checks that a body has the same result after the known body as alone. Returns the result.
fn check(known: &Tree, body: &Bytes) -> Result<usize, (u16, String)> {
    let shared = SharedBeginning::of(known, body);
    let result = |tree: GatewayResult<Option<Tree>>| match tree {
        Ok(tree) => Ok(tree.unwrap().entries()),
        Err(error) => Err((error.status, error.message.clone())),
    };
    let after = result(limited_tree_after(Some(shared), body, 8, &SIZES));
    assert_eq!(after, result(limited_tree(body, 8, &SIZES)));
    after
}

#[test]
fn limits_hold_for_bodies_with_a_known_beginning() {
    let known = limited_tree(&request(900, 3), 8, &SIZES).unwrap().unwrap();
    // More values than tools are allowed, so the items and tools are counted.
    assert!(check(&known, &request(1_000, 3)).is_ok());
    assert!(check(&known, &request(1_700, 20)).is_ok());
    let too_many = |body: Bytes, limit: &str| {
        let (status, message) = check(&known, &body).unwrap_err();
        assert_eq!(status, 413);
        assert!(message.contains(limit), "{message}");
    };
    too_many(request(900, 21), "tool_limit");
    too_many(request(2_000, 3), "entry_limit");
    let deep = [&request(900, 3)[..request(900, 3).len() - 1], b",\"deep\":[[[[[[[[1]]]]]]]]}"];
    let (status, message) = check(&known, &Bytes::from(deep.concat())).unwrap_err();
    assert_eq!(status, 400);
    assert!(message.contains("nested deeper than 8"), "{message}");
}
