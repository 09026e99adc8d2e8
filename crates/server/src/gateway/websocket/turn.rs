//! Runs one response on a WebSocket: sends the request through the HTTP handler and relays the
//! events of its stream.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use throughline_codec::{Framer, Framing};
use throughline_json::{self as json, Json, Name, Node, Tree, object};
use throughline_replay::{PREVIOUS_RESPONSE_ID, StoreOptions};

use crate::error::GatewayError;
use crate::gateway::dialect::{GatewayRoute, end_user};
use crate::gateway::previous::previous_not_found;
use crate::gateway::websocket::client_event::CreateRequest;
use crate::gateway::websocket::conversation_cache::{ItemList, SocketConversation};
use crate::gateway::websocket::steering::{self, SteerOutcome};
use crate::gateway::websocket::{SocketClosed, SocketContext, event};
use crate::response::{GatewayResponse, ResponseBody};
use crate::sync::lock;

/// Members of `response.create` that are not part of a request over HTTP.
const SOCKET_MEMBERS: [&str; 5] = ["type", "stream_id", "generate", "stream", "background"];

/// The end of a response on a lane.
pub(super) struct TurnEnd {
    pub(super) lane: Option<Name>,
    /// The request that continues the response with steering input.
    pub(super) successor: Option<CreateRequest>,
}

/// Why a response ended early.
enum TurnError {
    /// The client disconnected.
    Closed,
    /// The client gets this error event.
    Failed(Json),
}

impl From<SocketClosed> for TurnError {
    fn from(SocketClosed: SocketClosed) -> Self {
        TurnError::Closed
    }
}

impl From<GatewayError> for TurnError {
    fn from(problem: GatewayError) -> Self {
        TurnError::Failed(event::from_problem(&problem))
    }
}

/// A response that is being generated.
struct Turn {
    context: Arc<SocketContext>,
    request: CreateRequest,
    /// The id in `previous_response_id`.
    previous: Option<Name>,
    /// The conversation of `previous`, if this socket holds it.
    continued: Option<Arc<SocketConversation>>,
    /// The items of the conversation, if the socket holds the conversation after the response.
    items: Option<ItemList>,
    /// The headers of the response over HTTP.
    headers: Vec<(Name, Name)>,
    /// The id of the response, once it has started.
    id: Option<Name>,
    /// The complete output items, if the socket holds the conversation.
    output: Vec<Json>,
    output_size: usize,
    /// The calls of tools, and the stubs of the results that the client must send.
    required: Vec<(Option<Vec<u8>>, Json)>,
    /// The calls whose results the response contains.
    answered: HashSet<Vec<u8>>,
    has_ended: bool,
    successor: Option<CreateRequest>,
}

/// Runs a response to its end.
pub(super) async fn run(context: Arc<SocketContext>, request: CreateRequest) -> TurnEnd {
    let mut turn = Turn {
        context,
        request,
        previous: None,
        continued: None,
        items: None,
        headers: Vec::new(),
        id: None,
        output: Vec::new(),
        output_size: 0,
        required: Vec::new(),
        answered: HashSet::new(),
        has_ended: false,
        successor: None,
    };
    if let Err(TurnError::Failed(error)) = turn.respond().await {
        // If the client disconnected, the events are lost with the connection.
        drop(turn.fail(error).await);
    }
    TurnEnd { lane: turn.request.lane, successor: turn.successor }
}

impl Turn {
    async fn respond(&mut self) -> Result<(), TurnError> {
        let is_warm_up =
            self.request.body.root().get("generate").and_then(Node::bool) == Some(false);
        let options = StoreOptions::from_body(&self.request.body);
        self.find_previous(options.previous)?;
        let holds_items = !options.keeps || is_warm_up;
        let continued = self.continued.as_ref().map_or(0, |known| known.items.len());
        // The reservation of the message includes its own items.
        self.request.memory.reserve_bytes(continued).await?;
        let size = self.request.body.bytes().len() + continued;
        let context = Arc::clone(&self.context);
        let body = async { self.request_body(holds_items) };
        let body = context.operations.heavy.run(&context.caller, size, body).await?;
        if is_warm_up {
            let response = (self.context.dispatch)(body, GatewayRoute::WarmUp).await;
            return self.relay_warm_up(response).await;
        }
        let response = (self.context.dispatch)(body, GatewayRoute::Call).await;
        self.relay(response).await
    }

