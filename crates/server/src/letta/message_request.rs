//! Parses incoming messages: user input, and decisions for a waiting run.

use std::collections::{BTreeMap, HashSet};

use throughline_agent::ToolSpec;
use throughline_core::{Body, Media, Part};
use throughline_json::{Json, Name, Node};

use crate::api::{ApiError, ApiResult};
use crate::letta::agent_config::Overrides;
use crate::object::object;

/// A request to send messages to an agent, with the options for the response.
pub(crate) struct MessageRequest {
    /// The content parts of one user message.
    pub(crate) parts: Vec<Body>,
    pub(crate) decisions: Vec<Decision>,
    /// The ids that the client assigned to the parts and decisions (otids), used to recognise
    /// retries. The otids of ephemeral messages follow those of all parts.
    pub(crate) otids: Vec<Option<Name>>,
    /// The names and ids of the senders of the parts.
    names: Vec<Option<Name>>,
    senders: Vec<Option<Name>>,
    /// Values for the `ctx` of the run.
    pub(crate) ctx: BTreeMap<Name, Json>,
    /// Tracing settings of the run.
    pub(crate) tracing: Option<Json>,
    /// The otids that belong to decisions.
    decided: HashSet<Name>,
    pub(crate) client_tools: Vec<ToolSpec>,
    pub(crate) overrides: Overrides,
    pub(crate) wishes: ResponseOptions,
    /// An earlier conversation in a documented format, verbatim.
    pub(crate) history: Option<Json>,
    /// Texts that the model receives before the message, but that are not stored in the Thread.
    pub(crate) ephemeral: Vec<Name>,
    ephemeral_otids: Vec<Option<Name>>,
}

/// The members of an incoming message that identify the message and its sender.
#[derive(Default)]
struct Sender {
    otid: Option<Name>,
    name: Option<Name>,
    id: Option<Name>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseOptions {
    /// Whether to stream the response. Routes that always stream ignore this option.
    pub(crate) streaming: Option<bool>,
    /// Whether to stream deltas as the model writes them.
    pub(crate) tokens: bool,
    pub(crate) background: bool,
    pub(crate) pings: bool,
    /// The requested message types; empty means all.
    pub(crate) types: Vec<Name>,
}

/// A decision about a pending tool call.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Approves or rejects the named call, or all pending calls if no call is named.
    Approval { call: Option<Name>, approve: bool, reason: Option<Name> },
    /// The result of a tool that the client ran.
    Return { call: Name, parts: Vec<Part>, is_error: bool },
}

impl Decision {
    /// Returns the id of the tool call that the decision names; `None` if the decision applies to
    /// all pending calls.
    pub(crate) fn call(&self) -> Option<&Name> {
        match self {
            Self::Approval { call, .. } => call.as_ref(),
            Self::Return { call, .. } => Some(call),
        }
    }
}

impl MessageRequest {
    pub(crate) fn parse(root: Node<'_>) -> ApiResult<Self> {
        let own = root.present("throughline");
        check_own_members(own)?;
        let ctx = own.and_then(|own| own.present("ctx"));
        if ctx.is_some_and(|ctx| !ctx.is_object()) {
            return Err(invalid("throughline.ctx: must be an object"));
        }
        let ctx = ctx.into_iter().flat_map(Node::members);
        let mut request = Self {
            names: Vec::new(),
            senders: Vec::new(),
            ctx: ctx.filter_map(|(key, value)| Some((key.name()?, value.json()))).collect(),
            tracing: own.and_then(|own| own.present("tracing")).map(Node::json),
            parts: Vec::new(),
            decisions: Vec::new(),
            otids: Vec::new(),
            decided: HashSet::new(),
            client_tools: client_tools(root)?,
            overrides: Overrides {
                model: root.name_of("override_model"),
                system: root.name_of("override_system"),
                steps: root.present("max_steps").and_then(Node::u64),
            },
            wishes: ResponseOptions::parse(root),
            history: root.present("history").map(Node::json),
            ephemeral: Vec::new(),
            ephemeral_otids: Vec::new(),
        };
        match (root.present("input"), root.present("messages")) {
            (Some(_), Some(_)) => {
                return Err(invalid("Cannot specify both 'input' and 'messages'"));
            }
            (None, None) => return Err(invalid("Must specify either 'input' or 'messages'")),
            (Some(input), None) => request.parse_content(input, &Sender::default(), "input")?,
            (None, Some(messages)) => {
                for (index, message) in messages.elements().enumerate() {
                    request.parse_message(message, &format!("messages.{index}"))?;
                }
            }
        }
        if request.parts.is_empty() && request.decisions.is_empty() {
            if !request.ephemeral.is_empty() {
                let problem = "contains only ephemeral messages; add one that is kept";
                return Err(invalid(format!("messages: {problem}")));
            }
            return Err(invalid("messages: is empty; send a message or a decision"));
        }
        if !request.parts.is_empty() && !request.decisions.is_empty() {
            return Err(invalid("messages: send either user messages or decisions, not both"));
        }
        request.otids.append(&mut request.ephemeral_otids);
        request.check_otids()?;
        Ok(request)
    }

