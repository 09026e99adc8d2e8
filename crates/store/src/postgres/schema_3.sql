-- Version 3: packs (see ../pack.rs), and the keys of a captured turn in its own row, so that one
-- MAC covers them. SQLite has the same: see ../sqlite/schema_3.sql.
--
-- The keys are also added to `turn_keys` in the same transaction. SQLite adds them later, which is
-- possible only because its writers commit one after another. With several nodes, a turn can be
-- committed after a turn with a higher id, and a lookup could miss it.

ALTER TABLE records ADD COLUMN span integer NOT NULL DEFAULT 0;      -- packed records before the last
ALTER TABLE turns ADD COLUMN keys bytea;                             -- NULL in older rows

-- The records of a pack have consecutive ids, even if several nodes write at once. A row with n
-- packed records uses the first n of these 256 ids.
ALTER SEQUENCE records_id_seq INCREMENT BY 256;
