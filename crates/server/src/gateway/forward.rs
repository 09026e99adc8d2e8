//! Forwards requests other than model calls without changes: files, batches, embeddings and other
//! paths.
//!
//! A gateway without keys forwards every resource that a dialect defines (`objects/resources.rs`).
//! For a caller with a key, the gateway forwards the paths in `objects/routes.rs`, and checks that
//! the caller owns each referenced object. It also forwards the paths that the operator lists in
//! `passthrough`.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use throughline_core::{Origin, Request, StoreError, Tenant, UpstreamResponse, Wire};
use throughline_json::{Name, Node, Tree};

use crate::access::Admission;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::answer::{collect_body, forwarded_headers, refuse_redirect};
use crate::gateway::compression;
use crate::gateway::dialect;
use crate::gateway::exchange::Exchange;
use crate::gateway::headers::without_query;
use crate::gateway::objects::{
    AwsObject, EventIdScanner, ObjectList, ObjectRef, ReturnedIds, aws_objects, file_description,
    filter_list, find_route, ids_in_form, ids_in_lines, is_defined, list_entries, methods_of,
    object_ids,
};
use crate::gateway::previous::previous_not_found;
use crate::response::{GatewayResponse, ResponseBody, StreamAborted};
use crate::routing::RouteTarget;
use crate::url::{decode_query, decode_segment};
use throughline_replay::{
    Claims, Family, ObjectId, ObjectKind, PREVIOUS_RESPONSE_ID, account_of, ids_at,
};

/// Maximum number of a provider's list pages to search for objects that the caller owns.
const PAGES: usize = 50;

/// The header in which Gemini returns the URL of an upload.
const UPLOAD_URL: &str = "x-goog-upload-url";

/// The tenant and account whose objects a forwarded request may use.
struct ObjectScope {
    tenant: Tenant,
    account: Name,
    /// Whether the caller must own the objects that the request references.
    is_checked: bool,
}

