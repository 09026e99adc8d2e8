//! Answers requests that only prepare a conversation (`generate: false`), without a model call.

use throughline_core::Request;
use throughline_json::Json;
use throughline_replay::Claims;

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::exchange::Exchange;
use crate::object::object;
use crate::response::GatewayResponse;

impl Exchange<'_> {
    /// Returns a response without output. The model, the budget and `previous_response_id` are
    /// checked as for a model call; the input is checked with the request that continues it. The
    /// caller holds the conversation under the id of the response.
    pub(crate) async fn warm_up(&self, request: &Request) -> GatewayResult {
        let model = self.requested_model(request)?;
        self.scope.record().set_requested_model(model);
        let targets = self.reach(model).await?;
        self.gateway.operations.meter.check_allowance(&self.caller.admission, &targets).await?;
        let previous = self.find_previous(request).await?;
        if let Some(target) = targets.first() {
            previous.request_for(&target.provider.wire)?;
        }
        let node =
            Claims::new_turn_id().map_err(|error| GatewayError::new(500, error.to_string()))?;
        let id = self.gateway.replay.claims().response_id(&self.caller.tenant, &node);
        let absent = None::<&str>;
        let usage = object! {
            "input_tokens": 0, "input_tokens_details": object! { "cached_tokens": 0 },
            "output_tokens": 0, "output_tokens_details": object! { "reasoning_tokens": 0 },
            "total_tokens": 0,
        };
        let response = object! {
            "id": id, "object": "response", "created_at": unix_seconds(), "status": "completed", "error": absent,
            "incomplete_details": absent, "model": model, "output": Vec::<Json>::new(),
            "usage": usage,
        };
        let body = self.with_request_echo(response.bytes().clone(), request);
        Ok(GatewayResponse::text("application/json", body))
    }
}

/// Returns the current time, as OpenAI's responses state it.
#[expect(clippy::disallowed_methods, reason = "a response states the time of the machine")]
fn unix_seconds() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}
