-- Every statement that deltastore runs on its tables, under a name; `queries.py` has one typed function for each.
--
-- Arrays of anything but text travel as text: the driver asks the server about other array types first, with statements
-- that change the session. `rows.py` writes and reads them.
--
-- `{schema}` is the quoted name of the schema; every other value is a parameter. Statements that a running graph needs
-- name one thread key, so that they meet one partition or one shard.

-- name: schema_version
-- Which migration the schema is at; fails if there is none.
SELECT max(version) AS version FROM {schema}.delta_migrations;

-- name: save
-- One checkpoint with its segments and its metadata, or nothing. Outcome: 0 stored, 1 stale, 2 exists, 3 ask again,
-- 4 deleted, 5 early.
--
-- `known` waits for an edit of the thread and then sees the row that the edit left, while everything else sees the
-- thread as it was when the statement began. Where the two differ in `revision` the statement stores nothing and is
-- run again (3); likewise if another save creates the thread at the same moment.
WITH seen AS MATERIALIZED (
    SELECT revision FROM {schema}.delta_threads WHERE thread_key = $1
), known AS MATERIALIZED (
    SELECT epoch, revision FROM {schema}.delta_threads WHERE thread_key = $1 FOR KEY SHARE
), twin AS (
    SELECT FROM {schema}.delta_checkpoints WHERE thread_key = $1 AND namespace = $4 AND checkpoint_id = $5
), parent AS MATERIALIZED (
    SELECT depth, hidden FROM {schema}.delta_checkpoints
    WHERE thread_key = $1 AND namespace = $4 AND checkpoint_id = $6
), parent_fits AS MATERIALIZED (
    SELECT WHERE ($7 = 0 OR EXISTS (SELECT FROM parent WHERE depth = $7 - 1))
        AND ($13::bigint IS NULL OR $13 = (
            SELECT count(*) FROM {schema}.delta_segments
            WHERE thread_key = $1 AND namespace = $4 AND checkpoint_id = $6 AND kind = 3
        ))
), deleted AS MATERIALIZED (
    SELECT CASE WHEN $6 IS NOT NULL OR $21::bytea <= deleted_through THEN 4 ELSE 5 END AS outcome
    FROM {schema}.delta_tombstones
    WHERE thread_key = $1 AND NOT EXISTS (SELECT FROM parent) AND ($6 <= deleted_through
        OR (($6 IS NOT NULL OR $21 IS NOT NULL) AND NOT EXISTS (SELECT FROM seen)))
), created AS (
    INSERT INTO {schema}.delta_threads (thread_key, thread_id)
    SELECT $1, $2::text
    FROM parent_fits
    WHERE $3::bigint IS NULL AND NOT EXISTS (SELECT FROM known) AND NOT EXISTS (SELECT FROM seen)
        AND NOT EXISTS (SELECT FROM deleted)
    ON CONFLICT DO NOTHING
    RETURNING epoch
), thread AS (
    SELECT epoch FROM known WHERE revision = (SELECT revision FROM seen)
    UNION ALL
    SELECT epoch FROM created
), admitted AS (
    SELECT epoch FROM thread, parent_fits
    WHERE ($3::bigint IS NULL OR epoch = $3) AND NOT EXISTS (SELECT FROM twin) AND NOT EXISTS (SELECT FROM deleted)
), stored_segments AS (
    INSERT INTO {schema}.delta_segments (thread_key, namespace, checkpoint_id, kind, segment_references, payload)
    SELECT $1, $4, $5, segment.kind, nullif(segment.segment_references, '{}')::bigint[],
        substring($18::bytea FROM segment.start FOR segment.length)
    FROM admitted, unnest($14::text::smallint[], $15::text[], $16::text::integer[], $17::text::integer[])
        WITH ORDINALITY AS segment (kind, segment_references, start, length, position)
    ORDER BY segment.position
    RETURNING segment_id
), new_ids AS (
    SELECT coalesce(array_agg(segment_id ORDER BY segment_id), '{}') AS ids FROM stored_segments
), stored_metadata AS (
    INSERT INTO {schema}.delta_metadata (thread_key, metadata_id, document, payload)
    SELECT $1, $10, $19::text::jsonb, $20 FROM admitted WHERE $20::bytea IS NOT NULL
    ON CONFLICT DO NOTHING
), stored_checkpoint AS (
    INSERT INTO {schema}.delta_checkpoints
        (thread_key, namespace, checkpoint_id, parent_id, depth, segments, payload, metadata_id, hidden, orphaned)
    SELECT $1, $4, $5, $6, $7, nullif(new_ids.ids || $8::text::bigint[], '{}'), $9, $10, $11,
        $12 OR coalesce((SELECT parent.hidden FROM parent), false)
    FROM admitted, new_ids
    RETURNING true
)
SELECT
    CASE
        WHEN EXISTS (SELECT FROM stored_checkpoint) THEN 0
        WHEN EXISTS (SELECT FROM deleted) AND (EXISTS (SELECT FROM thread) OR NOT EXISTS (SELECT FROM seen))
            THEN (SELECT deleted.outcome FROM deleted)
        WHEN EXISTS (SELECT FROM thread) AND EXISTS (SELECT FROM twin) THEN 2
        WHEN EXISTS (SELECT FROM thread) THEN 1
        WHEN EXISTS (SELECT FROM known) OR ($3::bigint IS NULL AND EXISTS (SELECT FROM parent_fits)) THEN 3
        ELSE 1
    END AS outcome,
    (SELECT epoch FROM thread) AS epoch,
    (SELECT ids::text FROM new_ids) AS segment_ids,
    EXISTS (
        SELECT FROM {schema}.delta_segments
        WHERE thread_key = $1 AND kind = 4 AND $5 BETWEEN coalesce(first_checkpoint_id, '') AND checkpoint_id
    ) AS is_amid_packs,
    extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision AS server_seconds;

