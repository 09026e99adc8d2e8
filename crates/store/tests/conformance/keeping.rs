//! Tests of API keys, tenant isolation, relaxed writes and the write queue, and of opening and
//! closing a store.

use std::time::Duration;

use throughline_core::{
    Append, BudgetPeriod, LogOpening, NewRecord, NewVaultTurn, PendingRequest, Store, StoreError,
    Tenant, VaultKey,
};
use throughline_store::{
    ApiKey, Durability, Journal, KeyLimits, NewApiKey, Options, Page, Retention, about_item, open,
};
use tokio::task::JoinSet;

use crate::harness::*;

pub(crate) async fn api_keys_are_stored_as_hashes(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    assert!(!journal.has_api_keys().await.unwrap());
    let limits = KeyLimits {
        models: vec!["claude-*".into(), "a \"quoted\" ü".into()],
        budget_micro_usd: Some(u64::MAX),
        budget_tokens: Some(0),
        requests_per_minute: Some(60),
        ..KeyLimits::default()
    };
    let (one, two) = (
        journal.create_api_key(&us(), "laptop", &limits).await.unwrap(),
        journal.create_api_key(&other_tenant(), "server", &KeyLimits::default()).await.unwrap(),
    );
    assert!(one.secret.starts_with("tl_") && one.secret.len() == 51, "{}", one.secret);
    assert!(!format!("{one:?}").contains(&one.secret));
    let known = journal.api_key(&one.secret).await.unwrap().unwrap();
    let expected = ApiKey {
        tenant: us(),
        id: one.id.clone(),
        label: "laptop".into(),
        limits,
        created: known.created,
        revoked: None,
    };
    assert_eq!(known, expected);
    thread(&journal, "later", &["a"]).await;
    let later = journal.log(&us(), &log("later")).await.unwrap().unwrap().created;
    assert!(known.created <= later && later.duration_since(known.created).as_secs() < 600);
    assert_eq!(journal.api_keys(&us()).await.unwrap(), std::slice::from_ref(&expected));
    assert_eq!(journal.api_key("tl_0").await.unwrap(), None);
    let other = journal.api_key(&two.secret).await.unwrap().unwrap();
    assert_eq!((other.tenant, other.limits), (other_tenant(), KeyLimits::default()));
    // A tenant cannot revoke another tenant's key.
    assert!(!journal.revoke_api_key(&other_tenant(), &one.id).await.unwrap());
    assert!(journal.revoke_api_key(&us(), &one.id).await.unwrap());
    assert!(!journal.revoke_api_key(&us(), &one.id).await.unwrap());
    assert_eq!(journal.api_key(&one.secret).await.unwrap(), None);
    let [revoked] = &journal.api_keys(&us()).await.unwrap()[..] else { panic!("one key") };
    assert!(revoked.revoked.is_some());
    // Revoking all keys does not make the store accessible without a key.
    assert!(journal.revoke_api_key(&other_tenant(), &two.id).await.unwrap());
    assert!(journal.has_api_keys().await.unwrap());
    assert_eq!(revoked, &ApiKey { revoked: revoked.revoked, ..expected });
    // Keys survive a restart, and no file contains their secrets.
    let three = journal.create_api_key(&us(), "again", &KeyLimits::default()).await.unwrap();
    journal.close().await.unwrap();
    if let Some(path) = harness.url().strip_prefix("sqlite://") {
        let file = std::fs::read(path).unwrap();
        let secret = three.secret.as_bytes();
        assert!(!file.windows(secret.len()).any(|window| window == secret));
    }
    let journal = harness.open().await;
    assert_eq!(journal.api_key(&three.secret).await.unwrap().unwrap().id, three.id);
}

