//! Tests that a conversation has the same digest chain in every dialect, and that any visible
//! change alters the chain.

use crate::common::{call_of, codec_of, target, targets};
use serde_json::{Value, json};
use throughline_codec::DecodeContext;
use throughline_core::{Call, Digest, Tenant};
use throughline_replay::Chain;

fn digests(call: &Call) -> Vec<Option<Digest>> {
    of(call, "acme", None)
}

fn of(call: &Call, tenant: &str, end_user: Option<&str>) -> Vec<Option<Digest>> {
    let chain = Chain::of(call, &Tenant::from(tenant), end_user);
    chain.turns().iter().map(|turn| turn.digest).collect()
}

type Change = fn(&mut Value);

/// Returns a conversation with every kind of content that the digest chain covers, and with content
/// that the chain ignores.
fn conversation() -> Value {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 9000,
      "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
                 {"type": "text", "text": "Be kind."}],
      "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
      "messages": [
        {"role": "user", "content": "Weather in Oslo and  Rome?"},
        {"role": "user", "content": [{"type": "text", "text": "\nSoon, please."}, {"type": "image", "source":
            {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Two calls.", "signature": "c2lnbmF0dXJl"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"unit": "C", "city": "Oslo"}},
            {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "sun"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "{\"rain\": true, \"deg\": 7}"},
            {"type": "text", "text": "Well?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Rain in Oslo, "}, {"type": "text", "text": "sun in Rome."}]},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": [{"type": "text", "text": "Gladly."}]},
        {"role": "user", "content": "Bye."}]})
}

fn claude(body: &Value) -> Call {
    call_of(
        codec_of("anthropic-messages"),
        &target("anthropic", "anthropic-messages", "claude-sonnet-4-5"),
        body,
    )
}

/// Translates the conversation from every dialect to every other dialect and compares the digests.
#[test]
fn equal_conversations_have_equal_chains_in_every_dialect() {
    let first = claude(&conversation());
    let expected = digests(&first);
    assert_eq!(expected.len(), 3);
    assert!(expected.iter().all(Option::is_some));
    let mut pairs = 0;
    for (codec, target) in targets() {
        let translated = translate(codec, &target, &first);
        assert_eq!(digests(&translated), expected, "to {}", codec.wire());
        for (other, target) in targets() {
            let back = translate(other, &target, &translated);
            assert_eq!(digests(&back), expected, "{} to {}", codec.wire(), other.wire());
            pairs += 1;
        }
    }
    assert_eq!(pairs, 25);
}

fn translate(
    codec: &dyn throughline_codec::Codec,
    target: &throughline_core::Target,
    call: &Call,
) -> Call {
    let call = Call { target: target.clone(), ..call.clone() };
    let request = codec.encode(&call).unwrap().request;
    codec.decode_request(&request, &DecodeContext::of(target.clone())).unwrap()
}

#[test]
fn invisible_changes_do_not_affect_the_chain() {
    let expected = digests(&claude(&conversation()));
    let same: [Change; 6] = [
        |body| {
            body["messages"][2]["content"]
                .as_array_mut()
                .unwrap()
                .retain(|b| b["type"] != "thinking");
        },
        |body| body["messages"][2]["content"][2]["input"] = json!({"city": "Oslo", "unit": "C"}),
        |body| body["messages"][0]["content"] = json!("  Weather in\nOslo and Rome? "),
        |body| body["messages"][3]["content"].as_array_mut().unwrap().swap(0, 1),
        |body| body["messages"][4]["content"] = json!("Rain in Oslo, sun in Rome."),
        |body| body["messages"][7]["content"] = json!("Something else follows."),
    ];
    for (number, change) in same.into_iter().enumerate() {
        let mut body = conversation();
        change(&mut body);
        assert_eq!(digests(&claude(&body)), expected, "change {number}");
    }
}

