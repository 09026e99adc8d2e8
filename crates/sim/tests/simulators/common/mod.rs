//! A small HTTP client for tests, which sends each request over a new connection.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use throughline_sim::{Options, Simulator, start};
use tokio::net::TcpStream;

pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether the connection closed before the end of the body.
    pub(crate) was_cut: bool,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the data of all server-sent events as JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).expect("an event is JSON"))
            .collect()
    }

    /// Asserts status 200 and returns the body.
    #[track_caller]
    pub(crate) fn expect_ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// Asserts the status and returns the error message from the provider's error body.
    #[track_caller]
    pub(crate) fn expect_error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        let body = self.json();
        let pointers = ["/error/message", "/message"];
        let message = pointers.iter().find_map(|pointer| body.pointer(pointer)?.as_str());
        message.unwrap_or_else(|| panic!("no error message in {body}")).to_owned()
    }
}

pub(crate) async fn simulator() -> Simulator {
    start(Options::default()).await.expect("a port is free")
}

/// Posts a body with these headers, which include the API key.
pub(crate) async fn post(
    simulator: &Simulator,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> HttpResponse {
    send(simulator, "POST", path, headers, body.to_string().into_bytes()).await
}

pub(crate) async fn get(
    simulator: &Simulator,
    path: &str,
    headers: &[(&str, &str)],
) -> HttpResponse {
    send(simulator, "GET", path, headers, Vec::new()).await
}

pub(crate) async fn send(
    simulator: &Simulator,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> HttpResponse {
    let stream = TcpStream::connect(simulator.address()).await.expect("the simulator listens");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("the handshake succeeds");
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "simulator")
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).expect("the request is valid");
    let exchange = async {
        let response = sender.send_request(request).await.expect("the response starts");
        let (parts, mut incoming) = response.into_parts();
        let (mut body, mut was_cut) = (Vec::new(), false);
        while let Some(frame) = incoming.frame().await {
            match frame {
                Ok(frame) => body.extend(frame.into_data().unwrap_or_default()),
                Err(_) => {
                    was_cut = true;
                    break;
                }
            }
        }
        HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body, was_cut }
    };
    tokio::pin!(exchange);
    // Drive the connection while the exchange is pending. The connection may close first.
    tokio::select! {
        answer = &mut exchange => answer,
        _ = connection => exchange.await,
    }
}
