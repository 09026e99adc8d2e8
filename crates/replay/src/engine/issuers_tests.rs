//! Tests which reasoning may be sent without the store.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use bytes::Bytes;
use serde_json::{Value, json};
use throughline_codec::{Catalog, DecodeContext, codec};
use throughline_core::{Call, Request, Tenant, Wire};

use super::IssuerCache;

const SEAL: &str = "EqoBCkgIARABGAIiQLw7issued";
const MODEL: &str = "claude-sonnet-4-5";

/// Decodes a conversation for an account of a provider on the Messages wire. The model's turn has
/// this content.
fn call_at(provider: &str, account: &str, content: &Value) -> Call {
    let messages = json!([
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "More"},
    ]);
    let body = Bytes::from(json!({"model": MODEL, "messages": messages}).to_string());
    let request = Request { path: "/v1/messages".into(), headers: Vec::new(), body };
    let target = Catalog::builtin().target_for(provider, MODEL, account).unwrap();
    let codec = codec(&Wire::ANTHROPIC_MESSAGES).unwrap();
    let source = DecodeContext::of(target.clone());
    let mut call = codec.decode_request(&request, &source).unwrap();
    call.target = target;
    call
}

fn thinking(signature: Option<&str>) -> Value {
    let mut block = json!({"type": "thinking", "thinking": "A long thought"});
    if let Some(signature) = signature {
        block["signature"] = signature.into();
    }
    json!([block, {"type": "text", "text": "Hi"}])
}

/// Returns a cache that knows a turn of the account `a` at Anthropic.
fn cache(tenant: &Tenant) -> IssuerCache {
    let cache = IssuerCache::new(16 << 20);
    let call = call_at("anthropic", "a", &thinking(Some(SEAL)));
    cache.add(tenant, &call.items[1..3]);
    cache
}

#[test]
fn only_known_reasoning_may_be_sent() {
    let tenant = Tenant::from("us");
    let cache = cache(&tenant);
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let tagged = "<think>A long thought</think>Hi";
    let cases = [
        ("anthropic", thinking(Some(SEAL)), true),
        ("anthropic", thinking(Some("EqoBunknown")), false),
        // The client dropped the signature.
        ("anthropic", thinking(None), true),
        ("deepseek-anthropic", thinking(Some(SEAL)), true),
        ("anthropic", text("Hi"), true),
        ("anthropic", text("A long thought"), true),
        ("deepseek-anthropic", text(" A long thought\n"), false),
        ("anthropic", text(tagged), true),
        ("deepseek-anthropic", text(tagged), false),
        ("anthropic", text("<think>unknown</think>Hi"), false),
    ];
    for (provider, content, may_send) in cases {
        let mut call = call_at(provider, "a", &content);
        assert_eq!(cache.set_issuers(&tenant, &mut call), may_send, "{provider}: {content}");
        for item in call.items.iter().filter(|_| may_send) {
            for seal in &item.seals {
                assert_eq!(&*seal.owner.provider, "anthropic");
                let is_sent = seal.open_for(&call.target, None).is_ok();
                assert_eq!(is_sent, provider == "anthropic", "{provider}: {content}");
            }
        }
        let mut call = call_at(provider, "a", &thinking(Some(SEAL)));
        assert!(!cache.set_issuers(&Tenant::from("others"), &mut call), "of another tenant");
    }
}

#[test]
fn last_origin_is_of_the_targets_endpoint() {
    let tenant = Tenant::from("us");
    let cache = cache(&tenant);
    let account = |provider: &str, content: &Value| {
        let call = call_at(provider, "b", content);
        cache.last_origin(&tenant, &call).map(|origin| origin.account.to_string())
    };
    assert_eq!(account("anthropic", &thinking(Some(SEAL))).as_deref(), Some("a"));
    assert_eq!(account("anthropic", &thinking(None)).as_deref(), Some("a"));
    assert_eq!(account("anthropic", &thinking(Some("EqoBunknown"))), None);
    assert_eq!(account("deepseek-anthropic", &thinking(Some(SEAL))), None);
}