pub(crate) async fn limits_of_api_keys_change(on: Database) {
    let harness = Harness::fresh(on);
    let (journal, node) = (harness.open().await, harness.open().await);
    let created = KeyLimits { budget_tokens: Some(5), ..KeyLimits::default() };
    let one = journal.create_api_key(&us(), "laptop", &created).await.unwrap();
    let two = journal.create_api_key(&us(), "server", &created).await.unwrap();
    let limits_of = async |journal: &Journal, key: &NewApiKey| {
        journal.api_key(&key.secret).await.unwrap().unwrap().limits
    };
    assert_eq!(limits_of(&node, &one).await, created);
    let raised = KeyLimits {
        budget_tokens: Some(9),
        budget_period: Some(BudgetPeriod::Month),
        ..KeyLimits::default()
    };
    // A tenant cannot change another tenant's key.
    let change = journal.change_api_key_limits(&other_tenant(), &one.id, &raised).await;
    assert!(!change.unwrap());
    assert!(journal.change_api_key_limits(&us(), &one.id, &created).await.unwrap());
    assert!(journal.change_api_key_limits(&us(), &one.id, &raised).await.unwrap());
    assert_eq!(limits_of(&journal, &one).await, raised);
    assert_eq!(limits_of(&journal, &two).await, created);
    // Another process uses the new limits shortly afterwards.
    while limits_of(&node, &one).await != raised {
        tokio::task::yield_now().await;
    }
    // Keys that were created in the same millisecond are listed in any order.
    let listed = node.api_keys(&us()).await.unwrap();
    let listed = |id: &str| listed.iter().find(|key| *key.id == *id).map(|key| key.limits.clone());
    assert_eq!([listed(&one.id), listed(&two.id)], [Some(raised.clone()), Some(created)]);
    journal.revoke_api_key(&us(), &one.id).await.unwrap();
    assert!(!journal.change_api_key_limits(&us(), &one.id, &raised).await.unwrap());
    assert!(journal.verify(None, &|_| {}).await.unwrap().broken.is_none());
}

pub(crate) async fn concurrent_changes_of_limits_are_all_kept(on: Database) {
    const CHANGES: u64 = 20;
    let harness = Harness::fresh(on);
    let (journal, node) = (harness.open().await, harness.open().await);
    let created = KeyLimits { budget_tokens: Some(0), ..KeyLimits::default() };
    let key = journal.create_api_key(&us(), "laptop", &created).await.unwrap();
    // Each change adds one to the limit that it finds, so a lost change lowers the result.
    let raise = async |journal: &Journal| {
        for _ in 0..CHANGES {
            let change = |limits: KeyLimits| {
                let tokens = limits.budget_tokens.map(|tokens| tokens + 1);
                Ok(KeyLimits { budget_tokens: tokens, ..limits })
            };
            let raised = journal.update_api_key_limits(&us(), &key.id, change).await;
            assert!(raised.unwrap().is_some());
        }
    };
    tokio::join!(raise(&journal), raise(&node));
    let listed = harness.open().await.api_keys(&us()).await.unwrap();
    assert_eq!(listed[0].limits.budget_tokens, Some(2 * CHANGES));
    assert!(journal.verify(None, &|_| {}).await.unwrap().broken.is_none());
}

pub(crate) async fn tenants_with_logs_or_keys_are_listed_and_counted(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let leasing = Tenant("leasing".into());
    journal.lease(&leasing, &log("thread"), "holder", Duration::from_mins(10)).await.unwrap();
    assert_eq!(journal.tenants().await.unwrap(), []);
    assert_eq!(journal.stats().await.unwrap().tenants, 0);
    thread(&journal, "thread", &["a"]).await;
    journal.create_api_key(&other_tenant(), "server", &KeyLimits::default()).await.unwrap();
    assert_eq!(journal.tenants().await.unwrap(), [other_tenant(), us()]);
    assert_eq!(journal.stats().await.unwrap().tenants, 2);
}

