-- Functions for writers, version 3. All decisions are made here, in the writing transaction, by the
-- database's clock.
--
-- Locks: every writer takes the lock of the whole store. The lock is shared, unless the writer
-- destroys contents or has too many names for individual locks. Then it takes the locks of the
-- names it touches, in the order of their numbers, which prevents deadlocks. While a process holds
-- the store's lock exclusively, no write is in progress, so the record numbers that it sees have no
-- gaps that are filled later.

-- MACs of index rows: the writers count every row that they add, change or remove. row_mac.rs
-- documents the sums and computes the same values.

-- Drops the functions of every version. Version 3 has two functions `throughline_commit`, and
-- PostgreSQL drops a function without its arguments only if its name is unique. So the function
-- with the arguments of version 2 is dropped first.
DROP AGGREGATE IF EXISTS throughline_xor(bigint);
DROP FUNCTION IF EXISTS throughline_commit(
    text, bigint, boolean, bytea, bigint[], boolean, boolean, bigint[], text[], bigint[], text[],
    integer[], boolean[], integer[], integer[], integer[], integer[], integer[], integer[], integer[], bytea[],
    integer[], smallint[], integer[], integer[], bigint[], bigint[], bigint[], bigint[], text[],
    integer[], bigint[], bigint[], bigint[], boolean[], bigint[],
    integer[], integer[], bigint[], text[], bigint[], integer[], bigint[], bigint[], bytea[], bytea[], integer[], bytea[],
    bytea[], bytea[], text[], text[], text[], integer[], bigint[], text[], text[], integer[], bytea[], integer[],
    smallint[], bytea[], integer[], smallint[], boolean[], boolean[], bigint[], text[], bytea[], integer[], bigint[],
    text[], text[], text[], bytea[], bigint[], bytea[]
);
DROP FUNCTION IF EXISTS throughline_commit, throughline_manifest, throughline_lease, throughline_renew,
    throughline_rewrap, throughline_lock, throughline_now, throughline_text, throughline_mac, throughline_half,
    throughline_log_row, throughline_pending_row, throughline_key_row, throughline_tenant_row, throughline_kept_row,
    throughline_tally, throughline_keep, throughline_replace, throughline_tenant, throughline_number,
    throughline_packed, throughline_erase_packed;

-- The SQL functions are STABLE, because PostgreSQL expands the calls of a function only if the
-- function is declared as volatile as the functions that it calls.

