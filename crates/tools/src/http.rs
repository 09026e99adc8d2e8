//! HTTP tools: each call sends one HTTP request, built from the tool's declaration.
//!
//! The model supplies only arguments. Scheme, host and headers always come from the declaration.

mod template;

use std::ops::RangeInclusive;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, Url};
use throughline_agent::{Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec};
use throughline_core::{Credential, Outcome};
use throughline_json::{self as json, Json, Name, Node, Tree};
use tokio::time::timeout;

use crate::answer::{self, Parts};
use crate::client;
use crate::http::template::Template;
use crate::name;
use crate::secret::{Mask, without_query};

/// How the request body is built from the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpBody {
    /// The request has no body.
    #[default]
    None,
    /// All arguments that are not in the URL, encoded as a JSON object.
    Json,
    /// All arguments that are not in the URL, encoded as a form.
    Form,
    /// The value of this argument: a string as plain text, any other value as JSON.
    Argument(Name),
}

/// Declaration of an HTTP tool.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Specification of the tool. If it has no schema, one is derived that declares each argument
    /// named in the URL, `query` and `body` as a string.
    pub spec: ToolSpec,
    /// HTTP method, such as `GET`.
    pub method: Name,
    /// URL with `{argument}` placeholders in its path or query.
    pub url: String,
    /// Names of optional arguments that are added to the query.
    pub query: Vec<Name>,
    /// Headers sent with every request.
    pub headers: Vec<(Name, Credential)>,
    /// How the request body is built from the arguments.
    pub body: HttpBody,
    /// Status codes that count as errors. A redirect that is not followed always counts as an
    /// error.
    pub errors: Vec<RangeInclusive<u16>>,
    /// Time to wait for the complete response.
    pub timeout: Duration,
    /// Maximum size of a result in bytes; longer results are truncated.
    pub largest_answer: usize,
}

impl HttpConfig {
    /// Declares a GET request, which is idempotent.
    pub fn get(name: impl Into<Name>, url: impl Into<String>) -> Self {
        Self::new(ToolSpec::new(name).idempotent(), "GET", url)
    }

    /// Declares a POST request that sends its arguments as a JSON body.
    pub fn post(name: impl Into<Name>, url: impl Into<String>) -> Self {
        Self { body: HttpBody::Json, ..Self::new(ToolSpec::new(name), "POST", url) }
    }

    /// Declares a request with this method and no body.
    pub fn new(spec: ToolSpec, method: impl Into<Name>, url: impl Into<String>) -> Self {
        Self {
            spec,
            method: method.into(),
            url: url.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: HttpBody::None,
            errors: vec![400..=599],
            timeout: Duration::from_secs(30),
            largest_answer: 1 << 20,
        }
    }
}

impl std::fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpConfig")
            .field("spec", &self.spec)
            .field("method", &self.method)
            .field("url", &without_query(&self.url))
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// Error for an invalid field in the declaration of an HTTP tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool `{tool}`: `{member}` {reason}")]
pub struct InvalidTool {
    /// Name of the tool whose declaration is invalid.
    pub tool: Name,
    /// Name of the invalid field, such as `url`.
    pub member: &'static str,
    /// Error text and suggested fix, printed after the field's name.
    pub reason: String,
}

/// A tool that sends one HTTP request per call.
pub struct HttpTool {
    config: HttpConfig,
    method: Method,
    template: Template,
    headers: HeaderMap,
    mask: Mask,
    client: Client,
}

impl HttpTool {
    /// Validates a declaration and creates the tool.
    pub fn new(mut config: HttpConfig) -> Result<Self, InvalidTool> {
        let tool = config.spec.name.clone();
        let invalid = |member, reason: String| InvalidTool { tool: tool.clone(), member, reason };
        if !name::is_valid(&tool) {
            let reason = "must have at most 64 letters, digits, `_` and `-`, and must not start with a digit or `-`";
            return Err(invalid("name", reason.to_owned()));
        }
        let method = Method::from_bytes(config.method.as_bytes());
        let method = method
            .map_err(|_| invalid("method", "must be an HTTP method, such as GET".to_owned()))?;
        let template = Template::parse(&config.url).map_err(|reason| invalid("url", reason))?;
        let headers =
            client::headers(&config.headers).map_err(|reason| invalid("headers", reason))?;
        let client = client::client().map_err(|reason| invalid("url", reason))?;
        if config.spec.schema.is_none() {
            config.spec.schema = Some(schema(&template, &config));
        }
        let query = config.url.split_once('?').map_or("", |(_, query)| query);
        let values = config.headers.iter().map(|(_, value)| value.reveal());
        let mask = Mask::new(values.chain(query.split(['&', '='])));
        Ok(Self { config, method, template, headers, mask, client })
    }

