//! Fetches the model lists of providers, and caches them.
//!
//! A list is fetched with the gateway's own key, when a client requests a list and the cached one
//! has expired. If the provider does not answer in time, the list contains the last models that the
//! provider returned, or else the known models of the catalog.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use throughline_codec::KnownModel;
use throughline_core::{Provider, UpstreamRequest, Wire};
use throughline_json::{Name, Node, Tree};
use tokio::time::{Instant, timeout};

use crate::gateway::Gateway;
use crate::routing::ModelSource;
use crate::sync::lock;

/// Time limit of a fetch. Claude Code waits three seconds for a model list.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Lifetime of a fetched list.
const LIFETIME: Duration = Duration::from_mins(10);
/// Delay before the next attempt after a failed fetch.
const RETRY_DELAY: Duration = Duration::from_mins(1);
/// Maximum size of a provider's list in bytes.
const LARGEST_LIST: usize = 4 << 20;
/// Maximum number of models in a provider's list.
const MOST_MODELS: usize = 2_000;
/// Maximum length of a model's id in bytes.
const LONGEST_ID: usize = 256;

/// A model as its provider describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderModel {
    /// The provider's name for the model.
    pub(crate) id: Name,
    pub(crate) title: Option<Name>,
    pub(crate) context: Option<u64>,
    pub(crate) output: Option<u64>,
    /// The release date, such as `2026-07-24`.
    pub(crate) released: Option<Name>,
}

/// The cached model lists of all providers, by endpoint.
#[derive(Default)]
pub(crate) struct ModelDiscovery {
    lists: Mutex<HashMap<Name, Arc<tokio::sync::Mutex<CachedList>>>>,
}

#[derive(Default)]
struct CachedList {
    models: Option<Arc<Vec<ProviderModel>>>,
    expires: Option<Instant>,
}

impl ModelDiscovery {
    /// Returns the models of a provider. Concurrent callers share one fetch.
    pub(super) async fn models(
        &self,
        gateway: &Gateway,
        source: &ModelSource,
    ) -> Arc<Vec<ProviderModel>> {
        let target = &source.target;
        let request = model_list_request(&target.endpoint, &target.provider);
        let request = request.filter(|_| !source.needs_callers_key);
        let Some(request) = request else { return Arc::new(known_models(source)) };
        let models = self.cached(&target.endpoint, fetch(gateway, request)).await;
        models.unwrap_or_else(|| Arc::new(known_models(source)))
    }

    /// Returns the cached models of an endpoint, which names the account at the provider. If the
    /// list has expired, `fetching` replaces it. After a failed fetch, the list stays as it is.
    async fn cached(
        &self,
        endpoint: &Name,
        fetching: impl Future<Output = Option<Vec<ProviderModel>>>,
    ) -> Option<Arc<Vec<ProviderModel>>> {
        let list = Arc::clone(lock(&self.lists).entry(endpoint.clone()).or_default());
        // Callers that wait for the lock share the fetch of the caller that holds it.
        let mut list = list.lock().await;
        if list.expires.is_none_or(|expires| Instant::now() >= expires) {
            let fetched = timeout(FETCH_TIMEOUT, fetching).await;
            let fetched = fetched.ok().flatten().filter(|models| !models.is_empty());
            let delay = if fetched.is_some() { LIFETIME } else { RETRY_DELAY };
            list.expires = Some(Instant::now() + delay);
            if let Some(models) = fetched {
                list.models = Some(Arc::new(models));
            }
        }
        list.models.clone()
    }
}

/// Returns the path of a provider's model list; `None` if its wire has no list.
fn list_path(provider: &Provider) -> Option<&'static str> {
    match provider.wire.as_str() {
        "anthropic-messages" if provider.dialect.model_in_path => None,
        "anthropic-messages" => Some("/v1/models?limit=1000"),
        "openai-responses" | "openai-chat" => Some("/models"),
        // Vertex has no list of the models that an account can use.
        "gemini" if provider.base_url.contains("aiplatform") => None,
        "gemini" => Some("/v1beta/models?pageSize=1000"),
        _ => None,
    }
}

/// Returns the models of the catalog that a provider serves.
fn known_models(source: &ModelSource) -> Vec<ProviderModel> {
    let provider = &*source.target.provider.name;
    let rows = KnownModel::all().iter().filter(|row| row.provider.as_deref() == Some(provider));
    rows.map(|row| ProviderModel { id: Name::from(&*row.name), ..ProviderModel::default() })
        .collect()
}