pub(crate) async fn tenants_see_nothing_of_each_other(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let claim = VaultKey::Claim("claim".into());
    let record = item("ours").about(about_item(&log("thread"), "one"));
    let append = Append::new("thread").opening(LogOpening::thread()).record(record);
    let checkpoint = NewRecord::new("checkpoint", "ours");
    let mut own_batch = batch(append.record(checkpoint))
        .append(Append::new("run").opening(LogOpening::run("thread")))
        .with_idempotency_key("name");
    let question = PendingRequest {
        id: "q".into(),
        kind: "approval".into(),
        log: log("thread"),
        expires_in: None,
    };
    own_batch.asks.push(question);
    let (keys, prefix) = (vec![claim.clone()], None);
    own_batch.vault.push(NewVaultTurn {
        id: "t".into(),
        parent: None,
        keys,
        log: log("thread"),
        prefix,
    });
    journal.commit(own_batch).await.unwrap();
    let time = Duration::from_mins(10);
    let lease = journal.lease(&us(), &log("thread"), "we", time).await.unwrap();
    let before = texts(&journal, "thread").await;
    // Test a tenant without data, and a tenant that has a log of the same name.
    for tenant in [Tenant::from("stranger"), other_tenant()] {
        let name = log("thread");
        if tenant == other_tenant() {
            let append = Append::new("thread").opening(LogOpening::thread());
            let mut other = batch(append.record(item("theirs"))).with_idempotency_key("name");
            other.tenant = other_tenant();
            assert!(!journal.commit(other).await.unwrap().repeated);
            let found = journal.read(&tenant, &name, 0, 10).await.unwrap();
            assert_eq!(summaries(&found), expected(&[(1, "theirs")]));
            assert_eq!(journal.seq_before_event(&tenant, &name, 0).await.unwrap(), 1);
            let other_lease = journal.lease(&tenant, &name, "they", time).await.unwrap();
            journal.release(&tenant, &name, other_lease.fence).await.unwrap();
        } else {
            let outcome = journal.read(&tenant, &name, 0, 10).await;
            assert_eq!(error_message(outcome), "there is no log thread");
            assert_eq!(journal.log(&tenant, &name).await.unwrap(), None);
            assert_eq!(journal.seq_before_event(&tenant, &name, 0).await.unwrap(), 0);
            assert_eq!(journal.threads(&tenant, Page::default()).await.unwrap(), []);
            let outcome = journal.fork(&tenant, &name, None, &log("fork")).await;
            assert_eq!(error_message(outcome), "there is no thread thread");
            let outcome = journal.forget(&tenant, &name, None).await;
            assert_eq!(error_message(outcome), "there is no thread thread");
            let mut out = Vec::new();
            let some = [name.clone()];
            let outcome = journal.export(&tenant, &some, None, &mut out, &|_| {}).await;
            assert_eq!(error_message(outcome), "there is no thread thread");
        }
        assert_eq!(journal.checkpoint(&tenant, &name, u64::MAX).await.unwrap(), None);
        assert_eq!(journal.runs(&tenant, None, Page::default()).await.unwrap(), []);
        assert_eq!(journal.pending(&tenant, None).await.unwrap(), []);
        assert_eq!(journal.pending(&tenant, Some(&name)).await.unwrap(), []);
        assert_eq!(
            journal.find(&tenant, std::slice::from_ref(&claim)).await.unwrap().found,
            [None]
        );
        assert_eq!(journal.api_keys(&tenant).await.unwrap(), []);
        let renewed = journal.renew(&tenant, &name, lease.fence, time).await;
        assert!(matches!(renewed, Err(StoreError::Fenced { .. })), "{renewed:?}");
        journal.release(&tenant, &name, lease.fence).await.unwrap();
        let mut take = batch(Append::new("thread"));
        (take.tenant, take.takes) = (tenant.clone(), vec!["q".into()]);
        assert!(journal.commit(take).await.is_err());
        let nothing = journal.forget(&tenant, &name, Some("one")).await;
        assert!(matches!(nothing, Err(StoreError::NotFound { .. })), "{nothing:?}");
        let now = jiff::Timestamp::MAX;
        let retention = Retention { older_than: None, at_most_bytes: Some(1_000_000) };
        journal.prune(&tenant, (retention, &|_| false), now, &|_| {}).await.unwrap();
        let manifest = journal.manifest(&tenant).await.unwrap().statement().unwrap();
        assert!(manifest.heads.iter().all(|head| head.tenant == tenant));
    }
    // The log of the tenant `us` is unchanged and still leased.
    assert_eq!(texts(&journal, "thread").await, before);
    assert_eq!(journal.pending(&us(), None).await.unwrap().len(), 1);
    journal.renew(&us(), &log("thread"), lease.fence, time).await.unwrap();
    assert_eq!(journal.tenants().await.unwrap(), [other_tenant(), us()]);
}

pub(crate) async fn relaxed_writes_are_stored(on: Database) {
    let harness = Harness::fresh(on);
    let options = Options { durability: Durability::Relaxed, ..harness.options() };
    let journal = open(&harness.url(), &options).await.unwrap();
    thread(&journal, "thread", &[]).await;
    for number in 1..=200 {
        add(&journal, "thread", &[&format!("item {number}")]).await;
    }
    let expected: Vec<_> = (1..=200).map(|number| (number, format!("item {number}"))).collect();
    assert_eq!(texts(&journal, "thread").await, expected);
    proven(&journal).await;
    journal.close().await.unwrap();
    let journal = harness.open().await;
    assert_eq!(texts(&journal, "thread").await, expected);
    proven(&journal).await;
}

