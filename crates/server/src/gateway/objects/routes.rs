//! The paths that the gateway forwards for callers with keys, and the objects that these paths
//! reference and return.
//!
//! A path is a template. `{file}` is an id that the caller must own. `{*}` is one segment that
//! references no tenant's object. `{**}` is one or more segments, as in a model name.

use throughline_core::Wire;

use throughline_replay::{Family, ObjectKind};

use crate::gateway::objects::ObjectRef;
use crate::url::decode_segment;

/// A method and path that the gateway forwards, and the object ids that the response contains.
pub(crate) struct ObjectRoute {
    pub(crate) family: Family,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) gives: ReturnedIds,
}

/// The ids that a response contains, and what the gateway does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnedIds {
    /// The response contains no id that a later request can use.
    Nothing,
    /// The response contains ids of the caller's objects at these JSON paths.
    Ids(&'static [(&'static str, ObjectKind)]),
    /// The response lists the account's objects. The gateway reduces the list to the caller's
    /// objects.
    List(ObjectList),
}

impl ReturnedIds {
    /// Whether the response refers to objects that the account stores.
    pub(crate) fn has_objects(self) -> bool {
        match self {
            ReturnedIds::Nothing => false,
            ReturnedIds::Ids(_) | ReturnedIds::List(_) => true,
        }
    }
}

/// The format of a response that lists an account's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectList {
    /// The field that contains the objects.
    pub(crate) array: &'static str,
    /// The field of each object that contains its id.
    pub(crate) id: &'static str,
    pub(crate) kind: ObjectKind,
    /// The query parameter that continues the list after an id; `None` if the provider returns a
    /// page token.
    pub(crate) cursor: Option<&'static str>,
    /// JSON paths of the ids of other objects inside each listed object.
    pub(crate) inner: &'static [(&'static str, ObjectKind)],
}

use throughline_replay::ObjectKind::{
    Batch, CachedContent, Completion, Container, Conversation, File, Interaction, Item, Response,
    VectorStore,
};

const NONE: ReturnedIds = ReturnedIds::Nothing;
const RESPONSE: ReturnedIds = ReturnedIds::Ids(&[
    ("id", Response),
    ("response.id", Response),
    ("output[].id", Item),
    ("item.id", Item),
    ("response.output[].id", Item),
]);
const ITEMS: ReturnedIds = ReturnedIds::Ids(&[("data[].id", Item), ("id", Item)]);
const BATCH_FILES: &[(&str, ObjectKind)] = &[("output_file_id", File), ("error_file_id", File)];
const BATCH: ReturnedIds =
    ReturnedIds::Ids(&[("id", Batch), ("output_file_id", File), ("error_file_id", File)]);
const GEMINI_BATCH: ReturnedIds = ReturnedIds::Ids(&[
    ("name", Batch),
    ("response.responsesFile", File),
    ("metadata.output.responsesFile", File),
]);

const fn list(kind: ObjectKind, cursor: &'static str) -> ReturnedIds {
    ReturnedIds::List(ObjectList {
        array: "data",
        id: "id",
        kind,
        cursor: Some(cursor),
        inner: &[],
    })
}

const fn named_list(array: &'static str, kind: ObjectKind) -> ReturnedIds {
    ReturnedIds::List(ObjectList { array, id: "name", kind, cursor: None, inner: &[] })
}

const fn ids(places: &'static [(&'static str, ObjectKind)]) -> ReturnedIds {
    ReturnedIds::Ids(places)
}

macro_rules! routes {
    ($($family:ident $($method:ident)+ $path:literal $gives:expr;)*) => {
        const ROUTES: &[ObjectRoute] = &[$($(ObjectRoute {
            family: Family::$family, method: stringify!($method), path: $path, gives: $gives,
        },)+)*];
    };
}

