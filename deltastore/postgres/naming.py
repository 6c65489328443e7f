"""The schema's name in SQL text: the only thing in it that is not a parameter."""

from __future__ import annotations

import re

from deltastore.errors import InvalidConfigError

NAME_BYTES_MAX = 63
"""What PostgreSQL keeps of an identifier; it would cut a longer one silently."""


def quote_schema(name: str) -> str:
    """The schema's name as a quoted identifier.

    Raises:
        InvalidConfigError: Not a string, empty, longer than 63 bytes in UTF-8, with a NUL or a lone surrogate.
    """
    if not isinstance(name, str):
        raise InvalidConfigError("schema name is not a string", detail=f"found {type(name).__name__}")
    try:
        name_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidConfigError("schema name is not valid Unicode", detail=str(error)) from None
    if not name or "\0" in name or name_bytes > NAME_BYTES_MAX:
        raise InvalidConfigError(
            "schema name cannot be used",
            detail=f"found {name!r} of {name_bytes} bytes, expected 1 to {NAME_BYTES_MAX} bytes without NUL",
        )
    return '"' + name.replace('"', '""') + '"'


def render(text: str, schema: str) -> str:
    """SQL text with its `{schema}` placeholders filled in, also those that begin a string literal."""
    quoted = quote_schema(schema)
    in_literal = "'" + quoted.replace("'", "''")
    return re.sub(r"'?\{schema\}", lambda found: in_literal if found[0][0] == "'" else quoted, text)
