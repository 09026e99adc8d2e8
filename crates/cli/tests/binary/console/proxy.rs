//! A proxy in front of the gateway, and a model that streams on command. The test can cut the
//! proxy's connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

/// Forwards connections to the gateway until the test cuts them.
pub(crate) struct Proxy {
    pub(crate) address: String,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(crate) fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_cut, open) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let (cut, all, target) = (Arc::clone(&is_cut), Arc::clone(&open), target.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if cut.load(Ordering::SeqCst) {
                    drop(client.shutdown(Shutdown::Both));
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let mut open = all.lock().unwrap();
                open.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                for (from, to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server.try_clone().unwrap(), client.try_clone().unwrap()),
                ] {
                    thread::spawn(move || pass(from, to));
                }
            }
        });
        Self { address, is_cut, open }
    }

    /// Closes all connections and refuses further connections.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    pub(crate) fn restore(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    drop(std::io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Both));
}

/// A model on the `openai-chat` wire that streams a piece whenever the test requests one.
pub(crate) struct ManualModel {
    pub(crate) url: String,
    pieces: Sender<ModelPiece>,
}

/// A piece of the response that the test makes the model stream.
pub(crate) enum ModelPiece {
    Thought(String),
    Text(String),
    End,
}

impl ManualModel {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, receiver) = channel();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                answer(stream, &receiver);
            }
        });
        Self { url, pieces: sender }
    }

    pub(crate) fn send(&self, piece: ModelPiece) {
        self.pieces.send(piece).unwrap();
    }
}

/// Streams the response to one request, piece by piece. This provider has no list of models.
fn answer(mut stream: TcpStream, pieces: &Receiver<ModelPiece>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    drop(reader.read_line(&mut line));
    if line.starts_with("GET ") {
        let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        drop(stream.write_all(missing.as_bytes()));
        return;
    }
    line.clear();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    drop(stream.write_all(head.as_bytes()));
    for piece in pieces {
        let (delta, finish) = match piece {
            ModelPiece::Thought(text) => (json!({ "reasoning_content": text }), json!(null)),
            ModelPiece::Text(text) => (json!({ "content": text }), json!(null)),
            ModelPiece::End => (json!({}), json!("stop")),
        };
        let is_end = !finish.is_null();
        let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "deepseek-chat",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        drop(stream.write_all(format!("data: {chunk}\n\n").as_bytes()));
        if is_end {
            let usage = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "deepseek-chat",
                "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140}});
            drop(stream.write_all(format!("data: {usage}\n\ndata: [DONE]\n\n").as_bytes()));
            return;
        }
    }
}