impl Exchange<'_> {
    /// Forwards a request that is not a model call.
    pub(crate) async fn forward_other(&self, method: &str, request: Request) -> GatewayResult {
        let path = without_query(&request.path);
        if matches!(&self.caller.admission, Admission::Key { models, .. } if !models.is_empty()) {
            let message = "this key is limited to certain models and cannot use other endpoints";
            return Err(GatewayError::new(403, message));
        }
        if self.caller.admission.has_budget() && !is_free(method, path) {
            let message = "this key has a budget, and this path has no known price";
            return Err(GatewayError::new(403, message));
        }
        if Claims::contains_handles(request.path.as_bytes())
            || Claims::contains_handles(&request.body)
        {
            let message = "the request contains ids or Claims that the gateway issued; remove them";
            return Err(GatewayError::new(400, message));
        }
        let unknown = || GatewayError::new(404, format!("no provider serves {method} {path}"));
        if has_path_traversal(path) {
            return Err(unknown());
        }
        let route = find_route(&self.wire, method, path);
        let is_allowed = self.gateway.passthrough.allows(method, path);
        let is_key = self.caller.admission.is_key();
        let is_checked = is_key && !is_allowed;
        if is_checked && route.is_none() {
            return self.unknown_path(method, path);
        }
        if !is_allowed && route.is_none() && !is_defined(&self.wire, path) {
            let message = format!(
                "no provider API defines {method} {path}: check the path (docs/gateway.md lists \
                 all paths), or list it in `passthrough` of [gateway] to forward it"
            );
            return Err(GatewayError::new(404, message));
        }
        if is_key {
            refuse_ambiguous(&request)?;
        }
        let (reached, request) = self.select_provider(request.clone()).ok_or_else(unknown)?;
        // Gemini's paths contain the model name, which must not lead to another path.
        if has_path_traversal(without_query(&request.path)) {
            return Err(unknown());
        }
        let is_pooled = self.gateway.directory.pool(&reached).is_some();
        let in_path = route.as_ref().map(|(_, refs)| refs.clone()).unwrap_or_default();
        let in_body = match Family::of(&self.wire) {
            Some(family) if is_key => self.object_refs(family, &request, is_checked)?,
            // Without a key, the objects only determine the account.
            Some(family) if is_pooled => {
                self.object_refs(family, &request, false).unwrap_or_default()
            }
            Some(_) | None => Vec::new(),
        };
        let is_stored = route.as_ref().is_some_and(|(route, _)| route.gives.has_objects());
        let all_refs = [in_path.clone(), in_body.clone()].concat();
        let mut stored_refs = all_refs.clone();
        stored_refs.retain(|named| !named.is_in_cloud_storage());
        let reached = self.object_account(reached, &stored_refs, is_stored).await?;
        let (target, tenant) = self.target(&reached);
        let account = Name::from(account_of(&target.origin));
        let reach = ObjectScope { tenant, account, is_checked };
        if let Some(family) = Family::of(&self.wire).filter(|_| is_key) {
            // `passthrough` shares the objects under a path, but not the objects that a body names.
            let refs = if is_checked { all_refs } else { in_body };
            self.check_owner(family, &reach.account, &refs).await?;
        }
        let gives = match &route {
            Some((route, _)) if !is_allowed => route.gives,
            Some(_) | None => ReturnedIds::Nothing,
        };
        match gives {
            ReturnedIds::List(list) if is_checked => {
                self.filtered_list(&reached, &reach, request, list).await
            }
            ReturnedIds::Ids(places) => {
                let answer =
                    self.send_upstream(&reached, method, without_encodings(&request)).await?;
                self.relay_with_ids(&reached, &reach, answer, places).await
            }
            ReturnedIds::Nothing | ReturnedIds::List(_) => {
                let answer = self.send_upstream(&reached, method, request).await?;
                Ok(self.passed(&reached, answer))
            }
        }
    }

    /// Checks that the caller owns every object that a request to this origin references.
    pub(crate) async fn check_ownership(&self, origin: &Origin, body: &Bytes) -> GatewayResult<()> {
        let family = Family::of(&origin.wire);
        let is_bedrock = origin.wire == Wire::BEDROCK_CONVERSE;
        if !self.caller.admission.is_key() || (family.is_none() && !is_bedrock) {
            return Ok(());
        }
        let parsed;
        let tree = match self.body.as_ref().filter(|tree| tree.indexes(body)) {
            Some(tree) => tree,
            None => {
                let not_json = |error| format!("the body is not JSON: {error}");
                parsed = Tree::parse(body.clone())
                    .map_err(|error| GatewayError::new(400, not_json(error)))?;
                &parsed
            }
        };
        if is_bedrock {
            return self.check_aws_objects(origin, tree);
        }
        let Some(family) = family else { return Ok(()) };
        self.check_owner(family, account_of(origin), &object_ids(family, tree)).await
    }

    /// Refuses a Converse request that references an object of the operator's AWS account, unless
    /// `passthrough` lists the object. A prompt that a route of the operator names is allowed.
    fn check_aws_objects(&self, origin: &Origin, body: &Tree) -> GatewayResult<()> {
        if origin.account.starts_with(Claims::CALLER_PREFIX) {
            return Ok(());
        }
        let prompt = self.model.as_deref().and_then(AwsObject::prompt);
        let mut objects = aws_objects(body).into_iter().chain(prompt);
        let foreign = objects.find(|it| !self.gateway.passthrough.allows("GET", &it.path));
        foreign.map_or(Ok(()), |it| Err(GatewayError::new(404, it.refusal())))
    }

    /// Refuses the request if it references an object that the caller did not receive from this
    /// account.
    async fn check_owner(
        &self,
        family: Family,
        account: &str,
        refs: &[ObjectRef],
    ) -> GatewayResult<()> {
        // A caller's own key reads the caller's own objects in Google Cloud Storage.
        let is_callers = account.starts_with(Claims::CALLER_PREFIX);
        let is_shared = |named: &&ObjectRef| {
            let ObjectId { kind, id } = &named.object;
            let passthrough = &self.gateway.passthrough;
            if named.is_in_cloud_storage() {
                return is_callers || passthrough.allows("GET", id);
            }
            passthrough.allows("GET", &kind.path_of(family, id))
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
        let owned = self.gateway.replay.owns(&self.caller.tenant, account, &objects).await?;
        let foreign = refs.iter().zip(owned).find(|(_, owned)| !owned);
        foreign.map_or(Ok(()), |(named, _)| Err(missing(&self.wire, named)))
    }

    /// Returns the objects that the body and the query of a forwarded request reference. `is_known`
    /// is set if the gateway recognises the path. On a known path, only JSON, forms and uploads are
    /// accepted, because the provider accepts no other body on that path.
    fn object_refs(
        &self,
        family: Family,
        request: &Request,
        is_known: bool,
    ) -> GatewayResult<Vec<ObjectRef>> {
        let refused = |message: String| GatewayError::new(400, message);
        let content_type = request.header("content-type").unwrap_or_default();
        let is_upload = without_query(&request.path).starts_with("/upload/");
        let (mut refs, description) = if is_multipart(content_type) {
            let refs = ids_in_form(family, content_type, &request.body).map_err(refused)?;
            (refs, file_description(content_type, &request.body))
        } else {
            match &self.body {
                Some(tree) => (object_ids(family, tree), Some(tree.clone())),
                None if is_known && !is_upload && !request.body.is_empty() => {
                    return Err(GatewayError::new(400, "the body is not JSON"));
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
            return Err(GatewayError::new(400, message));
        }
        for id in upload_ids(&request.path) {
            // An id split across two pieces of a file would escape the check.
            let command = request.header("x-goog-upload-command").unwrap_or_default();
            let command = command.to_ascii_lowercase();
            let is_whole = !command.contains("upload") || command.contains("finalize");
            if !is_whole || request.header("content-range").is_some() {
                let message = "an upload with a gateway key is sent in one piece: use the command \
                               `upload, finalize`, and no `content-range`";
                return Err(GatewayError::new(400, message));
            }
            refs.push(ObjectRef::new(ObjectKind::Upload, id, None));
        }
        Ok(refs)
    }

    /// Rejects a path that the gateway does not forward for callers with keys.
    fn unknown_path(&self, method: &str, path: &str) -> GatewayResult {
        let methods = methods_of(&self.wire, path);
        if !methods.is_empty() {
            return Ok(method_not_allowed(&self.wire, method, &methods));
        }
        let message = format!(
            "the gateway does not recognise {method} {path} and does not forward it for keys: \
             list the path in `passthrough` of [gateway] to allow it"
        );
        Err(GatewayError::new(404, message))
    }

    /// Selects the provider for a request, and replaces the model name with the provider's name for
    /// the model.
    fn select_provider(&self, request: Request) -> Option<(RouteTarget, Request)> {
        let directory = &self.gateway.directory;
        let named = self.model.as_ref();
        let named = named.and_then(|name| Some((directory.reach(name).ok()?, name)));
        let Some((all, name)) = named else {
            return Some((directory.of_wire(&self.wire)?, request));
        };
        let family = Family::of(&self.wire);
        let is_same = |wire: &Wire| *wire == self.wire || Family::of(wire) == family;
        let reached = all.into_iter().find(|reached| is_same(&reached.provider.wire))?;
        let renamed = dialect::renamed(&self.wire, request, name, &reached.model);
        Some((reached, renamed))
    }

    async fn send_upstream(
        &self,
        reached: &RouteTarget,
        method: &str,
        request: Request,
    ) -> GatewayResult<UpstreamResponse> {
        // Base URLs of the OpenAI family already contain the version.
        let path = match Family::of(&self.wire) {
            Some(Family::OpenAi) => request.path.strip_prefix("/v1").unwrap_or(&request.path),
            Some(Family::Anthropic | Family::Gemini) | None => &request.path,
        };
        let path = Name::from(path);
        let request = Request { path, ..request };
        let answer = self.send_other(reached, method, request).await?;
        refuse_redirect(&answer, reached)?;
        Ok(answer)
    }

    /// Relays a response without changes.
    fn passed(&self, reached: &RouteTarget, answer: UpstreamResponse) -> GatewayResponse {
        let (status, headers) = (answer.status, forwarded_headers(reached, &answer));
        let body = ResponseBody::Stream(Box::pin(self.relayed_body(answer)));
        GatewayResponse { status, headers, body }
    }

    /// Streams a response body to the caller. The request is reported as ended when the body ends.
    fn relayed_body(
        &self,
        answer: UpstreamResponse,
    ) -> impl Stream<Item = Result<Bytes, StreamAborted>> + Send + use<> {
        let scope = Arc::clone(&self.scope);
        let body = answer.body.map(move |chunk| {
            chunk.map_err(|error| {
                scope.record().problem = Some(error.to_string());
                StreamAborted(error.to_string())
            })
        });
        Arc::clone(&self.scope).end_after(body)
    }

    /// Relays a response without changes, and records the ids that the response contains.
    async fn relay_with_ids(
        &self,
        reached: &RouteTarget,
        reach: &ObjectScope,
        answer: UpstreamResponse,
        places: &'static [(&'static str, ObjectKind)],
    ) -> GatewayResult {
        let Some(family) = Family::of(&self.wire).filter(|_| answer.status < 300) else {
            return Ok(self.passed(reached, answer));
        };
        let is_stream =
            answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        if is_stream {
            let mut ids = EventIdScanner::new(family, places);
            let replay = Arc::clone(&self.gateway.replay);
            let (tenant, account) = (reach.tenant.clone(), reach.account.clone());
            let is_checked = reach.is_checked;
            let (status, headers) = (answer.status, forwarded_headers(reached, &answer));
            let recorded = self.relayed_body(answer).then(move |piece| {
                let found = piece.as_ref().map(|bytes| ids.push(bytes)).unwrap_or_default();
                let (replay, tenant, account) =
                    (Arc::clone(&replay), tenant.clone(), account.clone());
                async move {
                    match replay.record_objects(&tenant, &account, &found).await {
                        Err(error) if is_checked => {
                            Err(StreamAborted(ownership_not_recorded(&error).message))
                        }
                        Ok(()) | Err(_) => piece,
                    }
                }
            });
            let body = ResponseBody::Stream(Box::pin(recorded));
            return Ok(GatewayResponse { status, headers, body });
        }
        let (status, mut headers) = (answer.status, forwarded_headers(reached, &answer));
        let encoding = answer.header("content-encoding").map(Name::from);
        let mut ids = Vec::new();
        if let Some((_, url)) =
            headers.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(UPLOAD_URL))
            && reach.is_checked
        {
            let uploads = upload_ids(url).into_iter();
            ids.extend(uploads.map(|id| ObjectId { kind: ObjectKind::Upload, id }));
            if let Some(own) = self.gateway_url(url) {
                *url = own;
            }
        }
        let body = collect_body(answer).await?;
        let readable = compression::inflate(encoding.as_deref(), &body).unwrap_or_default();
        if let Ok(tree) = Tree::parse(readable) {
            ids.extend(ids_at(family, tree.root(), places));
        }
        let recorded =
            self.gateway.replay.record_objects(&reach.tenant, &reach.account, &ids).await;
        if let Err(error) = recorded
            && reach.is_checked
        {
            return Err(ownership_not_recorded(&error));
        }
        Ok(GatewayResponse { status, headers, body: ResponseBody::Whole(body) })
    }

    /// Returns a list of the account's objects, reduced to the objects that the caller owns.
    async fn filtered_list(
        &self,
        reached: &RouteTarget,
        reach: &ObjectScope,
        request: Request,
        list: ObjectList,
    ) -> GatewayResult {
        let Some(family) = Family::of(&self.wire) else {
            let message = format!("the {} API has no list endpoint", self.wire);
            return Err(GatewayError::new(404, message));
        };
        let mut request = without_encodings(&request);
        for _ in 0..PAGES {
            let answer = self.send_upstream(reached, "GET", request.clone()).await?;
            if answer.status >= 300 {
                return Ok(self.passed(reached, answer));
            }
            let (status, mut headers) = (answer.status, forwarded_headers(reached, &answer));
            let encoding = answer.header("content-encoding").map(Name::from);
            let body = collect_body(answer).await?;
            let unread =
                || GatewayError::new(502, "cannot decode the list that the provider returned");
            let body = compression::inflate(encoding.as_deref(), &body).map_err(|_| unread())?;
            let tree = Tree::parse(body).map_err(|_| unread())?;
            let all = list_entries(family, &list, tree.root());
            let ids: Vec<&ObjectId> = all.iter().filter_map(|(_, id)| id.as_ref()).collect();
            let owned = self.gateway.replay.owns(&reach.tenant, &reach.account, &ids).await?;
            let owned = ids.into_iter().zip(owned).filter(|(_, owned)| *owned);
            let owned: HashSet<ObjectId> = owned.map(|(id, _)| id.clone()).collect();
            let has_more = tree.root().get("has_more").and_then(Node::bool).unwrap_or(false);
            let newest = all.last().and_then(|(_, id)| id.as_ref());
            if let (true, true, Some(cursor), Some(last)) =
                (owned.is_empty(), has_more, list.cursor, newest)
            {
                // Clients stop at an empty page, so search for the next page with an object of the
                // caller.
                request.path = next_page_path(&request.path, cursor, &last.id);
                continue;
            }
            let mine =
                all.iter().filter(|(_, id)| id.as_ref().is_some_and(|id| owned.contains(id)));
            let inner: Vec<ObjectId> =
                mine.flat_map(|(element, _)| ids_at(family, *element, list.inner)).collect();
            let recorded =
                self.gateway.replay.record_objects(&reach.tenant, &reach.account, &inner).await;
            recorded.map_err(|error| ownership_not_recorded(&error))?;
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
            let filtered = filter_list(family, &list, &tree, &owned);
            let body = ResponseBody::Whole(filtered.bytes().clone());
            return Ok(GatewayResponse { status, headers, body });
        }
        let message = "too many objects of other tenants precede yours in this list: request \
                       each object by its id";
        Err(GatewayError::new(503, message))
    }

    /// Rewrites a provider's upload URL to point to this gateway, so that the gateway can record
    /// the id of the uploaded file.
    fn gateway_url(&self, url: &str) -> Option<Name> {
        let (_, rest) = url.split_once("://")?;
        let path = rest.find('/').and_then(|at| rest.get(at..))?;
        Some(Name::from(format!("{}{path}", self.caller.address.as_deref()?)))
    }
}

