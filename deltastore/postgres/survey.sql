-- All rows of a thread, for verification; `survey.py` has one typed function for each statement, under the same name.
--
-- They run in one transaction that only reads (REPEATABLE READ), so that all of them see one moment and hold up nobody.
-- They assume nothing of the rows, not even that keys are unique: a broken restore may have lost the indexes.

-- name: survey_keys
-- A page of thread keys, in order, of all tables: rows whose thread has no row of its own must be found too.
WITH RECURSIVE walk AS (
    SELECT $1::bytea AS thread_key, 0 AS position
    UNION ALL
    SELECT following.thread_key, walk.position + 1
    FROM walk CROSS JOIN LATERAL (
        SELECT candidate.thread_key FROM (
            (SELECT thread_key FROM {schema}.delta_threads WHERE thread_key > walk.thread_key
                ORDER BY thread_key LIMIT 1)
            UNION ALL
            (SELECT thread_key FROM {schema}.delta_checkpoints WHERE thread_key > walk.thread_key
                ORDER BY thread_key LIMIT 1)
            UNION ALL
            (SELECT thread_key FROM {schema}.delta_segments WHERE thread_key > walk.thread_key
                ORDER BY thread_key LIMIT 1)
            UNION ALL
            (SELECT thread_key FROM {schema}.delta_metadata WHERE thread_key > walk.thread_key
                ORDER BY thread_key LIMIT 1)
        ) AS candidate
        ORDER BY candidate.thread_key LIMIT 1
    ) AS following
    WHERE walk.position < $2::integer
)
SELECT thread_key FROM walk WHERE position > 0 ORDER BY position;

-- name: survey_threads
-- The thread's own row, or rows.
SELECT thread_id, epoch FROM {schema}.delta_threads WHERE thread_key = $1;

-- name: survey_checkpoints
-- All checkpoints.
SELECT namespace, checkpoint_id, parent_id, depth, array_replace(segments, NULL, 0)::text AS segments, payload,
    metadata_id, hidden, orphaned
FROM {schema}.delta_checkpoints WHERE thread_key = $1 ORDER BY namespace, checkpoint_id;

-- name: survey_segments
-- All segments without their payloads.
SELECT segment_id, kind, namespace, checkpoint_id, array_replace(segment_references, NULL, 0)::text AS segment_references,
    octet_length(payload) AS payload_bytes
FROM {schema}.delta_segments WHERE thread_key = $1 ORDER BY segment_id;

-- name: survey_metadata
-- All metadata documents.
SELECT metadata_id, document::text AS document, payload FROM {schema}.delta_metadata
WHERE thread_key = $1 ORDER BY metadata_id;

-- name: survey_quarantine
-- How many rows of the thread earlier repairs took out.
SELECT count(*) AS number FROM {schema}.delta_quarantine WHERE thread_key = $1;

-- name: survey_payloads
-- Some segments with their payloads.
SELECT segment_id, kind, namespace, checkpoint_id, payload,
    array_replace(segment_references, NULL, 0)::text AS segment_references, first_checkpoint_id
FROM {schema}.delta_segments WHERE thread_key = $1 AND segment_id = ANY ($2::text::bigint[]);
