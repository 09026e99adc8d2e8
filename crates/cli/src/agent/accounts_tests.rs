//! Tests of account pools in the calls of agents. Two accounts of the simulated `OpenAI` cannot
//! read each other's Seals.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use throughline_codec::Catalog;
use throughline_core::{
    Body, Call, Disposition, ElisionReason, Event, Fate, Item, ItemPosition, ModelError,
    ModelErrorKind, ModelRegistry as _, ModelStream, NativeReasoning, Role, Upstream,
    UpstreamFuture, UpstreamRequest, UpstreamResponse,
};
use throughline_json::Json;
use throughline_provider::Http;
use throughline_server::{Level, Limits, Log, NoPrices, Telemetry};
use throughline_sim::{Script, Simulator};
use throughline_store::Options;
use throughline_testkit::Folder;

use crate::agent::{AgentModels, config_router, simulator, upstream};
use crate::clock::SystemClock;
use crate::config::{Config, file};
use crate::credentials::SharedCredentials;

const MODEL: &str = "gpt-5.2";

/// Accounts whose requests can be made to fail.
struct FailingAccounts {
    http: Http,
    failing: Mutex<Option<String>>,
    arrived: Mutex<Vec<String>>,
}

impl Upstream for FailingAccounts {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        self.arrived.lock().unwrap().push(outgoing.endpoint.to_string());
        if self.failing.lock().unwrap().as_deref() != Some(&*outgoing.endpoint) {
            return self.http.send(outgoing);
        }
        Box::pin(async {
            let body = Bytes::from_static(br#"{"error": {"message": "this account is limited"}}"#);
            let headers = vec![("content-type".into(), "application/json".into())];
            let body = Box::pin(stream::iter([Ok(body)]));
            Ok(UpstreamResponse { status: 429, headers, body })
        })
    }
}

/// The models of agents with a pool of two accounts.
struct PooledAgents {
    models: AgentModels,
    accounts: Arc<FailingAccounts>,
    simulator: Simulator,
}

fn config(simulators: &str, settings: &str) -> Config {
    let text = format!(
        "[providers.openai]\nbase_url = \"{simulators}/at/openai/v1\"\n{settings}\n\
         [[providers.openai.pool]]\nname = \"a\"\napi_key = \"key-of-a\"\nweight = 3\n\
         [[providers.openai.pool]]\nname = \"b\"\napi_key = \"key-of-b\"\n"
    );
    let parsed = file::read(&text, Catalog::builtin(), &|_| None);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    parsed.config
}

impl PooledAgents {
    async fn open(settings: &str) -> Self {
        Self::with_telemetry(settings, None).await
    }

    async fn with_telemetry(settings: &str, telemetry: Option<Arc<Telemetry>>) -> Self {
        // The simulators need only the catalog of this configuration.
        let settings_of_simulators = config("http://127.0.0.1:1", "");
        let simulator = simulator(&settings_of_simulators, Script::default()).await.unwrap();
        let config = config(&simulator.url(), settings);
        let http = upstream(&config, &simulator, &SharedCredentials::default()).unwrap();
        let (failing, arrived) = (Mutex::default(), Mutex::default());
        let accounts = Arc::new(FailingAccounts { http, failing, arrived });
        let shared: Arc<dyn Upstream> = Arc::<FailingAccounts>::clone(&accounts);
        let router = Arc::new(config_router(&config));
        let models = AgentModels::new(&config, router, shared, telemetry);
        Self { models, accounts, simulator }
    }

    /// Returns a Call that starts a conversation.
    fn call(&self, text: &str) -> Call {
        let mut call = Call::new(self.models.model(MODEL).unwrap().target().clone());
        call.stream = true;
        let effort = Some("high".into());
        call.settings.reasoning = Some(NativeReasoning { effort, ..NativeReasoning::default() });
        call.items = vec![user(text)];
        call
    }

    async fn begin(&self, call: &Call) -> Result<ModelStream, ModelError> {
        self.models.model(MODEL).unwrap().send(call.clone()).await
    }

    /// Sends the Call, and adds the reply and the next question to it. Returns the Fates.
    async fn exchange(&self, call: &mut Call) -> Vec<Fate> {
        let mut reply = self.begin(call).await.unwrap();
        while let Some(event) = reply.events.next().await {
            if let Event::Ended(reply) = event.unwrap() {
                call.extend(reply.items.clone());
            }
        }
        call.extend([user("Go on.")]);
        reply.fates
    }

    fn fail(&self, endpoint: Option<&str>) {
        *self.accounts.failing.lock().unwrap() = endpoint.map(str::to_owned);
    }

    /// Returns the endpoints that received requests since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.accounts.arrived.lock().unwrap())
    }
}

fn user(text: &str) -> Item {
    let id = format!("user {text}");
    Item::new(id, ItemPosition::new(0, 0), Role::User, Body::Text(text.into()))
}

fn other(endpoint: &str) -> &'static str {
    if endpoint == "openai#a" { "openai#b" } else { "openai#a" }
}

