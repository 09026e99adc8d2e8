-- Version 3: packs (see ../pack.rs), and keys of captured turns that are not indexed yet (see
-- turn_index.rs). PostgreSQL also has packs: see ../postgres/schema_3.sql.

ALTER TABLE records ADD COLUMN span INTEGER;                         -- packed records before the last; NULL in older rows

-- A process of an older version that still has the file open cannot read packs, so it must not
-- write. In particular, it must not forget, because it would not find packed records.
CREATE TRIGGER records_are_added_with_a_span BEFORE INSERT ON records WHEN NEW.span IS NULL
BEGIN SELECT RAISE(ABORT, 'the store has a newer schema: restart this process with the newer version'); END;

ALTER TABLE turns ADD COLUMN keys BLOB;                              -- the turn's keys; NULL if they exist only in turn_keys
