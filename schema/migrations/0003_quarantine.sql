-- A place for damaged rows that a repair takes out of their tables (`deltastore verify --repair`).
--
-- For the operator: adds one new table and touches no other. Ends in milliseconds. Before deploying the code; older
-- processes go on working.

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