/// Returns 405 with the allowed methods.
pub(crate) fn method_not_allowed(wire: &Wire, method: &str, methods: &[&str]) -> GatewayResponse {
    let allowed = methods.join(", ");
    let message = format!("{method} is not allowed here; allowed methods: {allowed}");
    GatewayError::new(405, message).to_response(wire).with_header("allow", allowed)
}

/// Returns the error for an object that the caller does not own, worded like the provider's own
/// error.
fn missing(wire: &Wire, named: &ObjectRef) -> GatewayError {
    let ObjectId { kind, id } = &named.object;
    if named.member == Some(PREVIOUS_RESPONSE_ID) {
        return previous_not_found(id);
    }
    if named.is_in_cloud_storage() {
        let message = format!(
            "Cloud Storage object not found: {id}. With a gateway key, Google can read it only if \
             the operator lists \"{id}\" in `passthrough` of [gateway]"
        );
        return GatewayError::new(404, message);
    }
    let noun = kind.as_str();
    let message = match Family::of(wire) {
        Some(Family::Anthropic) => format!("{noun} not found: {id}"),
        Some(Family::Gemini) => format!("Requested entity was not found: {noun} {id}"),
        Some(Family::OpenAi) | None => match kind {
            ObjectKind::Response => format!("Response with id '{id}' not found."),
            ObjectKind::Conversation => format!("Conversation with id '{id}' not found."),
            ObjectKind::Item => format!("Item with id '{id}' not found."),
            ObjectKind::File => format!("No such File object: {id}"),
            _ => format!("No such {noun} object: {id}"),
        },
    };
    let code = named.member.map(|member| (member, "not_found"));
    GatewayError { code, ..GatewayError::new(404, message) }
}

