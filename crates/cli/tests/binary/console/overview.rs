//! Tests of the routes for the overview, the list of calls and the reply of a call.

use serde_json::{Value, json};

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;

const CLAUDE: &str = "sim/claude-sonnet-4-5";

/// A gateway with simulators and prices.
struct SimulatedGateway {
    store: TestStore,
    serving: GatewayProcess,
}

impl SimulatedGateway {
    fn start(name: &str) -> Self {
        let store = TestStore::without_database(name);
        let prices = "[prices.\"*\"]\ninput = 3\noutput = 15\ncached = 0.3\n";
        std::fs::write(store.file("throughline.toml"), prices).unwrap();
        let serving = GatewayProcess::start(&store.folder, &[], &[]);
        Self { store, serving }
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = "content-type: application/json\r\n";
        let response = self.serving.send(method, path, headers, &body);
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
    }

    fn get(&self, path: &str) -> Value {
        self.send("GET", path, &json!(null))
    }

    fn calls(&self, query: &str) -> Vec<Value> {
        let list = self.get(&format!("/v1/throughline/calls?{query}"));
        list["calls"].as_array().unwrap_or_else(|| panic!("{query}: {list}")).clone()
    }

    /// Runs a tool loop as a client that drops the model's Thoughts, then sends a request that the
    /// provider rejects.
    fn converse(&self) {
        let tool = json!({"name": "get_weather", "description": "The weather of a city.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}});
        let mut messages =
            vec![json!({"role": "user", "content": "Is it warmer in Rome or in Oslo?"})];
        for _ in 0..2 {
            let body = json!({"model": CLAUDE, "max_tokens": 4096, "tools": [tool],
                "messages": messages, "thinking": {"type": "enabled", "budget_tokens": 2048}});
            let answer = self.send("POST", "/v1/messages", &body);
            let content = answer["content"].as_array().unwrap_or_else(|| panic!("{answer}"));
            let visible: Vec<Value> =
                content.iter().filter(|part| part["type"] != "thinking").cloned().collect();
            let calls = visible.iter().filter(|part| part["type"] == "tool_use");
            let results: Vec<Value> = calls
                .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "24 °C"}))
                .collect();
            messages.push(json!({"role": "assistant", "content": visible}));
            messages.push(json!({"role": "user", "content": results}));
        }
        let result = json!({"type": "tool_result", "tool_use_id": "none", "content": "24 °C"});
        let wrong = json!({"model": CLAUDE, "max_tokens": 64,
            "messages": [{"role": "user", "content": [result]}]});
        let answer = self.send("POST", "/v1/messages", &wrong);
        assert_eq!(answer["type"], "error", "{answer}");
    }
}

/// Adds up the values of a metric whose labels contain each of the texts.
fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// The overview, `throughline usage`, `throughline stats` and the metrics report the same calls,
/// tokens and cost.
#[test]
fn overview_equals_the_usage_and_stats_commands_and_the_metrics() {
    let gateway = SimulatedGateway::start("overview-usage");
    gateway.converse();
    let overview = gateway.get("/v1/throughline/overview");
    let usage = gateway.store.json(&["usage", "--by", "day"]);
    let numbers =
        ["calls", "unpriced", "input", "cached", "written", "output", "thought", "micro_usd"];
    let pick = |row: &Value, names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| row[*name].clone()).collect()
    };
    let names = [&["day"], &numbers[..]].concat();
    let days = |rows: &Value| -> Vec<Vec<Value>> {
        rows.as_array().unwrap().iter().map(|row| pick(row, &names)).collect()
    };
    // On a day with only failed calls, no usage is recorded.
    let used: Vec<Vec<Value>> =
        days(&overview["days"]).into_iter().filter(|row| row[1] != json!(0)).collect();
    assert_eq!(used, days(&usage["usage"]), "{overview:#}");
    let sum = |name: &str| -> u64 {
        let days = overview["days"].as_array().unwrap().iter();
        days.map(|day| day[name].as_u64().unwrap()).sum()
    };
    for name in numbers.iter().chain(&["recorded", "failed", "restored", "rejections_avoided"]) {
        assert_eq!(overview["total"][*name], json!(sum(name)), "{name}");
    }
    let total = &overview["total"];
    let counted = pick(total, &["calls", "recorded", "failed", "restored_calls", "restored"]);
    assert_eq!(counted, [2, 3, 1, 1, 1].map(Value::from), "{overview:#}");
    // Without its thinking block, Claude rejects the tool result of the second call.
    assert_eq!(
        pick(total, &["rejections_avoided", "rejections_unchecked"]),
        [1, 0].map(Value::from)
    );
    for name in ["first_byte_p50", "first_byte_p95", "duration_p50", "duration_p95"] {
        assert!(total[name].as_u64().is_some_and(|time| time > 0), "{name}: {total:#}");
    }
    assert_eq!(overview["complete"], json!(true));
    let stats = gateway.store.json(&["stats"]);
    assert_eq!(stats["turns"], total["calls"], "{stats:#}");
    let page = gateway.serving.send("GET", "/metrics", "", "");
    let sum_of = |name: &str, labels: &[&str], scale: f64| {
        json!(format!("{:.0}", scale * metric(&page, name, labels)))
    };
    // The metrics also count requests to the console.
    let dialect = "dialect=\"anthropic-messages\"";
    let calls = |label: &str| sum_of("throughline_calls_total", &[dialect, label], 1.0);
    let shown = |name: &str| json!(total[name].to_string());
    assert_eq!(calls(""), shown("recorded"), "{page}");
    assert_eq!(calls("status=\"200\""), shown("calls"), "{page}");
    assert_eq!(calls("status=\"400\""), shown("failed"), "{page}");
    for kind in ["input", "cached", "output", "thought"] {
        let label = format!("kind=\"{kind}\"");
        let counted = sum_of("throughline_tokens_total", &[&label], 1.0);
        assert_eq!(counted, shown(kind), "{kind}: {page}");
    }
    assert_eq!(sum_of("throughline_cost_usd_total", &[], 1e6), shown("micro_usd"), "{page}");
    let earlier = gateway.get("/v1/throughline/overview?until=2020-01-01T00:00:00Z");
    assert_eq!(pick(&earlier["total"], &["calls", "recorded"]), [0, 0].map(Value::from));
    let wrong = gateway.get("/v1/throughline/overview?since=yesterday");
    assert!(wrong["detail"].to_string().contains("`yesterday` is not a time"), "{wrong}");
}