-- name: save_writes
-- One segment of pending writes, or nothing. Outcome as for `save`. It reads nothing but the locked thread row, unless
-- there is none: then the snapshot must not have one either, and the thread not be a deleted one.
WITH known AS MATERIALIZED (
    SELECT epoch FROM {schema}.delta_threads WHERE thread_key = $1 FOR KEY SHARE
), deleted AS MATERIALIZED (
    SELECT CASE WHEN $9::bytea <= deleted_through THEN 4 ELSE 5 END AS outcome
    FROM {schema}.delta_tombstones
    WHERE thread_key = $1 AND $9 IS NOT NULL AND NOT EXISTS (SELECT FROM known)
), created AS (
    INSERT INTO {schema}.delta_threads (thread_key, thread_id)
    SELECT $1, $2::text
    WHERE $3::bigint IS NULL AND NOT EXISTS (SELECT FROM known) AND NOT EXISTS (SELECT FROM deleted)
        AND NOT EXISTS (SELECT FROM {schema}.delta_threads WHERE thread_key = $1)
    ON CONFLICT DO NOTHING
    RETURNING epoch
), thread AS (
    SELECT epoch FROM known UNION ALL SELECT epoch FROM created
), stored_segment AS (
    INSERT INTO {schema}.delta_segments (thread_key, namespace, checkpoint_id, kind, segment_references, payload)
    SELECT $1, $4, $5, $6, $7::text::bigint[], $8 FROM thread WHERE $3::bigint IS NULL OR epoch = $3
    RETURNING segment_id
)
SELECT
    CASE
        WHEN EXISTS (SELECT FROM stored_segment) THEN 0
        WHEN EXISTS (SELECT FROM deleted) THEN (SELECT deleted.outcome FROM deleted)
        WHEN $3::bigint IS NULL THEN 3
        ELSE 1
    END AS outcome,
    (SELECT epoch FROM thread) AS epoch,
    ARRAY(SELECT segment_id FROM stored_segment)::text AS segment_ids,
    extract(epoch FROM clock_timestamp() - statement_timestamp())::double precision AS server_seconds;

