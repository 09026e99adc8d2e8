//! Tests that repeated requests take effect once. Each request is sent one to five times,
//! concurrently from four processes.

use std::collections::BTreeMap;

use throughline_core::{
    Append, Batch, LogId, LogKind, LogOpening, NewRecord, Receipt, Store, StoreError, Tenant,
};
use throughline_json::Name;
use throughline_store::Journal;
use throughline_testkit::{Child, TestRng, cases, figure};

use crate::{opened, runtime};

const PROCESSES: usize = 4;
const THREADS: usize = 20;
const AT_ONCE: usize = 32;
const TENANT: &str = "crowd";

/// Asserts that each request has exactly one effect, and that all copies of a request get the same
/// reply.
pub(crate) fn assert_one_effect_per_request(url: &str) {
    let requests = usize::try_from(cases(400)).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        let journal = opened(url).await;
        for thread in 0..THREADS {
            let opening = Append::new(format!("thread-{thread}")).opening(LogOpening::thread());
            journal.commit(Batch::new(TENANT).append(opening)).await.unwrap();
        }
        journal.close().await.unwrap();
    });
    let task = |process| format!("requests\t{url}\t{process}\t{requests}");
    let mut children: Vec<Child> =
        (0..PROCESSES).map(|process| Child::start("child", &task(process))).collect();
    let mut replies: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for line in read_output(&mut children) {
        if let Some((request, reply)) =
            line.strip_prefix("reply ").and_then(|line| line.split_once(' '))
        {
            replies.entry(request.parse().unwrap()).or_default().push(reply.to_owned());
        }
    }
    let sent: usize = (0..requests).map(copies).sum();
    assert_eq!(replies.len(), requests);
    assert_eq!(replies.values().map(Vec::len).sum::<usize>(), sent);
    for (request, replies) in &replies {
        let first = replies.first().unwrap();
        assert!(replies.iter().all(|reply| reply == first), "request {request}: {replies:?}");
    }
    let effects = runtime.block_on(effects(url));
    assert_eq!(effects.len(), requests, "each request has an effect");
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    let kind = url.split(':').next().unwrap();
    figure(
        &format!("requests once, {kind}"),
        format!("{requests} requests, {sent} sendings, {PROCESSES} processes"),
    );
}

/// Reads the output of all children in parallel, so that no child blocks while printing.
fn read_output(children: &mut [Child]) -> Vec<String> {
    std::thread::scope(|scope| {
        let read_lines = |child: &mut Child| {
            let lines: Vec<String> = std::iter::from_fn(|| child.line()).collect();
            assert!(child.wait_for_success(), "a sender failed");
            lines
        };
        let readers: Vec<_> =
            children.iter_mut().map(|child| scope.spawn(move || read_lines(child))).collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    })
}

/// Returns how many copies of a request are sent.
fn copies(request: usize) -> usize {
    1 + TestRng::new(u64::try_from(request).unwrap()).below(5)
}

/// Counts the Items that each request wrote. Also asserts that there is one run per request.
async fn effects(url: &str) -> BTreeMap<String, u32> {
    let journal = opened(url).await;
    let tenant = Tenant::from(TENANT);
    let mut effects = BTreeMap::new();
    let mut runs = 0;
    for thread in 0..THREADS {
        let thread = LogId::from(format!("thread-{thread}"));
        let mut after = 0;
        loop {
            let records = journal.read(&tenant, &thread, after, 500).await.unwrap();
            let Some(last) = records.last() else { break };
            after = last.seq;
            for record in records {
                let content = record.content.bytes().unwrap();
                let request = std::str::from_utf8(content).unwrap().split(' ').next().unwrap();
                *effects.entry(request.to_owned()).or_default() += 1;
            }
        }
        let all = throughline_store::Page { limit: 100_000, ..Default::default() };
        let of_thread = journal.runs(&tenant, Some(&thread), all).await.unwrap();
        assert!(of_thread.iter().all(|run| run.kind == LogKind::Run && run.last == 1));
        runs += of_thread.len();
    }
    assert_eq!(runs, effects.len(), "each request created one run");
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    assert_eq!(proof.broken, None);
    journal.close().await.unwrap();
    effects
}

/// Runs a sender process, which sends its copies of the requests concurrently.
pub(crate) fn send(task: &str) {
    let mut fields = task.split('\t');
    let url = fields.next().unwrap().to_owned();
    let mut number = || fields.next().unwrap().parse::<usize>().unwrap();
    let (process, requests) = (number(), number());
    runtime().block_on(async move {
        let journal = opened(&url).await;
        let mut replies = tokio::task::JoinSet::new();
        for request in 0..requests {
            for copy in (0..copies(request)).filter(|copy| (request + copy) % PROCESSES == process)
            {
                if replies.len() >= AT_ONCE {
                    println!("{}", replies.join_next().await.unwrap().unwrap());
                }
                replies.spawn(reply(journal.clone(), request, format!("{process}.{copy}")));
            }
        }
        while let Some(reply) = replies.join_next().await {
            println!("{}", reply.unwrap());
        }
        journal.close().await.unwrap();
    });
}

/// Sends one copy of a request. Returns the reply, with the content of the run that the first copy
/// to arrive created.
async fn reply(journal: Journal, request: usize, sender: String) -> String {
    let thread = LogId::from(format!("thread-{}", request % THREADS));
    let item = NewRecord::new("item", format!("{request} by {sender}"));
    let answer = NewRecord::new("answer", format!("answer to {request} for {sender}"));
    let run = Append::new(format!("run-{request}-{sender}"));
    let mut batch = Batch::new(TENANT)
        .append(Append::new(thread.clone()).record(item))
        .append(run.opening(LogOpening::run(thread)).record(answer));
    // Use one idempotency name per message of the request.
    batch.once =
        (0..=request % 3).map(|message| Name::from(format!("otid-{request}-{message}"))).collect();
    let Receipt { written, .. } = committed(&journal, batch).await;
    let run = &written.get(1).unwrap().log;
    let records = journal.read(&Tenant::from(TENANT), run, 0, 10).await.unwrap();
    let content = records.first().unwrap().content.bytes().unwrap();
    format!("reply {request} {run} {}", std::str::from_utf8(content).unwrap())
}

async fn committed(journal: &Journal, batch: Batch) -> Receipt {
    match journal.commit(batch).await {
        Ok(receipt) => receipt,
        Err(error @ StoreError::Conflict { .. }) => {
            panic!("unexpected conflict without an expected sequence: {error}")
        }
        Err(error) => panic!("{error}"),
    }
}
