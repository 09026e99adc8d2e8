//! Tests workers that share runs through leases. The worker processes are paused for longer than a
//! lease and then resumed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use throughline_core::{Append, Batch, LogId, LogOpening, NewRecord, Store, StoreError, Tenant};
use throughline_store::{Journal, Page};
use throughline_testkit::{Child, TestRng, cases, figure};

use crate::{opened, runtime};

const PROCESSES: usize = 5;
const STEPS: u64 = 40;
/// Duration of a step. It is long enough that some pauses occur within a step and others between
/// steps.
const WORK: Duration = Duration::from_millis(5);
const LEASE: Duration = Duration::from_millis(150);
const TENANT: &str = "crowd";

/// Asserts that no fence is used by two writers, and that no record with an older fence follows a
/// record with a newer fence.
pub(crate) fn hold(url: &str) {
    // The full run uses 50 workers and 200 runs.
    let is_full_run = cases(500) >= 10_000;
    let (workers, runs) = if is_full_run { (50, 200) } else { (20, 40) };
    let runtime = runtime();
    runtime.block_on(async {
        let journal = opened(url).await;
        let thread = Append::new("thread").opening(LogOpening::thread());
        journal.commit(Batch::new(TENANT).append(thread)).await.unwrap();
        for run in 0..runs {
            let run = Append::new(format!("run-{run}")).opening(LogOpening::run("thread"));
            journal.commit(Batch::new(TENANT).append(run)).await.unwrap();
        }
        journal.close().await.unwrap();
    });
    let task = |process| format!("leases\t{url}\t{process}\t{}", workers / PROCESSES);
    let mut children: Vec<Child> =
        (0..PROCESSES).map(|process| Child::start("child", &task(process))).collect();
    let stops = disturb(&mut children);
    let mut refused = 0;
    for child in &mut children {
        while let Some(line) = child.line() {
            refused +=
                line.strip_prefix("fenced ").map_or(0, |count| count.parse::<u32>().unwrap());
        }
        assert!(child.wait_for_success(), "a worker failed");
    }
    let (records, fences) = runtime.block_on(inspect(url, runs));
    assert_eq!(records, u64::try_from(runs).unwrap() * STEPS);
    assert!(refused > 0, "no owner was paused for longer than its lease: the test proves nothing");
    let kind = url.split(':').next().unwrap();
    let summary = format!(
        "{workers} workers, {runs} runs, {records} records under {fences} fences, {stops} pauses, {refused} late writes rejected"
    );
    figure(&format!("leases, {kind}"), summary);
}

/// Pauses one process after another for longer than a lease, until all have finished. Returns the
/// number of pauses.
fn disturb(children: &mut [Child]) -> u32 {
    let mut dice = TestRng::new(11);
    let mut stops = 0;
    while children.iter_mut().any(Child::runs) {
        let child = dice.below(children.len());
        let child = &mut children[child];
        if !child.runs() {
            continue;
        }
        child.pause();
        // Sleep until the paused owner's lease has expired. There is no condition to wait for.
        std::thread::sleep(LEASE + Duration::from_millis(60));
        child.resume();
        stops += 1;
    }
    stops
}

/// Checks all runs. Returns the number of records and the number of fences.
async fn inspect(url: &str, runs: usize) -> (u64, usize) {
    let journal = opened(url).await;
    let (mut count, mut fences) = (0, 0);
    for run in 0..runs {
        let log = LogId::from(format!("run-{run}"));
        let records = journal.read(&Tenant::from(TENANT), &log, 0, 1000).await.unwrap();
        let mut owners: BTreeMap<u64, String> = BTreeMap::new();
        let mut newest = 0;
        for (step, record) in (1..).zip(&records) {
            let content = std::str::from_utf8(record.content.bytes().unwrap()).unwrap();
            let mut fields = content.split(' ');
            let mut number = || fields.next().unwrap().parse::<u64>().unwrap();
            let (written_step, fence) = (number(), number());
            let owner = fields.next().unwrap().to_owned();
            assert_eq!(written_step, step, "{log}: each step is written once");
            assert!(fence >= newest, "{log}: fence {fence} wrote after {newest}");
            newest = fence;
            let first = owners.entry(fence).or_insert_with(|| owner.clone());
            assert_eq!(*first, owner, "{log}: two writers under fence {fence}");
        }
        count += u64::try_from(records.len()).unwrap();
        fences += owners.len();
    }
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    journal.close().await.unwrap();
    (count, fences)
}

/// Runs the workers of one process. Each worker takes any run that is neither finished nor leased.
pub(crate) fn work(task: &str) {
    let mut fields = task.split('\t');
    let url = fields.next().unwrap().to_owned();
    let mut number = || fields.next().unwrap().parse::<usize>().unwrap();
    let (process, workers) = (number(), number());
    runtime().block_on(async move {
        let journal = opened(&url).await;
        let fenced = Arc::new(AtomicU32::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..workers {
            let owner = format!("worker-{process}-{worker}");
            tasks.spawn(worker_loop(journal.clone(), owner, fenced.clone()));
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        println!("fenced {}", fenced.load(Ordering::Relaxed));
        journal.close().await.unwrap();
    });
}

async fn worker_loop(journal: Journal, owner: String, fenced: Arc<AtomicU32>) {
    let tenant = Tenant::from(TENANT);
    let mut time = LEASE;
    loop {
        let all = Page { limit: 1000, ..Page::default() };
        let runs = journal.runs(&tenant, None, all).await.unwrap();
        let open: Vec<LogId> =
            runs.into_iter().filter(|run| run.last < STEPS).map(|run| run.log).collect();
        if open.is_empty() {
            return;
        }
        let mut took = false;
        for run in open {
            match journal.lease(&tenant, &run, &owner, time).await {
                Ok(lease) => {
                    took = true;
                    match steps(&journal, &tenant, &run, &owner, lease.fence, time).await {
                        Ok(()) => journal.release(&tenant, &run, lease.fence).await.unwrap(),
                        Err(StoreError::Fenced { .. }) => {
                            fenced.fetch_add(1, Ordering::Relaxed);
                            // Use longer leases, because on a slow disk no step would ever finish
                            // in time.
                            time *= 2;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                Err(StoreError::Held { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if !took {
            // Other workers hold all leases, so wait for a write or an expiry.
            tokio::time::sleep(LEASE / 4).await;
        }
    }
}

async fn steps(
    journal: &Journal,
    tenant: &Tenant,
    run: &LogId,
    owner: &str,
    fence: throughline_core::Fence,
    time: Duration,
) -> Result<(), StoreError> {
    loop {
        let done = journal.log(tenant, run).await?.unwrap().last;
        if done >= STEPS {
            return Ok(());
        }
        tokio::time::sleep(WORK).await;
        if done % 4 == 3 {
            journal.renew(tenant, run, fence, time).await?;
        }
        let step = NewRecord::new("step", format!("{} {} {owner}", done + 1, fence.0));
        let append = Append::new(run.clone()).expect_last(done).with_fence(fence).record(step);
        journal.commit(Batch::new(tenant.clone()).append(append)).await?;
    }
}
