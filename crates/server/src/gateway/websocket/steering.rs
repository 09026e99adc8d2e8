//! Steering: user input that a client adds to a response while the response is generated.
//!
//! The gateway queues the input. If the response ends without tool calls, the gateway starts a
//! successor that continues the response with the queued input. Otherwise the input waits for the
//! request with the tool results.

use std::collections::VecDeque;

use throughline_json::{self as json, Json, Name, Node, object};

use crate::telemetry::MemoryReservation;

/// Maximum number of steering submissions that wait for one response.
const MAX_SUBMISSIONS: usize = 16;
/// Maximum size of all waiting steering input of a socket in bytes.
const MAX_BYTES: usize = 4 << 20;
/// Number of responses that the socket remembers, active or ended.
const MAX_TARGETS: usize = 128;

/// Steering input that was accepted.
pub(super) struct SteerSubmission {
    id: Name,
    /// The response that the input steers.
    target: Name,
    /// The input as the client sent it.
    input: Json,
    /// The input as messages.
    pub(super) messages: Vec<Json>,
    /// The memory that is reserved for the input.
    _memory: Option<MemoryReservation>,
}

/// The responses that a client may steer.
#[derive(Default)]
pub(super) struct Steering {
    targets: VecDeque<SteerTarget>,
    count: u64,
}

struct SteerTarget {
    id: Name,
    lane: Option<Name>,
    phase: SteerPhase,
    waiting: Vec<SteerSubmission>,
    sequence: u64,
}

impl SteerTarget {
    /// Returns which responses are forgotten first: those without a use, then those with the
    /// smallest loss.
    fn removal_order(&self) -> u8 {
        match self.phase {
            SteerPhase::Completed => 0,
            SteerPhase::AwaitsInput(_) if self.waiting.is_empty() => 1,
            SteerPhase::AwaitsInput(_) => 2,
            SteerPhase::Active | SteerPhase::Unsupported => 3,
        }
    }

    /// Returns the events that return the waiting input to the client.
    fn fail(&self, message: &str) -> Vec<Json> {
        let (lane, code) = (self.lane.as_ref(), "response_not_active");
        let events = self.waiting.iter().map(|steer| {
            let id = Some(&*steer.id);
            failure(&steer.target, id, &steer.input, lane, self.sequence, code, message)
        });
        events.collect()
    }
}

enum SteerPhase {
    Active,
    /// The response is bound to a conversation or compacts itself.
    Unsupported,
    /// The response waits for these tool results.
    AwaitsInput(Vec<Json>),
    Completed,
}

/// How a response with steering input continues after its end.
pub(super) enum SteerOutcome {
    Nothing,
    /// These events report that the input waits for tool results.
    Pending(Vec<Json>),
    /// A successor continues the response with this input.
    Successor(Vec<SteerSubmission>),
}

impl Steering {
    /// Records that a response has started. Returns the events that return the input of a response
    /// that the socket no longer remembers.
    pub(super) fn open(&mut self, id: &Name, lane: Option<&Name>, is_supported: bool) -> Vec<Json> {
        let mut events = Vec::new();
        if self.targets.len() >= MAX_TARGETS {
            // Among equals, the oldest is removed.
            let targets = self.targets.iter().enumerate();
            let oldest = targets.min_by_key(|(_, target)| target.removal_order());
            let oldest = oldest.map_or(0, |(index, _)| index);
            if let Some(target) = self.targets.remove(oldest) {
                let message = "too many responses wait for tool results: send the input in \
                               `response.create`";
                events = target.fail(message);
            }
        }
        let phase = if is_supported { SteerPhase::Active } else { SteerPhase::Unsupported };
        let (id, lane) = (id.clone(), lane.cloned());
        self.targets.push_back(SteerTarget { id, lane, phase, waiting: Vec::new(), sequence: 0 });
        events
    }

    /// Records the number of the last event of a response.
    pub(super) fn set_sequence(&mut self, id: &str, sequence: u64) {
        if let Some(target) = self.target(id) {
            target.sequence = sequence;
        }
    }

