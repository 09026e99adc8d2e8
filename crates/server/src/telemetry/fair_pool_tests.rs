//! Tests which callers get units, which wait, and which are refused.

use super::*;

const SOON: Duration = Duration::from_secs(5);
const NOW: Duration = Duration::ZERO;

fn tenant(name: &str) -> Tenant {
    Tenant::from(name)
}

fn pool(capacity: u64) -> Arc<FairPool> {
    FairPool::new(capacity, OverSharePolicy::Refuse)
}

#[tokio::test]
async fn tenant_cannot_take_the_last_eighth() {
    let (pool, busy, other) = (pool(16), tenant("busy"), tenant("other"));
    let mut held = Vec::new();
    while let Ok(share) = pool.acquire(&busy, true, 1, NOW).await {
        held.push(share);
    }
    assert_eq!(held.len(), 14);
    assert!(pool.acquire(&other, true, 2, NOW).await.is_ok());
    drop(held);
    // Without keys there is one tenant, which may take all units.
    assert_eq!(pool.acquire(&busy, false, 100, NOW).await.unwrap().amount(), 16);
    assert_eq!(pool.free(), 16);
}

#[tokio::test]
async fn tenant_below_its_share_is_served_first() {
    let (pool, busy, other) = (pool(4), tenant("busy"), tenant("other"));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(pool.acquire(&busy, true, 1, SOON).await.unwrap());
    }
    assert!(pool.acquire(&busy, true, 1, SOON).await.is_err(), "the tenant exceeds its share");
    let waits = tokio::spawn({
        let (pool, other) = (Arc::clone(&pool), other.clone());
        async move { pool.acquire(&other, true, 1, SOON).await.is_ok() }
    });
    while !pool.state().tenants.contains_key(&other) {
        tokio::task::yield_now().await;
    }
    held.pop();
    assert!(pool.acquire(&busy, true, 1, NOW).await.is_err(), "free units go to the other one");
    assert!(waits.await.unwrap());
    drop(held);
    pool.all_free().await;
    assert!(pool.state().tenants.is_empty(), "tenants without units are removed");
}

#[tokio::test]
async fn timed_out_waiter_holds_no_units() {
    let (pool, busy, other) = (pool(2), tenant("busy"), tenant("other"));
    let held = pool.acquire(&busy, true, 2, NOW).await.unwrap();
    assert!(pool.acquire(&other, true, 1, Duration::from_millis(1)).await.is_err());
    drop(held);
    assert_eq!(pool.free(), 2);
    assert!(pool.state().tenants.is_empty());
}

#[tokio::test]
async fn permits_merge_and_shrink() {
    let (pool, one) = (pool(10), tenant("one"));
    let mut share = pool.acquire(&one, false, 4, NOW).await.unwrap();
    share.join(pool.acquire(&one, false, 3, NOW).await.unwrap());
    assert_eq!((share.amount(), pool.free()), (7, 3));
    share.shrink_to(2);
    assert_eq!((share.amount(), pool.free()), (2, 8));
    drop(share);
    assert_eq!(pool.free(), 10);
}

#[tokio::test]
async fn waiting_tenants_take_turns() {
    let (pool, busy, other) =
        (FairPool::new(1, OverSharePolicy::Wait), tenant("busy"), tenant("other"));
    let held = pool.acquire(&busy, true, 1, NOW).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for (number, waiter) in [&busy, &busy, &busy, &other].into_iter().enumerate() {
        let (shares, waiter, order) = (Arc::clone(&pool), waiter.clone(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let share = shares.acquire(&waiter, true, 1, SOON).await.unwrap();
            order.lock().unwrap().push(waiter.0.clone());
            tokio::task::yield_now().await;
            drop(share);
        }));
        while pool.state().tenants.values().map(|usage| usage.waiting.len()).sum::<usize>()
            <= number
        {
            tokio::task::yield_now().await;
        }
    }
    drop(held);
    for one in waiting {
        one.await.unwrap();
    }
    let order = order.lock().unwrap();
    let position = order.iter().position(|waiter| &**waiter == "other").unwrap();
    assert!(position <= 1, "the other tenant does not wait for all of the first: {order:?}");
}
