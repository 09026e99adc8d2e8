//! Expands requests that continue a previous response, and serves operations on responses by id.

use bytes::Bytes;
use throughline_core::{Request, Wire};
use throughline_json::Name;

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::ReplayMode;
use crate::gateway::compaction::CompactionForm;
use crate::gateway::dialect::ResponseOp;
use crate::gateway::exchange::Exchange;
use crate::object::object;
use crate::response::GatewayResponse;
use throughline_replay::{
    Claims, InputItemsQuery, Lookup, PREVIOUS_RESPONSE_ID, StoreOptions, StoredResponse,
};

/// The response that a request continues.
pub(crate) enum PreviousResponse {
    /// No previous response: the request contains the complete conversation.
    Nothing,
    /// The gateway stores the response. The request is expanded to the complete conversation.
    From(Box<StoredResponse>, Bytes),
    /// The gateway does not store the response. If the caller received the response from the
    /// provider, the provider may still store it.
    Unknown(Name),
}

impl PreviousResponse {
    /// Returns the request to send on this wire; `None` if it equals the received request.
    pub(crate) fn request_for(
        &self,
        wire: &Wire,
    ) -> GatewayResult<Option<(&StoredResponse, &Bytes)>> {
        match self {
            PreviousResponse::Nothing => Ok(None),
            PreviousResponse::From(stored, expanded) => Ok(Some((stored, expanded))),
            PreviousResponse::Unknown(_) if *wire == Wire::OPENAI_RESPONSES => Ok(None),
            PreviousResponse::Unknown(id) => Err(previous_not_found(id)),
        }
    }
}

impl Exchange<'_> {
    /// Returns another provider's response with the request fields added that OpenAI echoes in its
    /// responses.
    pub(crate) fn with_request_echo(&self, response: Bytes, request: &Request) -> Bytes {
        if self.wire != Wire::OPENAI_RESPONSES {
            return response;
        }
        let echoed = throughline_replay::echoed(&response, &request.body);
        echoed.map_or(response, |echoed| echoed.bytes().clone())
    }

    /// Returns the response that a request continues, and notes in the record whether the new
    /// response is stored.
    pub(crate) async fn find_previous(&self, request: &Request) -> GatewayResult<PreviousResponse> {
        if self.wire != Wire::OPENAI_RESPONSES {
            return Ok(PreviousResponse::Nothing);
        }
        let options = self.body.as_ref().map(StoreOptions::from_body).unwrap_or_default();
        if self.gateway.mode == ReplayMode::Off {
            // The gateway's ids are never sent to a provider, whatever the mode.
            let ours = options.previous.filter(|id| Claims::has_response_format(id));
            return ours.map_or(Ok(PreviousResponse::Nothing), |id| Err(previous_not_found(&id)));
        }
        let is_endpoint = self.compaction == Some(CompactionForm::Endpoint);
        self.scope.record().keeps_response = options.keeps && !is_endpoint;
        let Some(id) = options.previous else { return Ok(PreviousResponse::Nothing) };
        let replay = &self.gateway.replay;
        let tenants = self.readable_tenants();
        let stored = match throughline_replay::find_response(replay, &tenants, &id).await? {
            Lookup::Here(stored) if stored.belongs_to(self.end_user.as_deref()) => stored,
            Lookup::Unknown if !Claims::has_response_format(&id) => {
                return Ok(PreviousResponse::Unknown(id));
            }
            Lookup::Here(_) | Lookup::Gone | Lookup::Unknown => {
                return Err(previous_not_found(&id));
            }
        };
        let expanded = stored.unfolded(replay, &request.body).await;
        let expanded = expanded.ok_or_else(|| previous_not_found(&id))?;
        self.scope.record().texts.expanded = expanded.clone();
        Ok(PreviousResponse::From(stored, expanded))
    }

    /// Serves an operation on a response by its id. If the gateway does not store the response, the
    /// provider may store it.
    pub(crate) async fn serve_response_op(
        &self,
        id: &str,
        operation: ResponseOp,
        method: &str,
        request: Request,
    ) -> GatewayResult {
        let replay = &self.gateway.replay;
        // If the caller names an end user, responses of other end users are not found.
        let user = self.caller.end_user.as_deref();
        let tenants = self.readable_tenants();
        let stored = match throughline_replay::find_response(replay, &tenants, id).await? {
            Lookup::Here(stored) if user.is_none() || stored.belongs_to(user) => stored,
            Lookup::Unknown
                if !Claims::has_response_format(id)
                    && self.gateway.directory.of_wire(&self.wire).is_some() =>
            {
                return self.forward_other(method, request).await;
            }
            Lookup::Here(_) | Lookup::Gone | Lookup::Unknown => return Err(response_not_found(id)),
        };
        let body = match operation {
            ResponseOp::Itself => stored.response(),
            ResponseOp::Input => {
                let query = request.path.split_once('?').map_or("", |(_, query)| query);
                let listing = InputItemsQuery::of(query)
                    .map_err(|problem| GatewayError::new(400, problem))?;
                let input = stored.input(replay).await;
                input.map(|input| throughline_replay::list_items(&stored.node, &input, &listing))
            }
            ResponseOp::Deletion => {
                let log = throughline_replay::response_log(&stored.node);
                replay.store().forget_run(&stored.tenant, &log).await?;
                Some(object! { "id": id, "object": "response", "deleted": true })
            }
        };
        body.map(|body| GatewayResponse::json(200, &body)).ok_or_else(|| response_not_found(id))
    }
}

/// Returns OpenAI's error for a previous response that does not exist.
pub(crate) fn previous_not_found(id: &str) -> GatewayError {
    let message = format!("Previous response with id '{id}' not found.");
    let code = Some((PREVIOUS_RESPONSE_ID, "previous_response_not_found"));
    GatewayError { code, ..GatewayError::new(404, message) }
}

fn response_not_found(id: &str) -> GatewayError {
    GatewayError::new(404, format!("Response with id '{id}' not found."))
}