-- name: load_chains
-- Chains of some checkpoints, or ($3 NULL) of the head of the namespace, back to their anchors, with what they refer to.
--
-- A chain ends early at a checkpoint that the caller knows ($5), if the thread is still at the epoch of this knowledge
-- ($4). Parts of the answer: 0 the thread, 1 checkpoints, 2 segments, 3 metadata of the targets.
-- LATERAL with OFFSET 0 leaves the planner no choice but one descent of the index per row: planning once for all
-- threads, it would expect a short one and read it whole.
-- A segment that is in a pack is found there: packs have the largest id that they hold, so it is the first one from that
-- id on, if there is one. What packs say of writes is only from which checkpoint to which they may be; one that was copied
-- by a process which knew no packs does not say from which.
WITH RECURSIVE known AS MATERIALIZED (
    SELECT CASE WHEN epoch = $4::bigint THEN $5::text::bytea[] ELSE '{}' END AS ids
    FROM {schema}.delta_threads WHERE thread_key = $1 LIMIT 1
), wanted AS MATERIALIZED (
    SELECT DISTINCT unnest(coalesce($3::text::bytea[], ARRAY(
        SELECT checkpoint_id FROM {schema}.delta_checkpoints
        WHERE thread_key = $1 AND namespace = $2 AND NOT hidden
        ORDER BY checkpoint_id DESC LIMIT 1
    ))) AS id
), chain AS (
    SELECT target.* FROM wanted CROSS JOIN LATERAL (
        SELECT checkpoint_id, parent_id, depth, hidden, orphaned, metadata_id, segments, payload
        FROM {schema}.delta_checkpoints
        WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id = wanted.id
        OFFSET 0
    ) AS target
    UNION
    SELECT parent.* FROM chain CROSS JOIN LATERAL (
        SELECT checkpoint_id, parent_id, depth, hidden, orphaned, metadata_id, segments, payload
        FROM {schema}.delta_checkpoints
        WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id = chain.parent_id AND depth = chain.depth - 1
        OFFSET 0
    ) AS parent
    WHERE chain.depth > 0 AND NOT chain.checkpoint_id = ANY ((SELECT ids FROM known)::bytea[])
), packs AS MATERIALIZED (
    SELECT segment_id, first_checkpoint_id, checkpoint_id FROM {schema}.delta_segments
    WHERE thread_key = $1 AND kind = 4
), packed AS MATERIALIZED (
    SELECT ARRAY(SELECT segment_id FROM packs ORDER BY segment_id) AS ids
), named AS MATERIALIZED (
    SELECT coalesce(packed.ids[width_bucket(of_row.id - 1, packed.ids) + 1], of_row.id) AS id
    FROM (SELECT unnest(segments) AS id FROM chain) AS of_row CROSS JOIN packed
    UNION
    SELECT segment_id FROM packs WHERE EXISTS (
        SELECT FROM chain WHERE chain.checkpoint_id BETWEEN coalesce(packs.first_checkpoint_id, '') AND packs.checkpoint_id
    )
), described AS MATERIALIZED (
    SELECT DISTINCT metadata_id AS id FROM chain JOIN wanted ON checkpoint_id = wanted.id WHERE NOT hidden
)
SELECT 0::smallint AS part, epoch AS number, thread_id AS label, NULL::bytea AS checkpoint_id, NULL::bytea AS parent_id,
    NULL::integer AS small, NULL::boolean AS hidden, NULL::boolean AS orphaned, NULL::text AS ids,
    NULL::bytea AS payload
FROM {schema}.delta_threads WHERE thread_key = $1
UNION ALL
SELECT 1, metadata_id, NULL, checkpoint_id, parent_id, depth, hidden, orphaned, segments::text, payload
FROM chain
UNION ALL
SELECT 2, named.id, namespace, checkpoint_id, NULL, kind, NULL, NULL, segment_references::text, payload
FROM named CROSS JOIN LATERAL (
    SELECT namespace, checkpoint_id, kind, segment_references, payload FROM {schema}.delta_segments
    WHERE thread_key = $1 AND segment_id = named.id
    OFFSET 0
) AS segment
UNION ALL
SELECT 2, segment_id, $2, chain.checkpoint_id, NULL, kind, NULL, NULL, segment_references::text, write.payload
FROM chain CROSS JOIN LATERAL (
    SELECT segment_id, kind, segment_references, payload FROM {schema}.delta_segments
    WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id = chain.checkpoint_id AND kind = 3
    OFFSET 0
) AS write
WHERE segment_id NOT IN (SELECT id FROM named)
UNION ALL
SELECT 3, described.id, document::text, NULL, NULL, NULL, NULL, NULL, NULL, payload
FROM described CROSS JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata WHERE thread_key = $1 AND metadata_id = described.id OFFSET 0
) AS metadata;

