//! What a policy leaves out of all that is shown. What is kept and replayed is not touched.

use throughline_core::{Json, RedactionPolicy, Thoughts};

use crate::gateway::{Answered, Outgoing};

/// An answer without what the policy leaves out. Streams are looked through frame by frame, where they are made.
pub(crate) fn answered(policy: &RedactionPolicy, told: Answered) -> Answered {
    let Outgoing::Whole(body) = &told.body else { return told };
    let Ok(said) = Json::parse(body.clone()) else { return told };
    let body = Outgoing::Whole(shown(Some(policy), said).bytes().clone());
    Answered { body, ..told }
}

/// A document without what the policy leaves out.
pub(crate) fn shown(policy: Option<&RedactionPolicy>, said: Json) -> Json {
    match policy {
        Some(policy) => policy.redact_json(&said, Thoughts::Redact).into_owned(),
        None => said,
    }
}
