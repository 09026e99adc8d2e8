//! Smoke.
use std::sync::Arc;
use throughline_core::*;
use throughline_store::*;
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smoke() {
    let dir = std::env::temp_dir().join(format!("tl-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let url = format!("sqlite://{}/a.db", dir.display());
    let j = Arc::new(open(&url, &Options::default()).await.unwrap());
    let t = Tenant::from("t");
    for i in 0..32 {
        j.commit(Batch::of("t").append(Append::to(format!("a{i}")).opening(LogOpening::thread())))
            .await
            .unwrap();
    }
    let start = std::time::Instant::now();
    for i in 0..1000u64 {
        j.commit(
            Batch::of("t").append(
                Append::to("a0").expecting(i).record(NewRecord::new("item", vec![7u8; 1024])),
            ),
        )
        .await
        .unwrap();
    }
    println!("single {:?}", start.elapsed());
    let start = std::time::Instant::now();
    let mut set = tokio::task::JoinSet::new();
    for i in 0..32 {
        let j = j.clone();
        set.spawn(async move {
            for _ in 0..500 {
                j.commit(Batch::of("t").append(
                    Append::to(format!("a{i}")).record(NewRecord::new("item", vec![7u8; 1024])),
                ))
                .await
                .unwrap();
            }
        });
    }
    while let Some(x) = set.join_next().await {
        x.unwrap();
    }
    println!("32x500 {:?}", start.elapsed());
    let r = j.read(&t, &LogId::from("a0"), 0, 5000).await.unwrap();
    assert_eq!(r.len(), 1500);
    assert_eq!(r[1499].seq, 1500);
    j.close().await.unwrap();
    let j = open(&url, &Options::default()).await.unwrap();
    assert_eq!(j.read(&t, &LogId::from("a3"), 490, 5000).await.unwrap().len(), 10);
    println!(
        "{:?}",
        std::fs::read_dir(&dir)
            .unwrap()
            .map(|x| x.unwrap().metadata().unwrap().len())
            .collect::<Vec<_>>()
    );
    std::fs::remove_dir_all(&dir).unwrap();
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acts() {
    let dir = std::env::temp_dir().join(format!("tl2-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let url = format!("sqlite://{}/a.db", dir.display());
    let j = Arc::new(open(&url, &Options::default()).await.unwrap());
    let t = Tenant::from("t");
    j.commit(
        Batch::of("t")
            .append(
                Append::to("th")
                    .opening(LogOpening::thread())
                    .record(
                        NewRecord::new("item", &br#"{"id":"a","x":"secret words"}"#[..])
                            .about(about_item(&"th".into(), "a")),
                    )
                    .record(NewRecord::new("item", vec![9u8; 40000])),
            )
            .append(Append::to("run").opening(LogOpening::run("th")).status("running")),
    )
    .await
    .unwrap();
    let run = RunEvents::new((*j).clone(), t.clone(), "run".into(), None);
    for i in 0..1000u32 {
        run.push(format!("delta {i}").as_bytes(), None).await;
    }
    run.flush().await.unwrap();
    let mut follow = Follow::events(&*j, t.clone(), "run".into(), 500).await.unwrap();
    let recs = follow.next().await.unwrap();
    let ev: Vec<_> =
        recs.iter().flat_map(|r| unpack(r).unwrap()).filter(|(n, _)| *n > 500).collect();
    assert_eq!(ev.first().unwrap(), &(501, bytes::Bytes::from_static(b"delta 500")));
    assert_eq!(ev.last().unwrap().0, 1000);
    j.fork(&t, &"th".into(), Some(1), &"fork".into()).await.unwrap();
    j.commit(Batch::of("t").append(Append::to("fork").record(NewRecord::new("item", &b"{}"[..]))))
        .await
        .unwrap();
    assert_eq!(j.read(&t, &"fork".into(), 0, 10).await.unwrap().len(), 2);
    println!("{:?}", j.verify(None, &|_| {}).await.unwrap());
    let mut out = Vec::new();
    println!("{:?}", j.export(&t, &[], None, &mut out, &|_| {}).await.unwrap());
    println!(
        "{}",
        String::from_utf8_lossy(&out)
            .lines()
            .map(|l| l.chars().take(300).collect::<String>() + "\n")
            .collect::<String>()
    );
    println!("{:?}", verify_export(&mut &out[..]).unwrap());
    println!("{:?}", j.import(&Tenant::from("u"), || Ok(&out[..])).await.unwrap());
    j.backup(&dir.join("b.db"), &|_| {}).await.unwrap();
    println!("{:?}", j.forget(&t, &"th".into(), Some("a")).await.unwrap());
    println!("{:?}", j.forget(&Tenant::from("u"), &"th".into(), Some("a")).await.unwrap());
    println!("{:?}", j.read(&t, &"fork".into(), 0, 10).await.unwrap());
    println!("{:?}", j.verify(None, &|_| {}).await.unwrap());
    let key = MasterKey::parse(&"ab".repeat(32)).unwrap();
    println!("rotated {:?}", j.rotate(&key, &|_| {}).await.unwrap());
    println!("{:?}", j.verify(None, &|_| {}).await.unwrap());
    println!("{:?}", j.stats().await.unwrap());
    j.close().await.unwrap();
    println!("{:?}", open(&url, &Options::default()).await.err());
    println!(
        "{:?}",
        open(
            &url,
            &Options {
                master_key: Some(MasterKey::parse(&"cd".repeat(32)).unwrap()),
                ..Options::default()
            }
        )
        .await
        .err()
    );
    let j = open(&url, &Options { master_key: Some(key), ..Options::default() }).await.unwrap();
    println!("{:?}", j.verify(None, &|_| {}).await.unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
}
