-- The whole schema as it is today: to read, and for administrators who apply it by hand (README.md).
--
-- A test proves that this file and the migrations, one after the other, give the same catalog.

CREATE SEQUENCE {schema}.delta_numbers AS bigint CACHE 1;

COMMENT ON SEQUENCE {schema}.delta_numbers IS
    'Numbers for epochs, revisions and segment ids. CACHE 1: segment ids must grow in the order of acknowledged saves.';

CREATE TABLE {schema}.delta_migrations (
    version integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    name text NOT NULL,
    CONSTRAINT delta_migrations_pkey PRIMARY KEY (version)
);

COMMENT ON TABLE {schema}.delta_migrations IS 'One row for each migration that this schema has.';
COMMENT ON COLUMN {schema}.delta_migrations.version IS 'Number of the migration file, from 1 on without gaps.';
COMMENT ON COLUMN {schema}.delta_migrations.applied_at IS 'When the migration was committed.';
COMMENT ON COLUMN {schema}.delta_migrations.name IS 'Name of the migration file without its number and ending.';

CREATE TABLE {schema}.delta_threads (
    epoch bigint NOT NULL DEFAULT nextval('{schema}.delta_numbers'),
    revision bigint NOT NULL DEFAULT nextval('{schema}.delta_numbers'),
    created_at timestamptz NOT NULL DEFAULT now(),
    thread_key bytea NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    pinned boolean NOT NULL DEFAULT false,
    CONSTRAINT delta_threads_pkey PRIMARY KEY (thread_key)
);

COMMENT ON TABLE {schema}.delta_threads IS
    'One row for each thread. Its row lock orders saves (FOR KEY SHARE) against removals (FOR UPDATE).';
COMMENT ON COLUMN {schema}.delta_threads.epoch IS
    'Changes, to a number never used before, whenever something of the thread is removed or rewritten.';
COMMENT ON COLUMN {schema}.delta_threads.revision IS
    'Changes with every edit, removing or not: tells a save that waited for an edit that its snapshot is older.';
COMMENT ON COLUMN {schema}.delta_threads.created_at IS 'When the thread got its first row.';
COMMENT ON COLUMN {schema}.delta_threads.thread_key IS 'Digest of the thread id, 16 bytes.';
COMMENT ON COLUMN {schema}.delta_threads.thread_id IS 'The thread id as the application gave it.';
COMMENT ON COLUMN {schema}.delta_threads.pinned IS 'Exempt from retention.';

CREATE TABLE {schema}.delta_checkpoints (
    metadata_id bigint NOT NULL,
    depth integer NOT NULL,
    hidden boolean NOT NULL,
    orphaned boolean NOT NULL,
    thread_key bytea NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id bytea NOT NULL,
    parent_id bytea,
    segments bigint[],
    payload bytea NOT NULL,
    CONSTRAINT delta_checkpoints_pkey PRIMARY KEY (thread_key, namespace, checkpoint_id) WITH (fillfactor = 100)
) WITH (toast_tuple_target = 4080);
ALTER TABLE {schema}.delta_checkpoints ALTER COLUMN payload SET STORAGE EXTERNAL;

COMMENT ON TABLE {schema}.delta_checkpoints IS 'One row for each checkpoint: its structure, as a delta or an anchor.';
COMMENT ON COLUMN {schema}.delta_checkpoints.metadata_id IS 'The metadata document of the thread that belongs to it.';
COMMENT ON COLUMN {schema}.delta_checkpoints.depth IS 'Steps back to its anchor; 0 for an anchor.';
COMMENT ON COLUMN {schema}.delta_checkpoints.hidden IS
    'Deleted for readers, kept because a visible descendant needs it (a support row).';
COMMENT ON COLUMN {schema}.delta_checkpoints.orphaned IS 'Its parent was deleted: readers are told that there is none.';
COMMENT ON COLUMN {schema}.delta_checkpoints.thread_key IS 'The thread.';
COMMENT ON COLUMN {schema}.delta_checkpoints.namespace IS 'Checkpoint namespace of LangGraph; empty for the root graph.';
COMMENT ON COLUMN {schema}.delta_checkpoints.checkpoint_id IS
    'Ordered key of the checkpoint id: sorts as the ids sort as text.';
