//! Traces over HTTP: the session's JSON, as one document or piece by piece.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use throughline_core::{Credential, Name};
use throughline_tools::client as web;

use crate::session::Parcel;
use crate::sink::{Again, InvalidSink, Sink, SinkError, Taking};

/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(8);

/// Posts parcels as JSON.
pub struct HttpSink {
    name: Name,
    post: Post,
}

impl HttpSink {
    /// A sink at that address, with these headers.
    pub fn new(name: Name, url: &str, headers: &[(Name, Credential)]) -> Result<Self, InvalidSink> {
        Ok(Self { name, post: Post::new(url, headers)? })
    }
}

impl Sink for HttpSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn take<'a>(&'a self, parcel: &'a Parcel) -> Taking<'a> {
        let body = parcel.json().bytes().to_vec();
        Box::pin(self.post.send("application/json", Some(parcel.key()), body))
    }
}

/// An address that things are posted to.
pub(super) struct Post {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Post {
    pub(super) fn new(url: &str, headers: &[(Name, Credential)]) -> Result<Self, InvalidSink> {
        let url = Url::parse(url).map_err(|error| InvalidSink(error.to_string()))?;
        web::check(&url).map_err(|problem| InvalidSink(format!("its address {problem}")))?;
        let headers = web::headers(headers).map_err(InvalidSink)?;
        let client = web::client().map_err(InvalidSink)?;
        Ok(Self { client, url, headers })
    }

    /// Posts a body once.
    pub(super) async fn send(
        &self,
        kind: &'static str,
        key: Option<String>,
        body: Vec<u8>,
    ) -> Result<(), SinkError> {
        let mut request = self.client.post(self.url.clone()).timeout(PATIENCE);
        request = request.headers(self.headers.clone()).header(CONTENT_TYPE, kind).body(body);
        if let Some(key) = key {
            // Whoever gets it twice, because our own patience ended first, can tell.
            request = request.header("idempotency-key", key);
        }
        match request.send().await {
            Ok(answer) => heard(&answer),
            Err(error) => Err(SinkError::passing(web::told(&error))),
        }
    }
}

fn heard(answer: &Response) -> Result<(), SinkError> {
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
        (false, _) => Again::Never,
        (true, None) => Again::Soon,
        (true, Some(after)) => Again::After(after),
    };
    Err(SinkError { message: format!("HTTP {status}"), again })
}
