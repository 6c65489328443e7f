-- Distributes the tables of threads over the nodes of a Citus cluster by thread key.
--
-- For the operator: run it on the coordinator right after `deltastore schema up` (or setup) and before the first
-- checkpoint. Every statement of a running graph names one thread key, so Citus can send it to one shard whole. The
-- listing of all threads and the search by run id ask every shard; `copy_thread` moves rows between two.
-- This project's tests do not run on Citus (they do run on the partitioned variant): try it with your version first.

SELECT create_distributed_table('{schema}.delta_threads', 'thread_key');
SELECT create_distributed_table('{schema}.delta_checkpoints', 'thread_key', colocate_with => '{schema}.delta_threads');
SELECT create_distributed_table('{schema}.delta_segments', 'thread_key', colocate_with => '{schema}.delta_threads');
SELECT create_distributed_table('{schema}.delta_metadata', 'thread_key', colocate_with => '{schema}.delta_threads');
SELECT create_distributed_table('{schema}.delta_tombstones', 'thread_key', colocate_with => '{schema}.delta_threads');
SELECT create_distributed_table('{schema}.delta_quarantine', 'thread_key', colocate_with => '{schema}.delta_threads');
SELECT create_distributed_table('{schema}.delta_staging', 'thread_key', colocate_with => '{schema}.delta_threads');
