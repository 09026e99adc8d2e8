//! Builds responses from serialized types and from channels, and declares schemas for fields stored
//! as JSON.

use std::borrow::Cow;

use bytes::Bytes;
use futures_util::stream;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use throughline_json::Name;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::object::to_json;
use crate::records::StoreResult;
use crate::response::{GatewayResponse, ResponseBody, StreamAborted};

/// Returns a response with status 200 and this body.
pub(crate) fn json_response(body: &impl Serialize) -> GatewayResponse {
    GatewayResponse::json(200, &to_json(body))
}

/// The sending side of a streamed response.
pub(crate) type ChunkSender = Sender<Result<Bytes, StreamAborted>>;

/// Returns a response with status 200 whose body is sent by a task. If the task fails, the
/// connection breaks, so that the client does not mistake a partial response for a complete one.
/// The task must end when its client disconnects.
pub(crate) fn stream_response<F>(
    headers: [(&str, &str); 2],
    capacity: usize,
    task: impl FnOnce(ChunkSender) -> F,
) -> GatewayResponse
where
    F: Future<Output = StoreResult<()>> + Send + 'static,
{
    let (sender, receiver) = channel(capacity);
    let sending = task(sender.clone());
    tokio::spawn(async move {
        if let Err(error) = sending.await {
            drop(sender.send(Err(StreamAborted(error.to_string()))).await);
        }
    });
    let chunks = stream::unfold(receiver, |mut receiver: Receiver<_>| async move {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    });
    let headers = headers.map(|(name, value)| (Name::from(name), Name::from(value)));
    let body = ResponseBody::Stream(Box::pin(chunks));
    GatewayResponse { status: 200, headers: headers.into(), body }
}

/// Returns a reference to a named schema in the `OpenAPI` document.
pub(crate) fn schema_ref(name: &str) -> Schema {
    Schema::new_ref(format!("#/components/schemas/{name}"))
}

/// Declares schema-only types for fields that are stored as serialized JSON.
macro_rules! schema_types {
    ($($(#[$doc:meta])* $type:ident = $schema:expr;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $type;

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )* };
}

schema_types! {
    /// Any JSON object.
    AnyObject = json_schema!({ "type": "object" });
    /// Any JSON value.
    AnyValue = json_schema!({});
    /// A documented type, whose schema the `OpenAPI` document contains under its own name.
    ReflectionRef = schema_ref("ReflectionRecord");
    /// See [`ReflectionRef`].
    RunEventRef = schema_ref("RunEvent");
    /// See [`ReflectionRef`].
    SmartStateRef = schema_ref("SmartState");
    /// The frame with the stop reason of a run.
    StopReasonRef = schema_ref("stop_reason");
    /// The frame with the usage of a run.
    UsageRef = schema_ref("usage_statistics");
}

/// A run as one document that can be restored elsewhere.
#[derive(JsonSchema)]
#[schemars(rename = "Snapshot")]
#[expect(dead_code, reason = "the agent crate writes the document")]
pub(crate) struct SnapshotDocument {
    version: AnyValue,
    state: SmartStateRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<AnyObject>,
}

/// The JSON Schema of a document.
#[derive(JsonSchema)]
#[schemars(rename = "Schema")]
#[expect(dead_code, reason = "the core crate writes the document")]
pub(crate) struct SchemaDocument {
    #[serde(rename = "$schema")]
    schema: String,
    title: String,
}