-- name: load_segments
-- Segments by their ids, and those that the writes among them repeat items of; for each the pack that holds it, if it is
-- in one.
WITH packed AS MATERIALIZED (
    SELECT ARRAY(
        SELECT segment_id FROM {schema}.delta_segments WHERE thread_key = $1 AND kind = 4 ORDER BY segment_id
    ) AS ids
), named AS MATERIALIZED (
    SELECT segment.*
    FROM (
        SELECT DISTINCT coalesce(packed.ids[width_bucket(given.id - 1, packed.ids) + 1], given.id) AS id
        FROM (SELECT unnest($2::text::bigint[]) AS id) AS given CROSS JOIN packed
    ) AS wanted CROSS JOIN LATERAL (
        SELECT segment_id, kind, namespace, checkpoint_id, payload, segment_references
        FROM {schema}.delta_segments
        WHERE thread_key = $1 AND segment_id = wanted.id
        OFFSET 0
    ) AS segment
), repeated AS MATERIALIZED (
    SELECT coalesce(packed.ids[width_bucket(reference.id - 1, packed.ids) + 1], reference.id) AS id
    FROM (SELECT unnest(segment_references) AS id FROM named WHERE kind IN (3, 4)) AS reference CROSS JOIN packed
    EXCEPT SELECT segment_id FROM named
)
SELECT segment_id, kind, namespace, checkpoint_id, payload, segment_references::text FROM named
UNION ALL
SELECT segment.*
FROM repeated CROSS JOIN LATERAL (
    SELECT segment_id, kind, namespace, checkpoint_id, payload, segment_references::text
    FROM {schema}.delta_segments
    WHERE thread_key = $1 AND segment_id = repeated.id
    OFFSET 0
) AS segment;

-- name: list_checkpoint
-- A listing that names thread, namespace and checkpoint: one entry at most.
--
-- All listings: the inner part finds the page, the outer part adds what belongs to its few rows. A metadata document
-- that is missing stays NULL, for an error instead of a shorter list.
SELECT page.*, thread.thread_id, metadata.document::text AS document, metadata.payload AS metadata_payload
FROM (
    SELECT thread_key, namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id,
        hidden, orphaned
    FROM {schema}.delta_checkpoints AS checkpoint
    WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id = $3 AND NOT hidden AND ($4::text IS NULL OR EXISTS (
        SELECT FROM {schema}.delta_metadata AS metadata
        WHERE metadata.thread_key = $1 AND metadata.metadata_id = checkpoint.metadata_id
            AND metadata.document @> $4::text::jsonb
    ))
    LIMIT 1
) AS page
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = $1
LEFT JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata
    WHERE thread_key = $1 AND metadata_id = page.metadata_id
    OFFSET 0
) AS metadata ON true;

-- name: list_namespace
-- The first page of a listing of one namespace of one thread.
SELECT page.*, thread.thread_id, metadata.document::text AS document, metadata.payload AS metadata_payload
FROM (
    SELECT thread_key, namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id,
        hidden, orphaned
    FROM {schema}.delta_checkpoints AS checkpoint
    WHERE thread_key = $1 AND namespace = $2 AND NOT hidden AND ($3::text IS NULL OR EXISTS (
        SELECT FROM {schema}.delta_metadata AS metadata
        WHERE metadata.thread_key = $1 AND metadata.metadata_id = checkpoint.metadata_id
            AND metadata.document @> $3::text::jsonb
    ))
    ORDER BY checkpoint_id DESC
    LIMIT $4
) AS page
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = $1
LEFT JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata
    WHERE thread_key = $1 AND metadata_id = page.metadata_id
    OFFSET 0
) AS metadata ON true
ORDER BY checkpoint_id DESC;