/// Returns the request for the model list of an endpoint; `None` if the provider's wire has no
/// list.
pub fn model_list_request(endpoint: &Name, provider: &Provider) -> Option<UpstreamRequest> {
    let path = list_path(provider)?;
    let header = |name: &str, value: &str| (Name::from(name), Name::from(value));
    let mut headers = vec![header("accept", "application/json")];
    headers.push(header("accept-encoding", "identity"));
    if provider.wire == Wire::ANTHROPIC_MESSAGES {
        headers.push(header("anthropic-version", "2023-06-01"));
    }
    Some(UpstreamRequest {
        endpoint: endpoint.clone(),
        // Failures count for this name, so that they never interrupt calls of a model.
        model: Some(Name::from("(model list)")),
        method: "GET".into(),
        path: Name::from(path),
        headers,
        body: Bytes::new(),
        credential: None,
    })
}

/// Fetches a provider's list; `None` if the provider returns no valid list.
async fn fetch(gateway: &Gateway, request: UpstreamRequest) -> Option<Vec<ProviderModel>> {
    let answer = gateway.upstream.send(request).await.ok()?;
    if answer.status != 200 {
        return None;
    }
    let (mut chunks, mut body) = (answer.body, BytesMut::new());
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.ok()?);
        if body.len() > LARGEST_LIST {
            return None;
        }
    }
    read_list(body.freeze())
}

/// Reads a list in the format of any provider.
fn read_list(body: Bytes) -> Option<Vec<ProviderModel>> {
    let tree = Tree::parse(body).ok()?;
    let root = tree.root();
    let list = root.get("data").or_else(|| root.get("models")).filter(|list| list.is_array())?;
    Some(list.elements().filter_map(read_model).take(MOST_MODELS).collect())
}

fn read_model(model: Node<'_>) -> Option<ProviderModel> {
    let name = model.name_of("name");
    let id = model.name_of("id").or_else(|| name.clone())?;
    let id = Name::from(id.strip_prefix("models/").unwrap_or(&id));
    let is_id = |c: char| c.is_ascii_graphic();
    if id.is_empty() || id.len() > LONGEST_ID || !id.chars().all(is_id) {
        return None;
    }
    // Google also lists models that only embed text or generate images.
    if let Some(methods) = model.get("supportedGenerationMethods")
        && !methods.elements().any(|method| method.is("generateContent"))
    {
        return None;
    }
    let number = |keys: &[&str]| keys.iter().find_map(|key| model.get(key)?.u64());
    let titles = [model.name_of("display_name"), model.name_of("displayName"), name];
    let title = titles.into_iter().flatten().next().filter(|title| !title.starts_with("models/"));
    let top = || model.at("/top_provider/max_completion_tokens")?.u64();
    // Only Anthropic's models have a `type`; elsewhere `max_tokens` has other meanings.
    let max_tokens = model.get("type").filter(|kind| kind.is("model"));
    let max_tokens = || max_tokens.and_then(|_| number(&["max_tokens"]));
    Some(ProviderModel {
        title: title.filter(|title| title.len() <= LONGEST_ID),
        context: number(&[
            "max_input_tokens",
            "inputTokenLimit",
            "context_length",
            "context_window",
            "max_context_length",
            "max_model_len",
        ]),
        output: number(&["outputTokenLimit", "max_output_tokens"]).or_else(max_tokens).or_else(top),
        released: read_date(model),
        id,
    })
}

