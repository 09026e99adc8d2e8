//! Tests of the ids that rewritten replies get.

use std::sync::Arc;

use throughline_core::{Event, Origin, Tenant, Wire};
use throughline_json::Name;

use super::ClaimRewriter;
use crate::claim::Claims;

/// Returns the id with which a rewritten stream starts.
fn rewritten_id(wire: Wire, id: Option<&str>) -> Option<Name> {
    let node = Claims::new_turn_id().unwrap();
    let (claims, tenant) = (Claims::new([7; 32]), Tenant::from("one"));
    let mut rewriter = ClaimRewriter::new(wire, claims, tenant, node, None);
    let origin = Origin {
        provider: "bedrock".into(),
        endpoint: "https://bedrock.example".into(),
        account: "bedrock".into(),
        wire: Wire::BEDROCK_CONVERSE,
        asked: "claude".into(),
        answered: "claude".into(),
        family: "claude".into(),
        routed: None,
    };
    let began = Event::Began { id: id.map(Name::from), origin: Arc::new(origin) };
    match rewriter.events(began).remove(0) {
        Event::Began { id, .. } => id,
        other => panic!("{other:?} is not the start of a reply"),
    }
}

/// Bedrock sends no ids, and Claude Code joins replies with equal ids.
#[test]
fn replies_without_an_id_get_different_ids() {
    for (wire, prefix) in [
        (Wire::ANTHROPIC_MESSAGES, "msg_"),
        (Wire::OPENAI_CHAT, "chatcmpl-"),
        (Wire::OPENAI_RESPONSES, "resp_"),
    ] {
        let [one, other] = [(); 2].map(|()| rewritten_id(wire.clone(), None).unwrap());
        assert!(one.starts_with(prefix) && other.starts_with(prefix), "{one}, {other}");
        assert_ne!(one, other);
    }
    assert_eq!(rewritten_id(Wire::GEMINI, None), None);
}

#[test]
fn ids_of_providers_are_kept() {
    let id = rewritten_id(Wire::ANTHROPIC_MESSAGES, Some("chatcmpl-1"));
    assert_eq!(id.as_deref(), Some("chatcmpl-1"));
}