-- name: list_namespace_below
-- A page of a listing of one namespace of one thread that starts below a checkpoint.
SELECT page.*, thread.thread_id, metadata.document::text AS document, metadata.payload AS metadata_payload
FROM (
    SELECT thread_key, namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id,
        hidden, orphaned
    FROM {schema}.delta_checkpoints AS checkpoint
    WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id < $3 AND NOT hidden AND ($4::text IS NULL OR EXISTS (
        SELECT FROM {schema}.delta_metadata AS metadata
        WHERE metadata.thread_key = $1 AND metadata.metadata_id = checkpoint.metadata_id
            AND metadata.document @> $4::text::jsonb
    ))
    ORDER BY checkpoint_id DESC
    LIMIT $5
) AS page
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = $1
LEFT JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata
    WHERE thread_key = $1 AND metadata_id = page.metadata_id
    OFFSET 0
) AS metadata ON true
ORDER BY checkpoint_id DESC;

-- name: list_thread
-- A page of a listing of all namespaces of one thread: reads the thread's rows by its key and sorts them.
SELECT page.*, thread.thread_id, metadata.document::text AS document, metadata.payload AS metadata_payload
FROM (
    SELECT thread_key, namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id,
        hidden, orphaned
    FROM {schema}.delta_checkpoints AS checkpoint
    WHERE thread_key = $1
        AND ($2::bytea IS NULL OR checkpoint_id = $2)
        AND ($3::bytea IS NULL OR checkpoint_id < $3)
        AND ($4::bytea IS NULL OR (checkpoint_id, namespace) < ($4, $5::text COLLATE "C"))
        AND NOT hidden AND ($6::text IS NULL OR EXISTS (
        SELECT FROM {schema}.delta_metadata AS metadata
        WHERE metadata.thread_key = $1 AND metadata.metadata_id = checkpoint.metadata_id
            AND metadata.document @> $6::text::jsonb
    ))
    ORDER BY checkpoint_id DESC, namespace DESC
    LIMIT $7
) AS page
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = $1
LEFT JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata
    WHERE thread_key = $1 AND metadata_id = page.metadata_id
    OFFSET 0
) AS metadata ON true
ORDER BY checkpoint_id DESC, namespace DESC;

-- name: list_all
-- A page of a listing of all threads: reads the rows of all checkpoints, as no index is kept for it.
SELECT page.*, thread.thread_id, metadata.document::text AS document, metadata.payload AS metadata_payload
FROM (
    SELECT thread_key, namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id,
        hidden, orphaned
    FROM {schema}.delta_checkpoints AS checkpoint
    WHERE ($1::text IS NULL OR namespace = $1)
        AND ($2::bytea IS NULL OR checkpoint_id = $2)
        AND ($3::bytea IS NULL OR checkpoint_id < $3)
        AND ($4::bytea IS NULL OR (checkpoint_id, thread_key, namespace) < ($4, $5::bytea, $6::text COLLATE "C"))
        AND NOT hidden AND ($7::text IS NULL OR EXISTS (
        SELECT FROM {schema}.delta_metadata AS metadata
        WHERE metadata.thread_key = checkpoint.thread_key AND metadata.metadata_id = checkpoint.metadata_id
            AND metadata.document @> $7::text::jsonb
    ))
    ORDER BY checkpoint_id DESC, thread_key DESC, namespace DESC
    LIMIT $8
) AS page
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = page.thread_key
LEFT JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata
    WHERE thread_key = page.thread_key AND metadata_id = page.metadata_id
    OFFSET 0
) AS metadata ON true
ORDER BY checkpoint_id DESC, thread_key DESC, namespace DESC;

-- name: find_runs
-- Threads that have a metadata document of one of these runs.
SELECT DISTINCT thread_key
FROM {schema}.delta_metadata
WHERE document ? 'run_id' AND document ->> 'run_id' = ANY ($1::text[]);

