-- Parts of threads that are being migrated; `staging.py` has one typed function for each statement, under the same name.
--
-- Nothing here takes a lock that outlives the statement. Two writers of one thread meet at the key of the next part.

-- name: add_part
-- A part, if the one before it is there and this place is free. Added already, by a call whose answer was lost, is fine.
WITH added AS (
    INSERT INTO {schema}.delta_staging (thread_key, part, thread_id, payload)
    SELECT $1, $3::integer, $2::text, $4::bytea
    WHERE $3 = 0 OR EXISTS (SELECT FROM {schema}.delta_staging WHERE thread_key = $1 AND part = $3 - 1)
    ON CONFLICT DO NOTHING
    RETURNING true
)
SELECT EXISTS (SELECT FROM added)
    OR EXISTS (SELECT FROM {schema}.delta_staging WHERE thread_key = $1 AND part = $3 AND payload = $4) AS stands;

-- name: load_part
-- One part.
SELECT payload FROM {schema}.delta_staging WHERE thread_key = $1 AND part = $2;

-- name: drop_parts
-- The parts of a thread from one on.
DELETE FROM {schema}.delta_staging WHERE thread_key = $1 AND part >= $2;

-- name: staged_threads
-- All threads that have parts.
SELECT thread_key, min(thread_id) AS thread_id, count(*) AS parts,
    extract(epoch FROM now() - max(staged_at))::double precision AS idle_seconds
FROM {schema}.delta_staging GROUP BY thread_key ORDER BY thread_key;
