//! Messages that come in: words for the model, and decisions for a run that waits.

use std::collections::HashSet;

use throughline_agent::{Casting, ToolSpec};
use throughline_core::{Body, Json, Media, Name, Node, Part, json};

use crate::letta::declared::Overrides;
use crate::letta::denied::Denied;

/// What is said to an agent, and how its answer is wanted.
pub(crate) struct SayRequest {
    /// The parts of one message.
    pub(crate) said: Vec<Body>,
    /// What is decided about calls that wait.
    pub(crate) decisions: Vec<Decision>,
    /// The caller's names for the parts and the decisions, by which retries are recognised.
    pub(crate) otids: Vec<Option<Name>>,
    /// The names in `otids` that decisions brought.
    decided: HashSet<Name>,
    pub(crate) client_tools: Vec<ToolSpec>,
    pub(crate) overrides: Overrides,
    pub(crate) wishes: Wishes,
}

/// How an answer is wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    /// As a stream, where the request may say so.
    pub(crate) streaming: Option<bool>,
    /// Piece by piece as the model writes it.
    pub(crate) tokens: bool,
    pub(crate) background: bool,
    pub(crate) pings: bool,
    /// The types of messages that are wanted; all without any.
    pub(crate) types: Vec<Name>,
}

/// A decision about a call that waits.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Whether it may run; of all that wait, where no call is named.
    Approval { call: Option<Name>, approve: bool, reason: Option<Name> },
    /// What the caller's own tool returned.
    Return { call: Name, parts: Vec<Part>, is_error: bool },
}

impl Decision {
    /// The call that it is about, if it names one.
    pub(crate) fn call(&self) -> Option<&Name> {
        match self {
            Self::Approval { call, .. } => call.as_ref(),
            Self::Return { call, .. } => Some(call),
        }
    }
}

impl SayRequest {
    pub(crate) fn parse(root: Node<'_>) -> Result<Self, Denied> {
        let mut request = Self {
            said: Vec::new(),
            decisions: Vec::new(),
            otids: Vec::new(),
            decided: HashSet::new(),
            client_tools: client_tools(root)?,
            overrides: Overrides {
                model: root.name_of("override_model"),
                system: root.name_of("override_system"),
                steps: root.present("max_steps").and_then(Node::u64),
            },
            wishes: Wishes::of(root),
        };
        match (root.present("input"), root.present("messages")) {
            (Some(_), Some(_)) => {
                return Err(wrong("Cannot specify both 'input' and 'messages'"));
            }
            (None, None) => return Err(wrong("Must specify either 'input' or 'messages'")),
            (Some(input), None) => request.take_content(input, None, "input")?,
            (None, Some(messages)) => {
                for (place, message) in messages.elements().enumerate() {
                    request.take(message, &format!("messages.{place}"))?;
                }
            }
        }
        if request.said.is_empty() && request.decisions.is_empty() {
            return Err(wrong("messages: nothing is said"));
        }
        if !request.said.is_empty() && !request.decisions.is_empty() {
            return Err(wrong(
                "messages: say something, or decide something, but not both at once",
            ));
        }
        request.check_otids()?;
        Ok(request)
    }

    fn take(&mut self, message: Node<'_>, at: &str) -> Result<(), Denied> {
        let otid = message.name_of("otid");
        match message.text_of("type").as_deref() {
            None | Some("message") => {
                if message.text_of("role").as_deref() != Some("user") {
                    return Err(wrong(format!("{at}.role: must be user")));
                }
                let content = message.present("content");
                let content = content.ok_or_else(|| wrong(format!("{at}.content: is missing")))?;
                self.take_content(content, otid, &format!("{at}.content"))
            }
            Some("approval") => self.take_approval(message, otid, at),
            Some("tool_return") => {
                let list = message.present("tool_returns");
                let list = list.ok_or_else(|| wrong(format!("{at}.tool_returns: is missing")))?;
                for entry in list.elements() {
                    self.decide(tool_return(entry, at)?, otid.clone());
                }
                Ok(())
            }
            Some(other) => Err(wrong(format!(
                "{at}.type: there is no {other}: message, approval or tool_return"
            ))),
        }
    }

    fn take_content(
        &mut self,
        content: Node<'_>,
        otid: Option<Name>,
        at: &str,
    ) -> Result<(), Denied> {
        if let Some(text) = content.name() {
            self.said.push(Body::Text(text));
            self.otids.push(otid);
            return Ok(());
        }
        for (place, part) in content.elements().enumerate() {
            let body = body(part).ok_or_else(|| {
                wrong(format!("{at}.{place}: must be a text or an image with its data or its url"))
            })?;
            self.said.push(body);
            self.otids.push(otid.clone().filter(|_| place == 0));
        }
        Ok(())
    }