    fn parse_message(&mut self, message: Node<'_>, at: &str) -> ApiResult<()> {
        let sender = Sender {
            otid: message.name_of("otid"),
            name: message.name_of("name"),
            id: message.name_of("sender_id"),
        };
        let otid = sender.otid.clone();
        match message.text_of("type").as_deref() {
            None | Some("message") => {
                if message.text_of("role").as_deref() != Some("user") {
                    return Err(invalid(format!("{at}.role: must be user")));
                }
                let content =
                    required(message.present("content"), || format!("{at}.content: is missing"))?;
                if message.get("ephemeral").and_then(Node::bool) == Some(true) {
                    let problem = "must be a string, because the message is ephemeral";
                    let text = content.name();
                    self.ephemeral.push(required(text, || format!("{at}.content: {problem}"))?);
                    self.ephemeral_otids.extend(otid.map(Some));
                    return Ok(());
                }
                self.parse_content(content, &sender, &format!("{at}.content"))
            }
            Some("approval") => self.parse_approval(message, otid, at),
            Some("tool_return") => {
                let list = message.present("tool_returns");
                for entry in required(list, || format!("{at}.tool_returns: is missing"))?.elements()
                {
                    self.decide(tool_return(entry, at)?, otid.clone());
                }
                Ok(())
            }
            Some(other) => Err(invalid(format!(
                "{at}.type: must be message, approval or tool_return, not {other}"
            ))),
        }
    }

    fn parse_content(&mut self, content: Node<'_>, sender: &Sender, at: &str) -> ApiResult<()> {
        if let Some(text) = content.name() {
            self.push_part(Body::Text(text), sender, true);
            return Ok(());
        }
        for (index, part) in content.elements().enumerate() {
            let problem = "must be text, or an image with data or a url";
            let body = body(part).ok_or_else(|| invalid(format!("{at}.{index}: {problem}")))?;
            self.push_part(body, sender, index == 0);
        }
        Ok(())
    }

    /// Adds a part of a message. The otid belongs to the first part, the sender to all parts.
    fn push_part(&mut self, body: Body, sender: &Sender, is_first: bool) {
        self.parts.push(body);
        self.otids.push(sender.otid.clone().filter(|_| is_first));
        self.names.push(sender.name.clone());
        self.senders.push(sender.id.clone());
    }

    fn parse_approval(&mut self, message: Node<'_>, otid: Option<Name>, at: &str) -> ApiResult<()> {
        if let Some(list) = message.present("approvals") {
            if list.elements().next().is_none() {
                return Err(invalid(format!("{at}.approvals: is empty")));
            }
            for entry in list.elements() {
                let decision = match entry.text_of("type").as_deref() {
                    Some("tool") => tool_return(entry, at)?,
                    _ => approval(entry, at)?,
                };
                self.decide(decision, otid.clone());
            }
            return Ok(());
        }
        let approve = message.get("approve").and_then(Node::bool);
        let approve = required(approve, || format!("{at}.approvals: is missing"))?;
        let reason = message.name_of("reason");
        self.decide(Decision::Approval { call: None, approve, reason }, otid);
        Ok(())
    }

    fn decide(&mut self, decision: Decision, otid: Option<Name>) {
        self.decisions.push(decision);
        // One message may contain several decisions but has one otid.
        if let Some(otid) = otid
            && self.decided.insert(Name::clone(&otid))
        {
            self.otids.push(Some(otid));
        }
    }

