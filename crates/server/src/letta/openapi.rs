//! The agent API as an `OpenAPI` document and as an HTML page.

use throughline_core::{Json, json};

use crate::api::{Route, routes};
use crate::letta::request_schema;
use crate::letta::response_schema::{self, ResponseKind};

/// Builds the `OpenAPI` document from the route table, so it covers every route.
pub fn document() -> Json {
    json::object(|o| {
        o.string("openapi", "3.1.0").object("info", |o| {
            o.string("title", "Throughline agents").string("version", env!("CARGO_PKG_VERSION"));
            o.string(
                "description",
                "Durable agents in Letta's formats. All routes exist under /v1 and under /letta/v1.",
            );
        });
        o.array("servers", |list| {
            list.object(|o| {
                o.string("url", "/");
            });
            list.object(|o| {
                o.string("url", "/letta");
            });
        });
        o.object("paths", |o| {
            for path in paths() {
                o.object(path, |o| {
                    for route in routes().iter().filter(|route| route.path == path) {
                        o.object(&route.method.to_lowercase(), |o| write_operation(o, route));
                    }
                });
            }
        });
        o.object("components", |o| {
            o.object("securitySchemes", |o| {
                o.object("key", |o| {
                    o.string("type", "http").string("scheme", "bearer");
                });
            });
            o.object("schemas", |o| {
                o.object("Error", |o| {
                    o.string("type", "object").object("properties", |o| {
                        o.object("detail", |o| {
                            o.string("description", "What is wrong: a sentence, or an object with a code, a message and ids.");
                        });
                    });
                    o.array("required", |list| {
                        list.string("detail");
                    });
                });
                response_schema::write_schemas(o);
            });
        });
        o.array("security", |list| {
            list.object(|o| {
                o.array("key", |_| {});
            });
        });
    })
}

/// The distinct paths, in route order.
fn paths() -> Vec<&'static str> {
    let mut paths: Vec<&str> = Vec::new();
    for route in routes() {
        if !paths.contains(&route.path) {
            paths.push(route.path);
        }
    }
    paths
}

fn write_operation(o: &mut json::Object<'_>, route: &Route) {
    o.string("operationId", &format!("{:?}", route.op)).string("summary", route.says);
    let area = route.path.split('/').nth(2).unwrap_or_default();
    o.array("tags", |list| {
        list.string(area);
    });
    let ids: Vec<&str> = route
        .path
        .split('/')
        .filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'))
        .collect();
    let query = request_schema::query_parameters(route.op);
    if !ids.is_empty() || !query.is_empty() {
        o.array("parameters", |list| {
            for id in ids {
                list.object(|o| {
                    o.string("name", id).string("in", "path").bool("required", true);
                    o.object("schema", |o| {
                        o.string("type", "string");
                    });
                });
            }
            for (name, kind, says) in query {
                list.object(|o| {
                    o.string("name", name).string("in", "query").string("description", says);
                    o.raw("schema", &schema(kind, None));
                });
            }
        });
    }
    if matches!(route.method, "POST" | "PATCH") {
        o.object("requestBody", |o| {
            o.object("content", |o| {
                o.object("application/json", |o| {
                    o.object("schema", |o| {
                        o.string("type", "object").object("properties", |o| {
                            for (name, kind, says) in request_schema::body(route.op) {
                                o.raw(name, &schema(kind, Some(says)));
                            }
                        });
                    });
                });
            });
        });
    }
    o.object("responses", |o| {
        let (whole, frames) = match response_schema::response(route.op) {
            ResponseKind::One(name) => (Some(response_schema::of(name)), None),
            ResponseKind::List(name) => (Some(response_schema::of(&format!("[{name}]"))), None),
            ResponseKind::Number => (Some(response_schema::of("integer")), None),
            ResponseKind::Nothing => (Some(schema("null", None)), None),
            ResponseKind::Frames => (None, Some(response_schema::of("Message"))),
            ResponseKind::Either => {
                (Some(response_schema::of("Answer")), Some(response_schema::of("Message")))
            }
            ResponseKind::Events => (None, Some(response_schema::of("RunEvent"))),
        };
        o.object("200", |o| {
            o.string("description", route.says).object("content", |o| {
                for (kind, schema) in [("application/json", whole), ("text/event-stream", frames)] {
                    if let Some(schema) = schema {
                        o.object(kind, |o| {
                            o.raw("schema", &schema);
                        });
                    }
                }
            });
        });
        for (status, says) in [
            ("404", "The object does not exist in this tenant."),
            ("409", "A conflicting run or request, named in the detail."),
            ("422", "The request is invalid."),
        ] {
            o.object(status, |o| {
                o.string("description", says).object("content", |o| {
                    o.object("application/json", |o| {
                        o.object("schema", |o| {
                            o.string("$ref", "#/components/schemas/Error");
                        });
                    });
                });
            });
        }
    });
}

/// The schema of a JSON type.
fn schema(kind: &str, says: Option<&str>) -> Json {
    json::object(|o| {
        o.string("type", kind).maybe_string("description", says);
        if kind == "array" {
            o.object("items", |_| {});
        }
    })
}

/// The route table as an HTML page.
pub(crate) fn html_page() -> String {
    let mut rows = String::new();
    for route in routes() {
        rows.push_str("<tr><td>");
        rows.push_str(route.method);
        rows.push_str("</td><td><code>");
        rows.push_str(route.path);
        rows.push_str("</code></td><td>");
        rows.push_str(route.says);
        rows.push_str("</td></tr>\n");
    }
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
