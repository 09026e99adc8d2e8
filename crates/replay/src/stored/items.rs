//! Lists a stored response's input items in OpenAI's format.

use std::borrow::Cow;

use throughline_core::TurnId;
use throughline_json::{self as json, Json, Node};

const USUAL: usize = 20;
const MOST: usize = 100;

/// The paging parameters of a list request.
#[derive(Debug, PartialEq, Eq)]
pub struct InputItemsQuery {
    limit: usize,
    is_ascending: bool,
    after: Option<String>,
}

impl InputItemsQuery {
    /// Parses a URL query. Fails with an error message for the caller.
    pub fn of(query: &str) -> Result<Self, String> {
        let mut listing = Self { limit: USUAL, is_ascending: false, after: None };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                    listing.limit = limit.ok_or(format!("`limit` must be from 1 to {MOST}"))?;
                }
                "order" if value == "asc" || value == "desc" => {
                    listing.is_ascending = value == "asc";
                }
                "order" => return Err("`order` must be `asc` or `desc`".to_owned()),
                "after" => listing.after = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(listing)
    }
}

/// Returns one page of the input items. An item without an id gets a stable id, which is the same
/// in every listing.
pub fn list(node: &TurnId, elements: &[Json], listing: &InputItemsQuery) -> Json {
    let all = elements.iter().enumerate();
    let mut all: Vec<(String, Json)> = all.map(|(at, json)| identified(node, at, json)).collect();
    if !listing.is_ascending {
        all.reverse();
    }
    let after = listing.after.as_ref().and_then(|id| all.iter().position(|(own, _)| own == id));
    let first = after.map_or(0, |at| at + 1);
    let page: Vec<_> = all.iter().skip(first).take(listing.limit).collect();
    let id =
        |entry: Option<&&(String, Json)>| entry.map_or(Json::null(), |(id, _)| json::string(id));
    json::object(|out| {
        out.string("object", "list").list("data", page.iter().map(|(_, element)| element));
        out.raw("first_id", &id(page.first())).raw("last_id", &id(page.last()));
        out.bool("has_more", first + page.len() < all.len());
    })
}

/// Returns the turn and the item index from an id that [`list`] assigned.
pub fn listed_position(id: &str) -> Option<(TurnId, usize)> {
    let (rest, at) = id.rsplit_once('_')?;
    let (_, node) = rest.rsplit_once('_')?;
    Some((TurnId::from(node), at.parse().ok()?))
}

/// Returns an item's id, and a copy of the item with `id` and `type` set and `content` as an array.
fn identified(node: &TurnId, at: usize, element: &Json) -> (String, Json) {
    let tree = element.tree();
    let root = tree.root();
    let kind = root.text_of("type").unwrap_or("message".into());
    let own = root.present("id").and_then(Node::text);
    let id = own.map_or_else(|| format!("{}_{node}_{at}", prefix(&kind)), Cow::into_owned);
    let is_models = root.get("role").is_some_and(|role| role.is("assistant"));
    let json = json::object(|o| {
        o.string("id", &id).string("type", &kind);
        for (key, value) in root.members() {
            let key = key.text().unwrap_or_default();
            match &*key {
                "id" | "type" => {}
                "content" if value.is_string() => {
                    o.objects("content", [value], |o, text| {
                        o.string("type", if is_models { "output_text" } else { "input_text" });
                        o.node("text", text);
                        if is_models {
                            o.array("annotations", |_| {});
                        }
                    });
                }
                key => {
                    o.node(key, value);
                }
            }
        }
    });
    (id, json)
}

/// Returns OpenAI's id prefix for this type of item.
fn prefix(kind: &str) -> &'static str {
    match kind {
        "message" => "msg",
        "reasoning" => "rs",
        "function_call" => "fc",
        "function_call_output" => "fco",
        "custom_tool_call" => "ctc",
        "custom_tool_call_output" => "ctco",
        _ => "item",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn page(query: &str) -> String {
        let elements = [
            r#"{"role":"user","content":"Hi"}"#,
            r#"{"id":"rs_1","type":"reasoning","summary":[]}"#,
            r#"{"role":"assistant","content":"Hello"}"#,
        ];
        let elements = elements.map(|text| Json::parse(text).unwrap());
        let listing = InputItemsQuery::of(query).unwrap();
        list(&TurnId::from("n"), &elements, &listing).as_str().to_owned()
    }

    #[test]
    fn input_items_use_openais_list_format() {
        let user = r#"{"id":"msg_n_0","type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}"#;
        let thought = r#"{"id":"rs_1","type":"reasoning","summary":[]}"#;
        let model = r#"{"id":"msg_n_2","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[]}]}"#;
        assert_eq!(
            page(""),
            format!(
                r#"{{"object":"list","data":[{model},{thought},{user}],"first_id":"msg_n_2","last_id":"msg_n_0","has_more":false}}"#
            )
        );
        assert_eq!(
            page("order=asc&limit=1&after=msg_n_0"),
            format!(
                r#"{{"object":"list","data":[{thought}],"first_id":"rs_1","last_id":"rs_1","has_more":true}}"#
            )
        );
        assert_eq!(
            page("after=msg_n_0"),
            r#"{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}"#
        );
    }

    #[test]
    fn invalid_paging_parameters_are_rejected() {
        assert_eq!(InputItemsQuery::of("limit=0"), Err("`limit` must be from 1 to 100".to_owned()));
        assert_eq!(
            InputItemsQuery::of("order=up"),
            Err("`order` must be `asc` or `desc`".to_owned())
        );
    }
}