-- name: list_threads
-- A page of all threads.
SELECT thread_key, thread_id FROM {schema}.delta_threads WHERE thread_key > $1 ORDER BY thread_key LIMIT $2;

-- name: outline_threads
-- A page of all threads with the keys of their checkpoints. Parts of the answer: 0 threads, 1 checkpoints.
WITH page AS MATERIALIZED (
    SELECT thread_key, thread_id, pinned, created_at
    FROM {schema}.delta_threads WHERE thread_key > $1 ORDER BY thread_key LIMIT $2
)
SELECT 0::smallint AS part, thread_key, thread_id AS label, NULL::bytea AS checkpoint_id, pinned AS mark,
    extract(epoch FROM created_at)::double precision AS seconds
FROM page
UNION ALL
SELECT 1, page.thread_key, checkpoint.namespace, checkpoint.checkpoint_id, checkpoint.hidden, NULL
FROM page CROSS JOIN LATERAL (
    SELECT namespace, checkpoint_id, hidden FROM {schema}.delta_checkpoints WHERE thread_key = page.thread_key OFFSET 0
) AS checkpoint;

-- name: pin_thread
-- The mark that exempts a thread from retention.
UPDATE {schema}.delta_threads SET pinned = $2 WHERE thread_key = $1 RETURNING true AS found;

-- name: bound_transaction
-- How long the transaction may wait for a lock ($1), and each of its statements may take ($2). Ends with it.
SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true);

-- name: lock_thread
-- First statement of every edit and deletion: waits for running saves, holds off new ones until the transaction ends.
SELECT epoch, revision, thread_id, pinned, extract(epoch FROM created_at)::double precision AS created_seconds
FROM {schema}.delta_threads WHERE thread_key = $1 FOR UPDATE;

-- name: view_thread
-- The same row for a reader, without a lock.
SELECT epoch, revision, thread_id, pinned, extract(epoch FROM created_at)::double precision AS created_seconds
FROM {schema}.delta_threads WHERE thread_key = $1;

-- name: count_rows
-- How many checkpoints and segments the thread has: within a revision they only grow.
SELECT (SELECT count(*) FROM {schema}.delta_checkpoints WHERE thread_key = $1) AS checkpoints,
    (SELECT count(*) FROM {schema}.delta_segments WHERE thread_key = $1) AS segments;

-- name: count_quarantined
-- How many rows of the thread a repair took out.
SELECT count(*) AS number FROM {schema}.delta_quarantine WHERE thread_key = $1;

-- name: payload_bytes
-- The size of segments and metadata documents. PostgreSQL knows the length of a payload without reading it.
SELECT coalesce((
    SELECT sum(octet_length(payload)) FROM {schema}.delta_segments
    WHERE thread_key = $1 AND segment_id = ANY ($2::text::bigint[])
), 0)::bigint + coalesce((
    SELECT sum(octet_length(payload)) FROM {schema}.delta_metadata
    WHERE thread_key = $1 AND metadata_id = ANY ($3::text::bigint[])
), 0)::bigint AS total_bytes;

-- name: edit_checkpoints
-- All checkpoints of the thread.
SELECT namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id, hidden, orphaned
FROM {schema}.delta_checkpoints WHERE thread_key = $1;

-- name: edit_segments
-- All segments of the thread, with the payload of pages and packs only.
SELECT segment_id, kind, namespace, checkpoint_id, CASE WHEN kind IN (2, 4) THEN payload ELSE '' END AS payload,
    segment_references::text
FROM {schema}.delta_segments WHERE thread_key = $1;

-- name: edit_metadata
-- All metadata documents of the thread by their run.
SELECT metadata_id, document ->> 'run_id' AS run_id FROM {schema}.delta_metadata WHERE thread_key = $1;

-- name: edit_documents
-- Metadata documents by their ids.
SELECT metadata_id, document::text AS document, payload
FROM {schema}.delta_metadata WHERE thread_key = $1 AND metadata_id = ANY ($2::text::bigint[]);