fn ownership_not_recorded(error: &StoreError) -> GatewayError {
    let message = format!(
        "the provider answered, but recording the owner of the object failed, so it could not be \
         used: {error}"
    );
    GatewayError::new(503, message)
}

/// Refuses a request that the gateway and the provider could interpret differently.
fn refuse_ambiguous(request: &Request) -> GatewayResult<()> {
    let (_, query) = request.path.split_once('?').unwrap_or_default();
    let names =
        query.split('&').map(|pair| decode_query(pair.split('=').next().unwrap_or_default()));
    if names.into_iter().any(|name| name.to_ascii_lowercase().contains("httpmethod")) {
        return Err(GatewayError::new(400, "the query must not override the HTTP method"));
    }
    Ok(())
}

fn is_multipart(content_type: &str) -> bool {
    content_type.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"))
}

/// Returns whether a decoded path contains a `.` or `..` segment, a backslash, `?` or `#`.
fn has_path_traversal(path: &str) -> bool {
    let path = decode_segment(path);
    path.contains(['\\', '?', '#']) || path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// Removes `accept-encoding`, so that the response is not compressed.
fn without_encodings(request: &Request) -> Request {
    let kept = request.headers.iter().filter(|(name, _)| **name != *"accept-encoding");
    Request { headers: kept.cloned().collect(), ..request.clone() }
}

/// Returns the `upload_id` parameters in a URL.
fn upload_ids(address: &str) -> Vec<Name> {
    let (_, query) = address.split_once('?').unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let ids = pairs.filter(|(name, _)| decode_query(name).eq_ignore_ascii_case("upload_id"));
    ids.map(|(_, id)| decode_query(id)).filter(|id| !id.is_empty()).collect()
}

/// Builds the path of a list's next page by setting the cursor parameter to the last id of the
/// current page.
fn next_page_path(path: &str, cursor: &str, last: &str) -> Name {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_cursor = |pair: &&str| pair.split('=').next() == Some(cursor);
    let kept = query.split('&').filter(|pair| !pair.is_empty() && !is_cursor(pair));
    let mut query: Vec<String> = kept.map(str::to_owned).collect();
    query.push(format!("{cursor}={last}"));
    Name::from(format!("{path}?{}", query.join("&")))
}

/// Returns whether a request is never billed: a read or a token count.
fn is_free(method: &str, path: &str) -> bool {
    let counts = ["count_tokens", ":countTokens", "/input_tokens"];
    method == "GET" || counts.iter().any(|end| path.ends_with(end))
}