pub(crate) async fn short_queue_preserves_write_order(on: Database) {
    let harness = Harness::fresh(on);
    let options = Options { queue: 1, ..harness.options() };
    let journal = open(&harness.url(), &options).await.unwrap();
    thread(&journal, "thread", &[]).await;
    let mut writers = JoinSet::new();
    for writer in 0..20 {
        let journal = journal.clone();
        writers.spawn(async move {
            let mut seqs = Vec::new();
            for number in 0..10 {
                let text = format!("{writer} {number}");
                seqs.push(add(&journal, "thread", &[&text]).await.written[0].last);
            }
            seqs
        });
    }
    let mut all = Vec::new();
    for seqs in soon(writers.join_all()).await {
        assert!(seqs.is_sorted());
        all.extend(seqs);
    }
    all.sort_unstable();
    assert_eq!(all, (1..=200).collect::<Vec<_>>());
}

pub(crate) async fn closed_store_reports_that_it_is_closed(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    let lease = journal.lease(&us(), &log("other"), "we", Duration::from_secs(9)).await.unwrap();
    // Batches that were queued before closing are still written.
    let writing: Vec<_> = (0..10)
        .map(|_| {
            let journal = journal.clone();
            tokio::spawn(async move { journal.commit(batch(items("thread", &["b"]))).await })
        })
        .collect();
    journal.close().await.unwrap();
    let mut acknowledged = 1;
    for writing in writing {
        match soon(writing).await.unwrap() {
            Ok(_) => acknowledged += 1,
            Err(error) => assert!(matches!(error, StoreError::Closed), "{error}"),
        }
    }
    let (thread, tenant) = (log("thread"), us());
    let time = Duration::from_secs(9);
    let problems = [
        journal.commit(batch(items("thread", &["c"]))).await.map(|_| ()),
        journal.read(&tenant, &thread, 0, 10).await.map(|_| ()),
        journal.seq_before_event(&tenant, &thread, 0).await.map(|_| ()),
        journal.wait(&tenant, &thread, 0).await,
        journal.log(&tenant, &thread).await.map(|_| ()),
        journal.checkpoint(&tenant, &thread, 9).await.map(|_| ()),
        journal.lease(&tenant, &thread, "we", time).await.map(|_| ()),
        journal.renew(&tenant, &log("other"), lease.fence, time).await.map(|_| ()),
        journal.release(&tenant, &log("other"), lease.fence).await,
        journal.find(&tenant, &[VaultKey::Claim("a".into())]).await.map(|_| ()),
        journal.pending(&tenant, None).await.map(|_| ()),
        journal.threads(&tenant, Page::default()).await.map(|_| ()),
        journal.forget(&tenant, &thread, None).await.map(|_| ()),
        journal.export(&tenant, &[], None, &mut Vec::new(), &|_| {}).await.map(|_| ()),
        journal.verify(None, &|_| {}).await.map(|_| ()),
        journal.backup(&harness.folder().file("backup.db"), &|_| {}).await,
        journal.rotate(&master_key('b'), &|_| {}).await.map(|_| ()),
        journal.create_api_key(&tenant, "label", &KeyLimits::default()).await.map(|_| ()),
    ];
    for (number, problem) in problems.into_iter().enumerate() {
        assert_eq!(error_message(problem), "the store was closed", "{number}");
    }
    assert!(!harness.folder().file("backup.db").exists());
    // Closing again is not an error.
    journal.close().await.unwrap();
    let journal = harness.open().await;
    assert_eq!(read(&journal, "thread").await.len(), acknowledged);
}

pub(crate) async fn nodes_can_create_the_store_concurrently(on: Database) {
    for _ in 0..3 {
        let harness = Harness::fresh(on);
        let mut nodes = JoinSet::new();
        for node in 0..6 {
            let (url, options) = (harness.url(), harness.options());
            nodes.spawn(async move {
                let journal = open(&url, &options).await.unwrap();
                thread(&journal, &format!("thread {node}"), &["a"]).await;
                journal.public_key()
            });
        }
        let mut keys = soon(nodes.join_all()).await;
        keys.dedup();
        assert_eq!(keys.len(), 1, "all nodes opened the same store");
        let journal = harness.open().await;
        let proof = proven(&journal).await;
        assert_eq!((proof.records, proof.segments), (6, 6));
    }
}