COMMENT ON COLUMN {schema}.delta_checkpoints.parent_id IS 'Ordered key of the parent; NULL for a root.';
COMMENT ON COLUMN {schema}.delta_checkpoints.segments IS
    'Segments that the payload refers to by position, its own first; NULL for none.';
COMMENT ON COLUMN {schema}.delta_checkpoints.payload IS
    'The sealed delta or anchor (docs/format.md); compressed already, so PostgreSQL does not try.';

CREATE TABLE {schema}.delta_segments (
    segment_id bigint NOT NULL DEFAULT nextval('{schema}.delta_numbers'),
    kind smallint NOT NULL,
    thread_key bytea NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    checkpoint_id bytea NOT NULL,
    segment_references bigint[],
    payload bytea NOT NULL,
    first_checkpoint_id bytea,
    CONSTRAINT delta_segments_pkey PRIMARY KEY (thread_key, segment_id) WITH (fillfactor = 100)
) WITH (toast_tuple_target = 4080);

CREATE INDEX delta_segments_writes ON {schema}.delta_segments (thread_key, namespace, checkpoint_id)
    WITH (fillfactor = 100) WHERE kind = 3;

CREATE INDEX delta_segments_packs ON {schema}.delta_segments (thread_key, segment_id) WHERE kind = 4;

ALTER TABLE {schema}.delta_segments ALTER COLUMN payload SET STORAGE EXTERNAL;

COMMENT ON TABLE {schema}.delta_segments IS 'Immutable batches of items, written once, referred to by id.';
COMMENT ON INDEX {schema}.delta_segments_writes IS
    'Pending writes by their checkpoint. Values and pages are found by the ids that checkpoints name.';
COMMENT ON INDEX {schema}.delta_segments_packs IS 'Packs of a thread, to find the one that holds a segment.';
COMMENT ON COLUMN {schema}.delta_segments.segment_id IS
    'Grows with every save of the thread. A pack has the largest id of those that it holds.';
COMMENT ON COLUMN {schema}.delta_segments.kind IS
    '1 values of a checkpoint, 2 pages of an anchor, 3 pending writes, 4 a pack of such segments.';
COMMENT ON COLUMN {schema}.delta_segments.thread_key IS 'The thread.';
COMMENT ON COLUMN {schema}.delta_segments.namespace IS
    'Namespace of the checkpoint that it was written with or to; empty for a pack.';
COMMENT ON COLUMN {schema}.delta_segments.checkpoint_id IS
    'Ordered key of the checkpoint that it was written with or, for writes, to; that one may come later. Of a pack: the largest that its segments have.';
COMMENT ON COLUMN {schema}.delta_segments.segment_references IS
    'Other segments that the payload refers to, of a pack: that the writes in it refer to and it does not hold; NULL for none.';
COMMENT ON COLUMN {schema}.delta_segments.payload IS 'The sealed items (docs/format.md); compressed already.';
COMMENT ON COLUMN {schema}.delta_segments.first_checkpoint_id IS
    'Of a pack: the smallest ordered key that its segments have. NULL for others.';

CREATE TABLE {schema}.delta_metadata (
    metadata_id bigint NOT NULL,
    thread_key bytea NOT NULL,
    document jsonb NOT NULL,
    payload bytea NOT NULL,
    CONSTRAINT delta_metadata_pkey PRIMARY KEY (thread_key, metadata_id)
);

CREATE INDEX delta_metadata_run ON {schema}.delta_metadata ((document ->> 'run_id')) WHERE document ? 'run_id';

ALTER TABLE {schema}.delta_metadata ALTER COLUMN payload SET STORAGE EXTERNAL;

