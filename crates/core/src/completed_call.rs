//! A completed gateway call, as passed to trace exporters.

use std::time::Duration;

use throughline_json::Name;

use crate::reply::Usage;
use crate::trace_parent::TraceParent;

/// One completed gateway call, successful or not.
#[derive(Clone, Debug)]
pub struct CompletedCall {
    /// The trace context of this call's own span.
    pub own: TraceParent,
    /// The caller's span id, if the request had a `traceparent`.
    pub parent: Option<[u8; 8]>,
    /// Time from receiving the request to the end of the response.
    pub took: Duration,
    /// Time from sending the request to the first response byte from the provider.
    pub first_byte: Option<Duration>,
    /// The gateway's call id, if the call was recorded.
    pub call: Option<Name>,
    /// The API dialect of the caller.
    pub dialect: Name,
    /// The name of the provider account that is charged for the call.
    pub provider: Option<Name>,
    /// The catalog's name of the provider that received the request; `None` if none was sent.
    pub system: Option<Name>,
    /// The name of the operation in OpenTelemetry's conventions, such as `chat`.
    pub operation: &'static str,
    /// The URL of the endpoint that received the request; `None` if none was sent.
    pub endpoint: Option<Name>,
    /// The model name in the request.
    pub model: Option<Name>,
    /// The parameters of the request that the provider received.
    pub parameters: RequestParameters,
    /// The model that the response names.
    pub answered: Option<Name>,
    /// The id of the response.
    pub response: Option<Name>,
    /// The reason why the model stopped.
    pub finish_reason: Option<Name>,
    /// Whether the response is a stream.
    pub is_stream: bool,
    /// The HTTP status sent to the client; 0 if no status was sent.
    pub status: u16,
    /// Token usage as reported by the provider.
    pub usage: Option<Usage>,
    /// The numbers of Items and Seals that were kept, restored and elided.
    pub fates: Option<[u64; 3]>,
    /// The audit verdict: `accept`, `degrade` or `refuse`.
    pub audit: Option<&'static str>,
    /// The class of the error in OpenTelemetry's conventions, if the call failed.
    pub error_type: Option<Name>,
    /// The error message, in Throughline's wording.
    pub problem: Option<Name>,
}

/// Parameters of a model request that OpenTelemetry's conventions name. A parameter is `None` if
/// the request does not state it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestParameters {
    /// Maximum number of output tokens.
    pub max_tokens: Option<u64>,
    /// Number of requested answers.
    pub choices: Option<u64>,
    /// Seed of the sampling.
    pub seed: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling threshold.
    pub top_p: Option<f64>,
    /// Number of candidate tokens to sample from.
    pub top_k: Option<f64>,
    /// Penalty for frequent tokens.
    pub frequency_penalty: Option<f64>,
    /// Penalty for tokens that occurred before.
    pub presence_penalty: Option<f64>,
    /// Sequences that end the output.
    pub stop_sequences: Vec<Name>,
    /// The requested type of the output: `text`, `json`, `image` or `speech`.
    pub output_type: Option<&'static str>,
}