    fn check_otids(&self) -> ApiResult<()> {
        let mut seen = HashSet::new();
        let repeated = self.otids.iter().flatten().find(|otid| !seen.insert(*otid));
        repeated.map_or(Ok(()), |otid| {
            Err(invalid(format!(
                "messages: the otid {otid} is repeated; use a different otid for each message of a \
                 request"
            )))
        })
    }

    /// Returns the idempotency keys for this request on a Thread. Requests with decisions use
    /// separate keys.
    pub(crate) fn idempotency_keys(&self, thread: &str) -> Vec<Name> {
        let decided = if self.decisions.is_empty() { "" } else { "decided/" };
        let otids = self.otids.iter().flatten();
        otids.map(|otid| Name::from(format!("letta/{thread}/{decided}{otid}"))).collect()
    }

    /// Returns a digest of the content. A retry with the same otids must have the same digest.
    /// Absent members are not hashed, so requests without them keep the digest of earlier versions.
    pub(crate) fn digest(&self) -> Name {
        let mut hasher = blake3::Hasher::new_derive_key("throughline letta request content");
        let mut put = |fields: &[&[u8]]| {
            for field in fields {
                hasher.update(&(field.len() as u64).to_le_bytes()).update(field);
            }
        };
        if let Some(history) = &self.history {
            put(&[b"history", history.bytes()]);
        }
        for (key, value) in &self.ctx {
            put(&[b"ctx", key.as_bytes(), value.bytes()]);
        }
        if let Some(tracing) = &self.tracing {
            put(&[b"tracing", tracing.bytes()]);
        }
        for text in &self.ephemeral {
            put(&[b"ephemeral", text.as_bytes()]);
        }
        for body in &self.parts {
            // User messages contain only text and media.
            if let Body::Text(text) = body {
                put(&[b"text", text.as_bytes()]);
            } else if let Body::Media(media) = body {
                put_media(&mut put, media);
            }
        }
        for (label, list) in [("name", &self.names), ("sender", &self.senders)] {
            for (index, value) in (0_u64..).zip(list) {
                if let Some(value) = value {
                    put(&[label.as_bytes(), &index.to_le_bytes(), value.as_bytes()]);
                }
            }
        }
        for decision in &self.decisions {
            match decision {
                Decision::Approval { call, approve, reason } => {
                    let text = |name: &Option<Name>| name.clone().unwrap_or_default();
                    let (call, reason) = (text(call), text(reason));
                    let outcome: &[u8] = if *approve { b"approve" } else { b"deny" };
                    put(&[outcome, call.as_bytes(), reason.as_bytes()]);
                }
                Decision::Return { call, parts, is_error } => {
                    let outcome: &[u8] = if *is_error { b"error" } else { b"return" };
                    put(&[outcome, call.as_bytes()]);
                    for part in parts {
                        match part {
                            Part::Text(text) => put(&[b"text", text.as_bytes()]),
                            Part::Media(media) => put_media(&mut put, media),
                            Part::Value(value) | Part::Unknown(_, value) => {
                                put(&[b"value", value.bytes()]);
                            }
                        }
                    }
                }
            }
        }
        Name::from(hasher.finalize().to_hex().as_str())
    }

    /// Returns the note stored with the run: response options, otids and content digest.
    pub(crate) fn note(&self, agent: &str, key: Option<&Name>) -> Json {
        // Messages without names and ids of senders keep the shape of earlier versions.
        let given = |list: &[Option<Name>]| list.iter().any(Option::is_some).then(|| list.to_vec());
        let note = object! {
            "agent": agent, "tokens": self.wishes.tokens, "background": self.wishes.background,
            "key"? key, "digest": self.digest(), "otids": self.otids,
            "names"? given(&self.names), "senders"? given(&self.senders),
        };
        object! { "letta": note }
    }
}

impl ResponseOptions {
    fn parse(root: Node<'_>) -> Self {
        let is = |key: &str| root.get(key).and_then(Node::bool);
        let types = root.present("include_return_message_types");
        Self {
            streaming: is("streaming"),
            tokens: is("stream_tokens").unwrap_or(false),
            background: is("background").unwrap_or(false),
            pings: is("include_pings").unwrap_or(true),
            types: types.into_iter().flat_map(Node::elements).filter_map(Node::name).collect(),
        }
    }
}

