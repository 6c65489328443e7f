-- Packs: many segments of a thread compressed together (`deltastore compact`).
--
-- For the operator: adds one column without a default, which takes a short exclusive lock on delta_segments and rewrites
-- nothing, and one partial index, empty at first, for which the table is read once while its writers wait. If it is
-- large, do both before: `ALTER TABLE delta_segments ADD COLUMN IF NOT EXISTS first_checkpoint_id bytea`, then `CREATE
-- INDEX CONCURRENTLY` as below. Before deploying the code; older processes go on working, but cannot read a thread once
-- it is compacted: replace all of them before the first `deltastore compact`.

ALTER TABLE {schema}.delta_segments ADD COLUMN IF NOT EXISTS first_checkpoint_id bytea;

CREATE INDEX IF NOT EXISTS delta_segments_packs ON {schema}.delta_segments (thread_key, segment_id) WHERE kind = 4;

COMMENT ON INDEX {schema}.delta_segments_packs IS 'Packs of a thread, to find the one that holds a segment.';
COMMENT ON COLUMN {schema}.delta_segments.segment_id IS
    'Grows with every save of the thread. A pack has the largest id of those that it holds.';
COMMENT ON COLUMN {schema}.delta_segments.kind IS
    '1 values of a checkpoint, 2 pages of an anchor, 3 pending writes, 4 a pack of such segments.';
COMMENT ON COLUMN {schema}.delta_segments.namespace IS
    'Namespace of the checkpoint that it was written with or to; empty for a pack.';
COMMENT ON COLUMN {schema}.delta_segments.checkpoint_id IS
    'Ordered key of the checkpoint that it was written with or, for writes, to; that one may come later. Of a pack: the largest that its segments have.';
COMMENT ON COLUMN {schema}.delta_segments.segment_references IS
    'Other segments that the payload refers to, of a pack: that the writes in it refer to and it does not hold; NULL for none.';
COMMENT ON COLUMN {schema}.delta_segments.first_checkpoint_id IS
    'Of a pack: the smallest ordered key that its segments have. NULL for others.';