-- NULL is encoded as a dash, which no other value is.
CREATE FUNCTION throughline_text(p_text text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(octet_length(p_text) || ':' || p_text, '-')
$$;

CREATE FUNCTION throughline_mac(p_key bytea, p_row text) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(p_key || sha256(convert_to(p_row, 'UTF8')))
$$;

CREATE FUNCTION throughline_half(p_mac bytea, p_from integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT ('x' || encode(substr(p_mac, p_from, 8), 'hex'))::bit(64)::bigint
$$;

CREATE AGGREGATE throughline_xor(bigint) (SFUNC = int8xor, STYPE = bigint, INITCOND = '0');

CREATE FUNCTION throughline_log_row(p_id bigint, p_tenant bigint, p_name text, p_kind smallint, p_of bigint, p_fork bigint,
    p_fork_at bigint, p_status text, p_gone smallint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(E'\n', 'logs', p_id, p_tenant, throughline_text(p_name), p_kind, coalesce(p_of::text, '-'),
        coalesce(p_fork::text, '-'), coalesce(p_fork_at::text, '-'), throughline_text(p_status), coalesce(p_gone::text, '-'))
$$;

CREATE FUNCTION throughline_pending_row(p_tenant bigint, p_id text, p_kind text, p_log bigint, p_seq bigint, p_opened bigint,
    p_expires bigint, p_taken bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(E'\n', 'pending', p_tenant, throughline_text(p_id), throughline_text(p_kind), p_log, p_seq, p_opened,
        coalesce(p_expires::text, '-'), coalesce(p_taken::text, '-'))
$$;

CREATE FUNCTION throughline_key_row(p_tenant bigint, p_id text, p_label text, p_limits text, p_hash bytea, p_revoked bigint,
    p_mac bytea) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(E'\n', 'api_keys', p_tenant, throughline_text(p_id), throughline_text(p_label), throughline_text(p_limits),
        encode(p_hash, 'hex'), coalesce(p_revoked::text, '-'), coalesce(encode(p_mac, 'hex'), '-'))
$$;

CREATE FUNCTION throughline_tenant_row(p_id bigint, p_name text, p_era bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(E'\n', 'tenants', p_id, throughline_text(p_name), p_era)
$$;

CREATE FUNCTION throughline_kept_row(p_name text, p_value bytea) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(E'\n', 'kept', throughline_text(p_name), encode(p_value, 'hex'))
$$;

-- Updates the sums of the store-wide tables: tenants (1), manifests (2) and small values (3). A
-- tally that was removed or modified stays as it is, so that verification reports it.
CREATE FUNCTION throughline_tally(p_key bytea, p_tables integer[], p_signs integer[], p_rows text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_lines text[]; v_changes bigint; v_sums bigint[]; i integer; v_mac bytea; v_at integer;
BEGIN
    SELECT string_to_array(convert_from(value, 'UTF8'), E'\n') INTO v_lines FROM kept WHERE name = 'tally' FOR UPDATE;
    IF NOT FOUND OR v_lines[3] IS DISTINCT FROM encode(throughline_mac(p_key,
        concat_ws(E'\n', 'tally', v_lines[1], throughline_text(v_lines[2]))), 'hex') THEN
        RETURN;
    END IF;
    v_changes := v_lines[1]::bigint + 1;
    v_sums := string_to_array(v_lines[2], ' ')::bigint[];
    FOR i IN 1 .. cardinality(p_tables) LOOP
        v_mac := throughline_mac(p_key, p_rows[i]);
        v_at := (p_tables[i] - 1) * 3;
        v_sums[v_at + 1] := v_sums[v_at + 1] # throughline_half(v_mac, 1);
        v_sums[v_at + 2] := v_sums[v_at + 2] # throughline_half(v_mac, 9);
        v_sums[v_at + 3] := v_sums[v_at + 3] + p_signs[i];
    END LOOP;
    v_lines[2] := array_to_string(v_sums, ' ');
    UPDATE kept SET value = convert_to(concat_ws(E'\n', v_changes, v_lines[2], encode(throughline_mac(p_key,
        concat_ws(E'\n', 'tally', v_changes, throughline_text(v_lines[2]))), 'hex')), 'UTF8')
     WHERE name = 'tally';
END
$$;

-- Stores a small value unless one exists, and returns the stored value.
CREATE FUNCTION throughline_keep(p_key bytea, p_name text, p_value bytea) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    v_value bytea;
BEGIN
    INSERT INTO kept (name, value) VALUES (p_name, p_value) ON CONFLICT (name) DO NOTHING RETURNING value INTO v_value;
    IF FOUND THEN
        PERFORM throughline_tally(p_key, ARRAY[3], ARRAY[1], ARRAY[throughline_kept_row(p_name, p_value)]);
        RETURN v_value;
    END IF;
    SELECT value INTO v_value FROM kept WHERE name = p_name;
    RETURN v_value;
END
$$;

-- Replaces a small value, or deletes it if the new value is NULL.
CREATE FUNCTION throughline_replace(p_key bytea, p_name text, p_value bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_value bytea;
BEGIN
    LOOP
        SELECT value INTO v_value FROM kept WHERE name = p_name FOR UPDATE;
        IF FOUND THEN
            IF p_value IS NULL THEN
                DELETE FROM kept WHERE name = p_name;
                PERFORM throughline_tally(p_key, ARRAY[3], ARRAY[-1], ARRAY[throughline_kept_row(p_name, v_value)]);
            ELSE
                UPDATE kept SET value = p_value WHERE name = p_name;
                PERFORM throughline_tally(p_key, ARRAY[3, 3], ARRAY[-1, 1],
                    ARRAY[throughline_kept_row(p_name, v_value), throughline_kept_row(p_name, p_value)]);
            END IF;
            RETURN;
        END IF;
        EXIT WHEN p_value IS NULL;
        INSERT INTO kept (name, value) VALUES (p_name, p_value) ON CONFLICT (name) DO NOTHING;
        IF FOUND THEN
            PERFORM throughline_tally(p_key, ARRAY[3], ARRAY[1], ARRAY[throughline_kept_row(p_name, p_value)]);
            RETURN;
        END IF;
    END LOOP;
END
$$;

-- Adds a tenant unless one with this name exists.
CREATE FUNCTION throughline_tenant(p_key bytea, p_name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    INSERT INTO tenants (name, created) VALUES (p_name, throughline_now()) ON CONFLICT (name) DO NOTHING RETURNING id INTO v_id;
    IF FOUND THEN
        PERFORM throughline_tally(p_key, ARRAY[1], ARRAY[1], ARRAY[throughline_tenant_row(v_id, p_name, 0)]);
    END IF;
END
$$;

CREATE FUNCTION throughline_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE FUNCTION throughline_lock(p_locks bigint[], p_alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_alone THEN
        PERFORM pg_advisory_xact_lock(1414025804, 0);
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(1414025804, 0);
    PERFORM pg_advisory_xact_lock(lock) FROM unnest(p_locks) lock;
END
$$;

-- Encodes one record of a pack: see ../pack.rs.
CREATE FUNCTION throughline_packed(p_kind text, p_at bigint, p_size bigint, p_commitment bytea, p_link bytea,
    p_content bytea) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT set_byte('\x00', 0, octet_length(p_kind)) || convert_to(p_kind, 'UTF8') || int8send(p_at)
        || substr(int8send(p_size), 5) || p_commitment || p_link || '\x00'::bytea
        || int4send(octet_length(p_content)) || p_content
$$;

CREATE FUNCTION throughline_number(p_bytes bytea) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT ('x' || encode(p_bytes, 'hex'))::bit(32)::bigint
$$;

-- Destroys the content of a pack's records with these numbers, or of all records if `p_seqs` is
-- NULL. `p_seq` is the number of the last record. The results are the new pack, its `erased` column
-- and the size of the destroyed content; all are NULL if the pack is damaged.
CREATE FUNCTION throughline_erase_packed(p_pack bytea, p_span integer, p_seq bigint, p_seqs bigint[], p_why smallint,
    OUT o_pack bytea, OUT o_erased smallint, OUT o_bytes bigint) LANGUAGE plpgsql AS $$
DECLARE
    -- The start of a record, of its time and of the next record, counted from 1.
    v_start integer := 1; v_time integer; v_next integer;
    v_kind bytea; v_reason integer; v_length bigint; v_pack bytea := ''; v_erased smallint; v_bytes bigint := 0;
    v_end integer := coalesce(octet_length(p_pack), 0);
BEGIN
    FOR i IN 0 .. p_span LOOP
        IF v_start > v_end THEN RETURN; END IF;
        v_kind := substr(p_pack, v_start + 1, get_byte(p_pack, v_start - 1));
        v_time := v_start + 1 + get_byte(p_pack, v_start - 1);
        IF v_time + 80 > v_end THEN RETURN; END IF;
        v_reason := get_byte(p_pack, v_time + 75);
        v_length := throughline_number(substr(p_pack, v_time + 77, 4));
        IF v_time + 80 + v_length > v_end OR v_reason > 2 OR v_reason > 0 AND v_length > 0 THEN RETURN; END IF;
        v_next := v_time + 81 + v_length;
        IF v_reason = 0 AND (p_seqs IS NULL OR p_seq - p_span + i = ANY (p_seqs)) THEN
            v_reason := p_why;
            v_bytes := v_bytes + throughline_number(substr(p_pack, v_time + 8, 4));
            v_pack := v_pack || substr(p_pack, v_start, v_time - v_start + 76) || set_byte('\x00', 0, v_reason)
                || '\x00000000'::bytea;
        ELSE
            v_pack := v_pack || substr(p_pack, v_start, v_next - v_start);
        END IF;
        -- A turn without its copies is still usable.
        IF v_reason > 0 AND v_kind <> 'copy'::bytea THEN
            v_erased := least(v_erased, v_reason::smallint);
        END IF;
        v_start := v_next;
    END LOOP;
    IF v_start <> v_end + 1 THEN RETURN; END IF;
    o_pack := v_pack;
    o_erased := v_erased;
    o_bytes := v_bytes;
END
$$;

-- A process of version 2 that is still running calls this function. It cannot read packs, so it
-- must not write. In particular, it must not forget, because it would not find packed records.
CREATE FUNCTION throughline_commit(
    text, bigint, boolean, bytea, bigint[], boolean, boolean, bigint[], text[], bigint[], text[],
    integer[], boolean[], integer[], integer[], integer[], integer[], integer[], integer[], integer[], bytea[],
    integer[], smallint[], integer[], integer[], bigint[], bigint[], bigint[], bigint[], text[],
    integer[], bigint[], bigint[], bigint[], boolean[], bigint[],
    integer[], integer[], bigint[], text[], bigint[], integer[], bigint[], bigint[], bytea[], bytea[], integer[], bytea[],
    bytea[], bytea[], text[], text[], text[], integer[], bigint[], text[], text[], integer[], bytea[], integer[],
    smallint[], bytea[], integer[], smallint[], boolean[], boolean[], bigint[], text[], bytea[], integer[], bigint[],
    text[], text[], text[], bytea[], bigint[], bytea[]
) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the store has a newer schema: restart this process with the newer version';
END
$$;

-- Decides on a group of batches one by one, and writes the valid ones. A rejected batch writes
-- nothing and does not affect the others.
--
-- The parts of all batches are in columns, in order, counted from 1. A batch (b) has the end
-- positions of its names (o), appends (a), takes (t), asks (q), turns (n), erases (e) and API keys
-- (y). Each log of the group appears once in the `l` columns, and the other columns refer to its
-- index there. An append has the number of its records, events and bytes, and a record has its
-- index in its append. A row of the table `records` (z) has the index of its last record and the
-- number of packed records before it. A turn has the index of the first turn in the group with the
-- same name. All logs are read at once, the new states are computed in memory, and all
-- records are written at the end, because a statement costs much more than a row.
--
-- The result has one or more lines per batch, then the tenants whose heads moved; commit.rs parses
-- it.
CREATE FUNCTION throughline_commit(
    p_writer text, p_number bigint, p_relaxed boolean, p_key bytea, p_locks bigint[], p_alone boolean, p_blobs boolean,
    p_tenants bigint[], p_tenant_names text[], l_tenant bigint[], l_name text[],
    b_tenant integer[], b_plain boolean[], b_o integer[], b_a integer[], b_t integer[], b_q integer[], b_n integer[],
    b_e integer[], b_y integer[],
    o_hash bytea[],
    a_log integer[], a_kind smallint[], a_of integer[], a_fork integer[], a_fork_at bigint[],
    a_expect bigint[], a_guard bigint[], a_rewind bigint[], a_status text[],
    a_records integer[], a_events bigint[], a_bytes bigint[], a_at bigint[], a_now boolean[], a_began bigint[],
    r_append integer[], r_place integer[], r_event bigint[], r_kind text[], r_at bigint[], r_events integer[],
    r_about bigint[], r_size bigint[], r_commitment bytea[], r_content bytea[], r_epoch integer[], r_salt bytea[],
    r_blob bytea[], r_blob_content bytea[], r_row integer[], r_after integer[],
    z_record integer[], z_span integer[],
    t_id text[],
    q_id text[], q_kind text[], q_append integer[], q_expires bigint[],
    n_tenant bigint[], n_id text[], n_same integer[], n_parent text[], n_append integer[], n_prefix bytea[], n_keys bytea[],
    e_log integer[], e_why smallint[], e_all boolean[], e_checkpoints boolean[], e_kin bigint[], e_note text[],
    e_note_value bytea[], s_erase integer[], s_seq bigint[],
    y_id text[], y_label text[], y_limits text[], y_hash bytea[], y_revoked bigint[], y_mac bytea[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint; v_answers text[]; v_answer text; v_now bigint;
    v_batch integer; v_tenant bigint; v_t integer; i integer; v_log integer;
    -- The start positions of the batch's parts.
    v_o integer := 1; v_a integer := 1; v_take integer := 1; v_q integer := 1; v_n integer := 1; v_e integer := 1;
    v_y integer := 1;
    -- The logs: as stored, and then as the batches so far leave them.
    l_id bigint[]; l_last bigint[]; l_events bigint[]; l_kind smallint[]; l_gone smallint[]; l_rewinds text[]; l_nature text[];
    l_owner text[]; l_fence bigint[]; l_until bigint[];
    -- The other columns of their rows; whether the group creates or changes a row, and the row
    -- before.
    l_of bigint[]; l_fork bigint[]; l_fork_at bigint[]; l_had_status text[]; l_changed boolean[]; l_row text[];
    -- The batch that would open the log as a thread.
    l_begins integer[];
    l_bytes bigint[]; l_updated bigint[]; l_status text[]; l_written boolean[];
    -- When the log begins, if the group opens it.
    l_created bigint[];
    -- For each valid append: its tenant, the state of its log and chain before it, and the log's
    -- last record after it.
    c_tenant integer[]; c_before bigint[]; c_event bigint[]; c_position bigint[]; c_last bigint[];
    -- The records to write, by their index in the columns.
    w_tenant integer[]; w_body bytea[]; w_link bytea[];
    -- The ids of their rows, by the row's index.
    w_id bigint[];
    -- Whether the turns exist, and the ids of the turns to write.
    n_exists boolean[]; n_turn bigint[];
    -- The valid erases, and the ends of their logs at that point; later records are not erased.
    x_erase integer[] := '{}'; x_last bigint[];
    v_known integer; v_receipts integer; v_receipt text; v_which integer; v_taken bigint; v_expires bigint;
    -- The heads of this writer's segments, by tenant.
    g_id bigint[]; g_position bigint[]; g_link bytea[]; g_from bigint[]; g_changes bigint[];
    -- Whether the MACs of their rows match.
    g_holds boolean[];
    -- The sums of their index rows: two halves and a count for each of seven tables, per tenant.
    g_sums bigint[]; g_sums_from bigint[]; v_sums text;
    -- Index rows to count: the tenant's index, the table, 1 or -1, and the row. Then the store-wide
    -- rows.
    m_tenant integer[] := '{}'; m_table integer[] := '{}'; m_sign integer[] := '{}'; m_row text[] := '{}';
    w_table integer[] := '{}'; w_sign integer[] := '{}'; w_row text[] := '{}';
    v_counted record; v_at integer; v_pending pending; v_key api_keys; v_era bigint; v_name text; v_value bytea;
    v_last bigint; v_rewinds text; v_bytes bigint; v_link bytea;
    v_ids bigint[]; v_blobs bigint[]; v_seqs bigint[]; v_rows bigint[]; v_pack record; v_new record;
BEGIN
    IF p_relaxed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- A group that was sent before and committed is answered from the stored result. A late group,
    -- after one with a higher number, is not written.
    LOOP
        SELECT number, answers INTO v_number, v_answers FROM writers WHERE writer = p_writer FOR UPDATE;
        EXIT WHEN FOUND;
        -- The first group may also arrive twice; the second copy then waits here for the first.
        INSERT INTO writers (writer, number, answers) VALUES (p_writer, 0, '{}') ON CONFLICT DO NOTHING;
    END LOOP;
    IF v_number = p_number THEN
        RETURN v_answers;
    ELSIF v_number > p_number THEN
        RAISE EXCEPTION 'a later group was already written';
    END IF;
    v_answers := '{}';

    PERFORM throughline_lock(p_locks, p_alone);
    v_now := throughline_now();

    -- The sums of a row whose MAC does not match are ignored. Such a row keeps its sums and its
    -- MAC, so that verification reports it. OFFSET prevents the planner from computing the MAC
    -- twice.
    SELECT array_agg(s.id ORDER BY s.n), array_agg(coalesce(s.position, 0) ORDER BY s.n),
           array_agg(coalesce(s.link, decode(repeat('00', 32), 'hex')) ORDER BY s.n),
           array_agg(coalesce(s.changes, 0) ORDER BY s.n), array_agg(s.holds ORDER BY s.n),
           string_to_array(string_agg(CASE WHEN s.holds AND s.id IS NOT NULL THEN s.sums ELSE '0' || repeat(' 0', 20) END,
                                      ' ' ORDER BY s.n), ' ')::bigint[]
      INTO g_id, g_position, g_link, g_changes, g_holds, g_sums
      FROM (SELECT t.n, g.id, g.position, g.link, g.changes, g.sums,
                   g.id IS NULL OR g.mac IS NOT DISTINCT FROM throughline_mac(p_key, concat_ws(E'\n', 'segments', g.id,
                       g.tenant, throughline_text(g.writer), g.position, encode(g.link, 'hex'), g.changes,
                       throughline_text(g.sums))) AS holds
              FROM unnest(p_tenants) WITH ORDINALITY t(id, n)
              LEFT JOIN segments g ON g.tenant = t.id AND g.writer = p_writer OFFSET 0) s;
    g_from := g_position;
    g_sums_from := g_sums;

    -- The nature is the kind and lineage of the log, which its records prove: the same as in
    -- chain.rs.
    SELECT array_agg(id), array_agg(kind), array_agg(last), array_agg(events), array_agg(gone), array_agg(rewinds), array_agg(nature),
           array_agg(owner), array_agg(fence), array_agg(until), array_agg(of), array_agg(fork), array_agg(fork_at),
           array_agg(status)
      INTO l_id, l_kind, l_last, l_events, l_gone, l_rewinds, l_nature, l_owner, l_fence, l_until, l_of, l_fork, l_fork_at,
           l_had_status
      FROM (SELECT l.id, l.kind, l.last, l.events, l.gone, l.rewinds, h.owner, h.fence, h.until, l.of, l.fork, l.fork_at,
                   l.status,
                   concat_ws(E'\n', CASE l.kind WHEN 1 THEN 'thread' ELSE 'run' END, coalesce(o.name, ''),
                             coalesce(f.name, ''), coalesce(l.fork_at::text, '')) AS nature
              FROM unnest(l_tenant, l_name) WITH ORDINALITY n(tenant, name, n)
              LEFT JOIN logs l ON l.tenant = n.tenant AND l.name = n.name
              LEFT JOIN logs o ON o.id = l.of
              LEFT JOIN logs f ON f.id = l.fork
              LEFT JOIN leases h ON h.tenant = n.tenant AND h.log = n.name
             ORDER BY n.n) known;
    l_begins := array_fill(NULL::integer, ARRAY[cardinality(l_name)]);
    l_bytes := array_fill(0::bigint, ARRAY[cardinality(l_name)]);
    l_updated := array_fill(NULL::bigint, ARRAY[cardinality(l_name)]);
    l_status := array_fill(NULL::text, ARRAY[cardinality(l_name)]);
    l_written := array_fill(false, ARRAY[cardinality(l_name)]);
    l_changed := l_written;
    l_created := l_updated;
    l_row := l_status;
    c_tenant := array_fill(NULL::integer, ARRAY[cardinality(a_log)]);
    c_before := array_fill(NULL::bigint, ARRAY[cardinality(a_log)]);
    c_event := c_before;
    c_position := c_before;
    c_last := c_before;
    n_turn := array_fill(NULL::bigint, ARRAY[cardinality(n_id)]);
    SELECT array_agg(EXISTS (SELECT FROM turns t WHERE t.tenant = n_tenant[n] AND t.name = n_id[n])) INTO n_exists
      FROM generate_series(1, cardinality(n_id)) n;

    FOR v_batch IN 1 .. cardinality(b_tenant) LOOP
        v_t := b_tenant[v_batch];

        <<decide>>
        BEGIN
            -- (1) Was the batch written before?
            IF NOT b_plain[v_batch] AND b_o[v_batch] >= v_o THEN
                SELECT count(*), count(DISTINCT receipt), min(receipt),
                       min(array_position(o_hash[v_o : b_o[v_batch]], name))
                  INTO v_known, v_receipts, v_receipt, v_which
                  FROM once WHERE tenant = p_tenants[v_t] AND name = ANY (o_hash[v_o : b_o[v_batch]]);
                IF v_known = b_o[v_batch] - v_o + 1 AND v_receipts = 1 THEN
                    v_answer := 'again' || v_receipt;
                    EXIT decide;
                ELSIF v_known > 0 THEN
                    v_answer := 'mixed ' || v_which - 1;
                    EXIT decide;
                END IF;
            END IF;

            -- (2) Does each log accept the append? There is no query in the checks of every append,
            -- because it would cost more than all the rest.
            IF NOT b_plain[v_batch] THEN
                FOR i IN v_a .. b_a[v_batch] LOOP
                    IF a_kind[i] = 1 AND l_id[a_log[i]] IS NULL THEN
                        l_begins[a_log[i]] := v_batch;
                    END IF;
                END LOOP;
            END IF;
            FOR i IN v_a .. b_a[v_batch] LOOP
                v_log := a_log[i];
                v_last := CASE WHEN a_kind[i] IS NULL THEN l_last[v_log] ELSE coalesce(a_fork_at[i], 0) END;
                v_answer := CASE
                    -- A writer without permission does not learn the current state of the log.
                    WHEN a_guard[i] = 0 AND l_until[v_log] > v_now
                    THEN format('held %s %s %s', i - v_a, l_until[v_log] - v_now, l_owner[v_log])
                    WHEN a_guard[i] > 0 AND (l_fence[v_log] = a_guard[i] AND l_until[v_log] > v_now) IS NOT TRUE
                    THEN 'fenced ' || i - v_a
                    WHEN a_kind[i] IS NULL AND l_id[v_log] IS NULL THEN 'nolog ' || i - v_a
                    WHEN a_kind[i] IS NOT NULL AND l_id[v_log] IS NOT NULL
                    THEN format('conflict %s 0 %s', i - v_a, l_last[v_log])
                    -- Only threads have forks and runs.
                    WHEN a_fork[i] IS NOT NULL AND l_kind[a_fork[i]] IS DISTINCT FROM 1 THEN 'nofork ' || i - v_a
                    WHEN l_gone[a_fork[i]] IS NOT NULL AND a_guard[i] >= 0 THEN 'gonefork ' || i - v_a
                    WHEN l_gone[a_of[i]] IS NOT NULL AND a_guard[i] >= 0 THEN 'goneof ' || i - v_a
                    WHEN a_fork[i] IS NOT NULL AND v_last > l_last[a_fork[i]]
                    THEN format('beyond %s %s', i - v_a, l_last[a_fork[i]])
                    -- The thread of a run may be opened in the same batch.
                    WHEN a_of[i] IS NOT NULL AND l_kind[a_of[i]] IS DISTINCT FROM 1
                         AND l_begins[a_of[i]] IS DISTINCT FROM v_batch
                    THEN 'noof ' || i - v_a
                    WHEN l_gone[v_log] IS NOT NULL AND a_guard[i] >= 0 THEN 'gone ' || i - v_a
                    WHEN a_expect[i] <> v_last THEN format('conflict %s %s %s', i - v_a, a_expect[i], v_last)
                    WHEN a_rewind[i] > v_last THEN format('rewind %s %s', i - v_a, v_last)
                END;
                EXIT decide WHEN v_answer IS NOT NULL;
            END LOOP;

            IF NOT b_plain[v_batch] THEN
                v_tenant := p_tenants[v_t];
                -- (3) Are the pending requests to resolve still open?
                FOR i IN v_take .. b_t[v_batch] LOOP
                    SELECT taken, expires INTO v_taken, v_expires FROM pending WHERE tenant = v_tenant AND id = t_id[i];
                    IF NOT FOUND THEN
                        v_answer := 'nopending ' || i - v_take;
                        EXIT decide;
                    ELSIF v_taken IS NOT NULL OR v_expires <= v_now THEN
                        v_answer := format('taken %s %s', i - v_take, CASE WHEN v_taken IS NULL THEN 2 ELSE 1 END);
                        EXIT decide;
                    END IF;
                END LOOP;

                -- (4) Are the new pending requests new?
                FOR i IN v_q .. b_q[v_batch] LOOP
                    IF EXISTS (SELECT FROM pending WHERE tenant = v_tenant AND id = q_id[i]) THEN
                        v_answer := 'asked ' || i - v_q;
                        EXIT decide;
                    END IF;
                END LOOP;

                -- (5) Are the captured turns new, and do the logs to erase exist?
                FOR i IN v_n .. b_n[v_batch] LOOP
                    IF n_exists[n_same[i]] THEN
                        v_answer := 'turn ' || i - v_n;
                        EXIT decide;
                    END IF;
                END LOOP;
                FOR i IN v_e .. b_e[v_batch] LOOP
                    IF l_id[e_log[i]] IS NULL AND e_log[i] <> ALL (a_log[v_a : b_a[v_batch]]) THEN
                        v_answer := 'noerase ' || i - v_e;
                        EXIT decide;
                    END IF;
                    IF e_kin[i] IS NOT NULL THEN
                        -- The logs that the group opens are not in the table yet.
                        SELECT (SELECT count(*) FROM logs WHERE tenant = v_tenant AND of = l_id[e_log[i]])
                             + (SELECT count(*) FROM logs WHERE tenant = v_tenant AND fork = l_id[e_log[i]])
                             + (SELECT count(*) FROM generate_series(1, cardinality(l_name)) n
                                 WHERE l_created[n] IS NOT NULL AND l_of[n] = l_id[e_log[i]])
                             + (SELECT count(*) FROM generate_series(1, cardinality(l_name)) n
                                 WHERE l_created[n] IS NOT NULL AND l_fork[n] = l_id[e_log[i]]) INTO v_known;
                        IF v_known <> e_kin[i] THEN
                            v_answer := format('kin %s %s %s', i - v_e, e_kin[i], v_known);
                            EXIT decide;
                        END IF;
                    END IF;
                END LOOP;

                FOR i IN v_y .. b_y[v_batch] LOOP
                    SELECT * INTO v_key FROM api_keys WHERE tenant = v_tenant AND id = y_id[i];
                    v_answer := CASE
                        WHEN y_revoked[i] IS NULL AND FOUND THEN 'haskey ' || i - v_y
                        WHEN y_revoked[i] IS NOT NULL AND (NOT FOUND OR v_key.revoked IS NOT NULL) THEN 'nokey ' || i - v_y
                    END;
                    EXIT decide WHEN v_answer IS NOT NULL;
                END LOOP;

                -- The batch is valid. The logs that it opens come first, because other parts may
                -- refer to them in any order.
                FOR i IN v_a .. b_a[v_batch] LOOP
                    CONTINUE WHEN a_kind[i] IS NULL;
                    l_id[a_log[i]] := nextval('logs_id_seq');
                END LOOP;
                FOR i IN v_a .. b_a[v_batch] LOOP
                    CONTINUE WHEN a_kind[i] IS NULL;
                    v_log := a_log[i];
                    l_kind[v_log] := a_kind[i];
                    l_of[v_log] := l_id[a_of[i]];
                    l_fork[v_log] := l_id[a_fork[i]];
                    l_fork_at[v_log] := a_fork_at[i];
                    l_changed[v_log] := true;
                    l_last[v_log] := coalesce(a_fork_at[i], 0);
                    l_events[v_log] := 0;
                    l_nature[v_log] := concat_ws(E'\n', CASE a_kind[i] WHEN 1 THEN 'thread' ELSE 'run' END,
                        coalesce(l_name[a_of[i]], ''), coalesce(l_name[a_fork[i]], ''), coalesce(a_fork_at[i]::text, ''));
                    IF a_fork[i] IS NOT NULL THEN
                        -- The fork inherits the parent's rewinds up to the fork point.
                        SELECT string_agg(pair, ' ' ORDER BY n) INTO v_rewinds
                          FROM unnest(string_to_array(l_rewinds[a_fork[i]], ' ')) WITH ORDINALITY p(pair, n)
                         WHERE split_part(pair, ':', 1)::bigint <= a_fork_at[i];
                        l_rewinds[v_log] := v_rewinds;
                    END IF;
                    l_created[v_log] := coalesce(a_began[i], v_now);
                END LOOP;
            END IF;

            v_answer := 'ok';
            -- The receipt begins with the first name, so that no two batches have the same receipt.
            v_receipt := CASE WHEN b_plain[v_batch] THEN '' ELSE coalesce(encode(o_hash[v_o], 'hex'), '') || E'\n' END;
            FOR i IN v_a .. b_a[v_batch] LOOP
                v_log := a_log[i];
                v_last := l_last[v_log];
                c_tenant[i] := v_t;
                c_before[i] := v_last;
                c_event[i] := l_events[v_log];
                c_position[i] := g_position[v_t];
                v_last := v_last + a_records[i];
                c_last[i] := v_last;
                g_position[v_t] := g_position[v_t] + a_records[i];
                l_last[v_log] := v_last;
                IF a_events[i] > 0 THEN
                    l_events[v_log] := l_events[v_log] + a_events[i];
                END IF;
                l_bytes[v_log] := l_bytes[v_log] + a_bytes[i];
                l_updated[v_log] := greatest(l_updated[v_log], a_at[i], CASE WHEN a_now[i] THEN v_now END);
                l_written[v_log] := true;
                IF a_status[i] IS NOT NULL THEN
                    IF NOT l_changed[v_log] THEN
                        l_changed[v_log] := true;
                        l_row[v_log] := throughline_log_row(l_id[v_log], p_tenants[v_t], l_name[v_log], l_kind[v_log],
                            l_of[v_log], l_fork[v_log], l_fork_at[v_log], l_had_status[v_log], l_gone[v_log]);
                    END IF;
                    l_status[v_log] := a_status[i];
                END IF;
                IF a_rewind[i] IS NOT NULL THEN
                    l_rewinds[v_log] := concat_ws(' ', l_rewinds[v_log], c_before[i] + 1 || ':' || a_rewind[i]);
                END IF;
                v_answer := concat(v_answer, E'\n', c_before[i] + 1, ' ', v_last, ' ', l_events[v_log], ' ', l_id[v_log]);
                IF NOT b_plain[v_batch] THEN
                    v_receipt := concat(v_receipt, l_name[v_log], E'\t', c_before[i] + 1, E'\t', v_last, E'\t',
                                        l_events[v_log], E'\n');
                END IF;
            END LOOP;

            IF NOT b_plain[v_batch] THEN
                IF b_o[v_batch] >= v_o THEN
                    INSERT INTO once SELECT v_tenant, o_hash[n.i], v_receipt FROM generate_series(v_o, b_o[v_batch]) n(i);
                    FOR i IN v_o .. b_o[v_batch] LOOP
                        m_tenant := m_tenant || v_t; m_table := m_table || 5; m_sign := m_sign || 1;
                        m_row := m_row || concat_ws(E'\n', 'once', v_tenant, encode(o_hash[i], 'hex'),
                            throughline_text(v_receipt));
                    END LOOP;
                END IF;
                FOR i IN v_take .. b_t[v_batch] LOOP
                    UPDATE pending SET taken = v_now WHERE tenant = v_tenant AND id = t_id[i] RETURNING * INTO v_pending;
                    m_tenant := m_tenant || v_t || v_t; m_table := m_table || 6 || 6; m_sign := m_sign || -1 || 1;
                    m_row := m_row
                        || throughline_pending_row(v_tenant, v_pending.id, v_pending.kind, v_pending.log, v_pending.seq,
                               v_pending.opened, v_pending.expires, NULL)
                        || throughline_pending_row(v_tenant, v_pending.id, v_pending.kind, v_pending.log, v_pending.seq,
                               v_pending.opened, v_pending.expires, v_now);
                END LOOP;
                FOR i IN v_q .. b_q[v_batch] LOOP
                    INSERT INTO pending VALUES (v_tenant, q_id[i], q_kind[i], l_id[a_log[q_append[i]]],
                                                c_last[q_append[i]], v_now, v_now + q_expires[i], NULL);
                    m_tenant := m_tenant || v_t; m_table := m_table || 6; m_sign := m_sign || 1;
                    m_row := m_row || throughline_pending_row(v_tenant, q_id[i], q_kind[i], l_id[a_log[q_append[i]]],
                        c_last[q_append[i]], v_now, v_now + q_expires[i], NULL);
                END LOOP;
                FOR i IN v_n .. b_n[v_batch] LOOP
                    n_turn[i] := nextval('turns_id_seq');
                    n_exists[n_same[i]] := true;
                END LOOP;
                FOR i IN v_y .. b_y[v_batch] LOOP
                    IF y_revoked[i] IS NULL THEN
                        INSERT INTO api_keys (tenant, id, label, limits, hash, created, revoked, mac)
                        VALUES (v_tenant, y_id[i], y_label[i], y_limits[i], y_hash[i], v_now, NULL, y_mac[i])
                        RETURNING * INTO v_key;
                    ELSE
                        SELECT * INTO v_key FROM api_keys WHERE tenant = v_tenant AND id = y_id[i];
                        m_tenant := m_tenant || v_t; m_table := m_table || 7; m_sign := m_sign || -1;
                        m_row := m_row || throughline_key_row(v_tenant, v_key.id, v_key.label, v_key.limits, v_key.hash,
                            v_key.revoked, v_key.mac);
                        UPDATE api_keys SET revoked = y_revoked[i], mac = y_mac[i] WHERE tenant = v_tenant AND id = y_id[i]
                        RETURNING * INTO v_key;
                    END IF;
                    m_tenant := m_tenant || v_t; m_table := m_table || 7; m_sign := m_sign || 1;
                    m_row := m_row || throughline_key_row(v_tenant, v_key.id, v_key.label, v_key.limits, v_key.hash,
                        v_key.revoked, v_key.mac);
                END LOOP;
                FOR i IN v_e .. b_e[v_batch] LOOP
                    x_erase := x_erase || i;
                    x_last[i] := l_last[e_log[i]];
                    IF e_all[i] THEN
                        v_log := e_log[i];
                        IF NOT l_changed[v_log] THEN
                            l_changed[v_log] := true;
                            l_row[v_log] := throughline_log_row(l_id[v_log], p_tenants[v_t], l_name[v_log], l_kind[v_log],
                                l_of[v_log], l_fork[v_log], l_fork_at[v_log], l_had_status[v_log], l_gone[v_log]);
                        END IF;
                        l_gone[v_log] := e_why[i];
                    END IF;
                END LOOP;
            END IF;
        END;

        v_answers[v_batch] := v_answer;
        v_a := b_a[v_batch] + 1;
        IF NOT b_plain[v_batch] THEN
            v_o := b_o[v_batch] + 1; v_take := b_t[v_batch] + 1; v_q := b_q[v_batch] + 1; v_n := b_n[v_batch] + 1;
            v_e := b_e[v_batch] + 1; v_y := b_y[v_batch] + 1;
        END IF;
    END LOOP;

    -- Create the segments that this group begins.
    FOR i IN 1 .. cardinality(p_tenants) LOOP
        IF g_id[i] IS NULL AND g_position[i] > g_from[i] THEN
            g_id[i] := nextval('segments_id_seq');
        END IF;
    END LOOP;
    -- A row has the id of its last record. The sequence reserves 256 ids at a time for a pack.
    SELECT array_agg(CASE WHEN c_tenant[r_append[z_record[z]]] IS NOT NULL THEN nextval('records_id_seq') + z_span[z] END)
      INTO w_id FROM generate_series(1, cardinality(z_record)) z;
    -- The metadata of each record in its chain: the same as in chain.rs.
    SELECT array_agg(c_tenant[r_append[r]]),
           array_agg(r_commitment[r] || convert_to(concat_ws(E'\n', 'throughline record 1',
               p_tenant_names[c_tenant[r_append[r]]], l_name[a_log[r_append[r]]], l_nature[a_log[r_append[r]]],
               c_before[r_append[r]] + r_place[r], r_kind[r], coalesce(r_at[r], v_now), r_events[r],
               CASE WHEN r_events[r] > 0 THEN (c_event[r_append[r]] + r_event[r])::text ELSE '' END,
               coalesce(r_about[r]::text, ''), r_size[r], p_writer, c_position[r_append[r]] + r_place[r]), 'UTF8'))
      INTO w_tenant, w_body FROM generate_series(1, cardinality(r_append)) r;
    w_link := array_fill(NULL::bytea, ARRAY[cardinality(r_append)]);
    FOR i IN 1 .. cardinality(r_append) LOOP
        CONTINUE WHEN w_tenant[i] IS NULL;
        v_link := sha256(g_link[w_tenant[i]] || w_body[i]);
        g_link[w_tenant[i]] := v_link;
        w_link[i] := v_link;
    END LOOP;
    IF g_position <> g_from THEN
        IF p_blobs THEN
            INSERT INTO blobs (tenant, hash, content)
            SELECT p_tenants[w_tenant[r]], r_blob[r], r_blob_content[r] FROM generate_series(1, cardinality(r_append)) r
             WHERE w_tenant[r] IS NOT NULL AND r_blob[r] IS NOT NULL
                ON CONFLICT (tenant, hash) DO NOTHING;
        END IF;
        -- The columns of a pack are those of its last record.
        INSERT INTO records
        SELECT w_id[z], p_tenants[w_tenant[r]], l_id[a_log[r_append[r]]], c_before[r_append[r]] + r_place[r],
               CASE WHEN z_span[z] > 0 THEN 'pack' ELSE r_kind[r] END, coalesce(r_at[r], v_now), r_events[r],
               CASE WHEN r_events[r] > 0 THEN c_event[r_append[r]] + r_event[r] END, r_about[r], r_size[r],
               g_id[w_tenant[r]], c_position[r_append[r]] + r_place[r], r_commitment[r], w_link[r], NULL,
               CASE WHEN r_blob[r] IS NOT NULL
                    THEN (SELECT b.id FROM blobs b WHERE b.tenant = p_tenants[w_tenant[r]] AND b.hash = r_blob[r]) END,
               CASE WHEN z_span[z] > 0
                    THEN (SELECT string_agg(throughline_packed(r_kind[q], coalesce(r_at[q], v_now), r_size[q],
                                     r_commitment[q], w_link[q], r_content[q]), ''::bytea ORDER BY q)
                            FROM generate_series(r - z_span[z], r) q)
                    ELSE r_content[r] END,
               z_span[z]
          FROM (SELECT z, z_record[z] AS r FROM generate_series(1, cardinality(z_record)) z) rows
         WHERE w_id[z] IS NOT NULL;
        INSERT INTO salts
        SELECT w_id[r_row[r]] - r_after[r], p_tenants[w_tenant[r]], r_epoch[r], r_salt[r]
          FROM generate_series(1, cardinality(r_append)) r WHERE w_tenant[r] IS NOT NULL;
    END IF;
    INSERT INTO logs (id, tenant, name, kind, of, fork, fork_at, rewinds, status, last, events, bytes, created, updated)
    SELECT l_id[n], l_tenant[n], l_name[n], l_kind[n], l_of[n], l_fork[n], l_fork_at[n], l_rewinds[n], l_status[n], l_last[n],
           l_events[n], l_bytes[n], l_created[n], l_updated[n]
      FROM generate_series(1, cardinality(l_name)) n WHERE l_created[n] IS NOT NULL;
    UPDATE logs l SET last = l_last[n], events = l_events[n], bytes = l.bytes + l_bytes[n], rewinds = l_rewinds[n],
           updated = greatest(l.updated, l_updated[n]), status = coalesce(l_status[n], l.status)
      FROM unnest(l_id) WITH ORDINALITY u(id, n) WHERE l_written[n] AND l_created[n] IS NULL AND l.id = u.id;
    IF cardinality(n_id) > 0 THEN
        INSERT INTO turns
        SELECT n_turn[n], p_tenants[c_tenant[n_append[n]]], n_id[n], n_parent[n], l_id[a_log[n_append[n]]],
               c_before[n_append[n]] + 1, c_last[n_append[n]], n_prefix[n], n_keys[n]
          FROM generate_series(1, cardinality(n_id)) n WHERE n_turn[n] IS NOT NULL;
        -- A key is its kind and its hash: see ../turn_keys.rs.
        INSERT INTO turn_keys
        SELECT p_tenants[c_tenant[n_append[n]]], get_byte(n_keys[n], k), substr(n_keys[n], k + 2, 16), n_turn[n]
          FROM generate_series(1, cardinality(n_id)) n, generate_series(0, octet_length(n_keys[n]) - 1, 17) k
         WHERE n_turn[n] IS NOT NULL;
    END IF;

    -- Contents are destroyed last.
    FOREACH i IN ARRAY x_erase LOOP
        v_tenant := l_tenant[e_log[i]];
        SELECT array_agg(seq) INTO v_seqs FROM unnest(s_erase, s_seq) s(erase, seq) WHERE erase = i;
        -- A row has the number of its last record, so the first row from a number on contains it.
        SELECT array_agg(DISTINCT r.seq) INTO v_rows
          FROM unnest(v_seqs) s(seq)
         CROSS JOIN LATERAL (SELECT r.seq, r.span FROM records r
                              WHERE r.tenant = v_tenant AND r.log = l_id[e_log[i]] AND r.seq >= s.seq
                              ORDER BY r.seq LIMIT 1) r
         WHERE r.seq - greatest(r.span, 0) <= s.seq;
        SELECT array_agg(id), array_agg(DISTINCT blob) FILTER (WHERE blob IS NOT NULL), coalesce(sum(size), 0)
          INTO v_ids, v_blobs, v_bytes
          FROM records
         WHERE tenant = v_tenant AND log = l_id[e_log[i]] AND seq <= x_last[i] AND erased IS NULL AND span <= 0
           AND (e_all[i] OR seq IN (SELECT unnest(v_rows)) OR (e_checkpoints[i] AND kind = 'checkpoint'))
           -- Erasure records stay.
           AND kind NOT IN ('forgotten', 'expired');
        DELETE FROM salts WHERE record = ANY (v_ids);
        UPDATE records SET content = NULL, blob = NULL, erased = e_why[i] WHERE id = ANY (v_ids);
        FOR v_pack IN
            SELECT id, seq, span, content FROM records
             WHERE tenant = v_tenant AND log = l_id[e_log[i]] AND seq <= x_last[i] AND span > 0
               AND (e_all[i] OR seq IN (SELECT unnest(v_rows)))
        LOOP
            -- A damaged span can be larger than any pack.
            DELETE FROM salts WHERE record BETWEEN v_pack.id - least(v_pack.span, 255) AND v_pack.id
               AND (e_all[i] OR record - v_pack.id + v_pack.seq = ANY (v_seqs));
            SELECT * INTO v_new FROM throughline_erase_packed(v_pack.content, v_pack.span, v_pack.seq,
                CASE WHEN NOT e_all[i] THEN v_seqs END, e_why[i]);
            -- Without their salts, the records of a damaged pack cannot be decrypted.
            CONTINUE WHEN v_new.o_pack IS NULL AND NOT e_all[i];
            UPDATE records SET content = coalesce(v_new.o_pack, ''), erased = v_new.o_erased WHERE id = v_pack.id;
            v_bytes := v_bytes + coalesce(v_new.o_bytes, 0);
        END LOOP;
        DELETE FROM blobs b WHERE b.id = ANY (v_blobs)
           AND NOT EXISTS (SELECT FROM records r WHERE r.blob = b.id AND r.erased IS NULL);
        UPDATE logs SET bytes = bytes - v_bytes, gone = CASE WHEN e_all[i] THEN e_why[i] ELSE gone END
         WHERE id = l_id[e_log[i]];
        UPDATE tenants SET era = era + 1 WHERE id = v_tenant RETURNING name, era INTO v_name, v_era;
        w_table := w_table || 1 || 1; w_sign := w_sign || -1 || 1;
        w_row := w_row || throughline_tenant_row(v_tenant, v_name, v_era - 1)
                       || throughline_tenant_row(v_tenant, v_name, v_era);
        IF e_note[i] IS NOT NULL THEN
            SELECT value INTO v_value FROM kept WHERE name = e_note[i];
            IF FOUND THEN
                w_table := w_table || 3; w_sign := w_sign || -1; w_row := w_row || throughline_kept_row(e_note[i], v_value);
            END IF;
            INSERT INTO kept VALUES (e_note[i], e_note_value[i])
                ON CONFLICT (name) DO UPDATE SET value = excluded.value;
            w_table := w_table || 3; w_sign := w_sign || 1;
            w_row := w_row || throughline_kept_row(e_note[i], e_note_value[i]);
        END IF;
    END LOOP;
    IF w_table <> '{}' THEN
        PERFORM throughline_tally(p_key, w_table, w_sign, w_row);
    END IF;

    -- Update the sums for added, changed and removed index rows.
    FOR v_counted IN
        SELECT tenant, tab, throughline_xor(throughline_half(mac, 1)) AS high, throughline_xor(throughline_half(mac, 9)) AS low,
               sum(sign) AS n
          FROM (SELECT tenant, tab, sign, throughline_mac(p_key, line) AS mac
                  FROM (SELECT tenant, tab, sign, line FROM unnest(m_tenant, m_table, m_sign, m_row) m(tenant, tab, sign, line)
                         UNION ALL
                        SELECT array_position(p_tenants, l_tenant[n]), 1, -1, l_row[n]
                          FROM generate_series(1, cardinality(l_name)) n WHERE l_row[n] IS NOT NULL
                         UNION ALL
                        SELECT array_position(p_tenants, l_tenant[n]), 1, 1,
                               throughline_log_row(l_id[n], l_tenant[n], l_name[n], l_kind[n], l_of[n], l_fork[n], l_fork_at[n],
                                                   coalesce(l_status[n], l_had_status[n]), l_gone[n])
                          FROM generate_series(1, cardinality(l_name)) n WHERE l_changed[n]
                         UNION ALL
                        SELECT w_tenant[r], 2, 1,
                               concat_ws(E'\n', 'records', w_id[z], p_tenants[w_tenant[r]], l_id[a_log[r_append[r]]],
                                         c_before[r_append[r]] + r_place[r], g_id[w_tenant[r]],
                                         c_position[r_append[r]] + r_place[r])
                          FROM (SELECT z, z_record[z] AS r FROM generate_series(1, cardinality(z_record)) z) rows
                         WHERE w_id[z] IS NOT NULL
                         UNION ALL
                        SELECT c_tenant[n_append[n]], 3, 1,
                               concat_ws(E'\n', 'turns', n_turn[n], p_tenants[c_tenant[n_append[n]]],
                                         throughline_text(n_id[n]), throughline_text(n_parent[n]), l_id[a_log[n_append[n]]],
                                         c_before[n_append[n]] + 1, c_last[n_append[n]],
                                         coalesce(encode(n_prefix[n], 'hex'), '-'))
                          FROM generate_series(1, cardinality(n_id)) n WHERE n_turn[n] IS NOT NULL
                         UNION ALL
                        SELECT c_tenant[n_append[n]], 4, 1,
                               concat_ws(E'\n', 'turn_keys', p_tenants[c_tenant[n_append[n]]], encode(n_keys[n], 'hex'),
                                         n_turn[n])
                          FROM generate_series(1, cardinality(n_id)) n WHERE n_turn[n] IS NOT NULL) lines
                -- OFFSET prevents the planner from computing each MAC twice.
                OFFSET 0) macs
         GROUP BY tenant, tab
    LOOP
        v_at := (v_counted.tenant - 1) * 21 + (v_counted.tab - 1) * 3;
        g_sums[v_at + 1] := g_sums[v_at + 1] # v_counted.high;
        g_sums[v_at + 2] := g_sums[v_at + 2] # v_counted.low;
        g_sums[v_at + 3] := g_sums[v_at + 3] + v_counted.n;
    END LOOP;
    FOR i IN 1 .. cardinality(p_tenants) LOOP
        CONTINUE WHEN g_position[i] = g_from[i]
            AND g_sums[(i - 1) * 21 + 1 : i * 21] = g_sums_from[(i - 1) * 21 + 1 : i * 21];
        g_id[i] := coalesce(g_id[i], nextval('segments_id_seq'));
        v_sums := array_to_string(g_sums[(i - 1) * 21 + 1 : i * 21], ' ');
        INSERT INTO segments (id, tenant, writer, position, link, changes, sums, mac)
        VALUES (g_id[i], p_tenants[i], p_writer, g_position[i], g_link[i], g_changes[i] + 1, v_sums,
                throughline_mac(p_key, concat_ws(E'\n', 'segments', g_id[i], p_tenants[i], throughline_text(p_writer),
                    g_position[i], encode(g_link[i], 'hex'), g_changes[i] + 1, throughline_text(v_sums))))
            ON CONFLICT (id) DO UPDATE SET position = excluded.position, link = excluded.link, changes = excluded.changes,
                                           sums = CASE WHEN g_holds[i] THEN excluded.sums ELSE segments.sums END,
                                           mac = CASE WHEN g_holds[i] THEN excluded.mac ELSE segments.mac END;
        v_answers := v_answers || format('head %s', i);
    END LOOP;
    UPDATE writers SET number = p_number, answers = v_answers, touched = clock_timestamp() WHERE writer = p_writer;
    RETURN v_answers;
END
$$;

-- Leases a log to an owner, unless another owner holds the lease. The row stays after the lease
-- expires, so that fences only grow.
CREATE FUNCTION throughline_lease(p_lock bigint, p_tenant bigint, p_log text, p_owner text, p_time bigint,
    OUT o_fence bigint, OUT o_until bigint, OUT o_held text) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
BEGIN
    PERFORM throughline_lock(ARRAY[p_lock], false);
    v_now := throughline_now();
    INSERT INTO leases VALUES (p_tenant, p_log, p_owner, 1, v_now + p_time)
        ON CONFLICT (tenant, log) DO UPDATE SET owner = excluded.owner, fence = leases.fence + 1, until = excluded.until
             WHERE leases.until <= v_now OR leases.owner = excluded.owner
        RETURNING fence, until INTO o_fence, o_until;
    IF o_fence IS NULL THEN
        SELECT until - v_now, owner INTO o_until, o_held FROM leases WHERE tenant = p_tenant AND log = p_log;
    END IF;
END
$$;

-- Extends an active lease; returns no row otherwise. A duration of 0 releases the lease.
CREATE FUNCTION throughline_renew(p_lock bigint, p_tenant bigint, p_log text, p_fence bigint, p_time bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint; v_until bigint;
BEGIN
    PERFORM throughline_lock(ARRAY[p_lock], false);
    v_now := throughline_now();
    UPDATE leases SET until = CASE WHEN p_time > 0 THEN v_now + p_time ELSE 0 END
     WHERE tenant = p_tenant AND log = p_log AND fence = p_fence AND until > v_now RETURNING until INTO v_until;
    RETURN v_until;
END
$$;

-- Stores a manifest once: a writer that did not receive the result calls it again.
CREATE FUNCTION throughline_manifest(p_key bytea, p_body text, p_signature bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    PERFORM throughline_lock('{}', false);
    IF NOT EXISTS (SELECT FROM (SELECT signature FROM manifests ORDER BY id DESC LIMIT 256) m
                    WHERE m.signature = p_signature) THEN
        INSERT INTO manifests (body, signature) VALUES (p_body, p_signature) RETURNING id INTO v_id;
        PERFORM throughline_tally(p_key, ARRAY[2], ARRAY[1],
            ARRAY[concat_ws(E'\n', 'manifests', v_id, throughline_text(p_body), encode(p_signature, 'hex'))]);
    END IF;
END
$$;

-- Replaces wrapped salts. A salt that was deleted in the meantime stays deleted.
CREATE FUNCTION throughline_rewrap(p_records bigint[], p_epochs integer[], p_salts bytea[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM throughline_lock('{}', false);
    PERFORM pg_advisory_xact_lock(1414025804, 2);
    UPDATE salts SET epoch = w.epoch, salt = w.salt
      FROM unnest(p_records, p_epochs, p_salts) w(record, epoch, salt) WHERE salts.record = w.record;
END
$$;