#[test]
fn calls_are_filtered_by_status_model_audit_time_and_restored_thoughts() {
    let gateway = SimulatedGateway::start("call-filters");
    gateway.converse();
    let count = |query: &str| gateway.calls(query).len();
    assert_eq!([count(""), count("status=ok"), count("status=failed")], [3, 2, 1]);
    assert_eq!([count("status=400"), count("status=429")], [1, 0]);
    assert_eq!([count("model=claude-sonnet-4-5"), count("model=gpt-5.2")], [3, 0]);
    assert_eq!(count(&format!("model={CLAUDE}")), 3);
    assert_eq!([count("audit=refuse"), count("restored=true")], [1, 1]);
    assert_eq!(count("since=2020-01-01T00:00:00Z&until=2099-01-01T00:00:00Z"), 3);
    assert_eq!([count("until=2020-01-01T00:00:00Z"), count("since=2099-01-01T00:00:00Z")], [0, 0]);
    let restored = &gateway.calls("restored=true")[0];
    assert_eq!(restored["title"], "Is it warmer in Rome or in Oslo?");
    assert_eq!(restored["fate_counts"]["restored_items"], 1, "{restored}");
    assert!(restored["first_byte"].as_u64().unwrap() <= restored["microseconds"].as_u64().unwrap());
}

/// The view of a call contains the reply: the Thought with the size of its Seal, the text and the
/// tool call, without the bytes of the Seal.
#[test]
fn call_view_contains_the_reply() {
    let gateway = SimulatedGateway::start("call-reply");
    gateway.converse();
    let calls = gateway.calls("status=ok");
    let view = |call: &Value| {
        gateway.get(&format!("/v1/throughline/calls/{}/view", call["id"].as_str().unwrap()))
    };
    let first = view(calls.last().unwrap());
    let reply = first["reply"].as_array().unwrap_or_else(|| panic!("{first:#}"));
    let kinds: Vec<&str> = reply.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"thought"), "{reply:#?}");
    assert!(reply[0]["sealed_bytes"].as_u64().unwrap() > 0 && reply[0]["text"] != "");
    let call = reply.iter().find(|item| item["kind"] == "tool_call").unwrap();
    assert_eq!((&call["name"], call["args"].is_object()), (&json!("get_weather"), true));
    let last = view(&calls[0]);
    let reply = last["reply"].as_array().unwrap();
    assert!(reply.iter().any(|item| item["kind"] == "text"), "{reply:#?}");
    let failed = view(&gateway.calls("status=failed")[0]);
    assert!(failed.get("reply").is_none(), "{failed:#}");
}

/// If a client continues one answer twice, the second continuation is a fork. The list and the
/// overview count the shared call once.
#[test]
fn branches_of_a_conversation_share_calls_that_are_counted_once() {
    let gateway = SimulatedGateway::start("call-branches");
    let question = json!({"role": "user", "content": "Is it warmer in Rome or in Oslo?"});
    let send = |messages: &[Value]| {
        let body = json!({"model": CLAUDE, "max_tokens": 64, "messages": messages});
        let answer = gateway.send("POST", "/v1/messages", &body);
        json!({"role": "assistant", "content": answer["content"]})
    };
    let answer = send(std::slice::from_ref(&question));
    for next in ["And tomorrow?", "And by train?"] {
        send(&[question.clone(), answer.clone(), json!({"role": "user", "content": next})]);
    }
    let calls = gateway.calls("");
    assert_eq!(calls.len(), 3, "{calls:#?}");
    let overview = gateway.get("/v1/throughline/overview");
    let total = &overview["total"];
    assert_eq!((&total["calls"], &total["recorded"]), (&json!(3), &json!(3)), "{total:#}");
    let view = |call: &Value| {
        let thread = call["thread"].as_str().unwrap();
        gateway.get(&format!("/v1/throughline/threads/{thread}"))
    };
    let (fork, origin) = (view(&calls[0]), view(&calls[1]));
    assert_eq!(fork["forked_from"], origin["id"], "{fork:#}");
    assert_eq!(origin["forks"][0]["id"], fork["id"], "{origin:#}");
    // Both show the whole conversation.
    assert_eq!([&fork, &origin].map(|view| view["calls"].as_array().unwrap().len()), [2, 2]);
}
