//! Requests that a provider answers as they are: files, batches, embeddings and other paths besides a model's call.
//!
//! On an open gateway every path of a dialect is forwarded. With a key, the gateway forwards the paths of `objects/routes.rs`, where
//! it checks who owns each object, and the paths that the operator lists in `passthrough`.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use throughline_core::{
    Answer, Name, Node, Origin, Outgoing as Sent, Request, StoreError, Tenant, Tree, Wire,
};

use crate::answer::{passes_back, refuse_redirect, whole};
use crate::compression;
use crate::dialect;
use crate::exchange::{Cut, Exchange, Problem};
use crate::gateway::{Answered, Outgoing, Reached};
use crate::letta::{decode_query, decode_segment};
use crate::objects::{
    EventIds, Family, Gives, List, ObjectId, ObjectKind, ObjectRef, account_of, described_file,
    filter_list, find_route, ids_at, ids_in_form, ids_in_lines, listed, methods_of, object_ids,
};
use crate::replay::Claims;
use crate::resumed::no_previous;
use crate::stored::PREVIOUS;
use crate::telling::unreadable;

/// How many pages of a list are read to find one with an object of the caller.
const PAGES: usize = 50;

/// The header in which Gemini names the address of an upload.
const UPLOAD_URL: &str = "x-goog-upload-url";

/// Whose objects a forwarded request reaches.
struct Reach {
    tenant: Tenant,
    account: Name,
    /// Whether the caller needs to own what it names.
    is_checked: bool,
}