-- name: insert_segments
-- New segments of one rewritten checkpoint, in order.
INSERT INTO {schema}.delta_segments (thread_key, namespace, checkpoint_id, kind, segment_references, payload)
SELECT $1, $2, $3, segment.kind, nullif(segment.segment_references, '{}')::bigint[],
    substring($8::bytea FROM segment.start FOR segment.length)
FROM unnest($4::text::smallint[], $5::text[], $6::text::integer[], $7::text::integer[])
    WITH ORDINALITY AS segment (kind, segment_references, start, length, position)
ORDER BY segment.position
RETURNING segment_id;

-- name: update_checkpoint
-- Another payload, or other marks, for one checkpoint.
UPDATE {schema}.delta_checkpoints
SET parent_id = $4, depth = $5, segments = nullif($6::text::bigint[], '{}'), payload = $7, metadata_id = $8, hidden = $9,
    orphaned = $10
WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id = $3;

-- name: mark_checkpoints
-- Marks of many checkpoints.
UPDATE {schema}.delta_checkpoints AS checkpoint
SET hidden = mark.hidden, orphaned = mark.orphaned
FROM unnest($2::text[], $3::text::bytea[], $4::text::boolean[], $5::text::boolean[]) AS mark (namespace, checkpoint_id, hidden, orphaned)
WHERE checkpoint.thread_key = $1 AND checkpoint.namespace = mark.namespace
    AND checkpoint.checkpoint_id = mark.checkpoint_id;

-- name: delete_checkpoints
-- Many checkpoints by namespace and id.
DELETE FROM {schema}.delta_checkpoints AS checkpoint
USING unnest($2::text[], $3::text::bytea[]) AS gone (namespace, checkpoint_id)
WHERE checkpoint.thread_key = $1 AND checkpoint.namespace = gone.namespace
    AND checkpoint.checkpoint_id = gone.checkpoint_id;

-- name: delete_segments
-- Many segments by id.
DELETE FROM {schema}.delta_segments WHERE thread_key = $1 AND segment_id = ANY ($2::text::bigint[]);

-- name: delete_metadata
-- Many metadata documents by id.
DELETE FROM {schema}.delta_metadata WHERE thread_key = $1 AND metadata_id = ANY ($2::text::bigint[]);

-- name: insert_metadata
-- One metadata document, unless it is there.
INSERT INTO {schema}.delta_metadata (thread_key, metadata_id, document, payload)
VALUES ($1, $2, $3::text::jsonb, $4)
ON CONFLICT DO NOTHING;

-- name: create_thread
-- The row of a thread that is written as a whole; fails if there is one.
INSERT INTO {schema}.delta_threads (thread_key, thread_id, pinned) VALUES ($1, $2, $3)
RETURNING epoch, revision, thread_id, pinned, extract(epoch FROM created_at)::double precision AS created_seconds;

-- name: take_numbers
-- Segment ids for a thread that is written as a whole.
SELECT nextval('{schema}.delta_numbers') AS number FROM generate_series(1, $1::integer);

-- name: insert_segment
-- One segment that has its id: of a thread that is written as a whole, or a pack.
INSERT INTO {schema}.delta_segments
    (thread_key, segment_id, kind, namespace, checkpoint_id, segment_references, payload, first_checkpoint_id)
VALUES ($1, $2, $3, $4, $5, $6::text::bigint[], $7, $8);

-- name: insert_checkpoint
-- One checkpoint of a thread that is written as a whole.
INSERT INTO {schema}.delta_checkpoints
    (thread_key, namespace, checkpoint_id, parent_id, depth, segments, payload, metadata_id, hidden, orphaned)
VALUES ($1, $2, $3, $4, $5, $6::text::bigint[], $7, $8, $9, $10);

-- name: unstage
-- What is staged of a thread, once it is whole.
DELETE FROM {schema}.delta_staging WHERE thread_key = $1;

-- name: renew_revision
-- Last statement of an edit that only marks or adds: saves that waited are run again and see it.
UPDATE {schema}.delta_threads SET revision = DEFAULT WHERE thread_key = $1;