/// Returns the number of Seals that were not sent because another account owns them.
fn foreign_seals(fates: &[Fate]) -> usize {
    let is_foreign =
        |fate: &&Disposition| matches!(fate, Disposition::Elided(ElisionReason::OtherAccount));
    fates.iter().flat_map(|fate| &fate.seals).filter(is_foreign).count()
}

#[tokio::test]
async fn conversation_stays_at_its_account_and_moves_with_fates() {
    for text in ["Hello.", "Good morning.", "Good evening."] {
        let agents = PooledAgents::open("").await;
        let mut call = agents.call(text);
        agents.exchange(&mut call).await;
        let first = agents.take().remove(0);
        let fates = agents.exchange(&mut call).await;
        assert_eq!((agents.take(), foreign_seals(&fates)), (vec![first.clone()], 0), "{text}");
        agents.fail(Some(&first));
        let fates = agents.exchange(&mut call).await;
        let second = other(&first).to_owned();
        assert_eq!(agents.take(), [first, second.clone()], "{text}");
        assert_eq!(foreign_seals(&fates), 2, "{text}");
        // The first account works again, but the second one can read the newest Seal.
        agents.fail(None);
        let fates = agents.exchange(&mut call).await;
        assert_eq!((agents.take(), foreign_seals(&fates)), (vec![second], 2), "{text}");
        let ledger = agents.simulator.ledger();
        assert!(ledger.all_verified(), "{text}: {ledger:#?}");
    }
}

#[tokio::test]
async fn new_conversations_avoid_an_account_that_cools_down() {
    let agents = PooledAgents::open("").await;
    let call = agents.call("Hello.");
    drop(agents.begin(&call).await.unwrap());
    let first = agents.take().remove(0);
    agents.fail(Some(&first));
    drop(agents.begin(&call).await.unwrap());
    assert_eq!(agents.take(), [&*first, other(&first)]);
    drop(agents.begin(&call).await.unwrap());
    assert_eq!(agents.take(), [other(&first)], "the account cools down");
}

/// Collects the lines of a log.
#[derive(Default)]
struct LogLines(Mutex<Vec<String>>);

impl Log for LogLines {
    fn wants(&self, level: Level) -> bool {
        level <= Level::Warn
    }

    fn write(&self, _: Level, line: &Json) {
        self.0.lock().unwrap().push(line.as_str().to_owned());
    }
}

#[tokio::test]
async fn cooldowns_of_agents_are_logged() {
    let folder = Folder::new("agent-cooldowns");
    let url = format!("sqlite:{}", folder.join("store.db").display());
    let journal = throughline_store::open(&url, &Options::default()).await.unwrap();
    let log = Arc::new(LogLines::default());
    let (store, clock) = (Arc::new(journal.clone()), Arc::new(SystemClock));
    let lines: Arc<dyn Log> = Arc::<LogLines>::clone(&log);
    let telemetry = Telemetry::new(store, Arc::new(NoPrices), clock, lines, Limits::default());
    let telemetry = Arc::new(telemetry.unwrap());
    let agents = PooledAgents::with_telemetry("", Some(telemetry)).await;
    let call = agents.call("Hello.");
    drop(agents.begin(&call).await.unwrap());
    let first = agents.take().remove(0);
    agents.fail(Some(&first));
    drop(agents.begin(&call).await.unwrap());
    let account = &first["openai#".len()..];
    let line = format!(
        r#"{{"event":"cooldown","provider":"openai","account":"{account}","model":"{MODEL}"}}"#
    );
    assert_eq!(*log.0.lock().unwrap(), [line]);
    journal.close().await.unwrap();
}

#[tokio::test]
async fn conversation_with_the_policy_stay_gets_the_error_of_its_account() {
    let agents = PooledAgents::open("when_unavailable = \"stay\"").await;
    let mut call = agents.call("Hello.");
    agents.exchange(&mut call).await;
    let first = agents.take().remove(0);
    agents.fail(Some(&first));
    let error = agents.begin(&call).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::RateLimit);
    assert_eq!(agents.take(), [first]);
}

#[tokio::test]
async fn new_conversations_are_distributed_by_weight() {
    let agents = PooledAgents::open("").await;
    for number in 0..40 {
        drop(agents.begin(&agents.call(&format!("Question {number}."))).await.unwrap());
    }
    let at_a = agents.take().iter().filter(|endpoint| *endpoint == "openai#a").count();
    // The account has three quarters of the weights.
    assert!((24..=36).contains(&at_a), "{at_a} of 40");
}

#[tokio::test]
async fn least_busy_account_gets_the_next_conversation() {
    let agents = PooledAgents::open("balance = \"least-busy\"").await;
    let call = agents.call("Hello.");
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(agents.begin(&call).await.unwrap());
    }
    let at_b = agents.take().iter().filter(|endpoint| *endpoint == "openai#b").count();
    assert_eq!(at_b, 2, "each account has requests in proportion to its weight");
    drop(open);
    drop(agents.begin(&call).await.unwrap());
    drop(agents.begin(&call).await.unwrap());
    let next = agents.take();
    assert_eq!(next[0], next[1], "ended requests no longer count");
}
