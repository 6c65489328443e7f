"""A thread's rows, opened and numbered, so that they are equal wherever the thread is stored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltastore import DeltaSaver
from deltastore.conversion import validate
from deltastore.core.archive_rows import Packing


def files_in(folder: Path) -> list[Path]:
    """The files of a folder."""
    return sorted(folder.iterdir())


async def rows_of(saver: DeltaSaver, thread_id: str) -> list[Any] | None:
    """All rows of a thread, hidden ones included; None if there is no such thread."""

    async def read(engine: Any, _: Any, cipher: Any) -> list[Any] | None:
        async with engine.storage.edit(validate.thread(thread_id).key) as edit:
            rows = await edit.rows()
            if rows is None:
                return None
            ids = [each.segment_id for each in rows.segments]
            segments = await edit.segments(ids)
            found = await edit.documents([number for number, _ in rows.metadata])
        documents = [replace(each, document=json.dumps(json.loads(each.document), sort_keys=True)) for each in found]
        packing = Packing(rows.thread, ids, cipher)
        return sorted(
            (packing.pack(row) for row in (*documents, *segments, *rows.checkpoints)),
            key=lambda row: (type(row).__name__, getattr(row, "segment_id", 0), getattr(row, "key", ()), repr(row)),
        )

    return await saver.acall(read)
