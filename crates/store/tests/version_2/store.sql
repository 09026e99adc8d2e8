SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.throughline_commit(p_writer text, p_number bigint, p_relaxed boolean, p_key bytea, p_locks bigint[], p_alone boolean, p_blobs boolean, p_tenants bigint[], p_tenant_names text[], l_tenant bigint[], l_name text[], b_tenant integer[], b_plain boolean[], b_o integer[], b_a integer[], b_t integer[], b_q integer[], b_n integer[], b_e integer[], b_y integer[], o_hash bytea[], a_log integer[], a_kind smallint[], a_of integer[], a_fork integer[], a_fork_at bigint[], a_expect bigint[], a_guard bigint[], a_rewind bigint[], a_status text[], a_records integer[], a_events bigint[], a_bytes bigint[], a_at bigint[], a_now boolean[], a_began bigint[], r_append integer[], r_place integer[], r_event bigint[], r_kind text[], r_at bigint[], r_events integer[], r_about bigint[], r_size bigint[], r_commitment bytea[], r_content bytea[], r_epoch integer[], r_salt bytea[], r_blob bytea[], r_blob_content bytea[], t_id text[], q_id text[], q_kind text[], q_append integer[], q_expires bigint[], n_id text[], n_parent text[], n_append integer[], n_prefix bytea[], n_k integer[], k_kind smallint[], k_hash bytea[], e_log integer[], e_why smallint[], e_all boolean[], e_checkpoints boolean[], e_kin bigint[], e_note text[], e_note_value bytea[], s_erase integer[], s_seq bigint[], y_id text[], y_label text[], y_limits text[], y_hash bytea[], y_revoked bigint[], y_mac bytea[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
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
    -- For each valid append: its tenant, the state of its log and chain before it, and the log's
    -- last record after it.
    c_tenant integer[]; c_before bigint[]; c_event bigint[]; c_position bigint[]; c_last bigint[];
    -- The records to write, by their index in the columns.
    w_id bigint[]; w_tenant integer[]; w_body bytea[]; w_link bytea[];
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
    v_ids bigint[]; v_blobs bigint[]; v_seqs bigint[]; v_turn bigint;
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
    l_row := l_status;
    c_tenant := array_fill(NULL::integer, ARRAY[cardinality(a_log)]);
    c_before := array_fill(NULL::bigint, ARRAY[cardinality(a_log)]);
    c_event := c_before;
    c_position := c_before;
    c_last := c_before;
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
                    IF EXISTS (SELECT FROM turns WHERE tenant = v_tenant AND name = n_id[i]) THEN
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
                        SELECT (SELECT count(*) FROM logs WHERE tenant = v_tenant AND of = l_id[e_log[i]])
                             + (SELECT count(*) FROM logs WHERE tenant = v_tenant AND fork = l_id[e_log[i]]) INTO v_known;
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
                    INSERT INTO logs (id, tenant, name, kind, of, fork, fork_at, last, events, bytes, created, updated)
                    VALUES (l_id[v_log], v_tenant, l_name[v_log], a_kind[i], l_id[a_of[i]], l_id[a_fork[i]],
                            a_fork_at[i], l_last[v_log], 0, 0, coalesce(a_began[i], v_now), 0);
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
                    INSERT INTO turns (tenant, name, parent, log, first, last, prefix)
                    VALUES (v_tenant, n_id[i], n_parent[i], l_id[a_log[n_append[i]]], c_before[n_append[i]] + 1,
                            c_last[n_append[i]], n_prefix[i]) RETURNING id INTO v_turn;
                    m_tenant := m_tenant || v_t; m_table := m_table || 3; m_sign := m_sign || 1;
                    m_row := m_row || concat_ws(E'\n', 'turns', v_turn, v_tenant, throughline_text(n_id[i]),
                        throughline_text(n_parent[i]), l_id[a_log[n_append[i]]], c_before[n_append[i]] + 1,
                        c_last[n_append[i]], coalesce(encode(n_prefix[i], 'hex'), '-'));
                    -- A turn may have the same key twice.
                    WITH added AS (
                        INSERT INTO turn_keys SELECT v_tenant, k_kind[k], k_hash[k], v_turn
                          FROM generate_series(coalesce(n_k[i - 1], 0) + 1, n_k[i]) k ON CONFLICT DO NOTHING
                        RETURNING kind, hash)
                    SELECT m_tenant || array_agg(v_t), m_table || array_agg(4), m_sign || array_agg(1),
                           m_row || array_agg(concat_ws(E'\n', 'turn_keys', v_tenant, kind, encode(hash, 'hex'), v_turn))
                      INTO m_tenant, m_table, m_sign, m_row FROM added;
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
    -- The metadata of each record in its chain: the same as in chain.rs.
    SELECT array_agg(id), array_agg(tenant), array_agg(body) INTO w_id, w_tenant, w_body
      FROM (SELECT CASE WHEN c_tenant[r_append[r]] IS NOT NULL THEN nextval('records_id_seq') END AS id,
                   c_tenant[r_append[r]] AS tenant,
                   r_commitment[r] || convert_to(concat_ws(E'\n', 'throughline record 1',
                       p_tenant_names[c_tenant[r_append[r]]], l_name[a_log[r_append[r]]], l_nature[a_log[r_append[r]]],
                       c_before[r_append[r]] + r_place[r], r_kind[r], coalesce(r_at[r], v_now), r_events[r],
                       CASE WHEN r_events[r] > 0 THEN (c_event[r_append[r]] + r_event[r])::text ELSE '' END,
                       coalesce(r_about[r]::text, ''), r_size[r], p_writer, c_position[r_append[r]] + r_place[r]),
                       'UTF8') AS body
              FROM generate_series(1, cardinality(r_append)) r) written;
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
             WHERE w_id[r] IS NOT NULL AND r_blob[r] IS NOT NULL
                ON CONFLICT (tenant, hash) DO NOTHING;
        END IF;
        INSERT INTO records
        SELECT w_id[r], p_tenants[w_tenant[r]], l_id[a_log[r_append[r]]], c_before[r_append[r]] + r_place[r], r_kind[r],
               coalesce(r_at[r], v_now), r_events[r],
               CASE WHEN r_events[r] > 0 THEN c_event[r_append[r]] + r_event[r] END, r_about[r], r_size[r],
               g_id[w_tenant[r]], c_position[r_append[r]] + r_place[r], r_commitment[r], w_link[r], NULL,
               CASE WHEN r_blob[r] IS NOT NULL
                    THEN (SELECT b.id FROM blobs b WHERE b.tenant = p_tenants[w_tenant[r]] AND b.hash = r_blob[r]) END,
               r_content[r]
          FROM generate_series(1, cardinality(r_append)) r WHERE w_id[r] IS NOT NULL;
        INSERT INTO salts
        SELECT w_id[r], p_tenants[w_tenant[r]], r_epoch[r], r_salt[r]
          FROM generate_series(1, cardinality(r_append)) r WHERE w_id[r] IS NOT NULL;
    END IF;
    UPDATE logs l SET last = l_last[n], events = l_events[n], bytes = l.bytes + l_bytes[n], rewinds = l_rewinds[n],
           updated = greatest(l.updated, l_updated[n]), status = coalesce(l_status[n], l.status)
      FROM unnest(l_id) WITH ORDINALITY u(id, n) WHERE l_written[n] AND l.id = u.id;
    -- Contents are destroyed last.
    FOREACH i IN ARRAY x_erase LOOP
        v_tenant := l_tenant[e_log[i]];
        SELECT array_agg(seq) INTO v_seqs FROM unnest(s_erase, s_seq) s(erase, seq) WHERE erase = i;
        SELECT array_agg(id), array_agg(DISTINCT blob) FILTER (WHERE blob IS NOT NULL), coalesce(sum(size), 0)
          INTO v_ids, v_blobs, v_bytes
          FROM records
         WHERE tenant = v_tenant AND log = l_id[e_log[i]] AND seq <= x_last[i] AND erased IS NULL
           AND (e_all[i] OR seq = ANY (v_seqs) OR (e_checkpoints[i] AND kind = 'checkpoint'))
           -- Erasure records stay.
           AND kind NOT IN ('forgotten', 'expired');
        DELETE FROM salts WHERE record = ANY (v_ids);
        UPDATE records SET content = NULL, blob = NULL, erased = e_why[i] WHERE id = ANY (v_ids);
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
                               concat_ws(E'\n', 'records', w_id[r], p_tenants[w_tenant[r]], l_id[a_log[r_append[r]]],
                                         c_before[r_append[r]] + r_place[r], g_id[w_tenant[r]],
                                         c_position[r_append[r]] + r_place[r])
                          FROM generate_series(1, cardinality(r_append)) r WHERE w_id[r] IS NOT NULL) lines) macs
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
CREATE FUNCTION public.throughline_half(p_mac bytea, p_from integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT ('x' || encode(substr(p_mac, p_from, 8), 'hex'))::bit(64)::bigint
$$;
CREATE FUNCTION public.throughline_keep(p_key bytea, p_name text, p_value bytea) RETURNS bytea
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.throughline_kept_row(p_name text, p_value bytea) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT concat_ws(E'\n', 'kept', throughline_text(p_name), encode(p_value, 'hex'))
$$;
CREATE FUNCTION public.throughline_key_row(p_tenant bigint, p_id text, p_label text, p_limits text, p_hash bytea, p_revoked bigint, p_mac bytea) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT concat_ws(E'\n', 'api_keys', p_tenant, throughline_text(p_id), throughline_text(p_label), throughline_text(p_limits),
        encode(p_hash, 'hex'), coalesce(p_revoked::text, '-'), coalesce(encode(p_mac, 'hex'), '-'))
$$;
CREATE FUNCTION public.throughline_lease(p_lock bigint, p_tenant bigint, p_log text, p_owner text, p_time bigint, OUT o_fence bigint, OUT o_until bigint, OUT o_held text) RETURNS record
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.throughline_lock(p_locks bigint[], p_alone boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF p_alone THEN
        PERFORM pg_advisory_xact_lock(1414025804, 0);
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(1414025804, 0);
    PERFORM pg_advisory_xact_lock(lock) FROM unnest(p_locks) lock;
END
$$;
CREATE FUNCTION public.throughline_log_row(p_id bigint, p_tenant bigint, p_name text, p_kind smallint, p_of bigint, p_fork bigint, p_fork_at bigint, p_status text, p_gone smallint) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT concat_ws(E'\n', 'logs', p_id, p_tenant, throughline_text(p_name), p_kind, coalesce(p_of::text, '-'),
        coalesce(p_fork::text, '-'), coalesce(p_fork_at::text, '-'), throughline_text(p_status), coalesce(p_gone::text, '-'))
$$;
CREATE FUNCTION public.throughline_mac(p_key bytea, p_row text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT sha256(p_key || sha256(convert_to(p_row, 'UTF8')))
$$;
CREATE FUNCTION public.throughline_manifest(p_key bytea, p_body text, p_signature bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.throughline_now() RETURNS bigint
    LANGUAGE sql
    AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;
CREATE FUNCTION public.throughline_pending_row(p_tenant bigint, p_id text, p_kind text, p_log bigint, p_seq bigint, p_opened bigint, p_expires bigint, p_taken bigint) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT concat_ws(E'\n', 'pending', p_tenant, throughline_text(p_id), throughline_text(p_kind), p_log, p_seq, p_opened,
        coalesce(p_expires::text, '-'), coalesce(p_taken::text, '-'))
$$;
CREATE FUNCTION public.throughline_renew(p_lock bigint, p_tenant bigint, p_log text, p_fence bigint, p_time bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.throughline_replace(p_key bytea, p_name text, p_value bytea) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.throughline_rewrap(p_records bigint[], p_epochs integer[], p_salts bytea[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM throughline_lock('{}', false);
    PERFORM pg_advisory_xact_lock(1414025804, 2);
    UPDATE salts SET epoch = w.epoch, salt = w.salt
      FROM unnest(p_records, p_epochs, p_salts) w(record, epoch, salt) WHERE salts.record = w.record;
END
$$;
CREATE FUNCTION public.throughline_tally(p_key bytea, p_tables integer[], p_signs integer[], p_rows text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.throughline_tenant(p_key bytea, p_name text) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    v_id bigint;
BEGIN
    INSERT INTO tenants (name, created) VALUES (p_name, throughline_now()) ON CONFLICT (name) DO NOTHING RETURNING id INTO v_id;
    IF FOUND THEN
        PERFORM throughline_tally(p_key, ARRAY[1], ARRAY[1], ARRAY[throughline_tenant_row(v_id, p_name, 0)]);
    END IF;
END
$$;
CREATE FUNCTION public.throughline_tenant_row(p_id bigint, p_name text, p_era bigint) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT concat_ws(E'\n', 'tenants', p_id, throughline_text(p_name), p_era)
$$;
CREATE FUNCTION public.throughline_text(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT coalesce(octet_length(p_text) || ':' || p_text, '-')
$$;
CREATE AGGREGATE public.throughline_xor(bigint) (
    SFUNC = int8xor,
    STYPE = bigint,
    INITCOND = '0'
);
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.api_keys (
    tenant bigint NOT NULL,
    id text NOT NULL,
    label text NOT NULL,
    limits text NOT NULL,
    hash bytea NOT NULL,
    created bigint NOT NULL,
    revoked bigint,
    mac bytea
);
CREATE TABLE public.blobs (
    id bigint NOT NULL,
    tenant bigint NOT NULL,
    hash bytea NOT NULL,
    content bytea NOT NULL
);
ALTER TABLE ONLY public.blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE SEQUENCE public.blobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.blobs_id_seq OWNED BY public.blobs.id;
CREATE TABLE public.kept (
    name text NOT NULL,
    value bytea NOT NULL
);
CREATE TABLE public.leases (
    tenant bigint NOT NULL,
    log text NOT NULL,
    owner text NOT NULL,
    fence bigint NOT NULL,
    until bigint NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE public.logs (
    id bigint NOT NULL,
    tenant bigint NOT NULL,
    name text NOT NULL,
    kind smallint NOT NULL,
    of bigint,
    fork bigint,
    fork_at bigint,
    rewinds text,
    status text,
    last bigint NOT NULL,
    events bigint NOT NULL,
    bytes bigint NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    hour bigint GENERATED ALWAYS AS ((updated / 3600000)) STORED,
    gone smallint
)
WITH (fillfactor='80');
CREATE SEQUENCE public.logs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.logs_id_seq OWNED BY public.logs.id;
CREATE TABLE public.manifests (
    id bigint NOT NULL,
    body text NOT NULL,
    signature bytea NOT NULL
);
CREATE SEQUENCE public.manifests_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.manifests_id_seq OWNED BY public.manifests.id;
CREATE TABLE public.once (
    tenant bigint NOT NULL,
    name bytea NOT NULL,
    receipt text NOT NULL
);
CREATE TABLE public.pending (
    tenant bigint NOT NULL,
    id text NOT NULL,
    kind text NOT NULL,
    log bigint NOT NULL,
    seq bigint NOT NULL,
    opened bigint NOT NULL,
    expires bigint,
    taken bigint
);
CREATE TABLE public.records (
    id bigint NOT NULL,
    tenant bigint NOT NULL,
    log bigint NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    at bigint NOT NULL,
    events integer NOT NULL,
    last_event bigint,
    about bigint,
    size bigint NOT NULL,
    segment bigint NOT NULL,
    "position" bigint NOT NULL,
    commitment bytea NOT NULL,
    link bytea NOT NULL,
    erased smallint,
    blob bigint,
    content bytea
);
ALTER TABLE ONLY public.records ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE SEQUENCE public.records_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.records_id_seq OWNED BY public.records.id;
CREATE TABLE public.salts (
    record bigint NOT NULL,
    tenant bigint NOT NULL,
    epoch integer NOT NULL,
    salt bytea NOT NULL
);
CREATE TABLE public.segments (
    id bigint NOT NULL,
    tenant bigint NOT NULL,
    writer text NOT NULL,
    "position" bigint NOT NULL,
    link bytea NOT NULL,
    changes bigint DEFAULT 0 NOT NULL,
    sums text DEFAULT ''::text NOT NULL,
    mac bytea
)
WITH (fillfactor='50');
CREATE SEQUENCE public.segments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.segments_id_seq OWNED BY public.segments.id;
CREATE TABLE public.tenants (
    id bigint NOT NULL,
    name text NOT NULL,
    created bigint NOT NULL,
    era bigint DEFAULT 0 NOT NULL
);
CREATE SEQUENCE public.tenants_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.tenants_id_seq OWNED BY public.tenants.id;
CREATE TABLE public.throughline_schema (
    version integer NOT NULL,
    applied timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE public.turn_keys (
    tenant bigint NOT NULL,
    kind smallint NOT NULL,
    hash bytea NOT NULL,
    turn bigint NOT NULL
);
CREATE TABLE public.turns (
    id bigint NOT NULL,
    tenant bigint NOT NULL,
    name text NOT NULL,
    parent text,
    log bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    prefix bytea
);
CREATE SEQUENCE public.turns_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.turns_id_seq OWNED BY public.turns.id;
CREATE TABLE public.writers (
    writer text NOT NULL,
    number bigint NOT NULL,
    answers text[] NOT NULL,
    touched timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50');
ALTER TABLE ONLY public.blobs ALTER COLUMN id SET DEFAULT nextval('public.blobs_id_seq'::regclass);
ALTER TABLE ONLY public.logs ALTER COLUMN id SET DEFAULT nextval('public.logs_id_seq'::regclass);
ALTER TABLE ONLY public.manifests ALTER COLUMN id SET DEFAULT nextval('public.manifests_id_seq'::regclass);
ALTER TABLE ONLY public.records ALTER COLUMN id SET DEFAULT nextval('public.records_id_seq'::regclass);
ALTER TABLE ONLY public.segments ALTER COLUMN id SET DEFAULT nextval('public.segments_id_seq'::regclass);
ALTER TABLE ONLY public.tenants ALTER COLUMN id SET DEFAULT nextval('public.tenants_id_seq'::regclass);
ALTER TABLE ONLY public.turns ALTER COLUMN id SET DEFAULT nextval('public.turns_id_seq'::regclass);
INSERT INTO public.api_keys VALUES (1, 'key_9861343a7a2e', 'kept', '{"budget_tokens":5}', '\x78292bddeca8e3b8dab4cd65efda07f63eae6c3cb64909c46843d491cb071424', 1794869286418, NULL, '\xb9eddedcb119b9f33c69dfb79b9d0514c354eef3d2a0774bd004ff4a91b1e3b2');
INSERT INTO public.api_keys VALUES (1, 'key_adf4311fa41a', 'revoked', '{}', '\xbcee52e394954e0883bbd36ea24e7c10a9c907054838134b83bd75d6212eb72f', 1794869286423, 1794869286438, '\x0e9e72892f218f61ecc347f90fbfae63151e682e42abf9b7262e4ba2d64f546c');
INSERT INTO public.api_keys VALUES (2, 'key_67be010d6c47', 'revoked', '{}', '\xd910712340c3a809b19dfd14b9bb48dfd6cd3ab51016b4fedc13613ae98fd687', 1794869286894, 1794869286895, '\xf094137e150d0451159fcdfa784fb5b2a99abc3e32dc55f35cb0679304c890f2');
INSERT INTO public.api_keys VALUES (2, 'key_a438e8f4efa0', 'kept', '{"budget_tokens":5}', '\x736d5637cf2318ae6f40b4d863f7443857573e938c25a0f44dda47ee95689e97', 1794869286866, NULL, '\x8ca7bfffd0d41e51821f2a3a9d07f57986316c60a8d7c4c96338f9e1ec6361e7');
INSERT INTO public.api_keys VALUES (1, 'key_7c735d80bbc1', 'two', '{}', '\x99ad943126a430c3d2ffb4753907606e3234a511c186ff03e3321333d6fc58d6', 1794972070297, NULL, '\x8a7519146987b8b4c3d198302eb01de321bf29ee1465cb86fe0966380b020b6e');
INSERT INTO public.blobs VALUES (1, 1, '\x7c07c94c8e609d54105eaf39279f01cabd4443d47d12d9c614e9db494f41ca7c', '\x77dc0aa4cec327eb38484acfc26a0761fe42858e9cc9acd4725d5be9a646ea6c5b2af1b32d13c2690e45102c859b925fc0af9bcac30ace890beba11df6273a8a5c4a108c75cb6b6b68224653aad461fda407f975cc64f775c3ed3e79a5f80e17a6960badedf4584baee0b2536ac5fff0a9135e9df1cbbb438d064d9a2f2551abe477a9ab59872ebbbd24176ad6b8ceba588447d28af24e15bd95f3dca6dcd762632ee575f3e537dd0accea6fc2d41eb87d454ac9fd6b8d4481c247f0bb7f133b8a3125d079469e91af48b4ec4540c11fb7b5c3f2e0e9868eb8b7346af2ae1daba8f885c18a03ba326578d052f97a941355579b8b0e0afad1b61f67385021a85b4e0802ae084dd10666cd70fb1d016c78d30d18ee7feede09b0f91ff94ec0a1166912caf114b6ae2abc9fa0d66fd6678c2bf5a5c8d7ed9f41fd067eea8a895f769ddaf944747ee3ae481e07f3561c8b360d1446288e93b863d362b916f36355c10d3c24e0884f01809e2b1f30151ab026b76a3cc708136af33a69a8114839a7e8ecd6df04a46279ec06ac920b6a3de6fb50eee60b19cb9bcb8a60a748698f4ddd7b2bd92594638243a6483e6581cd19b97abf8ce61468b3f09ed8a0e8c73391badeed386b342ff90a2e0a7fd33c923c4e0d3b588154eac70fb835da2aa60d456c8f11b59635f4f58a586f00b9159a068027c06cc97bb70ab746a2cfdc6e4ec946842f22faa6e1b96bf73e7765f6793fc926254dc788ea48bfd32b5b8b3e0f5e00a152728a78c3d9f48cc1f7e6eacd4f72cb71e1e1863a1ae3f71794d85865da4cb4be9396f5b0de3134a4039ba8f6bb62b43111203252baeec2a83320008307e15a77568e84b8456623a60a52052a001b5c21cb326853c033504c66e3a42fa669afc033d961023fe1506b176ec88a53bed71e6c36c34a560c9fa93c9b1dd156057531c4ac4e5e50d727dced242ecdabd3d88d3d0269d99d7dda92224c9f83e0f28a3dbf1e256d7436d903ab1a530134c2557fa8c73ec5d90a1341039b4526f501fc419a645e931a6e46649f1440622c951232564908f275bcb077895c30258a82b814197802baa505d9c1c5d0f36ab9ed8da024beaf29696bdb9641ca58414e703ceedefbe1b041ab1132eb48acc7aec18c2d25627d6c0fbcc5983c75612e3c16c97afa968e68d07c2ec503a07bd969b9ee45d7083d1a5f4ceb13d1de4da456756de9255cbcd8c3df7875bc82fed5c961c4a1fd9277d664fd16c8d3975d6b8f97773ca5f22f7cb7b5f9647f0d13ac73216c2cb14c9d63eade6957a43f3c6c3f317d9fbd372692676ada22081e4729865319f61d35b53c8cfbda87aed949f922c832129119613b008095c6bd99f0074754014f4fa74a97c393a7f42a5d41520be701b0ab91703248eef0967b7d38f916fff88d419eaf76b96b0f21be63d548822dc75878e72fcd59d0213eca1e8c0deb052719869149e431d09b00d0ba55114be46bd81bf92df46a485240c9571348d842f7016cd2b07d2e6fd6abe642a64a8a48ef6ecf2d93f6be6bf46439b5390de7b88d555a33b2906df41e15ae8ac454c0e7e494f0112c90cb2dbbfc4c0f8eac79f252db50a56047ef6851a4cae2ba902c60457a2b72a2475540b900f88de5e9907dd4fee06d98e482c958591220c9da35360f44752f5cd5e171a303d5ea036e7ae5e14a5c5f7c4122394674f5527d999fa2b760c057578d3d5ab8f1f91113d32e154a2e2ac49c150f42de51fd879729ddb49124c26fd154b59a98e529697968d03c28eedb2f17bb768ea5ed42dcfb633c445bfee786604f3069ca6831ee3e9b6b0cd2b5f6bc7d93906951993954b1486539bad164ae7f5c1aab6b59da0abae5dd72e03d40fd1c35ccbbccd06eb146916466cedc1ba5c1871c8c333a40ad25a9a4fc3be51ca312aab8c000f9f3121e49fa2c6f2342bec9429c857160ca92877c84531babf67e4d9f5093cc22ecfb821c5f65de3b1629512e6fd151565d3d3dee2cbca4192a1bac0684b8ec364e4a1fed0ce15f76f7d74005f197906ad6743da2d395fa22c6691446b6c54c28e165af829eef051d2a717edd973fbd13325c4264350a0bcdb49099930402ba6788b0a0962e664b21780489194c25a4b84661b8c415be9274429f0a0af03b20f6a4d2ddd89d29fcd000ce048993eb25b376cc7f13da0f71a0b3ab46efdce835676bbb0bae6c6386449c40d327ac8babffaf7206357b0ae8f34353a20c40e9d05cf2b0e540b182c2279d8ef8aaf4c03bb6f27f30d823bcab9e42a621d0be1fa69510b5cb14fe7d71080bbc50ec00b52255fe339dbed90c0f8dfb853ea1492676f619ca11484a9cec6cfc324136b34b7a7e29dabea91d8f948bc4398492b79ed893af97a7f9c86af3c91b107f4606f4b41858385cf314d4c75986f272faf5076df86c7833ec3dea2cbf1c48d0f1a4b0a74f1f6dc1f98001ad77359571143fd09f7c820e7ec4b7d09b33a97dfc8d009aae7ead448dc05d56d6562b204172b958ac1a4dacf4d2ff20f87c5b6dd4eecfbb96f9c3a98c58c738d9ac3525cc049512b57a443b9cf32625ee39913023f70c9f0df77f015b55bcb8cd62f897bd11ea728afcaa7890b77fa998dd1b45247d5b96851bc850af5864e8b142a8ca885ab8579c76d4e9697d66a398c2720b376980eafdb385f953f099810402cc4b8a644dbe9bd12b3f86986db3b58884be081acf62e3104747c01d0c59c252d3603799746c0e1e2f521fce564dfd3844632fc899188d2adb777340cceff68fa9f68881c7c3dba8b30828c343ccfbc1289b583b4038dff4b1f92143304e75913308f2fa598b5f54b8a3cdde1773e1c38a720296e36b1172be931233cb575b38686c6ee841b8469a21f147827b5cad44588b57f64adce859f25995dbce09ae62e1da6622fbc5e6c8a2c5b9b79a8a2c27fcef7c5509066f838a03a3a1395a1d015c99a8f95ad06f40c9b9b19203731d16d4cccd8f376747571bb3d1f87589c7ce77c09c34835a925bd64155bdd46db99fa35ce5eb913102be769453d7ee54bfc5d44f94b76f5830f2501401a585009094a75bfa5c86a653557725eb9668e9009247b69282d5c0dd5bc983d5e9b01af612ff1436e9de0895d86e056f5ee3c1aa5a1e2f3b21b2d0bd18d7d08b0558d6497dfbc2e26f4b02b28ae9acb458d351ce9ffc4447a731db43000031ad903bf628657d44a94030f92e8c9b3940988baefe6aa15ff734d946f161580857d73d491471bb31cae82d6f355519005aa936f343af91d1ef25b13f4e472566296d78b58cddee3d9e9c2fc3697943794190226825a6f698beecb68a9e7fbfd14faff99269900a58d576b4526c7be8c9c15b86d361aba73aac304af307b7ecb077587ff7d2bac50df86575886bbe71a95f451d64ad33928cf7bff86070f28fa358a652d7bf3d0f87e24f4488976926a7b92ef3565aad69c75d12d71217de129f264d1aa881f4a084cc6572297a002f4a9b7cf27a9996d1f38e2864ecc341dd4d32994dd43decb68f1471e9903dc57aea3ce9bb863e75cb0edc58d7a31df63ed5aadc9f0e6c9e7ff90a4c097b19c98b5e84dbc68a5ab303fb7bbe64a7c04c89f6700693f0120ee78411178a54fecad2b31471a3fb3cd47622a714b160851a5bad726f76bcbc39ea328f03d44c28ce97cc4fa1d664be57d62e1a06ce141a709d91e9cab6d450f1715aadabb940f102a9ff25b868f53bbac9b0a55755ad67142a4c4bf045e3cbba3617aef7ec81820a2d9c71ed7b15bf91e21b89612f77ca5b802822a976d5302c6b2986b678b782d535bd3bdde05d3f94efeb935b9078f785c019494b6aa08015a2a515326ee70eb4e00bc613439c9ad15f10cfb50cd590212ec4a9f291eb5e899b0115d51884a18bd0180deb34b7de4297aea9c2e5c7071ccfad61fef7b6fa4707ca4a28dd76e0b4bfb15dac8b98607cb0b9b6b26d0020d23dd27f302b70d8f4c43a77782762ecc98bdadb848f1675cd4c3b5bc9229fd5fca45761036e5cde4ad18a7964a22df37bc5d8832e116e39c8b943ccd74475c22bb38c45aab46b622c9fa4ef27865ef0ef94f54e96bd9656bbf47ef76dc49a3054034503080f62ac361f95591dc9f0774c5bf2120a581325efa52e25f7d68c3cf5b9e37ea8249484ca73818a11d6984856d866ede638573fce4f41906c7b6e9a8300b35689fba406b7f3af1c2362398c72a5bd4cb6803f65f8cc43a38916c2f5044aa54e558e0fea8cb8553a1d41eff356cde83d44f2dbc039b497e48eb5fdca124a0d035874a77f03af1b6d98454557722e7c1d3e8a3dc48678d430c0fc97815a2cb892b3c9c16a2f845b746dba1747ed8e57964dc9987cecd43532a7766ce1f7ce74256d6697a703b5bc5f531aea19d630a8f9e5a8150213d2d1ecd144c8c0f7aaa9baef3e948879d3fbcff45c915536eac1accc74e56790926a2bfca54d6a24c1cda2465301e39c78ae8701061478f4718a014cb7b012b704089a13dc325cd332161fdc57fd0dd701dd165c5213d3d4a7047769751e924df23ae90508ade98a2b52c85aa1af670c65ad6b9425a0e8a401f215af376b709f729cf237f7bb74ae920cebf2706663b86c98493eebc09f0c86cd0ab72b1b6bb2dcb31e9d4357f1f57021ea023b1fb6ea0d5444a6ccc195db3e4e56136c6fb5f70b17ca3d2f28f5a39b73d699a2eaa0ed88300400971dd89839a0fd52644f3a3857deeb6dda5fe29d9357a9e3baa24674b75009c6baa528c0eb8007a2b29b56d9a56de4c845113979b1d617a721289ebd4d2d53b821d6ee8e216096708c23a5cd889c90acc97816a16fec8408e3a062e0a91d9e54719df833492ce93e9354541c25dfa1ef3fc2942e81ba50096b60e8b3719b171419dbcae36e213350b2e8a5fbc9285efd1c7a2a53bdc975e2ea1cf7a7ccfc3a7ed65b7bbe9bf564653d5f23e6592c3ee430aae99f57b94488477adebf25893ebbdf077704f1763e685d38037bb19202d7d5e053f4d71557a445639791aa63a00b7ecca9b4d2824c2a98a99865e9f1c57777c77770eba4a5746d9ff67612cc22313e92c0fb7ce2532aca12cc8aa25bed773cb31f27eb736159b667ebb43d8c1d23f9ccd800d89fa467723af494a0c9cdaaf32f15967ae7e43e454b48fedbda4e22f0a6ab228439550a1cfbe30111a9f2e3ed4adf1b79d52cfe928cfc24212c49ce20e200af98e633c46b2517be885cdf047c4f01ec2f3eb840790a9f1ceec726c4d46f39a07a53e3bde1891466a3d1aa86708e930b97022c396637af58c9c3ca6ef57a89d768e165e883fc61d938d503e9698b360a2d836d6c94131e7113aeb8204f40a86e8de816917ae7766f39227221b60e57d2b3589a0d1eb77d6e5539e2147600edf98e0096cf1ac8aea2bbd26e64f091948b77a303376f8dafea894f440a2f35c4e86321a220e9a8340c84e18305ceb537217e720e33122572c839e7e58d935eccd54c1aeac060dc911e038d1fe4b3e086b24f4a2803eacc0510e9d36a93385eaebf55930b04e69eed2ed5332e3937e2a0c112bf3cc3cd16c70919feb318733ab9f55682122dc91c572e2a8c8db2f4ad63fe559c92d51d649039b9c8fa59c8a97ee665012a2abd28505bed4074547005e02729c1c3c43d45c87a1c8198629223bafc7e6feb8d7e6786730dcd96bc29d1d82c8cebcc23c7c98dc9b1df3244c1cd19fa2ea99fe7765b288f3f635e5fe6c4f0beef811f6a93cc0feb4c935536474b3ea855b30b2e8038646e325c78a2242905bceea6226b7ec77fb72f6883c99401414ce1911d09b864ce814d434d38af749ec102241aa7589898181d7b60807604c8a5d22e96372d17182488bce57d0a2f9b2f4e105aee295c54a273f4bda92298c32cad8763bef27befc93825249b4186241262679619c8fca8c6ca08b347e422b0b26717068c8dc8a546e8b61241cc7c97afc29682e30d7ea6dfd24107e2a3d174d18e03527cb0eacccf623140d52afeeb73ee9308b9669b86c89827a35a9264818d413daa5124729d62ec04328195f191a78a5c2b741d9550beba1c4d3277fded469c08b318f1f74baa18c262af6eaafcdf8aa567fd84b23da9b33901e89e79de46369221020a743f855285f00672cf9f77fadb82d9ed6e437112305e213c1d456b5f7a0f6989b9e6edba87c88714083fab8b1ddb1bff9aa8b4696891a0a6eb98cfe3bad4b72a2ab43cc4aba1f963b603902a576a9ebbe67dc9e9b64f835dfcc81dc274bf1e742f1cfc9eb0da63d7f5f15f54d614199230b021f866f9f2a8ca918852eced9540e5d64ecbf1d07327b20fdc29a296a589805cb1247d4ab8543d6084ab17a290fb4b28b882a11dd0560960a2e2031ced3a58dd7005b6d03fde52f4630b83004671b9fa59ba962ebe9fb5892d429023810ba322910fa3abbf6202624936ff9748d03fa4136ac4c1781348170ce44c7c9b4413c9439ca83508d523dfb9a0efe1c555e47c19b246101f7e949c38f7f2144419a92c296c2851eeb2c840d5b341d9ff314a1550bd8e89d54626266af73c933cb8a427c8958cccab08127760cb0aa4092a2c6b0b1af15e8802ccbae23f21b0d7621db3c24659b71a332f22bf1bed6fac55c2ff37c93e6e48f025f54eb71bc47452b85dc2d53f44a333d48cbf62b5608be53dfb8a6baac58416550c9172fec4c52e83eeaef1fd751cd1a4b59247c2ccac41da95788642cc9bf7f0aace3db33ef733124be55a829b80db212f99bebf749a31acad8cca045a3441aca4a1e05fe7fc331fdd8b2ddf99c0052bb4570f88033c1787a31c1e5e5a8504150faf188b7192faef4f10d201a209311b6a6da80e0b3699de2c694370fd86abdfdd06e7471080ccc7232547195d99ffedcdec65131e949153984dec801afa017dc5ac8b7082eab11eef3411b5b2f78c4e1e4181aaa6f04d2e7e5336fa9d44885919a53c28a876d63e63be97571a33109763d1183a98dac5b120ada1820967a031168f043b9da06318db764f7eac102ed3198d6efca23ad96866f1138b86de0debebc51fbe964b9a4b511759fa1b19f8e08a5f7fd454f55f46dae2d88d295632c34a1ea8ee8f08b682e37154aa385ea4c81f28f3179b7d8e7847000912f36272d15e2cbb5d42b3ae15253f33bd1c80f913264f9330acb8fd940b2b16fbe35e13f6ba3ff7a450fe52cef0d4419fdcafd79b76de41b1bbf01d870e2b4743dfd4e05e2817db6c3e79372dc230be816ff9e65caba1db712d4f4421f61ed7f148ae06bc252392452949ce772ba11d15d588b343b467a0cbb49705c8a2199bb1d8595e84af394c250c9832f022b5441b30341d5128f3fa108c27ac18a9933fcd1898fc8b33a4d1fe4cc7aa886ecf024593c903b9ee9c095a6c378f06f3ffc3268fba25fb5a638e303842f629439295cb86c808656f80bf3e131064e4185206d1e6628dc478eec0881b984847803dfc57f9a5709ba7f27c378570b28a019eb77d1e561c34c9ce2eff58b3b65df1fc8daebf6a3036cc84f25c26647a13ac90ddce34114ec1f34dc43f29c1178240c8b54913e464eb32038e5c32ca5102b30bd131d847ae47be416672b6d07817580e24fe8ee21e009e078e07ba3799caa2e29787b8751a9b46ed8352bdbbbb501a04bc096f1ac48109975bc3a2c5c1c8d5920c99400bd0e6a8862e98e5dab76d989f4e58a76836c1b6e4bcc67e9573e2fc97f8f1c3d44e058ef895ee74be08a0b30b21af55c867974643988e9c370530bb72282dbfbbb968ce56cae6d385f97f8966e004c17a17ebebca12887f50cbb4b661c0a50d27b538fb68e9a55d12cfb70de8d3fd572396854f7bfe37954843df305b13c32904ece195446ca97fa7f78724ac59be0fe418a133084c19d7f875a666799c17109d0d23ef3a7c0595a71d2dd1ab2c6ddefd48b06b5315c4a3da2584dffd83e616aafe23b00f4cb16a4c3de33e7e0fc6da807656ff87feef7de2a85a9c5d62ac8703fa6e0684d2191bbb80915459e945da73237949b9868d8437ca24b76d607570c65309139b06d2b139d12ef1fc95475a87108fcd505da0d3c80da0b9b96cb11dfb392c7ee0ef2959740cf9b064ed8145d0bd921f580a000cfd438fa27a801e0c37474b482e88ee24fa21cb2ce967a4d22285427238d884197069586bef63e8daab3b470e9082886ac6428b95a1bc8370faa2f053a31b4185779839de255e0ec06be5114a12d7d2a83184c3e5af16d195a649452eda5f877e62011dcc009b3707f35cfe420185c752cd937e289fdee57e43e20e2c6e715c6ebfed09260fd3889c0eca18b522e260e37dcfb6c5ce9085f3f8625594906672a75e3d77cafd37b0f2da8a414c403ca35047ed451654ae851d2196fedb8da09b6110fe283e28e05ac138c17a666403f13672fd25316d35b12e591d26e5eaf6c2b18bca8c2009472f4e7eac9a0dae858d21f2c4e617cfe1f259ff85fc8dceef95772995bd76f5ff5cd24ddc154959cd39c5ac7f2ce6383eac0392b03f54ca4e86cb7da6cd1837099f2bd1fe1abda072f6eda0654f74729ee43d278c8c1dadf92bccecdbda3364b7140287f6136e84f59e137ab6d3ba28aa08337d60a0b3d83f95816a2f22c939ae76f84a7b41165e6e037b7158be80e70ec454dcfcf9d598997430fe51afce43a28afa8266e4d19735a798aa533158381a351726d34e568010225b70e9f58837da38f26330713f2c09b03c6a387e35bdc70edbbc328a7dc3d50221117ee5925395c1a096271fa4515257a2f3c2f2231a31e10a0cffdd4824ac89f1dab0b46e90be3f728a667ccaf42a0e60450b40a85edcc796a031ba339099b48694e0c22326b2136ca1d8d604facdc2531a17eae063d0aaaf925366e609b7883d98c1c9f02e9bf9d8bdf4a58812baace7729867c3b1cfcb9bcc1f67dd773e790c0ec6e864be2fedbe6aea7dc3aafecfd0636de7d3f2353028c725c97d40b37845d0444b91af7a2bb681ca9737426dc509765d655a9fa092a66e401878788637c87fe1d0ace226b4a468cb6010dd501a0a1160d4b72cab56d84c933bdac1bc490287458cd12950caa0132bffb4f11f9364f4446832bf581db4f2b9e848fdc6282decdfd4858938409471e87ec27f7076df52ac1083258a01a528408d1e9a44a80bb61c97678438db16b6a882b5dbfa7bf79beb0dce1aea45b68ce226bfa897639e36fd4501e4d9c2a9b79b24d31ffcb900aa4995d7637143578527992d0e484752d2bd65f22d57dc9e64ee75f3d1d3889c1601a70c940a1bb215b21e6eab0e3a641c5f0fd1fc3b1c52232d0b2f6e771db0bbf5bb68472472c5ddc2ac8a447805b56760b18055b7bb4682c08d6379396c9874b82f97f9aa957b9304446b49fc8438d7a11f992f69c52c071bd40b8767d975acd069796ab2a927d5b136cab7ac77426b14b3563b97c7e35f412e8cdd28d36da8469e2ed3afdb1d87f2ba52fb038548d56de599a9dad562abb10292ff91c4cefc2a0ede6eac0a34748266c009fc29bd38e087d64d5088c48b6dad5ecf5532da29195dc13a0ddd6198fc9a866532e0db2669eb3a44f3399034204b23f25dcf9be640e97342e594d2d2458e5d0d5e2f7a73df95c016cabe5d1654f33f66ba4b59e8b4318a5cd9e7f4b3daa7b6403a46777fefef15356f6c04038356003ddc57348c95d12e60d975b61c5397636b1d65a7f4fc0e1fdeea856165166debcdc743a1f0838359c7aa1aaadbd269c8143105f768dcec12f06faf36a81ed1a0b86aa334cd5403631d638398d3304d249e8e348a90248ce5e903e450646f1bdf2f29b8a70159e2c5e3d73fb5e2e57c43252c056dbd59e998371975e8751062db5718a8729a5c1078732d3bed381acc40e700e6b15901d2727afc0a44d03b4542d6096749c9955fd49e5e08f6700e2f7bbe79dc748d45a1b6ced39f65f9912d51fca7062dfbf45c18a13cac77cf33b3106c0fff077e2633367219295e22925465a7c5b66dfa4bd06f4d558d9bd7d3aceef7ee79294289b213ebc4ca9f302a8cbc9a08406e6c093c06f23e0365ddb0901925be4688935d7c67b1743111cd20ccf1967e879e01506ae0db35c04a235f446d5688909b1f3578f7f1764326e0e0871d01b6e7d4b9967976c528e95de0db6d1c227a6c0ea8c8de0f4a3d9bbf6505cd53ada9055c758feff4c56e7d46698bd1cf925beb10e5202dc2fb4a85e35e22918f4fc5c6143f871280b8af7e8610ab9b668446a7cf8c911b2876201a641553b0c6ea342dad5ee241d4368c104b6c8ca619519d895fc702108e3b325023c15306e9c6a471dc04e29a7bc03436b81efa265b3cb392762ffd289273db469bc2fcfacf3db55ed5ed6e63c9908ede6c91c438b9daf79a4b1f12a639f3e9017f215d5039c0bfd356c5059321359efd1e4cfe049da31b306d7731461784c7d3791b981cd9f12d4de745d61ba1936077b35508a69327e14f5f2e695911245a61e7cb87a2ca2980bd248c41a8d7f06f35d4917dfe7bad207dc2fc9a029150ca37cdaac24c0550e0bb06f0f6e13f49c8d95aa4df5111a1592cd33573003669fc02a222c254e39c2ac93d25eebd407d68c84b5329b16ce3ee0b009529c232eb032e232c563cdec33cddbb2e0ba47df4c51ff0dadb583fffe3c64d93b1f5287fe80a9556dccd0113b038fc62c4182bb875fb5028780d15fa993e6bca0096a926641d792eb191b9350e67ded3302b54dd9e9dec7af0f78a109bfc9ce69e16dd55635505584c49f5d8ac83a76ede22dd3c06f8d10405b830582d58cffa204ce321ceccbe9ea900e81bb4dc218cd10d8cd976e918d6b24af762e0e8a301bb369f7882258587cfb761786068aeed6dd9f6ba12ffd1977e856022e30dbec9060c5c15deab688ba74280caa11b3bcf2176e0b7b2f0cff0d11e08ec71565ccbe1679bc82f0441ad87d9381dbd3ca4f334c1d3125948c06426880324f795a20ba39497cd8dac6e32cd400e6161f79ccc0891e08d2b6024eaee1ff1a67cda9969f5346d6e274057212709f962907f06422eb09d39dc8dc46335a24a11676619c625849778ce10ee63a856b23905984dcdf8d5979f54061c83ab07b4ebf5f01d58b59df17c656eac3445f452abaffe914f4f519a027d55f4412979abde10a14c23c2a2985e97342984693d4e5ef9c45e99846172ee9617160141ab612b915e86ae58659db5c854a2c4556bebe5891a72b9a60faf034d7ea1ff415ca77bc0e20a82b866661db0877c0bd0b26f77022c1c15198ff42afd157e875d1386b9a9f6657abb2b253c0f7e4d57fb54fa448be50dd184b44a9d2440cc798bcf06fd3feb1f314b0adf7c0437f784a6185dde38ad915d73d65bc1ce7c2b42ff1d817b5aef340a3f2b6f2c51850eae71c7f10d42adcca35301b97e5c2a80c703de222648983ebc1bd6b41407bbc487a4a7efd49647fd6223b7bfa82efea3daec1db736448ff60e1f62313d947240e9675d35134a78b1577e8502b12390309367337ef2fb5d497bd7899726e668e937e227e656a6458e45fcd29d6b9e2b605a354e33a354922dbb133c0d1102eb199f9034efa3913e4f8023a1d2d30d6867090a0c8f75d4a327ab0107f783af861718f654858bf9b8afd5643a6759fae000b3a078f4c715ee763e75b6d4d4f6cc18b15aea06eb6b423c08881765bdb2dbc726b5f178e4355da4159424c56170881074f56ee599a318704506c1d0ca15404b384638ba5898a149c9e8cb1505b943da5b0411645a0f085435678bc0074275a2c8f52f2337429e5e76fc0aa831e7f45d4e230dfacec106b11590d2d48a02d30ca8631e983d5e35298adbf2c2abceb9bf756fec4c0fb1cd5fa7137bc2f018ee9c6a11e8b24b3ec3fb3849b793b9d1aa9c4b2ff69a962d5a5637f20ee75d7bd5669091f5dbad8dc6e1ecddd5aa4360c0d15349d3055b3eaad29149a776d4c4c5444546d12749e40af35a976def87d9f507f462aaf5012008f0db03a6e83245a8615c8da8683cbc16e12e8e7335cd73a9826723f61e15b756ec50b59f580f0ddc28f273ae60190505ff00757c21aba1947db48c43480e82239455fb474e669644aba7fb59ebda8ca0d252714b047a6f5edc7704aff3c3ab80fec7d343a33a710c7d1a250b4e79d9612fad661ffdc407e98ec60064b4dc360a436a6a5a7c10056ff444655d197f7a6aff47a9e10aecd9906df6513680ec5f8f61b3747202f1e3ae5763fac86880a33d8afbc751f5d01d9ce3949df7aadc2b3f7b7e85b0662150b56b812515c64e6bc48f49ac32f0b570be7f70d467fb7b476c8213709cb9d1216dc1114a73369b2f1b7f6a5e4fd03199719cbacb73719357a81a3f320cf88f1734242929e341e783450283bc360962b144379be0a845dc815a0e2918f593b69579dc9656de36698f72336359d4c9bba04ec2841f45043c9b223b70afab9845cbc007997698c5261b482925debba1ed161e32f27655e117893b85f99fdeb65dff80275c82d5c1a113db5438b34e36550def4af221143615be9d89c74cdef26662acdb030490975f181098154cb0ae04b44a270964e16a44d03ca21f3a0ce4680936d7a99c230ecad371c7a1f50475c4a8c29b273decf019b8c52afe13c06e8d20cd2f696440b10fba1472d2dc489eab8f00517cef36724da68fcfdf3972ed0763aaa87f8d6038783e40d3e392bf1e2595138f388c872ce9c92fa303963e346f6ca15e5405fde8b51cd0b7ecd9bdda1f150bf8332c66ec6d2cef62618c67196f63efdad5bd71582d7064f121c3e9ca277b39fc68d39714476a2a7424b167c6b592d296a2f358fda338229a5bc75d3caeb9372c5acd020e300d8eb913e9690a8af84212bcf3951d73131b817e578db82288dadf84ece7b46be39933fa31c03010101497d2ab5da6cad87b860079d8213af1c6f745c1cd8f8f58c9e6bf239af17c737764047ca900ba440ff98a77791104536d5d321a0d65e40c7378b8edd3558766a967d6dbb28292c66c2f87dd061e44dc424e549f806c0eb6dd5a53e83f2c43d2bdbb03a14b4a73429d2919e88bc392850d1f95dfa63a9fdbc179793c51d2b616ef1193cbe3521d6fbbb2808b2104428d63f43cfcc47f8663d608c47832ebd6d50a58db45e41aa0d4fda0de90f46fdbd27f6dcd2d7d049b3f6e0c7bbf3b47c11ca8f88047d1cd60980f5df636cbb581303d68b14a5e1d366eef1dd1b8cfc5bb83eb5558100327edf97726c8bc46cde99e6788f9e6985dcf294a53e5342e4fb3e17d3626545e0a984ae7b46225d450ec8875c402e8409a942a122dfef0903f33922bfdba09363bc0f389c386cf2111eaaa7e19db9cddff320d190eeac84d31917e1b522063c974d6f5df2f1bbdccfb2e0fe36a5c520a356b797fa6c8712f0d638b5d94d69ab4701dff7add14492b91b91037fa92bf90ee2790bb0ff974c773ad9b236bcd4c7540f402d3c53ffebf8ff0fd03c90f9c102fcec403f288b307fa714a8ecca715098193dae9eadbe3d25d02a9d0dad1ed1122a9105c834dbd63c9b9eb8d57406d36950a73fd1a356693e9b03fbcba98b25a272cddc5d5660b8f3e573de855d4171b0a14857bbebaa4fdd1853a23d16b56e578bfb37f2e67d3fa99f536c43b77afce44c06cba074fd392c417fcc2a584745b196c1c75fcd037381ddcb8d9439157d33131d15b2516bf16c566756aae6c192a662bb6c9ce9e675dd1fd248e3ec0c53513379a27a3f60680f5232e2f8240e4fa19b2fa91dd009120966e74a9c7b4b951f9b694b8b00545eb7ed710da4bbf71b8b96c0094d1bb1ebe425b45602b92488e601015083d4f099f4ffd37179a8e4e841eb8a98728e51622ce012cf0874ebed0d0516baa8f8f4b33d1c79d791a1435f97391a188a357e80269ebb0b1cabc77b83a2e3f54d2fcf65f4b8d7a4b50386e106d8a5fe8711487d456977d1d2cd8980fc8d4b7c7c9c1426b773b31547587f427d51a6ecccad88c162c59c7f687c1028884565b605336eec3df649e8626b79994092454d2b17800af003034604437d98caf30c4f3346a095a43cc2ee86ec3d6c17f09fe0ee676b8998a48318f8e253d6e2f507e001c50c8d58068a2407cbe111d9eea70f044a649a8b51777ee9c6eecc168320f0ebbcecd073111ec9b605d3af9a2de033260efae0ff0bce4bdb956276104e195f3724e0e54d487ded71d8acde883e95374495b02583f9095ad5b45d9413210a6fcd4e944558e01d43f5a552076b179eebb5c70d9fed573e3f3880c847f3d4aabe7dd76510dc9c59f35d488c4a42444b2e47e65743ce9fba063cb13d1360d05e340e0d171d19196313c51baf9a7d37196cccf463fce2ab54a3fbc2665ecdacb996dc38d45a74982733ed9d9bbfb280e79b8bb625a02518cb936ae1164131b0acee5ac1aa0ff1f00935862b79332dc5d8f5dbfde63d73379ee1d973c840c914a0241ca171951e84e05c46447480808a10f6cfb8565ef843b89a6397220ca556b66f06acd4a8e33a1e8aa93f15063b2f9397805fb7f353615a5724b38ce13ef407356ddbe003b130c5460427e7b301a2b824074dc76c9eda6b2f63eafe58aac66eb783b1788cf72f35c76f18e67edee518073761b1470d4fbe84371098e4145e282615ca4d93d650aff91cf79f6a5aa0af3d67a2e7035640e2b4d07dc85b687761e8f693a26d264e92f8af00d4b786cba582a91fc9642604518e5d4b0f8079e7c895f2d2048d1628bb67473ec50a17e82130cfdf88207fbd4ab62aafea324c88c99b2970b5e57fc0d9715e13bc44c5811729c79a72b0143cc61226b8cd99af7e22b3abe6929a6c9cb107ebe39536d8305b2389f4595ed1be9f17002e40a5b1b2a2c8927c3bb06f56ae12d6f05297e9f7a78d6e8dcfe814dc7b3ec7eb53a9ecdd12e63bbb49c1f2e879e3e8ed72b71d946f0d0cb09fefdf62f3afe9a1cbe0e584c01fc658740195a2e84c5ca110c79aa642ea6f3eda8b93d13c03e0eb2fd87916870a0c05ba6761a62792eac53c98f466e5d5ee366d430ca8f63ac81de7dcdc01d5aeab4f2d96673ee4d3a5bf9ecb1608b9f3678f592469a519bf437ba2530d808b26f976e989d6c81fe599cfdc3b83fcf8f43656a4ad50c626d9357b5058bcdc295d2f41f06aea99d87214d7abd11b6c0171792a6b0624e2b67d03b221a358392f478925910b1ef33be25146066a6447b6f8005fc725e223f7c419f9a6eb8a8dc63f241b9851dd342c6a39f8438f5b09bc77bc1e9b180242f6863421870e3480c2539cf19b97822a1272b1cdff5ca1fbbf227e1ea528524b78bad82cb3bf4fcaa96993af1040aa1ad4f3b9b1ee3f78cac9fae17fd7b59d1d9dbdb62443601112ec4acb5ccc883cbcefea129eaa75b44e14594e5ceeb0c88e2d48c6ad73cc5e5550b6dbe4d9491b77c8ca5b4ef65d88e48a133858d2bd78a4fffefae2d0a11c3cf439032492976dd418b6da1b0b75728518b8414a8348b80932a4bbc783dffd83d5d974e43a4f4fae1c97d256c77e07f79993542d406b297143b447fc864f114182f6d899bdaad841b5c9f4d1314f36c6741d3c323fa13cce978a5c0181a78e765151ae5906c7e8620a2dd4c6f421b95499db13c49bdd80c7ee2d7cd549eac9695d13ea98538444c8e727c22d52edf46131bde5ac5dfea701c842d46be610d60c62697623581a7680a5a4889e882c3a79ccf9df2709bf14bcaa0494d0bb17c260f3ad15427492ed4e8f0620a678ca26ae327c966abcaefda281b457f964ca2c7227cc0a78ff73b465ff35d97927f49cb0cbab4d718568e2925904d0eab982d75754d69c245e8ebdc26803e324ee8a8ad849bf41b102e61d6e48b4bcb9e0ae0316b853f60fd44b54eac2d2f74296a2dcc4cf6ece58fa6c22d7b7aa0ae0597a6742b35db2981166ddcec26c50db08c555d8bafed5446b56c1c2fd8ed72ad6f6603836a38f8a7230206773e6e8d346c8bd447f66e6dd1a80018fc09e5884258b5148fa57de9eab8fec50d57d2c530eaf97e18a48fef8634b129c58939cbc38b449857477524de40d2b1e472611e9b4da676df3fdb4edeafcf36547357d112a8731568ade89b257b504476ee1d491006dd74b55dcfde8b079a7487ee77a90444e6f54ba7fc11af2dc09fc6e74d7dc7130fc4e308ddec212a8fc683184879a4e767514baf72dcac9d261ce93ba57903e08ebe479fd4f06eabd756f7f2266d2b45be3d51be964083b2f36f3d892827bce2fbfa6429436d38f9cf3b898c4b661a8ce542f603ee4726d6290b510943b04707bfd4d158b7fc45407d92d5dbac05dc0ecd170e4e8642e90d3315fadd1caaeca773eebdbc6d1f3755dc4e9e0d878dc1548e9edd678dd56887779a243f31c3c08074a663c36393cd1250969e7cdafffae948cc3243cf307585d3b7b5cee4eda0972b07bd311ee25b127f7b8e8c370ca34599e334ef642ec567affc4cb991989509215303eef146b5be59433d621fa551cd3fa1793995ad59848c921b7c1e5c917402cf73f4cdfe85a5933e12d631576b92a21907d833d604e588782e1d7d14534af6db8e7b48075785f8af42d11e6d54626aa00285acee8473ac6d36792b08e0db82b5acfc0c1331d56d009487bd951db1be491338aec97757e098c6c8db16a1a3727280b87a1f0ad78cae72d5f0702401e4733c3617f8d1b8b18e564f575e25d40f35f457b6a0dadae6c1c9f1b8e0e244dcef0b89f5ae6291235f755ec62656bf3b320e3334e627e2b87f36e897a661b66c7338746d0adcf1f7c17d743fd65674bdeac8d7e42d264d7d2b52da079cf010accd1c87e24264922e23155a2e9c781a8d8070e2308afb6754369bd9fc8456012ea328e21f6b113aff315837d12aee24046702f7053580aa2e7b38bdaad92056ff64b1b301f2fa146ee72825251c8996c939b5e53907d9b59ca508ab0d02e2b34f342dd1be88007de682f8297a3912396cb9370dbffc5bf7b7faf42c8f43c04aa07c99c3748679eae211a7ba3be77fe887784549d6c9537c9873c2a68de9879a7c7d22f2c2cf41cced5c507e609cc139f67bf0e2da607600bc2b5935f8e13cd0c2aa222e7a6932ab92cd49eae6f0ce19e15663a54ee431ba85b5a0811e44165ac646fc40ab7bdd13e48c78675cb40d370dc676bdf106d3d2d399ca67dbbd964e75c1d97c29b2e51eb188e3401d61957b2a026d2dadb58085460b148e8bce35be669a51d70b6e2bc57b47f463f0004e8dbe5ea34faebf48a5093bb5c2f0c253a327c1275d8c3fe69eebeb5bf0fd7553f0ab63b60d5154bdfdbe06d95b9508008b8f8f391f97ea99278f5c495fea888815c3ef84254b0df7ed8342dea06bee18a0b33ac4cc6a9d14af6127728f8c127148ca290d6b8526a1f1990a50af589c412234eab6cc7f84b706d0c52f09b87aff1e1bc3459e3d726c960a4ccdf590a2d0a952f41d5e9bdd20575b06d0b83f70692aa8bd3412910819d7d68d5807c74855670096f032136ac0190e4b990c050e69baa7643aa0db47b0ea22392b97a8e70d521867858c867a74dec2c458f3b145b8e6ff122ecab4f931464c171dacbc78b43aa88d786293a0f2020a16bc58efd61cde7bd93fc5597f757ef577572c63242b294b7ad1126e32d9ab4a64e8503b5cf25680e24a4ad3e339d3fef0d0c0d059aeeaf3b91357ff6c69aa0e8be8a54889b771c0582752347668d75aae97e6c831af8d87bf03b0fb06d509ce1c03e88dea446af2eab54abf89404edaeed9a2aa7540e6c0a3477e4ee15b17a605a6c2622bc0da199ae6e0f9e0b44b84b2fcb4c19ec159a8fe1a7186aa4eaffde2c9d228e5e0d65e4fec631a9f83e2b5f4ccd8738b0fb6c35a774520af4c66d2c19d6ec113df6261ca48d2970dd244c956354d958eb1471102e5a425c9e50f85905d1e537b738d047502fa24950b7d3cdb26e9c8da3c0ad1a7e76b7c4f09f0dc1efb9b0bb81bcb698dcc004711d4e0b56548ef779afea62c44a6f10cb09285000e35409b336ecdc90e149de8cf2aa2829eace4a8f3830aca259260da207e120748b84e6242aa05b6fea7248dfec1fb471b3d816f80e6d2dc562787cf91c6972955a3adf7274c049ac96e8935bb1f37a69a4f99f6b6af299d4cac6d7ad203f91c11879837d1019b9a13802dbf3876c1fa6a7b25ce9308bbcd9fc88c8b22d28d990012777f5b8c516a9e6f55f447e23f87c58a18c916e7be495d77677867fa2b425243eca8955e43548fc70f43645ee15aa6a5e7ff3b80619927e4cb1db30c89a2c29026d8ce5a4f4d27efdce2664122a1b4fc89736a4bf6440265a008048cc21a5e926301f87e2ef9ea2ec7c3267702321cce54e6d059da508aee5ce711de6d29ce082de0c8ee401ffbd89b168332aa448d22f07e5f39d9806bdbd075451548e7e0233e8b0973816e96ef59964f534dc553604d2af7e8df9962e1e27e2c0bd9daf720efc978f4727cde8690a43f20e72289cfa196e0122d94dd840c534c8ac114e85c19cd689d0b1340fbc751c81f0bdfc345b7d7b06c4ec1e08560665b18af920ef7d00c256a014bd7a4ad3b66949ecadc4c1c6248004b1c2dfa3bbbe508a1f1d11cee7c0156be692fe8744a9e1fda2733d11bd8738faa8e9ab097a9b4577123457e758dfb693c1a2b0ddfb523a78fa60985a756c6fbc9d8cf30a1b3733ab1e8b5369f79a2e4c531ef33f0424e6a0bc65d5e7d742b6fd0dedc6b0b5c13ffa49b96896739a391043f6b6ff994daca8e59b80009f4c94dfe774e47770aadf60e55b61e494f4ddbf1a7846248a3bc8e56db45533b3c2077da2f6d4160cef6288d019e1c5f35cc47e2ec72be9b055134d72cec914b8f7139de3844c7e4eacb343bf4a93015b2dc7dddff8fd6d7bd7bb9d93bff5dfabec52bff32ca52e3c016553b2aafcf47ef44894f973a288a6d1fb19962613163122d68a8b68dc4f744c447c7295fe61679b61e7c05e04312894c5694f586019b83df89fc88f7adede1a1b15f627385efce5db5cdc1ab9d053a82590c9a151a70f289af4a5c8bf66f6fe4600e9a836e98e4c49c8d9053188fd590f32ca812c6223a92ea5bedf4a50fecdb550907cb173119b4a493af38a7e148ba9086bbdd0b06aa5bec4bb19def5fb467a2176ae22bd25e959dc4178c1344fc7db898ece9f7f0e7c81b3e95fac0d359f4d8aa4fd7984bd1010aca44239367cfb4689a0cff675fe9b79ad11ca71cd577e085572e787680adedfb7c16d2f5ea8ca318f236b766c6fa3eb0a2b64786228337129d67bc3c7bf3773bfc76dbcbfa5aeaf13a584d244b439025e3a1b6983326503241040bb24cf642507cb3b8e5755aca858f32576fdfbba0d510793bf338c265754bdffda0b297096825c97f0de6c01ec0dc11ef39df19d23fc16b7b526e92ccdfb2fdfe08618e472d86a51739e092a3da1e98c05f39f33600253ab1f72a83bd2314e8d48de94b5d2a6b6d2f840b166107b82ddc09219e12f3c55f81cdf41c75a140cb67442a08f8bdcb4d7adfe15b9a588179cc776881136ff3baabeb299a9b91d26e099617100db19067e82b002738f5a079d60fe3c02146e832746d83ff59ea5a6c190d5bc1eed9427cdf642a93730183d4e1b5689c3ad630a68f1d2dd68276c655dbef8dd38925cccfbd68cc972e85126e2203603e5cab0b43a3ae8d0930b7f231bce7d529a9733a375104a0fa3ece32344da6c540e701f845a3298e5be0728fcc6e0d0c923fcc30a31ba21f86fe48f84e6122e7b9396fb6e798e60c498b6c4398257860c94e84a149da2c6269db94e3dd15c1ca4e09c78fe4841acdd97f39312408d404ce1b8958a061a273a9cd136d383765c26ff67cd83391ab57e1515c08fc30ff69edd014a5e1b5b63d4e2037852babc8b313a6ae3a05a9ceb2b390d2aa18da4c1bf33fc462fef0cc47d5226e6c99e30b0e46ddc87e0e03f78b40ff67f6eced51f2d66da124c301d84cc6451c0b1d3b4eee2486a00b997efee192f0235cb98f27e7eb539f19abc4b4079353cc795f302d0299307dde5ea766de92cb0e948db99f2322c6aacc48471725040124a82e013213e5797d1bd5d434da7aa72790dfb2ae2cacc050312e1892055550d5c3e4aabd98252c313de5422137b3c6f1862f93805aa99c39d7bc61d408a0de01046c8fc54f156f60d4b7b29190a70f3aef1422be4a00887fc9c6730c86fbdadf016ab3592d09d857ecb4ea3f0983a74d16694e44a2f1f3afcd30259ffd94ea85f7aeb6ae63fa834e429a7712589c9b3b8f12e1ad496356140946be0127c682dda475fc0ba16b24259ce8d02314ecbb5adb195a58d250821c8a12d4b8cbf9308d8627d34ef76ae70ef0a41e55fe73ea739c8d295bb0e1afc026d77ed70edb2d561924ab0834779c20c812dc513c134ab5cd367b34627b6462dfae4988bb3befb7dcbb4ce65bc3f996dc3bbdb3482e81724ddae0e76596d4e2a0c640ba894581bfd2b49434078f0b1d1e53012f7f742ee30d9894cd56b80aa31c935ea29e255c62293254efd6ed881afc4246952d905583379632feaad856b49964105be338eee6508b4df6c88cbc167b8917c4afde2735b57183ab6aed7b72c576187dc1be2486a84f5d09a945d605b70b49a4e4017013d82b0136de5b3d51511a0b6674455aa3e363786818690a0cacaec2a50e9ad0c3b7b1c48e4e8766db1decec55edcea891c84fba93e80ac34e8f5134a5fdb1d3af891616e76bd6fa2cb7ba38b65a2b9bcd067ac3c6728096e70ed1e1dfd2099b857c4b5cd2a5efda8d55bd0b24f24b46684e3d89ff383cf07dac26ddfe9b043c2349038561e47923882729514452331fbcc0e4cb00e1a10a6c330311b3b087becb9bf28b1bec6045279bc286fbc628f2a72d2f4afeaea2ad286156414c7985b899387f58adbedf2ca267c04cb1b062453e297d75d674291ae53fddb63e63541a18d71085a646fbab5cf8a9d0d695fda644776a6327d2036efd0d6c316db36be1ff1758cce695256e611bb5bf265b0a93bfa01ad83aa6786379e90086836d3a16771bbae15c5c48727ff8381c590e970055bd18a81d5075706985084efab9721389ddddd811a8e1475bfe16e67e0248cb8da6690008bc6e3ed10ba465cdc09723bab30d7c434ff4ca87dab9bda36904fefa039b0bfb5b65bc60c0d08679601c553ed1d4f5cafcdf79c9b963ebbf0c949fb03b94e551b6efdf73736335d396c54a8d92f563766749c562dffdf270abf5bf9af4f20cebf9a5586a82ca907408ce057bcdf1af6f8431df1fb7e4ad5f741eff924583a4229756ed90aad57fe042acfdf46975a633478df7d6bacdf3c660a161cb493995d7bdfdd683df3777427d60801432ad395107d4d84fcdda15704cec60546d888f1c9e769df35647794bad1f3b0bd44db5e0f522447aca1b4133221f8c94de4b239d3e5daea6a5a58a0b0c0a1c80b9564d220fddf1449f10408a2199b128861de5e99bc310319edea10a4461b2562e6fccf6d9d5c11c41bd1a7ed01d15b4d011917b6fc402e7802421a243212725fcd0f8045567c21e06213c9941d013b242a01dbfc63742dddb2d1ae94e71b574ad488bb0f74153a7d1bef79fbfa867b2dca4d4238dce53d67c9e9ae8ca7daaeb26a5d7b8009b4384f283f4eb072e11360f83c3d19789f506e67ee69e3844277f1703132d99de4462a613d0fbb5ed1d66885e83444c973c2a401d242eab248e074e61e868b3be8748c50881ede3e6d4f3703c45c3b29d34ad75bff20551a596c36384d49f86d8931c87d9d0b5b2b580c054be40748a2dcf392472a33f77b46e2304f2e7a700d8d4eb385ee1b1a062d588e688756157fd100fdaff3276a2e98841c8f6d43df646274e45369e817ecaa0a723b3e929441d0884faa13480df5d8b500b30ac13047ad01344b8c4f9b6050a29ba9500eefd771efd12ca79af2b6cb363670ab4131c83808c858c43c0b828c5edf490e85055d3b7b9b06cebdc0c355a770faf0bc302dfb6555e86d034bec1ef4a2299cc4a85e904e2149135cb7c5d45c529867d8ef55a7db4a85a877610911976ddcf19a11448ff76fe477427fa15ede1befadd34a7d7ba7ac92302e1938ef27eb9c14631511b9692d9bb6fab1b284cde8eaa9b120aa909344dcab2447b67e89dee5e716c2b86ad211c7c5e290599245130c48b404c474f2274f1a54df8928dc28237f9d5032f9ac8e9765604ff1ab50599f5ab30c615ec1ec5a7c13ba1217ef67e2eecead7fe1c7936049dc9ac469c9e5e3865b14db2fe94accc2f51520600598a76a7e03695cf05755dc06a99ef535d4ead281e85b50ec7401f87f9a9ae335ede0a107e0fbb832281769a76b65bfbb885525f60d7e155b3597621e551fb59fcc0af64c440ff0b4bad308ca824fc6946aa8e7a6dc7b1b9518e50fc9aa643f2498091464cc413f79fda9acf44658f5310a12f277adb332e05c383327b0573670bcc039a0ec39be690c2ead7b685bd15c0fa8bfb2ee35922a7c4cfa3a1d21dd119e3f7c24ebbe32dad3ebf7b1874fc5b0ec9f04f35012c65cce87bfb5eda7a74eda7a5a6f9e05eb0ed2f9c4ba0d3eea06f3e1c4acf4d8062aee645245f810cd1907b99adf06590327c8c66fc85a4f959acc959d7ecab171ed3ac281d495df4577aef74ca4d9ab95c61431cbb0d5f585247293aa68361dce9f2a86cec7a2bf628b3a4ea77e8613252e149a3d2999b023bc3f9bf266b34054aeaf0c85a1ee71f498142d12ab62defea2e2ebec2a437cf4c0e3c113745a788232e4f141659d7672e9bf589bf909e92415da325b76cb04b529ad211a3b144b02702b6c826afb15b26d06b9649b6f836f19e8d29463127ce8c9f4f778a8459b68c0ed1f2976a6c72c0e9e6b11e04ed2d2e89e6ab0a3800cedfcc7491d178bf314bcbed05442c9354e0421f3bb44a6ac69a22acb495a3a8f1acd88e51e74307d1e9aa79c8c80dc8142ddeaf471ae3a15f46f85771225498c66f05c67c228db13e446ecde2b1880ec75f5f0a24f618a7c314263d5475ada4c87e8d4a4b9c50e1f88801d4c5389d1979ae28f6292e584107eff96e458a69ac89e60d3d941280633dac32672bd346d43006fc55cf0915605709449314ed4de39c22fe0f5a137f9e471b2771c06449c5a41be4195cab9beb587306ae5f32cfea1021942264e36cf645f118ef61ab3ab5e2f99b544a7104db04f603ea6e6ba911c69a192abe46555c6ac3a9b422aca8cb3f0d4eb310');
INSERT INTO public.blobs VALUES (2, 2, '\xa0b26c0b5bc32f81816715e4600b8c8e4e1c652d574eaa6657f04755fb0566a2', '\xf945e6db01d6579d66e957fc98ffd8b0487ad5be7e3fd19ae1298f0cd63a580968f7102f715ea9d8343f1f3a94b95f4b2f0eb220ee4de66e5d24ad26dc77d962916c3a4f024ec6973865feca3396e4a8b8b5177f5a518585b21948dbe31987f8583a8e250dffafebf7ede67b3bdc232f3a063b1807492bc6cd852edeec65a8be7b64c380ca33dbc84a4ccd4a9fab3343aadfbc2910385be9f854a445a51042ad7b5b539614bf7860d4b887e21cd48c0b587c8b50d3bb7314570b01068460fcc131b3ce13872dbb866cc79f4b0f26034ed485fb5567162aa7e5108b72a9e621c2bbdb101fa05d3fce7d7d6462142bb2b5c6846403a7372a8d29c59ad44c4fc561db7a84e596c9036a01dceda6693e7b954eeaca9145585ab13a26481cfb74f1a5fc1ba8efdbbe8e2086727f627544dc29eac423117146734106e6d672312cfec1932e84bdcd81a9d799d7fa55f400325ac1b001f3f25a5c878835b1398646ced39b1fbec17e9fb086d7131e0975aeb13fad4607068f60c0e9292a50f440638a1ed2433410133e32f81110d875cb961f9396312a5a8af9e5bd48f0b4191e709e14b2731d89ab5d50d515a511c37df7a4d56a1e01090d9c294f5089f8c8d0bfb3c2cc6690546ca5d0498ec2418e27147a09423459f0ccdf2381a01f6ae58fdaa7f8ca02c36c5b60b22a3bb8747cbaf1d5d12c06dfd0a2629a5a8c9791238546220302246b86dc333b23a11e168172a91dcf00b33afac517201f486c46febb260bbeae2daf0ba6546c157e8e91df7bcc2885b1c9f63eef4f20b8fef990c293c93edff9837adb11f2d665b21bd8edd134db5bd917aa821e88098960389e76d2789c51c120b4d9234345ecd23039dda5e163b6e0a62b9ca7a4926110ebd30d1c7bd9e351a345288eb32ffcd7a7e921db299fdb94d7280abc40bb58b77c03ab07bfefb9bcc3d62740ade77c181cce11e152ba27a5b3c09ddcb1db7e0a9fbce35447fa8f24b1c21efd9750290f2d41e022492a48808dc3f17a306c5ffd39e46ad820b059b674f01ef9ddb8de3f50f7eaa14833cd81e50e3ab972e391b63ef6d242726ccaf7f28f42a6038dbd339031c6e8596a663fd1769c7b43712ba6f18e23f56870cd51f7cb8368a9cf947cb2106c633d8fc84e3a33f83a3a5582574c325eec9a4841c9ea33cffecd0da5a41903a998b1d2f457aacfc75aa3cff18dd7daf3c993f72861096814af301734cc6b587b75189a347478773d322ceb3d9b4a968935900a67fc3b5e4cd09b9cf2fdbfdbdbfb7922bb82b483f33c7a80f91a233fdf4ba48e52d52b76573b47300c223088e1ad81dacb053d4e3b9375424fe0c46d3145ae9ec0495fe67f790c7967f8e60a6d2a0f2cd85b7c5d8d2cbe35ef1c3edb8992d8492b0b4629d6074c48d650c595874d8a0318066cb0966789164503e8ff136aac074b27651b8cb98d4e76f7c4feca3320e09c6c62e35433707dd5f5351fc618d67c823837efaaea173d0e3bb85983aa3fd9d475202ba6dcec6533131de56c8486cabdcc9bc7937a5eb10b634c094511868781b82ee4855da08bacd1b00140523a7f11146f65259ad0256b6c35a7f3b4d2d80de741f0edc1cd4db2ad31b7e30ec92a0fef394039031e7b0bfa40d7ef56cb379ce0c086806b3e5732422504edd1aff095fecbcd64355975510ae680050941c2c2115aa8f5672acf8ed7cc62faede98465c58db343a9ebb52dfc909ed4937467efc4324dddcef6a60b61215b743fd086ed2277b3fc84ac85c3a8a023949adee4b8da8ed44b752b48f85ef2cb40033842d5bb098982cef7bda2e7ea9879f813a8b6ce66089fa5693246fbabe065b98db2922750614b2038bfc28b9b7d2a75aac8479bf87fe31f629ef4766b40bd5ae89ae009a61d5f105a42065b2f73d3dc6c848eb7be62dadd6c8bfee9e7bb234516721c9b61aa762052e9927a6b69a0f718c69d71408f55f5440981d091e16bd297eb177ce9f8cceb06cc30a69846b89e064f6fde43b53ce5a016f3714f475282d2363dbb2df2a62ffb08f6c6621e82dc1ab09d3ebd138bf059dd4cb6dc97622d085b82d5f93c621139bc4c6b9752317033def66a5b3033aba46d545f921104952de974ff8261890e158851a210aac56be86c29d6d48f823cf1f21f248398339e4fd47df708837bdebb746679152c12966b1e8de54df09dfb94e19b5a190c6ac5e2582eead3a6f368930eeb10af3d36f68515b1a3b49669d444e3210f0de64354beb5c561cd5cf117ce9714408d29787b830257b042dc6cf0d04744fcd4ecf434c8f9ac9b8bddbb713234f8fe9d2119fd9a14e23c756cc7c76e076cb8d0a49127218dbe929280f222705778520ed9ba8c06f14304cc76d7781b558b018104bf1a6c62ee1fdac9006b7587dc807e77f7dcb8d48573755b1d4e7c7b36dfaa3829863badff84be85524e783e11d2ce0e7d9458fa7446cf75221313b5b45d573fad3d2c557d060a153da27e12a565dc1ca2815d96a67a31addf517cf542dafa91a64780aaedadc4a9a9749562d1f1eccb55263ba061e451dc7c44ac9afac9ace740a901d889a9603113b8d51a557b64ea8a3f0d9ff6056a08d279b66e2991be7858b040fa7d3039c80c1bb5650e16bf67527f6384f930eaaa744f526daa2075385fd233b5dbbfef013fea3be7b0e2a081319d5bb034b9f00697026cf51aae46746826cc0f03eee9c461bdfe2ac4b280886bacb83e8ffa59cd9ffbb5777d448002769a2eceaee22da85e6f81fd3271dc1b72f3084fb43816e73ea45583dccf2c6c0fdd9fe7228c8f60c92ee5489df066ac63d5e3e23502ea8280204bd99b61ac2d82074f860cf2b626e928bfa013400b2c12591bd10c4f016c2a71c2e29800a23c341dc469ef3a7e026e68ace54601e2697cefae71179a823ddbe1df2dac1e6f201e55c602dae190adf82ffb865d4a25c4e9882dc52e6077171f7007bedda39613a06acd6c7e17a00510b35971442cb05f33e46619e5a0dbbc5b9819ba32250f86f3d8d7033ba49cf0deaa0fb6e5bf3a2c9b49c68e05339d3d64a47dcc4efefa6bfc4438389068616acd6706be503a198deb3a11105abc4abb62307c628688f821e7d178a2ea59b2a1bace58c19154b75b270d26f17a05ed55637cf937c699c4b1af7f77842fcf545da7f498d1290a8b471c791f0ea051e265a1c17cb576a529be9d774af43de95e677869b17af85bf60c3de026cc2b4f40d97905dbef01d8533dad024368427c8c0f0e594d33f0b30833e60c032f2e39ae334cd925c2456761b6ced2eacafa4ea03f55497f2560f001329cb8bf138ca89bf8b5a457ebcfd3931f4c57f3546b59e8c5258419bafcd712dc7a33b50bd40653b7edef38f7ec2eab6378957790f70847e47e50bc07764e318be177b6207532fac3cc5ebb8197e9a9d6cfdcafa1e3b0db71c411d0142d409f593da608b7295dd118011836a09034116ad9a53a3b17c3d56d3f353c2320df65a7453322ee4f51bb2588ec615373153c675d8d16065db44c86aaa05d3463043af715ff5359d133ff29f855c200a86c64a45e8e43cfdf8c6c2c3abc31cbd25ac0d8b9d8fd9fa4d6b5ff662b27888ac959723194fd14f422c5195dc2d3e1a4ec1fe7ffed2649eb899c325788624a02b1931d1f4c59f307b375bf3ded8545a0585d923a6e1107a4c101d2d4b0d3c171b284b5753923308b428f691e6b72e10bebc80cbb562529f8f6c94507486e3c9fcf1f84e3027e5d7390171626e63fe2d665e80b1d7b5028ce958456749a758125255fe24f2d13c7b8787f64a2debdc8c9dfb4f99e87976a0017ce83b9cbcf5d0f16f373bdd756c021daaf7d04cb48acecc3e49ae4f172e7831784824f6f1d01a308ae6bcdf695010e0098a0e86c18308790499c969bf2cee26faec01829c010b22e34ed750638c9a39b3933c2fac038082cc4f119dd97d12394d4eba2022fff49a079bd48673188aa151bdbffac274614efbe611ddc8467052995fcae7c3c4c412b8cd81a69966c90c9f3b3398857c168cef9b473e0820836fae675e8048a792cc1f7df0b315bcb89a87698b29edac6e170c7d9e7fe61c0995fd55fca8407429a7cebbab4b1a71f2a80a119d08df4d214ae64f6fcb47454e3f22f751c8f57a2e423ceebf4528db44df17c7cca8de768467d0f83ee9cadc012ec3dc2d5faea7c5bf5b1899fdb7075c4fb413e641ac0c7a10e3f8d499177a437ca4a28cb3cc8ddad2f5af3b90dd01a658899e568c654a06134315a145f3f650c11a8416ae559b46add1712517df92d89f4ff2dbdb860bb9d8afc53353cbff7a23a85c652c6d84a7783a928031de5c785f0c6803631653e4aab2511f58be155731ac15ce4779d50388e07c8f05fc4c520b6e78cbf4751e87673bc7fbf7856204b1527c00901acaafbf3a27f2923569dd9733678ff64df4384fa0de6da9add6bb568832539276700f0722f5c616b76ecba89d815cf766cd18a0b6d9c23d8560dd608494c2bb6a61187389aafcb26652b378bccc2aa467b8f1dc3dc59e3c43324ea19c115808024577f750e57394afa43c4cfe377fac51d19097edfc5bcc236940151cec3d502e6c4123b41229fd27b01a7b4c1b6f3e4e39e5a064562739a186d4104935d1474a0e222f6fb700b3ab5c607af868627dc4f8ca301d8967b202f1ea6995aa0f63209c213bf11eb308bc47d0bdd84e96df2f1cd091732caec7b5ad36e54f289b3513197e382231504d542b6a723cc855c5db85d4d5ae98c276bd5b3d85bc9c4f28c1bebfc44763495ef5288aafd66e9ba51e0163436e282979d521a58816989aaaf800b773498c6bb7cdded9cfdbc885363e142974eb163a9c3db7074265d3113d5c1c479c6275bb46efb771b210db715533a80f7cfa80984f5cf7caa8700b63a2ffafdb0f793346482395538240947cda8df4651f6e140ed1427b28fcdb0dfd6701b02e69fd593e43a092333cda50c14e3dadece93e0b19557b24e93e6b666e90876fac4768618a372fbad365b85e39b332e33eb2617ff3beb06170276b404b1808c8c072da4cfec9e2f8a95d2577e1a89b2af0ba02c046d8ceabe8bbbd00611897ed032b42a2f3907cc3e95a52606fd0ff0a3c4c441d580a767c938ef4eca0c64a72499e2e91665d9e4d5d2d3e2ac111f29ffb68af3767a49310fb9fc0f4907e0f50d6de963a3933a2215e322832f4192a2296cc2968f1ce8ded7a5e89596bd493fcedc6df0f968ce0571838d0eacbac7cc8b4700ed488beb707b6e186ed69280f74756d443676ba329da71c51d785b6aea48e00d509ec937a478f3082b675d929bd6ec56ce4b7c41c33ce83c0bae9bca3e27ca0c94c8e748bbfc1a1c5eeacc635b428e173dc624a14566e7f5ec322e48a166f2fa602b4fb399f5be9a62963b1872c9be2ac171684ca661c82c0f298989794c3cd9c7c1dc976d42144b68b62da6ebce905b5f6ad2adf8994ddc597eaf929e82ff045c1e8b4949dcf8b733d2908fdd4942df0744aabfb1e5baa3be5db2611b5bce56496856537d51489e0417607ee9a9894925827403e77ae267a4df60875cdfda71720cbc227c16e83781001253acf3401f92960dd583d2d7df0ba5f337b99dfc75c7a8f6b11c3fe3acf5eb4e7b1b9d1f4c7734fba1ba672bf59cc66d2edfb9637df925338ecd695d702904822fe80ca0c438dab3611592846ec3e59504d2846843f4c2b46e3a56f631adf4662e7ee2615ebefb4e16321ad1d3eb64f18f216166149cd100f23042c8cd9fa4b4d05ca3008288dcc918f178d107082c11a4be442996eb3da2b05e51de53fb9499d237ebfc967b3522fa50b0be4fa871ced13cc77c046bd07e9d53f72a9cbd3be1477449d94a7b81b9b69ceee19ddf92bd1a2e0c13be684adba71fd91f7a9caea92551a84bd38b5f3950e65e91b7b35658354baedb17b57f31edbdbac193c7018c5b5420e55eada9ccf2328e848c592f7e4f70be61e7a9475d7796930a8c30251f57069358504a00599a665bf108740a107dab6d2e75d99044b21d928b564ca6d24fb68ac4152f82d782b7a1a3b0288b77f23b43690fbdddf03e32ad5791f78c3a86136dceadcb3b43e509384e9c9da5e0b27354dcb7cf2527905c461fea2169bdc24ea8897667c848f9d992712346938ba37e5ff9e91510e05fa74ae33adc0d3bd026c295c12b8414d42df1040e03c0dc14f7aa7ae5a867be9a853be8a4ac987df399ec614311b94e9bb2dc1b9dbbcb50730298dc0473634d3edba0e42d030669eefead949ab12028808ec6afec1f7fbe3f8f8a2096455ba01eab446ad805da05f788e3ce6e9330cf330d73f1ee58df0fe26dcfe4ed3ea4bc498307b5f9c9bdcccc3d9d204a8dfebe2eeeea792e4ab5723592baee64e1852e55dff3468dd6d00b5758228f629978104c25d45ff9e1eb629a7330f06f1f6036404a2330f1ebf213239cbe7562df3eb8d457f9b16cdfc6c1c134f557ddcb18fda506a28c1593f4d80dc4d163a380c3859d8334b42faaaf40eab0270f568456825e62e10138daa1b5ee4342a5e0a36ef14e139227cd45b115a6d5774a92ce06c99bbdbd3027eb72404e1d02a7714e4f9b163c6444b420766bcca5de2fb1ee5ca7b490bc445662805e2b9a204e196c84204b8d7483acb21ddc3cd61b3b4946e3226e5423ebab824bd2119ead0b3c9c1c2813177923cc2b7658b4cd5736bad29e4a643465be4c1569727fc8e0e95dc6786e25915140c27b6dc3ca61d67c3056b7fdedd4e80178256cbc55add25b8ae8f872ebd5aaab94cc182c56b0ec266db9753d6b91a53023e0f0b87e0cf19efee166daa8b3514ad3d6037750e6b6c5e34005439024740ca3aa8c2496058a116acddf767fdb7b2ba3fbcf8a29f2efa2b1ed72473eba57d3e58d6266ae1599caa18d4425e824279e6d3ec8d60fff6decc44a69979914d926ea6a02dcf171572c0b38eb656afc48308e1abfef212acda1614c6bb8cc2c0989918a18202147e0cc52379ba23fd9f017f47361b6eac372d7e1c71960e452c776cd94f928dfe05b49e7034057249338813c2f1d586422333f7ed05f8de7c61b6dfb090a586a5ac91214538e2e4f703ca66cbc6ed22ca2f7fa0ec4c50c9b84203c20803a5878d969fc9574aa0af22c0889ee6c013dd8f1e8e689aa17f3113a636659e5d0c5fb7177de71d0799f6d0b8412a94ff6d0b95e2d66d1fb8b1583433a4924bd70176138f7e52cde8d89c4e3a94270e92a45ec32d7f543f7ef5ebf9a527d32d42d42d49ebb2275a3b866d680970faf416cfe8a94825106e519f896f29c75d602ab7d68cffd25d829937b68034cad99e0d37cc4a76478b58858cd8d078fcf7d61402a39ac8c041d46583b303c534673ae10669230c0c5242567acd74b300e50f7658a481297fa23ff9ace82f146f802b24ce21aa0693d1ac02cb2284c697abde3b6115cff6f41f68a8f538ea1e094900c66e9b2c00821e7e98ff534bb28f04fc4254a27c75a0a54c22aff35f842584f512d56baf1eed665df6589cb3c0ea83a8d9fd0770fa5b57374d68408f4825314b66a62bc74e769851501f43fa1cdda9f146f79693a25cacde9bade35bd448979fda1a5fbe760f5854065aea81167a41da2ba631779de8bdeb7cff6e296aea9ac45a4dcf940ad4f882a03fa61d239b0d4f2a24c4920cfd9ed34acf72abc2a676909120ce8c3f695f3757986777be02580dad4f6b06625706a07347e0bacf966b5a9cb6d265c9d16795150fa5d31686c6340dea3ddbac07ebd62d4da006d78cdc5ee9b8d3710865c00d173e15507aecfa8c5b47774b956d0dc571d7bbc93f2bd4d68760688e8e19b704e9df8b57bc9919797e24d90787d5f0e9ca6c3c49a3807c58e5cd409a29176fab37568b31c249875306b97ff775554a4eb525879dc441be472cadf09ae6f0bfcb5480ebba10e5da55708a5f31b3e22e01764d385650ba69eea9d2df5e5a50aca6ab0ff097b72ce0d9d98407bf63066a46578667d1ad134e90c70bf5aaab4d979fca406109a36b1d9453f0389ac232f44bb14f6ce48b3e0bf721fc19c41b0fcb46f70fa62b997b65b0cffabada5c8679810d4438b785f4457e434505d5052382f225a4c809eb0f2a41cd450d4d85927c9a3cbb96cabe06c90b3f431c41890d701c8246579b0267bc64c6680ad38311647f54e3e3e557abfb34d097a402d2e9afbea5e59ae394bb7d24022dbe67bedfbc7be46ee3f393fc93756ef7e5eb2b2736092c65391a3e0e2f418d9d5a27085fe4c0d80af0d7ceeb027835f2136d9e26845cda7ce4e620df67bd696c39c0aabf8a50a05b4d731162e90a27fcc92fb057c7f5825588f84936e389caf2989cd43aba321aabdfd63af26847b6c506c75f7ba1cce615b62e862b059eff5e233fc6384cfb148821cca5c107aced0b245d60af9f0bb2b072b6f42a6e211abcee1b1bdd33c8a4d33d3fdc068c861c0095eb75efe84d1144a9246faba1bec1340699a4e795e2abef6019370c5c8cfbefd82bffdf82fac9b3ef5fd9a6418323e2e69ca1120ebb0275f2bf94c7bd26befe977f2e46a9b1b937fa891e4f02dff18d02743b4a887288125fb4fb908006010f8e197938e8428ee61c1921ea5c2fb12c95b7d22689ff76718edd64f112731a078248b46e32c139866a367fa49485ba7fe1e7f2d8763bb0750521152f7cbf1758f135a4c7cd9f691ef6254c38e54773d9e599c07b3bde9d4c31c3f6d986f40eeb5c8391a1ed2f625e370223e6bf249a099b505db2f504b59dae29743b996d176698827f533f000596615494ad28c9eaa02742018f8a3d6fa828f5a5ad4c4d41541ea8d75175058822e2fa2d625bb7ee189299facdb4893b908a4aad05036fb520ce5b20349f7c8a5614949988c76dcc720adc4430469d08df5ecdda29fbeda6533981644e05cfc2a10286c0f45c6714b81e34b61c24de5ab2158affbbe351ec19fb57128bc5d78f1bb84576a1493e5d2addfad68b2b8dcb9efe9778eb46c3ad78a0306283cccf2e48ffbcbc1f333dd4834a39734a9465cbca462de3a8e00ab23ff2a08cecdacb4c782a9894adbb251096e8e65fae8ffe96a70b0a8c17c417d4b783924538cbfd6ef9d53ddf82b5ab783caa206488538974aa7823ab41721360730dbfd4229f30fa65248fd319768fe2547d25311115b64eb50b250dad4c1aeb7b3fe55ccc62be9d12a20b9a96094ce5fa1d10e0223df94dac2b69021510679c2c9342adc45c96c99949c77be046f566e82d83acc840e34ccbe3d2684be4f77be28cb952353d90cb36e9629034a1731b15b4c591d93292c6466d5e891c8935a9b69cf107c6eca4e590bfe9293582741d6fefa3066ca90025bcdf8a740b01ef1a34526f86abdfe4e26aefa3418521d4c4977229d45eb58c2bdcab7bb2f36f2c6b95b9c65f3cc54f20d15e1ad04d0536e87a8076616a4b883264958d7ef0c74ef930c3b1b5ccd062f7ab16516a55b47328a2b645fa9d4ee8b1fefe1d5b4d0d802f25c0ad43ed9460ebc0998c37abc665a07c5630c58bf5344d9a8ba50b7f893d191fa2b016fc47a78ad746ea8f5a0283c059403edfc13f75773b54411423aee768d506d1a71d91da51618da9b2b36cf4c12deb5813475b377c2c18179e73960cc03dc7525fa90ebbf62c2a2130f6d700c90e029603628725c169ae69e7192ba8052322e83612bb667650599120da8b979ee735fe720a612ec077fe9fd206bea4dcc9103f93c3b662d8f17909597179eda540277fa90f6ade17ff5bbab25b4510177663aeb51c3a735c91c640956797e4f378e2ea71cbd156fa74172fd4ce8131263463c89d8300089b1ac382da74a62dcc5067b5954c11687b0c8ea3b080e523c5a75ba57689df7555a49074381ad5f2429090b1ab2efebc322bff2116d61464ccf8ed4cd292eddea4b0f22461c8ec4add55fb0fe0baab03ebdf41df978e41186bc6c037a0c98d051b770b1e574ed1572db5c81c58f2a2d3ea04960fe6570005267920177f6c2292282961fd2dc39d0a9a723fd5b396815c1725b59005468f288b53a331ba8c3a32240c3a36d8f3d7e5886379c8372da2a7ac4fab40be0784161d1782261c9c3303957c2b718204eaf11646d26d38d14e5987784eb881c73c375664e798a69fcdd8d7ebbf7131d2c4f73cf2e637420761300d9dd08170bb507bf4f9f8e21ed958681789f4dfdfb1979de129331d9d8277222d8674aeca9fa6633184a271deb8d20a5ef2abbf08c34f7292c9d7103ce009b9206b1d9d2c10d3d1c57a5af6010749dbb81181deb873aa884af582928e169e5050d53773081a900f2deb0ffd6baf25c12ea91414e3e4f62f76204ae93935cd7bd0fc5131b6a6a42e9b7b8ba3c706ac4cb54553ba28d0e356b255a3ca570c141c4b44af94c050d922998e9b4e454a56ba9a6ffbae24f31f2630eaaaaf215c644ecbdb8d129acce5fdac23b9e48473eb78332e204f9589d92e363c1a67e21efddd69802187565468d60ded2c5d883df11391feac11c1d9bd7ab351c7d730ad7e6228c36e80ee1481c552cbe8b2d734f4cbc31494ab8138640f223e6de74d277f40cdfc2ccef57a3b46780f3cd762490a9659255a8610931be89ff0805246a0bcb80c98e132484697aedbcbe24f210c404b1960056201172c97e7b31679e68bdae07b6f6643496279bc5117bedd568fc926b428a44bf81387a87a8ac9a689c7e7e72ebd78ba67d44f4b0e9911781968d430ebf5db114fb9ade7a3e7015b9252962fe24845e7230d7e0db398d67fabb64497c4c77c52ecc1d33f6a885267f658e18e56fbf573f4dd55e763ba16f81a60c88d89e75aa6330ee9e05499af460f929ceeb22e769cc19505417ca7ec7ccc282f73b260fac4d5602e7cf66403ae1e516092f11b578205772182e38e9d922617d75ad2f85aaae23e7e979b7533f2b17a642dc5d2a850aec9142e1c240a236e8a70909aa6cc7b379bf9bc4105d14307815c512e1c54d41ae476c2131381bc42f9f221d9884a25856f4d2655e3b87ba498e20e45f5184b058f6f4cefc48abff2842a5a8197d34fde19db1563778506f052067c98cbe4ac9f63cb766abebe974066bc9644ac0604fcea4a247bd673799583db3873a91bf01e4854b54ff0fe7bf33e92402776d841849315b37589f9d2fd9c345f531a12b12993292ebc66eba966ab34d0192c63c21dfc3f296840b9694d1a89c9f17b86d25ed3b1ed7bfcbc0d2dd7edee21a5f1f3637c7537593f140bdb5b36fd9f10e191411db8918a334e08c5df081c8a60bcf95bca75430947421cd7ac29f3c73eb12c3272c8f0c0f02838ebe894447fcf54c1946ab1e5ab82dff3410a170fe295a172fc99e5d537b1176a9455a8b6f01a2468cab9d64800ef2ed07c62d1ac97eaaf7b694aceb9c2f09702bddeae07f935fe980f74befbeb046ee90dafd26deec15f0691d0f50c0b5314c6ad80c5c35b42b13d588e20cced95ab843f58e4967f1df47b6a9ed99fc97e2d234ff95081b4558bb03991a30816bd4100bf1914c9f39539826d441d36ac0e789ebf503d7469f8a288e0029d8f11453a8bec43a30365ff5cb50cb3a5618c47c37a334a166df9a1056686d1ce7ada7a9c0602dc1420350b67fc49128bf0e775c71308ecea5087f8ffeebf54cf4e7b5d65590ae7a3ca85cd4621494c72ccdf50a535c654fce1ec502b298d15ee19087822d709a689c62125c1b9276bc6ed190f353ed1fff9f13aca30ca5c30b51b3c8fe8ad7c791d5e1fbd2d3a7ee4c78719145ffbec7388299c8f6e13968e6c4a6959345b098cf104261695be55d27961d2963092d3983740e73af92fe4e5e281d830be3dc1d52858707323956446adea37f18774eec58094c2003b79a706e2141ebe13560d81092d9d46d187b35e538b781046a8cb6f27079b7ccb5c01028ed6332f4aa8aedac53e6d6664007e5dff23d8f04afe63d65966f1677334c6ae16fe123f48e932c1e0712b9c253217738106dab68da2c3bb58204f135bcecceee8eb1c6a80fd3b0d1cd2e294f48b24e011acc2c553a66eefbcb7487170ff0c1c9df5536fbce434a05c31dc532f091054592b3c532b3328ffe80b2aab7c76ea77a245ce55016ccb9e62a1da6891cec62bc9f0416aa17bc03c5f2293d5766862ce35bffb5123f639a17171a54db0255d6c57191e2bf8599c7d922ceaa594c89ea4158e325b14a2259ce5362c6e038c3dedaa851f420efd3371ca1ef3cba40b2c6cc9865f90522a1ecf1e99a1dfec62e77716d49a04f587a8fe3bd6f95a097f206e770b680478042414b402b14cbdd27807db1f6f5f3d4164c10b6b6e710b22a80dd5ba45b54a748e9a7816c9226741dd5fdb2a1d99bad890dba41d85a8dbcb40064d082e91a0a6c4840155521d5ea9bd021de6d38a8db00d72e7cfc849d5ce2659d899c28b4870f55516d7b75a6bd5355fada6e0848449a590de038b5bebea17a06927b53425c61a709d7161409806f8b33353de6b63157986f143cee37704e1c279dfa5d2f1877f0d75b149f12953d876afd0c75a713cec5d8cc79b96fc2580db8a9449bba31d84db47259e3ecc71a109dcc40c68b54ceb97e37958e71259ca22de0a6eace6ef5ac4441a99c3ee55d97e9b29f90b8e271bc2da85a0842fe91d549debc1a6290f82e56d54f03d2e9de4fc81573f3e72473fcc64a3d77321c8351a9c349a2e4818de0b46c5a4263deff2d30ee7f36437d1f74c4a97bba8e535a13fa5b55545f616a536d29092ba5a63da8eebd48dcbf9d082646a8ea72316c75adfb970d02d8ee9ee48ddddcc9068072f504db26ebd22dac5f8879a1a003a006036e22fdf57001dccd647f8a7623b03596e9b6456ccb9303d411a7c18593f1fd16cef63e6b12960b8ee23a73981073dc4d7adae18a43b427b23117db5a69faf109ec96fa6c523dfb01d5eaf229fd532325f545d15da1627ac3cfe3aa09a4f527e8c4776a2e8717a6c5766d52fb94461f284690eea10f44a01cf730ed56580565421e53b4d7b16c0adea1aba3754fccd0350d00204f33acce3b4e84d3f3514ab682897c4d65d06fee29a349d1f1a5fb5e4c821f3e818121417e44a3bf70f59864cfa028abf5fa15c1586555316c0f737624ee9df1e8321058031c53d37843244da7a0455ea912774801fc5ca940dc3326459f28bfbf3c4ef92b59f1eaacabbf2ee053c991ca071b9fd77a38347d517f45faf4736e34aa366e8a8727af8ceafe9250aa5115ec13b086d0dbec733e0b259e0bea807896856ccc83e826129ec32aa20c48180d91fb240668e12b62a229de654b6fbf764876ce81f5ebdd3169c8d1b192ad0771d2e1694d47908c72671dc093982e5b73f3f623be82ef93aa1838f05d77dc5a7263ca736e2df9f0f4ebac09bd161dbe54b481a2f7f1b8bf3f9d61418b9fcd165132e5b527aaa401d37cf335d41a89e0e86be76098f76122ace571d26e4ec75d9275aafcbc89cd61b980cf4959d6748df32cc5eaea2c880511cd3c513f841d61e7b0328d7698035aff946c506dabc8e6df22f384efd587b5a47a9344d87041a11195f13ca46fc9ce08f949011c00f97351cd1894033a7a2c2cf11cc6f0d631755e6444e95b08b18dfc71f811c1884dd48e4e138ac2d8a40c178c7cf6fc0252cd6adb220292152ebd31edf8a6b70ba00ecb010ecf228bfefccd50704d3dd9444e189c1418859d88520d36a6fd2a47e522dbcaca8f2d2ec27dbc80f1b93503fbf8657e9b70ab897d90c708ff4752c0ad4847fe101a9f5c600a53d19ddb87ca5974c8b60d848f46eb655e9ebf6db58a480e9507467ba54410b72a75bb3254d634844e74723af98f5be796a4f4bfaeea2ef8d70e4e9821a26b939ae950bf3091c89f2e4a2f4f7cba8e856346bd5e2096695310ec3aabc1e43aeb2453d1f0219cc6dff520b811734d11a6ae36c81aa0e04881e58610bb8d4d842723a71b54484e6412ee42a2ac6f2403cd528200ece5e4b351fd30c240190e3303fb2f332c1bc6418c7c382db4911c0737f53711d92af5eac0b289cff8df585ec1724355c123bf773fadfb898cbfd22472e69d6c1b5cb32f8d3130695ffb0f4f3f8250eae3f64526f8a90ea4e8ce27e3c5dd13ae50e427c64c3456fac40e3caf3e366e4e1b31a3b96cbaf077737278285e532b3a9a9b36745773806e7c82e12e3393dd17eac329dc6738a95aae7a2a17e5120572e1be37591dabb4134634c2c5a773afb4938abfa1e9f413fad2dc8472971f6b8ccf4561901dc817f51be4622c279317164969d3c174589e23200d7f58adb13a3d870e1c88eba7ca63c73728d5f71e70a2858817be4996abe363b478fc0c8eca49273acf4e107d88e8f02ee38a501cf8846724ae129f52a935e35b8479c4f586e03bf925b2a904545c3235f6c7897826c9d291e218ff8c2164b18a8a08bccb995d02769449e09d661e1823eb57fc1a8ffabbbbd3f2724857e48a5b5ed7a4e2109111627226be80a874e8b5c1da5622a531c2f6018196ee5c842d2e52b6287223cf1c2db81f9961267eafa3c11c9c270586ed128b5220c588bb4679d035da4d2f77096ff2d2bc8014d19c09f4ad552b41787f2f986b650e9cf6aac5f2110f098d079ae1efa7718cc3d2db463ab7b68ea538ad5a09d48640742cf1d4497639fb1e65765283aec8cee884769a8d574912cfc708e3a93e4bfd8564dc99449ffdf6db04e833f9b57bf69efadbac193bb973b1af31beef41c426f159bbb9e9f72f7a75875862597d6fa93fbfe295cbf27fb1169c4fa29f7000b3e0fcd7cffb0a19e86a006aff746727501295257d3355b48c26b071b66098413160afccc7d7a997832c929009ee86eec046c0da2d7bd1ac6be05a10656c70068b536800132f67463ba870dd398eee60d328a507ecc30dd2bf7ddd529f8d12fc95f1a784d2ee5723d1b310be7bf652efa5fa00d16f9741695a8213f0d3a7e5e9b9c5952f1fca8be8c73c854cfd9891447e9d715655f8852d0eb988f74ed64f7f00a8f17256cea057267ae35261c4bc5ace41450043fb4e71bee6f2105eed973f4211a899bcc8edfb6739dba728666fc4a1672649207900c788da0791254d78e349dc933b79340d75a9ba18a50257f7a073aed5ab4cca62c23b8c47dc50874bca053d244b59eb4d22412b5dfce90ea60112ab0e76e972c96e18b0bf26207bc871fc38a63ef9f481dd2944ed81b1347d0fb84ced81f1c612cdb756c819451cace450cc7ed0bc0a4c63d238fb8b8e7acfe9ec93b15d19c0eaf2402f71953aa2726e5c8a7ddfc2a520e84c2da08d5b9b7de67cdcfa814b40a39ef8e0e8f6acf9f3bc6d029e3b19c6a92ab6337d916dfad1e11f4815f8c92eb24cb46c0477763e68f712ed35002e5e4df5500cd4220030b7e0782738b251cbf8ec3e7a748e34fa07c25b7763756e12d0f3690e526b97e592a26d63e2739466ed29a4bad85b0d8e07175ce8a48390a2082f9370172638b57aa8a05fb82dc01fc33a7c55409721bb17ef6c55649f087a110df79da9c07b1c043ed2cb70afc9d16d6a58a7bf69a81773ed91ede76d5ab9215b161975a631dfb8192aa2171779bc57ba3044cfbd69c0a5df551f362d7248cd4394771f4bc9bb1864bad9b163df6f55d06de54fe833d2c3f049c8750433e508bb7086dce55639b37241393b4c5b9aa14b398c8be2ad1d50c5e5e35fd1ce8fc88d2d5163d96afdd11d2dd658b1a3dd9d7735576121456dfa987bbf6a41965fe1003a887ecbcb9bc6941e28e61efca84850739abd00616652994bd51c6d456233b124ad417d4cb6df9f761893dd96a68bf0d85d7f7f238627f0b8b5aaa18014d6687016449bca4218cc0f4ecec0f552db63c93219b493a61176bf53d0ee3117f2df526905601d472827d9bd1fd74d670a5d7394194559e4aa6e6f7ef2e7b9419f0ee8b868d12752f05cc5981b3434dc507c1c1f16ac2af3c4366bc49a9d4d7b7ee7cff88f0690d9465eb831fb9214a6f40d030735d1158badeed7ed76c9598ddb7e80789e698c27674c4a72d9242dfab57614b2db5ad4a689eba4bf51b085c8bbd9c6ff818870a6d71032d0ffb7bc0724b1300836005b71eb01b16a34c00d2dce9feee89a74452343f8f6c19b641a1be1132c3ef304d848d3478bb4fa1fc28556910eb61a9f2b2bd69d466649c824846c304650b55739d6447ea3ffbdd530cf51a2f94f8b768c335c247a38224b7e7bdcb44f0fa394b4c244d74ef32f9a3c6906e809fa613ce6197d6db1c9705b72e81a3d474966c01d055fd9fed0fe2c8e7f7e7144a15b82c89d13107426710d7432f48d033213393c543555fe0d6d7b24934fd6645517ccb53793f508a6aa1a1fbb304231f94aa8a1a4ac238bc71ada931b118c7b2b7818bc8367c02a1e6f3b3c17b135c0f28be9996253ed95a1d6cd1fde2fd0d1a0376414723dfaf417cffb0cea4251b27130bd40714d05814bf22dd1e4e1b07144565ea36aea8191dfcf37e375cc5ccee306eed78be37e0e14a5ef42de704b11bdd4a5702361b7548edc513cda9d1112f659c24b0ff844afbbca01f836fe3e995373270945fbfb91dccd6bcedbc6ca817c85306255882b4988af9978b95926178ac518c1864bba3a6ba721f6252a9e5cc708e6d89793c377ec4b54571a4d000aaac86ed7929ad72a569a275b5394e3d9e67fca5362adb3c6a57c250c0f6f10e021dd16e98f9a18e1f87c244a9ce8186ba2b70c98a116123aba0a6a8a7e9d6d4c0a01678aa25fe34a1a300bb2654aa7b2d7b5e0e293ee80dc0f603e136b9dd694f1a22ffb0dcf9b97d0631f56ddfda186ba25fc61521ee25d72d1ec802b41861b4a80d002c8b1b1a3f18bbae2c8f350be4f05e7500127b3a4f2177135d62caa7e77bf2d134026856cd905518e8f7d1bb8350521d0d7ca76165f08409986cd4fa38073a82e6ca4b04c1170848ea4d620ba7acc4493f178f74fe304e8ea7230e676b46a1f414a219198a4dc32ea77f1c2fa173fdd110afad1906cd147c89ed8b0ccccd074fab06d9a590334577ce4715a5b8dfb85725d3bf0a9610983b9e79f4095bbe880d03f6c4cb6206845c8d7edfd9d564f43efd1a1b4a48c6fa8cff8f2802413dd7f07f2e38bb8193229225425085d9bcfa14b111c4adf86dfb5da96a4bd3c69b08c85569338200ccffc1d8ac95c33d20888a9cbb27cf7c062c2f9abbee0469a5cee757072eb2545d18dd06210c601e62e309365f364d9f48804c292bee2d07b11d0f8f0544d698095306db60a3a45331d08b55bb53ad9a1815363d4222fd0f42d47a3513624b700253c646b6b69c4269d7f8a59502d13149a3db03a6e52f21f43fc7d5872c063d928a2ff35248038aa642436ad9ed23335f6682e4004054556b36439f260623b23f77b93beaf24b8e201eb3a8487f915f86fdfa8f50bdee9bcd3f82255a9d796105201fcbfc50b5a21320bf59d5cbc7773d39fe30a61c422e01c76bd00c29b99cd5b2695b76c873959834530acf83030265021347f8461c811ceaa44b8e70e26ee97f631f727b8652f287a8125bd82f94b21cfee7ac549746d1146a5f197af0e799479e856130f1b3ca9986a8722457dca37d41d8c5e0d264554684bbda31477d25ccc6f782a1d4b524fa8143d1e97e3bedff7f6cd367729887d70d6e89423901682b284f09c33dcae63de07d218202bc6f2a725297b45ffd1ad683cbc18b8fa260bf9410ccd9b79523f16e949720b38621bda724d0676a7d9d3c68fe22d6f0fb3b7ff70887b486d192d19f7022ade1360e3ef5cf5b11a6f860eb10ada546b43aa33d02e3b6307b51aef18d439bb579e0d7d76624b1579d8a313e72ecaaa0bcf3e8ffef01a18d5f857d987e6e2008f28ea5ec7db04d9b61c1ab6a0074379808568cb4ad868972a6c5919f104f3ec6b99d49a87964c2b359fb706f941bd3ac7a6e1895874c398fe400f886435d1e5790908b6adc576a3ec3a2e03753c50006c5c8a5eb234660b16893abeba960247bcc69990b20f011c2a9797316bf01262a9b25a4bd40e8db5e78908116a9734c9fffe782f6c81d6cab2191560306b2e780c6c5b965398a3678b911882618c2fca4f8d362b49557a7e5d1c407ebd6dad8342247ccf7cc52aad4dfb26c9da313fd8eed5748dbb2cf8230dac27e567ed826cf24719b1d7f88bfd3507e0ae59c90acdcba9e7563c49feb822cede6979f02be5fd1227f1bc7a354b94d061d29cbbe1ef0f20016c7b595ca3930dd647b2f8ca13e198d11dc68e4f2553ab594cbbe3e806f4c5609ee086b3c6c0db250a8feb09a2afea8e0800ccbe258d44af6e67eff6241d60df7d9ee4e6c7f262a15e041936fd591b659bfbde58caab9dc755a7f0af7aff912cac5de211825a6e9c3711c890a307b22f70ed307c663d422ba7cd0b394ee327c5ef2cd89d3456d6a935e32df1a1e4f65265a9d569dbca043cd65c680627b4a69ad7aa4d7568e67167db76a7a6c47cdba71388327fba2cbf312c9a88e46b95c43fa840891cbc531f141678d67c48479939cf7792fb21037f09e86b08d42f594b1423ebfa5dc57f5b561c862c3311b9a90f20326d9734a92e448b4b50db6eabcbd3c17a8227a2a1eeafb408e2051cc923eb84f8890e6d50136924db7bb121d42038ba4e313965ce00876aa34b76652576cd43c7be175215b0f2624a9dce5a132eefd199bc86607584863ae0bd631823fc4ed10296b80dd0aab79b739fd59eb6482652cfc9e8151426ccfadded497552534a1e533ef0959a7f4590891c6de99dfb19012552c75860cc4a780d0d839e383e2ae3e31fcdc9f930bd28577301831bdb02786a5b27af4479de8fe31d15f8b4c7baeb7dc8c47462a575d05408959d3037f996c0445deffcb3d9da10c945b0d2d8b2496036697e20676c0c065a3b5d78828292cb48b3842a9963f1cdb37e21fa93b3e913e79ea5cb1b1c1ea61fdf11d38e406b30a0cbcc02a6be64c87b1209b1d35db670da27ccb60a4308a0bab7fb2be172ebf12d0a8d469354b6eaed697aa2354f57e3909aa10ab83001e49dd592d9d60611e589db8fa198ddf6efe46a45de79dd5cc66ea1ff61f25fab011a2f495cd8701289a0d319e250ad880595b249ce7debf0f19bdb0ef18dcc01c2840466b3c9f1ba2ce503f117dc97950c44ef228014d3653869f34c0f70d70f0da53ee4c94df639b12c0e4d75c562a61e47000f5bdccd2510ff0df34f06c66b5a2ed7fed80ac74ea500d0d7f40a54d590ddbaec794b65955598b2b03c721c6d7cc8376f3f7b47b11335b76df6047af6c82f32f604565402d9f0c170d9be37c564cd5aea55331f08e40cdf837e270face0f517756e1c167becaaea20fad117f6b9f8073e374fa6a97c4c99fb2d26e6c19dd8468865fe05e4e052eccc3be987c6fd76e54ea58da7d9751967d45c539450e685359a6602f10b713a8c87d5146d81803c471887d6e0793e01cb7918e26ad0a795e853b1e4269c12c1d3ae519da6616d2d418fa5367a01ae1b15e4cd8c1f51ca06cf84db86e7984ae3eb5d6c36e6727bc97f7925bb08825d083d7d002b9f150aecda68ae2ac38b9fb514c68d14d703d85ae7f0276db19cbad231f1c011b2f1b543169112711cc9d62256db993cd9de95763602062a1e6812e157a2bcbbabbb7cb4d25e96c40faa3622663c690216899d631a702e6d20083755ba14d8e17018570867c04274b8788a0fd223b0078c44d22ef94fd0a0c1cb6a7a041a1175742b64ae495c078c8be4f37ab277e77fdf07310fd4d4a094111b8d738ef7f770e1deec8ea8ec8b47a9d8da2c4b77be401d0a7ad5e0e0c2c069757915760f1e4c6d28ed973671d895cb5991f4ee27f6e834143386165cffb3915fc91a6d41fc30ff899ecf1fc1a0ab838c4ad6fb334003826634dddee18af71fb22c030202dd6c579f31dd20b490fcf81bef283f384970dbadad1f13cb8bb834a4ef86298fb2e1eddc340c616afca1b69ea284bccffb932127f39087a03acf6ecf67b1b8a94ecdd79a06552c16304efa10eebb595cc7abf4b3c471ec51f3b07a878f48d04b2ae6ddc6f8dfa892512a4dfee5b349fbf28b9968676eaeb931e3e03b43aba5a996776762243462593f7029dddbbf438395eb6fa973ef340e41c599aee15dc6d25d23ff82462b5bc7dd432e66280b6d08e4fe45cda4600982ca76cdc7469852db61cce25d5e08675e68588e7a3f4cfc3e972597bf461c9f5c93fe6f26ad050c63eef0fd28dd52910fb7b6331d8c4e481f9efd4dfe4c1ff4ca79802b11220aa352dbbf3f59cd929753f74ef9cdc522a12ee64f765f85b568583f7a054af68385d743c865ffb0fb1e41970cc0b4f225494a3f35b3d7444bbe3cb0589dec7baf261945a42c6b9d3c1448c03ab07cf40627bf3e24e4ef741ad372c1fec97202b910ec327d9e48a43a5777d792afe94ff5094db3e36ed54cc0e566737548f89fbd4e63fb3a00da809d43df288b23feac76e52e5fd29ff79cabec856380ba047897fbd53c26998044408330578df4c4a9eb4d21a39cdffc0498b7409502f46a24d40ec7945928fb8af99836978728da8fdfa890d09e123c47a957bf1a113281f11d1e77b427b6e4752161101dc60c72c7ef69c62c5f7649d1b52d183bee879c1af52e4dd0b1ff6170bc8b57b9c2d561959de70aa0be1d537f52a4cb34df5ae6afe05be33e5341f94430fb6a99837b179b2579eb69b4ac5391d754b18e2597be7a6d19af542e1f2b832213be2a7e32bd2182efd3e366383fd4023333bcdabc366ed32481ae0cd137917c3e3cac4dc39505d7d6a2b686d09fd9f771a63b4751e8ae10402f07382783e1775db1abb8324f40c5d220501a3d36672275efc87f73ac5a3c8113dd3618a9880c2e9d8ddc10295fa4822d392db58aa60404c42761173d3f73d52ec991e7fcf4ebe2d13e87befbb1cc9ea95a72d05473d4ad48c167b3fde4fcc5b7f6038648bf2ea498386056886f0a7f52134834664cc0ed932e40b9f2ddab411e202be4fc7c4e17e77e03bd9b8bac037e12b9dd52665eba8fcfcf956cfd2011f73a0de09bb29d39527cc39932149fd347478633014329d7f9716aa280e5acd59baaca861c76376f0f05c63333490027e9eed4d27b033d401b5a1dc674eee75275d4752efee125e5ff302ea214c7687dad25f6201268c28270ebef611500e758a690c28ce90fbc7548c8d77522ef0c2f55deff04a28b52de32ef2ba8c3255f4ca41ff4ee038881f2e4b489c8c2c8c0a202d4e6592315d653e07e06b11133c81710efbddccf95c2e0790ee8bd657ade2d13749ee6d86d7c21960e891694ea241c52481e0a32006c45732ee60eaaa26e4c8d06b264f13c4b404e607e1d919bc94a94178cb93b15e341882fe052bce499440705af2cda144284fcd3f4fa6fd61991b12ca61506193e58ba4eb4c585c7e434a7e5722703481efac9cd574452848c9e913e48ed307a601eef65a2a25ba334167c46835f539b602e91f667172d4194cadd5f47baa733a345920e35c3203b352bd0789e23dc3c0ebe97f10f5cd101d391748a4a5ac4c91757e872118431012a4bca1e8a740a5cb8aafe6e44d6a59fa118c80f6f2d59e6dba07dcfebf94953b2456d55458cf568da571733b469181312ff7cac1f7b20adda2361948b7babeb1c84cccde92f2cc45f55b4bc3242c0c1e6319f0c3efaa5432e70abe9281889b99ed4cd310abeebb796d0e3e3efbba56a5434f57b78ffc924d19b67e0383db5c5884e134dbf92d9e12ec0267e35c855be82afccbb6f8980cc0174177c0c44384ed60b034b55b0faafad063ab8544f4214b9abae7057543d37a01f12ba59c85aed0b0aacb88e5cb147b1c44c2f430206720214ab5673f9ea2f0c0ea481fe5ab22115e2b10a537b89c3859de2ac250524eb092cc4f6f9012cc3cf336d58525803f63000d6d250b4e38d17566795f93557ec7516e94e6697eb1b866b92df1841993770c41fb8766caeb794eb86fc2da91b08a7e60da5fcb882a85b96459124b3f2ea7b3fc7720d2d192b7f76c8461c6411ea725810f90816b149caa24e93ea913a76d275ea9c7474e9f12594c1751914300b9df7bcafa31555e5326c0c879726f7e382e198c8d9c7ee1ec549c5abbbf571733e1c089ef1ba82ff5e9c19457e184f5521035ac94c7b17b85b16654f20305517f3983b5ef8f71395c9d9a37f41c55d80aa8bd5ef1830f5b3fe547d104d94d7128c9d481457348d602aa2de755a9e13515629e87d6b399dc75c1cebb35724f892eba25fca1fc8fd74aa734b0029c7381ebb419e3c5941090819430efaa641f658607b456641174f91a679af92387908e6b66eade7babdd9b8a8abf4873af387d3d383b26d4e489b59985b1f39380616ae770479615102eff08a51f2ce4b769f68f7dc531b48ece60f8b46596c72e7edea7f99a469308c723a5d740ec392ce2aba2768f852d3857ecbf553af6c5e87660fca70e02eb9a298180e3b9abec90f893586566fb3675442c531ea5cfde4fd56148818e6f6ca9506b90e3c5e288ffb44e2591b18de39b49556652ad8cdd3890b544f22c82585cd71749e27f2adb3cd315a209a637a0849b174fc00f77249284fc5a1bda652d25e62303161cc8eb5b1cfcf98ccc3b578814b52b7102abf6b610edfe2fe73a6b28acdca5a8d57ff59de133c8824c098f78b2ee1d565f698d56c489a53652c97e5be91681fe3c010d2ce7f3664cbda6626273ea7a27cd3ab26ee304daf988e2645b119b95852e9933d1fdbbc307b06252f2b0e34476838329399345ac1584caa432b8170d8abfb7b859b28f1886a4559645af60d582cf5bd0fc5a26db77d232bcce866a200a9a0a9cdbf87b4a632cdc4fb03fb5807e44543212e27ffda39c8531a11dae8eec1ee1e37986743bb2f3b17001d39124044705b290171ee80a8f86e81be19bcd31511976d2f04c2ce9e2366933f0c16e25d5d5e9747dde6edd421e097e97ca72b3f295ec240a4fe66eec4862ee85beb3a4160b2144d0ae74ef3802ed43a1bc503fe08aba2e5c2f4daff6c7b76418eb0ba7b594202200479705b216b506e35af2495b8801256eb477499b603f63aa0af8b79ae75347db78c43e52c099c98c4c1521ecaa727e7caf20f641af9b7ddf53c97ad7acb72e3acb98cd0fa2d35846c745ab86ecbf5b18dcb56b48c63aa474dbcfdaff094058a552853cd24da7f7ef9e69cababfbd944877cc38884a36597228ed62c6f');
INSERT INTO public.kept VALUES ('epoch 1', '\x0e19b4506b18eecf200214065003ec1a1620a35734789ecfa9b787e1f6b0454d95f663079db703c580d7c2b64b06bb65dc70dc');
INSERT INTO public.kept VALUES ('secret', '\x00000001242e953a7e9931c0e9f8a83a9ce575753df1f54933a7ae42c4f1e75f6e1840c3cfc46e4bf87303dd4fc6b042d897947feb5b1355ed29703b780ed94ff5a987c28313834c92e04bb5a6');
INSERT INTO public.kept VALUES ('tally', '\x320a34313234323833353036303431323930313539203639343134313030323335383036383834383820322038393135373237373135313730393336383435202d3131333033353534363339333135343835373020322032353833353934303835393133373939393631202d3331303234383039383632313630383536303920320a37366265373462346132386539373333656132366166613766383337616534383362663434643364383336393033356336653834366238346237396135363534');
INSERT INTO public.leases VALUES (1, 'run', 'node', 1, 1794869286401);
INSERT INTO public.leases VALUES (2, 'run', 'node', 1, 1794869286855);
INSERT INTO public.logs VALUES (3, 1, 'run', 2, 1, NULL, NULL, NULL, 'completed', 3, 2, 28, 1794869285601, 1794869285663, DEFAULT, NULL);
INSERT INTO public.logs VALUES (4, 1, 'turns', 1, NULL, NULL, NULL, NULL, NULL, 2, 0, 16438, 1794869285674, 1794869285674, DEFAULT, NULL);
INSERT INTO public.logs VALUES (5, 1, 'fork', 1, NULL, 1, 1, NULL, NULL, 1, 0, 0, 1794869285688, 1794869285688, DEFAULT, NULL);
INSERT INTO public.logs VALUES (1, 1, 'thread', 1, NULL, NULL, NULL, '3:1', NULL, 4, 0, 122, 1794869285601, 1794869285694, DEFAULT, NULL);
INSERT INTO public.logs VALUES (2, 1, 'doomed', 1, NULL, NULL, NULL, NULL, NULL, 2, 0, 12, 1794869285601, 1794869285703, DEFAULT, 1);
INSERT INTO public.logs VALUES (8, 2, 'run', 2, 6, NULL, NULL, NULL, 'completed', 3, 2, 28, 1794869286463, 1794869286505, DEFAULT, NULL);
INSERT INTO public.logs VALUES (9, 2, 'turns', 1, NULL, NULL, NULL, NULL, NULL, 2, 0, 16437, 1794869286508, 1794869286508, DEFAULT, NULL);
INSERT INTO public.logs VALUES (10, 2, 'fork', 1, NULL, 6, 1, NULL, NULL, 1, 0, 0, 1794869286531, 1794869286531, DEFAULT, NULL);
INSERT INTO public.logs VALUES (6, 2, 'thread', 1, NULL, NULL, NULL, '3:1', NULL, 4, 0, 119, 1794869286463, 1794869286534, DEFAULT, NULL);
INSERT INTO public.logs VALUES (7, 2, 'doomed', 1, NULL, NULL, NULL, NULL, NULL, 2, 0, 12, 1794869286463, 1794869286548, DEFAULT, 1);
INSERT INTO public.logs VALUES (11, 1, 'throughline-api-keys', 2, NULL, NULL, NULL, NULL, NULL, 1, 0, 71, 1794972070297, 1794972070297, DEFAULT, NULL);
INSERT INTO public.manifests VALUES (1, 'throughline manifest 1
store	88b9da67f8ed2bfa00e63067c38bc2997175f6dbc8574ac18d7f0f23a16a5389
writer	1ce675977afeec6d
number	1
at	1794869286556
previous	0000000000000000000000000000000000000000000000000000000000000000
head	alpha	1ce675977afeec6d	11	6e2b74dc134fc7a2f248fe0371941e49bdd7173459c269bf2c7e9a60d14896ea
head	beta	1ce675977afeec6d	11	42a88b63272d7798e844649fbe7665427bf0dd63ac5c3ccd7ee3609dc46b9e5b
', '\xe60d2238478aaf53e819155bf754539bfa47613793e7da3edd3778e98299bbaa72d86823657524daff9c1a15cb81275a157658ca91daf4b280407048c0d1ba0d');
INSERT INTO public.manifests VALUES (2, 'throughline manifest 2
store	88b9da67f8ed2bfa00e63067c38bc2997175f6dbc8574ac18d7f0f23a16a5389
writer	a835d81fd83d11f1
number	1
at	1794972070333
previous	0000000000000000000000000000000000000000000000000000000000000000
head	alpha	a835d81fd83d11f1	1	a2177f1e0cc20ab230dfadf8b7942e69f4851a84eeb5375cc7e8f5f71bfb5089
rows	alpha	a835d81fd83d11f1	1	3f81b78ebff7733f0f9af1bb2c819a9c17ba023271580c9bf8880cb80884f4bb
store-rows	1	b11408f28c9c0e999a53e98fd0de66ee98b373fa97105b32756d213dc73ba8e9
', '\xadb4e49e26133307c83f4fff24440206683d0d589f2ce1de3845a1efacdcbd1d74c7895a28eff97e4614693c7babc9d7ac0e430e97929625b3daf4b5e4835b05');
INSERT INTO public.once VALUES (1, '\xf5291058c5d2dfadd88bbb743200bdf5', 'f5291058c5d2dfadd88bbb743200bdf5
thread	1	2	0
doomed	1	1	0
run	1	1	2
');
INSERT INTO public.once VALUES (2, '\x4acbcfe90873b7ee43558a36cd3f91f5', '4acbcfe90873b7ee43558a36cd3f91f5
thread	1	2	0
doomed	1	1	0
run	1	1	2
');
INSERT INTO public.pending VALUES (1, 'question', 'approval', 3, 2, 1794869285654, 1794872885654, NULL);
INSERT INTO public.pending VALUES (1, 'approval', 'approval', 3, 2, 1794869285654, NULL, 1794869285663);
INSERT INTO public.pending VALUES (2, 'question', 'approval', 8, 2, 1794869286502, 1794872886502, NULL);
INSERT INTO public.pending VALUES (2, 'approval', 'approval', 8, 2, 1794869286502, NULL, 1794869286505);
INSERT INTO public.records VALUES (1, 1, 1, 1, 'item', 1794869285601, 0, NULL, -7370112314745073956, 38, 1, 1, '\x6a1c2d5a8278f7fb9c1dcb90d17322a8d949156936434646028c54b66229d5a8', '\x885039d9e861e1eedb73c4e511267a3fe1ae5949d35e9b96472968f615c0c904', NULL, NULL, '\xfb9117f7a24a5c96351dd7a0752c97b5ed892a315f4727a61756ddc4fa7434f45270d3418666321c91d266b1c5642449404e3c2d12e4');
INSERT INTO public.records VALUES (2, 1, 1, 2, 'item', 1794869285601, 0, NULL, -4667250368146045969, 38, 1, 2, '\x84b89a11683863c579139629e912b7afde218a64f66039fc7f520c38eb2ed173', '\x25678d579eda502cfdaff0f5038406e41a77a92d4c31afafdd14d05af3e4c3c6', NULL, NULL, '\xf4d4a73da72cae6556f58e295985ab049541fb5ada8142ae8b937cdcd4332eb9a69cf2249ec0e28ca96cb60893a18412b32e5a120f96');
INSERT INTO public.records VALUES (12, 2, 6, 1, 'item', 1794869286463, 0, NULL, 1053515928467645630, 37, 2, 1, '\xcf7601ceb8217c849677db20d523c81c11d329a883d053f5daf74db8fe8cc3c8', '\x714753cd21a78227f847e719410578efdfb02e4ff75bcfcd550687d03b041c69', NULL, NULL, '\x3a47c443cd7edc9b2915ed04cdef8f8372d1ffae71cca2c48b5d2268906003298079141319a452d71d3dbb28a1c98b0fc7ef4afa70');
INSERT INTO public.records VALUES (4, 1, 3, 1, 'events', 1794869285601, 2, 2, NULL, 16, 1, 4, '\x7695846708cdcfb17e0f03c494cd597c900b82342a743f0797da65abf31b91d7', '\x27957566de1dd4db9caeea73075aab77a5ffc05664daa60feffe460164ac57d9', NULL, NULL, '\x114a10e475f29c8ce0ac313e71bf609c3b2c3a219d93535ecd30778191f47b16');
INSERT INTO public.records VALUES (5, 1, 3, 2, 'checkpoint', 1794869285654, 0, NULL, NULL, 5, 1, 5, '\x7587bba8d6ed151cd7642c90a6653cee92a8bbb5f5687261a73b8c168b1955a9', '\xbcce1598830bee2068d85371e162c0f7bcabc860f20ab475a14c657a38dd3834', NULL, NULL, '\xa4d103f974603cc0adc04f98ecbcda6df8463e0f0f');
INSERT INTO public.records VALUES (6, 1, 3, 3, 'note', 1794869285663, 0, NULL, NULL, 7, 1, 6, '\x305e181e8a9361cba84c631b548ef1b6b5a0e952cf9c9869580ea289b6b04f07', '\xccf0dd8dcf2514ad50e78e7d6df52ff3c95f6a5597209faf3ea7219facc3aed3', NULL, NULL, '\x0b9cb8eda6247de08f1b66a0e61a3aaf82d412a034ac04');
INSERT INTO public.records VALUES (7, 1, 4, 1, 'item', 1794869285674, 0, NULL, 6542222228786560220, 38, 1, 7, '\xd7985f7949bd89a79673bc1d075ef6e3161c814a987b42411555962d527655ea', '\x2cb2aa95e691b0c05bb7aec089949fb30e34e4d23f210e98d1f28dc8fc3d9e2f', NULL, NULL, '\xbed97f2f302c8df30c82dd5e2a3ba95517b4638228fc1c7306c75bef67633aff1ab419aeeb6369799f973f563781f3b04fc899889b0f');
INSERT INTO public.records VALUES (8, 1, 4, 2, 'item', 1794869285674, 0, NULL, NULL, 16400, 1, 8, '\x32241e8e8c1671ea8efa2049f53172b9f4b1d172af16617b58008fdbb3c89a9b', '\xaa52d1cd94a82d41c29723ac470d1112c95aba722244b90ee9d35228ecef3a7f', NULL, 1, '\x9f5f2698d7a30350daf9e0b87f0b9fe110dd828353c8824e9ce1c70a6edf348787edd6ef0c99f580a7e489b7f4658c97');
INSERT INTO public.records VALUES (9, 1, 1, 3, 'rewind', 1794869285694, 0, NULL, NULL, 8, 1, 9, '\xce03503bbd51496d4776d81837bd3a24999d049158beaa94f12bcc1d494d97c0', '\xa6eb752223dd7ddafc638d6be9a8c0355158a15370d2f1eab8e3eae0dbc0f60d', NULL, NULL, '\x59c07d6a9be1d8b2f78d0e5ce1762eeb5a564e187fee11a2');
INSERT INTO public.records VALUES (10, 1, 1, 4, 'item', 1794869285694, 0, NULL, 7948028191260252942, 38, 1, 10, '\x6aa1dadffb4fe3c3d3b1cac6d97a3d23e80950f655f2ecf2dfc32e9a8d58aba6', '\xc3e4a44732e7778ff9bfcc4abac84b6a3345e47bf12593536175c409bb349950', NULL, NULL, '\x7d58b1baf5d003f0f215ddfaa689048997e2af713d8c8ca889d911cce004d5f9581378fd4ea0a1649669fa38eeda78ea89dc0a7aefcc');
INSERT INTO public.records VALUES (11, 1, 2, 2, 'forgotten', 1794869285703, 0, NULL, NULL, 12, 1, 11, '\x7e740043df27fe861324cd03dc8ac504ea6cd89b37b79c9b5a4f663316306939', '\x6e2b74dc134fc7a2f248fe0371941e49bdd7173459c269bf2c7e9a60d14896ea', NULL, NULL, '\xfc2ba14b70b79c1a22f2b0e1a58b067d66eeafba33e7f7d12ae50ac9');
INSERT INTO public.records VALUES (3, 1, 2, 1, 'item', 1794869285601, 0, NULL, NULL, 1, 1, 3, '\x5390528b8b0c15bccaa2a6437050758b64d7ebb4b23d908be9847b4fb57c5634', '\x36363f59256078ad25d087e72763bf2a7d4c0f365af94454a7448b39712edaf1', 1, NULL, NULL);
INSERT INTO public.records VALUES (13, 2, 6, 2, 'item', 1794869286463, 0, NULL, 764550137810103428, 37, 2, 2, '\xcc675f463a6a0b2dd76e87022d2e127f12cc4c93be2b5811d02b109dbf37bb85', '\xf1099456285bd91a93885c12470036843b1512d8a69d84b5f1aa6181c7c6fa44', NULL, NULL, '\x7e696ae0cd2fb793943b17ae33d06d3b6359e3e011fc95baa25940c894488086260075644f3b691c9121bf648b6bfe203833918aca');
INSERT INTO public.records VALUES (15, 2, 8, 1, 'events', 1794869286463, 2, 2, NULL, 16, 2, 4, '\xe011d4e97ff56e4ef204cd5fd91dfdb96fa73a9f7ca0c959c018aea931e5b6f7', '\xc26bcdfc85a3b3c5e55651374ad07a80717ef7c6a7ec187f7975d08bc7b0e93e', NULL, NULL, '\x504b16a05b260ee241b78161ace8421fd889d03cec51cf78e40ad3b90880b453');
INSERT INTO public.records VALUES (16, 2, 8, 2, 'checkpoint', 1794869286502, 0, NULL, NULL, 5, 2, 5, '\x113c7bd11f8495081feaff0b23ab3a7823e5626b72584f865149bbc47278fa2f', '\xe1bb32ac4aeb443deb1ffdf89ecc08abd962f1365c18887ca3407d55fc6f4f2b', NULL, NULL, '\xc06965332845d60df11a18a6e3b014525fc4d524ea');
INSERT INTO public.records VALUES (17, 2, 8, 3, 'note', 1794869286505, 0, NULL, NULL, 7, 2, 6, '\x26cc55de2f289ce4cf39063a3c7da55e79a364d8504cd01160fcf63688da09f8', '\x1e1d58f46ab028c5b1b39305b95f78873d73a53ca671b5295bcbcd65fa33015d', NULL, NULL, '\x7ba49b38abb3c349aea82469eb04bd5b76f9a22dc61716');
INSERT INTO public.records VALUES (18, 2, 9, 1, 'item', 1794869286508, 0, NULL, -3905609581763994891, 37, 2, 7, '\x8031ea588f73ec65cc1bd862c869e901271064f981938aa40c966c97c579d265', '\x70ac5eeea56e0011e37ea331a7845a191815ca96ec523e4a522ee81a58135f88', NULL, NULL, '\x74ac6d0d9a09feca6b2bcf0903a23e424871c35b310683330d2982f3f0bc49eeb9d708f8c557e613041e1186bc0bdb8ee166752e1d');
INSERT INTO public.records VALUES (19, 2, 9, 2, 'item', 1794869286508, 0, NULL, NULL, 16400, 2, 8, '\x202d833de209ee881cddf2d92e0df79c4ae87b295e3692f3c648f9dc3fd4adc1', '\x52f1d34aeab50a50b94f8a78984e91e01435cbd2f7a94d38deeb961a158eea5c', NULL, 2, '\xe32d422e0762d896954ec34a8db1ed2f96026aa229b9fbd00565bec164354f0abd4121f276c412babc99849e826e2dc4');
INSERT INTO public.records VALUES (20, 2, 6, 3, 'rewind', 1794869286534, 0, NULL, NULL, 8, 2, 9, '\xcbee7237e3243f9f44e1d1f37d19632dbc1f5674e217d1910e440b0a6eb90c5e', '\xc79c926847ab1e566ade7c20ca78208c0b25fbe870cd49bacad5235f6af0894e', NULL, NULL, '\x37c2d0d8a65647e0cef120b3cbdcbd327c7eadd959a49099');
INSERT INTO public.records VALUES (21, 2, 6, 4, 'item', 1794869286534, 0, NULL, -5788107848162370136, 37, 2, 10, '\x34372f00c5e9c07ac9f0afb059f6b9886495fc923af6195298e22660606c63b6', '\x2730ab472ef5d273a8e122fde81810ef5be28b749cda3e12e9f7cab96be3a7d8', NULL, NULL, '\xcaf81f4e78d2787eb49567cfdd5a55e666eb296c06472d82fa45d3deb47c4fd34e454afe200ba6f468dd2d36232b968b1b221a7045');
INSERT INTO public.records VALUES (22, 2, 7, 2, 'forgotten', 1794869286548, 0, NULL, NULL, 12, 2, 11, '\x7469dd2209445fc1f92936bed5beec7fe3ba4f5b0ace2caa973d104425e1c9c4', '\x42a88b63272d7798e844649fbe7665427bf0dd63ac5c3ccd7ee3609dc46b9e5b', NULL, NULL, '\xc75d678369aedc5de0ed33ccbb33d47a1783e4bf3c411fde75c86b99');
INSERT INTO public.records VALUES (14, 2, 7, 1, 'item', 1794869286463, 0, NULL, NULL, 1, 2, 3, '\xc67e5c049deb7804b8bb13cd0e839a030fb570604682a0fa58312aea87fabfb8', '\x3f0be529075792461ade66c7d2225b13cdfd891a745821fedaef27044409199e', 1, NULL, NULL);
INSERT INTO public.records VALUES (23, 1, 11, 1, 'api-key', 1794972070297, 0, NULL, NULL, 71, 5, 1, '\x7357a495769777a3a1b27df2314a5d23d1aeba6231549cb8bf103737fe6999b9', '\xa2177f1e0cc20ab230dfadf8b7942e69f4851a84eeb5375cc7e8f5f71bfb5089', NULL, NULL, '\x36734b07b0eaa144891547cb1a8e9a298f22454f76be4a6eac3abda03fbd1f3767805929633338a6d5613a6cbb8b07321edd1d0abd9e34c276b18ae8dbefd64711a9bf50a781632481bb49ab7d14ecbaee927c4e715551');
INSERT INTO public.salts VALUES (1, 1, 1, '\xd5381daabd9684e4311a1d04798cac35ce34c6fb28473bee756fa582791dfdcf34a3657ba2f545038839dd8b163b835ac2f071dce67cba1c');
INSERT INTO public.salts VALUES (2, 1, 1, '\x7d065e7f8c9ee9cd45d6087811576101bcd052b193c91d7e0e37ff36883e3ce49a9fd2065cb54bdf3157d18f42975393668f5517a71c1a09');
INSERT INTO public.salts VALUES (4, 1, 1, '\xb687d5ba9c44ed20a575bdbe5c2e7e7772325a4f02a0f8d17ef0955eaab972f95781180f58d1940ec8b43387c6359ce86bf5b2812eaa45db');
INSERT INTO public.salts VALUES (5, 1, 1, '\xc9b4b4818aadfcff1fcf470ae09d8d8cf79bbdb8f4516e938d26d9ecc25e6d76448271dd1fc3ca9c5d2e9a200596db923fee9865ca5fda5b');
INSERT INTO public.salts VALUES (6, 1, 1, '\x91104149dad3c427265a72fe80cbfbc2170b84509f6454d3a06ec2fcd75284a14613750acb5896df454f51ab5f5c77599e185924d29ca19b');
INSERT INTO public.salts VALUES (7, 1, 1, '\xb887c9a837d628804fba93aae160e367c97aba3a4d1b10e9b29c3badeaee29f0243bddd551ad4975a07afdee6a79591df9f351c8af08401c');
INSERT INTO public.salts VALUES (8, 1, 1, '\x4f755cc03fb8a73f6cfacef82ad4ea6c82c0d59a9698d44dd937a670356ad89fe3b8a0e7f1e7223dca077b89e47b20f9bc24a8435c36cc2d');
INSERT INTO public.salts VALUES (9, 1, 1, '\xb814f5c35981fd4a712b3a71d9eb8bb233e386b15fb42deba544edb741c7569a0ea041401075a04e57ac088d6f37aec935905f664bff7736');
INSERT INTO public.salts VALUES (10, 1, 1, '\x408b7168c291167179c1472e63a69edc40c8d87fa21802b551bfe9269e42f444a046604377171238869ba10e2a7b1124e09f41f0fc874cd2');
INSERT INTO public.salts VALUES (11, 1, 1, '\x7f7bb2b9a449cc2e3b603b104cd235d4a2c2a12326cfdac11e948d1d87e1bead66992a4db2e37315974fa677a63d91822ce95f74bb5f37e9');
INSERT INTO public.salts VALUES (12, 2, 1, '\xfb2e6c18445bdb8b8e758600f2ba404dafe059d1b47cbada3202780b6de459e9a95ad64f6c2223f09a86b1d3782788626166541d023ea66d');
INSERT INTO public.salts VALUES (13, 2, 1, '\x5b096f6ce9f8ca3e74b0c0e7bdc6fa72e0376bfc7905bcc5131e345b75f8225d12d07b3749bea914544b1c78fa79b0e239fdd1f99e975d2f');
INSERT INTO public.salts VALUES (15, 2, 1, '\xaa3e5a524840d0c5bdd0240c7f1274aefc233d5ef81b773f245b5da2b3baca07812082e59bfd74c9c835ac7f59df0f7f32331c5a0812e869');
INSERT INTO public.salts VALUES (16, 2, 1, '\x1232dbdba4681f8ef387db75cc0e12cd05092b0bb2d85a798b0be2c05f1610744dcd93954ab88956e30208f94c823e8fe420997326499cb8');
INSERT INTO public.salts VALUES (17, 2, 1, '\xb3c2b749eac7493f97f9a90cf55e1eb013adea0b936df75697c789816ad36d5ca357c601ee8823f2c9c07c5a526e8f94f5b3d24cd0a674b5');
INSERT INTO public.salts VALUES (18, 2, 1, '\x22fb0bcf236341c22712a634376cfef6bac90ae9fa2a7fa47cc9851fc95cb9a3f88e7657ddb4cb9ae8439fcc7c8c2312aa54e73a1b6be1a3');
INSERT INTO public.salts VALUES (19, 2, 1, '\x91a70bccef764f4a71c5a20f16a54f6b5ae6a34873ac8414873c92d9c7d5f2162edf996df84db5cf07d1e5bf263b7f7adcbc09cdf821cf6e');
INSERT INTO public.salts VALUES (20, 2, 1, '\xc0fc648a3c835413cb1375b98eb62202b59f5098108f42bd663c0c717e49ad901e5e4f0ad05c583ad676144cc9f2029fa68969a7e47bd82e');
INSERT INTO public.salts VALUES (21, 2, 1, '\x6e4a5327c468b26188416118de73018eb20182f737c6912fb217b54dcb2ab5afbf80ea86db6f90637009fdad433be2f873c9a0c1ffa8f928');
INSERT INTO public.salts VALUES (22, 2, 1, '\x82ad68b4d6c86c71ac6701ef9d91cbc8df2553ce296e1d32068a25d7713016d3a0edf79b413b9dc1a5f38dd1dfbcf6d7e0d9c27a0887b71d');
INSERT INTO public.salts VALUES (23, 1, 1, '\xa07de380c151c0468f95bc6e3324a0f57d0e717c767bfc2153f69c5979cfdc705879a90e2431a8f246f2a77bb2ea010998fbb9cc4b7edb4e');
INSERT INTO public.segments VALUES (3, 1, 'first-count', 0, '\x0000000000000000000000000000000000000000000000000000000000000000', 0, '5428382403418118443 2761357339922027920 5 -4471779395630487231 -8245231058994916189 11 -1434174044398277118 -8535460693307876231 1 -2240570551141713376 -7652245808663809131 3 2150489962488278147 -8329984427174616982 1 -3971322473351953082 4441849125621004974 2 -525136687643923372 210578026764610576 2', '\x969fe980d92f8e56da4bf7f72da17f4903e5f659f2e59440468ada88b60d1458');
INSERT INTO public.segments VALUES (4, 2, 'first-count', 0, '\x0000000000000000000000000000000000000000000000000000000000000000', 0, '-5623975555630932566 -8853159493637921041 5 -1498609602878749021 -5747281748137855211 11 9085930607342970997 7129279426671398201 1 221580911126526049 6509905646184343134 3 -8602278755001568085 1902131255909914912 1 -9163901248330838529 2614195944844041848 2 -7149372421306585879 7685529614615450113 2', '\xd19adc9f44ff13bb77915b7e12bdd13b160a71c8c81a6034595199d1ccc88be9');
INSERT INTO public.segments VALUES (1, 1, '1ce675977afeec6d', 11, '\x6e2b74dc134fc7a2f248fe0371941e49bdd7173459c269bf2c7e9a60d14896ea', 0, '0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0', '\x8c744956de00484d881347049b1fdba0f54a389f4cb4a77f12ba211cc80f8979');
INSERT INTO public.segments VALUES (2, 2, '1ce675977afeec6d', 11, '\x42a88b63272d7798e844649fbe7665427bf0dd63ac5c3ccd7ee3609dc46b9e5b', 0, '0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0', '\x5ee6c9c095c95ac159b2fd9cd68795044990d777836c0a87a8929f666862a5d7');
INSERT INTO public.segments VALUES (5, 1, 'a835d81fd83d11f1', 1, '\xa2177f1e0cc20ab230dfadf8b7942e69f4851a84eeb5375cc7e8f5f71bfb5089', 1, '2080923795882550101 -3914885894630612955 1 -578946726801611824 -7859942791569962919 1 0 0 0 0 0 0 0 0 0 0 0 0 -5195739682572287939 -5119918293123788441 1', '\xd921233451596b1b5205defe34903a82600a819cd198cc9b9aa5d722fb98ca0c');
INSERT INTO public.tenants VALUES (1, 'alpha', 1794869285575, 1);
INSERT INTO public.tenants VALUES (2, 'beta', 1794869286443, 1);
INSERT INTO public.throughline_schema VALUES (1, '2026-11-16 22:48:05.538514+00');
INSERT INTO public.throughline_schema VALUES (2, '2026-11-18 03:21:10.201298+00');
INSERT INTO public.turn_keys VALUES (1, 2, '\x9e2a7e2ffb8d2c6f8f58a63e8367b659', 1);
INSERT INTO public.turn_keys VALUES (1, 1, '\x5d1cf0726453dda42e24243b08a2beec', 1);
INSERT INTO public.turn_keys VALUES (1, 3, '\xdc895176dc5d37df1ed4eaefce7ac7dc', 1);
INSERT INTO public.turn_keys VALUES (2, 2, '\xabb988e93dc7bc9b1f371df94d0ae8b2', 2);
INSERT INTO public.turn_keys VALUES (2, 1, '\x414066be83b0f157ad3e03d292ded322', 2);
INSERT INTO public.turn_keys VALUES (2, 3, '\xaeb9a749119da6d1c0d832ec6ea5a678', 2);
INSERT INTO public.turns VALUES (1, 1, 'turn-alpha', NULL, 4, 1, 2, '\x0909090909090909090909090909090909090909090909090909090909090909');
INSERT INTO public.turns VALUES (2, 2, 'turn-beta', NULL, 9, 1, 2, '\x0909090909090909090909090909090909090909090909090909090909090909');
SELECT pg_catalog.setval('public.blobs_id_seq', 2, true);
SELECT pg_catalog.setval('public.logs_id_seq', 11, true);
SELECT pg_catalog.setval('public.manifests_id_seq', 2, true);
SELECT pg_catalog.setval('public.records_id_seq', 23, true);
SELECT pg_catalog.setval('public.segments_id_seq', 5, true);
SELECT pg_catalog.setval('public.tenants_id_seq', 2, true);
SELECT pg_catalog.setval('public.turns_id_seq', 2, true);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_hash_key UNIQUE (hash);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT blobs_tenant_hash_key UNIQUE (tenant, hash);
ALTER TABLE ONLY public.kept
    ADD CONSTRAINT kept_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (tenant, log);
ALTER TABLE ONLY public.logs
    ADD CONSTRAINT logs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.logs
    ADD CONSTRAINT logs_tenant_name_key UNIQUE (tenant, name);
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT manifests_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.once
    ADD CONSTRAINT once_pkey PRIMARY KEY (tenant, name);
ALTER TABLE ONLY public.pending
    ADD CONSTRAINT pending_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (tenant, log, seq);
ALTER TABLE ONLY public.salts
    ADD CONSTRAINT salts_pkey PRIMARY KEY (record);
ALTER TABLE ONLY public.segments
    ADD CONSTRAINT segments_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.segments
    ADD CONSTRAINT segments_tenant_writer_key UNIQUE (tenant, writer);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_name_key UNIQUE (name);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.throughline_schema
    ADD CONSTRAINT throughline_schema_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.turn_keys
    ADD CONSTRAINT turn_keys_pkey PRIMARY KEY (tenant, kind, hash, turn);
ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_tenant_name_key UNIQUE (tenant, name);
ALTER TABLE ONLY public.writers
    ADD CONSTRAINT writers_pkey PRIMARY KEY (writer);
CREATE INDEX logs_by_time ON public.logs USING btree (tenant, kind, hour);
CREATE INDEX logs_fork ON public.logs USING btree (tenant, fork) WHERE (fork IS NOT NULL);
CREATE INDEX logs_of ON public.logs USING btree (tenant, of) WHERE (of IS NOT NULL);
CREATE INDEX logs_running ON public.logs USING btree (id) WHERE (status = 'running'::text);
CREATE INDEX pending_expires ON public.pending USING btree (expires) WHERE ((taken IS NULL) AND (expires IS NOT NULL));
CREATE INDEX pending_log ON public.pending USING btree (tenant, log);
CREATE INDEX records_about ON public.records USING btree (tenant, about) WHERE (about IS NOT NULL);
CREATE INDEX records_blob ON public.records USING btree (blob) WHERE (blob IS NOT NULL);
CREATE INDEX records_by_event ON public.records USING btree (tenant, log, last_event) WHERE (last_event IS NOT NULL);
CREATE INDEX records_by_id ON public.records USING btree (id);
CREATE INDEX records_checkpoints ON public.records USING btree (tenant, log, seq) WHERE (kind = 'checkpoint'::text);
CREATE INDEX records_erased ON public.records USING btree (tenant, log, seq) WHERE (erased IS NOT NULL);
