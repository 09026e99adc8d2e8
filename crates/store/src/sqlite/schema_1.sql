-- The tables of the store, version 1. PostgreSQL has the same: see ../postgres/schema_1.sql. Names
-- are stored once: other tables refer to tenants, logs and segments by number.

CREATE TABLE tenants (
    id      INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    era     INTEGER NOT NULL DEFAULT 0          -- how often something of it was destroyed
) STRICT;

-- One row per Thread or run.
CREATE TABLE logs (
    id       INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    name     TEXT NOT NULL,
    kind     INTEGER NOT NULL,                  -- 1 thread, 2 run
    of       INTEGER,                           -- the thread of a run
    fork     INTEGER,                           -- the thread whose history is shared,
    fork_at  INTEGER,                           -- and up to where
    rewinds  TEXT,                              -- `at:to` pairs, oldest first, with spaces between
    status   TEXT,
    last     INTEGER NOT NULL,                  -- the last sequence number
    events   INTEGER NOT NULL,                  -- the last event's number
    bytes    INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    gone     INTEGER,                           -- 1 forgotten, 2 expired
    UNIQUE (tenant, name)
) STRICT;
CREATE INDEX logs_by_time ON logs (tenant, kind, updated);
CREATE INDEX logs_of ON logs (tenant, of) WHERE of IS NOT NULL;
CREATE INDEX logs_fork ON logs (tenant, fork) WHERE fork IS NOT NULL;
CREATE INDEX logs_running ON logs (id) WHERE status = 'running';

-- The Journal. Rows are only added. Erasing removes the content and keeps the rest, so that the
-- chain stays valid.
CREATE TABLE records (
    id         INTEGER PRIMARY KEY,             -- in the order of writing
    tenant     INTEGER NOT NULL,
    log        INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    at         INTEGER NOT NULL,                -- milliseconds
    events     INTEGER NOT NULL,
    last_event INTEGER,
    about      INTEGER,                         -- a keyed hash
    size       INTEGER NOT NULL,
    segment    INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    commitment BLOB NOT NULL,
    link       BLOB NOT NULL,
    erased     INTEGER,                         -- 1 forgotten, 2 expired
    blob       INTEGER,
    content    BLOB                             -- sealed; of a large one, the sealed key of the blob
) STRICT;
CREATE UNIQUE INDEX records_by_seq ON records (tenant, log, seq);
CREATE INDEX records_by_event ON records (tenant, log, last_event) WHERE last_event IS NOT NULL;
CREATE INDEX records_about ON records (tenant, about) WHERE about IS NOT NULL;
CREATE INDEX records_checkpoints ON records (tenant, log, seq) WHERE kind = 'checkpoint';
CREATE INDEX records_erased ON records (tenant, log, seq) WHERE erased IS NOT NULL;
CREATE INDEX records_blob ON records (blob) WHERE blob IS NOT NULL;

-- The salts that open contents, stored separately: deleting a salt destroys its content.
CREATE TABLE salts (
    record INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    epoch  INTEGER NOT NULL,                    -- of the master key; 0 without
    salt   BLOB NOT NULL
) STRICT;

-- Large contents, stored once per tenant.
CREATE TABLE blobs (
    id      INTEGER PRIMARY KEY,
    tenant  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (tenant, hash)
) STRICT;

-- The heads of the chains: one segment per tenant and writer.
CREATE TABLE segments (
    id       INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    writer   TEXT NOT NULL,
    position INTEGER NOT NULL,
    link     BLOB NOT NULL,
    UNIQUE (tenant, writer)
) STRICT;

CREATE TABLE manifests (
    id        INTEGER PRIMARY KEY,
    body      TEXT NOT NULL,
    signature BLOB NOT NULL
) STRICT;

-- Batches with idempotency names.
CREATE TABLE once (
    tenant  INTEGER NOT NULL,
    name    BLOB NOT NULL,
    receipt TEXT NOT NULL,                      -- its first name, then `log first last events` lines
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    tenant INTEGER NOT NULL,
    log    TEXT NOT NULL,
    owner  TEXT NOT NULL,
    fence  INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    PRIMARY KEY (tenant, log)
) STRICT, WITHOUT ROWID;

CREATE TABLE pending (
    tenant  INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,
    log     INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    opened  INTEGER NOT NULL,
    expires INTEGER,
    taken   INTEGER,                            -- when
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_log ON pending (tenant, log);
CREATE INDEX pending_expires ON pending (expires) WHERE taken IS NULL AND expires IS NOT NULL;

-- The Vault: captured turns, whose contents are records.
CREATE TABLE turns (
    id     INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    name   TEXT NOT NULL,
    parent TEXT,
    log    INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    prefix BLOB,
    UNIQUE (tenant, name)
) STRICT;

CREATE TABLE turn_keys (
    tenant INTEGER NOT NULL,
    kind   INTEGER NOT NULL,                    -- 1 claim, 2 id, 3 chain
    hash   BLOB NOT NULL,
    turn   INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, hash, turn)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    tenant  INTEGER NOT NULL,
    id      TEXT NOT NULL,
    label   TEXT NOT NULL,
    limits  TEXT NOT NULL,                      -- JSON: what it may ask for, and how much of it
    hash    BLOB NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    revoked INTEGER,
    PRIMARY KEY (tenant, id)
) STRICT;

-- Small internal values: the store's secret, wrapped if there is a master key, and backup
-- locations.
CREATE TABLE kept (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
