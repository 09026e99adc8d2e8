//! The `OpenAPI` document, and the route table as an HTML page.
//!
//! The paths come from the route tables. Response schemas are derived from the types that the
//! handlers serialize. Documents that the specification defines, such as `RunEvent`, provide their
//! own schemas.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use throughline_json::Json;
use throughline_spec::{RunEvent, SmartState};

use crate::api::ErrorBody;
use crate::routes::{DialectRoute, Route, dialect_routes, routes};
use crate::sign_in;

/// Builds the `OpenAPI` document from the route tables, so that the document covers every route.
pub fn openapi() -> Json {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schemas = settings
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .with_transform(RecursiveTransform(remove_null))
        .into_generator();
    let mut paths: Map<String, Value> = Map::new();
    let mut add = |method: &str, path: &str, operation: Value| {
        if let Value::Object(item) = paths.entry(path).or_insert_with(|| json!({})) {
            // Where two dialects share a path and a method, the first entry describes both.
            item.entry(method.to_lowercase()).or_insert(operation);
        }
    };
    for route in routes() {
        add(route.method, route.path, operation(route, &mut schemas));
    }
    for (method, path, summary) in sign_in::ROUTES {
        add(method, path, sign_in_operation(summary));
    }
    for route in dialect_routes() {
        add(route.method, &route.path, dialect_operation(&route));
    }
    let mut definitions = schemas.take_definitions(true);
    for (name, schema) in documented_schemas() {
        definitions.entry(name).or_insert(schema);
    }
    Json::from(&json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Throughline agents",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable agents in Letta's formats, and the dialects of the gateway. \
                All routes of the agent API exist under /v1 and under /letta/v1.",
        },
        "servers": [{ "url": "/" }, { "url": "/letta" }],
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": definitions,
        },
        "security": [{ "key": [] }],
    }))
}

/// Removes `null` from the types of members, because members without a value are omitted.
fn remove_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|of_type| of_type != "null");
        if let [of_type] = &**types {
            let of_type = of_type.clone();
            schema.insert("type".to_owned(), of_type);
        }
    }
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let mut parameters = path_parameters(route.path);
    for (name, kind, about) in route.query.iter().copied().flatten() {
        let schema = schema(kind, None);
        parameters
            .push(json!({ "name": name, "in": "query", "description": about, "schema": schema }));
    }
    let request_body = matches!(route.method, "POST" | "PATCH").then(|| {
        let members = route.body.iter().copied().flatten();
        let members =
            members.map(|(name, kind, about)| ((*name).to_owned(), schema(kind, Some(about))));
        let members: Map<String, Value> = members.collect();
        let schema = json!({ "type": "object", "properties": members });
        json!({ "content": content(Some(schema), None) })
    });
    let answer = content(
        route.response.first().map(|schema_of| schema_of(schemas).to_value()),
        route.event.first().map(|schema_of| schema_of(schemas).to_value()),
    );
    let error = content(Some(schemas.subschema_for::<ErrorBody<'_>>().to_value()), None);
    without_null(json!({
        "operationId": format!("{:?}", route.op),
        "summary": route.summary,
        "tags": [route.path.split('/').nth(2).unwrap_or_default()],
        "parameters": (!parameters.is_empty()).then_some(parameters),
        "requestBody": request_body,
        "responses": {
            "200": { "description": route.summary, "content": answer },
            "404": { "description": "The object does not exist in this tenant.", "content": error },
            "409": {
                "description": "A conflicting run or request, named in the detail.",
                "content": error,
            },
            "422": { "description": "The request is invalid.", "content": error },
        },
    }))
}

/// Describes an operation whose request and response use a provider's own format.
fn dialect_operation(route: &DialectRoute) -> Value {
    let parameters = path_parameters(&route.path);
    let has_body = matches!(route.method, "POST" | "PUT" | "PATCH");
    let body = || json!({ "content": content(Some(json!({ "type": "object" })), None) });
    without_null(json!({
        "summary": route.summary,
        "tags": [route.dialect],
        "servers": [{ "url": "/" }],
        "parameters": (!parameters.is_empty()).then_some(parameters),
        "requestBody": has_body.then(body),
        "responses": {
            "200": { "description": "The response in the dialect's format." },
            "default": { "description": "An error in the dialect's format." },
        },
    }))
}

/// Describes an operation of a sign-in, which needs no key.
fn sign_in_operation(summary: &str) -> Value {
    json!({
        "summary": summary,
        "tags": ["sign-in"],
        "servers": [{ "url": "/" }],
        "security": [],
        "responses": {
            "200": { "description": summary },
            "303": { "description": "A redirect of the browser." },
            "403": { "description": "The person has no access." },
            "404": { "description": "The gateway has no identity provider." },
        },
    })
}

/// Removes members that are null.
fn without_null(mut operation: Value) -> Value {
    if let Value::Object(members) = &mut operation {
        members.retain(|_, value| !value.is_null());
    }
    operation
}

/// Returns the content of a request or response, by media type.
fn content(json: Option<Value>, events: Option<Value>) -> Value {
    let all = [("application/json", json), ("text/event-stream", events)];
    let all = all.into_iter().filter_map(|(kind, schema)| Some((kind, schema?)));
    all.map(|(kind, schema)| (kind.to_owned(), json!({ "schema": schema }))).collect()
}

/// Describes the path parameters, which are the names in braces.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let string = json!({ "type": "string" });
    names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": string }))
        .collect()
}

