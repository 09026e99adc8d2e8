//! Tests of the order of accounts, their cooldowns and their load.

use std::time::Duration;

use futures_util::stream;
use tokio::time::{Instant, advance};

use super::*;

const MODEL: &str = "gpt-5.2";

fn pool(weights: &[(&str, u32)], options: PoolOptions) -> Arc<AccountPool> {
    let account =
        |(name, weight): &(&str, u32)| PoolAccount { name: Name::from(*name), weight: *weight };
    Arc::new(AccountPool::new("openai".into(), weights.iter().map(account).collect(), options))
}

fn start(conversation: u32) -> Digest {
    *blake3::hash(&conversation.to_le_bytes()).as_bytes()
}

fn order(pool: &AccountPool, conversation: u32, current: Option<usize>) -> Vec<usize> {
    order_for(pool, MODEL, conversation, current)
}

fn order_for(
    pool: &AccountPool,
    model: &str,
    conversation: u32,
    current: Option<usize>,
) -> Vec<usize> {
    let (start, model) = (start(conversation), Name::from(model));
    let is_bound = current.is_some();
    let query = AccountQuery { start: &start, model: &model, current, is_bound };
    pool.order(query, Instant::now())
}

fn answer(status: u16, retry_after: Option<&str>) -> UpstreamResponse {
    let headers = retry_after.map(|wait| (Name::from("retry-after"), Name::from(wait)));
    let (headers, body) = (headers.into_iter().collect(), Box::pin(stream::empty()));
    UpstreamResponse { status, headers, body }
}

