-- The tables of the store, version 1. SQLite has the same: see ../sqlite/schema_1.sql. Names are
-- stored once: other tables refer to tenants, logs and segments by number.
--
-- Partitioning is possible: every number comes from its own sequence, no foreign key refers to a
-- large table, and the keys of the large tables begin with the partition key. `records` is
-- partitioned by HASH (log): its primary key contains `log`, and all statements except those that
-- walk the chain specify a log. `salts` is partitioned by HASH (record), `blobs` and `turn_keys` by
-- HASH (tenant) or HASH (hash). To partition a table, rename it, create it again with PARTITION BY
-- and the same columns, defaults and indexes, attach or copy the data, and keep the sequences.

CREATE TABLE tenants (
    id      bigserial PRIMARY KEY,
    name    text NOT NULL UNIQUE,
    created bigint NOT NULL,
    era     bigint NOT NULL DEFAULT 0           -- erasure epoch: number of erasures
);

-- One row per Thread or run.
CREATE TABLE logs (
    id       bigserial PRIMARY KEY,
    tenant   bigint NOT NULL,
    name     text NOT NULL,
    kind     smallint NOT NULL,                 -- 1 thread, 2 run
    of       bigint,                            -- the thread of a run
    fork     bigint,                            -- the thread whose history is shared,
    fork_at  bigint,                            -- and the fork point
    rewinds  text,                              -- `at:to` pairs, oldest first, separated by spaces
    status   text,
    last     bigint NOT NULL,                   -- the last sequence number
    events   bigint NOT NULL,                   -- the last event's number
    bytes    bigint NOT NULL,
    created  bigint NOT NULL,
    updated  bigint NOT NULL,
    hour     bigint GENERATED ALWAYS AS (updated / 3600000) STORED,
    gone     smallint,                          -- 1 forgotten, 2 expired
    UNIQUE (tenant, name)
) WITH (fillfactor = 80);
-- By the hour only: if no indexed value changes, PostgreSQL updates the row in place without index
-- writes.
CREATE INDEX logs_by_time ON logs (tenant, kind, hour);
CREATE INDEX logs_of ON logs (tenant, of) WHERE of IS NOT NULL;
CREATE INDEX logs_fork ON logs (tenant, fork) WHERE fork IS NOT NULL;
CREATE INDEX logs_running ON logs (id) WHERE status = 'running';

-- The Journal. Rows are only added. Erasing removes the content and keeps the rest, so that the
-- chain stays valid.
CREATE TABLE records (
    id         bigserial,                       -- in commit order
    tenant     bigint NOT NULL,
    log        bigint NOT NULL,
    seq        bigint NOT NULL,
    kind       text NOT NULL,
    at         bigint NOT NULL,                 -- milliseconds
    events     integer NOT NULL,
    last_event bigint,
    about      bigint,                          -- a keyed hash
    size       bigint NOT NULL,
    segment    bigint NOT NULL,
    position   bigint NOT NULL,
    commitment bytea NOT NULL,
    link       bytea NOT NULL,
    erased     smallint,                        -- 1 forgotten, 2 expired
    blob       bigint,
    content    bytea,                           -- sealed; for a large content, the sealed key of the blob
    PRIMARY KEY (tenant, log, seq)
);
-- Sealed bytes cannot be compressed, so compression would only cost time.
ALTER TABLE records ALTER content SET STORAGE EXTERNAL;
CREATE INDEX records_by_id ON records (id);
CREATE INDEX records_by_event ON records (tenant, log, last_event) WHERE last_event IS NOT NULL;
CREATE INDEX records_about ON records (tenant, about) WHERE about IS NOT NULL;
CREATE INDEX records_checkpoints ON records (tenant, log, seq) WHERE kind = 'checkpoint';
CREATE INDEX records_erased ON records (tenant, log, seq) WHERE erased IS NOT NULL;
CREATE INDEX records_blob ON records (blob) WHERE blob IS NOT NULL;

-- The salts that open contents, stored separately: deleting a salt destroys its content.
CREATE TABLE salts (
    record bigint PRIMARY KEY,
    tenant bigint NOT NULL,
    epoch  integer NOT NULL,                    -- of the master key; 0 without one
    salt   bytea NOT NULL
);

-- Large contents, stored once per tenant.
CREATE TABLE blobs (
    id      bigserial PRIMARY KEY,
    tenant  bigint NOT NULL,
    hash    bytea NOT NULL,
    content bytea NOT NULL,
    UNIQUE (tenant, hash)
);
ALTER TABLE blobs ALTER content SET STORAGE EXTERNAL;

-- The heads of the chains: one segment per tenant and writer, so that no two nodes change the same
-- row.
CREATE TABLE segments (
    id       bigserial PRIMARY KEY,
    tenant   bigint NOT NULL,
    writer   text NOT NULL,
    position bigint NOT NULL,
    link     bytea NOT NULL,
    UNIQUE (tenant, writer)
) WITH (fillfactor = 50);

CREATE TABLE manifests (
    id        bigserial PRIMARY KEY,
    body      text NOT NULL,
    signature bytea NOT NULL
);

-- Batches with idempotency names.
CREATE TABLE once (
    tenant  bigint NOT NULL,
    name    bytea NOT NULL,
    receipt text NOT NULL,                      -- `log first last events` lines
    PRIMARY KEY (tenant, name)
);

CREATE TABLE leases (
    tenant bigint NOT NULL,
    log    text NOT NULL,
    owner  text NOT NULL,
    fence  bigint NOT NULL,
    until  bigint NOT NULL,
    PRIMARY KEY (tenant, log)
) WITH (fillfactor = 70);

CREATE TABLE pending (
    tenant  bigint NOT NULL,
    id      text NOT NULL,
    kind    text NOT NULL,
    log     bigint NOT NULL,
    seq     bigint NOT NULL,
    opened  bigint NOT NULL,
    expires bigint,
    taken   bigint,                             -- when
    PRIMARY KEY (tenant, id)
);
CREATE INDEX pending_log ON pending (tenant, log);
CREATE INDEX pending_expires ON pending (expires) WHERE taken IS NULL AND expires IS NOT NULL;

-- The Vault: captured turns, whose contents are records.
CREATE TABLE turns (
    id     bigserial PRIMARY KEY,
    tenant bigint NOT NULL,
    name   text NOT NULL,
    parent text,
    log    bigint NOT NULL,
    first  bigint NOT NULL,
    last   bigint NOT NULL,
    prefix bytea,
    UNIQUE (tenant, name)
);

CREATE TABLE turn_keys (
    tenant bigint NOT NULL,
    kind   smallint NOT NULL,                   -- 1 claim, 2 id, 3 chain
    hash   bytea NOT NULL,
    turn   bigint NOT NULL,
    PRIMARY KEY (tenant, kind, hash, turn)
);

CREATE TABLE api_keys (
    tenant  bigint NOT NULL,
    id      text NOT NULL,
    label   text NOT NULL,
    limits  text NOT NULL,                      -- JSON: models and limits
    hash    bytea NOT NULL UNIQUE,
    created bigint NOT NULL,
    revoked bigint,
    PRIMARY KEY (tenant, id)
);

-- Small internal values: the store's secret, wrapped if there is a master key, and backup
-- locations.
CREATE TABLE kept (
    name  text PRIMARY KEY,
    value bytea NOT NULL
);

-- PostgreSQL only: the last group of each writer and its result. A group whose result was lost with
-- the connection is sent again under its number and answered from here instead of being written
-- twice.
CREATE TABLE writers (
    writer  text PRIMARY KEY,
    number  bigint NOT NULL,
    answers text[] NOT NULL,
    touched timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