/// Builds the schema of a JSON type, with an optional description.
fn schema(kind: &str, about: Option<&str>) -> Value {
    let items = (kind == "array").then(|| json!({}));
    without_null(json!({ "type": kind, "description": about, "items": items }))
}

/// Returns the schemas of the specification's documents, by name.
fn documented_schemas() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, schema) in [("RunEvent", RunEvent::schema()), ("SmartState", SmartState::schema())] {
        let text = schema.as_str().replace("#/$defs/", "#/components/schemas/");
        let Ok(mut schema) = serde_json::from_str::<Value>(&text) else { continue };
        if let Some(any) = schema.get("oneOf") {
            all.push((name.to_owned(), json!({ "oneOf": any })));
        }
        if let Some(Value::Object(definitions)) = schema.get_mut("$defs").map(Value::take) {
            all.extend(definitions);
        }
    }
    all
}

/// The style of the HTML page: one column on narrow screens, and dark if the browser prefers it.
const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#f7f8f8;--ink:#16201f;--soft:#4d5a59;--line:#dfe4e4;\
--accent:#0f6b66;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ground:#0f1414;--ink:#e6edec;--soft:#b3c0be;\
--line:#2a3535;--accent:#56c3b8;--paper:#161d1d}}\
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
main{max-width:70rem;margin:0 auto;padding:1.6rem 1rem 4rem}\
a{color:var(--accent)}h1{font-size:1.5rem;margin:0 0 .4rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}\
table{width:100%;border-collapse:collapse;background:var(--paper);border:1px solid var(--line)}\
td{padding:.45rem .7rem;vertical-align:top;border-top:1px solid var(--line)}\
td:first-child{width:4.5rem;font-weight:600}td:last-child{width:3rem;text-align:right}\
code{overflow-wrap:anywhere;font-family:ui-monospace,monospace;font-size:.9em}.soft{color:var(--soft)}\
@media(max-width:700px){tr{display:block;padding:.5rem .7rem;border-top:1px solid var(--line)}\
td,td:first-child,td:last-child{display:block;width:auto;padding:.1rem 0;border:0;text-align:left}}";

/// Renders the route tables as an HTML page without scripts. Each route links to the console, which
/// can send a request to it.
pub(crate) fn html_page() -> String {
    let own = routes().iter().map(|route| {
        let tag = route.path.split('/').nth(2).unwrap_or_default();
        (tag, route.method, route.path.to_owned(), route.summary)
    });
    let dialects =
        dialect_routes().map(|route| (route.dialect, route.method, route.path, route.summary));
    let mut sections: Vec<(&str, String)> = Vec::new();
    for (tag, method, path, summary) in own.chain(dialects) {
        let row = format!(
            "<tr><td>{method}</td><td><code>{path}</code><br><span class=\"soft\">{summary}</span></td>\
             <td><a href=\"/#/api?op={method}%20{}\" aria-label=\"Try {method} {path}\">Try</a></td></tr>\n",
            encoded(&path)
        );
        match sections.iter_mut().find(|(known, _)| *known == tag) {
            Some((_, rows)) => rows.push_str(&row),
            None => sections.push((tag, row)),
        }
    }
    let mut body = String::new();
    for (tag, rows) in &sections {
        body.extend(["<h2>", *tag, "</h2>\n<table>\n", rows.as_str(), "</table>\n"]);
    }
    [
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<title>API · Throughline</title>\n<style>",
        STYLE,
        "</style>\n<main>\n<h1>The API of Throughline</h1>\n",
        "<p>Durable agents in Letta's formats, the console's routes, and the dialects of the gateway. ",
        "All routes of the agent API exist under <code>/v1</code> and under <code>/letta/v1</code>. ",
        "The routes as an OpenAPI document: <a href=\"/openapi.json\">openapi.json</a>. ",
        "To send a request, use <a href=\"/#/api\">the page API of the console</a>.</p>\n",
        &body,
        "</main>\n</html>\n",
    ]
    .concat()
}

/// Encodes the characters of a path that have a meaning in a query.
fn encoded(path: &str) -> String {
    path.replace('{', "%7B").replace('}', "%7D").replace('+', "%2B")
}
