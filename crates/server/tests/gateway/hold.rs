//! Tests that the gateway sends the last frame of a reply only after the reply is stored, and
//! forwards earlier frames immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::house::{
    ANSWER, RawGateway, RawGatewayOptions, RawProvider, STREAM, STREAM_HEAD, http_response,
    question, read_response, store,
};
use throughline_core::{
    Batch, Fence, Lease, LogHead, LogId, PendingEntry, Receipt, Record, StaleRun, Store,
    StoreError, StoreFuture, Tenant, VaultKey, VaultLookup, VaultTurn,
};
use throughline_server::{Limits, usage_log};
use throughline_store::Journal;
use throughline_testkit::Folder;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// A store that commits only with a permit, and that can be made to fail.
pub(crate) struct GatedStore {
    pub(crate) journal: Journal,
    /// One permit per batch that may be committed.
    pub(crate) let_go: Arc<Semaphore>,
    pub(crate) outage: Arc<Outage>,
}

/// Whether reads and writes of the store fail.
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

impl Store for GatedStore {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt> {
        Box::pin(async move {
            self.outage.write()?;
            // Usage records are not replies and need no permit.
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
    ) -> StoreFuture<'a, Vec<Record>> {
        Box::pin(async move {
            self.outage.read()?;
            self.journal.read(tenant, log, after, limit).await
        })
    }

    fn seq_before_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64> {
        self.journal.seq_before_event(tenant, log, event)
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()> {
        self.journal.wait(tenant, log, after)
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>> {
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
    ) -> StoreFuture<'a, Option<Record>> {
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
    ) -> StoreFuture<'a, Lease> {
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
    ) -> StoreFuture<'a, Lease> {
        self.journal.renew(tenant, log, fence, time)
    }

    fn release<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
    ) -> StoreFuture<'a, ()> {
        self.journal.release(tenant, log, fence)
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        keys: &'a [VaultKey],
    ) -> StoreFuture<'a, VaultLookup> {
        Box::pin(async move {
            self.outage.read()?;
            self.journal.find(tenant, keys).await
        })
    }

    fn find_newest<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a VaultKey,
        limit: u32,
    ) -> StoreFuture<'a, Vec<VaultTurn>> {
        Box::pin(async move {
            self.outage.read()?;
            self.journal.find_newest(tenant, key, limit).await
        })
    }

    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> StoreFuture<'a, ()> {
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
    ) -> StoreFuture<'a, Vec<LogHead>> {
        Store::runs_of(&self.journal, tenant, thread, before, limit)
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>> {
        self.journal.pending(tenant, log)
    }

    fn stale_runs(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        self.journal.stale_runs(idle, after, limit)
    }
}

/// Reads from the stream until this text arrives, and returns everything read as text.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut bytes = Vec::new();
    loop {
        let read = String::from_utf8_lossy(&bytes).into_owned();
        if read.contains(text) {
            return read;
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "it ended early: {read}");
    }
}

/// A provider may send its whole reply in one chunk. Every frame except the last is still forwarded
/// immediately.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_frame_waits_for_the_capture() {
    let folder = Folder::new("hold");
    let journal = store(&folder).await;
    let provider = RawProvider::with_reply([STREAM_HEAD, STREAM].concat()).await;
    // Covers the same wire, where bytes are forwarded unchanged, and another dialect.
    let chat = r#"{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"Hi"}],"stream":true}"#;
    for (path, body, before, last) in [
        ("/v1/messages", question("claude-sonnet-4-5", true), "message_delta", "message_stop"),
        ("/v1/chat/completions", chat.to_owned(), "Hello there", "[DONE]"),
    ] {
        let let_go = Arc::new(Semaphore::new(0));
        let outage = Arc::default();
        let gated = GatedStore { journal: journal.clone(), let_go: Arc::clone(&let_go), outage };
        let limits = Limits { capture: Duration::from_hours(1), ..Limits::default() };
        let gateway = RawGateway::open_on(
            &provider,
            Arc::new(gated),
            RawGatewayOptions { limits, ..RawGatewayOptions::default() },
        );
        let mut stream = gateway.connect(&gateway.request(path, "", &body)).await;
        let received = read_until(&mut stream, before).await;
        assert!(
            !received.contains(last),
            "{path}: the end was sent before the reply was stored: {received}"
        );
        let_go.add_permits(1);
        read_until(&mut stream, last).await;
        gateway.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_behind_sends_replies_before_storing_and_lookups_wait() {
    let folder = Folder::new("relaxed");
    let journal = store(&folder).await;
    let provider =
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await;
    let let_go = Arc::new(Semaphore::new(0));
    let outage = Arc::default();
    let gated = GatedStore { journal: journal.clone(), let_go: Arc::clone(&let_go), outage };
    let limits = Limits { capture: Duration::from_hours(1), ..Limits::default() };
    let options = RawGatewayOptions { limits, relaxed: true, ..RawGatewayOptions::default() };
    let mut gateway = RawGateway::open_on(&provider, Arc::new(gated), options);

    // The response arrives before anything is stored.
    let first = gateway.send_question("claude-sonnet-4-5", false).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let request = gateway.request(&format!("/v1/throughline/calls/{}", first.call), "", "");
    let mut stream = gateway.connect(&request).await;
    let early = tokio::time::timeout(Duration::from_millis(100), read_response(&mut stream)).await;
    assert!(early.is_err(), "a pending turn was reported missing: {early:?}");
    let_go.add_permits(1);
    let response = read_response(&mut stream).await;
    assert_eq!(response.status, 200, "{}", response.body);

    // A shutdown waits for pending writes.
    let last = gateway.send_question("claude-sonnet-4-5", false).await;
    gateway.stop();
    let_go.add_permits(1);
    gateway.stopped().await;
    let key = VaultKey::Claim(last.call.into());
    let sight = Store::find(&journal, &Tenant::from("default"), &[key]).await.unwrap();
    assert!(sight.found.first().is_some_and(Option::is_some), "the last answer was lost");
}
