//! Helpers for the replay tests: targets, a temporary store, and conversations.

pub(crate) mod recorded;
pub(crate) mod said;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use throughline_codec::{Catalog, Codec, DecodeContext, codec};
use throughline_core::{
    Body, Call, EncodedRequest, Item, Provider, Reply, Request, Target, Tenant, TurnId, Wire,
};
use throughline_json::Name;
use throughline_replay::{Claims, Replay, RestoredCall, Turn};
use throughline_store::{Durability, Journal, Options, open};
use throughline_testkit::Folder;

pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) fn codec_of(wire: &str) -> &'static dyn Codec {
    codec(&Wire::new(wire.to_owned())).unwrap_or_else(|| panic!("no codec for {wire}"))
}

/// Returns a target for the provider's catalog entry on this wire. If the catalog has no such
/// entry, uses the wire's generic entry.
pub(crate) fn target(provider: &str, wire: &str, model: &str) -> Target {
    let catalog = Catalog::builtin();
    let wire = Wire::new(wire.to_owned());
    let row = catalog.provider_on_wire(provider, &wire).unwrap_or_else(|| {
        let is_chat = wire == Wire::OPENAI_CHAT;
        let generic = if is_chat { catalog.provider("compatible") } else { None };
        let generic = generic.or_else(|| catalog.default_provider(&wire)).unwrap();
        Arc::new(Provider { name: Name::from(provider), ..Provider::clone(&generic) })
    });
    catalog.target(&row, model, "test")
}

/// Returns one target per wire. Each target has its own provider and model.
pub(crate) fn targets() -> Vec<(&'static dyn Codec, Target)> {
    let rows = [
        ("anthropic", "anthropic-messages", "claude-sonnet-4-5"),
        ("openai", "openai-responses", "gpt-5.2"),
        ("openrouter", "openai-chat", "anthropic/claude-sonnet-4.5"),
        ("gemini", "gemini", "gemini-3-pro-preview"),
        ("bedrock", "bedrock-converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ];
    rows.iter().map(|(name, wire, model)| (codec_of(wire), target(name, wire, model))).collect()
}

pub(crate) fn request(path: &str, body: impl Into<Bytes>) -> Request {
    Request { path: Name::from(path), headers: Vec::new(), body: body.into() }
}

/// Decodes a request body on the codec's wire for this target.
pub(crate) fn call_of(codec: &dyn Codec, target: &Target, body: &Value) -> Call {
    let request = request(&codec.path(target, false), body.to_string());
    codec.decode_request(&request, &DecodeContext::of(target.clone())).unwrap()
}

/// Decodes a complete reply on the codec's wire.
pub(crate) fn reply_of(codec: &dyn Codec, target: &Target, body: &Value) -> Reply {
    codec.decode_reply(&Bytes::from(body.to_string()), &DecodeContext::of(target.clone())).unwrap()
}

/// A replay engine and the store that it uses.
pub(crate) struct ReplayFixture {
    pub(crate) replay: Replay,
    pub(crate) journal: Journal,
    url: String,
    /// Deletes the store's folder on drop.
    _folder: Folder,
}

impl ReplayFixture {
    pub(crate) async fn new() -> Self {
        let folder = Folder::new("server");
        let options = Options { durability: Durability::Relaxed, ..Options::default() };
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let journal = open(&url, &options).await.unwrap();
        let replay = Replay::new(Arc::new(journal.clone()), Claims::new(KEY));
        Self { replay, journal, url, _folder: folder }
    }

    /// Opens the same store again, as another process would.
    pub(crate) async fn another(&self) -> Journal {
        open(&self.url, &Options::default()).await.unwrap()
    }

    /// Returns a new replay engine with empty caches on the same store.
    pub(crate) fn forgetful(&self) -> Replay {
        Replay::new(Arc::new(self.journal.clone()), Claims::new(KEY))
    }

    pub(crate) async fn capture(
        &self,
        tenant: &Tenant,
        restored: &RestoredCall,
        reply: &Reply,
        encoded: &EncodedRequest,
    ) -> Option<TurnId> {
        let node = Claims::new_turn_id().unwrap();
        self.capture_as(node, tenant, restored, reply, encoded).await
    }

    pub(crate) async fn capture_as(
        &self,
        node: TurnId,
        tenant: &Tenant,
        restored: &RestoredCall,
        reply: &Reply,
        encoded: &EncodedRequest,
    ) -> Option<TurnId> {
        let conversation = &restored.conversation;
        let turn = Turn {
            node,
            conversation,
            reply,
            prefix: encoded.prefix,
            ids: &[],
            record: None,
            response: None,
        };
        self.replay.capture(tenant, &turn).await.unwrap()
    }
}

/// Returns the opaque values of these Items. Each value comes with a description of its Item.
pub(crate) fn sealed(items: &[Item]) -> Vec<(Bytes, String)> {
    let seals = items.iter().flat_map(|item| item.seals.iter().map(move |seal| (item, seal)));
    seals.map(|(item, seal)| (seal.reveal_to_tenant().clone(), kind_of(item))).collect()
}

pub(crate) fn kind_of(item: &Item) -> String {
    match &item.body {
        Body::Text(text) => format!("text {text}"),
        Body::Thought(thought) => format!("thought {}", thought.content),
        Body::Call(call) => format!("call {}", call.name),
        Body::Hosted(hosted) => format!("hosted {}", hosted.name),
        Body::Media(_)
        | Body::Result(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => "other".to_owned(),
    }
}
