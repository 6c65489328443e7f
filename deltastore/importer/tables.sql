-- Statements on the tables of LangGraph's PostgreSQL saver; `tables.py` runs them, in read-only transactions.
--
-- `{schema}` is the quoted name of their schema with a dot, or nothing for the search path; `{task_path}` is that column
-- or, where an old saver made the table, an empty text. LATERAL with OFFSET 0: one descent of the index for each row.

-- name: columns
-- Which columns the tables have, to tell the versions of the saver apart.
SELECT relname || '.' || attname AS name
FROM unnest(ARRAY['checkpoints', 'checkpoint_blobs', 'checkpoint_writes']) AS wanted (relname)
JOIN pg_attribute ON attrelid = to_regclass('{schema}' || relname) AND attnum > 0 AND NOT attisdropped;

-- name: readable
-- Fails where the role may not read the tables.
SELECT FROM {schema}checkpoints, {schema}checkpoint_blobs, {schema}checkpoint_writes LIMIT 0;

-- name: no_idle_timeout
-- A transaction waits here while values are built and compared.
SET LOCAL idle_in_transaction_session_timeout = 0;

-- name: threads
-- All threads.
SELECT thread_id FROM {schema}checkpoints GROUP BY thread_id ORDER BY thread_id COLLATE "C";

-- name: nodes
-- The tree of a thread.
SELECT checkpoint_ns, checkpoint_id, nullif(parent_checkpoint_id, '') AS parent_id, pg_column_size(checkpoint) AS bytes
FROM {schema}checkpoints WHERE thread_id = $1;

-- name: newest
-- The time of the newest checkpoint of a thread.
SELECT max(checkpoint ->> 'ts') FROM (
    SELECT checkpoint FROM {schema}checkpoints WHERE thread_id = $1 ORDER BY checkpoint_id DESC LIMIT 1
) AS head;

-- name: blobs
-- Which versions of which channels have a stored value, and how large it is.
SELECT checkpoint_ns, channel, version, octet_length(blob) AS bytes
FROM {schema}checkpoint_blobs WHERE thread_id = $1 AND type <> 'empty';

-- name: writes
-- The pending writes of a thread without their values, but for special ones, which can be overwritten.
SELECT checkpoint_ns, checkpoint_id, task_id, idx, octet_length(blob) AS bytes, type,
    CASE WHEN idx < 0 THEN blob END AS blob
FROM {schema}checkpoint_writes WHERE thread_id = $1;

-- name: checkpoints
-- Some checkpoints of a namespace.
SELECT checkpoint_id, checkpoint::text AS checkpoint, metadata::text AS metadata
FROM {schema}checkpoints WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = ANY ($3::text[]);

-- name: pending
-- The pending writes of some checkpoints, in the order in which they count.
SELECT checkpoint_id, task_id, {task_path} AS task_path, idx, channel, type, blob
FROM {schema}checkpoint_writes WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = ANY ($3::text[])
ORDER BY {task_path} COLLATE "C", task_id COLLATE "C", idx;

-- name: values
-- Some versions of channels.
SELECT wanted.channel, wanted.version, type, blob
FROM unnest($3::text[], $4::text[]) AS wanted (channel, version)
CROSS JOIN LATERAL (
    SELECT type, blob FROM {schema}checkpoint_blobs
    WHERE thread_id = $1 AND checkpoint_ns = $2 AND channel = wanted.channel AND version = wanted.version
    OFFSET 0
) AS stored;