impl Exchange<'_> {
    /// Forwards a request that is no call of a model.
    pub(crate) async fn other(&self, method: &str, request: Request) -> Result<Answered, Problem> {
        let path = bare(&request.path);
        if self.caller.admission.is_limited() {
            let message = "this key may ask for some models only, and for nothing else";
            return Err(Problem::new(403, message));
        }
        if self.caller.admission.has_budget() && !is_free(method, path) {
            let message = "this key has a budget, and this path has no known price";
            return Err(Problem::new(403, message));
        }
        if Claims::are_in(request.path.as_bytes()) || Claims::are_in(&request.body) {
            let message = "this holds ids or handles of the gateway's own, which no provider knows: ask without them";
            return Err(Problem::new(400, message));
        }
        let unknown = || Problem::new(404, format!("no provider answers {method} {path}"));
        if leaves_its_folder(path) {
            return Err(unknown());
        }
        let route = find_route(&self.wire, method, path);
        let is_allowed = self.gateway.passthrough.allows(method, path);
        let is_key = self.caller.admission.is_key();
        let is_checked = is_key && !is_allowed;
        if is_checked && route.is_none() {
            return self.unknown_path(method, path);
        }
        if is_key {
            refuse_hidden(&request)?;
        }
        let (reached, request) = self.answerer(request.clone()).ok_or_else(unknown)?;
        // The name of a model is part of Gemini's paths.
        if leaves_its_folder(bare(&request.path)) {
            return Err(unknown());
        }
        let (target, tenant) = self.target(&reached);
        let account = Name::from(account_of(&target.origin));
        let reach = Reach { tenant, account, is_checked };
        if let Some(family) = Family::of(&self.wire).filter(|_| is_key) {
            // The operator shares the objects under a path of `passthrough`, and no objects that a body names.
            let in_path = route.as_ref().filter(|_| is_checked);
            let mut refs = in_path.map(|(_, refs)| refs.clone()).unwrap_or_default();
            refs.extend(self.refs_in(family, &request, is_checked)?);
            self.check_owner(family, &reach.account, &refs).await?;
        }
        let gives = match &route {
            Some((route, _)) if !is_allowed => route.gives,
            Some(_) | None => Gives::Nothing,
        };
        match gives {
            Gives::List(list) if is_checked => self.list(&reached, &reach, request, list).await,
            Gives::Ids(places) => {
                let answer = self.forward(&reached, method, without_encodings(&request)).await?;
                self.answer_with_ids(&reach, answer, places).await
            }
            Gives::Nothing | Gives::List(_) => {
                let answer = self.forward(&reached, method, request).await?;
                Ok(self.passed(answer))
            }
        }
    }

    /// Checks that the caller owns every object that a request to that origin names. `parsed` is the body, if it was parsed.
    pub(crate) async fn check_body(
        &self,
        origin: &Origin,
        body: &Bytes,
        parsed: Option<&Tree>,
    ) -> Result<(), Problem> {
        let Some(family) = Family::of(&origin.wire).filter(|_| self.caller.admission.is_key())
        else {
            return Ok(());
        };
        let refs = match parsed.filter(|tree| tree.is_of(body)) {
            Some(tree) => object_ids(family, tree),
            None => {
                let tree = Tree::parse(body.clone())
                    .map_err(|error| Problem::new(400, format!("the body is not JSON: {error}")))?;
                object_ids(family, &tree)
            }
        };
        self.check_owner(family, account_of(origin), &refs).await
    }

    /// Refuses the first object that the caller did not receive from that account.
    async fn check_owner(
        &self,
        family: Family,
        account: &str,
        refs: &[ObjectRef],
    ) -> Result<(), Problem> {
        let is_shared = |named: &&ObjectRef| {
            let path = named.object.kind.path_of(family, &named.object.id);
            self.gateway.passthrough.allows("GET", &path)
        };
        let mut seen = HashSet::new();
        let refs: Vec<&ObjectRef> = refs
            .iter()
            .filter(|named| seen.insert(&named.object))
            .filter(|named| !is_shared(named))
            .collect();
        if refs.is_empty() {
            return Ok(());
        }
        let objects: Vec<&ObjectId> = refs.iter().map(|named| &named.object).collect();
        let owned = self.gateway.replay.owns(&self.caller.tenant, account, &objects).await;
        let owned = owned.map_err(|error| unreadable(&error))?;
        let foreign = refs.iter().zip(owned).find(|(_, owned)| !owned);
        foreign.map_or(Ok(()), |(named, _)| Err(missing(&self.wire, named)))
    }

    /// The objects that the body and the query of a forwarded request name. A body that is neither JSON nor a form nor an upload is
    /// refused if `is_known`: the gateway knows the path, and this provider takes no other body there.
    fn refs_in(
        &self,
        family: Family,
        request: &Request,
        is_known: bool,
    ) -> Result<Vec<ObjectRef>, Problem> {
        let refused = |message: String| Problem::new(400, message);
        let content_type = request.header("content-type").unwrap_or_default();
        let is_upload = bare(&request.path).starts_with("/upload/");
        let (mut refs, description) = if is_multipart(content_type) {
            let refs = ids_in_form(family, content_type, &request.body).map_err(refused)?;
            (refs, described_file(content_type, &request.body))
        } else {
            match &self.body {
                Some(tree) => (object_ids(family, tree), Some(tree.clone())),
                None if is_known && !is_upload && !request.body.is_empty() => {
                    return Err(Problem::new(400, "the body is not JSON"));
                }
                None => (ids_in_lines(family, &request.body, false).map_err(refused)?, None),
            }
        };
        if family == Family::Gemini
            && let Some(file) = description.as_ref().and_then(|tree| tree.root().present("file"))
            && file.present("name").is_some()
        {
            let message = "a file with a gateway key gets its name from the provider: leave out \
                           `file.name`";
            return Err(Problem::new(400, message));
        }
        for id in uploads_in(&request.path) {
            // A file in pieces could name an object where two pieces meet.
            let command = request.header("x-goog-upload-command").unwrap_or_default();
            let command = command.to_ascii_lowercase();
            let is_whole = !command.contains("upload") || command.contains("finalize");
            if !is_whole || request.header("content-range").is_some() {
                let message = "an upload with a gateway key is sent in one piece: use the command \
                               `upload, finalize`, and no `content-range`";
                return Err(Problem::new(400, message));
            }
            refs.push(ObjectRef::new(ObjectKind::Upload, id, None));
        }
        Ok(refs)
    }

    /// The answer to a path that no key may use.
    fn unknown_path(&self, method: &str, path: &str) -> Result<Answered, Problem> {
        let methods = methods_of(&self.wire, path);
        if !methods.is_empty() {
            return Ok(not_allowed(&self.wire, method, &methods));
        }
        let message = format!(
            "the gateway does not know {method} {path}, so it forwards nothing there for its keys: \
             list the path in `passthrough` of [gateway] to allow it"
        );
        Err(Problem::new(404, message))
    }

    /// The provider that answers a request, and the request with the model as that provider calls it.
    fn answerer(&self, request: Request) -> Option<(Reached, Request)> {
        let directory = &self.gateway.directory;
        let named = dialect::names(&self.wire, &request.path, self.body.as_ref()).model;
        let named = named.and_then(|name| Some((directory.reach(&name).ok()?, name)));
        let Some((all, name)) = named else {
            return Some((directory.of_wire(&self.wire)?, request));
        };
        let family = Family::of(&self.wire);
        let is_same = |wire: &Wire| *wire == self.wire || Family::of(wire) == family;
        let reached = all.into_iter().find(|reached| is_same(&reached.provider.wire))?;
        let renamed = dialect::renamed(&self.wire, request, &name, &reached.model);
        Some((reached, renamed))
    }

    async fn forward(
        &self,
        reached: &Reached,
        method: &str,
        request: Request,
    ) -> Result<Answer, Problem> {
        // Bases of OpenAI's kind hold the version already.
        let path = match Family::of(&self.wire) {
            Some(Family::OpenAi) => request.path.strip_prefix("/v1").unwrap_or(&request.path),
            Some(Family::Anthropic | Family::Gemini) | None => &request.path,
        };
        let sent = Sent {
            endpoint: reached.endpoint.clone(),
            model: Some(reached.model.clone()),
            method: method.into(),
            path: path.into(),
            headers: request.headers,
            body: request.body,
            credential: self.caller.credential.clone(),
        };
        self.ticket.note(|facts| facts.provider = Some(reached.account.clone()));
        let answer = self.gateway.upstream.send(sent).await;
        let answer = answer.map_err(|error| self.failed(&error))?;
        self.ticket.note_first_byte();
        refuse_redirect(&answer, reached)?;
        Ok(answer)
    }

    /// An answer as it came.
    fn passed(&self, answer: Answer) -> Answered {
        let (status, headers) = (answer.status, passed_headers(&answer));
        let ticket = Arc::clone(&self.ticket);
        let body = answer.body.map(move |chunk| {
            chunk.map_err(|error| {
                ticket.note(|facts| facts.problem = Some(error.to_string()));
                Cut(error.to_string())
            })
        });
        Answered { status, headers, body: Outgoing::Stream(Box::pin(body)) }
    }

    /// An answer as it came, after its ids were recorded.
    async fn answer_with_ids(
        &self,
        reach: &Reach,
        answer: Answer,
        places: &'static [(&'static str, ObjectKind)],
    ) -> Result<Answered, Problem> {
        let Some(family) = Family::of(&self.wire).filter(|_| answer.status < 300) else {
            return Ok(self.passed(answer));
        };
        let is_stream =
            answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        if is_stream {
            let mut ids = EventIds::new(family, places);
            let replay = Arc::clone(&self.gateway.replay);
            let (tenant, account) = (reach.tenant.clone(), reach.account.clone());
            let is_checked = reach.is_checked;
            let Answered { status, headers, body } = self.passed(answer);
            let Outgoing::Stream(stream) = body else {
                return Ok(Answered { status, headers, body });
            };
            let recorded = stream.then(move |piece| {
                let found = piece.as_ref().map(|bytes| ids.push(bytes)).unwrap_or_default();
                let (replay, tenant, account) =
                    (Arc::clone(&replay), tenant.clone(), account.clone());
                async move {
                    let kept = replay.record_objects(&tenant, &account, &found).await;
                    match kept {
                        Err(error) if is_checked => Err(Cut(unrecorded(&error).message)),
                        Ok(()) | Err(_) => piece,
                    }
                }
            });
            return Ok(Answered { status, headers, body: Outgoing::Stream(Box::pin(recorded)) });
        }
        let (status, mut headers) = (answer.status, passed_headers(&answer));
        let encoding = answer.header("content-encoding").map(Name::from);
        let mut ids = Vec::new();
        if let Some((_, url)) = headers.iter_mut().find(|(name, _)| is_upload_url(name))
            && reach.is_checked
        {
            let uploads = uploads_in(url).into_iter();
            ids.extend(uploads.map(|id| ObjectId { kind: ObjectKind::Upload, id }));
            if let Some(own) = self.own_address(url) {
                *url = own;
            }
        }
        let body = whole(answer).await?;
        let readable = compression::inflated(encoding.as_deref(), &body).unwrap_or_default();
        if let Ok(tree) = Tree::parse(readable) {
            ids.extend(ids_at(family, tree.root(), places));
        }
        let recorded =
            self.gateway.replay.record_objects(&reach.tenant, &reach.account, &ids).await;
        if let Err(error) = recorded
            && reach.is_checked
        {
            return Err(unrecorded(&error));
        }
        Ok(Answered { status, headers, body: Outgoing::Whole(body) })
    }

    /// A list of the account, with the caller's objects only.
    async fn list(
        &self,
        reached: &Reached,
        reach: &Reach,
        request: Request,
        list: List,
    ) -> Result<Answered, Problem> {
        let Some(family) = Family::of(&self.wire) else {
            return Err(Problem::new(404, "this dialect has no lists"));
        };
        let mut request = without_encodings(&request);
        for _ in 0..PAGES {
            let answer = self.forward(reached, "GET", request.clone()).await?;
            if answer.status >= 300 {
                return Ok(self.passed(answer));
            }
            let (status, mut headers) = (answer.status, passed_headers(&answer));
            let encoding = answer.header("content-encoding").map(Name::from);
            let body = whole(answer).await?;
            let unread = || Problem::new(502, "the provider's list cannot be read");
            let body = compression::inflated(encoding.as_deref(), &body).map_err(|_| unread())?;
            let tree = Tree::parse(body).map_err(|_| unread())?;
            let all = listed(family, &list, tree.root());
            let ids: Vec<&ObjectId> = all.iter().filter_map(|(_, id)| id.as_ref()).collect();
            let owned = self.gateway.replay.owns(&reach.tenant, &reach.account, &ids).await;
            let owned = owned.map_err(|error| unreadable(&error))?;
            let owned: HashSet<ObjectId> = ids
                .into_iter()
                .zip(owned)
                .filter(|(_, owned)| *owned)
                .map(|(id, _)| id.clone())
                .collect();
            let has_more = tree.root().get("has_more").and_then(Node::bool).unwrap_or(false);
            let newest = all.last().and_then(|(_, id)| id.as_ref());
            if let (true, true, Some(cursor), Some(last)) =
                (owned.is_empty(), has_more, list.cursor, newest)
            {
                // Clients end at an empty page, so the next page with an object of the caller is sought.
                request.path = continued(&request.path, cursor, &last.id);
                continue;
            }
            let mine =
                all.iter().filter(|(_, id)| id.as_ref().is_some_and(|id| owned.contains(id)));
            let inner: Vec<ObjectId> =
                mine.flat_map(|(element, _)| ids_at(family, *element, list.inner)).collect();
            let recorded =
                self.gateway.replay.record_objects(&reach.tenant, &reach.account, &inner).await;
            recorded.map_err(|error| unrecorded(&error))?;
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
            let shown = filter_list(family, &list, &tree, &owned);
            let body = Outgoing::Whole(shown.bytes().clone());
            return Ok(Answered { status, headers, body });
        }
        let message = "too many objects of other tenants stand before yours in this list: ask for \
                       each object by its id";
        Err(Problem::new(503, message))
    }

    /// An upload's address as the caller reaches it: through this gateway, which then learns the file's id.
    fn own_address(&self, url: &str) -> Option<Name> {
        let (_, rest) = url.split_once("://")?;
        let path = rest.find('/').and_then(|at| rest.get(at..))?;
        Some(Name::from(format!("{}{path}", self.caller.address.as_deref()?)))
    }
}

