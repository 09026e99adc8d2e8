-- What the writers call, version 1. Everything that decides runs here, in the transaction that writes, by the database's
-- own clock.
--
-- Locks. Everybody who writes takes the lock of the whole store: shared, unless it destroys contents or names too much to
-- lock piece by piece. Then come the locks of the names it touches, in the order of their numbers, so that no two wait for
-- each other. Who takes the store's lock alone knows that nothing is under way: so the numbers of records that it sees
-- have no gap that is filled later.

CREATE FUNCTION throughline_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE FUNCTION throughline_lock(p_locks bigint[], p_alone boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_lock bigint;
BEGIN
    IF p_alone THEN
        PERFORM pg_advisory_xact_lock(1414025804, 0);
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(1414025804, 0);
    FOREACH v_lock IN ARRAY p_locks LOOP
        PERFORM pg_advisory_xact_lock(v_lock);
    END LOOP;
END
$$;

-- Decides on a group of batches, one after the other, and writes those that hold: a batch that is refused writes nothing
-- and leaves the others alone. The parts of all batches stand in columns, in order; each names the batch (or append, node,
-- erase) that it is part of, counted from 1. The answers are a line or more for each batch, then `now`, then the heads that
-- moved; commit.rs reads them.
CREATE FUNCTION throughline_commit(
    p_writer text, p_number bigint, p_relaxed boolean, p_locks bigint[], p_alone boolean,
    p_tenants bigint[], p_tenant_names text[], b_tenant integer[],
    o_batch integer[], o_hash bytea[],
    a_batch integer[], a_log text[], a_kind smallint[], a_of text[], a_fork text[], a_fork_at bigint[],
    a_expect bigint[], a_guard bigint[], a_rewind bigint[], a_status text[],
    r_append integer[], r_kind text[], r_at bigint[], r_events integer[], r_about bigint[], r_size bigint[],
    r_commitment bytea[], r_content bytea[], r_epoch integer[], r_salt bytea[],
    r_blob bytea[], r_blob_content bytea[],
    t_batch integer[], t_id text[],
    q_batch integer[], q_id text[], q_kind text[], q_append integer[], q_expires bigint[],
    n_batch integer[], n_id text[], n_parent text[], n_append integer[], n_prefix bytea[],
    k_node integer[], k_kind smallint[], k_hash bytea[],
    e_batch integer[], e_log text[], e_why smallint[], e_all boolean[], s_erase integer[], s_seq bigint[],
    e_checkpoints boolean[], e_kin bigint[], e_note text[], e_note_value bytea[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint; v_answers text[] := '{}'; v_answer text; v_now bigint;
    v_batch integer; v_tenant bigint; v_t integer; i integer; j integer; v_from integer;
    -- Where the columns are read: the next row of each.
    v_o integer := 1; v_a integer := 1; v_r integer := 1; v_k integer := 1; v_s integer := 1;
    v_take integer := 1; v_q integer := 1; v_n integer := 1; v_e integer := 1;
    v_o_end integer; v_a_end integer; v_take_end integer; v_q_end integer; v_n_end integer; v_e_end integer;
    -- What is known of each append's log.
    c_id bigint[]; c_last bigint[]; c_events bigint[]; c_new boolean[]; c_first bigint[];
    v_id bigint; v_last bigint; v_events bigint; v_gone smallint; v_owner text; v_fence bigint; v_until bigint;
    v_other bigint; v_other_last bigint; v_other_gone smallint; v_rewinds text;
    v_known integer; v_receipts integer; v_receipt text; v_which integer; v_taken bigint; v_expires bigint;
    -- Where this writer's segments end, by tenant.
    g_id bigint[]; g_position bigint[]; g_link bytea[]; g_from bigint[];
    v_segment bigint; v_position bigint; v_link bytea; v_nature text;
    v_seq bigint; v_event bigint; v_at bigint; v_updated bigint; v_began bigint; v_bytes bigint; v_blob bigint; v_record bigint;
    v_ids bigint[]; v_blobs bigint[]; v_seqs bigint[]; v_turn bigint;
BEGIN
    IF p_relaxed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- A group that was sent before and did commit is answered and not written again. One that comes late, after a group
    -- with a higher number, is not written at all.
    LOOP
        SELECT number, answers INTO v_number, v_answers FROM writers WHERE writer = p_writer FOR UPDATE;
        EXIT WHEN FOUND;
        -- The first group may come twice too, and then the second waits here for the first.
        INSERT INTO writers (writer, number, answers) VALUES (p_writer, 0, '{}') ON CONFLICT DO NOTHING;
    END LOOP;
    IF v_number = p_number THEN
        RETURN v_answers;
    ELSIF v_number > p_number THEN
        RAISE EXCEPTION 'a later group was written already';
    END IF;
    v_answers := '{}';

    PERFORM throughline_lock(p_locks, p_alone);
    v_now := throughline_now();

    SELECT array_agg(s.id ORDER BY t.n), array_agg(coalesce(s.position, 0) ORDER BY t.n),
           array_agg(coalesce(s.link, decode(repeat('00', 32), 'hex')) ORDER BY t.n)
      INTO g_id, g_position, g_link
      FROM unnest(p_tenants) WITH ORDINALITY t(id, n) LEFT JOIN segments s ON s.tenant = t.id AND s.writer = p_writer;
    g_from := g_position;

    FOR v_batch IN 1 .. cardinality(b_tenant) LOOP
        v_t := b_tenant[v_batch];
        v_tenant := p_tenants[v_t];
        v_answer := NULL;
        v_o_end := v_o; WHILE o_batch[v_o_end] = v_batch LOOP v_o_end := v_o_end + 1; END LOOP;
        v_a_end := v_a; WHILE a_batch[v_a_end] = v_batch LOOP v_a_end := v_a_end + 1; END LOOP;
        v_take_end := v_take; WHILE t_batch[v_take_end] = v_batch LOOP v_take_end := v_take_end + 1; END LOOP;
        v_q_end := v_q; WHILE q_batch[v_q_end] = v_batch LOOP v_q_end := v_q_end + 1; END LOOP;
        v_n_end := v_n; WHILE n_batch[v_n_end] = v_batch LOOP v_n_end := v_n_end + 1; END LOOP;
        v_e_end := v_e; WHILE e_batch[v_e_end] = v_batch LOOP v_e_end := v_e_end + 1; END LOOP;

        <<decide>>
        BEGIN
            -- (1) Whether it happened before.
            IF v_o_end > v_o THEN
                SELECT count(*), count(DISTINCT w.receipt), min(w.receipt), min(n.i)
                  INTO v_known, v_receipts, v_receipt, v_which
                  FROM generate_series(v_o, v_o_end - 1) n(i)
                  JOIN once w ON w.tenant = v_tenant AND w.name = o_hash[n.i];
                IF v_known = v_o_end - v_o AND v_receipts = 1 THEN
                    v_answer := 'again' || v_receipt;
                    EXIT decide;
                ELSIF v_known > 0 THEN
                    v_answer := 'mixed ' || v_which - v_o;
                    EXIT decide;
                END IF;
            END IF;

            -- (2) Whether each log takes what is added.
            FOR i IN v_a .. v_a_end - 1 LOOP
                SELECT l.id, l.last, l.events, l.gone, h.owner, h.fence, h.until
                  INTO v_id, v_last, v_events, v_gone, v_owner, v_fence, v_until
                  FROM (SELECT) nothing
                  LEFT JOIN logs l ON l.tenant = v_tenant AND l.name = a_log[i]
                  LEFT JOIN leases h ON h.tenant = v_tenant AND h.log = a_log[i];
                -- Whoever may not write at all need not hear what stands there by now.
                IF a_guard[i] = 0 AND v_until > v_now THEN
                    v_answer := format('held %s %s %s', i - v_a, v_until - v_now, v_owner);
                    EXIT decide;
                ELSIF a_guard[i] > 0 AND (v_fence = a_guard[i] AND v_until > v_now) IS NOT TRUE THEN
                    v_answer := 'fenced ' || i - v_a;
                    EXIT decide;
                END IF;
                c_new[i] := a_kind[i] IS NOT NULL;
                IF c_new[i] THEN
                    IF v_id IS NOT NULL THEN
                        v_answer := format('conflict %s 0 %s', i - v_a, v_last);
                        EXIT decide;
                    END IF;
                    v_last := 0;
                    v_events := 0;
                    FOREACH j IN ARRAY ARRAY[1, 2] LOOP
                        CONTINUE WHEN (CASE j WHEN 1 THEN a_fork[i] ELSE a_of[i] END) IS NULL;
                        v_other_last := NULL;
                        v_other_gone := NULL;
                        -- The other log may begin or go on in this same batch.
                        FOR v_from IN v_a .. i - 1 LOOP
                            IF a_log[v_from] = (CASE j WHEN 1 THEN a_fork[i] ELSE a_of[i] END) THEN
                                v_other_last := c_last[v_from] + (SELECT count(*) FROM unnest(r_append) r WHERE r = v_from);
                            END IF;
                        END LOOP;
                        IF v_other_last IS NULL THEN
                            SELECT last, gone INTO v_other_last, v_other_gone FROM logs
                             WHERE tenant = v_tenant AND name = (CASE j WHEN 1 THEN a_fork[i] ELSE a_of[i] END);
                        END IF;
                        IF v_other_last IS NULL THEN
                            v_answer := (CASE j WHEN 1 THEN 'nofork ' ELSE 'noof ' END) || i - v_a;
                            EXIT decide;
                        END IF;
                        IF v_other_gone IS NOT NULL AND a_guard[i] >= 0 THEN
                            v_answer := (CASE j WHEN 1 THEN 'gonefork ' ELSE 'goneof ' END) || i - v_a;
                            EXIT decide;
                        END IF;
                        IF j = 1 THEN
                            IF a_fork_at[i] > v_other_last THEN
                                v_answer := format('beyond %s %s', i - v_a, v_other_last);
                                EXIT decide;
                            END IF;
                            v_last := a_fork_at[i];
                        END IF;
                    END LOOP;
                ELSIF v_id IS NULL THEN
                    v_answer := 'nolog ' || i - v_a;
                    EXIT decide;
                END IF;
                IF a_expect[i] <> v_last THEN
                    v_answer := format('conflict %s %s %s', i - v_a, a_expect[i], v_last);
                    EXIT decide;
                END IF;
                IF v_gone IS NOT NULL AND a_guard[i] >= 0 THEN
                    v_answer := 'gone ' || i - v_a;
                    EXIT decide;
                END IF;
                c_id[i] := v_id;
                c_last[i] := v_last;
                c_events[i] := v_events;
            END LOOP;

            -- (3) Whether what waited can still be decided.
            FOR i IN v_take .. v_take_end - 1 LOOP
                SELECT taken, expires INTO v_taken, v_expires FROM pending WHERE tenant = v_tenant AND id = t_id[i];
                IF NOT FOUND THEN
                    v_answer := 'nopending ' || i - v_take;
                    EXIT decide;
                ELSIF v_taken IS NOT NULL OR v_expires <= v_now THEN
                    v_answer := format('taken %s %s', i - v_take, CASE WHEN v_taken IS NULL THEN 2 ELSE 1 END);
                    EXIT decide;
                END IF;
            END LOOP;

            -- (4) Whether what is asked is new, and rewinds go back.
            FOR i IN v_q .. v_q_end - 1 LOOP
                IF EXISTS (SELECT FROM pending WHERE tenant = v_tenant AND id = q_id[i]) THEN
                    v_answer := 'asked ' || i - v_q;
                    EXIT decide;
                END IF;
            END LOOP;
            FOR i IN v_a .. v_a_end - 1 LOOP
                IF a_rewind[i] > c_last[i] THEN
                    v_answer := format('rewind %s %s', i - v_a, c_last[i]);
                    EXIT decide;
                END IF;
            END LOOP;

            -- (5) Whether captured turns are new; and what is erased, there.
            FOR i IN v_n .. v_n_end - 1 LOOP
                IF EXISTS (SELECT FROM turns WHERE tenant = v_tenant AND name = n_id[i]) THEN
                    v_answer := 'turn ' || i - v_n;
                    EXIT decide;
                END IF;
            END LOOP;
            FOR i IN v_e .. v_e_end - 1 LOOP
                IF e_log[i] <> ALL (a_log[v_a : v_a_end - 1])
                   AND NOT EXISTS (SELECT FROM logs WHERE tenant = v_tenant AND name = e_log[i]) THEN
                    v_answer := 'noerase ' || i - v_e;
                    EXIT decide;
                END IF;
                IF e_kin[i] IS NOT NULL THEN
                    SELECT id INTO v_other FROM logs WHERE tenant = v_tenant AND name = e_log[i];
                    SELECT (SELECT count(*) FROM logs WHERE tenant = v_tenant AND of = v_other)
                         + (SELECT count(*) FROM logs WHERE tenant = v_tenant AND fork = v_other) INTO v_known;
                    IF v_known <> e_kin[i] THEN
                        v_answer := format('kin %s %s %s', i - v_e, e_kin[i], v_known);
                        EXIT decide;
                    END IF;
                END IF;
            END LOOP;

            -- It holds: all of it is written.
            v_answer := 'ok';
            -- The receipt begins with the first of its names, so that no two batches have the same.
            v_receipt := coalesce(encode(o_hash[v_o], 'hex'), '') || E'\n';
            v_segment := g_id[v_t];
            v_position := g_position[v_t];
            v_link := g_link[v_t];
            FOR i IN v_a .. v_a_end - 1 LOOP
                WHILE r_append[v_r] < i LOOP v_r := v_r + 1; END LOOP;
                -- What the log is, as its records prove it: the same as in chain.rs.
                IF c_new[i] THEN
                    c_id[i] := nextval('logs_id_seq');
                    v_nature := concat_ws(E'\n', CASE a_kind[i] WHEN 1 THEN 'thread' ELSE 'run' END,
                        coalesce(a_of[i], ''), coalesce(a_fork[i], ''), coalesce(a_fork_at[i]::text, ''));
                ELSE
                    SELECT concat_ws(E'\n', CASE l.kind WHEN 1 THEN 'thread' ELSE 'run' END, coalesce(o.name, ''),
                                     coalesce(f.name, ''), coalesce(l.fork_at::text, '')) INTO v_nature
                      FROM logs l LEFT JOIN logs o ON o.id = l.of LEFT JOIN logs f ON f.id = l.fork
                     WHERE l.id = c_id[i];
                END IF;
                v_seq := c_last[i];
                v_event := c_events[i];
                v_updated := NULL;
                v_began := NULL;
                v_bytes := 0;
                c_first[i] := v_seq + 1;
                WHILE r_append[v_r] = i LOOP
                    IF v_segment IS NULL THEN
                        v_segment := nextval('segments_id_seq');
                    END IF;
                    v_seq := v_seq + 1;
                    v_position := v_position + 1;
                    v_event := v_event + r_events[v_r];
                    v_at := coalesce(r_at[v_r], v_now);
                    v_updated := greatest(v_updated, v_at);
                    -- What is brought in from elsewhere began when its first record says.
                    v_began := coalesce(v_began, v_at);
                    v_bytes := v_bytes + r_size[v_r];
                    -- The same as in chain.rs.
                    v_link := sha256(v_link || r_commitment[v_r] || convert_to(concat_ws(E'\n', 'throughline record 1',
                        p_tenant_names[v_t], a_log[i], v_nature, v_seq, r_kind[v_r], v_at, r_events[v_r],
                        CASE WHEN r_events[v_r] > 0 THEN v_event::text ELSE '' END, coalesce(r_about[v_r]::text, ''),
                        r_size[v_r], p_writer, v_position), 'UTF8'));
                    v_blob := NULL;
                    IF r_blob[v_r] IS NOT NULL THEN
                        INSERT INTO blobs (tenant, hash, content) VALUES (v_tenant, r_blob[v_r], r_blob_content[v_r])
                            ON CONFLICT (tenant, hash) DO NOTHING RETURNING id INTO v_blob;
                        IF v_blob IS NULL THEN
                            SELECT id INTO v_blob FROM blobs WHERE tenant = v_tenant AND hash = r_blob[v_r];
                        END IF;
                    END IF;
                    v_record := nextval('records_id_seq');
                    INSERT INTO records VALUES (v_record, v_tenant, c_id[i], v_seq, r_kind[v_r], v_at, r_events[v_r],
                        CASE WHEN r_events[v_r] > 0 THEN v_event END, r_about[v_r], r_size[v_r], v_segment, v_position,
                        r_commitment[v_r], v_link, NULL, v_blob, r_content[v_r]);
                    INSERT INTO salts VALUES (v_record, v_tenant, r_epoch[v_r], r_salt[v_r]);
                    v_r := v_r + 1;
                END LOOP;
                v_rewinds := CASE WHEN a_rewind[i] IS NOT NULL THEN c_first[i] || ':' || a_rewind[i] END;
                IF c_new[i] THEN
                    IF a_fork[i] IS NOT NULL THEN
                        -- What the parent had rewound up to there is rewound here too.
                        v_rewinds := nullif(concat_ws(' ', (
                            SELECT string_agg(pair, ' ' ORDER BY n)
                              FROM logs, unnest(string_to_array(rewinds, ' ')) WITH ORDINALITY p(pair, n)
                             WHERE tenant = v_tenant AND name = a_fork[i]
                               AND split_part(pair, ':', 1)::bigint <= a_fork_at[i]), v_rewinds), '');
                    END IF;
                    INSERT INTO logs (id, tenant, name, kind, of, fork, fork_at, rewinds, status, last, events, bytes,
                                      created, updated)
                    VALUES (c_id[i], v_tenant, a_log[i], a_kind[i],
                            (SELECT id FROM logs WHERE tenant = v_tenant AND name = a_of[i]),
                            (SELECT id FROM logs WHERE tenant = v_tenant AND name = a_fork[i]), a_fork_at[i],
                            v_rewinds, a_status[i], v_seq, v_event, v_bytes, coalesce(v_began, v_now),
                            coalesce(v_updated, v_now));
                ELSE
                    UPDATE logs SET last = v_seq, events = v_event, bytes = bytes + v_bytes,
                           updated = greatest(updated, coalesce(v_updated, v_now)),
                           status = coalesce(a_status[i], status),
                           rewinds = nullif(concat_ws(' ', rewinds, v_rewinds), '')
                     WHERE id = c_id[i];
                END IF;
                c_last[i] := v_seq;
                v_answer := v_answer || format(E'\n%s %s %s %s', c_first[i], v_seq, v_event, c_id[i]);
                v_receipt := v_receipt || format(E'%s\t%s\t%s\t%s\n', a_log[i], c_first[i], v_seq, v_event);
            END LOOP;
            g_id[v_t] := v_segment;
            g_position[v_t] := v_position;
            g_link[v_t] := v_link;

            IF v_o_end > v_o THEN
                INSERT INTO once SELECT v_tenant, o_hash[n.i], v_receipt FROM generate_series(v_o, v_o_end - 1) n(i)
                    ON CONFLICT DO NOTHING;
            END IF;
            FOR i IN v_take .. v_take_end - 1 LOOP
                UPDATE pending SET taken = v_now WHERE tenant = v_tenant AND id = t_id[i];
            END LOOP;
            FOR i IN v_q .. v_q_end - 1 LOOP
                INSERT INTO pending VALUES (v_tenant, q_id[i], q_kind[i], c_id[q_append[i]], c_last[q_append[i]],
                                            v_now, v_now + q_expires[i], NULL);
            END LOOP;
            FOR i IN v_n .. v_n_end - 1 LOOP
                INSERT INTO turns (tenant, name, parent, log, first, last, prefix)
                VALUES (v_tenant, n_id[i], n_parent[i], c_id[n_append[i]], c_first[n_append[i]], c_last[n_append[i]],
                        n_prefix[i]) RETURNING id INTO v_turn;
                WHILE k_node[v_k] < i LOOP v_k := v_k + 1; END LOOP;
                WHILE k_node[v_k] = i LOOP
                    INSERT INTO turn_keys VALUES (v_tenant, k_kind[v_k], k_hash[v_k], v_turn) ON CONFLICT DO NOTHING;
                    v_k := v_k + 1;
                END LOOP;
            END LOOP;

            -- (6) Contents are destroyed last.
            FOR i IN v_e .. v_e_end - 1 LOOP
                WHILE s_erase[v_s] < i LOOP v_s := v_s + 1; END LOOP;
                v_seqs := '{}';
                WHILE s_erase[v_s] = i LOOP
                    v_seqs := v_seqs || s_seq[v_s];
                    v_s := v_s + 1;
                END LOOP;
                SELECT id INTO v_other FROM logs WHERE tenant = v_tenant AND name = e_log[i];
                SELECT array_agg(id), array_agg(DISTINCT blob) FILTER (WHERE blob IS NOT NULL), coalesce(sum(size), 0)
                  INTO v_ids, v_blobs, v_bytes
                  FROM records
                 WHERE tenant = v_tenant AND log = v_other AND erased IS NULL
                   AND (e_all[i] OR seq = ANY (v_seqs) OR (e_checkpoints[i] AND kind = 'checkpoint'))
                   -- What says that contents were destroyed stays.
                   AND kind NOT IN ('forgotten', 'expired');
                DELETE FROM salts WHERE record = ANY (v_ids);
                UPDATE records SET content = NULL, blob = NULL, erased = e_why[i] WHERE id = ANY (v_ids);
                DELETE FROM blobs b WHERE b.id = ANY (v_blobs)
                   AND NOT EXISTS (SELECT FROM records r WHERE r.blob = b.id AND r.erased IS NULL);
                UPDATE logs SET bytes = bytes - v_bytes, gone = CASE WHEN e_all[i] THEN e_why[i] ELSE gone END
                 WHERE id = v_other;
                IF e_note[i] IS NOT NULL THEN
                    INSERT INTO kept VALUES (e_note[i], e_note_value[i])
                        ON CONFLICT (name) DO UPDATE SET value = excluded.value;
                END IF;
            END LOOP;
        END;

        v_answers := v_answers || v_answer;
        v_o := v_o_end; v_a := v_a_end; v_take := v_take_end; v_q := v_q_end; v_n := v_n_end; v_e := v_e_end;
    END LOOP;

    v_answers := v_answers || format('now %s', v_now);
    FOR i IN 1 .. cardinality(p_tenants) LOOP
        CONTINUE WHEN g_position[i] = g_from[i];
        INSERT INTO segments VALUES (g_id[i], p_tenants[i], p_writer, g_position[i], g_link[i])
            ON CONFLICT (id) DO UPDATE SET position = excluded.position, link = excluded.link;
        v_answers := v_answers || format('head %s %s %s', i, g_position[i], encode(g_link[i], 'hex'));
    END LOOP;
    UPDATE writers SET number = p_number, answers = v_answers, touched = clock_timestamp() WHERE writer = p_writer;
    RETURN v_answers;
END
$$;

-- Takes a log for an owner, if nobody else holds it. The row stays when the lease is over, so that fences only ever grow.
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

-- Holds a lease until another time, if it still runs; nothing otherwise. A time of 0 gives it back.
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

-- Keeps a manifest, once: whoever did not hear the answer asks again.
CREATE FUNCTION throughline_manifest(p_body text, p_signature bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM throughline_lock('{}', false);
    IF NOT EXISTS (SELECT FROM (SELECT signature FROM manifests ORDER BY id DESC LIMIT 256) m
                    WHERE m.signature = p_signature) THEN
        INSERT INTO manifests (body, signature) VALUES (p_body, p_signature);
    END IF;
END
$$;

-- Wraps salts anew. A salt that is gone meanwhile stays gone.
CREATE FUNCTION throughline_rewrap(p_records bigint[], p_epochs integer[], p_salts bytea[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM throughline_lock('{}', false);
    PERFORM pg_advisory_xact_lock(1414025804, 2);
    UPDATE salts SET epoch = w.epoch, salt = w.salt
      FROM unnest(p_records, p_epochs, p_salts) w(record, epoch, salt) WHERE salts.record = w.record;
END
$$;