    async fn call(&self, args: &Json) -> ToolAnswer {
        let tree = args.tree();
        let request = match self.request(&tree) {
            Ok(request) => request,
            Err(reason) => return ToolAnswer::error(reason),
        };
        let limit = self.config.timeout;
        let exchange = async {
            let response = self.client.execute(request).await?;
            self.read_response(response).await
        };
        let (reason, was_not_sent) = match timeout(limit, exchange).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(error)) => {
                let reason = format!("The request failed: {}.", client::error_message(&error));
                (reason, client::was_not_sent(&error))
            }
            Err(_) => (format!("There was no response within {} ms.", limit.as_millis()), false),
        };
        answer::lost_call(&reason, was_not_sent || self.config.spec.idempotent)
    }

    fn request(&self, args: &Tree) -> Result<reqwest::Request, String> {
        let args = args.root();
        let mut url = self.template.fill(args)?;
        let pairs = |name: &Name| Some((name.to_string(), template::text(args.present(name)?)));
        let pairs: Vec<_> = self.config.query.iter().filter_map(pairs).collect();
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let mut request = reqwest::Request::new(self.method.clone(), url);
        *request.headers_mut() = self.headers.clone();
        if let Some((kind, body)) = self.body(args) {
            let headers = request.headers_mut();
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
            *request.body_mut() = Some(body.into());
        }
        Ok(request)
    }

    fn body(&self, args: Node<'_>) -> Option<(&'static str, Vec<u8>)> {
        let remaining = || {
            let named = args.members().filter_map(|(name, value)| Some((name.text()?, value)));
            named.filter(|(name, _)| {
                !self.template.takes(name)
                    && !self.config.query.iter().any(|parameter| **parameter == **name)
            })
        };
        match &self.config.body {
            HttpBody::None => None,
            HttpBody::Json => {
                let body = json::object(|object| {
                    for (name, value) in remaining() {
                        object.node(&name, value);
                    }
                });
                Some(("application/json", body.bytes().to_vec()))
            }
            HttpBody::Form => {
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                let pairs = remaining().filter(|(_, value)| !value.is_null());
                form.extend_pairs(pairs.map(|(name, value)| (name, template::text(value))));
                Some(("application/x-www-form-urlencoded", form.finish().into_bytes()))
            }
            HttpBody::Argument(name) => {
                let value = args.present(name)?;
                let text = "text/plain; charset=utf-8";
                let kind = if value.is_string() { text } else { "application/json" };
                Some((kind, template::text(value).into_bytes()))
            }
        }
    }

    /// Reads the response body up to the size limit and converts it to a tool result.
    async fn read_response(&self, mut response: Response) -> Result<ToolAnswer, reqwest::Error> {
        let status = response.status();
        if status.is_redirection() && response.headers().contains_key(LOCATION) {
            return Ok(ToolAnswer::error(format!("HTTP {status}: {}", redirect_error(&response))));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let kind = kind.to_ascii_lowercase();
        let (mut body, mut is_complete) = (Vec::new(), true);
        while let Some(piece) = response.chunk().await? {
            let room = self.config.largest_answer - body.len();
            body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
            if piece.len() > room {
                is_complete = false;
                break;
            }
        }
        let is_error = self.config.errors.iter().any(|range| range.contains(&status.as_u16()));
        let mut parts = Parts::with_limit(self.config.largest_answer);
        if is_error {
            parts.text(&format!("HTTP {status}"));
        }
        if is_picture_or_document(&kind) && is_complete {
            parts.media(&kind, STANDARD.encode(&body));
        } else if let Some(text) = decode_utf8(&body, is_complete) {
            parts.text(text);
        } else {
            // The request succeeded, even though its response cannot be shown.
            parts.text(&format!(
                "[The response is binary data of type `{kind}`, which cannot be shown.]"
            ));
        }
        if !is_complete {
            parts.mark_truncated();
        }
        Ok(parts.into_answer(if is_error { Outcome::Error } else { Outcome::Ok }))
    }
}

impl Tool for HttpTool {
    fn spec(&self) -> ToolSpec {
        self.config.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, _: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move { answer::mask_errors(self.call(args).await, &self.mask) })
    }
}

impl std::fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HttpTool").field(&self.config).finish()
    }
}

/// Derives a schema for a tool whose declaration contains none.
fn schema(template: &Template, config: &HttpConfig) -> Json {
    let in_body = match &config.body {
        HttpBody::Argument(name) => Some(&**name),
        HttpBody::None | HttpBody::Json | HttpBody::Form => None,
    };
    let required: Vec<&str> = template.arguments().into_iter().chain(in_body).collect();
    let optional = config.query.iter().map(|name| &**name).filter(|name| !required.contains(name));
    let takes_more = matches!(config.body, HttpBody::Json | HttpBody::Form);
    let property = |name: &str| (name.to_owned(), serde_json::json!({"type": "string"}));
    let properties = required.iter().copied().chain(optional).map(property);
    let properties: serde_json::Map<_, _> = properties.collect();
    Json::from(&serde_json::json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": takes_more,
    }))
}

/// Explains why a redirect was not followed.
fn redirect_error(response: &Response) -> String {
    let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
    let to = to.and_then(|to| response.url().join(to).ok());
    match to.as_ref().and_then(Url::host_str) {
        Some(host) if to.as_ref().is_some_and(|to| to.origin() == response.url().origin()) => {
            format!("it redirects too often within {host}.")
        }
        Some(host) => {
            format!("it redirects to {host}, but the tool may contact only its own origin.")
        }
        None => "its redirect location is missing or invalid.".to_owned(),
    }
}

fn is_picture_or_document(kind: &str) -> bool {
    kind == "application/pdf" || kind.starts_with("image/") && kind != "image/svg+xml"
}

/// Decodes the body as UTF-8. If the body was truncated, an incomplete last character is dropped.
fn decode_utf8(body: &[u8], is_complete: bool) -> Option<&str> {
    match std::str::from_utf8(body) {
        Ok(text) => Some(text),
        Err(error) if !is_complete && error.error_len().is_none() => {
            body.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok())
        }
        Err(_) => None,
    }
}
