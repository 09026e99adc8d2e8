//! Replay around a custom HTTP client: the program drops the model's signed reasoning, and the
//! engine restores the reasoning before the next request is sent.
//!
//! `cargo run --example replay` needs no key.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod support;

use std::error::Error;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use throughline::codec::Catalog;
use throughline::replay::{self, Replay};
use throughline::{Request, Target, Tenant};

/// The program's own HTTP client, and the replay engine that it calls around each request.
struct Chat {
    client: Client<HttpConnector, Full<Bytes>>,
    base_url: String,
    replay: Replay,
    target: Target,
}

impl Chat {
    /// Sends a request. Returns the body that was actually sent, and the response.
    async fn send(&self, body: &Value) -> Result<(Value, Value), Box<dyn Error>> {
        let body = Bytes::from(body.to_string());
        let request = Request { path: "/v1/messages".into(), headers: Vec::new(), body };

        // Before sending, restore the reasoning that the request has lost.
        let us = Tenant::from("us");
        let restored = self.replay.restore_request(&us, None, &self.target, &request).await?;
        let Request { path, headers, body } = &restored.encoded.request;

        let mut request = http::Request::post(format!("{}{path}", self.base_url))
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", "none");
        for (name, value) in headers {
            request = request.header(&**name, &**value);
        }
        let response = self.client.request(request.body(Full::new(body.clone()))?).await?;
        let is_success = response.status().is_success();
        let answer = response.into_body().collect().await?.to_bytes();
        if !is_success {
            return Err(String::from_utf8_lossy(&answer).into());
        }

        // After the response has arrived, capture its reasoning.
        self.replay.capture_response(&restored, &answer).await?;
        Ok((serde_json::from_slice(body)?, serde_json::from_slice(&answer)?))
    }
}

fn request(messages: &[Value]) -> Value {
    json!({
        "model": "claude-sonnet-5-5",
        "max_tokens": 4096,
        "thinking": { "type": "adaptive" },
        "tools": [{
            "name": "weather",
            "input_schema": { "type": "object", "properties": { "city": { "type": "string" } } },
        }],
        "messages": messages,
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = support::ExampleEnv::new("replay").await?;
    let store = env.store().await?;
    let chat = Chat {
        client: Client::builder(TokioExecutor::new()).build_http(),
        base_url: env.simulator.url(), // with a key: https://api.anthropic.com
        replay: replay::engine(&store),
        target: Catalog::builtin().target_for("anthropic", "claude-sonnet-5-5", "work")?,
    };

    let mut messages = vec![json!({ "role": "user", "content": "Is it warm in Paris?" })];
    let (_, answer) = chat.send(&request(&messages)).await?;
    let blocks = answer.get("content").and_then(Value::as_array).ok_or("a list of blocks")?;
    let of_kind = |kind: &str| blocks.iter().find(|block| block["type"] == kind);
    let thinking = of_kind("thinking").ok_or("the model thinks")?;
    let call = of_kind("tool_use").ok_or("the model calls the tool")?;

    // The program keeps only the tool call. Without the reasoning, the provider would reject the
    // request.
    let result = json!({ "type": "tool_result", "tool_use_id": call["id"], "content": "21 °C" });
    messages.push(json!({ "role": "assistant", "content": [call] }));
    messages.push(json!({ "role": "user", "content": [result] }));
    let (sent, _) = chat.send(&request(&messages)).await?;

    let is_equal = sent.pointer("/messages/1/content/0") == Some(thinking);
    println!("the thinking block was restored bit for bit: {is_equal}");
    println!("the provider verified it: {}", env.simulator.ledger().all_verified());
    Ok(())
}
