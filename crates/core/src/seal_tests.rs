//! Tests that a Seal is never printed and opens only for its owner.

use std::sync::Arc;

use bytes::Bytes;
use throughline_json::Name;

use crate::{
    Dialect, Digest, ElisionReason, Origin, PlainReplay, Profile, Provider, Seal, SealBinding,
    Target, ThreadSecret, Wire,
};

const SECRET: &str = "c2VjcmV0LWJ5dGVz";

fn origin() -> Origin {
    Origin {
        provider: "anthropic".into(),
        endpoint: "https://api.anthropic.com".into(),
        account: "main".into(),
        wire: Wire::ANTHROPIC_MESSAGES,
        asked: "claude-opus".into(),
        answered: "claude-opus-20260101".into(),
        family: "claude-opus".into(),
        routed: None,
    }
}

fn target(change: impl FnOnce(&mut Origin), reads: &[&str]) -> Target {
    let mut origin = origin();
    change(&mut origin);
    Target {
        provider: Arc::new(Provider {
            name: origin.provider.clone(),
            wire: origin.wire.clone(),
            base_url: origin.endpoint.clone(),
            key_env: None,
            dialect: Dialect::default(),
            replay_plain: PlainReplay::default(),
        }),
        profile: Arc::new(Profile {
            name: origin.family.to_string(),
            reads: reads.iter().map(ToString::to_string).collect(),
            ..Profile::default()
        }),
        origin: Arc::new(origin),
    }
}

fn seal(bound: SealBinding) -> Seal {
    let bytes = Bytes::from_static(SECRET.as_bytes());
    Seal::new(bytes, "anthropic.signature", Arc::new(origin()), "/signature").bound_to(bound)
}

fn opened(seal: &Seal, to: &Target, prefix: Option<&Digest>) -> Result<Bytes, ElisionReason> {
    seal.open_for(to, prefix).cloned()
}

#[test]
fn debug_and_display_never_show_the_bytes() {
    let seal = seal(SealBinding { model: true, account: true, prefix: Some([7; 32]) });
    assert_eq!(format!("{seal}"), "16 B, anthropic.signature, anthropic");
    assert_eq!(format!("{seal:?}"), "Seal(16 B, anthropic.signature, anthropic)");
    assert_eq!(format!("{seal:#?}"), "Seal(16 B, anthropic.signature, anthropic)");
    assert_eq!(format!("{:?}", ThreadSecret::new([7; 32])), "ThreadSecret");
}

#[test]
fn seal_opens_for_its_owner() {
    let bytes = Bytes::from_static(SECRET.as_bytes());
    assert_eq!(
        opened(&seal(SealBinding::default()), &target(|_| {}, &[]), None),
        Ok(bytes.clone())
    );
    let bound = SealBinding { model: true, account: true, prefix: Some([7; 32]) };
    assert_eq!(opened(&seal(bound), &target(|_| {}, &[]), Some(&[7; 32])), Ok(bytes));
}

#[test]
fn seal_is_foreign_to_another_provider() {
    let other = target(|origin| origin.provider = "openrouter".into(), &[]);
    assert_eq!(opened(&seal(SealBinding::default()), &other, None), Err(ElisionReason::Foreign));
}

#[test]
fn seal_is_foreign_to_another_endpoint_of_its_provider() {
    let other = target(|origin| origin.endpoint = "https://eu.api.anthropic.com".into(), &[]);
    assert_eq!(opened(&seal(SealBinding::default()), &other, None), Err(ElisionReason::Foreign));
}

#[test]
fn account_bound_seal_rejects_another_account() {
    let other = target(|origin| origin.account = "second".into(), &[]);
    let bound = SealBinding { account: true, ..SealBinding::default() };
    assert_eq!(opened(&seal(bound), &other, None), Err(ElisionReason::OtherAccount));
    assert!(opened(&seal(SealBinding::default()), &other, None).is_ok());
}

#[test]
fn model_bound_seal_rejects_families_that_cannot_read_it() {
    let bound = SealBinding { model: true, ..SealBinding::default() };
    let haiku = |origin: &mut Origin| origin.family = "claude-haiku".into();
    assert_eq!(opened(&seal(bound), &target(haiku, &[]), None), Err(ElisionReason::OtherModel));
    assert!(opened(&seal(bound), &target(haiku, &["claude-opus"]), None).is_ok());
    assert!(opened(&seal(SealBinding::default()), &target(haiku, &[]), None).is_ok());
}

#[test]
fn model_bound_seal_opens_within_its_family() {
    let bound = SealBinding { model: true, ..SealBinding::default() };
    let newer = target(|origin| origin.asked = Name::from("claude-opus-next"), &[]);
    assert!(opened(&seal(bound), &newer, None).is_ok());
}

#[test]
fn prefix_bound_seal_rejects_a_changed_prefix() {
    let bound = SealBinding { prefix: Some([7; 32]), ..SealBinding::default() };
    let me = target(|_| {}, &[]);
    assert_eq!(opened(&seal(bound), &me, Some(&[8; 32])), Err(ElisionReason::PrefixChanged));
    assert!(opened(&seal(bound), &me, Some(&[7; 32])).is_ok());
    assert!(opened(&seal(bound), &me, None).is_ok());
    assert!(opened(&seal(SealBinding::default()), &me, Some(&[8; 32])).is_ok());
}

#[test]
fn tenant_can_read_the_bytes_and_empty_seals_are_detected() {
    assert_eq!(seal(SealBinding::default()).reveal_to_tenant(), SECRET.as_bytes());
    let empty = Seal::new(Bytes::new(), "x", Arc::new(origin()), "/signature");
    assert!(empty.is_empty());
}
