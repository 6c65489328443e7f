-- What is counted of a database; `statistics.py` has one typed function for each statement, under the same name.
--
-- They read all rows, but no payload: the length of one that is kept outside of its row is known without it.

-- name: count_threads
-- Threads.
SELECT count(*) AS threads FROM {schema}.delta_threads;

-- name: count_checkpoints
-- Checkpoints and their distances to anchors.
SELECT count(*) AS checkpoints, count(*) FILTER (WHERE hidden) AS hidden, count(*) FILTER (WHERE depth = 0) AS anchors,
    coalesce(avg(depth), 0)::double precision AS mean, coalesce(max(depth), 0) AS longest,
    coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY depth), 0) AS p95,
    coalesce(sum(octet_length(payload)), 0)::bigint AS payload_bytes
FROM {schema}.delta_checkpoints;

-- name: count_volumes
-- Rows of the other tables by kind.
SELECT CASE kind WHEN 1 THEN 'values' WHEN 2 THEN 'pages' WHEN 3 THEN 'writes' ELSE 'packs' END AS kind, count(*) AS rows,
    sum(octet_length(payload))::bigint AS payload_bytes
FROM {schema}.delta_segments GROUP BY 1
UNION ALL
SELECT 'metadata', count(*), coalesce(sum(octet_length(payload)), 0)::bigint FROM {schema}.delta_metadata
UNION ALL
SELECT 'quarantine', count(*), coalesce(sum(octet_length(payload)), 0)::bigint FROM {schema}.delta_quarantine;

-- name: measure_tables
-- Each table with its partitions, indexes and out-of-line storage on disk.
SELECT relname::text AS name, (pg_total_relation_size(oid) + coalesce(
    (SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_catalog.pg_inherits WHERE inhparent = pg_class.oid), 0
))::bigint AS disk_bytes
FROM pg_catalog.pg_class
WHERE relnamespace = '{schema}'::regnamespace AND relname LIKE 'delta\_%' AND relkind IN ('r', 'p') AND NOT relispartition
ORDER BY disk_bytes DESC, name;

-- name: count_days
-- What came between keys ($1, ascending), of all threads or one: 0 is what came before the first of them.
SELECT day, sum(checkpoints)::bigint AS checkpoints, sum(payload_bytes)::bigint AS payload_bytes
FROM (
    SELECT width_bucket(checkpoint_id, $1::text::bytea[]) AS day, count(*) AS checkpoints,
        sum(octet_length(payload)) AS payload_bytes
    FROM {schema}.delta_checkpoints WHERE $2::bytea IS NULL OR thread_key = $2 GROUP BY 1
    UNION ALL
    SELECT width_bucket(checkpoint_id, $1::text::bytea[]), 0, sum(octet_length(payload))
    FROM {schema}.delta_segments WHERE $2::bytea IS NULL OR thread_key = $2 GROUP BY 1
) AS parts
GROUP BY day ORDER BY day;

-- name: largest_threads
-- Threads by what they have from a key on ($1; empty for all).
SELECT thread.thread_id, size.checkpoints, size.payload_bytes
FROM (
    SELECT thread_key, sum(checkpoints)::bigint AS checkpoints, sum(payload_bytes)::bigint AS payload_bytes
    FROM (
        SELECT thread_key, count(*) AS checkpoints, sum(octet_length(payload)) AS payload_bytes
        FROM {schema}.delta_checkpoints WHERE checkpoint_id >= $1::bytea GROUP BY 1
        UNION ALL
        SELECT thread_key, 0, sum(octet_length(payload))
        FROM {schema}.delta_segments WHERE checkpoint_id >= $1::bytea GROUP BY 1
    ) AS parts
    GROUP BY thread_key
    ORDER BY payload_bytes DESC, thread_key
    LIMIT $2
) AS size
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = size.thread_key
ORDER BY size.payload_bytes DESC, size.thread_key;
