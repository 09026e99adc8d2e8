//! Posts JSON messages to a URL from a bounded queue, with a bounded number of attempts.

use bytes::Bytes;
use throughline_json::Json;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::deliver::with_retries;
use crate::sink::{InvalidSink, PostTarget, SinkError};

/// Maximum number of messages that wait for delivery. Further messages are dropped.
const QUEUE: usize = 256;

/// Posts JSON messages to one URL. Each message is tried at most four times. All attempts have the
/// same `idempotency-key`.
pub struct Webhook(Sender<Bytes>);

impl Webhook {
    /// Checks the URL and starts the task that delivers messages. `on_failure` receives the error
    /// of each message that was not delivered. The error contains neither the URL nor the message.
    pub fn start(
        url: &str,
        on_failure: impl Fn(&SinkError) + Send + 'static,
    ) -> Result<Self, InvalidSink> {
        let target = PostTarget::new(url, &[])?;
        let (queue, messages) = channel(QUEUE);
        tokio::spawn(deliver_all(target, messages, on_failure));
        Ok(Self(queue))
    }

    /// Queues a message. Returns `false` if the queue is full.
    pub fn send(&self, message: &Json) -> bool {
        self.0.try_send(message.bytes().clone()).is_ok()
    }
}

async fn deliver_all(
    target: PostTarget,
    mut messages: Receiver<Bytes>,
    on_failure: impl Fn(&SinkError),
) {
    while let Some(message) = messages.recv().await {
        let key = blake3::hash(&message).to_hex().to_string();
        let attempt = || target.send("application/json", Some(key.clone()), message.to_vec());
        if let Err(error) = with_retries(attempt).await {
            on_failure(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::{Arc, Mutex};

    use throughline_json::object;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers requests with these statuses, one per connection, and returns the requests.
    async fn receive(listener: TcpListener, statuses: &[&str]) -> Vec<String> {
        let mut requests = Vec::new();
        for status in statuses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = Vec::new();
            while !read.ends_with(b"}") {
                assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
            }
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            requests.push(String::from_utf8(read).unwrap());
        }
        requests
    }

    #[tokio::test]
    async fn message_is_repeated_with_the_same_key() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/alert", listener.local_addr().unwrap());
        let webhook = Webhook::start(&url, |error| panic!("{error}")).unwrap();
        assert!(webhook.send(&object(|o| {
            o.string("type", "test");
        })));
        let requests = receive(listener, &["503 Busy", "200 OK"]).await;
        let key = |request: &String| {
            let line = request.lines().find(|line| line.starts_with("idempotency-key: "));
            line.unwrap().to_owned()
        };
        assert!(
            requests[0].starts_with("POST /alert ") && requests[0].ends_with(r#"{"type":"test"}"#)
        );
        assert_eq!(key(&requests[0]), key(&requests[1]));
    }

    #[tokio::test]
    async fn failed_message_is_reported_after_four_attempts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/alert?token=secret", listener.local_addr().unwrap());
        let (failed, mut failures) = channel::<String>(1);
        let webhook = Webhook::start(&url, move |error| {
            failed.try_send(error.to_string()).unwrap();
        });
        assert!(webhook.unwrap().send(&object(|_| {})));
        let requests = receive(listener, &["500 No"; 4]).await;
        assert_eq!(requests.len(), 4);
        let error = failures.recv().await.unwrap();
        assert!(error.contains("500") && !error.contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn invalid_url_is_rejected() {
        let errors = Arc::new(Mutex::new(0));
        assert!(
            Webhook::start("ftp://example.com", move |_| *errors.lock().unwrap() += 1).is_err()
        );
    }
}
