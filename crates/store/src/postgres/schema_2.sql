-- Version 2: sums of the MACs of index rows (see ../row_mac.rs).
-- SQLite has the same: see ../sqlite/schema_2.sql.

ALTER TABLE segments ADD COLUMN changes bigint NOT NULL DEFAULT 0;   -- number of writes to the row
ALTER TABLE segments ADD COLUMN sums text NOT NULL DEFAULT '';       -- per table: two halves of the XOR, and a count
ALTER TABLE segments ADD COLUMN mac bytea;                           -- over the row

ALTER TABLE api_keys ADD COLUMN mac bytea;                           -- over the row; checked when the key is used