fn put_media(put: &mut impl FnMut(&[&[u8]]), media: &Media) {
    match media {
        Media::Inline { mime, base64 } => put(&[b"inline", mime.as_bytes(), base64]),
        Media::Remote { uri, .. } => put(&[b"remote", uri.as_bytes()]),
    }
}

fn client_tools(root: Node<'_>) -> ApiResult<Vec<ToolSpec>> {
    let list = root.present("client_tools").into_iter().flat_map(Node::elements);
    list.enumerate()
        .map(|(index, tool)| {
            let name = required(tool.name_of("name"), || {
                format!("client_tools.{index}.name: is missing")
            })?;
            let mut spec = ToolSpec::new(name).client();
            spec.description = tool.name_of("description");
            spec.schema = tool.present("parameters").map(Node::json);
            Ok(spec)
        })
        .collect()
}

/// Converts a text or image part of a message to an Item body; `None` for other parts.
fn body(part: Node<'_>) -> Option<Body> {
    match &*part.text_of("type")? {
        "text" => part.name_of("text").map(Body::Text),
        "image" => {
            let source = part.present("source")?;
            let media = match source.text_of("type").as_deref() {
                Some("url") => {
                    Media::Remote { mime: None, uri: source.name_of("url")?, owner: None }
                }
                _ => Media::Inline {
                    mime: source.name_of("media_type")?,
                    base64: source.get("data")?.text_bytes()?,
                },
            };
            Some(Body::Media(media))
        }
        _ => None,
    }
}

fn approval(entry: Node<'_>, at: &str) -> ApiResult<Decision> {
    let call = required(entry.name_of("tool_call_id"), || {
        format!("{at}.approvals: a tool_call_id is missing")
    })?;
    let approve = entry.get("approve").and_then(Node::bool);
    let approve = required(approve, || format!("{at}.approvals: approve is missing"))?;
    Ok(Decision::Approval { call: Some(call), approve, reason: entry.name_of("reason") })
}

fn tool_return(entry: Node<'_>, at: &str) -> ApiResult<Decision> {
    let call =
        required(entry.name_of("tool_call_id"), || format!("{at}: a tool_call_id is missing"))?;
    let value = entry.present("tool_return");
    let value = required(value, || format!("{at}: the tool_return of {call} is missing"))?;
    let parts = match value.name() {
        Some(text) => vec![Part::Text(text)],
        None => returned(value).ok_or_else(|| {
            let problem = "must be a string, or a list of text and image parts";
            invalid(format!("{at}: the tool_return of {call} {problem}"))
        })?,
    };
    let is_error = entry.text_of("status").as_deref() == Some("error");
    Ok(Decision::Return { call, parts, is_error })
}

/// Parses the parts of a tool result; `None` if a part has a type that models cannot read.
fn returned(value: Node<'_>) -> Option<Vec<Part>> {
    let part = |part: Node<'_>| match body(part)? {
        Body::Text(text) => Some(Part::Text(text)),
        Body::Media(media) => Some(Part::Media(media)),
        _ => None,
    };
    value.is_array().then(|| value.elements().map(part).collect())?
}

/// Refuses unknown members of `throughline`, as the configuration of an agent does.
fn check_own_members(own: Option<Node<'_>>) -> ApiResult<()> {
    let Some(own) = own else { return Ok(()) };
    if !own.is_object() {
        return Err(invalid("throughline: must be an object"));
    }
    let mut keys = own.members().filter_map(|(key, _)| key.name());
    keys.find(|key| !matches!(&**key, "ctx" | "tracing")).map_or(Ok(()), |key| {
        Err(invalid(format!("throughline: unknown field `{key}`, expected `ctx` or `tracing`")))
    })
}

/// Returns a required field, or a 422 error if it is missing.
fn required<T>(member: Option<T>, message: impl FnOnce() -> String) -> ApiResult<T> {
    member.ok_or_else(|| invalid(message()))
}

fn invalid(message: impl AsRef<str>) -> ApiError {
    ApiError::new(422, message)
}
