//! Letta's own clients, with agents whose models are the simulators: each call brings back every seal that its thread was given.

use std::collections::BTreeSet;
use std::sync::Arc;

use throughline_agent::{Ports, Runner, Tool};
use throughline_codec::Catalog;
use throughline_core::{ModelError, Name, Trouble};
use throughline_provider::EndpointModels;
use throughline_server::{AgentApi, ReplayMode};
use throughline_sim::{Ledger, Verdict};
use throughline_testkit::figure;

use crate::harness::{Gate, MODELS, Opening, official, upstream};
use crate::letta::scene::{Counted, Now, noting, with_text};

/// Each model's row.
fn row_of(model: &str) -> Option<&'static str> {
    let rows = [
        ("claude", "anthropic"),
        ("gpt", "openai"),
        ("gemini", "gemini"),
        ("deepseek", "deepseek"),
    ];
    rows.iter().find(|(begins, _)| model.starts_with(begins)).map(|(_, row)| *row)
}

fn models(simulators: &str) -> EndpointModels {
    EndpointModels::new(Arc::new(upstream(simulators)), |name| {
        let model = name.strip_prefix("sim/").unwrap_or(name);
        let row = row_of(model);
        let row = row
            .ok_or_else(|| ModelError::new(Trouble::Other, format!("there is no model {name}")))?;
        let target = Catalog::builtin().target_for(row, model, "sim").unwrap();
        Ok(vec![(Name::from(format!("sim-{row}")), target)])
    })
}

async fn open() -> Gate {
    let make = |simulators: String| -> Opening {
        let agents = move |store| {
            let ports = Ports { clock: Arc::new(Now), ids: Arc::new(Counted), secret: [7; 32] };
            let tools = [with_text("get_weather", "city"), with_text("get_time", "zone")];
            let tools = tools.map(|spec| Arc::new(noting(spec)) as Arc<dyn Tool>);
            let runner = Runner::new(store, Arc::new(models(&simulators)), ports).with_tools(tools);
            AgentApi::new(runner)
        };
        Opening { agents: Some(Box::new(agents)), ..Opening::of(ReplayMode::Repair) }
    };
    Gate::open_before(make, throughline_sim::Options::default()).await
}

async fn run(language: &str, script: &str) {
    let gate = open().await;
    let Some(output) = official::run(language, script, gate.url(), "none", &MODELS).await else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language}/{script}:\n{said}\n{error}");
    let conversations = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(conversations, 2 * MODELS.len(), "{said}");
    gate.assert_nothing_refused();
    let ledger = gate.ledger();
    assert_all_came_back(&ledger);
    let (issued, back) = (ledger.issued().count(), ledger.returned().count());
    let calls = ledger.entries.len();
    figure(
        &format!("{language}/{script}"),
        format!(
            "{conversations} threads, {calls} calls, 0 refused, {issued} seals issued, {back} came back"
        ),
    );
}

/// Every answer had reasoning, and every call of a thread brought exactly the seals that the thread had been given. A thread has
/// two questions.
fn assert_all_came_back(ledger: &Ledger) {
    let (mut owed, mut finals) = (BTreeSet::new(), 0);
    for entry in &ledger.entries {
        assert!(!entry.issued.is_empty(), "an answer without reasoning: {entry:#?}");
        let returned = entry.returned.iter().filter(|back| back.verdict == Verdict::Accepted);
        let back: BTreeSet<String> = returned.map(|back| back.seal.clone()).collect();
        assert_eq!(back, owed, "{entry:#?}");
        owed.extend(entry.issued.iter().map(|issued| issued.seal.clone()));
        finals += usize::from(entry.stop.as_deref() != Some("tools"));
        if finals == 2 {
            (owed, finals) = (BTreeSet::new(), 0);
        }
    }
    assert_eq!(finals, 0, "the last thread has no end");
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_python_letta_with_the_simulators() {
    run("python", "letta_simulated.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_node_letta_with_the_simulators() {
    run("node", "letta_simulated.mjs").await;
}
