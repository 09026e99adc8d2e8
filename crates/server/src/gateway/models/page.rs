//! Selects one page of a model list, with the parameters of each dialect.

use throughline_json::Name;

use super::listed::{ListedModel, ModelFormat};
use crate::error::{GatewayError, GatewayResult};
use crate::url::Query;

/// Maximum number of models on one page, as documented by Anthropic and Google.
const LARGEST: usize = 1000;

/// One page of a list.
pub(crate) struct Page<'m> {
    pub(crate) models: &'m [ListedModel],
    /// Whether more models follow in the direction of the request.
    pub(crate) has_more: bool,
}

impl<'m> Page<'m> {
    /// Selects the page that a query requests: all models, if the query has no parameter of the
    /// dialect.
    pub(super) fn select(
        models: &'m [ListedModel],
        format: ModelFormat,
        query: &Query,
    ) -> GatewayResult<Self> {
        let (size, after) = match format {
            ModelFormat::OpenAi | ModelFormat::Codex | ModelFormat::BedrockModels => {
                return Ok(Self { models, has_more: false });
            }
            ModelFormat::Anthropic => ("limit", "after_id"),
            ModelFormat::Gemini | ModelFormat::Vertex => ("pageSize", "pageToken"),
            ModelFormat::BedrockProfiles => ("maxResults", "nextToken"),
        };
        let size = page_size(query, size)?;
        // The gateway has no profiles that an application defined.
        let has_profiles = query.get("type").is_none_or(|kind| **kind != *"APPLICATION");
        let models =
            if has_profiles || format != ModelFormat::BedrockProfiles { models } else { &[] };
        if let Some(id) = query.get("before_id").filter(|_| format == ModelFormat::Anthropic) {
            let end = position(models, "before_id", id)?;
            let start = end.saturating_sub(size);
            let models = models.get(start..end).unwrap_or_default();
            return Ok(Self { models, has_more: start > 0 });
        }
        let start = match query.get(after) {
            Some(id) => position(models, after, id)? + 1,
            None => 0,
        };
        let rest = models.get(start..).unwrap_or_default();
        let (models, has_more) = (rest.get(..size).unwrap_or(rest), rest.len() > size);
        Ok(Self { models, has_more })
    }

    /// Returns the id of the last model, if more models follow. It selects the next page.
    pub(super) fn next(&self) -> Option<&Name> {
        self.models.last().map(|model| &model.id).filter(|_| self.has_more)
    }
}

fn page_size(query: &Query, name: &str) -> GatewayResult<usize> {
    let Some(text) = query.get(name) else { return Ok(LARGEST) };
    let size = text.parse::<usize>().ok().filter(|size| (1..=LARGEST).contains(size));
    size.ok_or_else(|| {
        GatewayError::new(400, format!("{name}: must be a number between 1 and {LARGEST}"))
    })
}

fn position(models: &[ListedModel], name: &str, id: &str) -> GatewayResult<usize> {
    models.iter().position(|model| *model.id == *id).ok_or_else(|| {
        GatewayError::new(400, format!("{name}: the list has no such model; start the list again"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use throughline_core::Profile;

    use super::*;

    fn models() -> Vec<ListedModel> {
        let model = |id: &str| ListedModel {
            id: id.into(),
            title: id.into(),
            context: None,
            output: None,
            released: None,
            profile: Arc::new(Profile::default()),
        };
        ["a", "b", "c", "d", "e"].map(model).into()
    }

    fn page(format: ModelFormat, query: &str) -> Result<(String, bool), u16> {
        let models = models();
        let page = Page::select(&models, format, &Query::parse(query));
        let page = page.map_err(|problem| problem.status)?;
        let ids = page.models.iter().map(|model| &*model.id).collect::<Vec<_>>();
        Ok((ids.join(""), page.has_more))
    }

    #[test]
    fn each_dialect_pages_with_its_own_parameters() {
        use ModelFormat::{Anthropic, BedrockProfiles, Gemini, OpenAi, Vertex};
        for (format, query, expected) in [
            (Anthropic, "", ("abcde", false)),
            (Anthropic, "limit=2", ("ab", true)),
            (Anthropic, "limit=2&after_id=b", ("cd", true)),
            (Anthropic, "limit=2&after_id=d", ("e", false)),
            (Anthropic, "after_id=e", ("", false)),
            (Anthropic, "limit=2&before_id=d", ("bc", true)),
            (Anthropic, "limit=2&before_id=c", ("ab", false)),
            (Gemini, "pageSize=3", ("abc", true)),
            (Vertex, "pageSize=3&pageToken=c", ("de", false)),
            (BedrockProfiles, "maxResults=4", ("abcd", true)),
            (BedrockProfiles, "nextToken=d", ("e", false)),
            (BedrockProfiles, "type=SYSTEM_DEFINED", ("abcde", false)),
            (BedrockProfiles, "type=APPLICATION", ("", false)),
            (OpenAi, "limit=2&after_id=b", ("abcde", false)),
        ] {
            let expected = (expected.0.to_owned(), expected.1);
            assert_eq!(page(format, query), Ok(expected), "{format:?} {query}");
        }
    }

    #[test]
    fn invalid_parameters_are_refused() {
        use ModelFormat::{Anthropic, Gemini};
        for (format, query) in [
            (Anthropic, "limit=0"),
            (Anthropic, "limit=1001"),
            (Anthropic, "limit=many"),
            (Anthropic, "after_id=z"),
            (Anthropic, "before_id=z"),
            (Gemini, "pageSize=-1"),
            (Gemini, "pageToken=z"),
        ] {
            assert_eq!(page(format, query), Err(400), "{format:?} {query}");
        }
    }
}
