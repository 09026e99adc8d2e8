//! Sends a request again without a reasoning summary if the account may not generate summaries.
//!
//! OpenAI refuses `reasoning.summary` for organisations that are not verified. The gateway adds
//! this member for clients of other dialects, which cannot act on such a refusal. A refusal is
//! remembered for some minutes, so that only the first call sends two requests.

use bytes::Bytes;
use futures_util::stream;
use throughline_core::{Request, UpstreamError, UpstreamResponse, Wire};
use throughline_json::{self as json, Node, Tree};

use crate::gateway::answer::collect_body;
use crate::gateway::compression;
use crate::gateway::exchange::Exchange;
use crate::gateway::prepare::PreparedRequest;
use crate::routing::RouteTarget;

const SUMMARY: &str = "reasoning.summary";

impl Exchange<'_> {
    /// Sends a prepared request. If the provider refuses the summary that the gateway requested for
    /// the client, sends the request again without the summary. If the account was refused
    /// recently, the summary is not requested.
    pub(crate) async fn send_or_repeat(
        &self,
        ready: &PreparedRequest,
        reached: &RouteTarget,
        received: &Request,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let sent = &ready.encoded.request.body;
        let origin = &ready.target.origin;
        let is_translated =
            origin.wire == Wire::OPENAI_RESPONSES && self.wire != Wire::OPENAI_RESPONSES;
        let refusals = &self.gateway.operations.refused_summaries;
        if is_translated
            && refusals.contains(origin)
            && let Some(body) = without_summary(sent)
        {
            return self.send(ready, reached, received, body).await;
        }
        let answer = self.send(ready, reached, received, sent.clone()).await?;
        if answer.status != 400 || !is_translated {
            return Ok(answer);
        }
        let Some(body) = without_summary(sent) else { return Ok(answer) };
        let (status, headers) = (answer.status, answer.headers.clone());
        let encoding = answer.header("content-encoding").map(str::to_owned);
        // An unreadable error is returned with an empty body.
        let error = collect_body(answer).await.unwrap_or_default();
        let readable = compression::inflate(encoding.as_deref(), &error).unwrap_or_default();
        if !refuses_summary(&readable) {
            let body = Box::pin(stream::iter([Ok(error)]));
            return Ok(UpstreamResponse { status, headers, body });
        }
        refusals.add(origin);
        let reason = "the account cannot generate reasoning summaries; sent again without them";
        self.scope.record().add_failed_attempt(&reached.endpoint, reason);
        self.send(ready, reached, received, body).await
    }
}

/// Returns whether an error names the summary as the refused parameter.
fn refuses_summary(error: &Bytes) -> bool {
    let Ok(tree) = Tree::parse(error.clone()) else { return false };
    tree.root().at("/error/param").is_some_and(|param| param.is(SUMMARY))
}

/// Returns the body without `reasoning.summary`, and with every other byte unchanged; `None` if the
/// body has no summary.
fn without_summary(body: &Bytes) -> Option<Bytes> {
    let tree = Tree::parse(body.clone()).ok()?;
    let reasoning = tree.root().get("reasoning")?;
    reasoning.present("summary")?;
    let others = json::object(|o| {
        let members = reasoning.members().filter(|(key, _)| !key.is("summary"));
        for (key, value) in members {
            o.node(&key.text().unwrap_or_default(), value);
        }
    });
    let range = Node::range(reasoning);
    let (before, after) = (body.get(..range.start)?, body.get(range.end..)?);
    Some(Bytes::from([before, others.bytes(), after].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_summary_is_removed() {
        let body = r#"{"model":"m", "reasoning":{"effort":"low","summary":"auto"},"input":"Hi"}"#;
        let expected = r#"{"model":"m", "reasoning":{"effort":"low"},"input":"Hi"}"#;
        assert_eq!(without_summary(&Bytes::from(body)).unwrap(), expected);
        assert_eq!(without_summary(&Bytes::from(expected)), None);
        assert_eq!(without_summary(&Bytes::from("[]")), None);
    }

    #[test]
    fn only_a_refused_summary_is_recognised() {
        let error = |param: &str| Bytes::from(format!(r#"{{"error":{{"param":"{param}"}}}}"#));
        assert!(refuses_summary(&error("reasoning.summary")));
        assert!(!refuses_summary(&error("reasoning.effort")));
        assert!(!refuses_summary(&Bytes::from("no JSON")));
    }
}
