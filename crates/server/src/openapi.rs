//! The `OpenAPI` document, and the route table as an HTML page.
//!
//! The paths are those of the route tables. The schemas of the responses are derived from the types
//! that the handlers serialize; the five documents of the specification have their own schemas.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use throughline_json::Json;
use throughline_spec::{RunEvent, SmartState};

use crate::api::ErrorBody;
use crate::routes::{DialectRoute, Route, dialect_routes, routes};

/// Builds the `OpenAPI` document from the route tables, so it covers every route.
pub fn openapi() -> Json {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schemas = settings
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .with_transform(RecursiveTransform(remove_null))
        .into_generator();
    let mut paths: Map<String, Value> = Map::new();
    let mut add = |method: &str, path: &str, operation: OperationObject<'_>| {
        if let Value::Object(item) = paths.entry(path).or_insert_with(|| json!({})) {
            // Where two dialects share a path and a method, the first entry describes both.
            item.entry(method.to_lowercase()).or_insert_with(|| json!(operation));
        }
    };
    for route in routes() {
        add(route.method, route.path, operation(route, &mut schemas));
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

/// Removes null from the types of members, because members without a value are absent.
fn remove_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|of_type| of_type != "null");
        if let [of_type] = &**types {
            let of_type = of_type.clone();
            schema.insert("type".to_owned(), of_type);
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OperationObject<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_id: Option<String>,
    summary: &'r str,
    tags: [&'r str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_body: Option<Value>,
    responses: Map<String, Value>,
}

fn operation<'r>(route: &'r Route, schemas: &mut SchemaGenerator) -> OperationObject<'r> {
    let mut parameters = path_parameters(route.path);
    for (name, kind, says) in route.query.iter().copied().flatten() {
        let schema = schema(kind, None);
        parameters
            .push(json!({ "name": name, "in": "query", "description": says, "schema": schema }));
    }
    let request_body = matches!(route.method, "POST" | "PATCH").then(|| {
        let members = route.body.iter().copied().flatten();
        let members =
            members.map(|(name, kind, says)| ((*name).to_owned(), schema(kind, Some(says))));
        let members: Map<String, Value> = members.collect();
        let schema = json!({ "type": "object", "properties": members });
        json!({ "content": content(Some(schema), None) })
    });
    let content_of_all = content(
        route.response.map(|schema_of| schema_of(schemas).to_value()),
        route.event.map(|schema_of| schema_of(schemas).to_value()),
    );
    let error = content(Some(schemas.subschema_for::<ErrorBody<'_>>().to_value()), None);
    let responses = [
        ("200", route.says, &content_of_all),
        ("404", "The object does not exist in this tenant.", &error),
        ("409", "A conflicting run or request, named in the detail.", &error),
        ("422", "The request is invalid.", &error),
    ];
    let response = |(status, says, content): (&str, &str, &Value)| {
        (status.to_owned(), json!({ "description": says, "content": content }))
    };
    OperationObject {
        operation_id: Some(format!("{:?}", route.op)),
        summary: route.says,
        tags: [route.path.split('/').nth(2).unwrap_or_default()],
        servers: None,
        parameters,
        request_body,
        responses: responses.into_iter().map(response).collect(),
    }
}

/// An operation whose request and response have a provider's format.
fn dialect_operation(route: &DialectRoute) -> OperationObject<'_> {
    let any = json!({ "content": content(Some(json!({ "type": "object" })), None) });
    let responses = [
        ("200", "The response in the dialect's format."),
        ("default", "An error in the dialect's format."),
    ];
    let response =
        |(status, says): (&str, &str)| (status.to_owned(), json!({ "description": says }));
    OperationObject {
        operation_id: None,
        summary: route.says,
        tags: [route.dialect],
        servers: Some(json!([{ "url": "/" }])),
        parameters: path_parameters(&route.path),
        request_body: matches!(route.method, "POST" | "PUT" | "PATCH").then_some(any),
        responses: responses.into_iter().map(response).collect(),
    }
}

/// The content of a request or response, by media type.
fn content(json: Option<Value>, events: Option<Value>) -> Value {
    let all = [("application/json", json), ("text/event-stream", events)];
    let all = all.into_iter().filter_map(|(kind, schema)| Some((kind, schema?)));
    all.map(|(kind, schema)| (kind.to_owned(), json!({ "schema": schema }))).collect()
}

/// The parameters in braces of a path.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let string = json!({ "type": "string" });
    names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": string }))
        .collect()
}

/// The schema of a JSON type.
fn schema(kind: &str, says: Option<&str>) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), kind.into());
    schema.extend(says.map(|says| ("description".to_owned(), says.into())));
    if kind == "array" {
        schema.insert("items".to_owned(), json!({}));
    }
    schema.into()
}

/// The schemas of the documented types, by name.
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

/// The route table as an HTML page.
pub(crate) fn html_page() -> String {
    let row = |route: &Route| {
        let Route { method, path, says, .. } = route;
        format!("<tr><td>{method}</td><td><code>{path}</code></td><td>{says}</td></tr>\n")
    };
    let rows: String = routes().iter().map(row).collect();
    [
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Throughline agents</title>\n",
        "<style>body{font:16px/1.5 system-ui;margin:2rem auto;max-width:70rem;padding:0 1rem}",
        "td{padding:.3rem .8rem .3rem 0;vertical-align:top}code{white-space:nowrap}</style>\n",
        "<h1>Throughline agents</h1>\n<p>Durable agents in Letta's formats. All routes exist under <code>/v1</code> ",
        "and under <code>/letta/v1</code>. As an OpenAPI document: ",
        "<a href=\"/openapi.json\">openapi.json</a>.</p>\n<table>\n",
        &rows,
        "</table>\n</html>\n",
    ]
    .concat()
}