routes! {
    OpenAi GET "/v1/responses/{response}" RESPONSE;
    OpenAi DELETE "/v1/responses/{response}" NONE;
    OpenAi POST "/v1/responses/{response}/cancel" RESPONSE;
    OpenAi GET "/v1/responses/{response}/input_items" ITEMS;
    OpenAi POST "/v1/conversations" ids(&[("id", Conversation)]);
    OpenAi GET POST DELETE "/v1/conversations/{conversation}" NONE;
    OpenAi GET POST "/v1/conversations/{conversation}/items" ITEMS;
    OpenAi GET DELETE "/v1/conversations/{conversation}/items/{item}" NONE;
    OpenAi GET "/v1/chat/completions" list(Completion, "after");
    OpenAi GET POST DELETE "/v1/chat/completions/{completion}" NONE;
    OpenAi GET "/v1/chat/completions/{completion}/messages" NONE;
    OpenAi POST "/v1/files" ids(&[("id", File)]);
    OpenAi GET "/v1/files" list(File, "after");
    OpenAi GET DELETE "/v1/files/{file}" NONE;
    OpenAi GET "/v1/files/{file}/content" NONE;
    OpenAi POST "/v1/batches" BATCH;
    OpenAi GET "/v1/batches" ReturnedIds::List(ObjectList { array: "data", id: "id", kind: Batch, cursor: Some("after"), inner: BATCH_FILES });
    OpenAi GET "/v1/batches/{batch}" BATCH;
    OpenAi POST "/v1/batches/{batch}/cancel" BATCH;
    OpenAi POST "/v1/containers" ids(&[("id", Container)]);
    OpenAi GET "/v1/containers" list(Container, "after");
    OpenAi GET DELETE "/v1/containers/{container}" NONE;
    OpenAi POST GET "/v1/containers/{container}/files" NONE;
    OpenAi GET DELETE "/v1/containers/{container}/files/{*}" NONE;
    OpenAi GET "/v1/containers/{container}/files/{*}/content" NONE;
    OpenAi POST "/v1/vector_stores" ids(&[("id", VectorStore)]);
    OpenAi GET "/v1/vector_stores" list(VectorStore, "after");
    OpenAi GET POST DELETE "/v1/vector_stores/{vector_store}" NONE;
    OpenAi POST "/v1/vector_stores/{vector_store}/search" NONE;
    OpenAi POST GET "/v1/vector_stores/{vector_store}/files" NONE;
    OpenAi GET DELETE "/v1/vector_stores/{vector_store}/files/{file}" NONE;
    OpenAi GET "/v1/vector_stores/{vector_store}/files/{file}/content" NONE;
    OpenAi POST "/v1/embeddings" NONE;
    OpenAi POST "/v1/moderations" NONE;
    OpenAi POST "/v1/completions" NONE;
    OpenAi POST "/v1/images/generations" NONE;
    OpenAi POST "/v1/images/edits" NONE;
    OpenAi POST "/v1/images/variations" NONE;
    OpenAi POST "/v1/audio/speech" NONE;
    OpenAi POST "/v1/audio/transcriptions" NONE;
    OpenAi POST "/v1/audio/translations" NONE;
    Anthropic POST "/v1/messages/batches" ids(&[("id", Batch)]);
    Anthropic GET "/v1/messages/batches" list(Batch, "after_id");
    Anthropic GET DELETE "/v1/messages/batches/{batch}" NONE;
    Anthropic POST "/v1/messages/batches/{batch}/cancel" NONE;
    Anthropic GET "/v1/messages/batches/{batch}/results" NONE;
    Anthropic POST "/v1/files" ids(&[("id", File)]);
    Anthropic GET "/v1/files" list(File, "after_id");
    Anthropic GET DELETE "/v1/files/{file}" NONE;
    Anthropic GET "/v1/files/{file}/content" NONE;
    Gemini POST PUT "/upload/v1beta/files" ids(&[("file.name", File)]);
    Gemini POST "/v1beta/files" ids(&[("file.name", File)]);
    Gemini GET "/v1beta/files" named_list("files", File);
    Gemini GET "/v1beta/files/{file}:download" NONE;
    Gemini GET "/download/v1beta/files/{file}:download" NONE;
    Gemini GET DELETE "/v1beta/files/{file}" NONE;
    Gemini POST "/v1beta/cachedContents" ids(&[("name", CachedContent)]);
    Gemini GET "/v1beta/cachedContents" named_list("cachedContents", CachedContent);
    Gemini GET PATCH DELETE "/v1beta/cachedContents/{cached_content}" NONE;
    Gemini POST "/v1beta/interactions" ids(&[("id", Interaction), ("interaction.id", Interaction), ("interaction_id", Interaction)]);
    Gemini POST "/v1beta/interactions/{interaction}/cancel" NONE;
    Gemini GET DELETE "/v1beta/interactions/{interaction}" NONE;
    Gemini POST "/v1beta/models/{**}:batchGenerateContent" GEMINI_BATCH;
    Gemini POST "/v1beta/models/{**}:asyncBatchEmbedContent" GEMINI_BATCH;
    Gemini POST "/v1beta/models/{**}:embedContent" NONE;
    Gemini POST "/v1beta/models/{**}:batchEmbedContents" NONE;
    Gemini GET "/v1beta/batches" named_list("operations", Batch);
    Gemini POST "/v1beta/batches/{batch}:cancel" NONE;
    Gemini GET "/v1beta/batches/{batch}" GEMINI_BATCH;
    Gemini DELETE "/v1beta/batches/{batch}" NONE;
}

