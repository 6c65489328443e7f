-- Statements of overviews: which threads and namespaces there are. They serve people, not running graphs; those on
-- threads name no thread key, and on a partitioned or distributed schema they meet all parts.
--
-- `LATERAL` with `LIMIT` or `OFFSET 0` leaves the planner one descent of the index per row, as in `queries.sql`.

-- name: without_jit
-- For the rest of the transaction: a plan of many cheap descents looks dear, and would be compiled first.
SET LOCAL jit = off;

-- name: newest_threads
-- A page of threads, or of pinned ones ($4), by their newest checkpoint in the root namespace.
--
-- One descent of the primary key for each thread, in the order of the keys, so that neighbours find the same pages; the
-- index alone answers where the visibility map allows it. Then come the rows of the page only. No index is kept for this
-- order, since each save would have to pay for it.
SELECT page.thread_key, thread.thread_id, thread.created_at, thread.pinned, page.newest, head.*,
    metadata.document::text AS document, metadata.payload AS metadata_payload
FROM (
    SELECT each.thread_key, coalesce(last.checkpoint_id, '') AS newest
    FROM (
        SELECT thread_key FROM {schema}.delta_threads WHERE pinned OR NOT $4::boolean ORDER BY thread_key OFFSET 0
    ) AS each
    LEFT JOIN LATERAL (
        SELECT checkpoint_id FROM {schema}.delta_checkpoints
        WHERE thread_key = each.thread_key AND namespace = ''
        ORDER BY checkpoint_id DESC LIMIT 1
    ) AS last ON true
    WHERE $1::bytea IS NULL OR (coalesce(last.checkpoint_id, ''), each.thread_key) < ($1, $2::bytea)
    ORDER BY newest DESC, thread_key DESC
    LIMIT $3
) AS page
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = page.thread_key
LEFT JOIN LATERAL (
    SELECT namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id, hidden, orphaned
    FROM {schema}.delta_checkpoints
    WHERE thread_key = page.thread_key AND namespace = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS head ON true
LEFT JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata
    WHERE thread_key = page.thread_key AND metadata_id = head.metadata_id
    OFFSET 0
) AS metadata ON true
ORDER BY page.newest DESC, page.thread_key DESC;

-- name: newest_threads_with_metadata
-- The same, of threads with a visible checkpoint whose metadata contains $5. Reads all metadata documents.
WITH described AS MATERIALIZED (
    SELECT thread_key, array_agg(metadata_id) AS metadata_ids
    FROM {schema}.delta_metadata WHERE document @> $5::text::jsonb
    GROUP BY thread_key
)
SELECT page.thread_key, thread.thread_id, thread.created_at, thread.pinned, page.newest, head.*,
    metadata.document::text AS document, metadata.payload AS metadata_payload
FROM (
    SELECT each.thread_key, coalesce(last.checkpoint_id, '') AS newest
    FROM described AS each
    LEFT JOIN LATERAL (
        SELECT checkpoint_id FROM {schema}.delta_checkpoints
        WHERE thread_key = each.thread_key AND namespace = ''
        ORDER BY checkpoint_id DESC LIMIT 1
    ) AS last ON true
    WHERE ($1::bytea IS NULL OR (coalesce(last.checkpoint_id, ''), each.thread_key) < ($1, $2::bytea))
        AND EXISTS (
            SELECT FROM {schema}.delta_checkpoints AS checkpoint
            WHERE checkpoint.thread_key = each.thread_key AND NOT checkpoint.hidden
                AND checkpoint.metadata_id = ANY (each.metadata_ids)
            OFFSET 0
        )
        AND (NOT $4::boolean OR EXISTS (
            SELECT FROM {schema}.delta_threads AS thread WHERE thread.thread_key = each.thread_key AND thread.pinned
            OFFSET 0
        ))
    ORDER BY newest DESC, thread_key DESC
    LIMIT $3
) AS page
LEFT JOIN {schema}.delta_threads AS thread ON thread.thread_key = page.thread_key
LEFT JOIN LATERAL (
    SELECT namespace, checkpoint_id, parent_id, depth, segments::text AS segments, payload, metadata_id, hidden, orphaned
    FROM {schema}.delta_checkpoints
    WHERE thread_key = page.thread_key AND namespace = '' AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS head ON true
LEFT JOIN LATERAL (
    SELECT document, payload FROM {schema}.delta_metadata
    WHERE thread_key = page.thread_key AND metadata_id = head.metadata_id
    OFFSET 0
) AS metadata ON true
ORDER BY page.newest DESC, page.thread_key DESC;

-- name: namespaces
-- The first namespaces of a thread from $2 on, each with its newest visible checkpoint: two descents of the index each,
-- however many checkpoints they have.
WITH RECURSIVE found AS (
    SELECT first.namespace FROM (
        SELECT namespace FROM {schema}.delta_checkpoints
        WHERE thread_key = $1 AND namespace >= $2 AND NOT hidden
        ORDER BY namespace LIMIT 1
    ) AS first
    UNION ALL
    SELECT next.namespace FROM found CROSS JOIN LATERAL (
        SELECT namespace FROM {schema}.delta_checkpoints
        WHERE thread_key = $1 AND namespace > found.namespace AND NOT hidden
        ORDER BY namespace LIMIT 1
    ) AS next
)
SELECT page.namespace, newest.checkpoint_id
FROM (SELECT namespace FROM found LIMIT $3) AS page
CROSS JOIN LATERAL (
    SELECT checkpoint_id FROM {schema}.delta_checkpoints
    WHERE thread_key = $1 AND namespace = page.namespace AND NOT hidden
    ORDER BY checkpoint_id DESC LIMIT 1
) AS newest
ORDER BY page.namespace;

-- name: load_structures
-- As `load_chains` for some checkpoints, but without the segments of values and without metadata: what is needed to
-- fold headers and piece lists. A history of large values costs no more than one of small ones.
WITH RECURSIVE wanted AS MATERIALIZED (
    SELECT DISTINCT unnest($3::text::bytea[]) AS id
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
    WHERE chain.depth > 0
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
    WHERE thread_key = $1 AND segment_id = named.id AND kind IN (2, 4)
    OFFSET 0
) AS page
UNION ALL
SELECT 2, segment_id, $2, chain.checkpoint_id, NULL, kind, NULL, NULL, segment_references::text, write.payload
FROM chain CROSS JOIN LATERAL (
    SELECT segment_id, kind, segment_references, payload FROM {schema}.delta_segments
    WHERE thread_key = $1 AND namespace = $2 AND checkpoint_id = chain.checkpoint_id AND kind = 3
    OFFSET 0
) AS write;
