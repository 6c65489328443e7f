"""Proof that a target still has what it was given: read by a new saver and compared with what has to be there.

Two independent sources say what that is: states folded from the scripts (ends of sampled turns, and the head), and what
the saver was handed: digests of channel values and pending writes, parent, metadata and versions of every checkpoint of
the sampled turns, and the ids of all checkpoints in their order, against which parts of the history are listed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bench.errors import NotVerifiedError
from bench.history import History
from bench.recorder import Evidence, digest
from bench.saved import check_saved
from bench.stage import Graph, Stage, thread_config
from bench.workloads.base import Conversation

SAMPLED_TURNS = 8
SHORT_TURNS = 40
_SHOWN_CHARACTERS = 60


def sampled_turns(turns: int, count: int = SAMPLED_TURNS) -> frozenset[int]:
    """Turns to verify: all of a short run; of a longer one the first, the last and some evenly between."""
    if turns <= SHORT_TURNS:
        return frozenset(range(turns))
    return frozenset(round(position * (turns - 1) / max(1, count - 1)) for position in range(count))


async def verify_thread(
    stage: Stage,
    conversation: Conversation,
    thread_id: str,
    *,
    head_ids: Mapping[int, str],
    saved_ids: Sequence[str],
    evidence: Sequence[Evidence],
) -> None:
    """Compares a thread with what has to be there.

    Args:
        head_ids: The checkpoint at the end of each turn to look at, the last turn played among them.
        saved_ids: All checkpoints of the thread, in the order in which they were saved.
        evidence: What the saver was given for single checkpoints.

    Raises:
        NotVerifiedError: Something differs; the text names the first difference.
    """
    last_turn = max(head_ids)
    states = itertools.islice(conversation.expected_states(), last_turn + 1)
    async with stage.opened() as graph:
        for turn, expected in enumerate(states):
            if turn in head_ids:
                await _check_state(graph, thread_config(thread_id, head_ids[turn]), expected, where=f"turn {turn}")
            if turn == last_turn:
                found_id = await _check_state(graph, thread_config(thread_id), expected, where="the head")
                if found_id != head_ids[turn]:
                    raise NotVerifiedError(f"the head is checkpoint {found_id}, expected {head_ids[turn]}")
        for item in evidence:
            await _check_checkpoint(graph, thread_id, item)
        known = {item.checkpoint_id: item.put for item in evidence if item.put}
        await History(saved_ids, known, conversation.is_linear).check(graph, thread_id)


async def _check_state(graph: Graph, config: Any, expected: Mapping[str, Any], *, where: str) -> str:
    state = await graph.aget_state(config)
    if problem := state_difference(expected, state.values):
        raise NotVerifiedError(f"state after {where}: {problem}")
    return str(state.config["configurable"]["checkpoint_id"])


async def _check_checkpoint(graph: Graph, thread_id: str, evidence: Evidence) -> None:
    where = f"checkpoint {evidence.checkpoint_id}"
    saver: Any = graph.checkpointer
    stored = await saver.aget_tuple(thread_config(thread_id, evidence.checkpoint_id))
    if stored is None:
        raise NotVerifiedError(f"{where} is missing")
    if evidence.put:
        check_saved(stored, evidence.put)
    channels = {name: digest(value) for name, value in stored.checkpoint["channel_values"].items()}
    for name, expected in evidence.channels.items():
        if channels.get(name) != expected:  # others may be there: values put earlier for versions that still hold
            state = "different" if name in channels else "missing"
            raise NotVerifiedError(f"{where}: channel {name} is {state}, expected as it was put")
    writes = sorted((task, channel, digest(value)) for task, channel, value in stored.pending_writes or ())
    if evidence.writes_known and writes != evidence.writes:
        raise NotVerifiedError(
            f"{where}: {len(writes)} pending writes found, {len(evidence.writes)} were put, or they differ"
        )


def state_difference(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The first difference of two states; a list or dict that nobody has written yet may be empty or not there."""
    wanted, had = (
        {name: value for name, value in state.items() if value not in ([], {})} for state in (expected, found)
    )
    return difference(wanted, had)


def difference(expected: Any, found: Any, path: str = "") -> str:
    """The first place where two values differ, in words; empty text if they are equal in value and type."""
    if type(expected) is not type(found):
        return f"{path or 'it'} is a {type(found).__name__}, expected a {type(expected).__name__}"
    if isinstance(expected, dict):
        return _difference_of_dicts(expected, found, path)
    if isinstance(expected, list):
        return _difference_of_lists(expected, found, path)
    if expected == found:
        return ""
    if hasattr(expected, "__dict__"):
        return _difference_of_dicts(vars(expected), vars(found), path)
    return f"{path or 'it'} is {_shown(found)}, expected {_shown(expected)}"


def _difference_of_dicts(expected: Mapping[str, Any], found: Mapping[str, Any], path: str) -> str:
    for key in (*expected, *(key for key in found if key not in expected)):
        place = f"{path}.{key}" if path else str(key)
        if key not in found:
            return f"{place} is missing"
        if key not in expected:
            return f"{place} is there, expected nothing"
        if problem := difference(expected[key], found[key], place):
            return problem
    return ""


def _difference_of_lists(expected: Sequence[Any], found: Sequence[Any], path: str) -> str:
    for position, (one, other) in enumerate(zip(expected, found, strict=False)):
        if problem := difference(one, other, f"{path}[{position}]"):
            return problem
    return "" if len(expected) == len(found) else f"{path} has {len(found)} items, expected {len(expected)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