    /// Handles `response.steer` and returns the events to send.
    pub(super) fn submit(
        &mut self,
        event: Node<'_>,
        memory: Option<MemoryReservation>,
    ) -> Vec<Json> {
        let id = event.name_of("previous_response_id").unwrap_or_default();
        let null = Json::null();
        let input = event.get("input").map_or_else(|| null.clone(), Node::json);
        let known = ["type", "previous_response_id", "input"];
        let unknown = event.members().find(|(name, _)| !known.iter().any(|known| name.is(known)));
        let bytes: usize = self.targets.iter().flat_map(|target| &target.waiting).map(size).sum();
        self.count += 1;
        let number = self.count;
        let Some(target) = self.target(&id) else {
            let message = "no response with this id is active on this connection";
            return vec![failure(&id, None, &input, None, 0, "response_not_found", message)];
        };
        let messages = event.get("input").and_then(messages);
        let refusal = match (&target.phase, &messages) {
            _ if unknown.is_some() => Some((
                "invalid_input",
                "`response.steer` accepts only `type`, `previous_response_id` and `input`",
            )),
            (SteerPhase::Unsupported, _) => Some((
                "steering_not_supported",
                "a response with `conversation` or `context_management` cannot be steered",
            )),
            (SteerPhase::Completed, _) => Some((
                "response_already_completed",
                "the response has ended: send the input in `response.create`",
            )),
            (SteerPhase::Active | SteerPhase::AwaitsInput(_), None) => Some((
                "invalid_input",
                "`input` must be a text or a list of user messages with text, images and files",
            )),
            (SteerPhase::Active | SteerPhase::AwaitsInput(_), Some(_))
                if target.waiting.len() >= MAX_SUBMISSIONS
                    || bytes + input.bytes().len() > MAX_BYTES =>
            {
                Some(("too_many_pending_steers", "too much steering input waits already"))
            }
            (SteerPhase::Active | SteerPhase::AwaitsInput(_), Some(_)) => None,
        };
        let lane = target.lane.clone();
        if let Some((code, message)) = refusal {
            let sequence = target.sequence;
            return vec![failure(&id, None, &input, lane.as_ref(), sequence, code, message)];
        }
        // The event's buffer may be large, so the input is copied out of it.
        let steer = SteerSubmission {
            id: Name::from(format!("steer_{number}")),
            target: id,
            input: input.detached(),
            messages: messages.into_iter().flatten().map(|message| message.detached()).collect(),
            _memory: memory,
        };
        let mut events = vec![json::object(|o| {
            o.string("type", "response.steer.accepted").number("sequence_number", target.sequence);
            o.raw("steer", &object!("id": &*steer.id, "previous_response_id": &*steer.target));
            o.maybe_string("stream_id", target.lane.as_deref());
        })];
        if let SteerPhase::AwaitsInput(required) = &target.phase {
            events.push(pending(&steer, required, target.lane.as_ref(), target.sequence));
        }
        target.waiting.push(steer);
        events
    }

    /// Records that a response has ended. `required` are the tool results that it waits for.
    pub(super) fn finish(&mut self, id: &str, required: Vec<Json>) -> SteerOutcome {
        let Some(target) = self.target(id) else { return SteerOutcome::Nothing };
        if !required.is_empty() && !matches!(target.phase, SteerPhase::Unsupported) {
            let lane = target.lane.as_ref();
            let events = target.waiting.iter();
            let events = events.map(|steer| pending(steer, &required, lane, target.sequence));
            let events: Vec<Json> = events.collect();
            target.phase = SteerPhase::AwaitsInput(required);
            return SteerOutcome::Pending(events);
        }
        target.phase = SteerPhase::Completed;
        let waiting = std::mem::take(&mut target.waiting);
        if waiting.is_empty() {
            return SteerOutcome::Nothing;
        }
        SteerOutcome::Successor(waiting)
    }

    /// Takes the input that waits for the request with the tool results.
    pub(super) fn take_waiting(&mut self, id: &str, lane: Option<&Name>) -> Vec<SteerSubmission> {
        let Some(target) = self.target(id).filter(|target| target.lane.as_ref() == lane) else {
            return Vec::new();
        };
        match target.phase {
            SteerPhase::AwaitsInput(_) => {
                target.phase = SteerPhase::Completed;
                std::mem::take(&mut target.waiting)
            }
            SteerPhase::Active | SteerPhase::Unsupported | SteerPhase::Completed => Vec::new(),
        }
    }

