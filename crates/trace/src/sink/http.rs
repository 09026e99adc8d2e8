//! Posts traces as JSON over HTTP, each as one document or in batches.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use throughline_core::Credential;
use throughline_json::Name;
use throughline_tools::client as web;

use crate::session::TraceBatch;
use crate::sink::{InvalidSink, Retry, SendFuture, Sink, SinkError};

const PATIENCE: Duration = Duration::from_secs(8);

/// Posts each batch to one URL as a JSON document.
pub struct HttpSink {
    name: Name,
    post: PostTarget,
}

impl HttpSink {
    /// Creates a sink that posts to `url` and sends `headers` with every request.
    pub fn new(name: Name, url: &str, headers: &[(Name, Credential)]) -> Result<Self, InvalidSink> {
        Ok(Self { name, post: PostTarget::new(url, headers)? })
    }
}

impl Sink for HttpSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn send<'a>(&'a self, batch: &'a TraceBatch) -> SendFuture<'a> {
        let body = batch.to_json().bytes().to_vec();
        Box::pin(self.post.send("application/json", Some(batch.key()), body))
    }
}

/// A URL for POST requests, with its client and headers.
pub(crate) struct PostTarget {
    client: Client,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
}

impl PostTarget {
    pub(crate) fn new(url: &str, headers: &[(Name, Credential)]) -> Result<Self, InvalidSink> {
        let url = web::parse(url).map_err(|problem| InvalidSink(format!("`url` {problem}")))?;
        let headers = web::headers(headers)
            .map_err(|problem| InvalidSink(format!("the configuration {problem}")))?;
        let client = web::client().map_err(InvalidSink)?;
        Ok(Self { client, url, headers, timeout: PATIENCE })
    }

    /// Sets the timeout of one request, if there is one.
    pub(super) fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout.unwrap_or(self.timeout);
        self
    }

    pub(crate) async fn send(
        &self,
        kind: &'static str,
        key: Option<String>,
        body: Vec<u8>,
    ) -> Result<(), SinkError> {
        let mut request = self.client.post(self.url.clone()).timeout(self.timeout);
        request = request.headers(self.headers.clone()).header(CONTENT_TYPE, kind).body(body);
        if let Some(key) = key {
            // After a timeout, the retry repeats a batch that may have arrived. The key lets the
            // receiver detect the duplicate.
            request = request.header("idempotency-key", key);
        }
        match request.send().await {
            Ok(answer) => check_response(&answer),
            Err(error) => Err(SinkError::temporary(web::error_message(&error))),
        }
    }
}

fn check_response(answer: &Response) -> Result<(), SinkError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let may_pass = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
    let after = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok());
    let after = after.and_then(|after| after.trim().parse().ok()).map(Duration::from_secs);
    let again = match (may_pass, after) {
        (false, _) => Retry::Never,
        (true, None) => Retry::Soon,
        (true, Some(after)) => Retry::After(after),
    };
    Err(SinkError { message: format!("HTTP {status}"), again })
}
