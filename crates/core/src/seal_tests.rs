//! A Seal shows nothing and opens for its owner only.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Bound, Dialect, Digest, Name, Origin, Profile, Provider, Seal, Target, ThreadSecret, Why, Wire,
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
        }),
        profile: Arc::new(Profile {
            name: origin.family.to_string(),
            reads: reads.iter().map(ToString::to_string).collect(),
            ..Profile::default()
        }),
        origin: Arc::new(origin),
    }
}

fn seal(bound: Bound) -> Seal {
    let bytes = Bytes::from_static(SECRET.as_bytes());
    Seal::new(bytes, "anthropic.signature", Arc::new(origin()), "/signature").bound_to(bound)
}

fn opened(seal: &Seal, to: &Target, prefix: Option<&Digest>) -> Result<Bytes, Why> {
    seal.open_for(to, prefix).cloned()
}

#[test]
fn debug_and_display_never_show_the_bytes() {
    let seal = seal(Bound { model: true, account: true, prefix: Some([7; 32]) });
    assert_eq!(format!("{seal}"), "16 B, anthropic.signature, anthropic");
    assert_eq!(format!("{seal:?}"), "Seal(16 B, anthropic.signature, anthropic)");
    assert_eq!(format!("{seal:#?}"), "Seal(16 B, anthropic.signature, anthropic)");
    assert_eq!(format!("{:?}", ThreadSecret::new([7; 32])), "ThreadSecret");
}

#[test]
fn it_opens_for_its_owner() {
    let bytes = Bytes::from_static(SECRET.as_bytes());
    assert_eq!(opened(&seal(Bound::default()), &target(|_| {}, &[]), None), Ok(bytes.clone()));
    let bound = Bound { model: true, account: true, prefix: Some([7; 32]) };
    assert_eq!(opened(&seal(bound), &target(|_| {}, &[]), Some(&[7; 32])), Ok(bytes));
}

#[test]
fn another_provider_is_a_stranger() {
    let other = target(|origin| origin.provider = "openrouter".into(), &[]);
    assert_eq!(opened(&seal(Bound::default()), &other, None), Err(Why::Foreign));
}

#[test]
fn another_endpoint_of_the_same_provider_is_a_stranger() {
    let other = target(|origin| origin.endpoint = "https://eu.api.anthropic.com".into(), &[]);
    assert_eq!(opened(&seal(Bound::default()), &other, None), Err(Why::Foreign));
}

#[test]
fn another_account_is_refused_where_the_seal_is_bound_to_its_own() {
    let other = target(|origin| origin.account = "second".into(), &[]);
    let bound = Bound { account: true, ..Bound::default() };
    assert_eq!(opened(&seal(bound), &other, None), Err(Why::OtherAccount));
    assert!(opened(&seal(Bound::default()), &other, None).is_ok());
}

#[test]
fn another_model_family_is_refused_unless_its_profile_reads_the_owners() {
    let bound = Bound { model: true, ..Bound::default() };
    let haiku = |origin: &mut Origin| origin.family = "claude-haiku".into();
    assert_eq!(opened(&seal(bound), &target(haiku, &[]), None), Err(Why::OtherModel));
    assert!(opened(&seal(bound), &target(haiku, &["claude-opus"]), None).is_ok());
    assert!(opened(&seal(Bound::default()), &target(haiku, &[]), None).is_ok());
}

#[test]
fn another_model_of_the_same_family_is_the_owner() {
    let bound = Bound { model: true, ..Bound::default() };
    let newer = target(|origin| origin.asked = Name::from("claude-opus-next"), &[]);
    assert!(opened(&seal(bound), &newer, None).is_ok());
}

#[test]
fn a_changed_prefix_is_refused_where_the_seal_is_bound_to_it() {
    let bound = Bound { prefix: Some([7; 32]), ..Bound::default() };
    let me = target(|_| {}, &[]);
    assert_eq!(opened(&seal(bound), &me, Some(&[8; 32])), Err(Why::PrefixChanged));
    assert!(opened(&seal(bound), &me, Some(&[7; 32])).is_ok());
    assert!(opened(&seal(bound), &me, None).is_ok());
    assert!(opened(&seal(Bound::default()), &me, Some(&[8; 32])).is_ok());
}

#[test]
fn the_tenant_may_read_it_and_an_empty_one_seals_nothing() {
    assert_eq!(seal(Bound::default()).reveal_to_tenant(), SECRET.as_bytes());
    let empty = Seal::new(Bytes::new(), "x", Arc::new(origin()), "/signature");
    assert!(empty.is_empty());
}
