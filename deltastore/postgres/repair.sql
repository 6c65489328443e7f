-- What a repair does to one thread, under its lock; `repair.py` has one typed function for each, under the same name.
--
-- Keys need not be unique here: a broken restore may have lost the indexes. Rows are then told apart by where they are.

-- name: keep_one_thread
-- One of several rows of the thread itself: the one with the right id, and of these the latest.
DELETE FROM {schema}.delta_threads AS thread
USING (
    SELECT ctid AS place, row_number() OVER (ORDER BY thread_id = $2::text DESC, epoch DESC) AS number
    FROM {schema}.delta_threads WHERE thread_key = $1
) AS copy
WHERE thread.thread_key = $1 AND thread.ctid = copy.place AND copy.number > 1;

-- name: keep_one_checkpoint
-- One of several equal checkpoints; of those that differ in their marks the one that was deleted.
DELETE FROM {schema}.delta_checkpoints AS checkpoint
USING (
    SELECT ctid AS place, row_number() OVER (
        PARTITION BY namespace, checkpoint_id, parent_id, depth, segments, metadata_id, payload
        ORDER BY hidden DESC, orphaned DESC
    ) AS number
    FROM {schema}.delta_checkpoints WHERE thread_key = $1
) AS copy
WHERE checkpoint.thread_key = $1 AND checkpoint.ctid = copy.place AND copy.number > 1;

-- name: keep_one_segment
-- One of several equal segments.
DELETE FROM {schema}.delta_segments AS segment
USING (
    SELECT ctid AS place, row_number() OVER (
        PARTITION BY segment_id, kind, namespace, checkpoint_id, segment_references, payload, first_checkpoint_id
    ) AS number
    FROM {schema}.delta_segments WHERE thread_key = $1
) AS copy
WHERE segment.thread_key = $1 AND segment.ctid = copy.place AND copy.number > 1;

-- name: keep_one_document
-- One of several equal metadata documents.
DELETE FROM {schema}.delta_metadata AS metadata
USING (
    SELECT ctid AS place, row_number() OVER (PARTITION BY metadata_id, document, payload) AS number
    FROM {schema}.delta_metadata WHERE thread_key = $1
) AS copy
WHERE metadata.thread_key = $1 AND metadata.ctid = copy.place AND copy.number > 1;

-- name: quarantine_checkpoint
-- A checkpoint, or ($4) only its copy with this payload.
WITH gone AS (
    DELETE FROM {schema}.delta_checkpoints
    WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id = $3 AND ($4::bytea IS NULL OR payload = $4)
    RETURNING *
)
INSERT INTO {schema}.delta_quarantine (thread_key, source, reason, columns, payload)
SELECT $1, 'delta_checkpoints', $5::text, jsonb_build_object(
    'thread_key', thread_key, 'namespace', namespace, 'checkpoint_id', checkpoint_id, 'parent_id', parent_id,
    'depth', depth, 'segments', segments, 'metadata_id', metadata_id, 'hidden', hidden, 'orphaned', orphaned
), payload
FROM gone;

-- name: quarantine_segment
-- A segment, or ($3) only its copy with this payload.
WITH gone AS (
    DELETE FROM {schema}.delta_segments
    WHERE thread_key = $1 AND segment_id = $2 AND ($3::bytea IS NULL OR payload = $3)
    RETURNING *
)
INSERT INTO {schema}.delta_quarantine (thread_key, source, reason, columns, payload)
SELECT $1, 'delta_segments', $4::text, jsonb_build_object(
    'thread_key', thread_key, 'segment_id', segment_id, 'kind', kind, 'namespace', namespace,
    'checkpoint_id', checkpoint_id, 'segment_references', segment_references,
    'first_checkpoint_id', first_checkpoint_id
), payload
FROM gone;

-- name: quarantine_document
-- A metadata document, or ($3) only its copy with this payload.
WITH gone AS (
    DELETE FROM {schema}.delta_metadata
    WHERE thread_key = $1 AND metadata_id = $2 AND ($3::bytea IS NULL OR payload = $3)
    RETURNING *
)
INSERT INTO {schema}.delta_quarantine (thread_key, source, reason, columns, payload)
SELECT $1, 'delta_metadata', $4::text, jsonb_build_object(
    'thread_key', thread_key, 'metadata_id', metadata_id, 'document', document
), payload
FROM gone;

-- name: restore_thread
-- The thread's own row with its id, made or corrected.
WITH corrected AS (
    UPDATE {schema}.delta_threads SET thread_id = $2 WHERE thread_key = $1 AND thread_id <> $2
)
INSERT INTO {schema}.delta_threads (thread_key, thread_id)
SELECT $1, $2::text WHERE NOT EXISTS (SELECT FROM {schema}.delta_threads WHERE thread_key = $1);

-- name: rewrite_document
-- The searchable form of a metadata document.
UPDATE {schema}.delta_metadata SET document = $3::text::jsonb WHERE thread_key = $1 AND metadata_id = $2;
