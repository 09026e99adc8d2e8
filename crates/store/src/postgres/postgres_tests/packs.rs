//! Tests of captured turns whose records share one row.

use throughline_core::TurnId;
use tokio_postgres::Client;

use super::*;
use crate::pack::{self, PACK, PackedRecord};
use crate::row::ErasureReason;
use crate::sealed_batch::{Erasure, KeyKind, SealedKey, SealedTurn};

/// Returns a batch that captures a turn with these records. Its key is the number `number`.
fn turn(number: u16, append: SealedAppend) -> SealedBatch {
    let mut hash = [0; 16];
    hash[..2].copy_from_slice(&number.to_be_bytes());
    let node = SealedTurn {
        id: TurnId::from(format!("turn {number}").as_str()),
        parent: None,
        keys: vec![SealedKey { kind: KeyKind::Id, hash }],
        log: append.log.clone(),
        prefix: None,
    };
    SealedBatch { vault: vec![node], ..adding([append]) }
}

fn of_kind(kind: &str, content: &str) -> SealedRecord {
    SealedRecord { kind: kind.into(), ..record(content) }
}

/// Returns the number, the span and the content of each row of the table `records`.
async fn rows(client: &Client) -> Vec<(i64, i32, Option<Vec<u8>>)> {
    let sql = "SELECT seq, span, content FROM records ORDER BY id";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

async fn only_pack(client: &Client) -> Vec<PackedRecord> {
    let sql = "SELECT content FROM records WHERE kind = $1";
    let content: Vec<u8> = client.query_one(sql, &[&PACK]).await.unwrap().get(0);
    let records = pack::decode(Bytes::from(content.clone())).expect("the pack is valid");
    assert_eq!(pack::encode(&records), content, "both sides encode a pack in the same way");
    records
}

async fn count(client: &Client, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn records_of_a_turn_share_a_row() {
    let url = database().await;
    let node = node(&url, "w1").await;
    let client = client(&url).await;
    let about = SealedRecord { about: Some(7), at: Some(5), ..of_kind("copy", "body") };
    let own_row = of_kind("checkpoint", "state");
    let records = [of_kind("turn", "{}"), record("é"), record(""), about, own_row, record("last")];
    let receipt = commit(&node, turn(1, opened("a", records))).await.unwrap();
    assert_eq!((receipt.written[0].first, receipt.written[0].last), (1, 6));
    // An append without a turn is not packed.
    commit(&node, adding([append("a", [record("7"), record("8")])])).await.unwrap();
    let rows = rows(&client).await;
    let shape: Vec<_> = rows.iter().map(|(seq, span, _)| (*seq, *span)).collect();
    assert_eq!(shape, [(4, 3), (5, 0), (6, 0), (7, 0), (8, 0)]);
    let packed = only_pack(&client).await;
    let kinds: Vec<&str> = packed.iter().map(|record| &*record.kind).collect();
    assert_eq!(kinds, ["turn", "item", "item", "copy"]);
    assert_eq!((packed[3].at, packed[1].size), (5, 2));
    let read = contents(&node, "a").await;
    let texts: Vec<&str> = read.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["{}", "é", "", "body", "state", "last", "7", "8"]);
    assert_eq!(node.about(&tenant(), 7).await.unwrap(), [(log("a"), 4)]);
    let span = Span { after: 0, up_to: 9, limit: 9 };
    let salts = node.rows(&tenant(), &log("a"), span).await.unwrap();
    assert!(salts.iter().all(|row| row.salt == Some(record("").salt)));
    assert_sound(&node).await;
}

#[tokio::test]
async fn ids_of_full_packs_do_not_overlap() {
    let url = database().await;
    let node = node(&url, "w1").await;
    let client = client(&url).await;
    let most = pack::MAX_RECORDS;
    let records = |count: usize| (0..count).map(|content| record(&content.to_string()));
    commit(&node, turn(1, opened("a", records(most + 44)))).await.unwrap();
    commit(&node, turn(2, append("a", records(most)))).await.unwrap();
    let shape: Vec<_> = rows(&client).await.iter().map(|(seq, span, _)| (*seq, *span)).collect();
    assert_eq!(shape, [(256, 255), (300, 43), (556, 255)]);
    assert_eq!(count(&client, "salts").await, 556);
    assert_sound(&node).await;
}

#[tokio::test]
async fn one_record_of_a_pack_is_erased() {
    let url = database().await;
    let node = node(&url, "w1").await;
    let client = client(&url).await;
    let records =
        [of_kind("turn", "header"), record("secret"), record("stays"), of_kind("copy", "body")];
    commit(&node, turn(1, opened("a", records))).await.unwrap();
    let before = only_pack(&client).await;
    let forget = async |seqs: Vec<u64>, reason| {
        let erases = vec![Erasure::records(log("a"), seqs, reason)];
        commit(&node, SealedBatch { erases, ..batch() }).await.unwrap();
    };
    let columns = async || {
        let sql = "SELECT r.erased, l.bytes FROM records r JOIN logs l ON l.id = r.log";
        let row = client.query_one(sql, &[]).await.unwrap();
        (row.get::<_, Option<i16>>(0), row.get::<_, i64>(1))
    };
    // A turn without its copies is still usable.
    forget(vec![4], ErasureReason::Expired).await;
    assert_eq!(columns().await, (None, 17));
    forget(vec![2], ErasureReason::Forgotten).await;
    assert_eq!(columns().await, (Some(1), 11));
    // Erasing the same record again changes nothing.
    forget(vec![2], ErasureReason::Expired).await;
    let mut expected = before;
    for (index, reason) in [(1, ErasureReason::Forgotten), (3, ErasureReason::Expired)] {
        expected[index].erased = Some(reason);
        expected[index].content = Bytes::new();
    }
    assert_eq!(only_pack(&client).await, expected);
    assert_eq!(count(&client, "salts").await, 2);
    let read = contents(&node, "a").await;
    let texts: Vec<&str> = read.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["header", "-", "stays", "-"]);
    let erases = vec![Erasure::all(log("a"), ErasureReason::Forgotten)];
    commit(&node, SealedBatch { erases, ..batch() }).await.unwrap();
    assert_eq!((columns().await, count(&client, "salts").await), ((Some(1), 0), 0));
    assert!(only_pack(&client).await.iter().all(|record| record.content.is_empty()));
    assert_sound(&node).await;
}

