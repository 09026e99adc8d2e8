//! Measures the fourth request of conversations, depending on the gateway process that receives it:
//! the process that served the first three requests, a restarted process, or two processes that
//! share a store and receive the requests of each conversation alternately.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Context as _;
use tokio::task::JoinSet;

use crate::Options;
use crate::conversation::{Conversation, Dialect, Size};
use crate::gateway::{self, Capture, Gateway};
use crate::load::{Connection, LoadResult, Sample};
use crate::measure::{MANY, ROUNDS, Round, median_round, run_round};
use crate::process::{self, Server};
use crate::reply::Model;
use crate::units::time_or_dash;

/// Number of requests per conversation before the measured request.
const TURNS_BEFORE: usize = 3;

/// The gateway process that continues a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuation {
    /// The process that served the conversation so far.
    Warm,
    /// A process that was started after the previous request.
    Cold,
    /// The other one of two processes that share a store.
    Alternating,
}

pub(crate) struct ContinuationResult {
    name: &'static str,
    round: Round,
}

/// Measures all kinds of continuation that are selected.
pub(crate) async fn run(
    options: &Options,
    upstream: SocketAddr,
) -> anyhow::Result<Vec<ContinuationResult>> {
    let conversations = if options.quick { 16 } else { 64 };
    let mut results = Vec::new();
    let kinds = [Continuation::Warm, Continuation::Cold, Continuation::Alternating];
    for kind in kinds.into_iter().filter(|kind| options.selects(kind.name())) {
        eprintln!("{} …", kind.name());
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(kind.measure(upstream, conversations).await?);
        }
        results.push(ContinuationResult { name: kind.name(), round: median_round(rounds) });
    }
    Ok(results)
}

pub(crate) fn print(results: &[ContinuationResult]) {
    if !results.is_empty() {
        println!("\nfourth requests of 2 KB conversations over {MANY} connections, relaxed");
    }
    for ContinuationResult { name, round } in results {
        let cpu = time_or_dash(round.cpu);
        println!("{name:<34} {:>8.0}/s, CPU per request {cpu}", round.rate());
    }
}

impl Continuation {
    fn name(self) -> &'static str {
        match self {
            Continuation::Warm => "continued by the same process",
            Continuation::Cold => "continued after a restart",
            Continuation::Alternating => "continued by alternating processes",
        }
    }

    async fn measure(self, upstream: SocketAddr, conversations: usize) -> anyhow::Result<Round> {
        let folder = process::temporary_folder()?;
        let store = gateway::sqlite_url(&folder.path().join("store.db"));
        let mut gateways = vec![gateway::start_on(upstream, Capture::Relaxed, &store).await?];
        if self == Continuation::Alternating {
            gateways.push(gateway::start_on(upstream, Capture::Relaxed, &store).await?);
        }
        let mut clients: Vec<Client> =
            (0..MANY).map(|number| Client::new(number, conversations)).collect();
        for _ in 0..TURNS_BEFORE {
            advance(&gateways, &mut clients).await?;
        }
        if self == Continuation::Cold {
            for gateway in gateways.drain(..) {
                gateway.stop().await?;
            }
            gateways.push(gateway::start_on(upstream, Capture::Relaxed, &store).await?);
        }
        let servers: Vec<&Server> = gateways.iter().map(|gateway| &gateway.server).collect();
        run_round(&servers, advance(&gateways, &mut clients)).await
    }
}

/// A client that sends the requests of several conversations over one connection.
struct Client {
    /// Number of the process that receives the next requests, modulo the number of processes.
    process: usize,
    conversations: Vec<Conversation>,
}

impl Client {
    fn new(process: usize, conversations: usize) -> Self {
        let conversation =
            || Conversation::new(Dialect::Messages, Model::Short, Size::Small, false);
        let conversations = std::iter::repeat_with(conversation).take(conversations).collect();
        Self { process, conversations }
    }

    /// Sends the next request of each conversation.
    async fn take_turns(mut self, mut connection: Connection) -> anyhow::Result<(Self, Sample)> {
        let mut sample = Sample::default();
        for conversation in &mut self.conversations {
            connection.take_turn(conversation, &mut sample).await?;
        }
        self.process += 1;
        Ok((self, sample))
    }
}

/// Sends the next request of each conversation to the process that it did not use last.
async fn advance(gateways: &[Gateway], clients: &mut Vec<Client>) -> anyhow::Result<LoadResult> {
    let mut connected = Vec::with_capacity(clients.len());
    for client in clients.drain(..) {
        let gateway = gateways.iter().cycle().nth(client.process);
        let address = gateway.context("no gateway was started")?.server.address;
        connected.push((client, Connection::open(address).await?));
    }
    let began = Instant::now();
    let mut running = JoinSet::new();
    for (client, connection) in connected {
        running.spawn(client.take_turns(connection));
    }
    let mut sample = Sample::default();
    while let Some(result) = running.join_next().await {
        let (client, own) = result??;
        clients.push(client);
        sample.merge(own);
    }
    Ok(LoadResult::new(sample, began.elapsed()))
}