    /// Records that a response failed, and returns the events that return its input to the client.
    pub(super) fn fail(&mut self, id: &str) -> Vec<Json> {
        let Some(target) = self.target(id) else { return Vec::new() };
        target.phase = SteerPhase::Completed;
        let events = target.fail("the response failed: send the input in `response.create`");
        target.waiting = Vec::new();
        events
    }

    fn target(&mut self, id: &str) -> Option<&mut SteerTarget> {
        self.targets.iter_mut().rev().find(|target| &*target.id == id)
    }
}

/// Returns the event that reports that the continuation with this input could not start.
pub(super) fn successor_failed(steer: &SteerSubmission, lane: Option<&Name>) -> Json {
    let message = "the response with this input could not be created";
    let code = "successor_creation_failed";
    failure(&steer.target, Some(&steer.id), &steer.input, lane, 0, code, message)
}

/// Returns the stub of the result that a client must send for an output item; `None` if the item
/// needs no result from the client.
pub(super) fn required_input(item: Node<'_>) -> Option<Json> {
    let kind = item.text_of("type")?;
    let result = match &*kind {
        "function_call" => {
            let (call_id, name) = (item.get("call_id")?, item.get("name")?);
            return Some(object!(
                "type": "function_call_output", "call_id": call_id, "name": name
            ));
        }
        "tool_search_call" => {
            let call_id = item.get("call_id")?;
            let is_clients = item.get("execution").is_some_and(|it| it.is("client"));
            return is_clients.then(
                || object!("type": "tool_search_output", "call_id": call_id, "execution": "client"),
            );
        }
        "mcp_approval_request" => {
            let id = item.get("id")?;
            return Some(object!("type": "mcp_approval_response", "approval_request_id": id));
        }
        "custom_tool_call" => "custom_tool_call_output",
        "computer_call" => "computer_call_output",
        "shell_call" => "shell_call_output",
        "apply_patch_call" => "apply_patch_call_output",
        _ => return None,
    };
    let call_id = item.get("call_id")?;
    Some(object!("type": result, "call_id": call_id))
}

fn size(steer: &SteerSubmission) -> usize {
    steer.input.bytes().len()
}

/// Returns steering input as user messages; `None` if the input is invalid.
fn messages(input: Node<'_>) -> Option<Vec<Json>> {
    if input.is_string() {
        return Some(vec![object!("type": "message", "role": "user", "content": input)]);
    }
    let mut messages = Vec::new();
    for item in input.elements() {
        let is_message = item.get("type").is_none_or(|kind| kind.is("message"));
        let is_user = item.get("role").is_some_and(|role| role.is("user"));
        let content = item.get("content")?;
        let is_part = |part: Node<'_>| {
            let kind = part.text_of("type").unwrap_or_default();
            matches!(&*kind, "input_text" | "input_image" | "input_file")
        };
        let is_content = content.is_string() || content.elements().all(is_part);
        if !(is_message && is_user && is_content) {
            return None;
        }
        messages.push(item.json());
    }
    (!messages.is_empty()).then_some(messages)
}

fn pending(steer: &SteerSubmission, required: &[Json], lane: Option<&Name>, sequence: u64) -> Json {
    json::object(|o| {
        o.string("type", "response.steer.pending").number("sequence_number", sequence);
        o.raw("steer", &object!("id": &*steer.id, "previous_response_id": &*steer.target));
        o.string("reason", "waiting_for_required_input").list("required_input", required);
        o.maybe_string("stream_id", lane.map(|lane| &**lane));
    })
}

fn failure(
    target: &str,
    id: Option<&str>,
    input: &Json,
    lane: Option<&Name>,
    sequence: u64,
    code: &str,
    message: &str,
) -> Json {
    json::object(|o| {
        o.string("type", "response.steer.failed").number("sequence_number", sequence);
        o.object("steer", |o| {
            o.maybe_string("id", id).string("previous_response_id", target).raw("input", input);
        });
        o.raw("error", &object!("type": "invalid_request_error", "code": code, "message": message));
        o.maybe_string("stream_id", lane.map(|lane| &**lane));
    })
}
