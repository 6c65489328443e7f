-- Pins, and a memory of deleted threads.
--
-- For the operator: adds one column with a constant default, which takes a short exclusive lock on delta_threads and
-- rewrites nothing, and one new table. Ends in milliseconds. Before deploying the code; older processes go on working.

ALTER TABLE {schema}.delta_threads ADD COLUMN pinned boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN {schema}.delta_threads.pinned IS 'Exempt from retention.';

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
