//! Request paths, which contain the model and select streaming.

use throughline_core::Target;

use crate::percent::percent_encode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GeminiPath<'p> {
    /// The path before the model: `/v1beta/models/`, or Vertex's longer form.
    lead: &'p str,
    pub(super) model: &'p str,
    /// The method, such as `generateContent`.
    method: &'p str,
    /// The query string, without the question mark.
    query: Option<&'p str>,
}

impl<'p> GeminiPath<'p> {
    /// Parses a path; `None` if it names no model.
    pub(super) fn parse(path: &'p str) -> Option<Self> {
        let (address, query) = match path.split_once('?') {
            Some((address, query)) => (address, Some(query)),
            None => (path, None),
        };
        let (place, method) = address.rsplit_once(':')?;
        let model = place.rsplit('/').next().filter(|model| !model.is_empty())?;
        let lead = place.strip_suffix(model)?;
        (!method.contains('/')).then_some(Self { lead, model, method, query })
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.method == "streamGenerateContent"
    }

    /// Returns this path with the target's model and the given stream mode.
    pub(super) fn for_target(&self, target: &Target, stream: bool) -> String {
        let model = bare_model(target.model());
        // The model of the client's own path is already encoded.
        let model = if model == self.model { model.to_owned() } else { percent_encode(model, "@") };
        let Self { lead, query, .. } = self;
        if self.is_streamed() == stream {
            return format!("{lead}{model}:{}{}", self.method, query_suffix(*query));
        }
        let others = query.iter().flat_map(|query| query.split('&'));
        let others = others.filter(|other| !other.is_empty() && !other.starts_with("alt="));
        let framing = stream.then_some("alt=sse");
        let parameters = others.chain(framing).collect::<Vec<_>>().join("&");
        let query = query_suffix(Some(&*parameters).filter(|query| !query.is_empty()));
        format!("{lead}{model}:{}{query}", method(stream))
    }
}

/// Returns the path of a request that has no source path.
pub(super) fn default_path(target: &Target, stream: bool) -> String {
    // Vertex in express mode derives the project from the API key. Any other project path is part
    // of the endpoint's base URL.
    let is_vertex = target.provider.base_url.contains("aiplatform");
    let lead = if is_vertex { "/v1beta1/publishers/google/models/" } else { "/v1beta/models/" };
    let query = query_suffix(stream.then_some("alt=sse"));
    let model = percent_encode(bare_model(target.model()), "@");
    format!("{lead}{model}:{}{query}", method(stream))
}

/// Returns the model id without the resource prefix that some clients include.
pub(super) fn bare_model(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

fn method(stream: bool) -> &'static str {
    if stream { "streamGenerateContent" } else { "generateContent" }
}

fn query_suffix(query: Option<&str>) -> String {
    query.map(|query| format!("?{query}")).unwrap_or_default()
}
