//! The end of an answer is told when the answer is kept, and only that waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::house::{
    ANSWER, House, Plan, Provider, STREAM, STREAM_HEAD, heard, question, store, whole,
};
use throughline_core::{
    Batch, Boxed, Fence, Lease, LogHead, LogId, Pending, Receipt, Record, Sight, Store, StoreError,
    Tenant, Unattended, VaultKey,
};
use throughline_server::{Limits, usage_log};
use throughline_store::Journal;
use throughline_testkit::Folder;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// A store that keeps nothing before it is let, and that can be taken away.
pub(crate) struct Held {
    pub(crate) journal: Journal,
    /// One for each batch that may be kept.
    pub(crate) let_go: Arc<Semaphore>,
    pub(crate) outage: Arc<Outage>,
}

/// Which operations of a store fail.
#[derive(Default)]
pub(crate) struct Outage {
    pub(crate) reads: AtomicBool,
    pub(crate) writes: AtomicBool,
}

impl Outage {
    pub(crate) fn set(&self, reads: bool, writes: bool) {
        self.reads.store(reads, Ordering::SeqCst);
        self.writes.store(writes, Ordering::SeqCst);
    }

    pub(crate) fn read(&self) -> Result<(), StoreError> {
        if self.reads.load(Ordering::SeqCst) {
            return Err(StoreError::Unreachable("db.example".into(), "connection refused".into()));
        }
        Ok(())
    }

    fn write(&self) -> Result<(), StoreError> {
        if self.writes.load(Ordering::SeqCst) { Err(StoreError::Full) } else { Ok(()) }
    }
}

impl Store for Held {
    fn commit(&self, batch: Batch) -> Boxed<'_, Receipt> {
        Box::pin(async move {
            self.outage.write()?;
            // The account of what was used is no answer.
            if batch.tenant != usage_log().0 {
                self.let_go.acquire().await.unwrap().forget();
            }
            self.journal.commit(batch).await
        })
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> Boxed<'a, Vec<Record>> {
        Box::pin(async move {
            self.outage.read()?;
            self.journal.read(tenant, log, after, limit).await
        })
    }

    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> Boxed<'a, u64> {
        self.journal.place_of_event(tenant, log, event)
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> Boxed<'a, ()> {
        self.journal.wait(tenant, log, after)
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> Boxed<'a, Option<LogHead>> {
        Box::pin(async move {
            self.outage.read()?;
            self.journal.log(tenant, log).await
        })
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> Boxed<'a, Option<Record>> {
        Box::pin(async move {
            self.outage.read()?;
            self.journal.checkpoint(tenant, log, at_most).await
        })
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        Box::pin(async move {
            self.outage.write()?;
            self.journal.lease(tenant, log, owner, time).await
        })
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        self.journal.renew(tenant, log, fence, time)
    }

    fn release<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, fence: Fence) -> Boxed<'a, ()> {
        self.journal.release(tenant, log, fence)
    }

    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [VaultKey]) -> Boxed<'a, Sight> {
        Box::pin(async move {
            self.outage.read()?;
            self.journal.find(tenant, keys).await
        })
    }

    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> Boxed<'a, ()> {
        self.journal.forget_run(tenant, run)
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &LogId,
        fence: Option<Fence>,
    ) -> Box<dyn throughline_core::EventWriter> {
        self.journal.events(tenant, run, fence)
    }

    fn runs_of<'a>(
        &'a self,
        tenant: &'a Tenant,
        thread: &'a LogId,
        before: Option<&'a LogId>,
        limit: u32,
    ) -> Boxed<'a, Vec<LogHead>> {
        Store::runs_of(&self.journal, tenant, thread, before, limit)
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> Boxed<'a, Vec<Pending>> {
        self.journal.pending(tenant, log)
    }

    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> Boxed<'_, Vec<Unattended>> {
        self.journal.unattended(idle, after, limit)
    }
}

/// Reads until that was said. Gives all that was.
async fn heard_until(stream: &mut TcpStream, text: &str) -> String {
    let mut heard = Vec::new();
    loop {
        let said = String::from_utf8_lossy(&heard).into_owned();
        if said.contains(text) {
            return said;
        }
        assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0, "it ended early: {said}");
    }
}

/// A provider may say all of its answer in one piece: every frame but the last goes on at once.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_frame_waits_until_the_answer_is_kept() {
    let folder = Folder::new("hold");
    let journal = store(&folder).await;
    let provider = Provider::saying([STREAM_HEAD, STREAM].concat()).await;
    // The same wire, where bytes pass, and another dialect.
    let chat = r#"{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"Hi"}],"stream":true}"#;
    for (path, body, before, last) in [
        ("/v1/messages", question("claude-sonnet-4-5", true), "message_delta", "message_stop"),
        ("/v1/chat/completions", chat.to_owned(), "Hello there", "[DONE]"),
    ] {
        let let_go = Arc::new(Semaphore::new(0));
        let outage = Arc::default();
        let held = Held { journal: journal.clone(), let_go: Arc::clone(&let_go), outage };
        let limits = Limits { capture: Duration::from_hours(1), ..Limits::default() };
        let house = House::open_on(&provider, Arc::new(held), Plan { limits, ..Plan::default() });
        let mut stream = house.begun(&house.request(path, "", &body)).await;
        let begun = heard_until(&mut stream, before).await;
        assert!(!begun.contains(last), "{path}: the end was told before it was kept: {begun}");
        let_go.add_permits(1);
        heard_until(&mut stream, last).await;
        house.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relaxed_answer_is_out_before_it_is_kept_and_whoever_looks_for_it_waits() {
    let folder = Folder::new("relaxed");
    let journal = store(&folder).await;
    let provider = Provider::saying(whole("200 OK", "application/json", ANSWER)).await;
    let let_go = Arc::new(Semaphore::new(0));
    let outage = Arc::default();
    let held = Held { journal: journal.clone(), let_go: Arc::clone(&let_go), outage };
    let limits = Limits { capture: Duration::from_hours(1), ..Limits::default() };
    let plan = Plan { limits, relaxed: true, ..Plan::default() };
    let mut house = House::open_on(&provider, Arc::new(held), plan);

    // Nothing is kept yet, and the answer is out.
    let first = house.ask("claude-sonnet-4-5", false).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let asked = house.request(&format!("/v1/throughline/calls/{}", first.call), "", "");
    let mut stream = house.begun(&asked).await;
    let early = tokio::time::timeout(Duration::from_millis(100), heard(&mut stream)).await;
    assert!(early.is_err(), "what is being kept was said not to be there: {early:?}");
    let_go.add_permits(1);
    let told = heard(&mut stream).await;
    assert_eq!(told.status, 200, "{}", told.body);

    // Whoever stops waits for what is being kept.
    let last = house.ask("claude-sonnet-4-5", false).await;
    house.stop();
    let_go.add_permits(1);
    house.stopped().await;
    let key = VaultKey::Claim(last.call.into());
    let sight = Store::find(&journal, &Tenant::from("default"), &[key]).await.unwrap();
    assert!(sight.found.first().is_some_and(Option::is_some), "the last answer was lost");
}