    fn take_approval(
        &mut self,
        message: Node<'_>,
        otid: Option<Name>,
        at: &str,
    ) -> Result<(), Denied> {
        if let Some(list) = message.present("approvals") {
            let mut count = 0;
            for entry in list.elements() {
                count += 1;
                let decision = match entry.text_of("type").as_deref() {
                    Some("tool") => tool_return(entry, at)?,
                    _ => approval(entry, at)?,
                };
                self.decide(decision, otid.clone());
            }
            if count == 0 {
                return Err(wrong(format!("{at}.approvals: is empty")));
            }
            return Ok(());
        }
        let approve = message.get("approve").and_then(Node::bool);
        let approve = approve.ok_or_else(|| wrong(format!("{at}.approvals: is missing")))?;
        let reason = message.name_of("reason");
        self.decide(Decision::Approval { call: None, approve, reason }, otid);
        Ok(())
    }

    fn decide(&mut self, decision: Decision, otid: Option<Name>) {
        self.decisions.push(decision);
        // One message may hold several decisions, and has one name.
        if let Some(otid) = otid
            && self.decided.insert(Name::clone(&otid))
        {
            self.otids.push(Some(otid));
        }
    }

    fn check_otids(&self) -> Result<(), Denied> {
        let mut seen = HashSet::new();
        for otid in self.otids.iter().flatten() {
            if !seen.insert(otid) {
                return Err(wrong(format!(
                    "messages: the otid {otid} stands twice: each message of a request needs an otid of its own"
                )));
            }
        }
        Ok(())
    }

    /// The names under which this happens once, for a Thread.
    pub(crate) fn once(&self, thread: &str) -> Vec<Name> {
        let otids = self.otids.iter().flatten();
        otids.map(|otid| Name::from(format!("letta/{thread}/{otid}"))).collect()
    }

    /// A digest of what is said or decided. A request that comes again under the same otids has the same.
    pub(crate) fn digest(&self) -> Name {
        let mut hasher = blake3::Hasher::new_derive_key("throughline letta request content");
        let mut put = |field: &[u8]| {
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field);
        };
        for body in &self.said {
            // A message holds texts and media, and nothing else.
            if let Body::Text(text) = body {
                put_all(&mut put, &[b"text", text.as_bytes()]);
            } else if let Body::Media(media) = body {
                put_media(&mut put, media);
            }
        }
        for decision in &self.decisions {
            match decision {
                Decision::Approval { call, approve, reason } => {
                    let text = |name: &Option<Name>| name.clone().unwrap_or_default();
                    let (call, reason) = (text(call), text(reason));
                    let word: &[u8] = if *approve { b"approve" } else { b"deny" };
                    put_all(&mut put, &[word, call.as_bytes(), reason.as_bytes()]);
                }
                Decision::Return { call, parts, is_error } => {
                    let word: &[u8] = if *is_error { b"error" } else { b"return" };
                    put_all(&mut put, &[word, call.as_bytes()]);
                    for part in parts {
                        match part {
                            Part::Text(text) => put_all(&mut put, &[b"text", text.as_bytes()]),
                            Part::Media(media) => put_media(&mut put, media),
                            Part::Value(value) | Part::Unknown(_, value) => {
                                put_all(&mut put, &[b"value", value.bytes()]);
                            }
                        }
                    }
                }
            }
        }
        Name::from(hasher.finalize().to_hex().as_str())
    }

    /// The names under which these decisions are known again, for a Thread.
    pub(crate) fn decided_once(&self, thread: &str) -> Vec<Name> {
        let otids = self.otids.iter().flatten();
        otids.map(|otid| Name::from(format!("letta/{thread}/decided/{otid}"))).collect()
    }

    /// What is to be found with the run: how its answer is wanted, and how its messages are named.
    pub(crate) fn note(&self, agent: &str, key: Option<&Name>) -> Json {
        json::object(|o| {
            o.object("letta", |o| {
                o.string("agent", agent).bool("tokens", self.wishes.tokens);
                o.bool("background", self.wishes.background);
                o.maybe_string("key", key.map(|key| &**key));
                o.string("digest", &self.digest());
                o.array("otids", |list| {
                    for otid in &self.otids {
                        list.raw(&otid.as_deref().map_or_else(Json::null, json::string));
                    }
                });
            });
        })
    }
}

impl Wishes {
    fn of(root: Node<'_>) -> Self {
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

/// What is found with a run that was begun here.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunNote {
    pub(crate) agent: Name,
    pub(crate) tokens: bool,
    pub(crate) background: bool,
    /// Whether it was begun elsewhere, so that its agent may be none of this house.
    pub(crate) adopted: bool,
    /// The id of the key that began it.
    pub(crate) key: Option<Name>,
    /// The digest of what was said to it; older runs have none.
    pub(crate) digest: Option<Name>,
    pub(crate) otids: Vec<Option<Name>>,
}

impl RunNote {
    /// Whether a run was begun here.
    pub(crate) fn is_in(casting: &Casting) -> bool {
        let note = casting.note.as_ref().map(Json::tree);
        note.is_some_and(|tree| tree.root().get("letta").is_some())
    }