COMMENT ON TABLE {schema}.delta_metadata IS 'The part of checkpoint metadata that many checkpoints of a thread share.';
COMMENT ON INDEX {schema}.delta_metadata_run IS 'Threads by run id, for the deletion of runs.';
COMMENT ON COLUMN {schema}.delta_metadata.metadata_id IS 'Digest of the exact metadata, 64 bits.';
COMMENT ON COLUMN {schema}.delta_metadata.thread_key IS 'The thread.';
COMMENT ON COLUMN {schema}.delta_metadata.document IS 'The metadata as far as jsonb can hold it, for filters.';
COMMENT ON COLUMN {schema}.delta_metadata.payload IS 'The sealed exact metadata (docs/format.md).';

CREATE TABLE {schema}.delta_tombstones (
    deleted_at timestamptz NOT NULL,
    thread_key bytea NOT NULL,
    deleted_through bytea NOT NULL,
    CONSTRAINT delta_tombstones_pkey PRIMARY KEY (thread_key)
);

COMMENT ON TABLE {schema}.delta_tombstones IS
    'Threads that were deleted a while ago, so that late saves of a run do not bring them back.';
COMMENT ON COLUMN {schema}.delta_tombstones.deleted_at IS 'When the thread was last deleted.';
COMMENT ON COLUMN {schema}.delta_tombstones.thread_key IS 'The thread; its id is not kept.';
COMMENT ON COLUMN {schema}.delta_tombstones.deleted_through IS
    'Ordered key of its largest checkpoint id: saves that name this one or a smaller one are refused.';

CREATE TABLE {schema}.delta_quarantine (
    quarantined_at timestamptz NOT NULL DEFAULT now(),
    number bigint NOT NULL DEFAULT nextval('{schema}.delta_numbers'),
    thread_key bytea NOT NULL,
    source text NOT NULL,
    reason text NOT NULL,
    columns jsonb NOT NULL,
    payload bytea NOT NULL,
    CONSTRAINT delta_quarantine_pkey PRIMARY KEY (thread_key, number)
);

ALTER TABLE {schema}.delta_quarantine ALTER COLUMN payload SET STORAGE EXTERNAL;

COMMENT ON TABLE {schema}.delta_quarantine IS 'Rows that a repair took out of their tables, as they were.';
COMMENT ON COLUMN {schema}.delta_quarantine.quarantined_at IS 'When the row was taken out.';
COMMENT ON COLUMN {schema}.delta_quarantine.number IS 'Tells rows of a thread apart.';
COMMENT ON COLUMN {schema}.delta_quarantine.thread_key IS 'The thread.';
COMMENT ON COLUMN {schema}.delta_quarantine.source IS 'The table that it was in.';
COMMENT ON COLUMN {schema}.delta_quarantine.reason IS 'What was wrong with it, or why nothing needs it.';
COMMENT ON COLUMN {schema}.delta_quarantine.columns IS 'All its columns but the payload.';
COMMENT ON COLUMN {schema}.delta_quarantine.payload IS 'Its payload.';

CREATE TABLE {schema}.delta_staging (
    staged_at timestamptz NOT NULL DEFAULT now(),
    part integer NOT NULL,
    thread_key bytea NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    CONSTRAINT delta_staging_pkey PRIMARY KEY (thread_key, part)
);

ALTER TABLE {schema}.delta_staging ALTER COLUMN payload SET STORAGE EXTERNAL;

COMMENT ON TABLE {schema}.delta_staging IS
    'Parts of threads that are being migrated. No reader looks here; the whole thread is moved from here at once.';
COMMENT ON COLUMN {schema}.delta_staging.staged_at IS 'When the part was committed.';
COMMENT ON COLUMN {schema}.delta_staging.part IS 'Its number, from 0 on without gaps.';
COMMENT ON COLUMN {schema}.delta_staging.thread_key IS 'The thread that will be.';
COMMENT ON COLUMN {schema}.delta_staging.thread_id IS 'Its id.';
COMMENT ON COLUMN {schema}.delta_staging.payload IS 'Rows of the thread, sealed together with the part before (docs/format.md).';

INSERT INTO {schema}.delta_migrations (version, name) VALUES (1, 'initial'), (2, 'retention'), (3, 'quarantine'), (4, 'staging'), (5, 'packs');