/// Reads the release date. The epoch stands for an unknown date.
fn read_date(model: Node<'_>) -> Option<Name> {
    let text = model.name_of("created_at");
    let text = text.and_then(|text| text.get(..10).map(str::to_owned));
    let seconds = || i64::try_from(model.get("created")?.u64()?).ok();
    let date = match text {
        Some(text) => text.parse::<jiff::civil::Date>().ok()?,
        None => {
            let time = jiff::Timestamp::from_second(seconds()?).ok()?;
            time.to_zoned(jiff::tz::TimeZone::UTC).date()
        }
    };
    (date.year() > 1970).then(|| date.to_string().into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn read(body: &str) -> Vec<ProviderModel> {
        read_list(Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    /// Fetches a list through the cache, and counts the fetches that reach the provider. The
    /// provider answers after a second.
    async fn fetch_counted(
        discovery: &ModelDiscovery,
        endpoint: &str,
        fetches: &AtomicUsize,
        answer: Option<&str>,
    ) -> Option<Vec<Name>> {
        let fetching = async {
            fetches.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let model = |id: &str| ProviderModel { id: id.into(), ..ProviderModel::default() };
            answer.map(|id| vec![model(id)])
        };
        let models = discovery.cached(&endpoint.into(), fetching).await?;
        Some(models.iter().map(|model| model.id.clone()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn list_is_fetched_once_per_lifetime_and_account() {
        let (discovery, fetches) = (ModelDiscovery::default(), AtomicUsize::new(0));
        let fetch = |endpoint, answer| fetch_counted(&discovery, endpoint, &fetches, answer);
        let concurrent = (0..8).map(|_| fetch("openai@one", Some("a")));
        for list in futures_util::future::join_all(concurrent).await {
            assert_eq!(list, Some(vec!["a".into()]));
        }
        assert_eq!(fetches.load(Ordering::SeqCst), 1, "concurrent callers share a fetch");
        assert_eq!(fetch("openai@two", Some("b")).await, Some(vec!["b".into()]));
        assert_eq!(fetches.load(Ordering::SeqCst), 2, "each account has its own list");
        tokio::time::advance(LIFETIME / 2).await;
        assert_eq!(fetch("openai@one", Some("c")).await, Some(vec!["a".into()]));
        assert_eq!(fetches.load(Ordering::SeqCst), 2);
        tokio::time::advance(LIFETIME / 2).await;
        assert_eq!(fetch("openai@one", Some("c")).await, Some(vec!["c".into()]));
        assert_eq!(fetches.load(Ordering::SeqCst), 3, "an expired list is fetched again");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_fetch_returns_the_last_list() {
        let (discovery, fetches) = (ModelDiscovery::default(), AtomicUsize::new(0));
        let fetch = |answer| fetch_counted(&discovery, "openai", &fetches, answer);
        assert_eq!(fetch(None).await, None);
        tokio::time::advance(RETRY_DELAY).await;
        assert_eq!(fetch(Some("a")).await, Some(vec!["a".into()]));
        tokio::time::advance(LIFETIME).await;
        for _ in 0..3 {
            assert_eq!(fetch(None).await, Some(vec!["a".into()]), "the expired list is returned");
        }
        assert_eq!(fetches.load(Ordering::SeqCst), 3, "a failed fetch is not repeated at once");
        tokio::time::advance(RETRY_DELAY).await;
        assert_eq!(fetch(Some("b")).await, Some(vec!["b".into()]));
    }

    #[test]
    fn lists_of_all_providers_are_read() {
        let anthropic = read(
            r#"{"data": [{"type": "model", "id": "claude-x", "display_name": "Claude X",
            "created_at": "2026-07-24T00:00:00Z", "max_input_tokens": 7, "max_tokens": 3}]}"#,
        );
        let expected = ProviderModel {
            id: "claude-x".into(),
            title: Some("Claude X".into()),
            context: Some(7),
            output: Some(3),
            released: Some("2026-07-24".into()),
        };
        assert_eq!(anthropic, [expected]);
        let openai = read(
            r#"{"object": "list", "data": [{"id": "gpt-x", "object": "model",
            "created": 1784851200, "max_tokens": 9}]}"#,
        );
        let expected = ProviderModel {
            id: "gpt-x".into(),
            released: Some("2026-07-24".into()),
            ..ProviderModel::default()
        };
        assert_eq!(openai, [expected]);
        let gemini = read(
            r#"{"models": [
            {"name": "models/gemini-x", "displayName": "Gemini X", "inputTokenLimit": 7,
             "outputTokenLimit": 3, "supportedGenerationMethods": ["generateContent"]},
            {"name": "models/embedding-x", "supportedGenerationMethods": ["embedContent"]}]}"#,
        );
        let expected = ProviderModel {
            id: "gemini-x".into(),
            title: Some("Gemini X".into()),
            context: Some(7),
            output: Some(3),
            released: None,
        };
        assert_eq!(gemini, [expected]);
        let router = read(
            r#"{"data": [{"id": "a/b", "name": "A: B", "created": 0, "context_length": 7,
            "top_provider": {"max_completion_tokens": 3}}]}"#,
        );
        let expected = ProviderModel {
            id: "a/b".into(),
            title: Some("A: B".into()),
            context: Some(7),
            output: Some(3),
            released: None,
        };
        assert_eq!(router, [expected]);
    }

    #[test]
    fn invalid_lists_and_models_are_ignored() {
        for body in ["", "[]", "{}", r#"{"data": {}}"#, r#"{"error": {"message": "no"}}"#] {
            assert_eq!(read_list(Bytes::copy_from_slice(body.as_bytes())), None, "{body}");
        }
        let odd = r#"{"data": [{"id": ""}, {"id": 3}, {}, {"id": "a b"}, {"id": "a\nb"}, 7]}"#;
        assert_eq!(read(odd), []);
    }
}