-- name: renew_epoch
-- Last statement of an edit that removes or rewrites: saves that rely on the old epoch are refused.
UPDATE {schema}.delta_threads SET revision = DEFAULT, epoch = DEFAULT WHERE thread_key = $1;

-- name: bury_thread
-- Before a thread is deleted: its tombstone, with the largest id that a run may hold; none if it has no rows.
INSERT INTO {schema}.delta_tombstones AS tombstone (thread_key, deleted_at, deleted_through)
SELECT $1, now(), newest.checkpoint_id
FROM (
    SELECT checkpoint_id FROM {schema}.delta_checkpoints WHERE thread_key = $1
    UNION ALL
    SELECT checkpoint_id FROM {schema}.delta_segments WHERE thread_key = $1
    ORDER BY checkpoint_id DESC LIMIT 1
) AS newest
ON CONFLICT (thread_key) DO UPDATE
SET deleted_at = now(), deleted_through = greatest(tombstone.deleted_through, excluded.deleted_through);

-- name: extend_deletion
-- A save to a deleted thread was refused: what it would have stored ($2) counts as deleted, too.
UPDATE {schema}.delta_tombstones SET deleted_through = greatest(deleted_through, $2) WHERE thread_key = $1
RETURNING NOT EXISTS (SELECT FROM {schema}.delta_threads WHERE thread_key = $1) AS is_gone;

-- name: forget_deletion
-- Late saves to this thread are accepted again.
DELETE FROM {schema}.delta_tombstones WHERE thread_key = $1 RETURNING true AS found;

-- name: forget_deletions
-- Tombstones of which nobody needs to know any more: a small table, read from end to end.
DELETE FROM {schema}.delta_tombstones WHERE deleted_at < now() - make_interval(secs => $1);

-- name: delete_thread
-- Every row of the thread.
WITH checkpoints AS (
    DELETE FROM {schema}.delta_checkpoints WHERE thread_key = $1
), segments AS (
    DELETE FROM {schema}.delta_segments WHERE thread_key = $1
), metadata AS (
    DELETE FROM {schema}.delta_metadata WHERE thread_key = $1
), quarantine AS (
    DELETE FROM {schema}.delta_quarantine WHERE thread_key = $1
)
DELETE FROM {schema}.delta_threads WHERE thread_key = $1;

-- name: has_rows
-- Whether anything is stored under the thread key.
SELECT EXISTS (SELECT FROM {schema}.delta_threads WHERE thread_key = $1)
    OR EXISTS (SELECT FROM {schema}.delta_checkpoints WHERE thread_key = $1)
    OR EXISTS (SELECT FROM {schema}.delta_segments WHERE thread_key = $1)
    OR EXISTS (SELECT FROM {schema}.delta_metadata WHERE thread_key = $1) AS found;

-- name: copy_thread
-- The row of a copy ($2, $3), if the source ($1) is there.
INSERT INTO {schema}.delta_threads (thread_key, thread_id)
SELECT $2, $3::text FROM {schema}.delta_threads WHERE thread_key = $1;

-- name: copy_checkpoints
-- All checkpoints of a thread under another key.
INSERT INTO {schema}.delta_checkpoints
    (thread_key, namespace, checkpoint_id, parent_id, depth, segments, payload, metadata_id, hidden, orphaned)
SELECT $2, namespace, checkpoint_id, parent_id, depth, segments, payload, metadata_id, hidden, orphaned
FROM {schema}.delta_checkpoints WHERE thread_key = $1;

-- name: copy_segments
-- All segments of a thread under another key; they keep their ids, so that all references stay right.
INSERT INTO {schema}.delta_segments
    (thread_key, segment_id, kind, namespace, checkpoint_id, segment_references, payload, first_checkpoint_id)
SELECT $2, segment_id, kind, namespace, checkpoint_id, segment_references, payload, first_checkpoint_id
FROM {schema}.delta_segments WHERE thread_key = $1;

-- name: copy_metadata
-- All metadata documents of a thread under another key.
INSERT INTO {schema}.delta_metadata (thread_key, metadata_id, document, payload)
SELECT $2, metadata_id, document, payload FROM {schema}.delta_metadata WHERE thread_key = $1;