fn record(pool: &AccountPool, account: usize, status: u16, retry_after: Option<&str>) -> bool {
    pool.record(account, &Name::from(MODEL), &Ok(answer(status, retry_after)), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn new_conversations_follow_the_weights() {
    let pool = pool(&[("a", 3), ("b", 1), ("c", 2)], PoolOptions::default());
    let mut counts = [0_u32; 3];
    for conversation in 0..6_000 {
        let first = order(&pool, conversation, None)[0];
        counts[first] += 1;
        assert_eq!(order(&pool, conversation, None)[0], first, "the choice is stable");
    }
    // The standard deviation of each count is below 40.
    for (count, expected) in counts.into_iter().zip([3_000_u32, 1_000, 2_000]) {
        assert!(count.abs_diff(expected) < 160, "{counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn most_conversations_keep_their_account_if_the_pool_grows() {
    let small = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    let large = pool(&[("a", 1), ("b", 1), ("c", 1)], PoolOptions::default());
    for conversation in 0..500 {
        let (before, after) =
            (order(&small, conversation, None)[0], order(&large, conversation, None)[0]);
        assert!(after == before || after == 2, "only the new account takes conversations over");
    }
}

#[tokio::test(start_paused = true)]
async fn current_account_comes_first_until_it_cools_down() {
    let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    for conversation in 0..20 {
        assert_eq!(order(&pool, conversation, Some(1))[0], 1);
    }
    assert!(record(&pool, 1, 429, Some("20")));
    assert_eq!(order(&pool, 0, Some(1)), [0, 1]);
    advance(Duration::from_secs(19)).await;
    assert_eq!(order(&pool, 0, Some(1)), [0, 1]);
    advance(Duration::from_secs(2)).await;
    assert_eq!(order(&pool, 0, Some(1)), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn conversations_stay_with_their_account_if_so_configured() {
    let options = PoolOptions { bound: BoundPolicy::Stay, ..PoolOptions::default() };
    let pool = pool(&[("a", 1), ("b", 1)], options);
    record(&pool, 1, 429, None);
    assert_eq!(order(&pool, 0, Some(1)), [1]);
    assert_eq!(order(&pool, 0, None), [0, 1], "a new conversation prefers the other account");
}

#[tokio::test(start_paused = true)]
async fn cooldown_applies_to_one_model_unless_the_key_is_rejected() {
    let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    record(&pool, 0, 429, None);
    assert_eq!(order(&pool, 0, Some(0)), [1, 0]);
    assert_eq!(order_for(&pool, "gpt-5.4", 0, Some(0))[0], 0);
    record(&pool, 0, 401, None);
    assert_eq!(order_for(&pool, "gpt-5.4", 0, Some(0)), [1, 0]);
    advance(REJECTED).await;
    assert_eq!(order_for(&pool, "gpt-5.4", 0, Some(0))[0], 0);
}

#[tokio::test(start_paused = true)]
async fn account_that_recovers_first_is_tried_if_all_cool_down() {
    let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    record(&pool, 0, 429, Some("60"));
    record(&pool, 1, 429, Some("10"));
    assert_eq!(order(&pool, 0, None), [1]);
    assert_eq!(order(&pool, 0, Some(0)), [1]);
    // A success ends the cooldown.
    record(&pool, 0, 200, None);
    assert_eq!(order(&pool, 0, Some(1)), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn only_repeated_server_errors_start_a_cooldown() {
    let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    assert!(!record(&pool, 0, 500, None));
    assert!(!record(&pool, 0, 500, None));
    assert!(!record(&pool, 0, 400, None), "a response shows that the account works");
    assert!(!record(&pool, 0, 500, None));
    assert!(!record(&pool, 0, 500, None));
    assert!(record(&pool, 0, 500, None));
    assert!(record(&pool, 1, 503, Some("5")), "a requested delay is respected at once");
    assert_eq!(order(&pool, 0, None), [1], "the second account recovers first");
}

#[tokio::test(start_paused = true)]
async fn one_forbidden_request_does_not_disable_the_account() {
    // A request that costs more than the remaining credit gets 402, although others succeed.
    for status in [402, 403] {
        let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
        for _ in 0..5 {
            assert!(!record(&pool, 0, status, None));
            assert!(!record(&pool, 0, status, None));
            assert!(!record(&pool, 0, 200, None));
        }
        assert!(!record(&pool, 0, status, None));
        assert!(!record(&pool, 0, status, None));
        assert!(record(&pool, 0, status, None));
        advance(REJECTED / 2).await;
        assert_eq!(order(&pool, 0, Some(0)), [1, 0]);
        assert_eq!(order_for(&pool, "gpt-5.4", 0, Some(0))[0], 0, "other models are unaffected");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_not_sent_do_not_count_as_failures() {
    let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    let (endpoint, model) = (Name::from("openai#a"), Name::from(MODEL));
    let problem = Name::from("the path is invalid");
    for _ in 0..2 * FAILURES {
        let error = UpstreamError::Invalid { endpoint: endpoint.clone(), problem: problem.clone() };
        assert!(!pool.record(0, &model, &Err(error), Instant::now()));
    }
    assert_eq!(order(&pool, 0, Some(0))[0], 0);
    for _ in 1..FAILURES {
        let error =
            UpstreamError::Unreachable { endpoint: endpoint.clone(), cause: problem.clone() };
        assert!(!pool.record(0, &model, &Err(error), Instant::now()));
    }
    let error = UpstreamError::Unreachable { endpoint, cause: problem };
    assert!(pool.record(0, &model, &Err(error), Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn requested_cooldown_is_limited() {
    let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    record(&pool, 0, 429, Some("999999"));
    advance(LONGEST_COOLDOWN).await;
    assert_eq!(order(&pool, 0, Some(0))[0], 0);
}

#[tokio::test(start_paused = true)]
async fn least_busy_account_gets_the_next_conversation() {
    let options = PoolOptions { balance: Balance::LeastBusy, ..PoolOptions::default() };
    let pool = pool(&[("a", 1), ("b", 2)], options);
    let mut open = Vec::new();
    for conversation in 0..9 {
        let first = order(&pool, conversation, None)[0];
        open.push((first, pool.open_request(first)));
    }
    let count = |account| open.iter().filter(|(first, _)| *first == account).count();
    assert_eq!((count(0), count(1)), (3, 6), "twice the weight takes twice the requests");
    open.retain(|(first, _)| *first == 1);
    assert_eq!(order(&pool, 9, None)[0], 0);
    assert_eq!(order(&pool, 9, Some(1))[0], 1, "a conversation stays with its account");
}

#[tokio::test(start_paused = true)]
async fn number_of_states_is_bounded() {
    let pool = pool(&[("a", 1), ("b", 1)], PoolOptions::default());
    for model in 0..2 * MOST_STATES {
        let model = Name::from(model.to_string());
        pool.record(0, &model, &Ok(answer(500, None)), Instant::now());
    }
    assert!(lock(&pool.states).len() <= MOST_STATES);
}
