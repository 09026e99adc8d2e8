//! Tests of the virtual disk that loses power.

use rusqlite::Connection;

use super::{IoEvent, IoLog, record, sectors};
use crate::{Folder, TestRng};

#[test]
fn synced_data_stays_and_unsynced_data_may_be_torn() {
    let events = vec![
        IoEvent::Create(0),
        IoEvent::Write(0, 0, vec![1; 600]),
        IoEvent::Sync(0),
        IoEvent::Mark(1),
        IoEvent::Write(0, 0, vec![2; 1100]),
        IoEvent::Truncate(0, 10),
    ];
    let log = IoLog { names: vec!["file".into()], events };
    let mut disk = log.disk();
    let mut rng = TestRng::new(1);
    disk.play_to(4);
    assert_eq!(disk.marked(), 1);
    for _ in 0..50 {
        assert_eq!(disk.lose_power(&mut rng).files, [("file".to_owned(), vec![1; 600])]);
    }
    disk.play_to(5);
    let mut images = std::collections::BTreeSet::new();
    for _ in 0..400 {
        let image = disk.lose_power(&mut rng);
        let bytes = &image.files[0].1;
        // Each sector has its old or its new data, up to the old length.
        for sector in bytes.chunks(512) {
            assert!(sector.windows(2).all(|pair| pair[0] == pair[1] || pair[1] == 0), "{sector:?}");
        }
        images.insert(bytes.clone());
    }
    assert!(images.len() >= 6, "only {} different images", images.len());
}

#[test]
fn write_is_split_at_sector_boundaries() {
    let written = vec![0; 1100];
    let pieces: Vec<_> =
        sectors(500, &written).iter().map(|(from, piece)| (*from, piece.len())).collect();
    assert_eq!(pieces, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
}

#[test]
fn a_database_loses_rows_without_syncs_and_none_with_them() {
    assert!(losses("OFF") > 0, "no row is lost without syncs");
    assert_eq!(losses("FULL"), 0);
}

/// Returns the number of points at which a power loss destroys a committed row.
fn losses(synchronous: &str) -> usize {
    let (folder, scratch) = (Folder::new("power"), Folder::new("power-images"));
    let recorder = record(&folder);
    let db = Connection::open(folder.join("db")).unwrap();
    db.execute_batch(&format!("PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};"))
        .unwrap();
    db.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
    for rows in 1..=20 {
        db.execute("INSERT INTO t VALUES (randomblob(900))", []).unwrap();
        recorder.mark(rows);
    }
    let log = recorder.stop();
    let mut losses = 0;
    let mut disk = log.disk();
    for point in 0..log.points() {
        disk.play_to(point);
        disk.lose_power(&mut TestRng::new(point as u64)).write_to(&scratch);
        let db = Connection::open(scratch.join("db")).unwrap();
        let count = db.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
        losses += usize::from(count.unwrap_or(0) < i64::try_from(disk.marked()).unwrap());
    }
    losses
}