/// The answer to a method that a path does not take.
pub(crate) fn not_allowed(wire: &Wire, method: &str, methods: &[&str]) -> Answered {
    let allowed = methods.join(", ");
    let message = format!("{method} is not allowed here: use {allowed}");
    let mut answered = Problem::new(405, message).told(wire);
    answered.headers.push((Name::from("allow"), Name::from(allowed)));
    answered
}

/// An object that the caller does not own, in the words of its dialect.
fn missing(wire: &Wire, named: &ObjectRef) -> Problem {
    let ObjectId { kind, id } = &named.object;
    if named.member == Some(PREVIOUS) {
        return no_previous(id);
    }
    let word = kind.as_str();
    let message = match Family::of(wire) {
        Some(Family::Anthropic) => format!("{word} not found: {id}"),
        Some(Family::Gemini) => format!("Requested entity was not found: {word} {id}"),
        Some(Family::OpenAi) | None => match kind {
            ObjectKind::Response => format!("Response with id '{id}' not found."),
            ObjectKind::Conversation => format!("Conversation with id '{id}' not found."),
            ObjectKind::Item => format!("Item with id '{id}' not found."),
            ObjectKind::File => format!("No such File object: {id}"),
            _ => format!("No such {word} object: {id}"),
        },
    };
    let code = named.member.map(|member| (member, "not_found"));
    Problem { code, ..Problem::new(404, message) }
}

