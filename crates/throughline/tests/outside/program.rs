//! A program in another workspace. It sends two requests with its own HTTP client, and omits the
//! first response's reasoning from the second request. `throughline::replay` captures the reasoning
//! and restores it.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use throughline::codec::Catalog;
use throughline::json::{Node, Tree};
use throughline::replay::{self, Replay};
use throughline::{Request, Target, Tenant, store};

fn post(address: &str, path: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nhost: {address}\r\nx-api-key: none\r\n\
         anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let end_of_head = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end_of_head = end_of_head.ok_or(io::ErrorKind::InvalidData)?;
    Ok(response.split_off(end_of_head + 4))
}

/// Sends the messages. Returns the request body after reasoning was restored in it, and the
/// response.
async fn send(
    address: &str,
    replay: &Replay,
    target: &Target,
    messages: &str,
) -> Result<(Tree, Tree), Box<dyn Error>> {
    let body = format!(
        r#"{{"model":"claude-sonnet-5-5","max_tokens":4096,"messages":[{messages}],
        "tools":[{{"name":"weather","input_schema":{{"type":"object"}}}}]}}"#
    );
    let request = Request { path: "/v1/messages".into(), headers: Vec::new(), body: body.into() };
    let restored = replay.restore_request(&Tenant::from("us"), None, target, &request).await?;
    let sent = &restored.encoded.request;
    let answer = post(address, &sent.path, &sent.body)?.into();
    replay.capture_response(&restored, &answer).await?;
    Ok((Tree::parse(sent.body.clone())?, Tree::parse(answer)?))
}

/// Returns the first content block with the type `kind`.
fn block<'t>(message: Node<'t>, kind: &str) -> Option<Node<'t>> {
    let is_kind = |block: &Node<'_>| block.get("type").is_some_and(|found| found.is(kind));
    message.get("content")?.elements().find(is_kind)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, store_url] = &*arguments else { return Err("usage: ADDRESS STORE_URL".into()) };
    let store = store::open(store_url, &store::Options::default()).await?;
    let replay = replay::engine(&store);
    let target = Catalog::builtin().target_for("anthropic", "claude-sonnet-5-5", "work")?;

    let question = r#"{"role":"user","content":"Is it warm in Paris?"}"#;
    let (_, answer) = send(address, &replay, &target, question).await?;
    let thinking = block(answer.root(), "thinking").ok_or("the model thinks")?;
    let call = block(answer.root(), "tool_use").ok_or("the model calls the tool")?;

    let (id, call) = (call.text_of("id").ok_or("a call has an id")?, call.json());
    let messages = format!(
        r#"{question},{{"role":"assistant","content":[{}]}},{{"role":"user","content":
        [{{"type":"tool_result","tool_use_id":"{id}","content":"21 °C"}}]}}"#,
        call.as_str()
    );
    let (sent, answer) = send(address, &replay, &target, &messages).await?;
    let restored = sent.root().at("/messages/1").and_then(|turn| block(turn, "thinking"));
    let is_equal = restored.is_some_and(|restored| restored.raw() == thinking.raw());
    println!("restored bit for bit: {is_equal}");
    println!("stop reason: {}", answer.root().text_of("stop_reason").unwrap_or_default());
    store.close().await?;
    Ok(())
}