    /// Finds the conversation that the request continues, if this socket holds it, and the steering
    /// input that waits for the request.
    fn find_previous(&mut self, previous: Option<Name>) -> Result<(), TurnError> {
        let Some(id) = previous else { return Ok(()) };
        let mut state = lock(&self.context.state);
        let lane = self.request.lane.as_ref();
        self.request.steers.extend(state.steering.take_waiting(&id, lane));
        self.continued = state.conversations.get(&id);
        drop(state);
        // As over HTTP, an end user continues only its own responses.
        let user = end_user(&self.request.body);
        if self.continued.as_ref().is_some_and(|known| known.end_user != user) {
            return Err(previous_not_found(&id).into());
        }
        self.previous = Some(id);
        Ok(())
    }

    /// Returns the body of the request over HTTP. If this socket holds the previous response, the
    /// request contains the conversation since the last stored response.
    fn request_body(&mut self, holds_items: bool) -> Bytes {
        let root = self.request.body.root();
        let is_rewritten = self.continued.is_some() || !self.request.steers.is_empty();
        let mut items = ItemList::default();
        if is_rewritten || holds_items {
            items = self.continued.as_ref().map(|known| known.items.clone()).unwrap_or_default();
            items.push_input(root.present("input"), &self.request.steers);
        }
        let is_kept = |name: Node<'_>| {
            let is_input = name.is("input") || name.is(PREVIOUS_RESPONSE_ID);
            !(SOCKET_MEMBERS.iter().any(|member| name.is(member)) || is_rewritten && is_input)
        };
        let body = json::object(|o| {
            o.nodes(root.members().filter(|(name, _)| is_kept(*name))).bool("stream", true);
            if is_rewritten {
                o.maybe_string(PREVIOUS_RESPONSE_ID, self.base().map(|base| &**base));
                o.raw("input", &items.to_array());
            }
        });
        self.items = holds_items.then_some(items);
        body.bytes().clone()
    }

    /// Returns the stored response that the conversation continues.
    fn base(&self) -> Option<&Name> {
        match &self.continued {
            Some(known) => known.base.as_ref(),
            None => self.previous.as_ref(),
        }
    }

    /// Sends the events of a response without output.
    async fn relay_warm_up(&mut self, mut response: GatewayResponse) -> Result<(), TurnError> {
        if response.status < 400 {
            self.headers = std::mem::take(&mut response.headers);
        }
        let body = whole_body(response)?;
        let response = Json::parse(body).map_err(|_| unreadable("the response is not JSON"))?;
        self.handle_whole(&response).await
    }

    /// Relays the events of a streamed response.
    async fn relay(&mut self, response: GatewayResponse) -> Result<(), TurnError> {
        let framing = framing(&response);
        let mut stream = match response.body {
            ResponseBody::Stream(stream) => stream,
            ResponseBody::Whole(_) => return self.relay_warm_up(response).await,
        };
        self.headers = response.headers;
        let mut framer = Framer::new(framing);
        let mut complete = Vec::new();
        let mut problem = None;
        while let Some(chunk) = stream.next().await {
            let pushed = match &chunk {
                Ok(chunk) => framer.push(chunk, &mut complete).map_err(|error| error.to_string()),
                Err(aborted) => Err(aborted.to_string()),
            };
            for frame in complete.drain(..) {
                self.handle_event(frame.data).await?;
            }
            if let Err(error) = pushed {
                problem = Some(error);
                break;
            }
        }
        if problem.is_none() {
            problem = framer.finish(&mut complete).err().map(|error| error.to_string());
            for frame in complete.drain(..) {
                self.handle_event(frame.data).await?;
            }
        }
        if self.has_ended {
            return Ok(());
        }
        let reason = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
        Err(unreadable(&format!("the response ended before it was complete{reason}")))
    }

    /// Relays one event.
    async fn handle_event(&mut self, data: Bytes) -> Result<(), TurnError> {
        if &*data == b"[DONE]" {
            return Ok(());
        }
        let tree = match Tree::parse(data) {
            Ok(tree) => tree,
            Err(_) if self.has_ended => return Ok(()),
            Err(_) => return Err(unreadable("the provider sent an event that is not JSON")),
        };
        let root = tree.root();
        let kind = root.text_of("type").unwrap_or_default();
        if kind.is_empty() && root.get("object").is_some_and(|object| object.is("response")) {
            // The provider ignored `stream` and returned the complete response.
            return self.handle_whole(&root.json()).await;
        }
        match &*kind {
            "response.created" => self.handle_start(root).await?,
            "response.output_item.done" => self.add_output(root.get("item")).await,
            "response.completed" | "response.incomplete" => return self.handle_end(root).await,
            "response.failed" => {
                self.send_event(root).await?;
                return self.handle_failure().await;
            }
            "error" => {
                self.send(&event::from_stream_event(root)).await?;
                return self.handle_failure().await;
            }
            _ => {}
        }
        if let Some(id) = &self.id
            && let Some(sequence) = root.get("sequence_number").and_then(Node::u64)
        {
            lock(&self.context.state).steering.set_sequence(id, sequence);
        }
        self.send_event(root).await
    }

    /// Sends a complete response as the events of a stream.
    async fn handle_whole(&mut self, response: &Json) -> Result<(), TurnError> {
        let tree = response.tree();
        let started = json::object(|o| {
            for (name, value) in tree.root().members() {
                match &*name.text().unwrap_or_default() {
                    "status" => o.string("status", "in_progress"),
                    "output" => o.array("output", |_| {}),
                    "usage" => o.null("usage"),
                    name => o.node(name, value),
                };
            }
        });
        let created =
            object!("type": "response.created", "sequence_number": 0u64, "response": &started);
        self.handle_start(created.tree().root()).await?;
        self.send_event(created.tree().root()).await?;
        let kind = match tree.root().get("status") {
            Some(status) if status.is("incomplete") => "response.incomplete",
            _ => "response.completed",
        };
        let ended = object!("type": kind, "sequence_number": 1u64, "response": response);
        let ended = ended.tree();
        for item in tree.root().get("output").into_iter().flat_map(Node::elements) {
            self.add_output(Some(item)).await;
        }
        self.handle_end(ended.root()).await
    }

    async fn handle_start(&mut self, event: Node<'_>) -> Result<(), TurnError> {
        let Some(id) = event.at("/response/id").and_then(Node::name) else { return Ok(()) };
        let request = self.request.body.root();
        let is_supported = ["conversation", "context_management"]
            .iter()
            .all(|member| request.present(member).is_none());
        let lane = self.request.lane.as_ref();
        let lost = lock(&self.context.state).steering.open(&id, lane, is_supported);
        self.id = Some(id);
        for event in lost {
            self.context.send(&event, None).await?;
        }
        Ok(())
    }

    async fn add_output(&mut self, item: Option<Node<'_>>) {
        let Some(item) = item else { return };
        if let Some(stub) = steering::required_input(item) {
            let call = item.get("call_id").map(|call| call.raw().to_vec());
            self.required.push((call, stub));
        } else if let Some(call) = item.get("call_id") {
            // The provider ran the tool, so the client need not send the result.
            self.answered.insert(call.raw().to_vec());
        }
        if self.items.is_some() {
            let size = item.raw().len();
            self.output_size += size;
            if self.output_size <= self.context.body_limit
                && self.request.memory.try_reserve_bytes(size).await
            {
                self.output.push(item.json());
            } else {
                // The conversation is too large for another request, or there is no memory for it.
                (self.items, self.output) = (None, Vec::new());
            }
        }
    }

    /// Holds the conversation, sends the last event, and continues with steering input.
    async fn handle_end(&mut self, event: Node<'_>) -> Result<(), TurnError> {
        self.has_ended = true;
        // The client may continue the response as soon as it receives the last event.
        let items = self.take_items(event.at("/response/output"));
        self.hold_conversation(items).await;
        self.send_event(event).await?;
        for event in self.finish_steering() {
            self.context.send(&event, None).await?;
        }
        Ok(())
    }

    /// Prepares the successor that continues the response with steering input, or returns the
    /// events that report why the input waits.
    fn finish_steering(&mut self) -> Vec<Json> {
        let Some(id) = self.id.clone() else { return Vec::new() };
        let required = std::mem::take(&mut self.required).into_iter();
        let is_open =
            |call: &Option<Vec<u8>>| call.as_ref().is_none_or(|call| !self.answered.contains(call));
        let required = required.filter(|(call, _)| is_open(call)).map(|(_, stub)| stub).collect();
        let outcome = lock(&self.context.state).steering.finish(&id, required);
        match outcome {
            SteerOutcome::Nothing => Vec::new(),
            SteerOutcome::Pending(events) => events,
            SteerOutcome::Successor(steers) => {
                let members = self.request.body.root().members().filter(|(name, _)| {
                    !name.is("input") && !name.is(PREVIOUS_RESPONSE_ID) && !name.is("generate")
                });
                let body = json::object(|o| {
                    o.nodes(members).string(PREVIOUS_RESPONSE_ID, &id);
                });
                let (lane, body) = (self.request.lane.clone(), body.tree());
                // The successor repeats the members of this request.
                let empty = self.context.operations.new_reservation(&self.context.caller);
                let mut memory = std::mem::replace(&mut self.request.memory, empty);
                memory.shrink_to_message(body.bytes().len(), body.entries());
                self.successor = Some(CreateRequest { lane, body, steers, memory });
                Vec::new()
            }
        }
    }

    /// Returns the items of the conversation up to and including the response; `None` if the socket
    /// does not hold the conversation.
    fn take_items(&mut self, output: Option<Node<'_>>) -> Option<ItemList> {
        let mut items = self.items.take()?;
        let mut whole = output.into_iter().flat_map(Node::elements).peekable();
        if whole.peek().is_some() {
            whole.for_each(|item| items.push(item.raw()));
        } else {
            self.output.iter().for_each(|item| items.push(item.bytes()));
        }
        Some(items)
    }

    /// Holds a conversation under the id of the response, if there is memory for it.
    async fn hold_conversation(&self, items: Option<ItemList>) {
        let (Some(items), Some(id)) = (items, self.id.clone()) else { return };
        let context = &self.context;
        if items.len() > context.body_limit {
            return;
        }
        let memory = loop {
            match context.operations.sockets.reserve(&context.caller, items.len()).await {
                Some(memory) => break memory,
                None if lock(&context.state).conversations.drop_oldest() => {}
                None => return,
            }
        };
        let (base, end_user) = (self.base().cloned(), end_user(&self.request.body));
        let conversation = SocketConversation { base, items, end_user, _memory: memory };
        // Other lanes may hold conversations at the same time.
        lock(&context.state).conversations.insert(id, conversation);
    }

    /// Sends an error, and returns steering input that was not used.
    async fn fail(&mut self, error: Json) -> Result<(), TurnError> {
        self.send(&error).await?;
        self.handle_failure().await
    }

    /// Returns the steering input of a failed response to the client.
    async fn handle_failure(&mut self) -> Result<(), TurnError> {
        self.has_ended = true;
        for event in self.fail_steering() {
            self.context.send(&event, None).await?;
        }
        Ok(())
    }

    fn fail_steering(&self) -> Vec<Json> {
        match &self.id {
            Some(id) => lock(&self.context.state).steering.fail(id),
            None => {
                let lane = self.request.lane.as_ref();
                let steers = self.request.steers.iter();
                steers.map(|steer| steering::successor_failed(steer, lane)).collect()
            }
        }
    }

    /// Sends an event of the response.
    async fn send_event(&self, event: Node<'_>) -> Result<(), TurnError> {
        let mut shown = self.shown_event(event);
        if event.get("type").is_some_and(|kind| kind.is("response.created")) {
            shown = event::with_headers(shown.tree().root(), &self.headers);
        }
        self.send(&shown).await
    }

    /// Returns an event of the response. The response names the `previous_response_id` of the
    /// client, even if the request over HTTP contains the conversation instead, or if the stream
    /// was translated and does not repeat the settings of the request.
    fn shown_event(&self, event: Node<'_>) -> Json {
        let shown = event.json();
        let (Some(previous), Some(response)) = (&self.previous, event.get("response")) else {
            return shown;
        };
        if response.get(PREVIOUS_RESPONSE_ID).is_some_and(|member| member.is(previous)) {
            return shown;
        }
        json::object(|o| {
            o.nodes(event.members().filter(|(name, _)| !name.is("response")));
            o.object("response", |o| {
                let members = response.members();
                o.nodes(members.filter(|(name, _)| !name.is(PREVIOUS_RESPONSE_ID)));
                o.string(PREVIOUS_RESPONSE_ID, previous);
            });
        })
    }

    async fn send(&self, event: &Json) -> Result<(), TurnError> {
        Ok(self.context.send(event, self.request.lane.as_ref()).await?)
    }
}

/// Returns the framing of a streamed response.
fn framing(response: &GatewayResponse) -> Framing {
    let kind = response.headers.iter().find(|(name, _)| &**name == "content-type");
    kind.and_then(|(_, kind)| Framing::from_content_type(kind)).unwrap_or(Framing::Sse)
}

/// Returns the complete body of a successful response, or the error event of any other response.
fn whole_body(response: GatewayResponse) -> Result<Bytes, TurnError> {
    let GatewayResponse { status, headers, body } = response;
    match body {
        ResponseBody::Whole(body) if status < 400 => Ok(body),
        ResponseBody::Whole(body) => {
            Err(TurnError::Failed(event::from_response(status, &headers, &body)))
        }
        ResponseBody::Stream(_) => Err(unreadable("the response is a stream")),
    }
}

fn unreadable(message: &str) -> TurnError {
    GatewayError::new(502, message).into()
}