#[tokio::test]
async fn damaged_pack_is_erased_and_leaves_other_records_readable() {
    let url = database().await;
    let node = node(&url, "w1").await;
    let client = client(&url).await;
    for damage in
        ["'\\xff'::bytea || content", "substr(content, 1, 40)", "content || '\\x00'", "''"]
    {
        let name = format!("log {damage}");
        let number = u16::try_from(count(&client, "turns").await).unwrap();
        commit(&node, turn(number, opened(&name, [record("1"), record("2")]))).await.unwrap();
        commit(&node, adding([append(&name, [record("3")])])).await.unwrap();
        let sql = format!("UPDATE records SET content = {damage} WHERE span > 0");
        client.batch_execute(&sql).await.unwrap();
        let read = contents(&node, &name).await;
        assert_eq!(read, [(1, "-".into()), (2, "-".into()), (3, "3".into())], "{damage}");
        // The salt of one record is deleted, then those of all records.
        for (seqs, salts) in [(Some(vec![2]), 2), (None, 0)] {
            let erase = Erasure { seqs, ..Erasure::all(log(&name), ErasureReason::Forgotten) };
            commit(&node, SealedBatch { erases: vec![erase], ..batch() }).await.unwrap();
            assert_eq!(count(&client, "salts").await, salts, "{damage}");
        }
    }
}

#[tokio::test]
async fn nodes_write_packs_with_consecutive_ids() {
    let url = database().await;
    let nodes = [node(&url, "w1").await, node(&url, "w2").await, node(&url, "w3").await];
    commit(&nodes[0], adding([opened("shared", [])])).await.unwrap();
    let writers = (0_u16..).zip(&nodes).map(|(index, node)| {
        let node = Arc::clone(node);
        tokio::spawn(async move {
            for number in 0..30 {
                let name = format!("log {index} {number}");
                let records = || (0..5).map(|content| record(&content.to_string()));
                let (one, two) = (index * 100 + number * 2, index * 100 + number * 2 + 1);
                let (own, shared) = tokio::join!(
                    commit(&node, turn(one, opened(&name, records()))),
                    commit(&node, turn(two, append("shared", records()))),
                );
                own.and(shared).expect("the turn is captured");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let client = client(&url).await;
    assert_eq!(count(&client, "turns").await, 180);
    assert_eq!(count(&client, "records").await, 180, "each turn is one row");
    assert_eq!(count(&client, "salts").await, 900);
    let head = nodes[0].log(&tenant(), &log("shared")).await.unwrap().unwrap();
    assert_eq!((head.last, contents(&nodes[1], "shared").await.len()), (450, 450));
    assert_sound(&nodes[2]).await;
}
