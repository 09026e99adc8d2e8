-- Version 2: sums of the MACs of index rows (see ../row_mac.rs).
-- PostgreSQL has the same: see ../postgres/schema_2.sql.

ALTER TABLE segments ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;  -- how often the row was written
ALTER TABLE segments ADD COLUMN sums TEXT NOT NULL DEFAULT '';       -- per table: two halves of the XOR, and a count
ALTER TABLE segments ADD COLUMN mac BLOB;                            -- over the row

-- A process of an older version that still has the file open must not write rows without MACs.
CREATE TRIGGER segments_are_added_with_a_mac BEFORE INSERT ON segments WHEN NEW.mac IS NULL
BEGIN SELECT RAISE(ABORT, 'the store has a newer schema: restart this process with the newer version'); END;
CREATE TRIGGER segments_change_with_their_mac BEFORE UPDATE OF position ON segments WHEN NEW.mac IS OLD.mac
BEGIN SELECT RAISE(ABORT, 'the store has a newer schema: restart this process with the newer version'); END;

ALTER TABLE api_keys ADD COLUMN mac BLOB;                            -- over the row; checked when the key is used
CREATE TRIGGER api_keys_are_added_with_a_mac BEFORE INSERT ON api_keys WHEN NEW.mac IS NULL
BEGIN SELECT RAISE(ABORT, 'the store has a newer schema: restart this process with the newer version'); END;
CREATE TRIGGER api_keys_change_with_their_mac BEFORE UPDATE OF revoked ON api_keys WHEN NEW.mac IS OLD.mac
BEGIN SELECT RAISE(ABORT, 'the store has a newer schema: restart this process with the newer version'); END;

-- Commits that write nothing rewrite the file's header instead.
DELETE FROM kept WHERE name IN ('flushed', 'scrubbed');