#[test]
fn visible_changes_affect_the_chain_from_their_position_on() {
    let expected = digests(&claude(&conversation()));
    let changes: [(usize, Change); 8] = [
        (0, |body| body["system"] = json!("Be brief. Be unkind.")),
        (0, |body| body["messages"][0]["content"] = json!("Weather in Oslo or Rome?")),
        (0, |body| body["messages"][1]["content"][1]["source"]["data"] = json!("iVBORw0KGg8=")),
        (0, |body| body["messages"][2]["content"][2]["input"]["city"] = json!("Bergen")),
        (0, |body| body["messages"][2]["content"][1]["text"] = json!("I looked.")),
        (1, |body| body["messages"][3]["content"][0]["content"] = json!("snow")),
        (1, |body| body["messages"][4]["content"] = json!("Rain.")),
        (2, |body| body["messages"][5]["content"] = json!("Thanks!")),
    ];
    for (number, (at, change)) in changes.into_iter().enumerate() {
        let mut body = conversation();
        change(&mut body);
        let found = digests(&claude(&body));
        assert_eq!(found[..at], expected[..at], "change {number}");
        assert!(found[at..].iter().zip(&expected[at..]).all(|(a, b)| a != b), "change {number}");
    }
}

/// The fast path for ASCII text and the general path must ignore the same white space.
#[test]
fn all_white_space_is_ignored() {
    let digests_of = |text: &str| {
        let mut body = conversation();
        body["messages"][0]["content"] = json!(text);
        digests(&claude(&body))
    };
    let spaces = "\t\n\u{b}\u{c}\r ";
    assert!(spaces.chars().all(char::is_whitespace));
    assert_eq!(digests_of("Weather?"), digests_of(&format!("{spaces}Wea{spaces}ther?{spaces}")));
    assert_eq!(
        digests_of("Wétter?"),
        digests_of(&format!("W{spaces}ét\u{a0}\u{3000}\u{2028}ter?"))
    );
    let others: Vec<char> = (0..128u8).map(char::from).filter(|c| !spaces.contains(*c)).collect();
    assert!(others.iter().all(|letter| !letter.is_whitespace()));
    assert_ne!(digests_of("Weather?"), digests_of("Wea\u{1f}ther?"));
}

#[test]
fn chains_differ_by_tenant_and_end_user() {
    let call = claude(&conversation());
    let all = [
        of(&call, "acme", None),
        of(&call, "acme", Some("a")),
        of(&call, "acme", Some("b")),
        of(&call, "b", Some("a")),
    ];
    for (left, right) in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)] {
        assert!(all[left].iter().zip(&all[right]).all(|(a, b)| a != b), "{left} and {right}");
    }
}

/// The digest of a reply equals the digest computed from the next request, for new and continued
/// turns.
#[test]
fn reply_digest_equals_the_digest_in_the_next_request() {
    let target = target("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let call = claude(&conversation());
    let expected = digests(&call);
    for (index, turn) in [(2, 0), (4, 1), (6, 2)] {
        let mut body = conversation();
        let messages = body["messages"].as_array_mut().unwrap();
        messages.truncate(index + 1);
        let message = messages.pop().unwrap();
        let chain = Chain::of(&claude(&body), &Tenant::from("acme"), None);
        let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": message["content"],
            "model": "claude-sonnet-4-5", "stop_reason": "end_turn", "usage": {}});
        let reply = crate::common::reply_of(codec_of("anthropic-messages"), &target, &answer);
        assert_eq!(chain.after(&reply.items), expected[turn]);
        // The same reply after a prefilled assistant text.
        let blocks = message["content"].as_array().unwrap();
        let (start, rest) = blocks.split_at(1);
        if !rest.is_empty() {
            body["messages"]
                .as_array_mut()
                .unwrap()
                .push(json!({"role": "assistant", "content": start}));
            let chain = Chain::of(&claude(&body), &Tenant::from("acme"), None);
            let rest = reply.items[1..].to_vec();
            assert_eq!(chain.after(&rest), expected[turn]);
        }
    }
}
