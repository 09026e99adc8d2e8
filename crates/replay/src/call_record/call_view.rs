//! Renders a call record as JSON for its tenant.

use bytes::Bytes;
use throughline_core::TurnId;
use throughline_json::{self as json, Json, Node, Tree};

use crate::call_record::call_log::StoredCall;
use crate::call_record::{Bodies, report};

/// Fields of the stored record that are not copied to the top level of the JSON.
const OWN: [&str; 3] = ["v", "path", "headers"];

/// Returns a call record as JSON, including the bodies.
pub fn call_json(node: &TurnId, found: &StoredCall) -> Json {
    let tree = found.account.tree();
    let account = tree.root();
    json::object(|o| {
        o.string("id", &node.0).string("object", "throughline.call").string("stored_at", &found.at);
        if let Some(turn) = &found.turn {
            o.string("thread", &turn.log.0);
            o.maybe_string("parent", turn.parent.as_ref().map(|parent| &*parent.0));
        }
        let is_own = |key: &Node<'_>| OWN.iter().any(|name| key.is(name));
        for (key, value) in account.members() {
            if key.is("attempts") {
                // Earlier versions stored the error as `said`.
                put_renamed(o, "attempts", value, ("said", "error"));
            } else if !is_own(&key) && !key.is("target") {
                o.node(&key.text().unwrap_or_default(), value);
            }
        }
        match &found.texts {
            Ok(texts) => put_bodies(o, account, texts),
            Err(reason) => {
                let reason = reason
                    .map_or_else(|| "they were not stored".to_owned(), |reason| reason.to_string());
                o.string("bodies", &format!("the bodies are not available: {reason}"));
                put_request(o, "received", account, None);
                put_sent(o, account, None);
            }
        }
    })
}

fn put_bodies(o: &mut json::Object<'_>, account: Node<'_>, texts: &Bodies) {
    if let Ok(tree) = Tree::parse(texts.account.clone()) {
        report::put_fates(o, tree.root());
        for (key, value) in tree.root().members().filter(|(key, _)| !key.is("fates")) {
            match &*key.text().unwrap_or_default() {
                "dids" => continue,
                // Earlier versions stored these members under other names.
                "mended" => put_renamed(o, "repaired", value, ("mend", "fix")),
                "more_mended" => o.node("more_repaired", value),
                name => o.node(name, value),
            };
        }
    }
    put_request(o, "received", account, Some(&texts.received));
    if account.get("target").is_some() {
        o.bool("unchanged", texts.sent == texts.received);
    }
    if texts.expanded != texts.received {
        put_body(o, "expanded", &texts.expanded);
    }
    put_sent(o, account, Some(&texts.sent));
}

/// Writes an array of objects, in which each field named `former` is renamed to `present`.
fn put_renamed<'o, 'b>(
    o: &'o mut json::Object<'b>,
    name: &str,
    list: Node<'_>,
    (former, present): (&str, &str),
) -> &'o mut json::Object<'b> {
    o.objects(name, list.elements(), |o, element| {
        for (key, value) in element.members() {
            let key = key.text().unwrap_or_default();
            o.node(if &*key == former { present } else { &key }, value);
        }
    })
}

/// Writes the request that was sent and its target; nothing if no request was sent.
fn put_sent(o: &mut json::Object<'_>, account: Node<'_>, body: Option<&Bytes>) {
    if let Some(target) = account.get("target") {
        put_request(o, "sent", target, body);
    }
}

/// Writes a request: its metadata and its body.
fn put_request(o: &mut json::Object<'_>, name: &str, account: Node<'_>, body: Option<&Bytes>) {
    const SHOWN: [&str; 7] =
        ["endpoint", "provider", "account", "wire", "model", "path", "headers"];
    o.object(name, |o| {
        // The requested model is a member of the call itself.
        for key in SHOWN.iter().filter(|key| name == "sent" || OWN.contains(key)) {
            o.maybe(key, account.get(key));
        }
        if let Some(body) = body {
            put_body(o, "body", body);
        }
    });
}

/// Writes a body as JSON if it is valid, otherwise as a string.
fn put_body(o: &mut json::Object<'_>, name: &str, body: &Bytes) {
    match Json::parse(body.clone()) {
        Ok(body) => o.raw(name, &body),
        Err(_) => o.string(name, std::str::from_utf8(body).unwrap_or_default()),
    };
}

#[cfg(test)]
#[path = "call_view_tests.rs"]
mod call_view_tests;
