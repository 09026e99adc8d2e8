//! Writes the stores of schema version 1: see README.md. It compiles with commit 228ce8a only, so no test target names it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a tool")]
use std::time::Duration;
use throughline_core::{
    Append, Asked, Batch, LogOpening, NewRecord, Store, Tenant, VaultKey, VaultNode, kind, pack,
};
use throughline_store::{KeyLimits, MasterKey, Options, about_item, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn make() {
    let url = std::env::var("FIXTURE_URL").unwrap();
    let options = || Options {
        master_key: Some(MasterKey::parse(&"1".repeat(64)).unwrap()),
        ..Options::default()
    };
    let journal = open(&url, &options()).await.unwrap();
    for tenant in ["alpha", "beta"] {
        let name = Tenant::from(tenant);
        let item = |number: u32| {
            let id = format!("item {number}");
            let text = format!("{{\"id\":\"{id}\",\"text\":\"{tenant} wrote {number}\"}}");
            NewRecord::new(kind::ITEM, text).about(about_item(&"thread".into(), &id))
        };
        let batch = Batch::of(tenant)
            .append(
                Append::to("thread").opening(LogOpening::thread()).record(item(0)).record(item(1)),
            )
            .append(
                Append::to("run")
                    .opening(LogOpening::run("thread"))
                    .record(pack([b"event 1".as_slice(), b"event 2"]))
                    .status("waiting"),
            )
            .append(
                Append::to("doomed")
                    .opening(LogOpening::thread())
                    .record(NewRecord::new(kind::ITEM, "x")),
            )
            .once(format!("start {tenant}"));
        journal.commit(batch).await.unwrap();
        let mut batch = Batch::of(tenant)
            .append(Append::to("run").record(NewRecord::new(kind::CHECKPOINT, "state")));
        for (id, expires) in [("approval", None), ("question", Some(Duration::from_secs(3600)))] {
            batch.asks.push(Asked {
                id: id.into(),
                kind: "approval".into(),
                log: "run".into(),
                expires_in: expires,
            });
        }
        journal.commit(batch).await.unwrap();
        let mut batch = Batch::of(tenant).append(
            Append::to("run").record(NewRecord::new("note", "decided")).status("completed"),
        );
        batch.takes.push("approval".into());
        journal.commit(batch).await.unwrap();
        let mut batch = Batch::of(tenant).append(
            Append::to("turns")
                .opening(LogOpening::thread())
                .record(item(7))
                .record(NewRecord::new(kind::ITEM, vec![b'z'; 16_400])),
        );
        batch.vault.push(VaultNode {
            id: format!("turn-{tenant}").into(),
            parent: None,
            keys: vec![
                VaultKey::Id(format!("resp_{tenant}").into()),
                VaultKey::Claim("claim".into()),
                VaultKey::Chain([3; 32]),
            ],
            log: "turns".into(),
            prefix: Some([9; 32]),
        });
        journal.commit(batch).await.unwrap();
        journal.fork(&name, &"thread".into(), Some(1), &"fork".into()).await.unwrap();
        let mut rewind = Append::to("thread").record(item(2));
        rewind.rewind_to = Some(1);
        journal.commit(Batch::of(tenant).append(rewind)).await.unwrap();
        journal.forget(&name, &"doomed".into(), None).await.unwrap();
        drop(journal.lease(&name, &"run".into(), "node", Duration::from_millis(1)).await.unwrap());
        let kept = journal
            .create_api_key(
                &name,
                "kept",
                &KeyLimits { budget_tokens: Some(5), ..KeyLimits::default() },
            )
            .await
            .unwrap();
        let revoked =
            journal.create_api_key(&name, "revoked", &KeyLimits::default()).await.unwrap();
        assert!(journal.revoke_api_key(&name, &revoked.id).await.unwrap());
        println!("KEY {tenant} kept {} {}", kept.id, kept.secret);
        println!("KEY {tenant} revoked {} {}", revoked.id, revoked.secret);
    }
    let proof = journal.verify(None, &|_| {}).await.unwrap();
    println!("PROOF {proof:?}");
    journal.close().await.unwrap();
}
