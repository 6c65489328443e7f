"""DeltaChannels rebuilt: the seed and the writes since, through the channel's reducer.

The reducer belongs to the graph and is not stored. For messages it is LangGraph's own, unless another one is given; for
any other channel it has to be given, for a guess could show a value that the graph never had. It is called as LangGraph
calls it: with the value and a list of writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.conversion import convert
from deltastore.core.codec import Codec
from deltastore.inspection.messages import is_message
from deltastore.inspection.records import ChannelView
from deltastore.inspection.values import read_value, unopened_names
from deltastore.loaded import ChannelHistory

Reducer = Callable[[Any, Sequence[Any]], Any]
MISSING_REDUCER = "its reducer is not known: give --reducer {}=package.module:function"


def folded(codec: Codec, channel: str, stored: ChannelHistory, reducer: Reducer | None) -> ChannelView:
    """The channel rebuilt, or `unfolded` with the reason."""
    where = f"{stored.items.where}, history of {channel!r}"
    seed = None
    if stored.seed is not None:
        seed = read_value(codec, convert.encoded(stored.items, stored.seed.kind, stored.seed.pieces), where)
    writes = tuple(
        read_value(codec, convert.encoded(stored.items, each.write.kind, each.write.pieces), where)
        for each in stored.writes
    )
    seed = seed.value if isinstance(seed, _DeltaSnapshot) else seed
    if names := unopened_names([seed, *writes]):
        return ChannelView(channel, "unfolded", seed, writes, f"not opened: {', '.join(sorted(names))}")
    try:
        value = fold(channel, seed, writes, reducer)
    except CannotFoldError as error:
        return ChannelView(channel, "unfolded", seed, writes, str(error))
    return ChannelView(channel, "folded", value)


class CannotFoldError(Exception):
    """Why a DeltaChannel cannot be rebuilt; its view says so."""


def fold(channel: str, seed: Any, writes: Sequence[Any], reducer: Reducer | None) -> Any:
    """The value that a DeltaChannel has after these writes.

    Raises:
        CannotFoldError: There is no reducer for it, LangGraph is not installed, or the reducer failed.
    """
    if not writes:
        return seed
    try:
        from langgraph.channels.delta import DeltaChannel  # noqa: PLC0415 - only here is LangGraph itself needed
        from langgraph.graph.message import _messages_delta_reducer  # noqa: PLC0415
    except ImportError as error:
        raise CannotFoldError(f"LangGraph with DeltaChannel is needed: {error}") from error
    if reducer is None and not _are_messages(channel, seed, writes):
        raise CannotFoldError(MISSING_REDUCER.format(channel))
    made: DeltaChannel[Any] = DeltaChannel(reducer or cast("Reducer", _messages_delta_reducer), _type_of(seed, writes))
    try:
        rebuilt = made.from_checkpoint(seed)
        rebuilt.replay_writes([("", channel, write) for write in writes])
        return rebuilt.get()
    except Exception as error:
        raise CannotFoldError(f"the reducer failed: {type(error).__name__}: {error}") from error


def _type_of(seed: Any, writes: Sequence[Any]) -> type[Any]:
    """The type that an empty channel starts from."""
    for value in (seed, *writes):
        if isinstance(value, list | dict | set):
            return type(value)
    return list


def _are_messages(channel: str, seed: Any, writes: Sequence[Any]) -> bool:
    """Whether the channel certainly holds messages.

    Texts and dicts may stand for messages, but other channels hold such, too: so there has to be a message among them,
    or for dicts in the form of messages the usual name.
    """
    parts = [*seed] if isinstance(seed, list) else [] if seed is None else [seed]
    for write in writes:
        content = getattr(write, "value", None) if type(write).__name__ == "Overwrite" else write
        parts += content if isinstance(content, list | tuple) else [] if content is None else [content]
    if any(isinstance(each, BaseMessage) for each in parts):
        return all(isinstance(each, str) or is_message(each) for each in parts)
    return channel == "messages" and bool(parts) and all(map(is_message, parts))
