"""Storage on PostgreSQL.

What this package relies on: READ COMMITTED, `synchronous_commit` as the server has it, and nothing that outlives a
transaction (no `SET`, session locks, temporary tables or named cursors), so that a transaction pooler may stand
between.

What it promises: a save is one statement in its own transaction. Statements that change a thread are ordered by the
row of `delta_threads`: saves share it (`FOR KEY SHARE`), edits and deletions own it (`FOR UPDATE`).

    pool.py         connections: sizes, timeouts, ownership
    failures.py     errors of the driver to ours, and whether trying again can help
    queries.sql     every statement, named and commented
    queries.py      one typed function for each
    migrations.py   the schema: numbered steps, their plan, and how they are applied
    storage.py      the `Storage` protocol on top of these
"""