    /// The note for a run that nobody said anything for.
    pub(crate) fn begun(agent: &str, key: Option<&Name>) -> Json {
        json::object(|o| {
            o.object("letta", |o| {
                o.string("agent", agent).maybe_string("key", key.map(|key| &**key));
            });
        })
    }

    /// The note for a run that was begun elsewhere, and goes on here.
    pub(crate) fn adopted(casting: &Casting, key: Option<&Name>) -> Json {
        let agent = Self::of(casting).agent;
        json::object(|o| {
            o.object("letta", |o| {
                o.string("agent", &agent).bool("background", true).bool("adopted", true);
                o.maybe_string("key", key.map(|key| &**key));
            });
        })
    }

    pub(crate) fn of(casting: &Casting) -> Self {
        let tree = casting.note.as_ref().map(Json::tree);
        let note = tree.as_ref().and_then(|tree| tree.root().get("letta"));
        let first = casting.agents.get(&casting.first);
        let Some(note) = note else {
            let agent = first.map(|first| first.identifier.as_ref().unwrap_or(&first.name));
            return Self { agent: agent.cloned().unwrap_or_default(), ..Self::default() };
        };
        let is = |key: &str| note.get(key).and_then(Node::bool) == Some(true);
        Self {
            agent: note.name_of("agent").unwrap_or_default(),
            tokens: is("tokens"),
            background: is("background"),
            adopted: is("adopted"),
            key: note.name_of("key"),
            digest: note.name_of("digest"),
            otids: note.get("otids").into_iter().flat_map(Node::elements).map(Node::name).collect(),
        }
    }
}

fn put_all(put: &mut impl FnMut(&[u8]), fields: &[&[u8]]) {
    for field in fields {
        put(field);
    }
}

fn put_media(put: &mut impl FnMut(&[u8]), media: &Media) {
    match media {
        Media::Inline { mime, base64 } => put_all(put, &[b"inline", mime.as_bytes(), base64]),
        Media::Remote { uri, .. } => put_all(put, &[b"remote", uri.as_bytes()]),
    }
}

fn client_tools(root: Node<'_>) -> Result<Vec<ToolSpec>, Denied> {
    let list = root.present("client_tools").into_iter().flat_map(Node::elements);
    list.enumerate()
        .map(|(place, tool)| {
            let name = tool.name_of("name");
            let name =
                name.ok_or_else(|| wrong(format!("client_tools.{place}.name: is missing")))?;
            let mut spec = ToolSpec::new(name).client();
            spec.description = tool.name_of("description");
            spec.schema = tool.present("parameters").map(Node::json);
            Ok(spec)
        })
        .collect()
}

/// A part of a message.
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

fn approval(entry: Node<'_>, at: &str) -> Result<Decision, Denied> {
    let call = entry.name_of("tool_call_id");
    let call = call.ok_or_else(|| wrong(format!("{at}.approvals: a tool_call_id is missing")))?;
    let approve = entry.get("approve").and_then(Node::bool);
    let approve = approve.ok_or_else(|| wrong(format!("{at}.approvals: approve is missing")))?;
    Ok(Decision::Approval { call: Some(call), approve, reason: entry.name_of("reason") })
}

fn tool_return(entry: Node<'_>, at: &str) -> Result<Decision, Denied> {
    let call = entry.name_of("tool_call_id");
    let call = call.ok_or_else(|| wrong(format!("{at}: a tool_call_id is missing")))?;
    let said = entry.present("tool_return");
    let said = said.ok_or_else(|| wrong(format!("{at}: the tool_return of {call} is missing")))?;
    let parts = match said.name() {
        Some(text) => vec![Part::Text(text)],
        None => returned(said).ok_or_else(|| {
            let problem = "must be a text, or a list of texts and images";
            wrong(format!("{at}: the tool_return of {call} {problem}"))
        })?,
    };
    let is_error = entry.text_of("status").as_deref() == Some("error");
    Ok(Decision::Return { call, parts, is_error })
}

/// The parts of what a tool returned, if all of them can be shown to a model.
fn returned(said: Node<'_>) -> Option<Vec<Part>> {
    let part = |part: Node<'_>| match body(part)? {
        Body::Text(text) => Some(Part::Text(text)),
        Body::Media(media) => Some(Part::Media(media)),
        _ => None,
    };
    said.is_array().then(|| said.elements().map(part).collect())?
}

fn wrong(message: impl AsRef<str>) -> Denied {
    Denied::new(422, message)
}