/// Returns the dialect, method and path template of every path that the gateway forwards for
/// callers with keys.
pub fn object_routes() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    ROUTES.iter().map(|route| (route.family.as_str(), route.method, route.path))
}

/// Finds the route of a request, and the objects that the path references.
pub(crate) fn find(
    wire: &Wire,
    method: &str,
    path: &str,
) -> Option<(&'static ObjectRoute, Vec<ObjectRef>)> {
    let mut fitting = fitting(wire, path);
    fitting.find(|(route, _)| route.method == method)
}

/// Returns the methods that a path of the dialect supports.
pub(crate) fn methods_of(wire: &Wire, path: &str) -> Vec<&'static str> {
    fitting(wire, path).map(|(route, _)| route.method).collect()
}

fn fitting<'p>(
    wire: &Wire,
    path: &'p str,
) -> impl Iterator<Item = (&'static ObjectRoute, Vec<ObjectRef>)> + use<'p> {
    let family = Family::of(wire);
    let routes = ROUTES.iter().filter(move |route| Some(route.family) == family);
    routes.filter_map(move |route| Some((route, ids_in_path(route.path, path)?)))
}

/// Returns the objects that a path references; `None` if the path does not match the template.
fn ids_in_path(template: &str, path: &str) -> Option<Vec<ObjectRef>> {
    if let Some((before, after)) = template.split_once("{**}") {
        let middle = path.strip_prefix(before)?.strip_suffix(after)?;
        return (!middle.is_empty()).then(Vec::new);
    }
    let mut ids = Vec::new();
    let mut segments = path.split('/');
    for pattern in template.split('/') {
        let segment = segments.next()?;
        let Some((name, after)) = pattern.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        else {
            if pattern != segment {
                return None;
            }
            continue;
        };
        let id = segment.strip_suffix(after).filter(|id| !id.is_empty())?;
        // A verb after a colon has its own template.
        if after.is_empty() && template.starts_with("/v1beta/") && id.contains(':') {
            return None;
        }
        if let Some(kind) = kind_of(name) {
            ids.push(ObjectRef::new(kind, decode_segment(id), None));
        }
    }
    segments.next().is_none().then_some(ids)
}

/// Returns the object kind that a template placeholder stands for.
fn kind_of(placeholder: &str) -> Option<ObjectKind> {
    let kinds = [
        Response,
        Conversation,
        Item,
        File,
        Batch,
        Completion,
        Container,
        VectorStore,
        CachedContent,
        Interaction,
    ];
    kinds.into_iter().find(|kind| kind.as_str() == placeholder)
}
