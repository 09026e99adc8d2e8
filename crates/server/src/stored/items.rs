//! The list of what a response was asked with, in the shape in which OpenAI lists it.

use std::borrow::Cow;

use throughline_core::{Json, Node, NodeId, json};

/// How many are listed, unless the caller says so.
const USUAL: usize = 20;
/// How many are listed at once, at most.
const MOST: usize = 100;

/// Which of them are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    limit: usize,
    is_ascending: bool,
    after: Option<String>,
}

impl Listing {
    /// What a query asks for.
    pub(crate) fn of(query: &str) -> Result<Self, String> {
        let mut listing = Self { limit: USUAL, is_ascending: false, after: None };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                    listing.limit = limit.ok_or(format!("`limit` is from 1 to {MOST}"))?;
                }
                "order" if value == "asc" || value == "desc" => {
                    listing.is_ascending = value == "asc";
                }
                "order" => return Err("`order` is `asc` or `desc`".to_owned()),
                "after" => listing.after = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(listing)
    }
}

/// A page of these elements. Those that came without an id have one that is the same in every list.
pub(crate) fn list(node: &NodeId, elements: &[Json], listing: &Listing) -> Json {
    let all = elements.iter().enumerate();
    let mut all: Vec<(String, Json)> = all.map(|(at, json)| identified(node, at, json)).collect();
    if !listing.is_ascending {
        all.reverse();
    }
    let after = listing.after.as_ref().and_then(|id| all.iter().position(|(own, _)| own == id));
    let first = after.map_or(0, |at| at + 1);
    let page: Vec<_> = all.iter().skip(first).take(listing.limit).collect();
    json::object(|o| {
        o.string("object", "list").array("data", |a| {
            for (_, element) in &page {
                a.raw(element);
            }
        });
        let id = |element: Option<&&(String, Json)>| element.map(|(id, _)| id.clone());
        for (key, id) in [("first_id", id(page.first())), ("last_id", id(page.last()))] {
            match id {
                Some(id) => o.string(key, &id),
                None => o.null(key),
            };
        }
        o.bool("has_more", first + page.len() < all.len());
    })
}

/// The turn and the position that an id made by [`list`] names.
pub(crate) fn listed_position(id: &str) -> Option<(NodeId, usize)> {
    let (rest, at) = id.rsplit_once('_')?;
    let (_, node) = rest.rsplit_once('_')?;
    Some((NodeId::from(node), at.parse().ok()?))
}

/// An element with its id, its type, and its content as a list.
fn identified(node: &NodeId, at: usize, element: &Json) -> (String, Json) {
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
                    o.array("content", |a| {
                        a.object(|o| {
                            o.string("type", if is_models { "output_text" } else { "input_text" });
                            o.node("text", value);
                            if is_models {
                                o.array("annotations", |_| {});
                            }
                        });
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

/// What OpenAI's ids of such elements begin with.
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
        let listing = Listing::of(query).unwrap();
        list(&NodeId::from("n"), &elements, &listing).as_str().to_owned()
    }

    #[test]
    fn a_list_is_in_openais_shape() {
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
    fn what_cannot_be_listed_is_told() {
        assert_eq!(Listing::of("limit=0"), Err("`limit` is from 1 to 100".to_owned()));
        assert_eq!(Listing::of("order=up"), Err("`order` is `asc` or `desc`".to_owned()));
    }
}
