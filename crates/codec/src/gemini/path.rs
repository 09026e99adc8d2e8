//! Where a request goes: the path names the model and says whether the answer is streamed.

use throughline_core::Target;

/// A path of this wire, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path<'p> {
    /// Up to the model: `/v1beta/models/`, or Vertex's longer one.
    lead: &'p str,
    /// The model.
    pub(super) model: &'p str,
    /// What is asked of it: `generateContent`.
    method: &'p str,
    /// Behind the question mark, if there is one.
    query: Option<&'p str>,
}

impl<'p> Path<'p> {
    /// Takes a path apart; nothing where it names no model.
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

    /// Whether the answer is streamed.
    pub(super) fn is_streamed(&self) -> bool {
        self.method == "streamGenerateContent"
    }

    /// The same path to another model, or with the answer streamed or not. What need not change does not.
    pub(super) fn towards(&self, target: &Target, stream: bool) -> String {
        let model = bare(target.model());
        let Self { lead, query, .. } = self;
        if self.is_streamed() == stream {
            let (method, query) = (self.method, Query(*query));
            return format!("{lead}{model}:{method}{query}");
        }
        let others = query.iter().flat_map(|query| query.split('&')).filter(|p| !is_framing(p));
        let framing = stream.then_some("alt=sse");
        let parameters: Vec<&str> = others.chain(framing).collect();
        let joined = parameters.join("&");
        let query = Query((!joined.is_empty()).then_some(&*joined));
        format!("{lead}{model}:{}{query}", method(stream))
    }
}

/// Where a request to `target` goes when nobody said.
pub(super) fn fresh(target: &Target, stream: bool) -> String {
    // In express mode Vertex finds the project by the key; any other project path is the endpoint's own affair.
    let is_vertex = target.provider.base_url.contains("aiplatform");
    let lead = if is_vertex { "/v1beta1/publishers/google/models/" } else { "/v1beta/models/" };
    let query = Query(stream.then_some("alt=sse"));
    format!("{lead}{}:{}{query}", bare(target.model()), method(stream))
}

/// Some clients write the model as the resource that it is.
pub(super) fn bare(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

fn method(stream: bool) -> &'static str {
    if stream { "streamGenerateContent" } else { "generateContent" }
}

fn is_framing(parameter: &str) -> bool {
    parameter.is_empty() || parameter.starts_with("alt=")
}

struct Query<'q>(Option<&'q str>);

impl std::fmt::Display for Query<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}
