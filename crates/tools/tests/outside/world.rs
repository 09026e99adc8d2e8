//! Test servers, and helpers that call their tools.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use throughline_agent::{Tool, ToolAnswer, ToolContext};
use throughline_core::Part;
use throughline_json::Json;
use throughline_tools::{McpConfig, McpServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(crate) const SECRET: &str = "sk-do-not-tell-anyone";

fn script() -> String {
    format!("{}/tests/outside/server.py", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of the Python interpreter itself. The `python3` in `PATH` may be a wrapper
/// script that sets environment variables.
pub(crate) fn python() -> String {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let stdout = output.expect("the tests need python3").stdout;
    String::from_utf8(stdout).unwrap().trim().to_owned()
}

/// Declares the test server as a child process.
pub(crate) fn process() -> McpConfig {
    let env = [("API_KEY", SECRET)];
    McpConfig::process("outside", python(), [script().as_str(), "stdio"], env)
}

pub(crate) async fn spawned() -> McpServer {
    McpServer::open(process()).await.unwrap()
}

/// The test server over HTTP. The process is killed on drop.
pub(crate) struct Endpoint {
    process: Child,
    pub(crate) port: u16,
}

impl Endpoint {
    /// Starts the test server on this port; 0 selects a free port.
    pub(crate) fn start(port: u16) -> Self {
        let mut command = Command::new(python());
        command.args([script().as_str(), "http", &port.to_string()]).env("API_KEY", SECRET);
        let process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = process.expect("the tests need python3");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().unwrap() }
    }

    pub(crate) fn config(&self) -> McpConfig {
        let authorization = format!("Bearer {SECRET}");
        let url = format!("http://127.0.0.1:{}/mcp", self.port);
        McpConfig::http("outside", url, [("Authorization", authorization.as_str())])
    }

    /// Waits until the server process exits by itself.
    pub(crate) fn wait_for_exit(mut self) {
        self.process.wait().unwrap();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

pub(crate) fn named(tools: &[Arc<dyn Tool>], name: &str) -> Arc<dyn Tool> {
    let found = tools.iter().find(|tool| &*tool.spec().name == name);
    Arc::clone(found.unwrap_or_else(|| panic!("there is no {name}")))
}

/// Creates a tool context and a receiver for its progress messages.
pub(crate) fn tool_context() -> (ToolContext, mpsc::UnboundedReceiver<String>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let tool_context = ToolContext {
        run: "run_1".into(),
        call: "call_1".into(),
        agent: "assistant".into(),
        ctx: Arc::default(),
        progress: Arc::new(move |text: &str| drop(sender.send(text.to_owned()))),
    };
    (tool_context, receiver)
}

/// Runs a tool and ignores its progress messages.
pub(crate) async fn run(tool: &dyn Tool, args: &str) -> ToolAnswer {
    tool.run(&json(args), &tool_context().0).await
}

pub(crate) fn texts(answer: &ToolAnswer) -> Vec<&str> {
    let texts = answer.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        _ => None,
    });
    texts.collect()
}

/// How the raw server reacts to a request.
pub(crate) enum Reaction {
    Responds(Vec<u8>),
    /// Writes this text, then keeps the connection open without finishing the response.
    Stalls(&'static str),
    /// Writes this text, then closes the connection.
    Breaks(&'static str),
}

/// Builds a complete HTTP response.
pub(crate) fn reply(status: &str, kind: &str, body: impl AsRef<[u8]>) -> Reaction {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Reaction::Responds([head.as_bytes(), body].concat())
}

pub(crate) fn redirect(status: &str, to: &str) -> Reaction {
    Reaction::Responds(
        format!("HTTP/1.1 {status}\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes(),
    )
}

/// A raw socket server that writes scripted responses and records requests.
pub(crate) struct RawServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl RawServer {
    pub(crate) async fn start(handler: impl Fn(&str) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, handler) = (Arc::clone(&requests), Arc::new(handler));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (recorded, handler) = (Arc::clone(&recorded), Arc::clone(&handler));
                tokio::spawn(async move { serve(socket, &recorded, &*handler).await });
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut socket: TcpStream,
    recorded: &Mutex<Vec<String>>,
    handler: &(impl Fn(&str) -> Reaction + Sync),
) {
    while let Some(request) = request(&mut socket).await {
        recorded.lock().unwrap().push(request.clone());
        match handler(&request) {
            Reaction::Responds(bytes) => {
                if socket.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Reaction::Stalls(text) => {
                drop(socket.write_all(text.as_bytes()).await);
                std::future::pending::<()>().await;
            }
            Reaction::Breaks(text) => return drop(socket.write_all(text.as_bytes()).await),
        }
    }
}

/// Reads the head and the body of the next request on a connection.
async fn request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(length @ 1..) => bytes.extend_from_slice(&piece[..length]),
            _ => return None,
        }
    }
}