fn unrecorded(error: &StoreError) -> Problem {
    let message = format!(
        "the provider answered, but the owner of the object cannot be recorded, so it could not be \
         used: {error}"
    );
    Problem::new(503, message)
}

/// Refuses a request that the gateway and the provider could read differently.
fn refuse_hidden(request: &Request) -> Result<(), Problem> {
    let encoding = request.header("content-encoding").unwrap_or("identity");
    if !encoding.trim().eq_ignore_ascii_case("identity") {
        let message = format!("the body is compressed ({encoding}): send it uncompressed");
        return Err(Problem::new(415, message));
    }
    let (_, query) = request.path.split_once('?').unwrap_or_default();
    let names =
        query.split('&').map(|pair| decode_query(pair.split('=').next().unwrap_or_default()));
    if names.into_iter().any(|name| name.to_ascii_lowercase().contains("httpmethod")) {
        return Err(Problem::new(400, "a query may not choose another method"));
    }
    Ok(())
}

fn is_multipart(content_type: &str) -> bool {
    content_type.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"))
}

/// Whether a path has segments that lead elsewhere, in any spelling.
fn leaves_its_folder(path: &str) -> bool {
    let path = decode_segment(path);
    path.contains(['\\', '?', '#']) || path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// A request whose answer comes uncompressed.
fn without_encodings(request: &Request) -> Request {
    let kept = request.headers.iter().filter(|(name, _)| **name != *"accept-encoding");
    Request { headers: kept.cloned().collect(), ..request.clone() }
}

fn passed_headers(answer: &Answer) -> Vec<(Name, Name)> {
    let passed = answer.headers.iter().filter(|(name, _)| passes_back(name, true));
    passed.cloned().collect()
}

fn is_upload_url(name: &str) -> bool {
    name.eq_ignore_ascii_case(UPLOAD_URL)
}

/// The uploads that an address names.
fn uploads_in(address: &str) -> Vec<Name> {
    let (_, query) = address.split_once('?').unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let ids = pairs.filter(|(name, _)| decode_query(name).eq_ignore_ascii_case("upload_id"));
    ids.map(|(_, id)| decode_query(id)).filter(|id| !id.is_empty()).collect()
}

/// The path of a list's next page.
fn continued(path: &str, cursor: &str, last: &str) -> Name {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_cursor = |pair: &&str| pair.split('=').next() == Some(cursor);
    let kept = query.split('&').filter(|pair| !pair.is_empty() && !is_cursor(pair));
    let mut query: Vec<String> = kept.map(str::to_owned).collect();
    query.push(format!("{cursor}={last}"));
    Name::from(format!("{path}?{}", query.join("&")))
}

/// Whether something of a dialect costs nothing.
fn is_free(method: &str, path: &str) -> bool {
    let counts = ["count_tokens", ":countTokens", "/input_tokens"];
    method == "GET" || counts.iter().any(|end| path.ends_with(end))
}

fn bare(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}
