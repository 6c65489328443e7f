-- A place for the parts of a large thread on its way from another saver (`deltastore migrate`), until it is whole.
--
-- For the operator: adds one new table and touches no other. Ends in milliseconds. Before deploying the code; older
-- processes go on working.

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
