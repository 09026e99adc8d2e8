-- Queries that find rows which contradict each other. None may return a row. The comment before a
-- query states the problem, worded as the end of a sentence that begins with the returned column.
-- `{span}` is the number of packed records before record `r`, whose row represents all of them.

-- has lost its last record
SELECT t.name || '/' || l.name FROM logs l JOIN tenants t ON t.id = l.tenant
WHERE l.last > coalesce(l.fork_at, 0) AND NOT EXISTS
    (SELECT 1 FROM records r WHERE r.tenant = l.tenant AND r.log = l.id AND r.seq = l.last)

-- has records that do not match its count
SELECT t.name || '/' || l.name FROM logs l JOIN tenants t ON t.id = l.tenant
LEFT JOIN (SELECT tenant, log, sum(1 + {span}) AS n FROM records r GROUP BY tenant, log) r
    ON r.tenant = l.tenant AND r.log = l.id
WHERE l.last - coalesce(l.fork_at, 0) <> coalesce(r.n, 0)

-- has no content or no salt, but was never erased
SELECT 'record ' || r.id FROM records r
WHERE r.erased IS NULL AND r.content IS NULL
OR r.erased IS NULL AND {span} = 0 AND NOT EXISTS (SELECT 1 FROM salts s WHERE s.record = r.id)
OR {span} > 0 AND r.content IS NULL

-- has lost its large content
SELECT 'record ' || r.id FROM records r
WHERE r.erased IS NULL AND r.blob IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = r.blob)

-- is a chain whose records do not match its count
SELECT t.name || '/' || g.writer FROM segments g JOIN tenants t ON t.id = g.tenant
LEFT JOIN (SELECT segment, sum(1 + {span}) AS n FROM records r GROUP BY segment) r
    ON r.segment = g.id
WHERE g.position <> coalesce(r.n, 0)

-- belongs to no log
SELECT 'record ' || r.id FROM records r
WHERE NOT EXISTS (SELECT 1 FROM logs l WHERE l.id = r.log AND l.tenant = r.tenant)

-- belongs to no tenant
SELECT 'log ' || l.id FROM logs l
WHERE NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = l.tenant)

-- belongs to no tenant
SELECT 'the chain of ' || g.writer FROM segments g
WHERE NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = g.tenant)

-- has no owner
SELECT 'the salt of record ' || s.record FROM salts s WHERE NOT EXISTS
    (SELECT 1 FROM records r WHERE r.id BETWEEN s.record AND s.record + 255
     AND r.id - {span} <= s.record AND r.tenant = s.tenant AND (r.erased IS NULL OR {span} > 0))

-- has no owner
SELECT 'large content ' || b.id FROM blobs b WHERE NOT EXISTS
    (SELECT 1 FROM records r WHERE r.blob = b.id AND r.tenant = b.tenant AND r.erased IS NULL)

-- refers to a log that the tenant does not have
SELECT 'log ' || l.id FROM logs l
WHERE (l.fork IS NULL) <> (l.fork_at IS NULL) OR EXISTS
    (SELECT 1 FROM (SELECT l.of AS id UNION SELECT l.fork) p
     WHERE p.id IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM logs o WHERE o.id = p.id AND o.tenant = l.tenant))

-- has no owner
SELECT 'the captured turn ' || u.name FROM turns u WHERE NOT EXISTS
    (SELECT 1 FROM logs l WHERE l.id = u.log AND l.tenant = u.tenant AND u.last <= l.last
     AND u.first <= u.last + 1)

-- has no owner
SELECT 'a key of the captured turn ' || k.turn FROM turn_keys k
WHERE NOT EXISTS (SELECT 1 FROM turns u WHERE u.id = k.turn AND u.tenant = k.tenant)

-- has no owner
SELECT 'the question ' || p.id FROM pending p WHERE NOT EXISTS
    (SELECT 1 FROM logs l WHERE l.id = p.log AND l.tenant = p.tenant AND p.seq <= l.last)
